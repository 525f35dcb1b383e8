"""Preallocated slots for arms added later, and the bases that say where a new arm belongs.

A free slot is an arm nobody can play: coordinates 0, bound -inf. Kernels need not know of it, and a cluster's numbers
stay where they are until its slots are used up; then their number doubles, and all clusters move, in O(N l): seldom
where arms keep coming to the same clusters, once per cluster where each gains one arm.
A cluster that may still gain rank has preallocated coordinates for it, which are 0 for all its arms.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints, remove_projection
from sketchbandits.partition.first_fit import unit_rows
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb.coordinates import estimate_of, frame_of, lay_out, refit_cluster
from sketchbandits.policies.cslb.layout import (
    A_START,
    ARM_AT,
    BEST,
    CLUSTER,
    FEW,
    FORM,
    GROWTH,
    LEAK,
    LISTED,
    OFF_SPAN,
    OFFSET,
    RANK,
    ROUND,
    SAMPLES,
    SENTINEL,
    SLOT,
    START,
    UNCAPPED,
    Z_START,
)
from sketchbandits.policies.cslb.tournament import build_tree
from sketchbandits.policies.rounds import LOST, SUM

SPARE = 8  # one more cluster for so many, whenever a new one is needed


def sizes(state: Any) -> Ints:
    """The slots of every cluster, free ones included."""
    return np.diff(state.shape[:, START])


def with_slots(state: Any, slots: Ints, ranks: Ints, scan: str, ridge: float) -> Any:
    """The same state with ``slots[c]`` slots and ``ranks[c]`` coordinates for cluster c; new clusters at the end.

    Only clusters whose form changes (`cslb_layout.FEW` …) are fitted again. O(N l), most of it copying.
    """
    old, k, n = state.shape, state.level.shape[0], int(slots.sum())
    shape = np.zeros((slots.size + 1, old.shape[1]), np.int64)
    shape[:k] = old[:-1]
    shape[1:, START], shape[:-1, RANK] = np.cumsum(slots), ranks
    shape[0, START] = 0
    listed = np.zeros(lay_out(shape, ranks, scan), np.int64)
    moved = np.arange(state.counts.size) + np.repeat(shape[:k, START] - old[:-1, START], sizes(state))
    shape[:k, BEST] = moved[old[:-1, BEST]]
    stats = np.zeros((state.stats.shape[0], n))
    stats[OFFSET] = -np.inf
    stats[:, moved] = state.stats
    counts = np.zeros(n, np.int64)
    counts[moved] = state.counts
    level = np.zeros((slots.size, state.level.shape[1]))
    level[:, GROWTH], level[:, [SENTINEL, UNCAPPED]] = 1.0, -np.inf
    level[:k] = state.level
    moved_state = state._replace(
        counts=counts,
        place=_moved_place(state.place, moved, n),
        stats=stats,
        shape=shape,
        level=level,
        coordinates=np.zeros(shape[-1, Z_START]),
        whitened=np.zeros(shape[-1, Z_START]),
        core=np.zeros(shape[-1, A_START]),
        listed=listed,
        tree=build_tree(level),
        work=np.zeros(n + int(ranks.max()) + 2),
    )
    _move_clusters(state, moved_state, ridge)
    return moved_state


def _moved_place(place: Ints, moved: Ints, n: int) -> Ints:
    result = np.full((3, n), -1)
    known = place[SLOT] >= 0
    result[SLOT, : known.size][known] = moved[place[SLOT, known]]
    result[CLUSTER, : known.size] = place[CLUSTER]
    result[ARM_AT, moved] = place[ARM_AT]
    return result


def _move_clusters(old: Any, new: Any, ridge: float) -> None:
    """Copy coordinates and cores: in one piece between clusters that change, padded where one does."""
    k = old.level.shape[0]
    changed = (sizes(old) != sizes(new)[:k]) | (old.shape[:-1, [RANK, FORM]] != new.shape[:k, [RANK, FORM]]).any(axis=1)
    changed |= new.shape[:k, FORM] == LISTED  # shortlists name slots, which have moved: they are drawn anew
    start = 0
    for c in [*np.flatnonzero(changed).tolist(), k]:
        for name, column in (("coordinates", Z_START), ("whitened", Z_START), ("core", A_START)):
            a, b = old.shape[start, column], old.shape[c, column]
            to = new.shape[start, column]
            getattr(new, name)[to : to + b - a] = getattr(old, name)[a:b]
        if c < k:
            _move_cluster(old, new, c, ridge)
        start = c + 1


def block(state: Any, name: str, c: int) -> Floats:
    """Coordinates, whitened or not, of a cluster: (rank x slots)."""
    flat = getattr(state, name)[state.shape[c, Z_START] : state.shape[c + 1, Z_START]]
    return flat.reshape(state.shape[c, RANK], -1) if state.shape[c, RANK] else flat.reshape(0, sizes(state)[c])


def _move_cluster(old: Any, new: Any, c: int, ridge: float) -> None:
    """Copy one cluster into more slots; where its statistics take another form there, they are made again."""
    (n, r), (m, s) = ((int(sizes(state)[c]), int(state.shape[c, RANK])) for state in (old, new))
    for name in ("coordinates", "whitened"):
        block(new, name, c)[:r, :n] = block(old, name, c)
    form = old.shape[c, FORM]
    if form != new.shape[c, FORM] or form == LISTED or r == 0:
        refit(new, c)
        return
    source, target = (state.core[state.shape[c, A_START] : state.shape[c + 1, A_START]] for state in (old, new))
    if form == FEW:
        target.reshape(m, m)[:n, :n] = source.reshape(n, n)
        return
    # Directions that no arm had: their part of V is the ridge, which is 1 in whitened coordinates.
    target[: s * s].reshape(s, s)[:] = np.eye(s)
    target[: s * s].reshape(s, s)[:r, :r] = source[: r * r].reshape(r, r)
    estimate_of(target, 0, s)[:r] = estimate_of(source, 0, r)
    frame_of(target, 0, s)[:] = np.eye(s) / np.sqrt(ridge)
    frame_of(target, 0, s)[:r, :r] = frame_of(source, 0, r)


def refit(state: Any, c: int) -> None:
    """The statistics of a cluster from its arms' counts and sums."""
    refit_cluster(
        state.counts,
        state.stats,
        state.shape,
        state.level,
        state.radius,
        state.coordinates,
        state.whitened,
        state.core,
        state.listed,
        state.work,
        c,
    )


def book_again(state: Any, counts: Ints, sums: Floats, active: NDArray[np.bool_]) -> None:
    """Put every arm's count and sum (and what rounding lost of it) into a state without any, and fit it."""
    slots = state.place[SLOT, : counts.size]
    state.counts[slots] = counts
    state.stats[SUM, slots], state.stats[LOST, slots] = sums
    state.stats[OFFSET, slots[~active]] = -np.inf
    clusters, k = state.place[CLUSTER, : counts.size], state.level.shape[0]
    state.shape[:k, SAMPLES] = np.bincount(clusters, counts, minlength=k).astype(np.int64)
    state.level[:, LEAK] = np.bincount(clusters, counts * state.stats[OFF_SPAN, slots] ** 2, minlength=k)
    state.clock[ROUND] = 1 + counts.sum()
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
