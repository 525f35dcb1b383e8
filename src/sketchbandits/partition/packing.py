"""Subspaces -> clusters of rank at most ``l``, never more of them than first-fit makes of the arms in their order.

    1. found subspaces share a cluster where the rank of their union is <= l: the largest first, each to the cluster
       whose rank it raises least;
    2. arms in no subspace fill the clusters up to rank l, each with its own direction; arms that a filled cluster then
       contains join it;
    3. first-fit of the rest;
    4. first-fit of all arms in their order is compared, and given up as soon as it needs more clusters;
    5. the basis of a cluster with more arms than its rank becomes their least-squares fit, so that with a tolerance
       residuals are about the noise, where a basis of the first ``l`` arms carries their noise.

**Cost** that of the search (`partition.subspaces`), O(N d l) for the fits, and that of one or two first-fits. In
general position nothing is found and what remains is the search and one first-fit. Memory: that of the search and of a
first-fit, and a copy of the arms in no subspace.
**Guarantee** Every arm is within the tolerance of the span of its cluster, and there are never more clusters than
first-fit makes of the arms in their order.
**Reference** The packing is best-fit decreasing for bins (Johnson, "Near-Optimal Bin Packing Algorithms", 1973).
**Departures** Bins are subspaces: what two of them share counts once, so that the rank of a union replaces a sum.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import Threads, one_blas_thread, threads
from sketchbandits.partition.first_fit import first_fit
from sketchbandits.partition.spans import (
    TILE,
    WITHIN,
    directions,
    groups,
    least_squares,
    nearest,
    orthonormal,
    residuals,
    slimmed,
    without,
)
from sketchbandits.partition.subspaces import SAMPLE, find_subspaces

SHARED = 0.1  # of the tolerance: a direction of one subspace that close to another counts as shared
ROUNDING = 1e-6  # of a sum of squared cosines

Clustering = tuple[Ints, Ints, Floats]  # labels, ranks, stacked bases


def union(basis: Floats, other: Floats, tolerance: float) -> Floats:
    """An orthonormal basis of two subspaces together, the first one's vectors first."""
    _, sines, axes = np.linalg.svd(without(basis, other), full_matrices=False)
    new = without(basis, axes[sines > SHARED * tolerance])
    return np.vstack([basis, orthonormal(new)]) if len(new) else basis


def pack(bases: list[Floats], rank: int, tolerance: float) -> list[Floats]:
    """Bases of clusters of at most ``rank`` dimensions, each of one or several of the subspaces."""
    count = 0
    rows = np.zeros((len(bases), rank, bases[0].shape[1]))  # of all clusters, for one product with all of them
    ranks = np.zeros(len(bases), np.int64)
    for s in sorted(range(len(bases)), key=lambda s: -len(bases[s])):
        basis = bases[s]
        # The squared cosines between two subspaces sum up to at least the dimension that they share.
        cosines = rows[:count].reshape(count * rank, basis.shape[1]) @ basis.T
        shared = np.square(cosines).reshape(count, rank * len(basis)).sum(axis=1)
        fits = np.flatnonzero(ranks[:count] + len(basis) - shared <= rank + ROUNDING)
        joined = [(union(rows[c, : ranks[c]], basis, tolerance), int(c)) for c in fits]
        joined = [(wider, c) for wider, c in joined if len(wider) <= rank]
        wider, c = min(joined, key=lambda pair: len(pair[0]) - ranks[pair[1]]) if joined else (basis, count)
        rows[c, : len(wider)], ranks[c] = wider, len(wider)
        count = max(count, c + 1)
    return [rows[c, : ranks[c]].copy() for c in range(count)]


def fill(arms: NDArray[Any], rest: Ints, bases: list[Floats], rank: int, tolerance: float, pool: Threads) -> Ints:
    """Clusters of the arms ``rest``, -1 for those beyond all; ``bases`` below ``rank`` take up arms and grow."""
    labels = np.full(rest.size, -1)
    for c in np.flatnonzero([len(basis) < rank for basis in bases]):
        todo, taken = np.flatnonzero(labels < 0), 0
        while len(bases[c]) < rank and taken < todo.size:
            beyond = without(bases[c], directions(arms, rest[todo[taken] : todo[taken] + 1]))
            if np.linalg.norm(beyond) > tolerance * WITHIN:
                bases[c] = np.vstack([bases[c], beyond / np.linalg.norm(beyond)])
            taken += 1
        labels[todo[:taken]] = c
        # The next in line may be in that span: they should not fill another.
        following = todo[taken : taken + TILE]
        labels[following[nearest(arms, rest[following], [bases[c]], tolerance, pool) == 0]] = c
    todo = np.flatnonzero(labels < 0)
    labels[todo] = nearest(arms, rest[todo], bases, tolerance, pool)
    return labels


def refit(arms: NDArray[Any], clustering: Clustering, tolerance: float) -> Clustering:
    """The same clusters, with least-squares bases where all members stay within the tolerance of them."""
    labels, ranks, bases = clustering
    ends = np.cumsum(ranks)
    for own, rank, end in zip(groups(labels, ranks.size), ranks, ends, strict=True):
        some = own[:: -(-own.size // SAMPLE)]
        if not 0 < rank < some.size:
            continue
        basis = least_squares(directions(arms, some), bases[end - rank : end])
        blocks = (directions(arms, own[i : i + TILE]) for i in range(0, own.size, TILE))
        if all(residuals(block, basis).max() <= tolerance * WITHIN for block in blocks):
            bases[end - rank : end] = basis
    return clustering


class Packing:
    """One order-free partition: `run` gives labels, ranks and stacked bases."""

    def __init__(
        self,
        arms: NDArray[Any],
        sketch_size: int,
        tolerance: float,
        generator: np.random.Generator,
        *,
        workers: int,
        check: Callable[[Floats, int], None],
        show: Callable[[float], None],
    ) -> None:
        self.arms, self.sketch_size, self.tolerance, self.generator = arms, sketch_size, tolerance, generator
        self.workers, self.check, self.show = workers, check, show

    def run(self) -> Clustering:
        """The better of what is found and first-fit."""
        with threads(self.workers) as pool:
            index = self._checked()
            bases, labels = self._clusters(index, pool)
        most, found = math.inf, None
        if bases:
            found = self._completed(index, bases, labels)
            most = found[1].size
        plain = self._first_fit(self.arms, 0.5, 0.9, most)
        best = plain if found is None or plain[1].size < most else found
        with one_blas_thread():
            best = refit(self.arms, best, self.tolerance)
        self.show(1.0)
        return best

    def _checked(self) -> Ints:
        """The arms that are not zero; rows with entries that no arm may have are refused."""
        flags = np.empty(len(self.arms), bool)
        for start in range(0, len(self.arms), TILE):
            rows = np.asarray(self.arms[start : start + TILE], dtype=np.float64)
            self.check(rows, start)
            flags[start : start + TILE] = rows.any(axis=1)
        return np.flatnonzero(flags)

    def _clusters(self, index: Ints, pool: Threads) -> tuple[list[Floats], Ints]:
        """Bases of clusters around subspaces, and of each arm in ``index`` the cluster, -1 for those in none."""
        arms, tolerance, rank = self.arms, self.tolerance, min(self.sketch_size, self.arms.shape[1])
        bases = find_subspaces(
            arms,
            index,
            rank,
            tolerance,
            self.generator,
            threads=pool,
            show=lambda share: self.show(0.4 * share),
        )
        if not bases:
            return [], np.full(index.size, -1)
        labels = nearest(arms, index, bases, tolerance, pool)
        bases = pack(self._slimmed(index, labels, bases), rank, tolerance)
        labels = nearest(arms, index, bases, tolerance, pool)
        used, numbers = np.unique(labels[labels >= 0], return_inverse=True)
        labels[labels >= 0], bases = numbers, [bases[c] for c in used]
        rest = np.flatnonzero(labels < 0)
        labels[rest] = fill(arms, index[rest], bases, rank, tolerance, pool)
        return bases, labels

    def _slimmed(self, index: Ints, labels: Ints, bases: list[Floats]) -> list[Floats]:
        """Subspaces of the dimension that their own arms need; those that have no arms of their own are dropped."""
        radius, slim = self.tolerance * WITHIN, list[Floats]()
        for own, basis in zip(groups(labels, len(bases)), bases, strict=True):
            if 0 < own.size <= SAMPLE:
                slim.append(slimmed(directions(self.arms, index[own]), basis, radius))
            elif own.size:
                slim.append(basis)
        return slim

    def _completed(self, index: Ints, bases: list[Floats], own: Ints) -> Clustering:
        """All arms: clusters of their own for those in none; zero arms, which every span contains, in the first."""
        labels, ranks, rows = np.zeros(len(self.arms), np.int64), np.array([len(basis) for basis in bases]), bases
        labels[index] = own
        rest = index[own < 0]
        if rest.size:
            numbers, more, stacked = self._first_fit(self.arms[rest], 0.4, 0.5)
            labels[rest], ranks, rows = len(bases) + numbers, np.concatenate([ranks, more]), [*bases, stacked]
        return labels, ranks, np.vstack(rows)

    def _first_fit(self, arms: NDArray[Any], start: float, end: float, most: float = math.inf) -> Clustering:
        return first_fit(
            arms,
            self.sketch_size,
            self.tolerance,
            check=self.check,
            workers=self.workers,
            device="cpu",
            show=lambda share: self.show(start + (end - start) * share),
            most=most,
        )
