"""A round of multi-scale CS-LB on contexts: bound and choose, then route the reward; see `streaming.policy`."""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import RADIUS, radius_value
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, assign, dot, scale, tie_threshold
from sketchbandits.kernels.triangular import rotate, solve_upper
from sketchbandits.policies.scatter import SEEN
from sketchbandits.policies.streaming.clusters import (
    OWN,
    VIEW,
    Clusters,
    inverse_norm,
    least_bounds,
    open_cluster,
    record_in_all,
    renew_view,
)
from sketchbandits.policies.streaming.pool import Pool, meet

ROW, VIEWING = 4.0, 1.0  # operations of a reward in the space and, for each dimension of a cluster, of its view, in d^2
PRIOR, CLUSTER, SPACE = range(3)
RULE = np.dtype(
    [
        ("near", np.float64),  # the share of its norm by which a context may be off a span that holds it
        ("ridge", np.float64),  # of clusters: a constant
        ("ridge_per_rank", np.float64),  # and a multiple of the rank
        ("budget", np.float64),  # operations per round
    ]
)
METER = np.dtype(
    [
        ("bank", np.float64),  # operations saved up
        ("logdet", np.float64),  # ln det(V/ridge) of the space
        ("rewards", np.float64),  # recorded in all
        ("in_space", np.float64),  # recorded in the space
        ("squares", np.float64),  # the sum of r_k^2 over clusters
        ("seen", SEEN),  # of the rewards in the space
    ]
)


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
    rule: Annotated[NDArray[Any], "1", RULE]
    meter: Annotated[NDArray[Any], "1", METER]


@kernel
def scale_bounds(state: ContextualMultiscaleState, contexts: Floats, out: Floats) -> None:
    """Rows PRIOR, CLUSTER and SPACE of ``out``: every context's bounds, +inf where a scale says nothing.

    The space itself is asked only where no cluster holds a context; where one does, its view is.
    """
    space, S, d = state.space, state.radius[0]["theta_norm"], contexts.shape[1]
    beta, rest, pair = radius_value(space.radius[0], 0.0, state.meter[0]["logdet"]), np.empty(d), np.empty(2)
    for a in range(contexts.shape[0]):
        x = contexts[a]
        norm = np.sqrt(dot(x, x))
        held = least_bounds(state.clusters, S, x, norm, state.rule[0]["near"], rest, pair)
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
    """Show the pool a context that no cluster holds; the cluster that opens, where there may be one more, or -1."""
    clusters, pool, d = state.clusters, state.pool, x.size
    most = min(clusters.bases.shape[1], d)
    if state.space.theta.size > 0:
        most = min(most, min(d - 1, int(np.sqrt(d * d - state.meter[0]["squares"]))))
    if most < 2 or clusters.size[0]["count"] == clusters.size[0]["most"]:
        return -1
    u, span = x.copy(), np.empty((most, d))
    scale(u, 1.0 / norm)
    rank = meet(pool.vectors, pool.basis, pool.mix, pool.control[0], u, state.rule[0]["near"], span)
    if rank == 0:
        return -1
    state.meter[0]["squares"] += rank * rank
    ridge = state.rule[0]["ridge"] + rank * state.rule[0]["ridge_per_rank"]
    return open_cluster(clusters, state.radius[0], span, rank, ridge, state.omega)


@kernel
def pay(state: ContextualMultiscaleState, home: int) -> bool:
    """Whether a reward goes into the space's fit: where no cluster is its context's home, or the budget pays for it."""
    meter, d = state.meter[0], state.space.theta.size
    if home < 0 or d == 0:
        return d > 0
    cost = (ROW + VIEWING * state.clusters.ranks[home]) * d * d
    meter["bank"] += state.rule[0]["budget"]
    if meter["bank"] < cost:
        return False
    meter["bank"] = min(meter["bank"] - cost, cost)  # no more is saved than what one of them costs
    return True


@kernel
def absorb(state: ContextualMultiscaleState, x: Floats, reward: float) -> None:
    """Record a reward wherever its context belongs."""
    clusters, space, meter = state.clusters, state.space, state.meter[0]
    meter["rewards"] += 1.0
    norm = np.sqrt(dot(x, x))
    if norm == 0.0:
        return  # it teaches nothing
    home = record_in_all(clusters, state.radius[0], x, norm, state.rule[0]["near"], reward, 0)
    paid = pay(state, home)
    if paid:
        growth, rest = rotate(space.factor, space.target, x.copy(), reward)
        meter["logdet"] += growth
        meter["seen"]["squares"] += rest * rest
        meter["seen"]["freedom"] += 1.0
        meter["in_space"] += 1.0
        solve_upper(space.factor, space.target, space.theta)
    if home < 0:
        home = seek(state, x, norm)
        if home >= 0:
            record_in_all(clusters, state.radius[0], x, norm, state.rule[0]["near"], reward, home)
    if paid and home >= 0:
        renew_view(clusters, home, space.factor, space.theta, radius_value(space.radius[0], 0.0, meter["logdet"]))


@kernel
def absorb_rows(state: ContextualMultiscaleState, rows: Floats, rewards: Floats, first: int) -> int:
    """Record rewards in order, each with its row, while capacity lasts; the number of the first one left."""
    clusters, pool = state.clusters, state.pool
    for t in range(first, rewards.size):
        if clusters.size[0]["count"] == clusters.ranks.size and clusters.size[0]["count"] < clusters.size[0]["most"]:
            return t
        if pool.control[0]["size"] == pool.vectors.shape[0] and pool.control[0]["size"] < pool.control[0]["most"]:
            return t
        absorb(state, rows[t], rewards[t])
    return rewards.size
