"""CS-LB's choice: the bookkeeping of clusters and the sentinels, the same for both engines.

Arms live in *slots*, sorted by cluster (in arm order inside one), so that a cluster's numbers are contiguous: cluster c
has the slots ``shape[c, START] : shape[c + 1, START]``. The last row of ``shape`` only closes the ranges.
"""

from typing import Any, NamedTuple, Self

import numpy as np

from sketchbandits.compiled import kernel
from sketchbandits.confidence import FIXED, KIND, radius_value
from sketchbandits.linalg import Floats, Ints, add_exactly, tie_threshold
from sketchbandits.partition import Partition
from sketchbandits.policies.base import LOST, MEAN, SUM, WIDTH2, Shared

CAP = 4  # one more row of ``stats``: the largest value a bound may take, +inf for the paper's radius
SLOT, CLUSTER, ARM_AT = range(3)  # rows of ``place``
START, RANK, SAMPLES, BEST, STEPS, FEW, Z_START, A_START = range(8)  # columns of ``shape``
LOGDET, GROWTH, BETA, SENTINEL, UNCAPPED = range(5)  # columns of ``level``: ln det V is LOGDET + ln GROWTH
ROUND, CHANGED, CAPPED = range(3)  # entries of ``clock``: 1 + rewards booked, the cluster that changed last, a flag


class Sentinels(NamedTuple):
    """The part of a CS-LB state that does not depend on the engine."""

    choice: Ints  # the next arm
    counts: Ints  # per slot: rewards booked
    place: Ints  # per arm its SLOT and CLUSTER; per slot its arm
    stats: Floats  # per slot: MEAN, WIDTH2, SUM, LOST, CAP
    shape: Ints  # per cluster: where its numbers stand, and counters
    level: Floats  # per cluster: LOGDET at the last refit, GROWTH since, BETA, SENTINEL, its arm's UNCAPPED
    clock: Ints

    @classmethod
    def build(cls, partition: Partition, arms: Floats, shared: Shared, *, capped: bool) -> Self:
        """Nothing pulled yet: means 0, squared widths ``||x||^2/ridge``, sentinels +inf."""
        n, k = partition.labels.size, partition.n_clusters
        order = np.argsort(partition.labels, kind="stable")
        place = np.empty((3, n), np.int64)
        place[SLOT, order] = np.arange(n)
        place[CLUSTER] = partition.labels
        place[ARM_AT] = order
        norms = np.linalg.norm(arms, axis=1)[order]
        stats = np.zeros((5, n))
        stats[WIDTH2] = norms**2 / shared.ridge
        stats[CAP] = shared.theta_norm * norms if capped else np.inf
        sizes = np.bincount(partition.labels, minlength=k)
        shape = np.zeros((k + 1, 8), np.int64)
        shape[1:, START] = np.cumsum(sizes)
        shape[:k, RANK] = partition.ranks
        level = np.zeros((k, 5))
        level[:, GROWTH] = 1.0
        level[:, SENTINEL] = level[:, UNCAPPED] = np.inf
        clock = np.array([1, 0, capped], np.int64)
        return cls(np.zeros(1, np.int64), np.zeros(n, np.int64), place, stats, shape, level, clock)


# The kernels of a round take arrays, not the state: a call that is handed a tuple of twelve arrays counts references to
# all of them, which costs more than the round itself.


@kernel
def book(counts: Ints, place: Ints, stats: Floats, shape: Ints, clock: Ints, arm: int, reward: float) -> int:
    """Count a reward for its arm and cluster; return the arm's slot."""
    slot, c = place[SLOT, arm], place[CLUSTER, arm]
    counts[slot] += 1
    add_exactly(stats[SUM], stats[LOST], slot, reward)
    shape[c, SAMPLES] += 1
    clock[ROUND] += 1
    clock[CHANGED] = c
    return slot


@kernel
def cluster_radius(radius: Floats, shape: Ints, level: Floats, c: int) -> float:
    """The cluster's own radius: by its data, or what a user's function said."""
    if radius[KIND] == FIXED:
        return level[c, BETA]
    return radius_value(radius, shape[c, SAMPLES], level[c, LOGDET] + np.log(level[c, GROWTH]))


@kernel
def first_slot(stats: Floats, first: int, last: int, beta: float, values: Floats) -> int:
    """The first slot of a range whose bound ties with the largest; the bounds are left in ``values``."""
    top = -np.inf
    for i in range(first, last):
        value = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i])
        values[i] = value
        if value > top:
            top = value
    values[-1] = top
    threshold = tie_threshold(top)
    i = first
    while values[i] < threshold:
        i += 1
    return i


@kernel
def first_capped_slot(stats: Floats, first: int, last: int, beta: float, values: Floats) -> int:
    """The first slot of a range by (capped bound, uncapped bound, lowest index); ``values`` gets the uncapped."""
    top = -np.inf
    for i in range(first, last):
        values[i] = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i])
        top = max(top, min(values[i], stats[CAP, i]))
    values[-1] = top
    threshold = tie_threshold(top)
    uncapped = -np.inf
    for i in range(first, last):
        if min(values[i], stats[CAP, i]) >= threshold:
            uncapped = max(uncapped, values[i])
    least = tie_threshold(uncapped)
    i = first
    while values[i] < least or min(values[i], stats[CAP, i]) < threshold:
        i += 1
    return i


@kernel
def first_cluster(level: Floats) -> int:
    """The first cluster whose sentinel ties with the largest."""
    top = level[0, SENTINEL]
    for c in range(1, level.shape[0]):
        if level[c, SENTINEL] > top:
            top = level[c, SENTINEL]
    threshold = tie_threshold(top)
    c = 0
    while level[c, SENTINEL] < threshold:
        c += 1
    return c


@kernel
def first_capped_cluster(level: Floats) -> int:
    """The first cluster by (sentinel, uncapped bound of its arm, lowest index)."""
    first = first_cluster(level)
    top = level[first, SENTINEL]
    for c in range(first + 1, level.shape[0]):
        top = max(top, level[c, SENTINEL])
    threshold = tie_threshold(top)
    uncapped = -np.inf
    for c in range(first, level.shape[0]):
        if level[c, SENTINEL] >= threshold:
            uncapped = max(uncapped, level[c, UNCAPPED])
    least = tie_threshold(uncapped)
    c = first
    while level[c, SENTINEL] < threshold or level[c, UNCAPPED] < least:
        c += 1
    return c


@kernel
def set_sentinel(stats: Floats, shape: Ints, level: Floats, radius: Floats, work: Floats, c: int) -> None:
    """Give cluster ``c`` its radius, best slot and sentinel from its own statistics, with capped bounds."""
    beta = cluster_radius(radius, shape, level, c)
    slot = first_capped_slot(stats, shape[c, START], shape[c + 1, START], beta, work)
    shape[c, BEST] = slot
    level[c, BETA] = beta
    level[c, SENTINEL] = work[-1]
    level[c, UNCAPPED] = work[slot]


@kernel
def next_arm(place: Ints, stats: Floats, shape: Ints, level: Floats, clock: Ints, radius: Floats, work: Floats) -> int:
    """Renew the sentinel of the cluster that changed, then let the largest sentinel's cluster choose its arm."""
    changed = clock[CHANGED]
    if clock[CAPPED] == 1:
        if clock[ROUND] > 1:
            set_sentinel(stats, shape, level, radius, work, changed)
        return place[ARM_AT, shape[first_capped_cluster(level), BEST]]
    # The paper's radius is one for all clusters and grows with the round.
    beta = radius_value(radius, clock[ROUND], 0.0)
    slot = -1
    if clock[ROUND] > 1:
        slot = first_slot(stats, shape[changed, START], shape[changed + 1, START], beta, work)
        level[changed, SENTINEL] = work[-1]
    c = first_cluster(level)
    if c != changed or slot < 0:
        slot = first_slot(stats, shape[c, START], shape[c + 1, START], beta, work)
    return place[ARM_AT, slot]


@kernel
def choose(state: Any) -> None:
    """Write the next arm into the state."""
    arm = next_arm(state.place, state.stats, state.shape, state.level, state.clock, state.radius, state.work)
    state.choice[0] = arm
