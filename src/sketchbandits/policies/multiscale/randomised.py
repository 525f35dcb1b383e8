"""Random choices in multi-scale CS-LB: a random share of the radius, within what the bounds allow.

    z_t = 1.25 R |N(0, 1)| ,   x_t = argmax_x min(U(x), x.theta + z_t ||x||_{V^-1})

in the space's fit, or the cluster's for arms that the space's does not hold. ``U(x)`` is the least bound of all scales,
``L(x)`` the largest lower one. The arm is played if

    max U - L(x_t)  <=  c (U(x_t) - L(x_t)) ,   c = CAUTION ,

that is, if the regret that it can have is at most c times its own uncertainty. Otherwise the arm with the largest
bound is played, for which that holds with the factor 1. So whatever the draws are, the regret bound of optimism holds
with the factor c (Theorem 4 of docs/math/multiscale.md); and the draws, most of them far below the whole radius, spare
most of the exploration that a bound for the worst case asks for.

Between two publications of the space's fit, estimates and widths stay, so that few arms can win: those whose value for
a large draw is at least the best one for no draw. They are on a shortlist, in the order of slots, with the level that
no other arm comes up to. A larger draw, or bounds that have fallen so far that no listed arm comes up to the level
either, look at all arms: the choice is always that of a search among all.

The draw is a function of (key, rewards recorded, number of pending decisions): `select` has no side effect and a run
can be repeated. Where pending decisions are passed, an arm with more of them than it has rewards gives way: of the arms
that may be the best, those are chosen from that have the fewest pending decisions beyond their rewards. So a burst
before the first reward goes to all arms in turn, and an arm's pending decisions at most double what is known of it.
**Reference** random multiples of the radius: Vaswani, Mehrabian, Durand and Kveton (RandUCB, AISTATS 2020). The rule
that keeps the guarantee is ours.
"""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import normals
from sketchbandits.kernels.linalg import Floats, Ints, tie_threshold
from sketchbandits.policies.cslb.layout import ARM_AT, CAP, CLUSTER, COUNT, OFFSET, Record
from sketchbandits.policies.multiscale.rays import unit_bound
from sketchbandits.policies.multiscale.state import (
    ALL_LISTED,
    BOUND,
    DIRECTION,
    GUESS,
    LENGTH,
    LISTED,
    OUTSIDE,
    RAY,
    SPACE,
    UNLISTED,
    WIDTH,
    MultiscaleState,
)
from sketchbandits.policies.pending.rule import Mask, draw_round
from sketchbandits.policies.rounds import MEAN, WIDTH2

# Both were chosen on arm sets that are not reported.
BOLDNESS = 1.25  # the scale of the draws, in units of the noise
REACH = 2.0  # of shortlists, in scales of the draws: one draw in 22 is larger
SLACK = 0.1  # by how much bounds may fall before a shortlist is made anew, as a share of what a draw can be worth
CAUTION = 20.0  # how many times its own uncertainty the regret of a drawn arm may be


@kernel
def draw(space: Record, rewards: float, index: int) -> float:
    """The random radius for the decision with ``index`` others pending."""
    key, out = np.empty(2, np.uint64), np.empty(1)
    key[0], key[1] = space["key"], space["second_key"]
    normals(key, draw_round(rewards, index), out)
    return space["boldness"] * abs(out[0])


@kernel
def first_by_draw(stats: Floats, bound: Floats, radius: float) -> int:
    """The first slot by (drawn value within its bound, drawn value, lowest index)."""
    guess, width, n = stats[GUESS], stats[WIDTH], bound.size
    value = np.empty(n)
    for i in range(n):  # in a loop of its own, which becomes vector code
        value[i] = min(bound[i], guess[i] + radius * width[i])
    a = b = c = d = -np.inf  # four partial maxima, which do not wait for each other
    i = 0
    while i + 4 <= n:
        a = max(a, value[i])
        b = max(b, value[i + 1])
        c = max(c, value[i + 2])
        d = max(d, value[i + 3])
        i += 4
    while i < n:
        a = max(a, value[i])
        i += 1
    threshold = tie_threshold(max(max(a, b), max(c, d)))
    first, ties, best = -1, 0, -np.inf
    for i in range(n):
        if value[i] >= threshold:
            if first < 0:
                first = i
            ties += 1
            best = max(best, guess[i] + radius * width[i])
    if ties < 2:
        return max(first, 0)
    least, i = tie_threshold(best), first
    while value[i] < threshold or guess[i] + radius * width[i] < least:
        i += 1
    return i


@kernel
def make_shortlist(state: MultiscaleState) -> None:
    """List the slots that a draw of at most `REACH` times the scale may choose: O(N)."""
    stats, space = state.stats, state.space[0]
    bound, guess, width, n = stats[BOUND], stats[GUESS], stats[WIDTH], stats.shape[1]
    reach = REACH * space["boldness"]
    low = high = -np.inf  # the best value for no draw, and for one of ``reach``
    for i in range(n):
        low = max(low, min(bound[i], guess[i]))
        high = max(high, min(bound[i], guess[i] + reach * width[i]))
    level = tie_threshold(low) - SLACK * (high - low)
    listed = 0
    for i in range(n):
        if guess[i] + reach * width[i] >= level:
            stats[LISTED, listed] = i
            listed += 1
    space["reach"], space["level"] = reach, level
    space["listed"] = listed if 2 * listed <= n and np.isfinite(level) else ALL_LISTED


@kernel
def first_listed(stats: Floats, listed: int, level: float, radius: float) -> int:
    """`first_by_draw` on the shortlist; -1 where an arm that is not on it might tie with the winner."""
    top = best = -np.inf
    for k in range(listed):
        i = int(stats[LISTED, k])
        top = max(top, min(stats[BOUND, i], stats[GUESS, i] + radius * stats[WIDTH, i]))
    threshold = tie_threshold(top)
    if not threshold >= level:
        return -1
    for k in range(listed):
        i = int(stats[LISTED, k])
        if stats[BOUND, i] >= threshold:
            best = max(best, stats[GUESS, i] + radius * stats[WIDTH, i])
    least, k = max(threshold, tie_threshold(best)), 0
    while True:
        i = int(stats[LISTED, k])
        if stats[BOUND, i] >= threshold and stats[GUESS, i] + radius * stats[WIDTH, i] >= least:
            return i
        k += 1


@kernel
def first_slot_by_draw(state: MultiscaleState, radius: float) -> int:
    """`first_by_draw` among all slots, by the shortlist where that is enough."""
    stats, space = state.stats, state.space[0]
    if space["listed"] == UNLISTED and space["outside"] == 0:
        make_shortlist(state)
    if space["listed"] > 0 and radius <= space["reach"]:
        slot = first_listed(stats, space["listed"], space["level"], radius)
        if slot >= 0:
            return slot
        make_shortlist(state)
    return first_by_draw(stats, stats[BOUND], radius)


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
def picks_by_draw(state: MultiscaleState, among: Mask, pulls: Ints, picks: Ints) -> None:
    """Choose ``among`` some slots for each of ``picks.size`` draws; nothing of the state changes.

    ``pulls``: each slot's pending decisions, to which the picks are added.
    """
    bound, top = state.stats[BOUND].copy(), -np.inf
    for i in range(among.size):
        if not among[i]:
            bound[i] = -np.inf
        top = max(top, bound[i])
    rewards, index, safe = state.control[0]["round"] - 1, pulls.sum(), -1
    possible, known = among, False
    for k in range(picks.size):
        radius = draw(state.space[0], rewards, index + k)
        slot = first_by_draw(state.stats, bound, radius)
        if not is_plausible(state, slot, top):
            if safe < 0:
                safe = first_by_bound(state, bound)
            slot = safe
        if pulls[slot] > state.place[COUNT, slot]:
            if not known:
                possible, known = possibly_best(state, among), True
            slot = first_by_draw(state.stats, least_crowded(state, bound, possible, pulls), radius)
        pulls[slot] += 1
        picks[k] = state.place[ARM_AT, slot]


@kernel
def possibly_best(state: MultiscaleState, among: Mask) -> Mask:
    """Which slots have a bound that no lower bound is above; all of them, where rewards contradict the noise."""
    bound, most = state.stats[BOUND], -np.inf
    for i in range(among.size):
        if among[i]:
            most = max(most, lower_bound(state, i))
    possible = among & (bound >= tie_threshold(most))
    return possible if possible.any() else among


@kernel
def least_crowded(state: MultiscaleState, bound: Floats, possible: Mask, pulls: Ints) -> Floats:
    """The bounds of those slots that have the fewest decisions pending beyond their rewards, -inf for the others."""
    count = state.place[COUNT]
    fewest = -1
    for i in range(bound.size):
        if possible[i] and (fewest < 0 or pulls[i] - count[i] < fewest):
            fewest = max(0, pulls[i] - count[i])
    left = np.full(bound.size, -np.inf)
    for i in range(bound.size):
        if possible[i] and pulls[i] - count[i] <= fewest:
            left[i] = bound[i]
    return left
