"""A round of multi-scale CS-LB: book a reward on every scale, spend the budget on the space, choose.

The cluster's fit is CS-LB's. A ray's is one number. The space's fit is a triangular system, moved by Givens rotations
(`linalg.triangular_step`), and evaluated *lazily*: a bound of an older fit stays valid, so only an arm that is about to
be played is asked again, until the winner's bound is of the published fit or the budget is used up.
"""

import numpy as np

from sketchbandits.confidence import RIDGE, radius_at
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import (
    Floats,
    Ints,
    add_exactly,
    gram_step,
    tie_threshold,
)
from sketchbandits.policies.cslb.coordinates import is_sound, refit_cluster, step_few, step_many
from sketchbandits.policies.cslb.layout import (
    A_START,
    ARM_AT,
    BEST,
    BETA,
    CAP,
    CHANGED,
    FEW,
    FORM,
    LEAK,
    OFF_SPAN,
    OFFSET,
    ROUND,
    START,
    TOP,
    UNCAPPED_TOP,
    book,
    cluster_radius,
)
from sketchbandits.policies.cslb.tournament import first_capped_cluster, put_sentinel
from sketchbandits.policies.multiscale.space import EVALUATION, ask_space, queue, work_is_due, work_off
from sketchbandits.policies.multiscale.state import (
    BANK,
    BUDGET,
    DIRECTION,
    INFORMATION,
    INFORMATION_LOST,
    LENGTH,
    LOGDET_SHOWN,
    MOST,
    NEWS,
    RAY,
    RAY_SHARE,
    REWARD,
    REWARD_LOST,
    SPACE,
    STAMP,
    VERSION,
    MultiscaleState,
)
from sketchbandits.policies.rounds import MEAN, WIDTH2, register


@kernel
def book_ray(rays: Floats, direction: Floats, stats: Floats, slot: int, first: int, last: int, reward: float) -> None:
    """Book a reward on its ray, and renew the bounds of the ray's arms, which are among the slots ``first : last``."""
    number, s = stats[RAY, slot], stats[LENGTH, slot]
    if number < 0.0:
        return  # a zero arm teaches nothing
    g = int(number)
    add_exactly(rays[INFORMATION], rays[INFORMATION_LOST], g, s * s)
    add_exactly(rays[REWARD], rays[REWARD_LOST], g, s * reward)
    mean, width = unit_bound(rays, direction, g)
    for i in range(first, last):
        if stats[RAY, i] == number:
            stats[DIRECTION, i] = stats[LENGTH, i] * mean + abs(stats[LENGTH, i]) * width


@kernel
def unit_bound(rays: Floats, direction: Floats, g: int) -> tuple[float, float]:
    """``b/V`` and ``beta/sqrt(V)`` with ``V = ridge + sum n s^2`` and ``b = sum s y`` over the ray."""
    information = rays[INFORMATION, g] + rays[INFORMATION_LOST, g]
    V = direction[RIDGE] + information
    beta = radius_at(direction, 0.0, np.log1p(information / direction[RIDGE]), rays[RAY_SHARE, g])
    return (rays[REWARD, g] + rays[REWARD_LOST, g]) / V, beta / np.sqrt(V)


@kernel
def direction_bound(rays: Floats, direction: Floats, g: int, length: float) -> float:
    """``s b/V + beta |s|/sqrt(V)`` for an arm of signed length s on ray g."""
    mean, width = unit_bound(rays, direction, g)
    return length * mean + abs(length) * width


@kernel
def set_direction_bounds(rays: Floats, direction: Floats, stats: Floats) -> None:
    """The bound of every slot on the scale of its direction; 0 for a zero arm."""
    for i in range(stats.shape[1]):
        g = int(stats[RAY, i])
        stats[DIRECTION, i] = direction_bound(rays, direction, g, stats[LENGTH, i]) if g >= 0 else 0.0


@kernel
def book_cluster(
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
    slot: int,
    reward: float,
) -> float:
    """Book a reward into its cluster's fit; return the factor by which its det V has grown."""
    level[c, LEAK] += stats[OFF_SPAN, slot] ** 2
    if shape[c, FORM] == FEW:
        D = step_few(stats, shape, core, work, c, slot, reward)
    else:
        D = step_many(stats, shape, whitened, core, work, c, slot, reward)
    if not is_sound(shape, level, c, D):
        refit_cluster(counts, stats, shape, level, radius, coordinates, whitened, core, listed, work, c)
    return D


@kernel
def best_of_all_scales(stats: Floats, first: int, last: int, beta: float, values: Floats) -> int:
    """The first slot of a range by (bound, bound without the prior's cap, lowest index)."""
    for i in range(first, last):  # in a loop of its own, which becomes vector code
        value = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i]) + stats[OFFSET, i]
        values[i] = min(value, min(stats[DIRECTION, i], stats[SPACE, i]))
    top = -np.inf
    for i in range(first, last):
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
def renew(stats: Floats, shape: Ints, level: Floats, tree: Floats, work: Floats, c: int, beta: float) -> None:
    """Give a cluster its best slot and its sentinel."""
    level[c, BETA] = beta
    shape[c, BEST] = best_of_all_scales(stats, shape[c, START], shape[c + 1, START], beta, work)
    put_sentinel(level, tree, c, work[TOP], work[UNCAPPED_TOP])


@kernel
def book_everywhere(
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
    rays: Floats,
    direction: Floats,
    waiting: Ints,
    owed: Floats,
    meter: Floats,
    ticks: Ints,
    arm: int,
    reward: float,
) -> None:
    """Book a reward on every scale; on the space's it waits."""
    slot = book(counts, place, stats, shape, clock, arm, reward)
    c = clock[CHANGED]
    D = book_cluster(counts, stats, shape, level, radius, coordinates, whitened, core, listed, work, c, slot, reward)
    if D > 1.0:
        meter[NEWS] += D - 1.0
    book_ray(rays, direction, stats, slot, shape[c, START], shape[c + 1, START], reward)
    meter[BANK] = min(meter[BANK] + meter[BUDGET], meter[MOST])
    if waiting[STAMP, arm] >= 0:
        queue(waiting, owed, ticks, arm, reward)


@kernel
def next_arm(
    place: Ints,
    stats: Floats,
    shape: Ints,
    level: Floats,
    tree: Floats,
    clock: Ints,
    radius: Floats,
    work: Floats,
    space: Floats,
    features: Floats,
    factor: Floats,
    theta: Floats,
    waiting: Ints,
    meter: Floats,
    ticks: Ints,
) -> int:
    """Renew the sentinel of the cluster that changed; then ask the winner's space bound until it is up to date."""
    if clock[ROUND] > 1:
        changed = clock[CHANGED]
        renew(stats, shape, level, tree, work, changed, cluster_radius(radius, shape, level, changed))
    d = theta.size
    while True:
        c = first_capped_cluster(level, tree)
        slot = shape[c, BEST]
        arm = place[ARM_AT, slot]
        stamp = waiting[STAMP, arm]
        if d == 0 or stamp < 0 or stamp == ticks[VERSION]:
            return arm
        # The bound, the cluster's scan and, where many tie at the cap, a look at every sentinel.
        cost = EVALUATION * d * d + (shape[c + 1, START] - shape[c, START]) + level.shape[0]
        if meter[BANK] < cost:
            return arm
        meter[BANK] -= cost
        ask_space(stats, slot, features, factor, theta, space, meter[LOGDET_SHOWN], arm)
        waiting[STAMP, arm] = ticks[VERSION]
        renew(stats, shape, level, tree, work, c, level[c, BETA])


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
    rays: Floats,
    direction: Floats,
    space: Floats,
    features: Floats,
    factor: Floats,
    target: Floats,
    theta: Floats,
    waiting: Ints,
    owed: Floats,
    meter: Floats,
    ticks: Ints,
    arm: int,
    reward: float,
) -> None:
    """Book a reward, spend what there is on the space, choose; Numba takes fields from Python sooner than a tuple."""
    book_everywhere(
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
        rays,
        direction,
        waiting,
        owed,
        meter,
        ticks,
        arm,
        reward,
    )
    if work_is_due(meter, ticks, theta.size):
        work_off(features, factor, target, theta, waiting, owed, meter, ticks)
    choice[0] = next_arm(
        place, stats, shape, level, tree, clock, radius, work, space, features, factor, theta, waiting, meter, ticks
    )


def step(state: MultiscaleState, arm: int, reward: float) -> None:
    """`flat_step` on a state."""
    flat_step(*state, arm, reward)


@kernel
def absorb(state: MultiscaleState, arm: int, reward: float) -> None:
    """Book a reward on every scale, then spend what there is on the space's."""
    book_everywhere(
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
        state.rays,
        state.direction,
        state.waiting,
        state.owed,
        state.meter,
        state.ticks,
        arm,
        reward,
    )
    if work_is_due(state.meter, state.ticks, state.theta.size):
        work_off(
            state.features,
            state.factor,
            state.target,
            state.theta,
            state.waiting,
            state.owed,
            state.meter,
            state.ticks,
        )


@kernel
def choose(state: MultiscaleState) -> None:
    """Write the next arm into the state."""
    state.choice[0] = next_arm(
        state.place,
        state.stats,
        state.shape,
        state.level,
        state.tree,
        state.clock,
        state.radius,
        state.work,
        state.space,
        state.features,
        state.factor,
        state.theta,
        state.waiting,
        state.meter,
        state.ticks,
    )


@kernel
def play(state: MultiscaleState, means: Floats, gaps: Floats, noise: Floats) -> float:
    """`rounds.general_play` with the state's arrays at hand and the round in line: half the time."""
    choice, counts, place, stats, shape, level, clock, radius, coordinates, whitened, core, listed, tree, work = (
        state.choice,
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
        state.tree,
        state.work,
    )
    rays, direction, space, features, factor, target, theta, waiting, owed, meter, ticks = (
        state.rays,
        state.direction,
        state.space,
        state.features,
        state.factor,
        state.target,
        state.theta,
        state.waiting,
        state.owed,
        state.meter,
        state.ticks,
    )
    regret, d = 0.0, theta.size
    for t in range(noise.size):
        arm = choice[0]
        regret += gaps[arm]
        reward = means[arm] + noise[t]
        # The round of `flat_step` in line: a call that is handed all these arrays takes as long as what it does.
        slot = book(counts, place, stats, shape, clock, arm, reward)
        c = clock[CHANGED]
        first, last = shape[c, START], shape[c + 1, START]
        level[c, LEAK] += stats[OFF_SPAN, slot] ** 2
        if shape[c, FORM] == FEW:
            D = gram_step(core, shape[c, A_START], stats, first, last - first, slot - first, reward, work)
        else:
            D = step_many(stats, shape, whitened, core, work, c, slot, reward)
        if not is_sound(shape, level, c, D):
            refit_cluster(counts, stats, shape, level, radius, coordinates, whitened, core, listed, work, c)
        if D > 1.0:
            meter[NEWS] += D - 1.0
        book_ray(rays, direction, stats, slot, first, last, reward)
        meter[BANK] = min(meter[BANK] + meter[BUDGET], meter[MOST])
        if waiting[STAMP, arm] >= 0:
            queue(waiting, owed, ticks, arm, reward)
        if work_is_due(meter, ticks, d):
            work_off(features, factor, target, theta, waiting, owed, meter, ticks)
        renew(stats, shape, level, tree, work, c, cluster_radius(radius, shape, level, c))
        c = first_capped_cluster(level, tree)
        arm = place[ARM_AT, shape[c, BEST]]
        if d > 0 and 0 <= waiting[STAMP, arm] < ticks[VERSION] and meter[BANK] >= EVALUATION * d * d:
            arm = next_arm(
                place,
                stats,
                shape,
                level,
                tree,
                clock,
                radius,
                work,
                space,
                features,
                factor,
                theta,
                waiting,
                meter,
                ticks,
            )
        choice[0] = arm
    return regret


@kernel
def renew_all(state: MultiscaleState) -> None:
    """`renew` of every cluster."""
    for c in range(state.level.shape[0]):
        beta = cluster_radius(state.radius, state.shape, state.level, c)
        renew(state.stats, state.shape, state.level, state.tree, state.work, c, beta)


register(MultiscaleState, absorb=absorb, choose=choose, step=step, play=play)
