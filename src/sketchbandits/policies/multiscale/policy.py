"""Multi-scale CS-LB: every arm's bound is the tightest of four that hold together. The recommended policy.

    prior      S ||x||
    direction  a scalar ridge fit of the arms on one ray                    (l = 1: UCB1's view)
    cluster    the ridge fit of a cluster of rank <= l                      (CS-LB's)
    space      the ridge fit of all arms, as of some earlier round          (OFUL's)

    U(x) = min of them ,   x_t = argmax U ,  ties at S ||x|| to the arm with the largest bound without the cap

Each fit has ``beta^2 = R^2 (ln det(V/ridge) + 2 ln(1/delta')) + ridge S^2`` (`confidence.mixture_radius`). Rays spend
0.9 of ``delta``, clusters 0.09 and the space 0.01: the smaller a scale's ``ln det``, the more its share is worth. Rays
and clusters divide theirs equally among those known at first, with one more share for all that come later
(`policies.cslb.changing_clusters`).
``ridge=None`` gives each scale its rank times ``R^2/S^2``, which makes its radius smallest once there are data.

**Guarantee** With probability ``1 - delta`` every scale's set covers theta* at every round. Then ``x.theta* <= U(x)``
for every arm, and the regret after T rounds is at most ``sum_t min_s 2 beta_s ||x_t||_{V_s^-1}`` over the scales s:
``2 beta_T sqrt(2 r K T ln(1 + T L^2/(ridge r)))`` with (K, r) = (rays, 1) or (clusters, l), for ``ridge >= L^2``.
Proof: docs/math/multiscale.md. An old space bound stays valid; it is only not the least any more.

**Cost** O(r^2 + |C| r) per round for a cluster of rank r, O(log K) to choose, plus ``budget`` operations on average for
the space: a row into its fit is 3 D^2, an arm's bound D^2 (D the rank of all arms, at most d). A new fit begins only
when the determinants of clusters have grown by 1/16 in all since the last, so that in the long run the space costs
next to nothing; the budget bounds the beginning. Memory O(N (d + l) + D^2).

**Reference** Intersecting confidence sets is folklore; clusters and sentinels are from Yang, Xie and Lian (CS-LB); the
radius is the analytic martingale mixture of Flynn, Reeb, Kandemir and Peters (NeurIPS 2023).
**Departures** from CS-LB: the further scales, the radius, the prior's cap, ties by what is known least.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.contextual_form import ContextualForm
from sketchbandits.policies.cslb.changing_clusters import (
    ChangingClusters,
    check_partition,
    later_share,
    warn_of_tolerance,
)
from sketchbandits.policies.cslb.coordinates import Setting, build
from sketchbandits.policies.cslb.format_1 import convert_clusters
from sketchbandits.policies.cslb.format_2 import watch_clusters
from sketchbandits.policies.cslb.freeing import Plan
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CAP,
    CLUSTER,
    EVERY,
    NEGLIGIBLE,
    OFF_SPAN,
    SLOT,
    Records,
)
from sketchbandits.policies.cslb.saved import check_fits, check_numbers
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.multiscale.format_1 import convert_scales
from sketchbandits.policies.multiscale.freeing import waiting_parts, with_scales
from sketchbandits.policies.multiscale.rounds import STATE
from sketchbandits.policies.multiscale.state import (
    DIRECTION,
    LENGTH,
    N_ROWS,
    OUTSIDE,
    RAY,
    RAY_RECORD,
    SPACE,
    SPACE_FIELDS,
    SPACE_RECORD,
    SPACE_WIDTH,
    WAITING_RECORD,
    number_rays,
    ray_in_cluster,
    space_features,
)
from sketchbandits.policies.parameters import Shared, check_radius, check_shared, radius_record
from sketchbandits.policies.pending.multiscale import (
    RAY_MEAN,
    RAY_WIDTH,
    SPACE_MEAN,
    WIDTH_IN_SPACE,
    direction_and_space,
    multiscale_bounds,
)
from sketchbandits.policies.pending.rule import PendingBounds
from sketchbandits.policies.remainder import Remainder
from sketchbandits.policies.rounds import MEAN, WIDTH2
from sketchbandits.policies.streaming.policy import SKETCH_SIZE as SKETCH_SIZE
from sketchbandits.policies.streaming.policy import ContextualMultiscale
from sketchbandits.snapshot import Saved, within

SHARES = {"direction": 0.9, "cluster": 0.09, "space": 0.01}
MOST_DIMENSIONS = 1024  # of the space's fit, which takes their square in memory and time
SAVED_ROUNDS = 16  # budgets that may be saved up, so that no round is much longer than the others


def partition_share(j: int) -> float:
    """The j-th partition's part of delta: nine tenths for the first, ``1/(10 j (j - 1))`` for later ones, in all 1."""
    return 0.9 if j == 1 else 0.1 / (j * (j - 1.0))


class MultiscaleCSLB(ContextualForm, ChangingClusters):
    """Multi-scale CS-LB: every arm's bound is the tightest of four that hold together with probability ``1 - delta``.

    The policy to try first on fixed arms with features. Each arm is bounded by its prior, by the arms on its line, by
    its cluster and by all arms together (docs/multiscale.md compares it with others). Arms may be added, removed and
    freed; `contextual` is the form for contexts that arrive each round. Prefer `OFUL` in few dimensions where
    its simplicity counts, `UCB1` where there are no features.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    sketch_size
        l, the largest rank of a cluster (default 16). Small clusters are cheap and learn from fewer arms.
    partition
        A `Partition` of these arms made beforehand, in place of ``sketch_size``.
    ridge
        The regulariser of every fit, > 0 (default None: each scale's rank times ``R^2/S^2``).
    noise
        R, the scale of the reward noise, in units of the reward (default 1): the noise must be R-sub-Gaussian. 0.5
        is valid for every reward in [0, 1]. Too small and the bounds fail, too large and exploration is slow.
    theta_norm
        S, an upper bound on the norm of the unknown parameter, in units of the reward per unit of arm norm (default
        1).
    arm_norm
        L, an upper bound on the norms of the arms (default: the largest norm given).
    delta
        The probability with which the bounds may fail at any time, in (0, 1) (default 0.01).
    radius
        ``"mixture"`` (default), or ``"logdet"``, the classical one, for comparison.
    budget
        Operations that a round may spend on average on the fit of the whole space (default 2,048; 0: none).
    tolerance, horizon
        As in `CSLB`.
    seed
        Accepted so that all policies can be built alike; nothing is random.

    """

    contextual = ContextualMultiscale
    contextual_class = ContextualMultiscale

    def __init__(
        self,
        arms: ArrayLike,
        *,
        sketch_size: int | None = None,
        partition: Partition | None = None,
        ridge: float | None = None,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        arm_norm: float | None = None,
        delta: float = 0.01,
        radius: str = "mixture",
        budget: int = 2048,
        tolerance: float = 0.0,
        horizon: int | None = None,
        seed: Any = None,
    ) -> None:
        super().__init__(arms)
        given = SKETCH_SIZE if sketch_size is None and partition is None else sketch_size
        size, tolerance = check_partition(self.arms, given, partition, tolerance)
        shared = check_shared(1.0 if ridge is None else ridge, noise, theta_norm, arm_norm, delta, self.arms)
        if callable(radius):
            raise ValueError(f"radius must be one of 'mixture', 'logdet', got {radius!r}")
        radius = str(check_radius(radius, ("mixture", "logdet")))
        budget = validate.whole("budget", budget, least=0)
        horizon = None if horizon is None else validate.whole("horizon", horizon)
        warn_of_tolerance(tolerance, shared, horizon)
        validate.generator(seed)
        self.settings = {
            "sketch_size": size,
            **shared._asdict(),
            "ridge": None if ridge is None else shared.ridge,
            "radius": radius,
            "budget": budget,
            "tolerance": tolerance,
            "horizon": horizon,
        }
        with self._warm_up():
            self._partition = partition or Partition.first_fit(arms, sketch_size=size, tolerance=tolerance or None)
            self._build_state()

    def _build_state(self, partitions: int = 1) -> None:
        """The state before the first reward, on the ``partitions``-th partition; the space's part goes on, if any."""
        old = self.state if partitions > 1 else None
        space = self._space_arrays() if old is None else {name: getattr(old, name) for name in SPACE_FIELDS}
        radius = self._radius(min(self.settings["sketch_size"], self.dim), 0.0)
        setting = Setting(
            shared=self._shared(float(radius["ridge"][0])),
            radius=radius,
            capped=True,
            log_share=self._share(self.partition.n_clusters, partitions),
            scan="full",
            rows=N_ROWS,
        )
        clusters = build(self.arms, self.partition, setting)
        clusters.stats[SPACE] = np.inf
        if old is not None:
            rows, slots = [[SPACE], [SPACE_WIDTH]], old.place[SLOT, : self.n_arms]
            clusters.stats[rows, clusters.place[SLOT]] = old.stats[rows, slots]
        n_rays = self._number_rays(clusters)
        rays = np.zeros(max(n_rays, 1), RAY_RECORD)
        rays["share"] = self._share(n_rays, partitions, "direction")
        space["space"]["n_rays"] = space["space"]["first_rays"] = n_rays
        self.state = STATE(*clusters, rays=rays, **space)
        self.state.control["first_clusters"], self.state.control["changed"] = self.partition.n_clusters, EVERY

    def _space_arrays(self) -> dict[str, NDArray[Any]]:
        features = np.zeros((self.n_arms, 0))
        if self.settings["budget"] > 0:
            features = space_features(self.arms, MOST_DIMENSIONS)
        n, d = features.shape
        log_share, budget = -math.log(SHARES["space"] * self.settings["delta"]), float(self.settings["budget"])
        space = np.zeros(1, SPACE_RECORD)
        space["budget"], space["most"] = budget, SAVED_ROUNDS * budget + 8.0 * d * d
        space["direction"], space["radius"] = self._radius(1, 0.0), self._radius(max(d, 1), log_share)
        factor = np.zeros((2, d + 2, d))
        factor[:, :d] = np.eye(d) * math.sqrt(space["radius"]["ridge"][0])
        waiting = np.zeros(n, WAITING_RECORD)
        waiting["stamp"] = OUTSIDE if d == 0 else 0
        return {"space": space, "waiting": waiting, "features": features, "factor": factor}

    def _shared(self, ridge: float) -> Shared:
        given = {name: self.settings[name] for name in Shared._fields}
        return Shared(**{**given, "ridge": ridge})

    def _radius(self, rank: int, log_share: float) -> Records:
        """A scale's radius: with the ridge that was given, or the one that suits its rank."""
        ridge = self.settings["ridge"]
        if ridge is None:
            # Without noise any ridge is valid, and a small one forgets the prior soon.
            least = 1e-3 * self.settings["arm_norm"]
            most = math.sqrt(validate.LARGEST)  # as for a ridge that is given
            ridge = rank * min(max(self.settings["noise"] / self.settings["theta_norm"], least), most) ** 2
        return radius_record(self.settings["radius"], self._shared(ridge), dim=0, log_share=log_share)

    def _share(self, count: int, partitions: int, scale: str = "cluster") -> float:
        """``ln(1/delta')`` of one of ``count`` rays or clusters known at first."""
        part = SHARES[scale] * partition_share(partitions) * self.settings["delta"]
        return math.log((count + 1) / part)

    def _number_rays(self, clusters: Any) -> int:
        part, rows = self.partition, []
        ends = np.cumsum(part.ranks)
        for c, own in enumerate(clusters.clusters):
            arms = self.arms[clusters.place[ARM_AT, own["start"] : own["start"] + own["size"]]]
            # Within a coarse tolerance of a span, arms that are not parallel may have parallel coordinates.
            basis = part.bases[ends[c] - part.ranks[c] : ends[c]]
            rows.append(arms if part.tolerance > NEGLIGIBLE else arms @ basis.T)
        return number_rays(clusters.clusters, clusters.stats, rows, min(part.tolerance, NEGLIGIBLE))

    @exclusive
    def scales(self) -> dict[str, Floats]:
        """Every arm's bound on each scale: prior, direction, cluster, and space, which is +inf until first computed."""
        state, slots = self.state, self.state.place[SLOT, : self.n_arms]
        stats = state.stats[:, slots]
        beta = state.clusters["beta"][state.place[CLUSTER, : self.n_arms]]
        off = self.settings["theta_norm"] * stats[OFF_SPAN]
        return {
            "prior": stats[CAP],
            "direction": stats[DIRECTION],
            "cluster": stats[MEAN] + beta * np.sqrt(stats[WIDTH2]) + off,
            "space": stats[SPACE],
        }

    def bounds(self) -> Floats:
        """The least of every arm's `scales`."""
        return np.min(list(self.scales().values()), axis=0)

    @exclusive
    def estimates(self) -> Floats:
        """The estimate of the direction, cluster or space with the narrowest interval, at most the bound."""
        slots, scales = self.state.place[SLOT, : self.n_arms], self.scales()
        other, cluster = direction_and_space(self.state)[:, slots], self.state.stats[MEAN, slots]
        means = np.stack([other[RAY_MEAN], cluster, other[SPACE_MEAN]])
        widths = np.stack([other[RAY_WIDTH], scales["cluster"] - cluster, other[WIDTH_IN_SPACE]])
        widths[2, np.isinf(scales["space"])] = np.inf
        narrowest = np.take_along_axis(means, widths.argmin(axis=0)[None], axis=0)[0]
        return np.minimum(narrowest, np.min(list(scales.values()), axis=0))

    def _pending_bounds(self) -> PendingBounds:
        return multiscale_bounds(self.state)

    @property
    @exclusive
    def counts(self) -> NDArray[np.int64]:
        """How many rewards were recorded for each arm."""
        return np.array(self.state.counts[self.state.place[SLOT, : self.n_arms]])

    @property
    def _scan(self) -> str:
        return "full"

    def _admit(self, arm: int, slot: int, cluster: int, x: Floats) -> None:
        """The new arm's ray, found among its cluster's or new, and its place in the space."""
        self._grow_per_arm()
        g, length = self._ray_of(arm, cluster, x)
        state = self.state  # not before: a new ray may have moved it
        state.stats[RAY, slot], state.stats[LENGTH, slot], state.stats[SPACE, slot] = g, length, np.inf
        state.waiting[arm], state.features[arm] = np.zeros((), WAITING_RECORD), 0.0
        if state.features.shape[1] == self.dim:
            state.features[arm] = x
        else:
            state.waiting["stamp"][arm] = OUTSIDE

    def _ray_of(self, arm: int, cluster: int, x: Floats) -> tuple[int, float]:
        """The ray of a new arm, found among those of its cluster or opened, and its signed length: O(|C| d)."""
        norm = float(np.linalg.norm(x))
        if norm == 0.0:
            return -1, 0.0
        tolerance = min(self.partition_tolerance, NEGLIGIBLE)
        found = ray_in_cluster(self.state, self.state.clusters[cluster], self.arms, arm, tolerance)
        return found or (self._open_ray(), norm)

    @property
    def partition_tolerance(self) -> float:
        """The share of its norm by which an arm may be off its cluster's span."""
        return self._spans.tolerance if self._spans is not None else self.partition.tolerance

    def _open_ray(self) -> int:
        state = self.state
        g, first = (int(state.space[name][0]) for name in ("n_rays", "first_rays"))
        if g == state.rays.size:
            self.state = state = state._replace(rays=np.concatenate([state.rays, np.zeros_like(state.rays)]))
        state.rays[g] = np.zeros((), RAY_RECORD)
        partitions = int(state.control["partitions"][0])
        later = later_share(g + 1 + self._freed.rays - first)
        state.rays["share"][g] = self._share(first, partitions, "direction") + later
        state.space["n_rays"] += 1
        return g

    def _grow_per_arm(self) -> None:
        """Twice the capacity for arms, where it is used up."""
        state = self.state
        if self.n_arms < state.features.shape[0]:
            return
        self.state = state._replace(
            features=np.concatenate([state.features, np.zeros_like(state.features)]),
            waiting=np.concatenate([state.waiting, np.zeros_like(state.waiting)]),
        )

    def _other_remainders(self, gone: NDArray[np.bool_]) -> list[Remainder]:
        return waiting_parts(self.state, gone)

    def _other_scales(self, old: Any, new: Any, plan: Plan) -> Any:
        state = with_scales(old, new, plan)
        rays = self._freed.rays + int(old.space["n_rays"][0] - state.space["n_rays"][0])
        self._freed = self._freed._replace(rays=rays)
        return state

    def _restore_scales(self, counts: NDArray[np.int64], sums: Floats) -> None:
        """Rays from the arms' counts and sums; the space's fit does not depend on the partition and goes on."""
        state, slots = self.state, self.state.place[SLOT, : self.n_arms]
        length, ray = state.stats[LENGTH, slots], state.stats[RAY, slots].astype(np.int64)
        own = ray >= 0
        for name, values in (("information", counts * length**2), ("reward", sums * length)):
            state.rays[name] = np.bincount(ray[own], values[own], minlength=state.rays.size)

    @classmethod
    def _converted(cls, saved: Saved) -> Saved:
        if saved.format == 1:
            convert_clusters(saved, "coordinates", "full")
            convert_scales(saved)
        if saved.format < 3:
            watch_clusters(saved)
        return saved

    def _check_indices(self, saved: Saved) -> None:
        super()._check_indices(saved)
        check_fits(saved, self.state, "full")
        state, space, capacity = self.state, self.state.space[0], self.state.waiting.size
        within(saved, "state.space[n_rays]", space["n_rays"], 0, state.rays.size)
        within(saved, "state.stats[RAY]", state.stats[RAY], -1, state.rays.size - 1)
        within(saved, "capacity for all arms", capacity - self.n_arms, 0, 2**62)
        for name, length in (("queue", "in_queue"), ("batch", "in_batch")):
            within(saved, f"state.space[{length}]", space[length], 0, capacity)
            within(saved, f"state.waiting[{name}]", state.waiting[name][: space[length]], 0, self.n_arms - 1)
        within(saved, "state.space[at]", space["at"], 0, space["in_batch"])
        queued, left = np.sort(state.waiting["queue"][: space["in_queue"]]), state.waiting["batch"][space["at"] :]
        if not np.array_equal(queued, np.flatnonzero(state.waiting["queued"])):
            raise ValueError(
                f"path must hold a queue of the arms that are marked as queued, got another in {saved.path!r}"
            )
        rewards = state.waiting["n_batched"][left[: space["in_batch"] - space["at"]]]
        within(saved, "state.waiting[n_batched]", rewards, 1, 2**62)
        check_numbers(saved, state, "rays", "space", "waiting", "features", "factor")

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return STATE
