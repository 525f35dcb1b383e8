"""Clusters of a stream: a span each, and two confidence sets in its coordinates.

With an orthonormal basis Q of rank r, ``z = Q x`` and what is left over, ``eps_x = ||x - Q'z||``,

    own   z.theta_hat + (beta + S sqrt(sum_j eps_j^2)) ||z||_{V^-1} + S eps_x ,   V = ridge I_r + sum_j z_j z_j'
    view  z.Q theta_d + beta_d ||Q'z||_{V_d^-1} + S eps_x

*Own* is the ridge fit of the rewards whose contexts the span held; V is kept as a triangular factor, moved by Givens
rotations. The *view* is the space's fit (of index d) on the span, as of some earlier round: an old confidence set stays
valid, and this one costs no d^2 to evaluate. The *probe* of a span rules out most contexts by one product
(`sketchbandits.partition.probe`).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import MIXTURE, ellipsoid_radius, mixture_radius
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import (
    Floats,
    Ints,
    assign,
    dot,
    remove_projection,
    scale,
)
from sketchbandits.kernels.triangular import solve_upper, triangular_step
from sketchbandits.partition.probe import make_probe, residual_in_span

LEVEL = np.dtype(
    [
        ("logdet", np.float64),  # ln det(V/ridge)
        ("leak", np.float64),  # the sum of eps^2
        ("share", np.float64),  # ln(1/delta')
        ("ridge", np.float64),
        ("reach", np.float64),  # beta + S sqrt(sum of eps^2)
        ("view_radius", np.float64),  # +inf: there is no view
    ]
)
SIZE = np.dtype([("count", np.int64), ("most", np.int64)])  # clusters opened, and how many there may be
OWN, VIEW = range(2)


class Clusters(NamedTuple):
    """Some clusters, preallocated; cluster k has ``ranks[k]`` dimensions, those from ``count`` on are free."""

    ranks: Annotated[Ints, "c"]
    bases: Annotated[Floats, "c l d"]
    probes: Annotated[Floats, "c d"]
    factor: Annotated[Floats, "c 2 l l"]  # triangular; OWN is R with R'R = V, VIEW is F with F'F = Q V_d^-1 Q'
    target: Annotated[Floats, "c l"]  # R theta_hat
    theta: Annotated[Floats, "c 2 l"]  # theta_hat and Q theta_d
    level: Annotated[NDArray[Any], "c", LEVEL]
    size: Annotated[NDArray[Any], "1", SIZE]

    @staticmethod
    def of(dim: int, size: int, capacity: int, most: int) -> "Clusters":
        """No clusters yet; ``capacity`` of rank ``size`` are preallocated, which may become ``most``."""
        return Clusters(
            ranks=np.zeros(capacity, np.int64),
            bases=np.zeros((capacity, size, dim)),
            probes=np.zeros((capacity, dim)),
            factor=np.zeros((capacity, 2, size, size)),
            target=np.zeros((capacity, size)),
            theta=np.zeros((capacity, 2, size)),
            level=np.zeros(capacity, LEVEL),
            size=np.array([(0, most)], SIZE),
        )

    def grown(self) -> "Clusters":
        """The same with twice the capacity, or the most."""
        capacity, size, dim = self.bases.shape
        more = Clusters.of(dim, size, min(2 * capacity, int(self.size["most"][0])), 0)
        for new, old in zip(more[:-1], self[:-1], strict=True):
            new[:capacity] = old
        return more._replace(size=self.size)


def cluster_bytes(dim: int, size: int) -> int:
    """What one cluster takes."""
    return 8 * (size * (dim + 2 * size + 3) + dim + 7)


@kernel
def reach(radius: Any, level: Any) -> float:
    """``beta + S sqrt(sum eps^2)`` of one cluster's ``level``."""
    bias = np.sqrt(level["ridge"]) * radius["theta_norm"]
    if radius["kind"] == MIXTURE:
        beta = mixture_radius(level["logdet"], radius["noise"], bias, level["share"])
    else:
        beta = ellipsoid_radius(level["logdet"], radius["noise"], bias, level["share"])
    return beta + radius["theta_norm"] * np.sqrt(level["leak"])


@kernel
def open_cluster(clusters: Clusters, radius: Any, span: Floats, rank: int, ridge: float, omega: Floats) -> int:
    """Take in a span, the first rows of ``span``; returns the new cluster's index."""
    k = clusters.size[0]["count"]
    clusters.size[0]["count"] += 1
    clusters.ranks[k] = rank
    for a in range(rank):
        assign(clusters.bases[k, a], span[a])
        clusters.factor[k, OWN, a, a] = np.sqrt(ridge)
    make_probe(span, rank, omega, clusters.probes[k])
    level = clusters.level[k]
    level["ridge"], level["share"], level["view_radius"] = (
        ridge,
        radius["log_share"] + np.log((k + 1.0) * (k + 2.0)),
        np.inf,
    )
    level["reach"] = reach(radius, level)
    return k


@kernel
def inverse_norm(factor: Floats, rank: int, z: Floats) -> float:
    """``||z||`` under ``(R'R)^-1``, by solving ``R's = z``; ``z`` is used up."""
    total = 0.0
    for k in range(rank):
        s = z[k] / factor[k, k]
        total += s * s
        for i in range(k + 1, rank):
            z[i] -= s * factor[k, i]
    return np.sqrt(total)


@kernel
def product_norm(factor: Floats, rank: int, z: Floats) -> float:
    """``||F z||`` for a triangular F."""
    total = 0.0
    for k in range(rank):
        s = 0.0
        for i in range(k, rank):
            s += factor[k, i] * z[i]
        total += s * s
    return np.sqrt(total)


@kernel
def least_bounds(
    clusters: Clusters, S: float, x: Floats, norm: float, tolerance: float, rest: Floats, out: Floats
) -> bool:
    """Whether any cluster holds a context; ``out``: the least of its bounds in those that do, OWN and VIEW, or +inf."""
    z, held = np.empty(clusters.bases.shape[1]), False
    out[OWN] = out[VIEW] = np.inf
    for k in range(clusters.size[0]["count"]):
        rank, level = clusters.ranks[k], clusters.level[k]
        left = residual_in_span(clusters.probes[k], clusters.bases[k], rank, x, norm, tolerance, rest, z)
        if left == np.inf:
            continue
        held = True
        if level["view_radius"] < np.inf:
            width = level["view_radius"] * product_norm(clusters.factor[k, VIEW], rank, z) + S * left
            out[VIEW] = min(out[VIEW], dot(z[:rank], clusters.theta[k, VIEW]) + width)
        mean = dot(z[:rank], clusters.theta[k, OWN])
        width = level["reach"] * inverse_norm(clusters.factor[k, OWN], rank, z) + S * left
        out[OWN] = min(out[OWN], mean + width)
    return held


@kernel
def record(clusters: Clusters, radius: Any, k: int, z: Floats, left: float, reward: float) -> None:
    """Record a reward in cluster ``k``; ``z`` is used up."""
    rank, level = clusters.ranks[k], clusters.level[k]
    factor, target = clusters.factor[k, OWN, :rank, :rank], clusters.target[k, :rank]
    level["logdet"] += triangular_step(factor, target, z[:rank], reward)
    level["leak"] += left * left
    solve_upper(factor, target, clusters.theta[k, OWN])
    level["reach"] = reach(radius, level)


@kernel
def record_in_all(
    clusters: Clusters, radius: Any, x: Floats, norm: float, tolerance: float, reward: float, first: int
) -> int:
    """Record a reward in every cluster from ``first`` on that holds its context; the first of them, or -1."""
    rest, z, home = np.empty(x.size), np.empty(clusters.bases.shape[1]), -1
    for k in range(first, clusters.size[0]["count"]):
        left = residual_in_span(clusters.probes[k], clusters.bases[k], clusters.ranks[k], x, norm, tolerance, rest, z)
        if left < np.inf:
            record(clusters, radius, k, z, left, reward)
            home = k if home < 0 else home
    return home


@kernel
def renew_view(clusters: Clusters, k: int, space_factor: Floats, space_theta: Floats, beta: float) -> None:
    """Renew a cluster's view of the space: ``F'F = Q V_d^-1 Q'`` by orthonormalising ``R_d'^-1 q_a``. O(r d^2)."""
    rank, d, F = clusters.ranks[k], space_theta.size, clusters.factor[k, VIEW]
    rows, coordinates = np.empty((rank, d)), np.empty(rank)
    for a in range(rank):
        y = rows[a]
        assign(y, clusters.bases[k, a])
        clusters.theta[k, VIEW, a] = dot(y, space_theta)
        for i in range(d):
            y[i] /= space_factor[i, i]
            for j in range(i + 1, d):
                y[j] -= y[i] * space_factor[i, j]
        left = remove_projection(rows[:a], a, y, coordinates)
        scale(y, 1.0 / left if left > 0.0 else 0.0)
        assign(F[:a, a], coordinates[:a])
        F[a, a] = left
    clusters.level[k]["view_radius"] = beta
