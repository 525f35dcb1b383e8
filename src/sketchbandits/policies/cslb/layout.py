"""The memory of CS-LB, the same for both engines: arms in slots, one record per cluster, one record for the policy.

Arms live in *slots*, sorted by cluster (in arm order inside one), so that what a round scans is contiguous: cluster c
has ``size`` slots from ``start`` on. What a round touches once is in records with named fields; what it scans over arms
is in the rows of two arrays, ``place`` (whole numbers) and ``stats``; everything that belongs to a fit is in one flat
array, ``fits``, where each cluster has a block of its own. Few arrays, because compiled code counts references to every
array that a call receives, and passing one from Python takes a tenth of a microsecond.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import FIXED, RADIUS, radius_at
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, add_exactly, tie_threshold
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.parameters import Shared
from sketchbandits.policies.rounds import LOST, MEAN, SUM, WIDTH2
from sketchbandits.policies.scatter import SEEN, note

Records = NDArray[Any]  # a structured array
Record = Any  # one entry of it
# Whether any cluster keeps shortlists: None where none does. Numba compiles a kernel once for None and once for a value
# and leaves out what ``if lists is not None`` excludes: most policies never wait for the kernels of shortlists.
Lists = bool | None

# Rows of ``place``: per arm its slot and cluster; per slot its arm (-1: a free slot) and the rewards recorded.
SLOT, CLUSTER, ARM_AT, COUNT = range(4)
# More rows of ``stats``, per slot: the largest value a bound may take, +inf for the paper's radius; what is added to
# the bound of an arm off its cluster's span, -inf for one that may not be played; how far off that span it is.
CAP, OFFSET, OFF_SPAN = range(4, 7)
N_STATS = 7
TOP, UNCAPPED_TOP = -1, -2  # entries of ``fits``: the largest bound of a search, and its winner's without the cap

FEW, MANY, LISTED = range(3)  # values of ``form``: how a cluster's statistics are kept, see `coordinates`
NEGLIGIBLE = 1e-6  # a tolerance of rounding: arms that near to a span are treated as in it

CLUSTER_RECORD = np.dtype(
    [
        ("start", np.int64),  # its first slot
        ("size", np.int64),  # its slots, free ones included
        ("rank", np.int64),
        ("form", np.int64),
        ("block", np.int64),  # where its coordinates (rank x size) begin in ``fits``; the whitened ones follow them
        ("core", np.int64),  # where the rest of its fit begins
        ("samples", np.int64),  # rewards recorded
        ("best", np.int64),  # the slot with the largest bound
        ("steps", np.int64),  # since the last refit
        ("pulls", np.int64),  # with shortlists: pulls since all arms were evaluated
        ("outer", np.int64),  # with shortlists: how many arms each holds
        ("inner", np.int64),
        ("logdet", np.float64),  # ln det(V/ridge) at the last refit
        ("growth", np.float64),  # of det V since
        ("beta", np.float64),  # the radius
        ("sentinel", np.float64),  # the largest bound
        ("uncapped", np.float64),  # its arm's bound without the cap
        ("share", np.float64),  # ln(1/delta') of the cluster's part of delta
        ("leak", np.float64),  # the sum of n OFF_SPAN^2 over its arms
    ]
)
CONTROL_RECORD = np.dtype(
    [
        ("choice", np.int64),  # the next arm
        ("round", np.int64),  # 1 + rewards recorded
        ("changed", np.int64),  # the cluster whose sentinel must be renewed before the next choice, EVERY or NONE
        ("refit", np.int64),  # the cluster whose fit must be recomputed before that
        ("capped", np.int64),  # whether bounds are capped
        ("first_clusters", np.int64),  # how many there were when the first arm was added (0: none was)
        ("partitions", np.int64),  # how many there have been
        ("tree", np.int64),  # where the tournament stands in ``fits``
        ("leaves", np.int64),  # its leaves, 0 for none
        ("work", np.int64),  # where scratch space stands in ``fits``
        ("radius", RADIUS),
        ("seen", SEEN),
    ]
)
NONE, EVERY = -1, -2  # values of ``changed``


def new_clusters(sizes: Ints, ranks: Ints, log_share: float) -> Records:
    """Clusters before the first reward; their places in ``fits`` are left open."""
    clusters = np.zeros(sizes.size, CLUSTER_RECORD)
    clusters["start"], clusters["size"], clusters["rank"] = np.cumsum(sizes) - sizes, sizes, ranks
    clusters["best"], clusters["growth"], clusters["share"] = clusters["start"], 1.0, log_share
    clusters["sentinel"] = clusters["uncapped"] = np.inf
    return clusters


def new_control(radius: Records, *, capped: bool) -> Records:
    """The policy's own record before the first reward."""
    control = np.zeros(1, CONTROL_RECORD)
    control["round"], control["changed"], control["refit"] = 1, NONE, NONE
    control["capped"], control["partitions"], control["radius"] = capped, 1, radius[0]
    return control


def new_place(partition: Partition) -> Ints:
    """Arms in slots, sorted by cluster."""
    order = np.argsort(partition.labels, kind="stable")
    place = np.zeros((4, order.size), np.int64)
    place[SLOT, order] = np.arange(order.size)
    place[CLUSTER], place[ARM_AT] = partition.labels, order
    return place


def new_stats(partition: Partition, arms: Floats, place: Ints, shared: Shared, *, capped: bool, rows: int) -> Floats:
    """Nothing pulled yet: means 0, squared widths ``||x||^2/ridge``."""
    order = place[ARM_AT]
    norms = np.linalg.norm(arms, axis=1)[order]
    stats = np.zeros((rows, order.size))
    if partition.tolerance > NEGLIGIBLE:
        stats[OFF_SPAN] = partition.residuals(arms)[order] * norms
        stats[OFFSET] = shared.theta_norm * stats[OFF_SPAN]
    stats[WIDTH2] = norms**2 / shared.ridge
    stats[CAP] = shared.theta_norm * norms if capped else np.inf
    return stats


@kernel
def record(control: Record, clusters: Records, place: Ints, stats: Floats, arm: int, reward: float) -> int:
    """Count a reward for its arm and cluster; return the arm's slot."""
    slot, c = place[SLOT, arm], place[CLUSTER, arm]
    note(control["seen"], place[COUNT, slot], stats[SUM, slot] + stats[LOST, slot], reward)
    place[COUNT, slot] += 1
    add_exactly(stats, SUM, slot, reward)
    clusters[c]["samples"] += 1
    control["round"] += 1
    control["changed"] = c
    return slot


@kernel
def cluster_radius(radius: Record, own: Record) -> float:
    """The cluster's own radius: by its data, or what a user's function said.

    Arms off the span by ``eps_j`` have moved the estimate by at most ``S sqrt(sum n_j eps_j^2)`` in the norm of V.
    """
    if radius["kind"] == FIXED:
        return own["beta"]
    logdet = own["logdet"] + np.log(own["growth"])
    return radius_at(radius, float(own["samples"]), logdet, own["share"]) + radius["theta_norm"] * np.sqrt(own["leak"])


@kernel
def first_slot(stats: Floats, first: int, last: int, beta: float, fits: Floats, work: int) -> int:
    """The first slot of a range whose bound ties with the largest; ``fits`` gets the bounds from ``work`` on."""
    top = -np.inf
    for i in range(first, last):
        value = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i])
        fits[work + i] = value
        if value > top:
            top = value
    threshold = tie_threshold(top)
    i = first
    while fits[work + i] < threshold:
        i += 1
    fits[TOP] = top
    fits[UNCAPPED_TOP] = fits[work + i]
    return i


@kernel
def first_capped_slot(stats: Floats, first: int, last: int, beta: float, fits: Floats, work: int) -> int:
    """The first slot of a range by (capped bound, uncapped bound, lowest index); ``fits`` gets the uncapped."""
    for i in range(first, last):
        fits[work + i] = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i]) + stats[OFFSET, i]
    return first_of_values(stats, first, last, fits, work)


@kernel
def first_of_values(stats: Floats, first: int, last: int, fits: Floats, work: int) -> int:
    """The first slot by (capped value, value, lowest index), given the values from ``fits[work]`` on."""
    top = uncapped = -np.inf
    for i in range(first, last):
        top = max(top, min(fits[work + i], stats[CAP, i]))
    threshold = tie_threshold(top)
    for i in range(first, last):
        if min(fits[work + i], stats[CAP, i]) >= threshold:
            uncapped = max(uncapped, fits[work + i])
    least = tie_threshold(uncapped)
    i = first
    while fits[work + i] < least or min(fits[work + i], stats[CAP, i]) < threshold:
        i += 1
    fits[TOP] = top
    fits[UNCAPPED_TOP] = fits[work + i]
    return i
