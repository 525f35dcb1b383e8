"""Preallocated slots for arms added later, and the bases that say where a new arm belongs.

A free slot is an arm nobody can play: coordinates 0, bound -inf. Kernels need not know of it, and a cluster's numbers
stay where they are until its slots are used up; then their number doubles, and all clusters move, in O(N l): seldom
where arms keep coming to the same clusters, once per cluster where each gains one arm. A cluster that may still gain
rank has preallocated coordinates likewise, which are 0 for all its arms.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints, remove_projection
from sketchbandits.partition.first_fit import unit_rows
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb.coordinates import (
    CoordinateState,
    coordinates_of,
    estimate_of,
    frame_of,
    lay_out,
    refit,
    typed,
)
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CLUSTER,
    COUNT,
    FEW,
    LISTED,
    OFF_SPAN,
    OFFSET,
    SLOT,
    Record,
    new_clusters,
)
from sketchbandits.policies.cslb.shortlist import whitened_of
from sketchbandits.policies.cslb.tournament import fill_tree
from sketchbandits.policies.rounds import LOST, SUM

SPARE = 8  # one more cluster for so many, whenever a new one is needed


def with_slots(state: Any, sizes: Ints, ranks: Ints, scan: str) -> Any:
    """The same state with ``sizes[c]`` slots and ``ranks[c]`` coordinates for cluster c; new clusters at the end.

    Only clusters whose form changes (`layout.FEW` ...) are fitted again. O(N l), most of it copying.
    """
    old, control, n = state.clusters, state.control.copy(), int(sizes.sum())
    clusters = new_clusters(sizes, ranks, 0.0)
    clusters["sentinel"] = clusters["uncapped"] = -np.inf
    for name in old.dtype.names:
        if name not in ("start", "size", "rank"):
            clusters[name][: old.size] = old[name]
    fits = np.zeros(lay_out(control, clusters, scan))
    moved = np.arange(state.counts.size) + np.repeat(clusters["start"][: old.size] - old["start"], old["size"])
    clusters["best"][: old.size] = moved[old["best"]]
    stats = np.zeros((state.stats.shape[0], n))
    stats[OFFSET] = -np.inf
    stats[:, moved] = state.stats
    place = _moved_place(state.place, moved, n)
    new = state._replace(control=control, clusters=clusters, place=place, stats=stats, fits=fits)
    _move_clusters(state, new)
    fill_tree(control, clusters, fits)
    return typed(new) if isinstance(new, CoordinateState) else new


def _moved_place(place: Ints, moved: Ints, n: int) -> Ints:
    result = np.full((len(place), n), -1)
    known = place[SLOT] >= 0
    result[SLOT, : known.size][known] = moved[place[SLOT, known]]
    result[CLUSTER, : known.size] = place[CLUSTER]
    result[ARM_AT, moved] = place[ARM_AT]
    result[COUNT] = 0
    result[COUNT, moved] = place[COUNT]
    return result


def _move_clusters(old: Any, new: Any) -> None:
    """Copy the blocks of fits: in one piece between clusters that change, padded where one does."""
    k = old.clusters.size
    before, after = old.clusters, new.clusters[:k]
    # Shortlists name slots, which have moved: they are drawn anew.
    changed = (after["form"] == LISTED) | np.any([before[f] != after[f] for f in ("size", "rank", "form")], axis=0)
    ends = np.append(before["block"], old.control["tree"])
    start = 0
    for c in [*np.flatnonzero(changed).tolist(), k]:
        if c > start:
            length, to = ends[c] - ends[start], after["block"][start]
            new.fits[to : to + length] = old.fits[ends[start] : ends[c]]
        if c < k:
            _move_cluster(old, new, c)
        start = c + 1


def _move_cluster(old: Any, new: Any, c: int) -> None:
    """Copy one cluster into more slots; where its statistics take another form there, they are made again."""
    source, target = old.clusters[c], new.clusters[c]
    n, r, m, s = int(source["size"]), int(source["rank"]), int(target["size"]), int(target["rank"])
    for view in (coordinates_of, whitened_of):
        view(target, new.fits)[:r, :n] = view(source, old.fits)
    form = source["form"]
    if form != target["form"] or form == LISTED or r == 0:
        refit(new, c)
        return
    if form == FEW:
        core(target, new.fits, m)[:n, :n] = core(source, old.fits, n)
        return
    # Directions that no arm had: their part of V is the ridge, which is 1 in whitened coordinates.
    core(target, new.fits, s)[:] = np.eye(s)
    core(target, new.fits, s)[:r, :r] = core(source, old.fits, r)
    estimate_of(target, new.fits)[:r] = estimate_of(source, old.fits)
    frame_of(target, new.fits)[:] = np.eye(s) / np.sqrt(new.control["radius"]["ridge"][0])
    frame_of(target, new.fits)[:r, :r] = frame_of(source, old.fits)


def core(own: Record, fits: Floats, side: int) -> Floats:
    """The Gram matrix of a cluster of FEW arms, or the inverse of one of MANY."""
    start = int(own["core"])
    return fits[start : start + side * side].reshape(side, side)


def restore_rewards(state: Any, counts: Ints, sums: Floats, active: NDArray[np.bool_]) -> None:
    """Put every arm's count and sum (and what rounding lost of it) into a state without any, and fit it."""
    slots = state.place[SLOT, : counts.size]
    state.place[COUNT, slots] = counts
    state.stats[SUM, slots], state.stats[LOST, slots] = sums
    state.stats[OFFSET, slots[~active]] = -np.inf
    labels, k = state.place[CLUSTER, : counts.size], state.clusters.size
    state.clusters["samples"] = np.bincount(labels, counts, minlength=k)
    state.clusters["leak"] = np.bincount(labels, counts * state.stats[OFF_SPAN, slots] ** 2, minlength=k)
    state.control["round"] = 1 + counts.sum()
    for c in range(k):
        refit(state, c)


class Found(NamedTuple):
    """Where a new arm belongs, and what it adds to the basis there (None: it lies in the span)."""

    cluster: int
    direction: Floats | None


class Spans:
    """The bases of clusters, which may gain directions, with a probe each: a unit vector orthogonal to the span.

    An arm in a span has a probe value of at most the tolerance, so one product finds the few clusters to ask exactly.
    Assignments are first-fit's, by the same routine, bit-for-bit identical. O(K d + l d) per arm, O(N d) memory.
    """

    def __init__(self, partition: Partition, rank: int) -> None:
        self.rank, self.tolerance = rank, partition.tolerance
        k, d = partition.n_clusters, partition.bases.shape[1]
        self.ranks = partition.ranks.copy()
        self.bases = np.zeros((k, rank, d))
        self.probes = np.zeros((k, d))
        self.omega: Floats = np.random.default_rng([20_061_012, 1_730]).standard_normal((d,))
        ends = np.cumsum(self.ranks)
        for c in range(k):
            self.bases[c, : self.ranks[c]] = partition.bases[ends[c] - self.ranks[c] : ends[c]]
            self._set_probe(c)

    def _set_probe(self, c: int) -> None:
        p = self.omega.copy()
        left = remove_projection(self.bases[c], int(self.ranks[c]), p, np.empty(self.rank))
        self.probes[c] = p / left if left > 1e-6 * np.linalg.norm(self.omega) else 0.0  # 0: everyone passes

    def find(self, arm: Floats) -> Found:
        """The first cluster whose span holds the arm, else the last whose rank may grow, else a new one."""
        unit: Floats = np.empty((1, arm.size))
        suspects = np.zeros(1, np.int64)
        unit_rows(arm[None], unit, suspects, 0, 1)
        x: Floats = unit[0]
        coordinates = np.empty(self.rank)
        near = np.abs(self.probes[: self.ranks.size] @ x) <= self.tolerance + 1e-9
        for c in np.flatnonzero(near).tolist():
            if remove_projection(self.bases[c], int(self.ranks[c]), np.array(x), coordinates) <= self.tolerance:
                return Found(c, None)
        growable = np.flatnonzero(self.ranks < self.rank)
        c = int(growable[-1]) if growable.size else self.ranks.size
        basis, rank = (self.bases[c], int(self.ranks[c])) if growable.size else (self.bases[0], 0)
        left = remove_projection(basis, rank, x, coordinates)
        return Found(c, x * (1.0 / left))  # bit-for-bit identical to `first_fit.settle`

    def extend(self, found: Found) -> None:
        """Take a new arm's direction into the basis of its cluster, which may be a new one."""
        if found.direction is None:
            return
        c = found.cluster
        if c == self.ranks.size:
            self.ranks = np.append(self.ranks, 0)
            if c == self.bases.shape[0]:  # twice the capacity
                self.bases = np.concatenate([self.bases, np.zeros_like(self.bases)])
                self.probes = np.concatenate([self.probes, np.zeros_like(self.probes)])
        self.bases[c, self.ranks[c]] = found.direction
        self.ranks[c] += 1
        self._set_probe(c)

    def partition(self, labels: Ints, sketch_size: int) -> Partition:
        """What has become of the partition."""
        bases = np.concatenate([self.bases[c, :r] for c, r in enumerate(self.ranks)])
        arrays = (labels, self.ranks.copy(), bases)
        for array in arrays:
            array.setflags(write=False)
        return Partition(*arrays, sketch_size, self.tolerance)
