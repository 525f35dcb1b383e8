"""Multi-scale CS-LB for contexts that arrive each round: clusters are found in the stream, in bounded memory.

    prior    S ||x||
    cluster  the ridge fit of every cluster whose span holds x              (rank <= l; `streaming.clusters`)
    space    the ridge fit in all d dimensions                              (OFUL's)

    U(x) = min of them ,   x_t = argmax U ,  ties at S ||x|| to the context with the largest bound without the cap

**Routing** depends on features only, and only `update` routes. A reward is recorded in every cluster whose span holds
its context. A context that none holds goes to the pool (`streaming.pool`), which opens a cluster as soon as the context
and a few earlier ones are dependent. The space has all rewards of contexts that no cluster held, and bounds such
contexts at O(d^2) each. A cluster has a *view* of it: the space's confidence set on its span, as of its opening,
renewed together with one more reward for the space whenever the ``budget`` allows the operations for it. So the space
is a fallback: where the stream has no low-dimensional spans, or memory is used up, the policy is OFUL, at OFUL's cost;
where it has, d^2 is rare. There is no direction's scale: contexts seldom repeat.

**Shares of delta** 0.9/(k (k + 1)) for cluster k = 1, 2, ..., and 0.1 for the space. Whether a reward is recorded in a
fit is known before it is seen, so each fit is a confidence set by itself (radii and ridges as in `multiscale`).

**Memory** ``memory`` bytes for the state, grown as needed. The space (d^2 numbers) is kept where it fits in half of it,
the pool has up to half of the rest, clusters of l (d + 2 l) numbers what remains. With a space there are at most d of
them, with ``sum r_k^2 <= d^2``: beyond, finding a context's clusters costs more than its bound in the space, and OFUL's
regret bound is the smaller one.

**Guarantee** With probability ``1 - delta``, ``x.theta* <= U(x)`` for all contexts and rounds. Then, with ridges of at
least L^2, the n_k rounds whose played context cluster k held have regret at most ``2 beta_k sqrt(2 r_k n_k ln(1 + n_k
L^2/(ridge r_k)))``, and the n rounds where none did the same with d and the space's beta. If all is found after n of T
rounds in K subspaces of dimension r: of order ``r sqrt(K T) + d sqrt(n)``, against OFUL's ``d sqrt(T)``. When memory is
used up, contexts of further subspaces have the space's bound; if that was not kept either, their bound stays S ||x||
and nothing sublinear is claimed for them. A ``tolerance`` eps adds a term of order ``S L eps T``.

**Cost** A context: O(K d + r d) in a cluster, O(K d + d^2) in none. A reward: the same, and ``budget`` operations.
**Reference** Bounds as in `multiscale`, the search for spans as in `streaming.pool`.
**Departures** from CS-LB's first-fit, which puts successive contexts of different subspaces into one cluster, whose
span holds none that come later: here a cluster opens only where a span was found. The rewards of the contexts by
which it was found are missing in the cluster's own fit, not in its view.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.confidence import ellipsoid_radius
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.assumptions import Evidence, LeastSquares
from sketchbandits.policies.contextual import ContextualPolicy
from sketchbandits.policies.cslb.changing_clusters import warn_of_tolerance
from sketchbandits.policies.format_1 import convert_radius
from sketchbandits.policies.format_2 import begin_to_watch_in
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.parameters import Shared, check_radius, check_shared, radius_record
from sketchbandits.policies.streaming.clusters import Clusters, cluster_bytes
from sketchbandits.policies.streaming.estimates import estimates
from sketchbandits.policies.streaming.format_1 import convert_records
from sketchbandits.policies.streaming.pool import Pool, pool_bytes
from sketchbandits.policies.streaming.rounds import (
    METER,
    RULE,
    ContextualMultiscaleState,
    Space,
    absorb_rows,
    choose,
    scale_bounds,
)
from sketchbandits.snapshot import Saved, within

SKETCH_SIZE = 16  # where none is given
CLUSTER_SHARE = 0.9  # of delta; the rest is the space's, which has the largest ln det and so the least use for it
TOLERANCE = 1e-8  # of its norm: a context so near to a span is in it
FIRST_CAPACITY = 4, 32  # clusters and pooled vectors that are preallocated at first


class Division(NamedTuple):
    """How memory is divided: whether the space is kept, the most vectors of the pool, the most clusters."""

    space: bool
    pool: int
    clusters: int


def division(dim: int, size: int, memory: int) -> Division:
    """The space's part where it fits in half, up to half of the rest for the pool; too little is refused."""
    fixed = 8 * (dim + 64)
    space = 8 * dim * (dim + 2)
    least = fixed + pool_bytes(dim, size) + cluster_bytes(dim, size)
    if memory < least:
        raise ValueError(
            f"memory must be at least {least} bytes for dim={dim} and sketch_size={size} (one cluster; from "
            f"{max(2 * space, least + space)} on the space's scale is kept too), got {memory}"
        )
    kept = 2 * space <= memory and least + space <= memory
    rest = memory - fixed - (space if kept else 0)
    for_pool = min(rest // 2, rest - cluster_bytes(dim, size))
    rows = math.isqrt(dim * dim + max(for_pool // 8 - 4, 0)) - dim  # the most with 8 P (2 d + P) + 32 <= for_pool
    pool = max(min(rows, dim), size)
    clusters = (rest - pool_bytes(dim, pool)) // cluster_bytes(dim, size)
    return Division(kept, pool, min(clusters, dim) if kept else clusters)


class ContextualMultiscale(ContextualPolicy):
    """Multi-scale CS-LB for contexts that arrive each round: built by `MultiscaleCSLB.contextual`.

    ``dim``: the length of a context. ``sketch_size``: the largest rank of a cluster found in the stream (default 16).
    ``memory``: the most bytes that the state may take (default 64 MiB). ``budget``: the operations that a round may
    spend on the fit of the whole space for contexts that a cluster holds (default 16,384). The other parameters are
    those of `MultiscaleCSLB`.
    """

    state: ContextualMultiscaleState

    def __init__(
        self,
        *,
        dim: int,
        sketch_size: int = SKETCH_SIZE,
        memory: int = 2**26,
        tolerance: float = 0.0,
        ridge: float | None = None,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        arm_norm: float | None = None,
        delta: float = 0.01,
        radius: str = "mixture",
        budget: int = 2**14,
        horizon: int | None = None,
        seed: Any = None,
    ) -> None:
        super().__init__(dim)
        shared = check_shared(1.0 if ridge is None else ridge, noise, theta_norm, arm_norm, delta, None)
        if callable(radius):
            raise ValueError(f"radius must be one of 'mixture', 'logdet', got {radius!r}")
        self.settings = {
            "name": "MultiscaleCSLB",
            "dim": self.dim,
            "sketch_size": validate.whole("sketch_size", sketch_size, least=2),
            "memory": validate.whole("memory", memory),
            "tolerance": validate.number("tolerance", tolerance, least=0.0),
            **shared._asdict(),
            "ridge": None if ridge is None else shared.ridge,
            "radius": str(check_radius(radius, ("mixture", "logdet"))),
            "budget": validate.whole("budget", budget, least=0),
            "horizon": None if horizon is None else validate.whole("horizon", horizon),
        }
        if self.settings["tolerance"] >= 1.0:
            raise ValueError(f"tolerance must be a number >= 0 and < 1, got {tolerance!r}")
        validate.generator(seed)
        warn_of_tolerance(self.settings["tolerance"], shared, self.settings["horizon"])
        self.state = self._first_state(shared)

    def _first_state(self, shared: Shared) -> ContextualMultiscaleState:
        d, ridge = self.dim, self.settings["ridge"]
        size = min(self.settings["sketch_size"], d)
        plan = division(d, size, self.settings["memory"])
        # Without noise any ridge is valid, and a small one forgets the prior soon.
        per_rank = max(shared.noise / shared.theta_norm, 1e-3 * shared.arm_norm) ** 2 if ridge is None else 0.0
        near = max(self.settings["tolerance"], TOLERANCE)
        rule = np.array([(near, ridge or 0.0, per_rank, self.settings["budget"])], RULE)
        omega = np.random.default_rng(20_061_012).standard_normal(d)  # decides nothing: hits are measured exactly
        return ContextualMultiscaleState(
            clusters=Clusters.of(d, size, min(FIRST_CAPACITY[0], plan.clusters), plan.clusters),
            pool=Pool.of(d, min(FIRST_CAPACITY[1], plan.pool), plan.pool),
            space=self._space(d if plan.space else 0, shared, rule),
            radius=self._radius(shared, 1.0, CLUSTER_SHARE),
            omega=omega / np.linalg.norm(omega),
            rule=rule,
            meter=np.zeros(1, METER),
        )

    def _space(self, d: int, shared: Shared, rule: NDArray[Any]) -> Space:
        ridge = float(rule["ridge"][0] + max(d, 1) * rule["ridge_per_rank"][0])
        radius = self._radius(shared, ridge, 1.0 - CLUSTER_SHARE)
        return Space(np.eye(d) * math.sqrt(radius["ridge"][0]), np.zeros(d), np.zeros(d), radius)

    def _radius(self, shared: Shared, ridge: float, share: float) -> NDArray[Any]:
        log_share = -math.log(share * shared.delta)
        return radius_record(self.settings["radius"], shared._replace(ridge=ridge), dim=0, log_share=log_share)

    @exclusive
    def select(self, contexts: ArrayLike) -> int:
        """The row of ``contexts`` with the largest bound; of those at S ||x|| the least known. No side effect."""
        return int(choose(self.state, self._checked(contexts)))

    @exclusive
    def scales(self, contexts: ArrayLike) -> dict[str, Floats]:
        """Every row's bound on each scale, prior, cluster and space; +inf where one says nothing."""
        rows = self._checked(contexts)
        values = np.empty((3, len(rows)))
        scale_bounds(self.state, rows, values)
        return dict(zip(("prior", "cluster", "space"), values, strict=True))

    @property
    def n_clusters(self) -> int:
        """How many clusters were opened."""
        return int(self.state.clusters.size["count"][0])

    @property
    def ranks(self) -> NDArray[np.int64]:
        """Every cluster's number of dimensions, in the order of their opening."""
        return self.state.clusters.ranks[: self.n_clusters].copy()

    def _bounds(self, contexts: Floats) -> Floats:
        return np.min(list(self.scales(contexts).values()), axis=0)

    def _estimates(self, contexts: Floats) -> Floats:
        narrowest = estimates(self.state, contexts, self.settings["theta_norm"])
        return np.minimum(narrowest, self._bounds(contexts))

    def _absorb(self, rows: Floats, rewards: Floats) -> None:
        recorded = 0
        while (recorded := absorb_rows(self.state, rows, rewards, recorded)) < rewards.size:
            self._grow()

    def _grow(self) -> None:
        clusters, pool = self.state.clusters, self.state.pool
        size = clusters.size[0]
        if size["count"] == clusters.ranks.size < size["most"]:
            self.state = self.state._replace(clusters=clusters.grown())
        else:
            self.state = self.state._replace(pool=pool.grown())

    def _samples(self) -> tuple[float, float]:
        return self.state.meter["rewards"][0], self.state.meter["logdet"][0]

    @property
    def _seen(self) -> NDArray[Any]:
        seen: NDArray[Any] = self.state.meter["seen"]
        return seen

    def _evidence(self) -> Evidence:
        """All rewards are shown; those in the space say how much noise there is."""
        fit, meter = self._least_squares(), self.state.meter[0]
        if fit is None:
            return Evidence(int(meter["rewards"]), 0.0, 0, 0.0, 0.0)
        found = fit.evidence(int(meter["in_space"]), self.settings["theta_norm"])
        return found._replace(rewards=int(meter["rewards"]))

    def _least_squares(self) -> LeastSquares | None:
        """The fit of the space, with the rewards that are recorded in it; without one nothing is known."""
        space = self.state.space
        if not space.theta.size:
            return None
        V, target2 = space.factor.T @ space.factor, float(space.target @ space.target)
        return LeastSquares(V, space.theta, target2, float(space.radius["ridge"][0]), self._seen[0])

    def _beta(self, log_share: float, noise: float, theta_norm: float) -> float:
        bias = math.sqrt(self.state.space.radius["ridge"][0]) * theta_norm
        return ellipsoid_radius(self.state.meter["logdet"][0], noise, bias, log_share)

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "l": min(self.settings["sketch_size"], self.dim)}

    def _check_indices(self, saved: Saved) -> None:
        clusters, pool = self.state.clusters, self.state.pool
        within(saved, "state.space.theta, its size", self.state.space.theta.size % self.dim, 0, 0)
        within(saved, "state.space.theta, its size", self.state.space.theta.size, 0, self.dim)
        within(saved, "state.clusters.size[count]", clusters.size["count"], 0, clusters.ranks.size)
        within(saved, "state.clusters.size[most]", clusters.size["most"], clusters.ranks.size, 2**62)
        within(saved, "state.clusters.ranks", clusters.ranks, 0, clusters.bases.shape[1])
        within(saved, "state.pool.control[size]", pool.control["size"], 0, len(pool.vectors))

    @classmethod
    def _converted(cls, saved: Saved) -> Saved:
        if saved.format == 1:
            convert_radius(saved, "state.space.radius")
            convert_records(saved)
        return super()._converted(saved)

    @classmethod
    def _begin_to_watch(cls, saved: Saved) -> None:
        known = int(saved.settings["dim"]) if saved.arrays["state.meter"]["in_space"][0] else 0
        begin_to_watch_in(saved, "state.meter", METER, known)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return ContextualMultiscaleState
