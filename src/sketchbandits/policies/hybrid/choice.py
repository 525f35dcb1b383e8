"""Which arm for a context: every arm's mean and width, the draw of a decision, and what it makes of them.

With one draw ``zeta >= 0`` for all arms the scores ``mean + zeta width`` are lines in zeta: the arm that is chosen for
each zeta is their upper envelope (`envelope`). Means and widths are first rounded to multiples of 2^-40 of the largest:
lines that differ by rounding errors only are then equal, and the one with the lowest index is chosen, so that an arm
that is never on the envelope is never chosen.
"""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import normals
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.hybrid.layout import RANDOMISED, HybridState
from sketchbandits.policies.pending.rule import Mask, draw_round

GRID = 2.0**40


@kernel
def predict(state: HybridState, x: Floats, means: Floats, widths: Floats) -> None:
    """Every arm's mean and standard deviation over R in context ``x``. O(p^2) per arm."""
    p, centre = x.size, state.level[0]["centre"]
    u = np.empty(p)
    for i in range(p):
        u[i] = x[i] * state.scale[i]
    for a in range(state.counts.size):
        mean, variance = 0.0, 0.0
        own, spread = state.own[a], state.spread[a]
        for i in range(p):
            mean += u[i] * own[i]
            inner = 0.0
            for j in range(p):
                inner += spread[i, j] * u[j]
            variance += u[i] * inner
        means[a] = centre + mean
        widths[a] = np.sqrt(max(variance, 0.0))


@kernel
def round_to_grid(values: Floats) -> None:
    """Round to multiples of 2^-40 of the power of two above the largest size."""
    largest = 0.0
    for i in range(values.size):
        largest = max(largest, abs(values[i]))
    if largest == 0.0:
        return
    step = 2.0 ** np.ceil(np.log2(largest)) / GRID
    for i in range(values.size):
        values[i] = np.round(values[i] / step) * step


@kernel
def zeta(state: HybridState, decision: int, position: int) -> float:
    """The factor of R and the width in this decision, for this position of a slate."""
    level = state.level[0]
    if level["rule"] != RANDOMISED:
        return level["boldness"] * np.sqrt(np.log(2.0 + decision))
    drawn = np.empty(1)
    normals(state.key, draw_round(decision, position), drawn)
    return level["boldness"] * abs(drawn[0])


@kernel
def highest(means: Floats, widths: Floats, factor: float, among: Mask) -> int:
    """The first of the arms ``among`` whose line is the highest at ``factor``."""
    best = -1
    for i in range(means.size):
        if among[i] and (best < 0 or (means[i] - means[best]) + factor * (widths[i] - widths[best]) > 0.0):
            best = i
    return best


@kernel
def lines(state: HybridState, x: Floats, cost: Floats, means: Floats, widths: Floats) -> None:
    """Every arm's line, rounded; before rewards have differed R is 0, and widths alone count."""
    predict(state, x, means, widths)
    noise = state.level[0]["noise"]
    for i in range(means.size):
        if noise > 0.0:
            means[i] -= cost[i]
            widths[i] *= noise
        else:
            means[i], widths[i] = widths[i], 0.0
    round_to_grid(means)
    round_to_grid(widths)


@kernel
def decide(state: HybridState, x: Floats, decision: int, cost: Floats, among: Mask, picks: Ints) -> None:
    """Different arms for the positions of a slate, best first; ``among`` is used up."""
    n = state.counts.size
    means, widths = np.empty(n), np.empty(n)
    lines(state, x, cost, means, widths)
    for position in range(picks.size):
        picks[position] = highest(means, widths, zeta(state, decision, position), among)
        among[picks[position]] = False
