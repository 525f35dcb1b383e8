"""A ridge fit whose bounds are capped at what the prior allows: ``min(mean + beta width, S ||x||)``.

At first all bounds are above their caps, and the cap alone would decide by the arms' norms. Arms whose capped bounds
tie are therefore ordered by the bound without the cap, and then by index, as in CS-LB. A state type of its own, so that
a fit without caps has the layout and the kernels that it had.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import RADIUS
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, tie_threshold
from sketchbandits.kernels.whitening import ridge_step
from sketchbandits.policies.fits.ridge import LEVEL, RidgeState, fill_bounds, record, refit, settled, step_is_sound
from sketchbandits.policies.rounds import AFTER, BEFORE, DONE, MEAN, WIDTH2, register


class CappedState(NamedTuple):
    """As `ridge.RidgeState`, with the cap of every arm."""

    choice: Annotated[Ints, "1"]
    counts: Annotated[Ints, "n"]
    stats: Annotated[Floats, "4 n"]
    coordinates: Annotated[Floats, "r n"]
    whitened: Annotated[Floats, "r n"]
    inverse: Annotated[Floats, "r r"]
    level: Annotated[NDArray[Any], "1", LEVEL]
    radius: Annotated[NDArray[Any], "1", RADIUS]
    closed: Annotated[Floats, "n"]
    work: Annotated[Floats, "n+2r"]
    cap: Annotated[Floats, "n"]


def prior_bounds(arms: Floats, theta_norm: float) -> Floats:
    """``S ||x||`` for every row, which no mean exceeds."""
    return theta_norm * np.sqrt((arms**2).sum(axis=1))


def capped_state(state: RidgeState, cap: Floats) -> CappedState:
    """A state before the first reward whose bounds are at most ``cap``."""
    return CappedState(*state, cap=cap)


@kernel
def absorb(state: CappedState, arm: int, reward: float) -> int:
    """Record a reward."""
    level, stats, W = state.level[0], state.stats, state.whitened
    if level["refit"] > 0.0:
        return BEFORE
    record(state.counts, stats, level, arm, reward)
    D = ridge_step(state.inverse, W, stats[MEAN], stats[WIDTH2], state.work, arm, reward)
    return DONE if step_is_sound(level, W, arm, D) else AFTER


@kernel
def choose(state: CappedState) -> int:
    """Write the first arm by (capped bound, bound, lowest index) into the state."""
    values = state.work[2 * state.inverse.shape[0] :]
    fill_bounds(state.radius[0], state.level[0], state.stats, values)
    for i in range(values.size):
        values[i] += state.closed[i]
    state.choice[0] = first_capped(values, state.cap)
    return DONE


@kernel
def first_capped(values: Floats, cap: Floats) -> int:
    """The first place by (capped value, value, lowest place); comparisons, which are faster here than min and max."""
    top = uncapped = -np.inf
    for i in range(values.size):
        value = values[i] if values[i] < cap[i] else cap[i]
        if value > top:
            top = value
    threshold, first = tie_threshold(top), -1
    for i in range(values.size):
        if values[i] >= threshold and cap[i] >= threshold and values[i] > uncapped:
            uncapped = values[i]
            if first < 0:
                first = i
    least = tie_threshold(uncapped)
    for i in range(max(first, 0), values.size):
        if values[i] >= least and cap[i] >= threshold:
            return i
    return max(first, 0)


register(CappedState, absorb=absorb, choose=choose, refit=refit, settled=settled)
