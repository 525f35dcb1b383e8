"""What a sketch is asked: solutions, norms and determinants under ``V = S'S + alpha I``, never as a d x d matrix."""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import ROUNDING, Floats, remove_projection
from sketchbandits.sketches.base import ALPHA, COMPENSATED, LOGDET, RANK, RIDGE, SHRUNK, SketchState


@kernel
def solve(sketch: SketchState, x: Floats) -> None:
    """``x <- V^-1 x``, O(k d)."""
    rank, alpha = sketch.size[RANK], sketch.level[ALPHA]
    p = np.empty(sketch.basis.shape[0])
    remove_projection(sketch.basis, rank, x, p)
    for i in range(x.size):
        x[i] /= alpha
    for k in range(rank):
        weight = 0.0
        for a in range(rank):
            weight += sketch.inverse[k, a] * p[a]
        for i in range(x.size):
            x[i] += weight * sketch.basis[k, i]


@kernel
def shifted_logdet(A: Floats, rank: int, shift: float) -> float:
    """``ln det(I + shift A)`` of the leading block, by Cholesky: the matrix is at least the identity."""
    L = np.zeros((rank, rank))
    total = 0.0
    for a in range(rank):
        for b in range(a + 1):
            value = shift * A[a, b] + (1.0 if a == b else 0.0)
            for k in range(b):
                value -= L[a, k] * L[b, k]
            if a == b:
                L[a, a] = np.sqrt(value)
                total += np.log(value)
            else:
                L[a, b] = value / L[b, b]
    return total


@kernel
def information(sketch: SketchState) -> float:
    """``ln det(I + S S'/(ridge + shrunk))``, the measured term of the sketched radii."""
    level, rank = sketch.level, sketch.size[RANK]
    if level[COMPENSATED] > 0.0 or level[SHRUNK] == 0.0:
        return level[LOGDET]
    extra = shifted_logdet(sketch.inverse, rank, level[SHRUNK])
    return level[LOGDET] + extra - rank * np.log1p(level[SHRUNK] / level[RIDGE])


def inner_products(sketch: SketchState, vectors: Floats) -> tuple[Floats, Floats]:
    """Coordinates (n, rank) and residuals (n, d) of rows, in two passes; residuals at rounding level are zero."""
    basis = sketch.basis[: sketch.size[RANK]]
    coordinates = np.zeros((vectors.shape[0], basis.shape[0]))
    rest = vectors.copy()
    for _ in range(2):
        step = rest @ basis.T
        coordinates += step
        rest -= step @ basis
    noise = np.linalg.norm(rest, axis=1) <= ROUNDING * np.linalg.norm(vectors, axis=1)
    rest[noise] = 0.0
    return coordinates, rest


def inverse_norms(sketch: SketchState, vectors: Floats) -> Floats:
    """``||x||_{V^-1}`` for every row, O(n k (d + k))."""
    rank = sketch.size[RANK]
    p, rest = inner_products(sketch, vectors)
    inside = ((p @ sketch.inverse[:rank, :rank]) * p).sum(axis=1)
    return np.sqrt(np.maximum(inside, 0.0) + (rest**2).sum(axis=1) / sketch.level[ALPHA])
