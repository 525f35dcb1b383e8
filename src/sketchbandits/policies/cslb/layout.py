"""CS-LB's bookkeeping of arms, clusters and bounds, the same for both engines.

Arms live in *slots*, sorted by cluster (in arm order inside one), so that a cluster's numbers are contiguous: cluster c
has the slots ``shape[c, START] : shape[c + 1, START]``. The last row of ``shape`` only closes the ranges.
"""

from typing import NamedTuple, Self

import numpy as np

from sketchbandits.confidence import FIXED, KIND, THETA_NORM, radius_at
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, add_exactly, tie_threshold
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.parameters import Shared
from sketchbandits.policies.rounds import LOST, MEAN, SUM, WIDTH2

# More rows of ``stats``: the largest value a bound may take, +inf for the paper's radius; what is added to the bound of
# an arm off its cluster's span, -inf for one that may not be played; how far off that span it is.
CAP, OFFSET, OFF_SPAN = range(4, 7)
N_STATS = 7
SLOT, CLUSTER, ARM_AT = range(3)  # rows of ``place``
START, RANK, SAMPLES, BEST, STEPS, FORM, Z_START, A_START, L_START = range(9)  # columns of ``shape``
NEGLIGIBLE = 1e-6  # a tolerance of rounding: arms that near to a span are treated as in it
FEW, MANY, LISTED = range(3)  # values of FORM: how a cluster's statistics are kept
TOP, UNCAPPED_TOP = -1, -2  # entries of ``values``: the largest bound of a search, and its winner's without the cap
# Columns of ``level``: ln det V is LOGDET + ln GROWTH; SHARE is ln(1/delta') of the cluster's part of delta, LEAK the
# sum of n OFF_SPAN^2 over its arms.
LOGDET, GROWTH, BETA, SENTINEL, UNCAPPED, SHARE, LEAK = range(7)
# Entries of ``clock``: 1 + rewards booked, the cluster that changed last, a flag, how many clusters there were when the
# first arm was added (0: none was), how many partitions there have been.
ROUND, CHANGED, CAPPED, FIRST, PARTITIONS = range(5)


class Sentinels(NamedTuple):
    """The part of a CS-LB state that does not depend on the engine."""

    choice: Ints  # the next arm
    counts: Ints  # per slot: rewards booked
    place: Ints  # per arm its SLOT and CLUSTER; per slot its arm
    stats: Floats  # per slot: MEAN, WIDTH2, SUM, LOST, CAP, OFFSET, OFF_SPAN
    shape: Ints  # per cluster: where its numbers stand, and counters
    level: Floats  # per cluster: LOGDET at the last refit, GROWTH since, BETA, SENTINEL, its arm's UNCAPPED, …
    clock: Ints

    @classmethod
    def build(
        cls,
        partition: Partition,
        arms: Floats,
        shared: Shared,
        *,
        capped: bool,
        log_share: float = 0.0,
        rows: int = N_STATS,
    ) -> Self:
        """Nothing pulled yet: means 0, squared widths ``||x||^2/ridge``, sentinels +inf."""
        n, k = partition.labels.size, partition.n_clusters
        order = np.argsort(partition.labels, kind="stable")
        place = np.empty((3, n), np.int64)
        place[SLOT, order] = np.arange(n)
        place[CLUSTER] = partition.labels
        place[ARM_AT] = order
        norms = np.linalg.norm(arms, axis=1)[order]
        stats = np.zeros((rows, n))
        if partition.tolerance > NEGLIGIBLE:
            stats[OFF_SPAN] = (partition.residuals(arms))[order] * norms
            stats[OFFSET] = shared.theta_norm * stats[OFF_SPAN]
        stats[WIDTH2] = norms**2 / shared.ridge
        stats[CAP] = shared.theta_norm * norms if capped else np.inf
        sizes = np.bincount(partition.labels, minlength=k)
        shape = np.zeros((k + 1, 9), np.int64)
        shape[1:, START] = np.cumsum(sizes)
        shape[:k, RANK] = partition.ranks
        level = np.zeros((k, 7))
        level[:, GROWTH] = 1.0
        level[:, SHARE] = log_share
        level[:, SENTINEL] = level[:, UNCAPPED] = np.inf
        clock = np.array([1, 0, capped, 0, 1], np.int64)
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
    """The cluster's own radius: by its data, or what a user's function said.

    Arms off the span by ``eps_j`` have moved the estimate by at most ``S sqrt(sum n_j eps_j^2)`` in the norm of V.
    """
    if radius[KIND] == FIXED:
        return level[c, BETA]
    logdet = level[c, LOGDET] + np.log(level[c, GROWTH])
    return radius_at(radius, shape[c, SAMPLES], logdet, level[c, SHARE]) + radius[THETA_NORM] * np.sqrt(level[c, LEAK])


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
        values[i] = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i]) + stats[OFFSET, i]
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
