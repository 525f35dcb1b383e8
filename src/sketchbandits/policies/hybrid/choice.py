"""Which arm for a context: every arm's mean and width, the draw of a decision, and what it makes of them.

With one draw ``zeta = floor + boldness N(0, 1)^2`` for all arms the scores ``mean + zeta width`` are lines in zeta: the
arm that is chosen for each zeta is their upper envelope (`envelope`). Before costs, means and widths are rounded to
multiples of 2^-40 of the largest: lines that differ by rounding errors only are then equal, and the one with the lowest
index is chosen, so that an arm that is never on the envelope is never chosen.
"""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import normals
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.hybrid.layout import RANDOMISED, THEORY, TS, HybridState
from sketchbandits.policies.hybrid.sampling import drawn_sample, sample_round, sampled
from sketchbandits.policies.pending.rule import Mask, draw_round

GRID = 2.0**40
FEW = 20.0  # rewards of its own from which an arm's noise is that of all
FAR = 3.0  # times the noise: rewards that differ by more are not those of arms that are all alike in their noise


@kernel
def predict(state: HybridState, x: Floats, means: Floats, widths: Floats) -> None:
    """Every arm's mean above the centre, and standard deviation over R, in context ``x``. O(p^2) per arm."""
    p = x.size
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
        means[a] = mean
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
    """The factor of every width in this decision, for this position of a slate."""
    level = state.level[0]
    if level["rule"] == THEORY:
        return 1.0
    if level["rule"] != RANDOMISED:
        return level["boldness"] * np.sqrt(np.log(2.0 + level["samples"]))
    drawn = np.empty(1)
    normals(state.key, draw_round(decision, position), drawn)
    return level["floor"] + level["boldness"] * drawn[0] ** 2


@kernel
def highest(means: Floats, widths: Floats, factor: float, among: Mask) -> int:
    """The first of the arms ``among`` whose line is the highest at ``factor``."""
    best = -1
    for i in range(means.size):
        if among[i] and (best < 0 or (means[i] - means[best]) + factor * (widths[i] - widths[best]) > 0.0):
            best = i
    return best


@kernel
def noise_of(state: HybridState, arm: int) -> float:
    """What is taken for R of this arm.

    One arm that always pays the same makes R small, and must not make others look certain: where rewards differ by far
    more than R, an arm with few rewards of its own may have that much noise.
    """
    level = state.level[0]
    more = level["scatter"] ** 2 - (FAR * level["noise"]) ** 2
    if more <= 0.0:
        return level["noise"]
    return np.sqrt(level["noise"] ** 2 + more * FEW / (FEW + state.counts[arm]))


@kernel
def radius(state: HybridState, k: int) -> float:
    """The radius of the ellipsoid of cluster ``k`` that holds at all times (docs/math/hybrid.md)."""
    level = state.level[0]
    # Half of delta is for the arms as one cluster, half for clusters, which added arms may make of it.
    chances = np.log(2.0 / level["delta"])
    if state.shared.shape[0] > 1:
        chances = np.log((k + 2.0) * (k + 3.0) / level["delta"])
    bias = level["ridge"] * level["theta_norm"] ** 2 + level["own_ridge"] * level["own_norm"] ** 2
    return np.sqrt(level["noise"] ** 2 * (2.0 * chances + state.logdet[k]) + bias)


@kernel
def unit_of(state: HybridState, arm: int) -> float:
    """What an arm's width is multiplied by to be in units of the reward."""
    if state.level[0]["rule"] == THEORY:
        return radius(state, state.cluster[arm])
    return noise_of(state, arm)


@kernel
def all_units(state: HybridState, units: Floats) -> None:
    """`unit_of` every arm."""
    for arm in range(units.size):
        units[arm] = unit_of(state, arm)


@kernel
def lines(state: HybridState, x: Floats, cost: Floats, among: Mask, means: Floats, widths: Floats) -> None:
    """Every arm's line, rounded, less its cost; before rewards have differed the widest of the cheapest."""
    predict(state, x, means, widths)
    round_to_grid(means)
    if state.level[0]["noise"] > 0.0:
        for i in range(means.size):
            widths[i] *= unit_of(state, i)
        round_to_grid(widths)
        for i in range(means.size):
            means[i] -= cost[i]
        return
    round_to_grid(widths)
    least = np.inf
    for i in range(means.size):
        if among[i]:
            least = min(least, cost[i])
    for i in range(means.size):
        means[i], widths[i] = (widths[i] if cost[i] <= least else -1.0), 0.0


@kernel
def decide(state: HybridState, x: Floats, decision: int, cost: Floats, among: Mask, picks: Ints) -> None:
    """Different arms for the positions of a slate, best first; ``among`` is used up."""
    n = state.counts.size
    means, widths = np.empty(n), np.empty(n)
    lines(state, x, cost, among, means, widths)
    for position in range(picks.size):
        if state.level[0]["rule"] == TS and state.level[0]["noise"] > 0.0:
            picks[position] = sampled_pick(state, x, cost, among, decision, position)
        else:
            picks[position] = highest(means, widths, zeta(state, decision, position), among)
        among[picks[position]] = False


@kernel
def sampled_pick(state: HybridState, x: Floats, cost: Floats, among: Mask, decision: int, position: int) -> int:
    """The winner of one of the `SAMPLES` samples of this decision, drawn by one more number."""
    return sample_winner(state, x, cost, among, decision, position, drawn_sample(state, decision, position))


@kernel
def sample_winner(
    state: HybridState, x: Floats, cost: Floats, among: Mask, decision: int, position: int, sample: int
) -> int:
    """The best arm under one sample of all coefficients."""
    scores, units = np.empty(among.size), np.empty(among.size)
    for i in range(among.size):
        units[i] = noise_of(state, i)
    sampled(state, x, units, sample_round(decision, position, sample), scores)
    best = -1
    for i in range(among.size):
        if among[i] and (best < 0 or scores[i] - cost[i] > scores[best] - cost[best]):
            best = i
    return best
