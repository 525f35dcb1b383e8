"""A round of multi-scale CS-LB on contexts: bound and choose, then route the reward; see `contextual_multiscale`."""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import RADIUS, radius_value
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, assign, dot, scale, tie_threshold
from sketchbandits.kernels.triangular import solve_upper, triangular_step
from sketchbandits.policies.streaming.clusters import (
    COUNT,
    MOST,
    OWN,
    VIEW,
    Clusters,
    book_in_all,
    inverse_norm,
    least_bounds,
    look,
    open_cluster,
)
from sketchbandits.policies.streaming.pool import SIZE, Pool, meet

ROW, LOOK = 4.0, 1.0  # operations of a reward in the space and, for each dimension of a cluster, of its view, in d^2
PRIOR, CLUSTER, SPACE = range(3)
# Entries of ``rule``: membership, a cluster's ridge as a constant and as a multiple of its rank, the budget; and of
# ``meter``: operations saved up, ln det(V/ridge) of the space, rewards booked in all and in the space, sum of r_k^2.
NEAR, RIDGE_AT_LEAST, RIDGE_A_RANK, BUDGET = range(4)
BANK, LOGDET, REWARDS, IN_SPACE, SQUARES = range(5)


class Space(NamedTuple):
    """``factor' factor = V`` and ``factor theta = target`` in all dimensions; empty arrays where it is not kept."""

    factor: Annotated[Floats, "s s"]
    target: Annotated[Floats, "s"]
    theta: Annotated[Floats, "s"]
    radius: Annotated[NDArray[Any], "1", RADIUS]


class ContextualMultiscaleState(NamedTuple):
    """Clusters, the pool that finds them, and the space."""

    clusters: Clusters
    pool: Pool
    space: Space
    radius: Annotated[NDArray[Any], "1", RADIUS]  # of clusters, but for their ridges and shares
    omega: Annotated[Floats, "d"]  # the direction that probes are made from
    rule: Annotated[Floats, "4"]
    meter: Annotated[Floats, "5"]


@kernel
def scale_bounds(state: ContextualMultiscaleState, contexts: Floats, out: Floats) -> None:
    """Rows PRIOR, CLUSTER and SPACE of ``out``: every context's bounds, +inf where a scale says nothing.

    The space itself is asked only where no cluster holds a context; where one does, its view is.
    """
    space, S, d = state.space, state.radius[0]["theta_norm"], contexts.shape[1]
    beta, rest, pair = radius_value(space.radius[0], 0.0, state.meter[LOGDET]), np.empty(d), np.empty(2)
    for a in range(contexts.shape[0]):
        x = contexts[a]
        norm = np.sqrt(dot(x, x))
        held = least_bounds(state.clusters, S, x, norm, state.rule[NEAR], rest, pair)
        if not held and space.theta.size > 0:
            assign(rest, x)
            pair[VIEW] = dot(x, space.theta) + beta * inverse_norm(space.factor, d, rest)
        out[PRIOR, a], out[CLUSTER, a], out[SPACE, a] = S * norm, pair[OWN], pair[VIEW]


@kernel
def choose(state: ContextualMultiscaleState, contexts: Floats) -> int:
    """The first context by (bound, bound without the prior's cap, lowest index)."""
    n = contexts.shape[0]
    scales = np.empty((3, n))
    scale_bounds(state, contexts, scales)
    top = uncapped = -np.inf
    caps, values = scales[PRIOR], scales[CLUSTER]
    for a in range(n):
        values[a] = min(values[a], scales[SPACE, a])
        top = max(top, min(values[a], caps[a]))
    threshold = tie_threshold(top)
    for a in range(n):
        if min(values[a], caps[a]) >= threshold:
            uncapped = max(uncapped, values[a])
    least, a = tie_threshold(uncapped), 0
    while values[a] < least or min(values[a], caps[a]) < threshold:
        a += 1
    return a


@kernel
def seek(state: ContextualMultiscaleState, x: Floats, norm: float) -> int:
    """Show the pool a context that no cluster holds; the cluster that opens, where there is room for it, or -1."""
    clusters, pool, d = state.clusters, state.pool, x.size
    most = min(clusters.bases.shape[1], d)
    if state.space.theta.size > 0:
        most = min(most, min(d - 1, int(np.sqrt(d * d - state.meter[SQUARES]))))
    if most < 2 or clusters.ticks[COUNT] == clusters.ticks[MOST]:
        return -1
    u, span = x.copy(), np.empty((most, d))
    scale(u, 1.0 / norm)
    rank = meet(pool.vectors, pool.basis, pool.mix, pool.ticks, u, state.rule[NEAR], span)
    if rank == 0:
        return -1
    state.meter[SQUARES] += rank * rank
    ridge = state.rule[RIDGE_AT_LEAST] + rank * state.rule[RIDGE_A_RANK]
    return open_cluster(clusters, state.radius[0], span, rank, ridge, state.omega)


@kernel
def pay(state: ContextualMultiscaleState, home: int) -> bool:
    """Whether a reward goes into the space's fit: where no cluster is its context's home, or the budget pays for it."""
    meter, d = state.meter, state.space.theta.size
    if home < 0 or d == 0:
        return d > 0
    cost = (ROW + LOOK * state.clusters.ranks[home]) * d * d
    meter[BANK] += state.rule[BUDGET]
    if meter[BANK] < cost:
        return False
    meter[BANK] = min(meter[BANK] - cost, cost)  # no more is saved than what one of them costs
    return True


@kernel
def absorb(state: ContextualMultiscaleState, x: Floats, reward: float) -> None:
    """Book a reward wherever its context belongs."""
    clusters, space, meter = state.clusters, state.space, state.meter
    meter[REWARDS] += 1.0
    norm = np.sqrt(dot(x, x))
    if norm == 0.0:
        return  # it teaches nothing
    home = book_in_all(clusters, state.radius[0], x, norm, state.rule[NEAR], reward, 0)
    paid = pay(state, home)
    if paid:
        meter[LOGDET] += triangular_step(space.factor, space.target, x.copy(), reward)
        meter[IN_SPACE] += 1.0
        solve_upper(space.factor, space.target, space.theta)
    if home < 0:
        home = seek(state, x, norm)
        if home >= 0:
            book_in_all(clusters, state.radius[0], x, norm, state.rule[NEAR], reward, home)
    if paid and home >= 0:
        look(clusters, home, space.factor, space.theta, radius_value(space.radius[0], 0.0, meter[LOGDET]))


@kernel
def absorb_rows(state: ContextualMultiscaleState, rows: Floats, rewards: Floats, first: int) -> int:
    """Book rewards in order, each with its row, while there is room; the number of the first that was not booked."""
    clusters, pool = state.clusters, state.pool
    for t in range(first, rewards.size):
        if clusters.ticks[COUNT] == clusters.ranks.size and clusters.ticks[COUNT] < clusters.ticks[MOST]:
            return t
        if pool.ticks[SIZE] == pool.vectors.shape[0] and pool.ticks[SIZE] < pool.ticks[MOST]:
            return t
        absorb(state, rows[t], rewards[t])
    return rewards.size
