"""Arms and the spans of orthonormal bases: which arms a span holds, which span is nearest, which span fits best.

Arms are used as unit vectors, made one tile at a time; bases have one vector per row. Decisions rest on the norms of
residuals: ``||x||^2 - ||Qx||^2`` has a rounding error of 1e-8 in distance, and only serves to rule out most arms.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import Threads

TILE = 1024  # arms per product: fixed, so that the number of threads does not change the outcome
SCREEN = 1e-12  # rounding of ||x||^2 - ||Qx||^2; what passes is measured by its residual
WITHIN = 1 - 1e-5  # of the tolerance, for bases made here: no rounding elsewhere then takes a residual above it


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
    """The number of tiles that cover ``count`` arms."""
    return -(-count // TILE)


def groups(labels: Ints, count: int) -> list[Ints]:
    """For every label below ``count``, where it occurs, in order."""
    order = np.argsort(labels, kind="stable")
    return [order[i:j] for i, j in pairwise(np.searchsorted(labels[order], np.arange(count + 1)))]


def slimmed(rows: Floats, basis: Floats, radius: float) -> Floats:
    """The first axes of the least-squares fit, as few as keep all ``rows`` within the radius; ``basis`` if none do.

    What remains of a row when some axes are dropped is what all axes leave of it and its part along the dropped ones.
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
