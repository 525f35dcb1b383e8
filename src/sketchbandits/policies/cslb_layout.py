"""CS-LB's bookkeeping of arms, clusters and bounds, the same for both engines.

Arms live in *slots*, sorted by cluster (in arm order inside one), so that a cluster's numbers are contiguous: cluster c
has the slots ``shape[c, START] : shape[c + 1, START]``. The last row of ``shape`` only closes the ranges.
"""

from typing import NamedTuple, Self

import numpy as np

from sketchbandits.compiled import kernel
from sketchbandits.confidence import FIXED, KIND, radius_value
from sketchbandits.linalg import Floats, Ints, add_exactly, tie_threshold
from sketchbandits.partition import Partition
from sketchbandits.policies.base import LOST, MEAN, SUM, WIDTH2, Shared

CAP = 4  # one more row of ``stats``: the largest value a bound may take, +inf for the paper's radius
SLOT, CLUSTER, ARM_AT = range(3)  # rows of ``place``
START, RANK, SAMPLES, BEST, STEPS, FORM, Z_START, A_START, L_START = range(9)  # columns of ``shape``
FEW, MANY, LISTED = range(3)  # values of FORM: how a cluster's statistics are kept
TOP, UNCAPPED_TOP = -1, -2  # entries of ``values``: the largest bound of a search, and its winner's without the cap
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
        shape = np.zeros((k + 1, 9), np.int64)
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
    threshold = tie_threshold(top)
    i = first
    while values[i] < threshold:
        i += 1
    values[TOP] = top
    values[UNCAPPED_TOP] = values[i]
    return i


@kernel
def first_capped_slot(stats: Floats, first: int, last: int, beta: float, values: Floats) -> int:
    """The first slot of a range by (capped bound, uncapped bound, lowest index); ``values`` gets the uncapped."""
    top = -np.inf
    for i in range(first, last):
        values[i] = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i])
        top = max(top, min(values[i], stats[CAP, i]))
    threshold = tie_threshold(top)
    uncapped = -np.inf
    for i in range(first, last):
        if min(values[i], stats[CAP, i]) >= threshold:
            uncapped = max(uncapped, values[i])
    least = tie_threshold(uncapped)
    i = first
    while values[i] < least or min(values[i], stats[CAP, i]) < threshold:
        i += 1
    values[TOP] = top
    values[UNCAPPED_TOP] = values[i]
    return i


@kernel
def first_in(stats: Floats, first: int, last: int, beta: float, capped: int, values: Floats) -> int:
    """The best slot of a range, by either rule."""
    if capped == 1:
        return first_capped_slot(stats, first, last, beta, values)
    return first_slot(stats, first, last, beta, values)
