"""Arms and the spans of orthonormal bases: who is in, who is nearest, and the span that fits best.

Arms are handled as unit vectors, made of them a tile at a time; bases have one vector a row. Distances that decide are
norms of residuals: ``||x||^2 - ||Qx||^2`` has rounding of its own, 1e-8 in distance, and serves to pass over most arms.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import Threads

TILE = 1024  # arms a product: fixed, so that the number of threads does not change a bit
SCREEN = 1e-12  # rounding of ||x||^2 - ||Qx||^2; what passes is measured by its residual
WITHIN = 1 - 1e-5  # of the tolerance, for bases made here: rounding elsewhere then lifts no residual above it


def directions(arms: NDArray[Any], index: Ints) -> Floats:
    """The arms ``index`` as unit vectors, through their largest entries so that no square overflows or vanishes."""
    rows = np.array(arms[index], dtype=np.float64)
    for order in (np.inf, 2):
        size = np.linalg.norm(rows, order, axis=1, keepdims=True)
        rows /= np.where(size > 0.0, size, 1.0)
    return rows


def residuals(rows: Floats, basis: Floats) -> Floats:
    """``||x - Q'Q x||`` of every row."""
    return np.linalg.norm(rows - (rows @ basis.T) @ basis, axis=1)


def members(rows: Floats, basis: Floats, radius: float) -> Ints:
    """The unit rows within ``radius`` of the span of ``basis``."""
    near = np.flatnonzero(1.0 - np.square(rows @ basis.T).sum(axis=1) <= radius**2 + SCREEN)
    return near[residuals(rows[near], basis) <= radius]


def least_squares(rows: Floats, basis: Floats) -> Floats:
    """The subspace of the same dimension with the smallest squared distance to ``rows``, from one close to it.

    One step of subspace iteration: an orthonormal basis U of ``X Q'``, then the right singular vectors of ``U'X``. No
    Gram matrix is formed, so singular values down to rounding keep their directions. O(n d k).
    """
    left = np.linalg.qr(rows @ basis.T)[0]
    return np.linalg.svd(left.T @ rows, full_matrices=False)[2]


def orthonormal(rows: Floats) -> Floats:
    """An orthonormal basis of independent rows."""
    return np.ascontiguousarray(np.linalg.qr(rows.T)[0].T)


def without(basis: Floats, rows: Floats) -> Floats:
    """Rows less their part in the span of ``basis``; twice, for what rounding leaves of it."""
    for _ in range(2):
        rows = rows - (rows @ basis.T) @ basis
    return rows


def tiles(count: int) -> int:
    """So many tiles cover ``count`` arms."""
    return -(-count // TILE)


def groups(labels: Ints, count: int) -> list[Ints]:
    """The places of every label below ``count``, in order."""
    order = np.argsort(labels, kind="stable")
    return [order[i:j] for i, j in pairwise(np.searchsorted(labels[order], np.arange(count + 1)))]


def slimmed(rows: Floats, basis: Floats, radius: float) -> Floats:
    """The first axes of the least-squares fit, as few as keep all ``rows`` within the radius; ``basis`` if all do not.

    What is left of a row with some axes dropped is what all of them leave and its coordinates along the dropped ones.
    """
    axes = least_squares(rows, basis)
    parts = np.square(np.column_stack([residuals(rows, axes), (rows @ axes.T)[:, ::-1]]))
    needed = int(np.sum(parts.cumsum(axis=1).max(axis=0) > radius**2))
    return axes[: max(1, needed)] if needed <= len(axes) else basis


def squared_parts(rows: Floats, bases: list[Floats]) -> Floats:
    """``||Q x||^2`` of every row for every basis: shape ``(rows, bases)``."""
    starts = np.cumsum([0, *map(len, bases[:-1])])
    return np.add.reduceat(np.square(rows @ np.vstack(bases).T), starts, axis=1)


def nearest(arms: NDArray[Any], index: Ints, bases: list[Floats], tolerance: float, threads: Threads) -> Ints:
    """For each of the arms ``index`` the nearest of the subspaces, -1 where that is farther than the tolerance."""
    labels = np.full(index.size, -1)
    if bases:
        threads.over(tiles(index.size), _nearest, arms, index, bases, tolerance * WITHIN, labels)
    return labels


def _nearest(
    arms: NDArray[Any], index: Ints, bases: list[Floats], tolerance: float, labels: Ints, first: int, last: int
) -> None:
    for k in range(first, last):
        rows = directions(arms, index[k * TILE : (k + 1) * TILE])
        parts = squared_parts(rows, bases)
        best = parts.argmax(axis=1)
        near = 1.0 - parts[np.arange(len(rows)), best] <= tolerance**2 + SCREEN
        for s in np.unique(best[near]):
            own = np.flatnonzero(near & (best == s))
            labels[k * TILE + own[residuals(rows[own], bases[s]) <= tolerance]] = s
