"""Pending decisions: how a policy goes on choosing while the rewards of earlier decisions are outstanding.

Deterministic optimism would give every decision the same arm until the next reward. Here each pending pull counts as
though it had returned its current mean: means stay, and the widths of its group (a policy's ellipsoid: a cluster, or
the whole space) shrink from ``||z||_A`` to ``||z||_{A_p}``, ``A_p^-1 = A^-1 + sum of pending z z'``. Then

    bound(z) = min(cap, mean + f beta ||z||_{A_p} + offset) ,  f^2 = the largest det A/det A_p of a group <= 1 + C

**Guarantee** ``||z||_A <= sqrt(det A/det A_p) ||z||_{A_p}``, so no bound falls below the one from observed rewards, and
whatever that covers is covered. A group's pending pulls are discounted in the order given, until the next would take
its ratio past ``1 + C``. ``A_p^-1`` therefore never shrinks, whichever reward arrives first, and the decisions that are
discounted have regret at most ``2 sqrt(1 + C) beta ||x||_{A_p}`` each: together at most ``sqrt(1 + C)`` times the
policy's bound without delay. All groups share the factor f: one that is inflated by its own ratio never falls behind.
**Overflow** Where the best arm's group cannot take one more pull: among the arms whose bound is at least the best
*observed* lower bound (all, where none is), those with the fewest pending pulls, and of them the largest bound. No
guarantee beyond the additive cost of delay. Policies without a guarantee follow the same rule and gain none.
**Cost** a discounted pull costs what a reward costs the policy, a decision O(N) more. `PendingBounds` take O(N) to
build, of a ridge fit O(N + d^2), and are kept until the next reward: a longer list only adds what is new in it.
**Reference** Desautels, Krause and Burdick, JMLR 15, 2014, Sections 4.2-4.3 and Theorem 2.
**Departures** f is the measured ratio, not ``sqrt(1 + C)`` throughout: with nothing pending it is 1. The overflow rule.

**A new policy** gives `Policy._pending_bounds`: `PendingBounds` (see `new_bounds`) with a ``model``, any ``NamedTuple``
of arrays whose type was registered by `register_model` together with these kernels:

- ``discount(model, pending, slot)``: one more pull of ``slot`` returned its mean. Shrinks ``pending.stats[WIDTH2]`` and
  calls `grow` with the factor of every determinant that it multiplies. Never writes to the policy's state.
- ``fits(model, pending, slot)`` (default `general_fits`): whether one more pull may be discounted.
- ``look_again(model, pending, slot)`` (default: never): bring a slot that leads up to date, and say whether it was not.
- ``fill(model, pending)`` (default `general_fill`): write the rows CAPPED and UNCAPPED of ``pending.stats``, with every
  radius multiplied by `inflation`.

A policy with several ellipsoids per arm keeps the others in its model and overrides all three. One that samples
overrides `Policy._picks` instead, with a draw for each pending index (`draw_round`).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import ArrayLike, NDArray

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import TIE, Floats, Ints, tie_threshold

C = 1.0  # a group's determinant may grow by the factor 1 + C through pending pulls
LIMIT = (1.0 + C) * (1.0 + TIE)
ARM_AT, SLOT_OF, GROUP, PULLS = range(4)  # rows of ``place``
MEAN, WIDTH2, CAP, OFFSET, LOWER, CAPPED, UNCAPPED = range(7)  # rows of ``stats``, MEAN and WIDTH2 as in a state's
RADIUS, RATIO, FULL = range(3)  # rows of ``level``
INDEX_BITS = 40  # a draw's pending index stands above the rewards recorded in the generator's counter

Mask = NDArray[np.bool_]

_DISCOUNTS: dict[type, Callable[..., None]] = {}
_FITS: dict[type, Callable[..., bool]] = {}
_FILLS: dict[type, Callable[..., None]] = {}
_LOOKS: dict[type, Callable[..., bool]] = {}


class PendingBounds(NamedTuple):
    """Bounds as though pending pulls had returned their means; of slots, a policy's arms in its order of preference.

    Few arrays, many rows: compiled code counts references to each array that a call receives.
    """

    place: Ints  # per slot its arm, -1 for none; per arm its slot; per slot its group and how many pulls are pending
    start: Ints  # group g has the slots start[g] : start[g + 1]
    stats: Floats  # per slot: MEAN, WIDTH2 with discounted pulls; CAP, OFFSET of bounds; observed LOWER bound; bounds
    level: Floats  # per group: RADIUS from rewards, RATIO det A/det A_p, FULL once a pull was too much; in all: RATIO
    model: Any  # what the policy's own kernels need


def new_bounds(
    model: Any,
    stats: Floats,
    radius: ArrayLike,
    *,
    cap: float | Floats = np.inf,
    offset: float | Floats = 0.0,
    start: Ints | None = None,
    arm_at: Ints | None = None,
    slot_of: Ints | None = None,
) -> PendingBounds:
    """Nothing pending yet, from means and squared widths and one radius per group; by default one group of all arms."""
    n, groups = stats.shape[1], np.size(radius)
    place, own = np.zeros((4, n), np.int64), np.empty((7, n))
    place[ARM_AT] = np.arange(n) if arm_at is None else arm_at
    place[SLOT_OF] = place[ARM_AT] if slot_of is None else slot_of
    if start is not None:
        place[GROUP] = np.repeat(np.arange(groups), np.diff(start))
    level = np.ones((3, groups + 1))
    level[RADIUS, :groups], level[FULL] = radius, 0.0
    own[: WIDTH2 + 1] = stats[: WIDTH2 + 1]
    own[CAP], own[OFFSET] = cap, offset
    width = level[RADIUS][place[GROUP]] * np.sqrt(own[WIDTH2]) + np.abs(offset)
    own[LOWER] = np.minimum(own[MEAN] - width, cap)
    return PendingBounds(place, np.array([0, n]) if start is None else start, own, level, model)


def discount(model: Any, pending: PendingBounds, slot: int) -> None:
    """One more pull of ``slot`` returned its mean; in compiled code the call resolves by the model's type."""
    _DISCOUNTS[type(model)](model, pending, slot)


def fits(model: Any, pending: PendingBounds, slot: int) -> bool:
    """Whether one more pull of ``slot`` may be discounted; resolves by the model's type."""
    return _FITS[type(model)](model, pending, slot)


def fill(model: Any, pending: PendingBounds) -> None:
    """Write the inflated bounds of all slots; resolves by the model's type."""
    _FILLS[type(model)](model, pending)


def look_again(model: Any, pending: PendingBounds, slot: int) -> bool:
    """Bring a slot that leads up to date; False where it was. Resolves by the model's type."""
    return _LOOKS[type(model)](model, pending, slot)


@overload(discount, strict=False)
def _discount_of_type(model, pending, slot):  # type: ignore[no-untyped-def]
    if (model_type := getattr(model, "instance_class", None)) in _DISCOUNTS:
        compiled = _DISCOUNTS[model_type]
        return lambda model, pending, slot: compiled(model, pending, slot)
    return None


@overload(fits, strict=False)
def _fits_of_type(model, pending, slot):  # type: ignore[no-untyped-def]
    if (model_type := getattr(model, "instance_class", None)) in _FITS:
        compiled = _FITS[model_type]
        return lambda model, pending, slot: compiled(model, pending, slot)
    return None


@overload(fill, strict=False)
def _fill_of_type(model, pending):  # type: ignore[no-untyped-def]
    if (model_type := getattr(model, "instance_class", None)) in _FILLS:
        compiled = _FILLS[model_type]
        return lambda model, pending: compiled(model, pending)
    return None


@overload(look_again, strict=False)
def _look_again_of_type(model, pending, slot):  # type: ignore[no-untyped-def]
    if (model_type := getattr(model, "instance_class", None)) in _LOOKS:
        compiled = _LOOKS[model_type]
        return lambda model, pending, slot: compiled(model, pending, slot)
    return None


@kernel
def grow(pending: PendingBounds, group: int, factor: float) -> None:
    """A discounted pull has multiplied the determinant of a group's ``A_p^-1`` by ``factor``."""
    ratio = pending.level[RATIO]
    ratio[group] *= factor
    ratio[-1] = max(ratio[-1], ratio[group])


@kernel
def inflation(pending: PendingBounds) -> float:
    """The factor f of every radius."""
    return np.sqrt(pending.level[RATIO, -1])


@kernel
def general_fits(model: Any, pending: PendingBounds, slot: int) -> bool:
    """Whether the ratio of the slot's group stays within ``1 + C``, and no earlier pull was too much for it."""
    level, group = pending.level, pending.place[GROUP, slot]
    return level[FULL, group] == 0.0 and level[RATIO, group] * (1.0 + pending.stats[WIDTH2, slot]) <= LIMIT


@kernel
def general_look(model: Any, pending: PendingBounds, slot: int) -> bool:
    """Nothing is ever out of date."""
    return False


@kernel
def general_fill(model: Any, pending: PendingBounds) -> None:
    """``mean + f beta width``, capped and not."""
    factor, start, stats = inflation(pending), pending.start, pending.stats
    for g in range(start.size - 1):
        beta = factor * pending.level[RADIUS, g]
        for i in range(start[g], start[g + 1]):
            stats[UNCAPPED, i] = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i]) + stats[OFFSET, i]
            stats[CAPPED, i] = min(stats[UNCAPPED, i], stats[CAP, i])


@kernel
def first_among(capped: Floats, uncapped: Floats, among: Mask) -> int:
    """The first by (capped bound, uncapped bound, lowest slot) of those ``among`` which to choose."""
    top = best = -np.inf
    for i in range(among.size):
        if among[i] and capped[i] > top:
            top = capped[i]
    threshold = tie_threshold(top)
    for i in range(among.size):
        if among[i] and capped[i] >= threshold and uncapped[i] > best:
            best = uncapped[i]
    least = tie_threshold(best)
    for i in range(among.size):
        if among[i] and capped[i] >= threshold and uncapped[i] >= least:
            return i
    return -1  # nothing among them


@kernel
def plausible(pending: PendingBounds, among: Mask) -> int:
    """The first of the plausible slots with the fewest pending pulls."""
    capped, lower, pulls = pending.stats[CAPPED], pending.stats[LOWER], pending.place[PULLS]
    best = -np.inf
    for i in range(among.size):
        if among[i]:
            best = max(best, lower[i])
    least, fewest = tie_threshold(best), -1
    for i in range(among.size):
        if among[i] and capped[i] >= least and (fewest < 0 or pulls[i] < fewest):
            fewest = pulls[i]
    if fewest < 0:  # rewards beyond what the noise allows put a lower bound above every capped upper one
        least = -np.inf
        for i in range(among.size):
            if among[i] and (fewest < 0 or pulls[i] < fewest):
                fewest = pulls[i]
    candidates = np.empty(among.size, np.bool_)
    for i in range(among.size):
        candidates[i] = among[i] and capped[i] >= least and pulls[i] == fewest
    return first_among(capped, pending.stats[UNCAPPED], candidates)


@kernel
def overflow(pending: PendingBounds, among: Mask) -> int:
    """`plausible`, brought up to date until it is: a bound that was not looked at again is too large, never too small.

    So the slot does not depend on which ones were looked at before.
    """
    slot = plausible(pending, among)
    while look_again(pending.model, pending, slot):
        slot = plausible(pending, among)
    return slot


@kernel
def pick(pending: PendingBounds, among: Mask) -> int:
    """The slot to choose."""
    fill(pending.model, pending)
    slot = first_among(pending.stats[CAPPED], pending.stats[UNCAPPED], among)
    while look_again(pending.model, pending, slot):
        slot = first_among(pending.stats[CAPPED], pending.stats[UNCAPPED], among)
    return slot if fits(pending.model, pending, slot) else overflow(pending, among)


@kernel
def add_pull(pending: PendingBounds, slot: int) -> None:
    """One more pull is pending in a group that is not full: discount it, or close the group."""
    if fits(pending.model, pending, slot):
        discount(pending.model, pending, slot)
    else:
        pending.level[FULL, pending.place[GROUP, slot]] = 1.0


@kernel
def decide(pending: PendingBounds, waiting: Ints, among: Mask, picks: Ints) -> None:
    """Add the pulls of the arms ``waiting``, then choose: each pick but the last is pending for the next."""
    place, full = pending.place, pending.level[FULL]
    total = waiting.size + picks.size
    for i in range(total):
        if i < waiting.size:
            slot = place[SLOT_OF, waiting[i]]
        else:
            slot = pick(pending, among)
            picks[i - waiting.size] = place[ARM_AT, slot]
        if i + 1 < total:
            place[PULLS, slot] += 1
            if full[place[GROUP, slot]] == 0.0:  # most groups are, in a burst, and a call costs more than the question
                add_pull(pending, slot)


def register_model(
    model: type,
    *,
    discount: Callable[..., None],
    fits: Callable[..., bool] = general_fits,
    fill: Callable[..., None] = general_fill,
    look_again: Callable[..., bool] = general_look,
) -> None:
    """Say which kernels serve a model type."""
    _DISCOUNTS[model], _FITS[model], _FILLS[model], _LOOKS[model] = discount, fits, fill, look_again


class KeptBounds(NamedTuple):
    """Pending bounds, and what they were made of: valid as long as no reward is recorded."""

    state: Any
    n_arms: int
    rewards: int
    waiting: Ints
    pending: PendingBounds

    def knows(self, state: Any, n_arms: int, waiting: Ints) -> bool:
        """Whether it only lacks the end of ``waiting``; a copy or a loaded policy has another state."""
        known = self.waiting.size
        return (
            self.state is state
            and self.n_arms == n_arms
            and self.rewards == state.counts.sum()
            and known <= waiting.size
            and np.array_equal(self.waiting, waiting[:known])
        )


@kernel
def draw_round(rewards: float, index: int) -> int:
    """What a sampling policy gives its counter as the round; with nothing pending, the rewards recorded."""
    return int(rewards) + (index << INDEX_BITS)
