"""What every matrix sketch shares: rows, a basis of their span, and the inverse in that basis.

A sketch stands for ``V = S'S + alpha I`` with few rows ``S``. Besides ``S`` it keeps an orthonormal basis ``Q`` of its
row space (rank k) and ``A = (Q V Q')^-1``, so that nothing d x d is ever formed:

    ||x||^2_{V^-1} = p'A p + ||x - Q'p||^2/alpha ,   p = Q x

Both terms are positive: nothing cancels, for any ridge and scale. A new row ``x`` extends ``Q`` by its residual (two
Gram-Schmidt passes, O(k d)) and changes ``A`` by a rank-one step, O(k^2). When the rows are full, one SVD shrinks them
and makes ``A`` diagonal again; a step that multiplies det V by more than 10 is replaced by such a decomposition.

The first ``CLOSED`` rows belong to finished blocks (`dyadic_blocks`); plain Frequent Directions has none.
"""

import math
from typing import Annotated, NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import MAX_STEP, ROUNDING, Floats, Ints, assign, remove_projection

ROWS, CLOSED, RANK, KEEP, CAPACITY, BLOCK_RANK, TURNS = range(7)  # entries of ``size``
RIDGE, ALPHA, SHRUNK, LOGDET, COMPENSATED, BLOCK_LIMIT, BLOCK_MASS = range(7)  # entries of ``level``

NEGLIGIBLE = 1e-14  # singular values below this share of the largest are rounding noise, and zero
FRESH_EVERY = 64  # decompositions after which everything is computed from the rows themselves
WORST_CONDITION = 1e7  # of V, past which that happens every time
BLOCK_TOLERANCE = 1e-8  # the residual rule of `partition`, for the rank of a block


class SketchState(NamedTuple):
    """The whole memory of a sketch."""

    rows: Annotated[Floats, "rows d"]  # S in its first ROWS rows
    basis: Annotated[Floats, "k d"]  # Q in its first RANK rows
    inverse: Annotated[Floats, "k k"]  # A in its first RANK rows and columns
    block: Annotated[Floats, "b d"]  # an orthonormal basis of what the open dyadic block has received; else no rows
    size: Annotated[Ints, "7"]
    level: Annotated[Floats, "7"]
    work: Annotated[Floats, "2d+2k"]


def new_state(dim: int, *, keep: int, capacity: int, total: int, ridge: float, compensated: bool) -> SketchState:
    """An empty sketch that can hold ``total`` rows; open rows are shrunk to ``keep`` when they are ``capacity``."""
    rank = min(total, dim)
    return SketchState(
        rows=np.zeros((total, dim)),
        basis=np.zeros((rank, dim)),
        inverse=np.zeros((rank, rank)),
        block=np.zeros((0, dim)),
        size=np.array([0, 0, 0, keep, capacity, 0, 0], np.int64),
        level=np.array([ridge, ridge, 0.0, 0.0, float(compensated), math.inf, 0.0]),
        work=np.zeros(2 * dim + 2 * rank),
    )


@kernel
def decompose(sketch: SketchState, first: int, fresh: bool) -> tuple[Floats, Floats, Floats]:
    """Singular values and right vectors of the rows from ``first`` on, dust set to zero, and the vectors in the basis.

    It works on the rows' coordinates, k x k: the vectors then stay inside the basis's span however different the rows'
    sizes are. ``fresh`` takes the rows themselves, so that rounding errors of many turns do not pile up.
    """
    rows = sketch.rows[first : sketch.size[ROWS]]
    Q = sketch.basis[: sketch.size[RANK]]
    if fresh:
        _, sigma, vectors = np.linalg.svd(rows, False)
        turn = np.zeros((0, 0))
    else:
        _, sigma, inner = np.linalg.svd(np.dot(rows, np.ascontiguousarray(Q.T)), False)
        turn = np.ascontiguousarray(inner)
        vectors = np.dot(turn, Q)
    for k in range(sigma.size):
        if sigma[k] <= NEGLIGIBLE * sigma[0]:
            sigma[k] = 0.0
    return sigma, np.ascontiguousarray(vectors), turn


@kernel
def shrink(sketch: SketchState) -> None:
    """Subtract the (KEEP + 1)-th squared singular value of the open rows from all of them; at most KEEP stay."""
    size, level = sketch.size, sketch.level
    closed, keep = size[CLOSED], size[KEEP]
    sigma, vectors, _ = decompose(sketch, closed, False)
    cut = sigma[keep] ** 2 if keep < sigma.size else 0.0
    size[ROWS] = closed
    for k in range(min(keep, sigma.size)):
        left = sigma[k] ** 2 - cut
        if left > NEGLIGIBLE * sigma[0] * sigma[k]:
            assign(sketch.rows[size[ROWS]], np.sqrt(left) * vectors[k])
            size[ROWS] += 1
    level[SHRUNK] += cut
    level[ALPHA] = level[RIDGE] + level[COMPENSATED] * level[SHRUNK]


@kernel
def rebuild(sketch: SketchState) -> Floats:
    """Basis and inverse from the rows alone; returns the matrix that turns old coordinates into new ones.

    It is empty where coordinates must be recomputed: every 64th time, and where V is so ill-conditioned that their
    rounding errors would show.
    """
    size, level = sketch.size, sketch.level
    level[LOGDET] = 0.0
    if size[ROWS] == 0:
        size[RANK] = 0
        return np.zeros((0, 0))
    size[TURNS] += 1
    sigma, vectors, turn = decompose(sketch, 0, False)
    if size[TURNS] >= FRESH_EVERY or sigma[0] ** 2 > WORST_CONDITION * level[ALPHA]:
        size[TURNS] = 0
        sigma, vectors, turn = decompose(sketch, 0, True)
    rank = 0
    while rank < sigma.size and sigma[rank] > 0.0:
        level[LOGDET] += np.log1p(sigma[rank] ** 2 / level[ALPHA])
        rank += 1
    for k in range(rank):
        assign(sketch.basis[k], vectors[k])
        for i in range(rank):
            sketch.inverse[k, i] = 0.0
        sketch.inverse[k, k] = 1.0 / (sigma[k] ** 2 + level[ALPHA])
    size[RANK] = rank
    return turn


@kernel
def extend(sketch: SketchState, x: Floats, p: Floats) -> float:
    """Let the basis span ``x`` and give its coordinates ``p``; returns the share of ``x`` that was new (0: none)."""
    size = sketch.size
    rank = size[RANK]
    rest = sketch.work[: x.size]
    assign(rest, x)
    left = remove_projection(sketch.basis, rank, rest, p)
    norm = np.sqrt(np.dot(x, x))
    if left <= ROUNDING * norm or rank == sketch.basis.shape[0]:
        return 0.0
    for i in range(x.size):
        sketch.basis[rank, i] = rest[i] / left
    for k in range(rank):
        sketch.inverse[k, rank] = sketch.inverse[rank, k] = 0.0
    sketch.inverse[rank, rank] = 1.0 / sketch.level[ALPHA]
    p[rank] = left
    size[RANK] += 1
    return left / norm


@kernel
def append(sketch: SketchState, x: Floats, p: Floats, u: Floats) -> float:
    """Hold ``x``, whose coordinates are ``p``, as a further row; returns the factor ``D`` by which det V grows.

    ``u`` receives ``A p``. With ``D`` outside [1, 10] the inverse is left alone: the caller rebuilds.
    """
    size, rank = sketch.size, sketch.size[RANK]
    A = sketch.inverse
    assign(sketch.rows[size[ROWS]], x)
    size[ROWS] += 1
    sketch.level[BLOCK_MASS] += np.dot(x, x)
    D = 1.0
    for a in range(rank):
        total = 0.0
        for b in range(rank):
            total += A[a, b] * p[b]
        u[a] = total
        D += total * p[a]
    if not 1.0 <= D <= MAX_STEP:
        return D
    for a in range(rank):
        for b in range(rank):
            A[a, b] -= u[a] * u[b] / D
    sketch.level[LOGDET] += np.log(D)
    return D


@kernel
def is_full(sketch: SketchState) -> bool:
    """Whether the open rows must be shrunk now."""
    return sketch.size[ROWS] - sketch.size[CLOSED] >= sketch.size[CAPACITY]


@kernel
def open_block(sketch: SketchState, x: Floats) -> None:
    """Dyadic blocks: close the open block before ``x`` if ``x`` would make it lose more than its share.

    It closes when its mass would pass the limit *and* the rank of what it received would exceed its size. The next
    block keeps twice as many rows; one that keeps at least d never loses anything.
    """
    size, level = sketch.size, sketch.level
    if sketch.block.shape[0] == 0:
        return
    keep, mass = size[KEEP], np.dot(x, x)
    left = _outside_block(sketch, x)
    exceeds = left and size[BLOCK_RANK] >= keep
    if exceeds and level[BLOCK_MASS] + mass > level[BLOCK_LIMIT] and keep < x.size:
        size[CLOSED] = size[ROWS]
        size[KEEP], size[CAPACITY], size[BLOCK_RANK] = 2 * keep, 4 * keep, 0
        level[BLOCK_MASS] = 0.0
        left = _outside_block(sketch, x)
        exceeds = False
    if exceeds:
        size[BLOCK_RANK] = keep + 1
    elif left and size[BLOCK_RANK] < sketch.block.shape[0]:
        rest = sketch.work[: x.size]
        scale = 1.0 / np.sqrt(np.dot(rest, rest))
        for i in range(x.size):
            sketch.block[size[BLOCK_RANK], i] = rest[i] * scale
        size[BLOCK_RANK] += 1


@kernel
def _outside_block(sketch: SketchState, x: Floats) -> bool:
    """Whether ``x`` adds to the rank of what the open block received; the residual is left in ``work``."""
    if sketch.size[BLOCK_RANK] > sketch.size[KEEP]:
        return True  # past its size already
    rest, p = sketch.work[: x.size], sketch.work[2 * x.size :]
    assign(rest, x)
    left, norm = remove_projection(sketch.block, sketch.size[BLOCK_RANK], rest, p), np.sqrt(np.dot(x, x))
    # Small compared with the row is not enough for large rows: what is left must be small compared with the limit too.
    allowed = BLOCK_TOLERANCE * min(norm, np.sqrt(sketch.level[BLOCK_LIMIT]))
    return left > max(allowed, ROUNDING * norm)


@kernel
def insert(sketch: SketchState, x: Floats) -> None:
    """One more row, for a sketch on its own."""
    if np.dot(x, x) == 0.0:
        return
    open_block(sketch, x)
    most = sketch.basis.shape[0]
    p, u = sketch.work[2 * x.size : 2 * x.size + most], sketch.work[2 * x.size + most :]
    extend(sketch, x, p)
    D = append(sketch, x, p, u)
    full = is_full(sketch)
    if full:
        shrink(sketch)
    if full or not 1.0 <= D <= MAX_STEP:
        rebuild(sketch)
