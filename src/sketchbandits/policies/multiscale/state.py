"""The memory of multi-scale CS-LB: CS-LB's clusters, and beside them rays, and one fit of the whole space.

Rays (arms on one line through 0) lie inside clusters. The space's fit is that of *all rewards up to some round*: new
rewards wait in a queue, are frozen into a batch, worked off row by row as the budget allows, and only a finished batch
is published. Nothing here depends on the clock, so a run can be repeated and recovered bit for bit.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, dot
from sketchbandits.policies.cslb.layout import ARM_AT, N_STATS, START, Sentinels

# More rows of ``stats``: an arm's bounds on the scale of its direction and of the space, its signed length along its
# ray, the number of the ray, and how much of the space's bound is width.
DIRECTION, SPACE, LENGTH, RAY, SPACE_WIDTH = range(N_STATS, N_STATS + 5)
N_ROWS = N_STATS + 5
# Rows of ``rays``: sum of n s^2 over the ray's arms and of s y, each with what rounding has lost; ln(1/delta').
INFORMATION, INFORMATION_LOST, REWARD, REWARD_LOST, RAY_SHARE = range(5)
# Rows of ``waiting``: the fit that an arm's space bound is from, whether it is in the queue, the queue, the batch, and
# how many rewards each arm has in the queue and in the batch.
STAMP, QUEUED, QUEUE, BATCH, N_QUEUED, N_BATCHED = range(6)
SUM_QUEUED, SUM_BATCHED = range(2)  # rows of ``owed``: the rewards' sums
# Entries of ``meter``: operations saved up, a round's budget, the most that may be saved; what clusters have learned
# since the last batch was frozen, as the sum of their det V's growth; ln det V of the published fit and of the other.
BANK, BUDGET, MOST, NEWS, LOGDET_SHOWN, LOGDET_MADE = range(6)
VERSION, IN_QUEUE, IN_BATCH, AT, N_RAYS, FIRST_RAYS = range(6)  # entries of ``ticks``
SHOWN, MADE = range(2)  # the published fit and the one in the making
OUTSIDE = -1  # the stamp of an arm whose features the space's fit cannot hold
PARALLEL = 1e-8  # arms whose directions differ by less are on one ray


class MultiscaleState(NamedTuple):
    """CS-LB's fields by the same names, then what the other scales need."""

    choice: Ints
    counts: Ints
    place: Ints
    stats: Floats  # per slot: as in CS-LB, then DIRECTION, SPACE, LENGTH, RAY, SPACE_WIDTH
    shape: Ints
    level: Floats
    clock: Ints
    radius: Floats  # of clusters
    coordinates: Floats
    whitened: Floats
    core: Floats
    listed: Ints  # empty: no shortlists here
    tree: Floats
    work: Floats
    rays: Floats
    direction: Floats  # the radius of rays
    space: Floats  # the radius of the space's fit
    features: Floats  # per arm its coordinates in the space (no columns: the scale is off)
    factor: Floats  # (2, D, D): triangular R with R'R = V, SHOWN and MADE
    target: Floats  # (2, D): R theta
    theta: Floats  # (D): of the published fit
    waiting: Ints
    owed: Floats
    meter: Floats
    ticks: Ints


SPACE_FIELDS = ("features", "factor", "target", "theta", "waiting", "owed", "meter", "ticks")


@kernel
def same_ray(z: Floats, u: Floats, tolerance: float) -> bool:
    """Whether ``z`` lies on the line of the unit vector ``u``."""
    s, left = dot(z, u), 0.0
    for k in range(z.size):
        left += (z[k] - s * u[k]) ** 2
    return left <= tolerance**2 * dot(z, z)


@kernel
def find_rays(Z: Floats, order: Ints, key: Floats, tolerance: float, ray: Ints, length: Floats, first: int) -> int:
    """Number the rays of a cluster's arms, the rows of ``Z``, from ``first`` on; return the number after the last.

    ``order`` sorts by ``key``, a random direction's cosine, equal for arms on one ray up to the tolerance: only
    neighbours in that order need be compared. Zero arms have no ray.
    """
    n, r = Z.shape
    units = np.empty((n, r))
    found, heads = 0, np.empty(n, np.int64)
    window = 4.0 * tolerance * np.sqrt(r)
    for k in range(n):
        i = order[k]
        norm = np.sqrt(dot(Z[i], Z[i]))
        ray[i], length[i] = -1, 0.0
        if norm == 0.0:
            continue
        h = found - 1
        while h >= 0 and key[i] - key[heads[h]] <= window:
            if same_ray(Z[i], units[h], tolerance):
                ray[i], length[i] = first + h, dot(Z[i], units[h])
                break
            h -= 1
        if ray[i] < 0:
            for a in range(r):
                units[found, a] = Z[i, a] / norm
            heads[found] = i
            ray[i], length[i] = first + found, norm
            found += 1
    return first + found


def number_rays(sentinels: Sentinels, coordinates: list[Floats], tolerance: float) -> int:
    """Write every arm's ray and signed length into its slot; returns how many rays there are."""
    count, generator = 0, np.random.default_rng([20_061_012, 1_731])
    for c, Z in enumerate(coordinates):
        first, last = sentinels.shape[c : c + 2, START]
        g = generator.standard_normal(Z.shape[1])
        norms = np.sqrt((Z**2).sum(axis=1))
        key = np.abs(Z @ g) / np.where(norms > 0, norms, 1.0)  # the sign of an arm does not matter
        ray, length = np.empty(len(Z), np.int64), np.empty(len(Z))
        count = find_rays(np.ascontiguousarray(Z), np.argsort(key, kind="stable"), key, tolerance, ray, length, count)
        sentinels.stats[RAY, first:last], sentinels.stats[LENGTH, first:last] = ray, length
    return count


def space_features(arms: Floats, most: int) -> Floats:
    """Every arm in coordinates of the span of all, where that can teach more than the arms' own rewards.

    The features themselves where there are more arms than dimensions; else the left factor of an SVD. No columns: the
    arms are independent, or the space has more than ``most`` dimensions.
    """
    n, d = arms.shape
    if n > d:
        return arms.copy() if d <= most else np.zeros((n, 0))
    if n > most:
        return np.zeros((n, 0))
    U, sigma, _ = np.linalg.svd(arms, full_matrices=False)
    rank = int((sigma > 1e-10 * sigma[0]).sum()) if sigma[0] > 0 else 0
    return np.ascontiguousarray(U[:, :rank] * sigma[:rank]) if rank < n else np.zeros((n, 0))


def arms_of(sentinels: Sentinels, c: int) -> Ints:
    """The arms of a cluster, in the order of their slots."""
    return sentinels.place[ARM_AT, sentinels.shape[c, START] : sentinels.shape[c + 1, START]]
