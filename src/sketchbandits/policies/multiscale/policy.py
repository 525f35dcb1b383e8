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
Proof: docs/math/multiscale.md. An old space bound stays valid; it only is not the least any more.

**Cost** O(r^2 + |C| r) a round for a cluster of rank r, O(log K) to choose, plus ``budget`` operations on average for
the space: a row into its fit is 3 D^2, an arm's bound D^2 (D the rank of all arms, at most d). A new fit begins only
when the determinants of clusters have grown by 1/16 in all since the last, so that in the long run the space costs
next to nothing; the budget bounds the beginning. Memory O(N (d + l) + D^2).

**Reference** Intersecting confidence sets is folklore; clusters and sentinels are from Yang, Xie and Lian (CS-LB); the
radius is the analytic martingale mixture of Flynn, Reeb, Kandemir and Peters (NeurIPS 2023).
**Departures** from CS-LB: the scales beside the cluster's, the radius, the prior's cap, ties by what is known least.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.confidence import RIDGE
from sketchbandits.kernels.linalg import Floats
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.contextual_form import ContextualForm
from sketchbandits.policies.cslb.changing_clusters import (
    ChangingClusters,
    check_partition,
    later_share,
    warn_of_tolerance,
)
from sketchbandits.policies.cslb.coordinates import build as build_clusters
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    BETA,
    CAP,
    CLUSTER,
    FIRST,
    NEGLIGIBLE,
    OFF_SPAN,
    PARTITIONS,
    SLOT,
    START,
    Sentinels,
    cluster_radius,
)
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.multiscale.rounds import direction_bound, renew, renew_all, set_direction_bounds
from sketchbandits.policies.multiscale.state import (
    BUDGET,
    DIRECTION,
    FIRST_RAYS,
    INFORMATION,
    LENGTH,
    MOST,
    N_RAYS,
    N_ROWS,
    OUTSIDE,
    RAY,
    RAY_SHARE,
    REWARD,
    SPACE,
    SPACE_FIELDS,
    SPACE_WIDTH,
    STAMP,
    MultiscaleState,
    arms_of,
    number_rays,
    space_features,
)
from sketchbandits.policies.parameters import Shared, check_radius, check_shared, radius_array
from sketchbandits.policies.pending.multiscale import (
    RAY_MEAN,
    RAY_WIDTH,
    SPACE_MEAN,
    WIDTH_IN_SPACE,
    direction_and_space,
    multiscale_outlook,
)
from sketchbandits.policies.pending.rule import Outlook
from sketchbandits.policies.rounds import MEAN, WIDTH2
from sketchbandits.policies.rounds import choose as choose_next
from sketchbandits.policies.streaming.policy import SKETCH_SIZE as SKETCH_SIZE
from sketchbandits.policies.streaming.policy import ContextualMultiscale

SHARES = {"direction": 0.9, "cluster": 0.09, "space": 0.01}
MOST_DIMENSIONS = 1024  # of the space's fit, which takes their square in memory and time
SAVED_ROUNDS = 16  # budgets that may be saved up, so that no round is much longer than the others


def partition_share(j: int) -> float:
    """The j-th partition's part of delta: nine tenths for the first, ``1/(10 j (j - 1))`` for later ones, in all 1."""
    return 0.9 if j == 1 else 0.1 / (j * (j - 1.0))


class MultiscaleCSLB(ContextualForm, ChangingClusters):
    """Multi-scale CS-LB on an arm set that may change.

    ``sketch_size`` is the largest rank of a cluster (default 16), or a ``partition`` made beforehand; ``budget`` the
    operations a round may spend on average on the space's scale (0: none; `sketchbandits.advise` translates
    microseconds). ``radius="logdet"`` takes the classical radius for comparison. ``tolerance`` and ``horizon`` as in
    `CSLB`. ``noise``, ``theta_norm``, ``arm_norm`` and ``delta`` are R, S, L and the failure probability. Nothing is
    random: ``seed`` is accepted so that all policies can be built alike.
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
        part = self.partition
        space = self._space_arrays() if partitions == 1 else {name: getattr(self.state, name) for name in SPACE_FIELDS}
        cluster = self._radius(min(self.settings["sketch_size"], self.dim), 0.0)
        sentinels = Sentinels.build(
            part,
            self.arms,
            self._shared(float(cluster[RIDGE])),
            capped=True,
            log_share=self._share(part.n_clusters, partitions),
            rows=N_ROWS,
        )
        rays = self._number_rays(sentinels)
        sentinels.stats[SPACE] = np.inf
        if partitions > 1:
            rows, slots = [[SPACE], [SPACE_WIDTH]], self.state.place[SLOT, : self.n_arms]
            sentinels.stats[rows, sentinels.place[SLOT]] = self.state.stats[rows, slots]
        clusters = build_clusters(self.arms, part, sentinels, cluster, "full")
        self.state = MultiscaleState(
            *clusters,
            rays=np.zeros((5, max(rays, 1))),
            direction=self._radius(1, 0.0),
            space=self._radius(max(space["theta"].size, 1), -math.log(SHARES["space"] * self.settings["delta"])),
            **space,
        )
        self.state.rays[RAY_SHARE] = self._share(rays, partitions, "direction")
        self.state.ticks[[N_RAYS, FIRST_RAYS]] = rays
        self.state.clock[FIRST] = part.n_clusters
        set_direction_bounds(self.state.rays, self.state.direction, self.state.stats)
        renew_all(self.state)

    def _space_arrays(self) -> dict[str, NDArray[Any]]:
        features = np.zeros((self.n_arms, 0))
        if self.settings["budget"] > 0:
            features = space_features(self.arms, MOST_DIMENSIONS)
        n, d = features.shape
        factor = np.zeros((2, d, d))
        factor[:] = np.eye(d) * math.sqrt(self._radius(max(d, 1), 0.0)[RIDGE])
        meter = np.zeros(6)
        waiting = np.zeros((6, n), np.int64)
        if d == 0:
            waiting[STAMP] = OUTSIDE
        budget = float(self.settings["budget"])
        meter[BUDGET], meter[MOST] = budget, SAVED_ROUNDS * budget + 8.0 * d * d
        return {
            "features": features,
            "factor": factor,
            "target": np.zeros((2, d)),
            "theta": np.zeros(d),
            "waiting": waiting,
            "owed": np.zeros((2, n)),
            "meter": meter,
            "ticks": np.zeros(6, np.int64),
        }

    def _shared(self, ridge: float) -> Shared:
        given = {name: self.settings[name] for name in Shared._fields}
        return Shared(**{**given, "ridge": ridge})

    def _radius(self, rank: int, log_share: float) -> Floats:
        """A scale's radius: with the ridge that was given, or the one that suits its rank."""
        ridge = self.settings["ridge"]
        if ridge is None:
            # Without noise any ridge is valid, and a small one forgets the prior soon.
            least = 1e-3 * self.settings["arm_norm"]
            most = math.sqrt(validate.LARGEST)  # as for a ridge that is given
            ridge = rank * min(max(self.settings["noise"] / self.settings["theta_norm"], least), most) ** 2
        return radius_array(self.settings["radius"], self._shared(ridge), dim=0, log_share=log_share)

    def _share(self, count: int, partitions: int, scale: str = "cluster") -> float:
        """``ln(1/delta')`` of one of ``count`` rays or clusters known at first."""
        part = SHARES[scale] * partition_share(partitions) * self.settings["delta"]
        return math.log((count + 1) / part)

    def _number_rays(self, sentinels: Sentinels) -> int:
        part = self.partition
        rows, ends = [], np.cumsum(part.ranks)
        for c in range(part.n_clusters):
            own = self.arms[arms_of(sentinels, c)]
            # Off a coarse span, arms may look parallel that are not.
            basis = part.bases[ends[c] - part.ranks[c] : ends[c]]
            rows.append(own if part.tolerance > NEGLIGIBLE else own @ basis.T)
        return number_rays(sentinels, rows, min(part.tolerance, NEGLIGIBLE))

    @exclusive
    def scales(self) -> dict[str, Floats]:
        """Every arm's bound on each scale: prior, direction, cluster, space (the last +inf until it is asked for)."""
        state, slots = self.state, self.state.place[SLOT, : self.n_arms]
        stats = state.stats[:, slots]
        beta = state.level[state.place[CLUSTER, : self.n_arms], BETA]
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

    def _outlook(self) -> Outlook:
        return multiscale_outlook(self.state)

    @property
    @exclusive
    def counts(self) -> NDArray[np.int64]:
        """How many rewards were booked for each arm."""
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
        state.stats[DIRECTION, slot] = direction_bound(state.rays, state.direction, g, length) if g >= 0 else 0.0
        state.waiting[:, arm], state.owed[:, arm], state.features[arm] = 0, 0.0, 0.0
        if state.features.shape[1] == self.dim:
            state.features[arm] = x
        else:
            state.waiting[STAMP, arm] = OUTSIDE

    def _ray_of(self, arm: int, cluster: int, x: Floats) -> tuple[int, float]:
        """The ray of a new arm, found among those of its cluster or opened, and its signed length: O(|C| d)."""
        norm = float(np.linalg.norm(x))
        if norm == 0.0:
            return -1, 0.0
        state = self.state
        slots = np.arange(*state.shape[cluster : cluster + 2, START])
        mates = state.place[ARM_AT, slots]
        others = (mates >= 0) & (mates != arm) & (state.stats[RAY, slots] >= 0)
        mates, slots = mates[others], slots[others]
        units = self.arms[mates] / state.stats[LENGTH, slots][:, None]
        along = units @ x
        off = np.linalg.norm(x - along[:, None] * units, axis=1)
        if mates.size and off.min() <= min(self.partition_tolerance, NEGLIGIBLE) * norm:
            k = int(off.argmin())
            return int(state.stats[RAY, slots[k]]), float(along[k])
        return self._open_ray(), norm

    @property
    def partition_tolerance(self) -> float:
        """The share of its norm by which an arm may be off its cluster's span."""
        return self._spans.tolerance if self._spans is not None else self.partition.tolerance

    def _open_ray(self) -> int:
        state = self.state
        g = int(state.ticks[N_RAYS])
        if g == state.rays.shape[1]:
            self.state = state = state._replace(rays=np.concatenate([state.rays, np.zeros_like(state.rays)], axis=1))
        state.rays[:, g] = 0.0
        first, partitions = int(state.ticks[FIRST_RAYS]), int(state.clock[PARTITIONS])
        state.rays[RAY_SHARE, g] = self._share(first, partitions, "direction") + later_share(g + 1 - first)
        state.ticks[N_RAYS] += 1
        return g

    def _grow_per_arm(self) -> None:
        """Room for as many arms again, where it is used up."""
        state = self.state
        if self.n_arms < state.features.shape[0]:
            return
        self.state = state._replace(
            features=np.concatenate([state.features, np.zeros_like(state.features)]),
            waiting=np.concatenate([state.waiting, np.zeros_like(state.waiting)], axis=1),
            owed=np.concatenate([state.owed, np.zeros_like(state.owed)], axis=1),
        )

    def _renew(self, clusters: set[int], *, lists_too: bool = False) -> None:
        state = self.state
        for c in sorted(clusters):
            beta = cluster_radius(state.radius, state.shape, state.level, c)
            renew(state.stats, state.shape, state.level, state.tree, state.work, c, beta)
        choose_next(state)

    def _book_scales(self, counts: NDArray[np.int64], sums: Floats) -> None:
        """Rays from the arms' counts and sums; the space's fit does not depend on the partition and goes on."""
        state, slots = self.state, self.state.place[SLOT, : self.n_arms]
        length, ray = state.stats[LENGTH, slots], state.stats[RAY, slots].astype(np.int64)
        own = ray >= 0
        for row, values in ((INFORMATION, counts * length**2), (REWARD, sums * length)):
            state.rays[row] = np.bincount(ray[own], values[own], minlength=state.rays.shape[1])
        set_direction_bounds(self.state.rays, self.state.direction, self.state.stats)

    def _renew_all(self) -> None:
        renew_all(self.state)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return MultiscaleState
