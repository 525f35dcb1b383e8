"""A ridge fit whose choice stands until det V has grown by a factor 1 + C: rarely switching OFUL.

Between two switches only V is kept up, in O(d^2) per round; the arms' means and widths wait for the next switch, which
costs one refit. A state type of its own, so that a fit that chooses in every round need not wait for these kernels to
be compiled.
"""

import math

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import MAX_STEP, assign, combine, downdate
from sketchbandits.policies.fits.ridge import RidgeState, record, refit, settled, step_is_sound
from sketchbandits.policies.fits.ridge import choose as choose_now
from sketchbandits.policies.rounds import AFTER, BEFORE, DONE, register


class SwitchingState(RidgeState):
    """The fields of `RidgeState`; ``level["switch"]`` is above 0."""

    __slots__ = ()


def switching_state(state: RidgeState, switching: float) -> SwitchingState:
    """A state before the first reward whose choice stands until det V has grown by ``1 + switching``."""
    state.level["switch"] = math.log1p(switching)
    return SwitchingState(*state)


@kernel
def absorb(state: SwitchingState, arm: int, reward: float) -> int:
    """Record a reward in V; means and widths are those of the last switch."""
    level, d = state.level[0], state.inverse.shape[0]
    if level["refit"] > 0.0:
        return BEFORE
    record(state.counts, state.stats, level, arm, reward)
    u, w = state.work[:d], state.work[d : 2 * d]
    assign(w, state.whitened[:, arm])
    combine(w, state.inverse, u)
    D = 1.0
    for k in range(d):
        D += u[k] * w[k]
    if 1.0 <= D <= MAX_STEP:
        downdate(state.inverse, u, 1.0 / D)
    return DONE if step_is_sound(level, state.whitened, arm, D) else AFTER


@kernel
def choose(state: SwitchingState) -> int:
    """The standing choice; the largest upper confidence bound where it is time to switch."""
    level = state.level[0]
    if level["logdet"] < level["switched_at"] + level["switch"]:
        return DONE
    if level["steps"] > 0.0:  # means and widths are those of the last switch
        level["refit"] = 1.0
        return AFTER
    level["switched_at"] = level["logdet"]
    return choose_now(state)


register(SwitchingState, absorb=absorb, choose=choose, refit=refit, settled=settled)
