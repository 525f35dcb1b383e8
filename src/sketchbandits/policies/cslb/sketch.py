"""CS-LB's literal engine: Algorithms 1-3 as printed, with the paper's slips corrected, O(l^2 d + |C| l d) per round.

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

from typing import Annotated, NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import MAX_STEPS, ROUNDING, Floats, Ints, assign, remove_projection
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb.coordinates import Setting
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CLUSTER_RECORD,
    CONTROL_RECORD,
    COUNT,
    MANY,
    Records,
    new_clusters,
    new_control,
    new_place,
    new_stats,
    record,
)
from sketchbandits.policies.cslb.sentinel import next_slot
from sketchbandits.policies.cslb.tournament import fill_tree, n_leaves
from sketchbandits.policies.rounds import DONE, MEAN, WIDTH2, register


class LiteralState(NamedTuple):
    """The arrays of `layout`, and per cluster the sketch ``S = diag(sigma) basis`` and the estimate."""

    choice: Annotated[Ints, "1"]
    control: Annotated[Records, "1", CONTROL_RECORD]
    clusters: Annotated[Records, "k", CLUSTER_RECORD]
    place: Annotated[Ints, "4 n"]
    stats: Annotated[Floats, "7 n"]
    fits: Annotated[Floats, "f"]  # only the tournament and scratch space
    arms: Annotated[Floats, "n d"]  # per slot
    sigma: Annotated[Floats, "k l"]
    basis: Annotated[Floats, "k l d"]
    theta: Annotated[Floats, "k d"]

    @property
    def counts(self) -> Ints:
        """Per slot: rewards recorded."""
        return self.place[COUNT]


def build(arms: Floats, partition: Partition, setting: Setting) -> LiteralState:
    """The state before the first reward; every arm of the acting cluster is evaluated each round, as printed."""
    k, d = partition.n_clusters, arms.shape[1]
    l, place = min(partition.sketch_size, d), new_place(partition)
    control = new_control(setting.radius, capped=setting.capped)
    clusters = new_clusters(np.bincount(partition.labels, minlength=k), partition.ranks, setting.log_share)
    clusters["form"] = MANY
    control["leaves"] = n_leaves(k)
    control["work"] = 4 * control["leaves"]
    fits = np.zeros(int(control["work"][0]) + len(arms) + 2)
    fill_tree(control, clusters, fits)
    return LiteralState(
        choice=np.zeros(1, np.int64),
        control=control,
        clusters=clusters,
        place=place,
        stats=new_stats(partition, arms, place, setting.shared, capped=setting.capped, rows=setting.rows),
        fits=fits,
        arms=arms[place[ARM_AT]],
        sigma=np.zeros((k, l)),
        basis=np.zeros((k, l, d)),
        theta=np.zeros((k, d)),
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
        logdet += np.log1p(sigma[k] ** 2 / state.control[0]["radius"]["ridge"])
    state.clusters[c]["logdet"] = logdet


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
    own = state.clusters[c]
    first, last = own["start"], own["start"] + own["size"]
    l, d = state.sigma.shape[1], state.arms.shape[1]
    rows = np.zeros((max(last - first, l), d))
    for i in range(first, last):
        assign(rows[i - first], np.sqrt(state.place[COUNT, i]) * state.arms[i])
    _decompose(state, c, rows)
    own["steps"] = 0


@kernel
def _evaluate(state: LiteralState, c: int) -> None:
    """Means and squared widths of the cluster's arms."""
    ridge, l, d = state.control[0]["radius"]["ridge"], state.sigma.shape[1], state.arms.shape[1]
    basis = state.basis[c]
    weight = 1.0 / (state.sigma[c] ** 2 + ridge)
    p, x = np.empty(l), np.empty(d)
    own = state.clusters[c]
    for i in range(own["start"], own["start"] + own["size"]):
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
    ridge, l, theta = state.control[0]["radius"]["ridge"], state.sigma.shape[1], state.theta[c]
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
def absorb(state: LiteralState, arm: int, reward: float) -> int:
    """Record a reward in its cluster's sketch."""
    control = state.control[0]
    slot = record(control, state.clusters, state.place, state.stats, arm, reward)
    c = control["changed"]
    own = state.clusters[c]
    _learn(state, c, state.arms[slot], reward)
    own["steps"] += 1
    if own["steps"] < MAX_STEPS:
        _insert(state, c, state.arms[slot])
    else:
        _rebuild(state, c)
    _evaluate(state, c)
    return DONE


@kernel
def choose(state: LiteralState) -> int:
    """Write the next arm into the state."""
    slot = next_slot(state.control[0], state.clusters, state.stats, state.fits, None)
    state.choice[0] = state.place[ARM_AT, slot]
    return DONE


register(LiteralState, absorb=absorb, choose=choose)
