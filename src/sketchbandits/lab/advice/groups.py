"""Which arms are the same: exact copies, copies up to rounding, and arms on one ray.

Rows are compared in a few random directions only. Rows within ``tolerance`` of each other are within it in every
direction, so none is missed; rows further apart agree in eight random directions with probability about
``(tolerance/distance)**8``, that is never.

**Cost** O(N d) for copies; O(N d + N log N + w N) for the others, ``w`` the most rows that are as near as the tolerance
in the first direction, `MOST_NEIGHBOURS` at most.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import one_blas_thread

BLOCK = 4096  # rows at a time
DIRECTIONS = 8
MOST_NEIGHBOURS = 64


def blocks(arms: NDArray[Any]) -> Iterator[tuple[int, Floats]]:
    """The first row and the rows, in float64, of every block."""
    for start in range(0, len(arms), BLOCK):
        yield start, np.asarray(arms[start : start + BLOCK], dtype=np.float64)


def copies(arms: NDArray[Any]) -> Ints:
    """Labels: rows have the same one where they are bit-for-bit identical (and -0 is 0)."""
    words = np.random.default_rng(0).integers(2**63, size=arms.shape[1], dtype=np.uint64) | np.uint64(1)
    keys = np.empty(len(arms), np.uint64)
    for start, rows in blocks(arms):
        # A sum of products that wraps around, twice mixed: 64 bits per row that equal rows share and others do not.
        bits = (rows + 0.0).view(np.uint64)
        bits = (bits ^ (bits >> np.uint64(29))) * words
        keys[start : start + len(rows)] = (bits ^ (bits >> np.uint64(32))).sum(axis=1)
    return np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)


def nearby(arms: NDArray[Any], tolerance: float, *, rays: bool = False) -> Ints:
    """Labels: rows have the same one where a chain of steps of at most ``tolerance`` joins them.

    ``rays`` compares directions without their sign: rows are scaled to norm 1 first. Zero rows then get the label -1.
    """
    points, zero = _projections(arms, rays)
    order = np.argsort(points[:, 0], kind="stable")
    ordered = points[order]
    pairs, chain = [], np.arange(len(arms))  # rows of one chain are joined by steps to the next row already
    for shift in range(1, min(MOST_NEIGHBOURS, len(arms) - 1) + 1):
        close = ordered[shift:, 0] - ordered[:-shift, 0] <= tolerance
        near = np.flatnonzero(close & (chain[shift:] != chain[:-shift]))
        if not near.size:
            break
        near = near[(np.abs(ordered[near + shift] - ordered[near]) <= tolerance).all(axis=1)]
        pairs.append(np.stack([order[near], order[near + shift]]))
        if shift == 1:
            breaks = np.ones(len(arms), np.int64)
            breaks[near + 1] = 0
            chain = np.cumsum(breaks)
    labels = _components(len(arms), pairs)
    if rays:
        labels[zero] = -1
    return labels


def _projections(arms: NDArray[Any], rays: bool) -> tuple[Floats, NDArray[np.bool_]]:
    """Every row in a few directions, and which rows are zero."""
    n, d = arms.shape
    directions = np.random.default_rng(1).standard_normal((d, min(d, DIRECTIONS)))
    directions /= np.linalg.norm(directions, axis=0)
    points, zero = np.empty((n, directions.shape[1])), np.empty(n, np.bool_)
    with one_blas_thread():
        for start, rows in blocks(arms):
            norms = np.linalg.norm(rows, axis=1)
            zero[start : start + len(rows)] = norms == 0.0
            part = rows @ directions
            if rays:
                part /= np.where(norms > 0.0, norms, 1.0)[:, None]
                largest = np.abs(part).argmax(axis=1)
                part *= np.where(part[np.arange(len(part)), largest] < 0.0, -1.0, 1.0)[:, None]
            points[start : start + len(rows)] = part
    return points, zero


def _components(n: int, pairs: list[Ints]) -> Ints:
    from scipy import sparse  # a while to load, for callers who ask

    first, second = np.concatenate(pairs, axis=1) if pairs else np.empty((2, 0), np.int64)
    graph = sparse.coo_array((np.ones(first.size, np.bool_), (first, second)), shape=(n, n))
    return sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)
