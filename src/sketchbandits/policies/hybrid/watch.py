"""Forgetting that is learned: a copy that forgets fast watches, and where it predicts better, the world has changed.

The main copy forgets nothing and decides. With every reward y in context u both are asked how likely it was,

    ln p = -1/2 ln v - (y - mean)^2/(2 R^2 v) ,   v = 1 + u . spread u ,

with the main copy's R. The lead of the fast copy is summed over an exponential window; from `NATS` on the main copy
starts again from the statistics of the fast one, and learns noise and ridges from them.

**Guarantee** none. A change that does not alter what is played, or is slower than the fast copy, is not noticed; where
nothing changes a false alarm costs what was known beyond the last `half_life.WATCHED` rewards.
"""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.hybrid.half_life import WATCHED
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.hybrid.record import record
from sketchbandits.policies.hybrid.refit import refit, settled
from sketchbandits.policies.rounds import AFTER, BEFORE, DONE

NATS = 8.0
UNTIL = 3 * WATCHED  # rewards after a restart until nothing is forgotten again: the fast copy still knew the old world
WINDOW = math.exp(-1.0 / WATCHED)  # by how much the lead counts less with every reward
MOST = 2.0  # nats that one reward may add: an outlier is no change
EARLY = 100  # rewards before which the two are not compared: they are nearly the same

WATCH = np.dtype([("lead", np.float64), ("restarts", np.int64), ("changed", np.int64)])


class WatchedState(NamedTuple):
    """Two copies of the model, of the same arms and rewards."""

    choice: Annotated[Ints, "1"]
    main: HybridState
    fast: HybridState
    watch: Annotated[NDArray[Any], "1", WATCH]


@kernel
def surprise(state: HybridState, arm: int, x: Floats, reward: float, noise: float) -> float:
    """Minus the log-probability of a reward, up to what is the same for all models."""
    p = state.scale.size
    mean, v = state.level[0]["centre"], 1.0
    for i in range(p):
        u = x[i] * state.scale[i]
        mean += u * state.own[arm, i]
        for j in range(p):
            v += u * state.spread[arm, i, j] * x[j] * state.scale[j]
    return 0.5 * (np.log(v) + ((reward - mean) / noise) ** 2 / v)


@kernel
def absorb_watched(state: WatchedState, arm: int, x: Floats, reward: float) -> int:
    """Record a reward in both copies, and compare them."""
    main, fast, watch = state.main.level[0], state.fast.level[0], state.watch[0]
    if main["waits"] == 1 or fast["waits"] == 1:
        return BEFORE
    if main["noise"] > 0.0 and main["samples"] - main["since"] >= EARLY:
        lead = surprise(state.main, arm, x, reward, main["noise"])
        lead -= surprise(state.fast, arm, x, reward, main["noise"])
        watch["lead"] = WINDOW * watch["lead"] + (max(-MOST, min(MOST, lead)) if np.isfinite(lead) else 0.0)
    record(state.main, arm, x, reward)
    record(state.fast, arm, x, reward)
    if watch["lead"] >= NATS:
        watch["changed"] = 1
    if main["samples"] >= main["due"] or watch["changed"] == 1:
        main["waits"] = 1
    if fast["samples"] >= fast["due"]:
        fast["waits"] = 1
    return AFTER if main["waits"] == 1 or fast["waits"] == 1 else DONE


def refit_watched(state: WatchedState) -> None:
    """Refit the copies that wait; the fast one takes over what the main one has learned."""
    main, fast, watch = state.main.level[0], state.fast.level[0], state.watch[0]
    if main["samples"] - main["since"] >= UNTIL:
        main["half_life"] = math.inf
    if watch["changed"] == 1:
        main["half_life"] = WATCHED
        refit(state.main, old=state.fast)
    elif main["waits"] == 1:
        refit(state.main)
    fast["given_noise"], fast["ridge"], fast["own_ridge"] = main["noise"] or math.nan, main["ridge"], main["own_ridge"]
    fast["unlearned"] = 0  # it never learns by itself
    state.fast.scale[-1] = state.main.scale[-1]
    state.fast.coordinates[:], fast["unit"] = state.main.coordinates, main["unit"]
    refit(state.fast)


def settled_watched(state: WatchedState) -> None:
    """Both are fitted; after a change the main copy's schedule begins anew."""
    main, watch = state.main.level[0], state.watch[0]
    if watch["changed"] == 1:
        main["since"] = main["learns"] = max(0, int(main["samples"]) - WATCHED)
        watch["changed"], watch["lead"] = 0, 0.0
        watch["restarts"] += 1
    if main["waits"] == 1:
        settled(state.main)
    settled(state.fast)
