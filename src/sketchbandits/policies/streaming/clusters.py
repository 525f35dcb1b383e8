"""Clusters of a stream: a span each, and two confidence sets in its coordinates.

With an orthonormal basis Q of rank r, ``z = Q x`` and what is left over, ``eps_x = ||x - Q'z||``,

    own   z.theta_hat + (beta + S sqrt(sum_j eps_j^2)) ||z||_{V^-1} + S eps_x ,   V = ridge I_r + sum_j z_j z_j'
    view  z.Q theta_d + beta_d ||Q'z||_{V_d^-1} + S eps_x

*Own* is the ridge fit of the rewards whose contexts the span held; V is kept as a triangular factor, moved by Givens
rotations. The *view* is the space's fit (of index d) on the span, as of some earlier round: an old confidence set stays
valid, and this one costs no d^2 to ask. The *probe* of a span rules out most contexts by one product
(`sketchbandits.partition.probe`).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

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

# Columns of ``level``: ln det(V/ridge), sum of eps^2, ln(1/delta'), the ridge, beta + S sqrt(sum eps^2), the view's
# radius (+inf: there is none).
LOGDET, LEAK, SHARE, RIDGE, REACH, VIEW_RADIUS = range(6)
COUNT, MOST = range(2)  # entries of ``ticks``
OWN, VIEW = range(2)


class Clusters(NamedTuple):
    """Room for some clusters, one an index; cluster k has ``ranks[k]`` dimensions, those from COUNT on are free."""

    ranks: Annotated[Ints, "c"]
    bases: Annotated[Floats, "c l d"]
    probes: Annotated[Floats, "c d"]
    factor: Annotated[Floats, "c 2 l l"]  # triangular; OWN is R with R'R = V, VIEW is F with F'F = Q V_d^-1 Q'
    target: Annotated[Floats, "c l"]  # R theta_hat
    theta: Annotated[Floats, "c 2 l"]  # theta_hat and Q theta_d
    level: Annotated[Floats, "c 6"]
    ticks: Annotated[Ints, "2"]

    @staticmethod
    def of(dim: int, size: int, room: int, most: int) -> "Clusters":
        """No clusters yet, room for ``room`` of rank ``size``, which may become ``most``."""
        return Clusters(
            ranks=np.zeros(room, np.int64),
            bases=np.zeros((room, size, dim)),
            probes=np.zeros((room, dim)),
            factor=np.zeros((room, 2, size, size)),
            target=np.zeros((room, size)),
            theta=np.zeros((room, 2, size)),
            level=np.zeros((room, 6)),
            ticks=np.array([0, most]),
        )

    def grown(self) -> "Clusters":
        """The same with twice the room, or the most."""
        room, size, dim = self.bases.shape
        more = Clusters.of(dim, size, min(2 * room, int(self.ticks[MOST])), 0)
        for new, old in zip(more[:-1], self[:-1], strict=True):
            new[:room] = old
        return more._replace(ticks=self.ticks)


def cluster_bytes(dim: int, size: int) -> int:
    """What one cluster takes."""
    return 8 * (size * (dim + 2 * size + 3) + dim + 7)


@kernel
def reach(radius: Any, level: Floats) -> float:
    """``beta + S sqrt(sum eps^2)`` of one cluster's ``level``."""
    bias = np.sqrt(level[RIDGE]) * radius["theta_norm"]
    if radius["kind"] == MIXTURE:
        beta = mixture_radius(level[LOGDET], radius["noise"], bias, level[SHARE])
    else:
        beta = ellipsoid_radius(level[LOGDET], radius["noise"], bias, level[SHARE])
    return beta + radius["theta_norm"] * np.sqrt(level[LEAK])


@kernel
def open_cluster(clusters: Clusters, radius: Any, span: Floats, rank: int, ridge: float, omega: Floats) -> int:
    """Take in a span, the first rows of ``span``; returns the new cluster's index."""
    k = clusters.ticks[COUNT]
    clusters.ticks[COUNT] += 1
    clusters.ranks[k] = rank
    for a in range(rank):
        assign(clusters.bases[k, a], span[a])
        clusters.factor[k, OWN, a, a] = np.sqrt(ridge)
    make_probe(span, rank, omega, clusters.probes[k])
    level = clusters.level[k]
    level[RIDGE], level[SHARE], level[VIEW_RADIUS] = ridge, radius["log_share"] + np.log((k + 1.0) * (k + 2.0)), np.inf
    level[REACH] = reach(radius, level)
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
    for k in range(clusters.ticks[COUNT]):
        rank, level = clusters.ranks[k], clusters.level[k]
        left = residual_in_span(clusters.probes[k], clusters.bases[k], rank, x, norm, tolerance, rest, z)
        if left == np.inf:
            continue
        held = True
        if level[VIEW_RADIUS] < np.inf:
            width = level[VIEW_RADIUS] * product_norm(clusters.factor[k, VIEW], rank, z) + S * left
            out[VIEW] = min(out[VIEW], dot(z[:rank], clusters.theta[k, VIEW]) + width)
        mean = dot(z[:rank], clusters.theta[k, OWN])
        width = level[REACH] * inverse_norm(clusters.factor[k, OWN], rank, z) + S * left
        out[OWN] = min(out[OWN], mean + width)
    return held


@kernel
def book(clusters: Clusters, radius: Any, k: int, z: Floats, left: float, reward: float) -> None:
    """Book a reward into cluster ``k``; ``z`` is used up."""
    rank, level = clusters.ranks[k], clusters.level[k]
    factor, target = clusters.factor[k, OWN, :rank, :rank], clusters.target[k, :rank]
    level[LOGDET] += triangular_step(factor, target, z[:rank], reward)
    level[LEAK] += left * left
    solve_upper(factor, target, clusters.theta[k, OWN])
    level[REACH] = reach(radius, level)


@kernel
def book_in_all(
    clusters: Clusters, radius: Any, x: Floats, norm: float, tolerance: float, reward: float, first: int
) -> int:
    """Book a reward into every cluster from ``first`` on that holds its context; the first of them, or -1."""
    rest, z, home = np.empty(x.size), np.empty(clusters.bases.shape[1]), -1
    for k in range(first, clusters.ticks[COUNT]):
        left = residual_in_span(clusters.probes[k], clusters.bases[k], clusters.ranks[k], x, norm, tolerance, rest, z)
        if left < np.inf:
            book(clusters, radius, k, z, left, reward)
            home = k if home < 0 else home
    return home


@kernel
def look(clusters: Clusters, k: int, space_factor: Floats, space_theta: Floats, beta: float) -> None:
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
    clusters.level[k, VIEW_RADIUS] = beta
