"""The memory of multi-scale CS-LB: CS-LB's clusters, the rays inside them, and one fit of the whole space.

Rays (arms on one line through 0) lie inside clusters. The space's fit is that of *all rewards up to some round*: new
rewards wait in a queue, are frozen into a batch, processed row by row as the budget allows, and only a finished batch
is published. Its coordinates are those of the span of all arms (`space_basis`). Nothing here depends on the clock, so
a run can be repeated and recovered bit for bit.
"""

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import RADIUS
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CLUSTER_RECORD,
    CONTROL_RECORD,
    COUNT,
    N_STATS,
    Record,
    Records,
)
from sketchbandits.policies.cslb.merged import ROUNDING

# More rows of ``stats``, per slot: its bound on the scale of its direction; the least bound that the space's fit ever
# gave it; its signed length along its ray and the number of that ray; its estimate and its width ||x||_{V^-1} in the
# space's fit (without a space, in its cluster's); the least of all its bounds. The last row belongs to places, not to
# slots: the slots of the shortlist of random choices, in order (`randomised`).
DIRECTION, SPACE, LENGTH, RAY, GUESS, WIDTH, BOUND, LISTED = range(N_STATS, N_STATS + 8)
N_ROWS = N_STATS + 8
SHOWN, MADE = range(2)  # the published fit of the space and the one in the making
TARGET, THETA = -2, -1  # the last rows of each: R theta, and theta (of the published one)
UNLISTED, ALL_LISTED = -1, -2  # instead of a length: there is no shortlist yet; it would hold most slots
OUTSIDE = -1  # the stamp of an arm whose features the space's fit cannot hold
PARALLEL = 1e-8  # arms whose directions differ by less are on one ray

RAY_RECORD = np.dtype(
    [
        ("information", np.float64),  # the sum of n s^2 over the ray's arms of signed length s
        ("information_lost", np.float64),  # what rounding has lost of it
        ("reward", np.float64),  # the sum of s y
        ("reward_lost", np.float64),
        ("share", np.float64),  # ln(1/delta') of the ray's part of delta, settled before its first reward
        ("ridge", np.float64),  # the free parameter of its radius
    ]
)
WAITING_RECORD = np.dtype(
    [
        ("stamp", np.int64),  # the published fit that the arm's space bound is from
        ("queued", np.int64),  # whether the arm is in the queue
        ("queue", np.int64),  # the queue and the batch themselves: arms, in order
        ("batch", np.int64),
        ("n_queued", np.int64),  # rewards that the arm has there
        ("n_batched", np.int64),
        ("sum_queued", np.float64),  # and their sums
        ("sum_batched", np.float64),
    ]
)
SPACE_RECORD = np.dtype(
    [
        ("bank", np.float64),  # operations saved up
        ("budget", np.float64),  # operations per round
        ("most", np.float64),  # how many may be saved up
        ("news", np.float64),  # at least the growth of ln det V by the rewards since the last batch was frozen
        ("least_news", np.float64),  # from which a new fit is worth its work
        ("beta", np.float64),  # the radius of the published fit
        ("logdet_shown", np.float64),  # ln det(V/ridge) of the published fit
        ("logdet_made", np.float64),
        ("version", np.int64),  # of the published fit
        ("in_queue", np.int64),  # arms
        ("in_batch", np.int64),
        ("at", np.int64),  # how many of the batch are processed
        ("n_rays", np.int64),
        ("first_rays", np.int64),  # known when the partition was made
        ("untaught", np.int64),  # rays without a reward
        ("ray_share", np.float64),  # ln(1/delta') of the next ray to have its first reward
        ("ray_left", np.float64),  # what such rays, and those to come, may spend of delta
        ("arms_seen", np.int64),  # how many arms there were when the ridge was last looked at
        ("ridges", np.int64),  # how many ridges there have been
        ("most_ridges", np.int64),  # and how many there may be: each has a share of delta
        ("draws", np.int64),  # whether choices are random
        ("boldness", np.float64),  # the scale of the draws, in units of the reward
        ("caution", np.float64),  # how many times its own uncertainty the regret of a drawn arm may be
        ("listed", np.int64),  # how many slots are on the shortlist, UNLISTED or ALL_LISTED
        ("reach", np.float64),  # the largest draw that the shortlist is for
        ("level", np.float64),  # what no other slot comes up to with such a draw
        ("outside", np.int64),  # arms that the space's fit does not hold
        ("key", np.uint64),  # of the draws
        ("second_key", np.uint64),
        ("direction", RADIUS),  # of rays
        ("radius", RADIUS),  # of the space's fit
    ]
)


class MultiscaleState(NamedTuple):
    """CS-LB's arrays by the same names (`cslb.layout`), then what the other scales need."""

    control: Annotated[Records, "1", CONTROL_RECORD]
    clusters: Annotated[Records, "k", CLUSTER_RECORD]
    place: Annotated[Ints, "4 s"]
    stats: Annotated[Floats, "15 s"]  # per slot: as in CS-LB, then DIRECTION ... LISTED
    fits: Annotated[Floats, "f"]
    rays: Annotated[Records, "g", RAY_RECORD]
    space: Annotated[Records, "1", SPACE_RECORD]
    waiting: Annotated[Records, "c", WAITING_RECORD]  # per arm, but for the queue and the batch
    features: Annotated[Floats, "c p"]  # per arm its coordinates in the space (no columns: the scale is off)
    factor: Annotated[Floats, "2 p+2 p"]  # triangular R with R'R = V, then TARGET and THETA; SHOWN and MADE

    @property
    def choice(self) -> Ints:
        """The next arm."""
        choice: Ints = self.control["choice"]
        return choice

    @property
    def key(self) -> NDArray[np.uint64]:
        """Of the draws."""
        return np.array([self.space["key"][0], self.space["second_key"][0]], np.uint64)

    @property
    def counts(self) -> Ints:
        """Per slot: rewards recorded."""
        return self.place[COUNT]


SPACE_FIELDS = ("space", "waiting", "features", "factor")


def find_rays(Z: Floats, key: Floats, tolerance: float, first: int) -> tuple[Ints, Floats, int]:
    """The rays of a cluster's arms, the rows of ``Z``, numbered from ``first`` on, with every arm's signed length.

    ``key`` is a random direction's cosine, equal for arms on one ray up to the tolerance: only neighbours in its order
    need be compared, and most arms have none so near. Zero arms have no ray. The third value is the next free number.
    """
    norms = np.sqrt((Z**2).sum(axis=1))
    order = np.argsort(key, kind="stable")
    order = order[norms[order] > 0.0]
    ray, length = np.full(len(Z), -1), np.zeros(len(Z))
    if not order.size:
        return ray, length, first
    window = 4.0 * tolerance * np.sqrt(Z.shape[1])
    heads = np.ones(order.size, np.bool_)  # which arms are the first of their ray, in this order
    for k in (np.flatnonzero(np.diff(key[order]) <= window) + 1).tolist():
        h = _earlier_head(Z, norms, key, order, heads, k, (window, tolerance))
        if h >= 0:
            heads[k], ray[order[k]] = False, order[h]
            length[order[k]] = Z[order[k]] @ Z[order[h]] / norms[order[h]]
    own = order[heads]
    numbers = np.full(len(Z), -1)
    numbers[own] = first + np.arange(own.size)
    joined = ray >= 0
    ray[joined] = numbers[ray[joined]]
    ray[own], length[own] = numbers[own], norms[own]
    return ray, length, first + own.size


def _earlier_head(
    Z: Floats, norms: Floats, key: Floats, order: Ints, heads: NDArray[np.bool_], k: int, near: tuple[float, float]
) -> int:
    """The nearest first arm before place ``k`` of ``order`` on whose line arm k lies, or -1."""
    window, tolerance = near
    z, h = Z[order[k]], k - 1
    while h >= 0 and key[order[k]] - key[order[h]] <= window:
        if heads[h]:
            unit = Z[order[h]] / norms[order[h]]
            rest = z - (z @ unit) * unit
            if rest @ rest <= tolerance**2 * (z @ z):
                return h
        h -= 1
    return -1


def number_rays(clusters: Records, stats: Floats, coordinates: list[Floats], tolerance: float) -> int:
    """Write every arm's ray and signed length into its slot; returns how many rays there are."""
    count, generator = 0, np.random.default_rng([20_061_012, 1_731])
    for own, Z in zip(clusters, coordinates, strict=True):
        slots = slice(own["start"], own["start"] + own["size"])
        g = generator.standard_normal(Z.shape[1])
        norms = np.sqrt((Z**2).sum(axis=1))
        key = np.abs(Z @ g) / np.where(norms > 0, norms, 1.0)  # the sign of an arm does not matter
        stats[RAY, slots], stats[LENGTH, slots], count = find_rays(np.ascontiguousarray(Z), key, tolerance, count)
    return count


def ray_lengths(stats: Floats, n_rays: int) -> Floats:
    """The length of every ray's first arm."""
    lengths, own = np.ones(n_rays), np.flatnonzero(stats[RAY] >= 0)[::-1]
    lengths[stats[RAY, own].astype(np.int64)] = np.abs(stats[LENGTH, own])  # the first one is written last
    return lengths


def off_first_of_ray(arms: Floats, ray: Floats, length: Floats) -> float:
    """The largest distance of an arm from the line of its ray's first arm; 0 for rounding errors."""
    own = np.flatnonzero(ray >= 0)
    _, first, number = np.unique(ray[own], return_index=True, return_inverse=True)
    first, others = own[first[number]], own
    most = 0.0
    for start in range(0, own.size, 65_536):  # arms at a time
        a, b = others[start : start + 65_536], first[start : start + 65_536]
        off = np.linalg.norm(arms[a] - (length[a] / length[b])[:, None] * arms[b], axis=1)
        apart = off > ROUNDING * np.linalg.norm(arms[a], axis=1)
        most = max(most, float(off[apart].max(initial=0.0)))
    return most


def ray_in_cluster(
    state: MultiscaleState, own: Record, arms: Floats, arm: int, tolerance: float
) -> tuple[int, float, float] | None:
    """The ray of its cluster, with the record ``own``, on which an arm lies, its signed length, and how far off."""
    x, slots = arms[arm], np.arange(own["start"], own["start"] + own["size"])
    mates = state.place[ARM_AT, slots]
    others = (mates >= 0) & (mates != arm) & (state.stats[RAY, slots] >= 0)
    mates, slots = mates[others], slots[others]
    units = arms[mates] / state.stats[LENGTH, slots][:, None]
    along = units @ x
    off = np.linalg.norm(x - along[:, None] * units, axis=1)
    if not mates.size or off.min() > tolerance * float(np.linalg.norm(x)):
        return None
    k = int(off.argmin())
    return int(state.stats[RAY, slots[k]]), float(along[k]), float(off[k])
