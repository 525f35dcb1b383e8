"""A round of multi-scale CS-LB: record a reward on every scale, spend the budget on the space, choose.

The cluster's fit is CS-LB's. A ray's is one number. The space's fit is evaluated *lazily*: a bound or a width of an
older fit stays valid, so only an arm that is about to be played is evaluated again, until the winner's is of the
published fit or the budget is used up. `randomised` says how a random choice is made.
"""

import numpy as np

from sketchbandits.kernels.borrowed import borrowed
from sketchbandits.kernels.compiled import inlined_kernel, kernel
from sketchbandits.kernels.linalg import Floats, lost_digits
from sketchbandits.policies.cslb.coordinates import is_sound, refit_due, settled, step_cluster
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CAP,
    EVERY,
    NONE,
    OFFSET,
    SLOT,
    TOP,
    UNCAPPED_TOP,
    Record,
    Records,
    cluster_radius,
    first_of_values,
    record,
)
from sketchbandits.policies.cslb.tournament import first_capped_cluster, put_sentinel
from sketchbandits.policies.multiscale.randomised import draw, first_slot_by_draw, is_plausible
from sketchbandits.policies.multiscale.rays import unit_bound
from sketchbandits.policies.multiscale.space import EVALUATION, ask, process, queue, work_is_due
from sketchbandits.policies.multiscale.state import (
    BOUND,
    DIRECTION,
    GUESS,
    LENGTH,
    OUTSIDE,
    RAY,
    SPACE,
    UNLISTED,
    WIDTH,
    MultiscaleState,
)
from sketchbandits.policies.rounds import (
    AFTER,
    BEFORE,
    CHOOSE,
    DONE,
    MEAN,
    PLAY,
    RECORD,
    RENEW,
    UPDATE,
    WIDTH2,
    next_event,
    register,
)


@inlined_kernel
def record_on_ray(rays: Records, space: Record, stats: Floats, slot: int, own: Record, reward: float) -> None:
    """Record a reward on its ray, and renew the bounds of the ray's arms, which are all in the cluster ``own``."""
    number, s = stats[RAY, slot], stats[LENGTH, slot]
    if number < 0.0:
        return  # a zero arm teaches nothing
    ray = rays[int(number)]
    if ray["information"] == 0.0 and s * s > 0.0:
        ray["share"] = space["ray_share"]
        space["ray_left"] -= np.exp(-space["ray_share"])
        space["untaught"] -= 1
    ray["information_lost"] += lost_digits(ray["information"], s * s)
    ray["information"] += s * s
    ray["reward_lost"] += lost_digits(ray["reward"], s * reward)
    ray["reward"] += s * reward
    mean, width = unit_bound(ray, space["direction"])
    for i in range(own["start"], own["start"] + own["size"]):
        if stats[RAY, i] == number:
            stats[DIRECTION, i] = stats[LENGTH, i] * mean + abs(stats[LENGTH, i]) * width


@kernel
def set_direction_bounds(rays: Records, direction: Record, stats: Floats, own: Record) -> None:
    """The bound of a cluster's slots on the scale of their direction, s b/V + beta |s|/sqrt(V); 0 for a zero arm."""
    for i in range(own["start"], own["start"] + own["size"]):
        stats[DIRECTION, i] = 0.0
        if stats[RAY, i] >= 0.0:
            mean, width = unit_bound(rays[int(stats[RAY, i])], direction)
            stats[DIRECTION, i] = stats[LENGTH, i] * mean + abs(stats[LENGTH, i]) * width


@kernel
def best_of_all_scales(own: Record, stats: Floats, fits: Floats, work: int) -> int:
    """The first slot of a cluster by (bound, bound without the prior's cap, lowest index); writes every bound."""
    first, last, beta = own["start"], own["start"] + own["size"], own["beta"]
    for i in range(first, last):  # in a loop of its own, which becomes vector code
        value = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i]) + stats[OFFSET, i]
        value = min(value, min(stats[DIRECTION, i], stats[SPACE, i]))
        fits[work + i] = value
        stats[BOUND, i] = min(value, stats[CAP, i])
    return first_of_values(stats, first, last, fits, work)


@inlined_kernel
def renew(control: Record, own: Record, c: int, stats: Floats, fits: Floats) -> None:
    """Give a cluster its best slot and its sentinel."""
    own["best"] = best_of_all_scales(own, stats, fits, control["work"])
    put_sentinel(control, own, c, fits, fits[TOP], fits[UNCAPPED_TOP])


@kernel
def guess_in_cluster(state: MultiscaleState, own: Record) -> None:
    """Estimate and width of the arms that the space's fit does not hold: those of their cluster."""
    if state.space[0]["outside"] == 0:
        return
    stats = state.stats
    for i in range(own["start"], own["start"] + own["size"]):
        arm = state.place[ARM_AT, i]
        if arm >= 0 and state.waiting[arm]["stamp"] == OUTSIDE:
            stats[GUESS, i], stats[WIDTH, i] = stats[MEAN, i], np.sqrt(stats[WIDTH2, i])


@kernel
def renew_changed(state: MultiscaleState) -> None:
    """Renew radius and sentinel of the cluster that changed, or of every one.

    Where Python has changed something, arms or shares of delta, the bounds of directions are recomputed too.
    """
    control, clusters, stats = state.control[0], state.clusters, state.stats
    state.space[0]["listed"] = UNLISTED
    changed = control["changed"]
    first, last = changed, changed + 1
    if changed == EVERY:
        first, last = 0, clusters.size
    elif changed == NONE:
        first, last = 0, 0
    for c in range(first, last):
        own = clusters[c]
        set_direction_bounds(state.rays, state.space[0]["direction"], stats, own)
        own["beta"] = cluster_radius(control["radius"], own)
        guess_in_cluster(state, own)
        renew(control, own, c, stats, state.fits)


@inlined_kernel
def absorb(state: MultiscaleState, arm: int, reward: float) -> int:
    """Record a reward on every scale and renew its cluster's sentinel; on the space's it waits."""
    control, space, stats, fits = state.control[0], state.space[0], state.stats, state.fits
    if control["refit"] != NONE:
        return BEFORE
    if state.waiting[arm]["stamp"] != OUTSIDE:
        width = stats[WIDTH, state.place[SLOT, arm]]
        space["news"] += np.log1p(width * width)
        queue(space, state.waiting, arm, reward)
    slot = record(control, state.clusters, state.place, stats, arm, reward)
    c = control["changed"]
    own = state.clusters[c]
    sound = is_sound(own, step_cluster(control, own, stats, fits, slot, reward, None))
    record_on_ray(state.rays, space, stats, slot, own, reward)
    space["bank"] = min(space["bank"] + space["budget"], space["most"])
    version = space["version"]
    if work_is_due(space, state.features.shape[1]):
        process(state)
    if not sound:
        control["refit"] = c
        if space["draws"] == 1 and space["version"] != version:
            control["changed"] = EVERY
        return AFTER
    own["beta"] = cluster_radius(control["radius"], own)
    if space["draws"] == 1:
        guess_in_cluster(state, own)
        if space["version"] != version:
            space["listed"] = UNLISTED
            for c in range(state.clusters.size):
                renew(control, state.clusters[c], c, stats, fits)
            return DONE
    renew(control, own, c, stats, fits)
    return DONE


@inlined_kernel
def choose_by_bound(state: MultiscaleState) -> None:
    """The winner, after its space bound was recomputed until it is up to date or the budget is used up."""
    control, clusters, stats, space = state.control[0], state.clusters, state.stats, state.space[0]
    d = state.features.shape[1]
    while True:
        c = first_capped_cluster(control, clusters, state.fits)
        own = clusters[c]
        slot = own["best"]
        arm = state.place[ARM_AT, slot]
        control["choice"] = arm
        stamp = state.waiting[arm]["stamp"]
        if stamp == OUTSIDE or stamp == space["version"]:
            return
        # The bound, the cluster's scan and, where many tie at the cap, a comparison of every sentinel.
        cost = EVALUATION * d * d + own["size"] + clusters.size
        if space["bank"] < cost:
            return
        space["bank"] -= cost
        ask(state, arm, slot)
        renew(control, own, c, stats, state.fits)


@inlined_kernel
def choose_by_draw(state: MultiscaleState) -> bool:
    """The winner under this round's draw; False where the bounds do not allow it."""
    control, clusters = state.control[0], state.clusters
    slot = first_slot_by_draw(state, draw(state.space[0], control["round"] - 1, 0))
    control["choice"] = state.place[ARM_AT, slot]
    return is_plausible(state, slot, clusters[first_capped_cluster(control, clusters, state.fits)]["sentinel"])


@inlined_kernel
def choose(state: MultiscaleState) -> None:
    """The next arm: by a draw, where the policy draws and the bounds allow what it says, else by the largest bound."""
    if state.space[0]["draws"] == 0 or not choose_by_draw(state):
        choose_by_bound(state)


@inlined_kernel
def step(state: MultiscaleState, arm: int, reward: float, mode: int) -> int:
    """`rounds.general_step`; a choice that follows no reward first renews what Python has changed."""
    if mode in (CHOOSE, RENEW):
        renew_changed(state)
        if mode == RENEW:
            return DONE
    else:
        code = absorb(state, arm, reward)
        if code != DONE or mode == RECORD:
            return code
    choose(state)
    return DONE


@kernel
def loop(
    state: MultiscaleState, events: Records, payoffs: Floats, noise: Floats, total: Floats, mode: int, start: int
) -> int:
    """`rounds.general_loop`."""
    lent = MultiscaleState(
        borrowed(state.control),
        borrowed(state.clusters),
        borrowed(state.place),
        borrowed(state.stats),
        borrowed(state.fits),
        borrowed(state.rays),
        borrowed(state.space),
        borrowed(state.waiting),
        borrowed(state.features),
        borrowed(state.factor),
    )
    control = lent.control[0]
    for t in range(start, noise.size if mode == PLAY else events.size):
        arm, reward = next_event(control["choice"], events, payoffs, noise, total, mode, t)
        if arm < 0:
            continue
        code = step(lent, arm, reward, UPDATE)
        if code != DONE:
            return t if code == BEFORE else t + 1
    return -1


register(MultiscaleState, refit=refit_due, settled=settled, step=step, loop=loop)
STATE = MultiscaleState  # whoever takes it from here has the kernels that serve it
