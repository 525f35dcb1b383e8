"""CS-LB's literal engine: Algorithms 1-3 as printed, with the paper's slips mended, O(l^2 d + |C| l d) a round.

Algorithm 1 is a truncated incremental SVD (nothing is subtracted): ``[S; x'] = U Sigma V'``, keep ``S = Sigma V'`` and
``H = (Sigma^2 + ridge I)^-1``. It is lossless because a cluster's rank is at most l. With ``p = V'x``,

    ||x||^2_{V^-1} = sum_i p_i^2/(sigma_i^2 + ridge) + ||x - V p||^2/ridge
    theta += V^-1 x (y - x.theta)/(1 + ||x||^2_{V^-1})

**Departures** The printed ``sqrt(Sigma)`` and ``(Sigma + ridge I)^-1`` hold only for squared singular values; the
printed ``(||x||^2 - (Sx)'H(Sx))/ridge`` cancels, the split form above does not. ``V^-1`` is never formed as a d x d
matrix. The printed ``theta = V^-1 sum y x`` is carried by its equal recursion above: the sum's rounding errors in
directions that were never pulled would be divided by the ridge. Every 10,000 updates a cluster's sketch is rebuilt from
its per-arm counts, so that rounding errors cannot pile up.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.confidence import RIDGE
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import MAX_STEPS, ROUNDING, Floats, Ints, assign, remove_projection
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb.layout import ARM_AT, CHANGED, LOGDET, START, STEPS, Sentinels, book
from sketchbandits.policies.cslb.sentinel import next_arm
from sketchbandits.policies.cslb.tournament import build_tree
from sketchbandits.policies.rounds import MEAN, WIDTH2, register


class LiteralState(NamedTuple):
    """`Sentinels`, and per cluster the sketch ``S = diag(sigma) basis`` and the estimate."""

    choice: Ints
    counts: Ints
    place: Ints
    stats: Floats
    shape: Ints
    level: Floats
    clock: Ints
    radius: Floats
    arms: Floats  # per slot
    sigma: Floats  # (K, l)
    basis: Floats  # (K, l, d)
    theta: Floats  # (K, d)
    tree: Floats
    work: Floats


def build(arms: Floats, partition: Partition, sentinels: Sentinels, radius: Floats, scan: str = "full") -> LiteralState:
    """The state before the first reward; every arm of a cluster is looked at each round, as printed."""
    k, d = partition.n_clusters, arms.shape[1]
    l = min(partition.sketch_size, d)
    return LiteralState(
        *sentinels,
        radius=radius,
        arms=arms[sentinels.place[ARM_AT]],
        sigma=np.zeros((k, l)),
        basis=np.zeros((k, l, d)),
        theta=np.zeros((k, d)),
        tree=build_tree(sentinels.level),
        work=np.zeros(sentinels.counts.size + 2),
    )


@kernel
def _decompose(state: LiteralState, c: int, rows: Floats) -> None:
    """The sketch of cluster ``c`` becomes that of ``rows``."""
    l = state.sigma.shape[1]
    _, sigma, basis = np.linalg.svd(rows, False)
    kept = min(l, sigma.size)
    logdet = 0.0
    for k in range(kept):
        state.sigma[c, k] = sigma[k]
        assign(state.basis[c, k], basis[k])
        logdet += np.log1p(sigma[k] ** 2 / state.radius[RIDGE])
    state.level[c, LOGDET] = logdet


@kernel
def _insert(state: LiteralState, c: int, x: Floats) -> None:
    """Algorithm 1."""
    l, d = state.sigma.shape[1], x.size
    rows = np.empty((l + 1, d))
    for k in range(l):
        assign(rows[k], state.sigma[c, k] * state.basis[c, k])
    assign(rows[l], x)
    _decompose(state, c, rows)


@kernel
def _rebuild(state: LiteralState, c: int) -> None:
    """The sketch of cluster ``c`` from its arms' counts."""
    first, last = state.shape[c, START], state.shape[c + 1, START]
    l, d = state.sigma.shape[1], state.arms.shape[1]
    rows = np.zeros((max(last - first, l), d))
    for i in range(first, last):
        assign(rows[i - first], np.sqrt(state.counts[i]) * state.arms[i])
    _decompose(state, c, rows)
    state.shape[c, STEPS] = 0


@kernel
def _evaluate(state: LiteralState, c: int) -> None:
    """Means and squared widths of the cluster's arms."""
    ridge, l, d = state.radius[RIDGE], state.sigma.shape[1], state.arms.shape[1]
    basis = state.basis[c]
    weight = 1.0 / (state.sigma[c] ** 2 + ridge)
    p, x = np.empty(l), np.empty(d)
    for i in range(state.shape[c, START], state.shape[c + 1, START]):
        assign(x, state.arms[i])
        left = remove_projection(basis, l, x, p)
        width2 = 0.0
        for k in range(l):
            width2 += p[k] ** 2 * weight[k]
        if left**2 > ROUNDING**2 * np.dot(state.arms[i], state.arms[i]):
            width2 += left**2 / ridge
        state.stats[MEAN, i] = np.dot(state.arms[i], state.theta[c])
        state.stats[WIDTH2, i] = width2


@kernel
def _learn(state: LiteralState, c: int, x: Floats, reward: float) -> None:
    """Move the estimate of cluster ``c``; the sketch is still that without ``x``."""
    ridge, l, theta = state.radius[RIDGE], state.sigma.shape[1], state.theta[c]
    p, rest, dust = np.empty(l), x.copy(), ROUNDING * np.sqrt(np.dot(x, x))
    left = remove_projection(state.basis[c], l, rest, p)
    left = left if left > dust else 0.0
    growth = 1.0 + left**2 / ridge
    for k in range(l):
        p[k] = p[k] if abs(p[k]) > dust else 0.0
        growth += p[k] ** 2 / (state.sigma[c, k] ** 2 + ridge)
    error = (reward - np.dot(x, theta)) / growth
    if left > 0.0:
        theta += error / ridge * rest
    for k in range(l):
        theta += error * p[k] / (state.sigma[c, k] ** 2 + ridge) * state.basis[c, k]


@kernel
def absorb(state: LiteralState, arm: int, reward: float) -> None:
    """Book a reward into its cluster's sketch."""
    slot = book(state.counts, state.place, state.stats, state.shape, state.clock, arm, reward)
    c = state.clock[CHANGED]
    _learn(state, c, state.arms[slot], reward)
    state.shape[c, STEPS] += 1
    if state.shape[c, STEPS] < MAX_STEPS:
        _insert(state, c, state.arms[slot])
    else:
        _rebuild(state, c)
    _evaluate(state, c)


@kernel
def choose(state: LiteralState) -> None:
    """Write the next arm into the state."""
    work = state.work
    none, listed = work[:0], state.counts[:0]  # no shortlists here
    state.choice[0] = next_arm(
        state.place,
        state.stats,
        state.shape,
        state.level,
        state.tree,
        state.clock,
        state.radius,
        none,
        none,
        listed,
        work,
    )


def current_stats(state: LiteralState) -> Floats:
    """The statistics of every slot as of the last reward."""
    return state.stats


register(LiteralState, absorb=absorb, choose=choose)

State = LiteralState
