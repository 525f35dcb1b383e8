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
START, RANK, Z_START, A_START, STEPS, SAMPLES, BEST = range(7)  # columns of ``shape``
LOGDET, GROWTH, BETA, SENTINEL, UNCAPPED = range(5)  # columns of ``level``
ROUND, CHANGED, CAPPED = range(3)  # entries of ``clock``: 1 + rewards booked, the cluster that changed last, a flag


class Sentinels(NamedTuple):
    """The part of a CS-LB state that does not depend on the engine."""

    choice: Ints  # the next arm
    counts: Ints  # per slot: rewards booked
    place: Ints  # per arm its SLOT and CLUSTER; per slot its arm
    stats: Floats  # per slot: MEAN, WIDTH2, SUM, LOST, CAP
    shape: Ints  # per cluster: where its numbers stand, and counters
    level: Floats  # per cluster: LOGDET, GROWTH since the last refit, BETA, SENTINEL and its arm's UNCAPPED bound
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
        shape = np.zeros((k + 1, 7), np.int64)
        shape[1:, START] = np.cumsum(sizes)
        shape[:k, RANK] = partition.ranks
        shape[1:, Z_START] = np.cumsum(sizes * partition.ranks)
        shape[1:, A_START] = np.cumsum(partition.ranks**2)
        level = np.zeros((k, 5))
        level[:, SENTINEL] = level[:, UNCAPPED] = np.inf
        clock = np.array([1, 0, capped], np.int64)
        return cls(np.zeros(1, np.int64), np.zeros(n, np.int64), place, stats, shape, level, clock)


@kernel
def book(state: Any, arm: int, reward: float) -> tuple[int, int]:
    """Count a reward for its arm and cluster; return the arm's slot and cluster."""
    slot, c = state.place[SLOT, arm], state.place[CLUSTER, arm]
    state.counts[slot] += 1
    add_exactly(state.stats[SUM], state.stats[LOST], slot, reward)
    state.shape[c, SAMPLES] += 1
    state.clock[ROUND] += 1
    state.clock[CHANGED] = c
    return slot, c


@kernel
def best_slot(state: Any, c: int, beta: float) -> int:
    """The slot of the cluster's first arm by (capped bound, uncapped bound, lowest index)."""
    first, last = state.shape[c, START], state.shape[c + 1, START]
    mean, width2, cap, values = state.stats[MEAN], state.stats[WIDTH2], state.stats[CAP], state.work
    top = -np.inf
    for i in range(first, last):
        values[i] = mean[i] + beta * np.sqrt(width2[i])
        top = max(top, min(values[i], cap[i]))
    threshold = tie_threshold(top)
    if state.clock[CAPPED] == 0:
        for i in range(first, last):
            if values[i] >= threshold:
                return i
    uncapped = -np.inf
    for i in range(first, last):
        if min(values[i], cap[i]) >= threshold:
            uncapped = max(uncapped, values[i])
    least = tie_threshold(uncapped)
    for i in range(first, last):
        if values[i] >= least and min(values[i], cap[i]) >= threshold:
            return i
    return first


@kernel
def cluster_radius(state: Any, c: int) -> float:
    """The cluster's radius: one for all by the round (the paper's), its own by its data, or what a function said."""
    if state.clock[CAPPED] == 0:
        return radius_value(state.radius, state.clock[ROUND], 0.0)
    if state.radius[KIND] == FIXED:
        return state.level[c, BETA]
    return radius_value(state.radius, state.shape[c, SAMPLES], state.level[c, LOGDET])


@kernel
def set_sentinel(state: Any, c: int) -> float:
    """Give cluster ``c`` its sentinel from its current statistics; return the radius used."""
    beta = cluster_radius(state, c)
    slot = best_slot(state, c, beta)
    value = state.stats[MEAN, slot] + beta * np.sqrt(state.stats[WIDTH2, slot])
    state.shape[c, BEST] = slot
    state.level[c, BETA] = beta
    state.level[c, UNCAPPED] = value
    # The sentinel is the largest capped bound itself; the chosen slot may lie 1e-9 below it.
    first, last = state.shape[c, START], state.shape[c + 1, START]
    top = -np.inf
    for i in range(first, last):
        top = max(top, min(state.work[i], state.stats[CAP, i]))
    state.level[c, SENTINEL] = top
    return beta


@kernel
def best_cluster(level: Floats) -> int:
    """The first cluster by (sentinel, uncapped bound of its arm, lowest index)."""
    k = level.shape[0]
    top = -np.inf
    for c in range(k):
        top = max(top, level[c, SENTINEL])
    threshold = tie_threshold(top)
    uncapped = -np.inf
    for c in range(k):
        if level[c, SENTINEL] >= threshold:
            uncapped = max(uncapped, level[c, UNCAPPED])
    least = tie_threshold(uncapped)
    for c in range(k):
        if level[c, SENTINEL] >= threshold and level[c, UNCAPPED] >= least:
            return c
    return 0


@kernel
def choose(state: Any) -> None:
    """Renew the sentinel of the cluster that changed, then let the largest sentinel's cluster choose its arm."""
    beta = 0.0
    changed = state.clock[CHANGED]
    if state.clock[ROUND] > 1:
        beta = set_sentinel(state, changed)
    else:
        beta = cluster_radius(state, changed)
    c = best_cluster(state.level)
    # One radius for all clusters grows with the round, so a cluster that did not change must look again.
    if state.clock[CAPPED] == 0 and (c != changed or state.clock[ROUND] == 1):
        state.shape[c, BEST] = best_slot(state, c, beta)
    state.choice[0] = state.place[ARM_AT, state.shape[c, BEST]]
