"""CS-LB's fast engine: every cluster's ridge fit in the coordinates of its span, O(r^2 + |C| r) a round.

All arms of a cluster lie in one subspace of dimension r <= l, known after warm-up. Means and squared widths of its arms
follow each pull by one rank-one step (`linalg.ridge_step`), in coordinates whitened by the data so far
(`linalg.whiten`). Equal to Algorithms 1-3 in exact arithmetic.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.confidence import BIAS, DIM, LOG_SHARE, NOISE, RATE, RIDGE, closed_information, ellipsoid_radius
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import (
    MAX_GROWTH,
    MAX_STEP,
    MAX_STEPS,
    Floats,
    Ints,
    evaluate,
    gram,
    gram_step,
    identity,
    ridge_step,
    whiten,
)
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb.layout import (
    A_START,
    ARM_AT,
    CAPPED,
    CHANGED,
    FEW,
    FORM,
    GROWTH,
    L_START,
    LEAK,
    LISTED,
    LOGDET,
    MANY,
    OFF_SPAN,
    RANK,
    ROUND,
    SENTINEL,
    START,
    STEPS,
    TOP,
    UNCAPPED,
    UNCAPPED_TOP,
    Z_START,
    Sentinels,
    book,
    first_slot,
)
from sketchbandits.policies.cslb.sentinel import best_slot, next_arm
from sketchbandits.policies.cslb.shortlist import (
    LEAST_ARMS,
    PULLS,
    evaluate_all,
    fit_of,
    room_for,
    start_lists,
    step_listed,
)
from sketchbandits.policies.cslb.tournament import build_tree, first_cluster, put_sentinel, scan_clusters
from sketchbandits.policies.rounds import LOST, MEAN, SUM, WIDTH2, register


class CoordinateState(NamedTuple):
    """`Sentinels`; per cluster its coordinates and whitened coordinates (rank x size) and its core.

    The core of a cluster of at most 2 r arms is the Gram matrix ``Z V^-1 Z'`` (size x size), of a larger one the
    inverse ``V^-1`` in whitened coordinates (rank x rank), with the estimate and the map to them: whichever makes a
    round cheaper. Of a huge one it is a fit
    with its shortlists, whose slots stand in ``listed``; there ``stats`` are those of the last look at all arms.
    """

    choice: Ints
    counts: Ints
    place: Ints
    stats: Floats
    shape: Ints
    level: Floats
    clock: Ints
    radius: Floats
    coordinates: Floats
    whitened: Floats
    core: Floats
    listed: Ints
    tree: Floats
    work: Floats


def lay_out(shape: Ints, ranks: Ints, scan: str) -> int:
    """Say for each cluster how its statistics are kept and where; return how many whole numbers the lists take."""
    sizes = np.diff(shape[:, START])
    least = {"auto": LEAST_ARMS, "shortlist": 1, "full": np.iinfo(np.int64).max}[scan]
    many = np.where((sizes >= least) & (ranks > 0), LISTED, MANY)
    shape[:-1, FORM] = np.where(sizes <= 2 * ranks, FEW, many)
    cores, lists = np.where(shape[:-1, FORM] == FEW, sizes**2, 2 * ranks**2 + ranks), np.zeros_like(sizes)
    for c in np.flatnonzero(shape[:-1, FORM] == LISTED):
        cores[c], lists[c] = room_for(int(sizes[c]), int(ranks[c]))
    shape[1:, Z_START], shape[1:, A_START] = np.cumsum(sizes * ranks), np.cumsum(cores)
    shape[1:, L_START] = np.cumsum(lists)
    return int(lists.sum())


def build(
    arms: Floats, partition: Partition, sentinels: Sentinels, radius: Floats, scan: str = "auto"
) -> CoordinateState:
    """The state before the first reward."""
    shape, order, ranks = sentinels.shape, sentinels.place[ARM_AT], partition.ranks
    listed = np.zeros(lay_out(shape, ranks, scan), np.int64)
    coordinates = np.empty(shape[-1, Z_START])
    rows = np.concatenate([[0], np.cumsum(ranks)])
    for c in range(partition.n_clusters):
        members = order[shape[c, START] : shape[c + 1, START]]
        block = partition.bases[rows[c] : rows[c + 1]] @ arms[members].T
        coordinates[shape[c, Z_START] : shape[c + 1, Z_START]] = block.ravel()
    state = CoordinateState(
        *sentinels,
        radius=radius,
        coordinates=coordinates,
        whitened=np.empty_like(coordinates),
        core=np.zeros(shape[-1, A_START]),
        listed=listed,
        tree=build_tree(sentinels.level),
        work=np.zeros(arms.shape[0] + int(ranks.max()) + 2),
    )
    refit_all(state)
    return state


@kernel
def refit_all(state: CoordinateState) -> None:
    """`refit_cluster` of every cluster."""
    for c in range(state.level.shape[0]):
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


@kernel
def refit_cluster(
    counts: Ints,
    stats: Floats,
    shape: Ints,
    level: Floats,
    radius: Floats,
    coordinates: Floats,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    work: Floats,
    c: int,
) -> None:
    """Statistics of cluster ``c`` from its per-arm counts and sums alone, in freshly whitened coordinates."""
    first, n, r = shape[c, START], shape[c + 1, START] - shape[c, START], shape[c, RANK]
    level[c, GROWTH] = 1.0
    shape[c, STEPS] = 0
    if r == 0:
        return
    z0, z1 = shape[c, Z_START], shape[c + 1, Z_START]
    Z, W = coordinates[z0:z1].reshape(r, n), whitened[z0:z1].reshape(r, n)
    own, mine, form = stats[:, first : first + n], core[shape[c, A_START] : shape[c + 1, A_START]], shape[c, FORM]
    if form == MANY:
        theta, frame = estimate_of(core, shape[c, A_START], r), frame_of(core, shape[c, A_START], r)
    else:
        theta, frame = work[:r], np.empty((r, r))
    sums, lost = own[SUM], own[LOST]
    level[c, LOGDET] = whiten(Z, counts[first : first + n], sums, lost, radius[RIDGE], W, theta, frame)
    evaluate(W, theta, own[MEAN], own[WIDTH2])
    if form == FEW:
        gram(W, mine.reshape(n, n))
    elif form == MANY:
        identity(mine[: r * r].reshape(r, r))
    else:
        start_lists(core, listed, shape[c, A_START], shape[c, L_START], n, r, theta)


@kernel
def estimate_of(core: Floats, start: int, r: int) -> Floats:
    """The estimate of a cluster of many arms, in whitened coordinates."""
    return core[start + r * r : start + r * r + r]


@kernel
def frame_of(core: Floats, start: int, r: int) -> Floats:
    """The map from a cluster's coordinates to its whitened ones."""
    return core[start + r * r + r : start + 2 * r * r + r].reshape(r, r)


@kernel
def step_many(
    stats: Floats, shape: Ints, whitened: Floats, core: Floats, work: Floats, c: int, slot: int, reward: float
) -> float:
    """A pull in a cluster of many arms."""
    first, n, r = shape[c, START], shape[c + 1, START] - shape[c, START], shape[c, RANK]
    W = whitened[shape[c, Z_START] : shape[c + 1, Z_START]].reshape(r, n)
    start = shape[c, A_START]
    A, theta = core[start : start + r * r].reshape(r, r), estimate_of(core, start, r)
    mean, width2 = stats[MEAN, first : first + n], stats[WIDTH2, first : first + n]
    error = reward - stats[MEAN, slot]
    D = ridge_step(A, W, mean, width2, work[:r], work[r : r + n], slot - first, reward)
    if 1.0 <= D <= MAX_STEP:
        for k in range(r):
            theta[k] += work[k] * error / D
    return D


@kernel
def step_few(stats: Floats, shape: Ints, core: Floats, work: Floats, c: int, slot: int, reward: float) -> float:
    """A pull in a cluster of few arms."""
    first, n = shape[c, START], shape[c + 1, START] - shape[c, START]
    return gram_step(core, shape[c, A_START], stats, first, n, slot - first, reward, work)


@kernel
def is_sound(shape: Ints, level: Floats, c: int, D: float) -> bool:
    """Count a step that multiplied det V by ``D``; False where the cluster needs a refit instead."""
    if not 1.0 <= D <= MAX_STEP:
        return False
    level[c, GROWTH] *= D
    shape[c, STEPS] += 1
    return level[c, GROWTH] <= MAX_GROWTH and shape[c, STEPS] < MAX_STEPS


@kernel
def flat_absorb(
    counts: Ints,
    place: Ints,
    stats: Floats,
    shape: Ints,
    level: Floats,
    clock: Ints,
    radius: Floats,
    coordinates: Floats,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    work: Floats,
    arm: int,
    reward: float,
) -> None:
    """Book a reward into its cluster."""
    slot = book(counts, place, stats, shape, clock, arm, reward)
    c = clock[CHANGED]
    level[c, LEAK] += stats[OFF_SPAN, slot] ** 2
    if shape[c, FORM] == FEW:
        D = step_few(stats, shape, core, work, c, slot, reward)
    elif shape[c, FORM] == MANY:
        D = step_many(stats, shape, whitened, core, work, c, slot, reward)
    else:
        D = step_listed(shape, whitened, core, listed, work, c, slot, reward)
    if not is_sound(shape, level, c, D):
        refit_cluster(counts, stats, shape, level, radius, coordinates, whitened, core, listed, work, c)


@kernel
def absorb(state: CoordinateState, arm: int, reward: float) -> None:
    """Book a reward into its cluster."""
    flat_absorb(
        state.counts,
        state.place,
        state.stats,
        state.shape,
        state.level,
        state.clock,
        state.radius,
        state.coordinates,
        state.whitened,
        state.core,
        state.listed,
        state.work,
        arm,
        reward,
    )


@kernel
def choose(state: CoordinateState) -> None:
    """Write the next arm into the state."""
    state.choice[0] = next_arm(
        state.place,
        state.stats,
        state.shape,
        state.level,
        state.tree,
        state.clock,
        state.radius,
        state.whitened,
        state.core,
        state.listed,
        state.work,
    )


@kernel
def flat_step(
    choice: Ints,
    counts: Ints,
    place: Ints,
    stats: Floats,
    shape: Ints,
    level: Floats,
    clock: Ints,
    radius: Floats,
    coordinates: Floats,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    tree: Floats,
    work: Floats,
    arm: int,
    reward: float,
) -> None:
    """`rounds.general_step` on the state's fields: Numba takes arrays from Python in half the time of their tuple."""
    flat_absorb(
        counts, place, stats, shape, level, clock, radius, coordinates, whitened, core, listed, work, arm, reward
    )
    choice[0] = next_arm(place, stats, shape, level, tree, clock, radius, whitened, core, listed, work)


@kernel
def flat_steps(
    choice: Ints,
    counts: Ints,
    place: Ints,
    stats: Floats,
    shape: Ints,
    level: Floats,
    clock: Ints,
    radius: Floats,
    coordinates: Floats,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    tree: Floats,
    work: Floats,
    arms: Ints,
    rewards: Floats,
    matches: bool,
    choices: Ints,
) -> None:
    """`rounds.general_steps` on the state's fields."""
    for t in range(arms.size):
        choices[t] = choice[0]
        if not matches or choices[t] == arms[t]:
            flat_absorb(
                counts,
                place,
                stats,
                shape,
                level,
                clock,
                radius,
                coordinates,
                whitened,
                core,
                listed,
                work,
                arms[t],
                rewards[t],
            )
            choice[0] = next_arm(place, stats, shape, level, tree, clock, radius, whitened, core, listed, work)


@kernel
def play(state: CoordinateState, means: Floats, gaps: Floats, noise: Floats) -> float:
    """`rounds.general_play` with the state's arrays at hand and the paper's choice in line: a sixth of the time."""
    choice, counts, place, stats, shape, level, clock = (
        state.choice,
        state.counts,
        state.place,
        state.stats,
        state.shape,
        state.level,
        state.clock,
    )
    radius, coordinates, whitened, core, listed, tree, work = (
        state.radius,
        state.coordinates,
        state.whitened,
        state.core,
        state.listed,
        state.tree,
        state.work,
    )
    dim, rate, scale, bias, share = radius[DIM], radius[RATE], radius[NOISE], radius[BIAS], radius[LOG_SHARE]
    regret = 0.0
    for t in range(noise.size):
        arm = choice[0]
        regret += gaps[arm]
        reward = means[arm] + noise[t]
        slot = book(counts, place, stats, shape, clock, arm, reward)
        c = clock[CHANGED]
        first, last = shape[c, START], shape[c + 1, START]
        form = shape[c, FORM]
        level[c, LEAK] += stats[OFF_SPAN, slot] ** 2
        if form == FEW:
            D = gram_step(core, shape[c, A_START], stats, first, last - first, slot - first, reward, work)
        elif form == MANY:
            D = step_many(stats, shape, whitened, core, work, c, slot, reward)
        else:
            D = step_listed(shape, whitened, core, listed, work, c, slot, reward)
        if not is_sound(shape, level, c, D):
            refit_cluster(counts, stats, shape, level, radius, coordinates, whitened, core, listed, work, c)
        if clock[CAPPED] == 1 or form == LISTED:
            choice[0] = next_arm(place, stats, shape, level, tree, clock, radius, whitened, core, listed, work)
            continue
        beta = ellipsoid_radius(closed_information(clock[ROUND], dim, rate), scale, bias, share)
        best = first_slot(stats, first, last, beta, work)
        # Calls are handed as few arrays as can be: each costs two counts of references.
        if tree.shape[1] > 0:
            put_sentinel(level, tree, c, work[TOP], work[UNCAPPED_TOP])
            winner = first_cluster(level, tree)
        else:
            level[c, SENTINEL], level[c, UNCAPPED] = work[TOP], work[UNCAPPED_TOP]
            winner = scan_clusters(level)
        if winner != c:
            if shape[winner, FORM] == LISTED:
                best = best_slot(stats, shape, clock, whitened, core, listed, work, winner, beta)
            else:
                best = first_slot(stats, shape[winner, START], shape[winner + 1, START], beta, work)
        choice[0] = place[ARM_AT, best]
    return regret


@kernel
def look_at_all(state: CoordinateState, c: int, stats: Floats) -> None:
    """Bring the columns of a cluster with shortlists up to date in ``stats``, a copy: nothing of the state changes."""
    first, n, r = state.shape[c, START], state.shape[c + 1, START] - state.shape[c, START], state.shape[c, RANK]
    W = state.whitened[state.shape[c, Z_START] : state.shape[c + 1, Z_START]].reshape(r, n)
    own, pulls = stats[:, first : first + n], state.listed[state.shape[c, L_START] + PULLS]
    evaluate_all(fit_of(state.core, state.shape[c, A_START], r), pulls, W, own[MEAN], own[WIDTH2], np.empty(n))


def current_stats(state: CoordinateState) -> Floats:
    """The statistics of every slot as of the last reward."""
    listed = np.flatnonzero(state.shape[:-1, FORM] == LISTED)
    if not listed.size:
        return state.stats
    stats = state.stats.copy()
    for c in listed.tolist():
        look_at_all(state, c, stats)
    return stats


def step(state: CoordinateState, arm: int, reward: float) -> None:
    """`flat_step` on a state."""
    flat_step(*state, arm, reward)


def steps(state: CoordinateState, arms: Ints, rewards: Floats, matches: bool, choices: Ints) -> None:
    """`flat_steps` on a state."""
    flat_steps(*state, arms, rewards, matches, choices)


register(CoordinateState, absorb=absorb, choose=choose, step=step, steps=steps, play=play)

State = CoordinateState
