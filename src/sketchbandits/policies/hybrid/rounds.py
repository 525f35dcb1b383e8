"""Rounds of the hybrid policy: with a context each or without (`policies.rounds`), with one copy or two (`watch`)."""

from typing import Any

import numpy as np
from numba.extending import overload

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.hybrid.choice import decide
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.hybrid.record import record
from sketchbandits.policies.hybrid.refit import refit, settled
from sketchbandits.policies.hybrid.watch import WatchedState, absorb_watched, refit_watched, settled_watched
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.policies.rounds import AFTER, BEFORE, DONE, register


@kernel
def absorb_alone(state: HybridState, arm: int, x: Floats, reward: float) -> int:
    """Record a reward of ``arm`` in context ``x``."""
    level = state.level[0]
    if level["waits"] == 1:
        return BEFORE
    record(state, arm, x, reward)
    if level["samples"] < level["due"]:
        return DONE
    level["waits"] = 1
    return AFTER


def main_of(state: Any) -> HybridState:
    """The copy that decides; in compiled code by the state's type, as the next one."""
    return state.main if isinstance(state, WatchedState) else state


def absorb_in(state: Any, arm: int, x: Floats, reward: float) -> int:
    """Record a reward of ``arm`` in context ``x`` in whatever copies there are."""
    return (absorb_watched if isinstance(state, WatchedState) else absorb_alone)(state, arm, x, reward)


@overload(main_of, strict=False)
def _main_of_type(state):  # type: ignore[no-untyped-def]
    if getattr(state, "instance_class", None) is WatchedState:
        return lambda state: state.main
    return lambda state: state


@overload(absorb_in, strict=False)
def _absorb_in_type(state, arm, x, reward):  # type: ignore[no-untyped-def]
    if getattr(state, "instance_class", None) is WatchedState:
        return lambda state, arm, x, reward: absorb_watched(state, arm, x, reward)
    return lambda state, arm, x, reward: absorb_alone(state, arm, x, reward)


@kernel
def absorb(state: Any, arm: int, reward: float) -> int:
    """Record a reward where there is no context."""
    return absorb_in(state, arm, np.ones(1), reward)


@kernel
def choose(state: Any) -> int:
    """The next arm where there is no context; with one, nothing can be chosen before it is known."""
    main = main_of(state)
    if main.scale.size == 1:
        n = main.counts.size
        decide(main, np.ones(1), main.level[0]["samples"], np.zeros(n), main.active.copy(), state.choice)
    return DONE


@kernel
def user_loop(state: Any, contexts: Floats, rewards: Floats, available: Mask, chosen: Ints, start: int) -> int:
    """Play rounds from ``start`` on; -1 when all are done, or where to go on after a refit.

    ``available`` has one row per round, or one for all.
    """
    main, cost, pick = main_of(state), np.zeros(rewards.shape[1]), np.empty(1, np.int64)
    for t in range(start, len(rewards)):
        among = available[min(t, len(available) - 1)].copy()
        decide(main, contexts[t], main.level[0]["samples"], cost, among, pick)
        chosen[t] = pick[0]
        code = absorb_in(state, pick[0], contexts[t], rewards[t, pick[0]])
        if code == BEFORE:
            return t
        if code == AFTER:
            return t + 1
    return -1


@kernel
def batch_loop(state: Any, arms: Ints, contexts: Floats, rewards: Floats, start: int) -> int:
    """Record rewards from ``start`` on; -1 when all are done, or where to go on after a refit."""
    for t in range(start, len(rewards)):
        code = absorb_in(state, arms[t], contexts[t], rewards[t])
        if code == BEFORE:
            return t
        if code == AFTER:
            return t + 1
    return -1


register(HybridState, absorb=absorb, choose=choose, refit=refit, settled=settled)
register(WatchedState, absorb=absorb, choose=choose, refit=refit_watched, settled=settled_watched)


def refit_now(state: Any) -> None:
    """Refit every copy that is due, and settle it."""
    if isinstance(state, WatchedState):
        refit_watched(state)
        settled_watched(state)
    else:
        refit(state)
        settled(state)


def refit_all(state: Any) -> None:
    """Refit every copy, due or not."""
    main_of(state).level["waits"] = 1
    refit_now(state)
