"""Random choices in multi-scale CS-LB: a random share of the radius, within what the bounds allow.

    z_t = min(beta, 1.25 R |N(0, 1)|) ,   x_t = argmax_x min(U(x), x.theta + z_t ||x||_{V^-1})   (the space's fit)

where ``U(x)`` is the least bound of all scales and ``L(x)`` the largest lower one. The arm is played if

    max U - L(x_t)  <=  c (U(x_t) - L(x_t)) ,   c = CAUTION ,

that is, if the regret that it can have is at most c times its own uncertainty. Otherwise the arm with the largest
bound is played, for which that holds with the factor 1. So whatever the draws are, the regret bound of the largest bound
holds with the factor c (Theorem 4 of docs/math/multiscale.md); and the draws, most of them far below the whole
radius, spare most of the exploration that a bound for the worst case asks for.

The draw is a function of (key, rewards recorded, number of pending decisions): `select` has no side effect, a run can
be repeated, and decisions before the next reward differ.
**Reference** random multiples of the radius: Vaswani, Mehrabian, Durand and Kveton (RandUCB, AISTATS 2020). The rule
that keeps the guarantee is ours.
"""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import normals
from sketchbandits.kernels.linalg import Floats, Ints, tie_threshold
from sketchbandits.policies.cslb.layout import ARM_AT, CAP, CLUSTER, OFFSET, Record
from sketchbandits.policies.multiscale.rays import unit_bound
from sketchbandits.policies.multiscale.state import (
    BOUND,
    DIRECTION,
    GUESS,
    LENGTH,
    OUTSIDE,
    RAY,
    SPACE,
    WIDTH,
    MultiscaleState,
)
from sketchbandits.policies.pending.rule import Mask, draw_round
from sketchbandits.policies.rounds import MEAN, WIDTH2

# Both were chosen on arm sets that are not reported.
BOLDNESS = 1.25  # the scale of the draws, in units of the noise
CAUTION = 20.0  # how many times its own uncertainty the regret of a drawn arm may be


@kernel
def draw(space: Record, rewards: float, index: int) -> float:
    """The radius for the decision with ``index`` others pending, a random share of the fit's own."""
    key, out = np.empty(2, np.uint64), np.empty(1)
    key[0], key[1] = space["key"], space["second_key"]
    normals(key, draw_round(rewards, index), out)
    return min(space["beta"], space["boldness"] * abs(out[0]))


@kernel
def first_by_draw(stats: Floats, bound: Floats, radius: float) -> int:
    """The first slot by (drawn value within its bound, drawn value, lowest index)."""
    guess, width, n = stats[GUESS], stats[WIDTH], bound.size
    a = b = c = d = -np.inf  # four partial maxima, which do not wait for each other
    i = 0
    while i + 4 <= n:
        a = max(a, min(bound[i], guess[i] + radius * width[i]))
        b = max(b, min(bound[i + 1], guess[i + 1] + radius * width[i + 1]))
        c = max(c, min(bound[i + 2], guess[i + 2] + radius * width[i + 2]))
        d = max(d, min(bound[i + 3], guess[i + 3] + radius * width[i + 3]))
        i += 4
    while i < n:
        a = max(a, min(bound[i], guess[i] + radius * width[i]))
        i += 1
    threshold = tie_threshold(max(max(a, b), max(c, d)))
    first, ties, best = -1, 0, -np.inf
    for i in range(n):
        if bound[i] >= threshold and guess[i] + radius * width[i] >= threshold:
            if first < 0:
                first = i
            ties += 1
            best = max(best, guess[i] + radius * width[i])
    if ties < 2:
        return max(first, 0)
    least, i = tie_threshold(best), first
    while bound[i] < threshold or guess[i] + radius * width[i] < least:
        i += 1
    return i


@kernel
def is_plausible(state: MultiscaleState, slot: int, top: float) -> bool:
    """Whether playing the slot's arm costs at most CAUTION times its own uncertainty, ``top`` the largest bound."""
    lower = lower_bound(state, slot)
    return top - lower <= state.space[0]["caution"] * (state.stats[BOUND, slot] - lower)


@kernel
def lower_bound(state: MultiscaleState, slot: int) -> float:
    """The largest of the lower bounds of the slot's arm."""
    stats, arm = state.stats, state.place[ARM_AT, slot]
    own = state.clusters[state.place[CLUSTER, arm]]
    lower = max(-stats[CAP, slot], stats[MEAN, slot] - own["beta"] * np.sqrt(stats[WIDTH2, slot]) - stats[OFFSET, slot])
    if state.waiting[arm]["stamp"] != OUTSIDE:
        lower = max(lower, stats[GUESS, slot] - state.space[0]["beta"] * stats[WIDTH, slot])
    if stats[RAY, slot] < 0.0:
        return max(lower, 0.0)
    mean, width = unit_bound(state.rays[int(stats[RAY, slot])], state.space[0]["direction"])
    return max(lower, stats[LENGTH, slot] * mean - abs(stats[LENGTH, slot]) * width)


@kernel
def first_by_bound(state: MultiscaleState, bound: Floats) -> int:
    """The first slot by (bound, bound without the prior's cap, lowest index)."""
    stats, top, best = state.stats, -np.inf, -np.inf
    uncapped = np.full(bound.size, -np.inf)
    for i in range(bound.size):
        top = max(top, bound[i])
    threshold = tie_threshold(top)
    for i in range(bound.size):
        if bound[i] >= threshold:
            own = state.clusters[state.place[CLUSTER, state.place[ARM_AT, i]]]
            value = stats[MEAN, i] + own["beta"] * np.sqrt(stats[WIDTH2, i]) + stats[OFFSET, i]
            uncapped[i] = min(value, min(stats[DIRECTION, i], stats[SPACE, i]))
            best = max(best, uncapped[i])
    least, i = tie_threshold(best), 0
    while bound[i] < threshold or uncapped[i] < least:
        i += 1
    return i


@kernel
def picks_by_draw(state: MultiscaleState, among: Mask, index: int, picks: Ints) -> None:
    """Choose ``among`` some slots for each of ``picks.size`` draws, from ``index`` on; nothing of the state changes."""
    bound, top = state.stats[BOUND].copy(), -np.inf
    for i in range(among.size):
        if not among[i]:
            bound[i] = -np.inf
        top = max(top, bound[i])
    rewards, safe = state.control[0]["round"] - 1, -1
    for k in range(picks.size):
        slot = first_by_draw(state.stats, bound, draw(state.space[0], rewards, index + k))
        if not is_plausible(state, slot, top):
            if safe < 0:
                safe = first_by_bound(state, bound)
            slot = safe
        picks[k] = state.place[ARM_AT, slot]
