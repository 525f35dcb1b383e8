"""Rounds of the hybrid policy: with a context each, and without (`policies.rounds`)."""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.hybrid.choice import decide
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.hybrid.record import record
from sketchbandits.policies.hybrid.refit import refit, settled
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.policies.rounds import AFTER, BEFORE, DONE, register


@kernel
def absorb_in(state: HybridState, arm: int, x: Floats, reward: float) -> int:
    """Record a reward of ``arm`` in context ``x``."""
    level = state.level[0]
    if level["waits"] == 1:
        return BEFORE
    record(state, arm, x, reward)
    if level["samples"] < level["due"]:
        return DONE
    level["waits"] = 1
    return AFTER


@kernel
def absorb(state: HybridState, arm: int, reward: float) -> int:
    """Record a reward where there is no context."""
    return absorb_in(state, arm, np.ones(1), reward)


@kernel
def choose(state: HybridState) -> int:
    """The next arm where there is no context; with one, nothing can be chosen before it is known."""
    if state.scale.size == 1:
        n = state.counts.size
        decide(state, np.ones(1), state.level[0]["samples"], np.zeros(n), state.active.copy(), state.choice)
    return DONE


@kernel
def user_loop(state: HybridState, contexts: Floats, rewards: Floats, available: Mask, chosen: Ints, start: int) -> int:
    """Play rounds from ``start`` on; -1 when all are done, or where to go on after a refit.

    ``available`` has one row per round, or one for all.
    """
    cost, pick = np.zeros(rewards.shape[1]), np.empty(1, np.int64)
    for t in range(start, len(rewards)):
        among = available[min(t, len(available) - 1)].copy()
        decide(state, contexts[t], state.level[0]["samples"], cost, among, pick)
        chosen[t] = pick[0]
        code = absorb_in(state, pick[0], contexts[t], rewards[t, pick[0]])
        if code == BEFORE:
            return t
        if code == AFTER:
            return t + 1
    return -1


register(HybridState, absorb=absorb, choose=choose, refit=refit, settled=settled)
STATE = HybridState  # whoever takes it from here has the kernels that serve it
