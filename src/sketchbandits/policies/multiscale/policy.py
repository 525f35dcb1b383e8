"""Multi-scale CS-LB: every arm's bound is the tightest of four that hold together. The recommended policy.

    prior      S ||x||
    direction  the mean of the arms on one ray                              (l = 1: UCB1's view)
    cluster    the ridge fit of a cluster of rank <= l                      (CS-LB's)
    space      the ridge fit of all arms, as of some earlier round          (OFUL's)

    U(x) = min of them ;   explore="optimism":    x_t = argmax U ,  ties at S ||x|| to the largest bound without the cap
                           explore="randomised":  a random share of the space's radius, where U allows it (`randomised`)

The fits have ``beta^2 = R^2 (ln det(V/ridge) + 2 ln(1/delta')) + ridge S^2`` (`confidence.mixture_radius`), a ray the
interval around its mean in which S does not enter (`confidence.unbiased_width`). Rays spend half of ``delta``, clusters
a tenth and the space 0.4. Rays and clusters divide theirs equally among those known at first, with one more share for
all that come later (`policies.cslb.changing_clusters`), the space among the ridges that it may come to.
``ridge=None`` gives the space the effective rank of all arms times ``R^2/S^2`` (`policies.effective_rank`), a cluster
that or l times ``R^2/S^2``, whichever is less, and a ray a few pulls: near the least radius once there are data.

**Guarantee** With probability ``1 - delta`` every scale's set covers theta* at every round. Then ``x.theta* <= U(x)``
for every arm, and the regret after T rounds is at most ``sum_t min_s 2 beta_s ||x_t||_{V_s^-1}`` over the scales s:
``2 beta_T sqrt(2 r K T ln(1 + T L^2/(ridge r)))`` with (K, r) = (rays, 1) or (clusters, l), for ``ridge >= L^2``; with
random choices 20 times that. Proof: docs/math/multiscale.md. A set holds for all time, so the least bound that
the space ever gave an arm is kept. `repartition` says when its bounds are covered.

**Cost** O(r^2 + |C| r) per round for a cluster of rank r, O(log K) to choose the largest bound, O(N) to draw, plus
``budget`` operations on average for the space: a row into its fit is 3 D^2, an arm's bound D^2 (D the rank of all
arms), a new fit's estimates N D. A new fit begins only when the determinant of the space's V may have grown by 1/16
since the last, so that in the long run the space costs next to nothing; the budget bounds the beginning. Memory
O(N (D + l) + D^2 + N d).

**Reference** Intersecting confidence sets is folklore; clusters and sentinels are from Yang, Xie and Lian (CS-LB); the
radius is the analytic martingale mixture of Flynn, Reeb, Kandemir and Peters (NeurIPS 2023).
**Departures** from CS-LB: the further scales, the radius, the prior's cap, ties by what is known least, random choices.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.kernels.counter import new_key
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.contextual_form import ContextualForm
from sketchbandits.policies.cslb.changing_clusters import check_partition, warn_of_tolerance
from sketchbandits.policies.cslb.coordinates import Setting, build
from sketchbandits.policies.cslb.format_1 import convert_clusters
from sketchbandits.policies.cslb.format_2 import watch_clusters
from sketchbandits.policies.cslb.layout import ARM_AT, CAP, CLUSTER, EVERY, NEGLIGIBLE, OFF_SPAN, SLOT
from sketchbandits.policies.cslb.merged import may_matter, off_spans, warn_of_merged
from sketchbandits.policies.cslb.saved import check_fits
from sketchbandits.policies.effective_rank import effective_rank
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.multiscale.changing_scales import SHARES as SHARES
from sketchbandits.policies.multiscale.changing_scales import ChangingScales, most_ridges
from sketchbandits.policies.multiscale.changing_scales import partition_share as partition_share
from sketchbandits.policies.multiscale.format_1 import convert_scales
from sketchbandits.policies.multiscale.format_2 import convert_space
from sketchbandits.policies.multiscale.randomised import BOLDNESS, CAUTION, picks_by_draw
from sketchbandits.policies.multiscale.rounds import STATE
from sketchbandits.policies.multiscale.saved import check_scales
from sketchbandits.policies.multiscale.space_basis import MOST_DIMENSIONS, ask_all, coordinates, space_basis
from sketchbandits.policies.multiscale.state import (
    DIRECTION,
    GUESS,
    LENGTH,
    N_ROWS,
    OUTSIDE,
    RAY,
    RAY_RECORD,
    SPACE,
    SPACE_FIELDS,
    SPACE_RECORD,
    UNLISTED,
    WAITING_RECORD,
    WIDTH,
    number_rays,
    off_first_of_ray,
    ray_lengths,
)
from sketchbandits.policies.parameters import check_shared
from sketchbandits.policies.pending.multiscale import (
    RAY_MEAN,
    RAY_WIDTH,
    SPACE_MEAN,
    WIDTH_IN_SPACE,
    direction_and_space,
    multiscale_bounds,
)
from sketchbandits.policies.pending.rule import Mask, PendingBounds
from sketchbandits.policies.rounds import MEAN, WIDTH2, renew_choice
from sketchbandits.policies.streaming.policy import SKETCH_SIZE as SKETCH_SIZE
from sketchbandits.policies.streaming.policy import ContextualMultiscale
from sketchbandits.snapshot import Saved

RULES = ("randomised", "optimism")
MOST_ARMS_TO_DRAW = 20_000  # by default: a draw looks at all arms, the largest bound at few
MOST_WORK_TO_DRAW = 2e7  # likewise N d^2, of which a new fit of the space takes a quarter at once


class MultiscaleCSLB(ContextualForm, ChangingScales):
    """Multi-scale CS-LB: every arm's bound is the tightest of four that hold together with probability ``1 - delta``.

    The policy to try first on fixed arms with features. Each arm is bounded by its prior, by the arms on its line, by
    its cluster and by all arms together, and chosen at random within what the bounds allow (docs/multiscale.md compares
    it with others). Arms may be added, removed and freed; `contextual` is the form for contexts that arrive each round.
    Prefer `OFUL` in few dimensions where its simplicity counts, `UCB1` where there are no features.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    sketch_size
        l, the largest rank of a cluster (default: 16, at most half the rank of all arms). Small clusters are cheap
        and learn from fewer arms.
    partition
        A `Partition` of these arms made beforehand, in place of ``sketch_size``.
    ridge
        The regulariser of every fit, > 0 (default None: what suits the effective rank of the arms).
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
    explore
        ``"randomised"`` plays the best arm under a random share of the radius, as long as the bounds allow it: a
        fraction of the regret in practice, a guarantee that is 20 times as large, and O(N) per round.
        ``"optimism"`` plays the largest bound. The default, None, is ``"randomised"`` up to 20,000 arms.
    budget
        Operations that a round may spend on average on the fit of the whole space (default ``"auto"``: about one row
        of that fit per round; 0: no such fit).
    tolerance, horizon
        As in `CSLB`.
    seed
        Of the random choices (default 0): with the same seed and the same rewards the same arms.

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
        explore: str | None = None,
        budget: int | str = "auto",
        tolerance: float = 0.0,
        horizon: int | None = None,
        seed: Any = 0,
    ) -> None:
        super().__init__(arms)
        budget = checked_budget(budget)
        self._basis, moments = space_basis(self.arms, MOST_DIMENSIONS if budget != 0 else 0)
        given = default_size(moments.size) if sketch_size is None and partition is None else sketch_size
        size, tolerance = check_partition(self.arms, given, partition, tolerance)
        shared = check_shared(1.0 if ridge is None else ridge, noise, theta_norm, arm_norm, delta, self.arms)
        horizon = None if horizon is None else validate.whole("horizon", horizon)
        warn_of_tolerance(tolerance, shared, horizon)
        self.settings = {
            "sketch_size": size,
            **shared._asdict(),
            "ridge": None if ridge is None else shared.ridge,
            "radius": validate.option("radius", radius, ("mixture", "logdet")),
            "explore": self._rule(explore),
            "budget": budget,
            "tolerance": tolerance,
            "horizon": horizon,
        }
        key = new_key(validate.generator(seed))
        with self._warm_up():
            self._partition = partition or Partition.first_fit(arms, sketch_size=size, tolerance=tolerance or None)
            self._build_state(space=self._new_space(moments))
            self._set_key(key)
        warn_of_merged(max(self._off_rays(), off_spans(self.arms, self.partition, self.settings)), self.settings)

    def _off_rays(self) -> float:
        """How far an arm is from its ray, where that may matter."""
        if not may_matter(NEGLIGIBLE, self.settings):
            return 0.0
        slots = self.state.place[SLOT, : self.n_arms]
        return off_first_of_ray(self.arms, *self.state.stats[np.ix_([RAY, LENGTH], slots)])

    def _rule(self, explore: str | None) -> str:
        if explore is None:
            large = self.n_arms > MOST_ARMS_TO_DRAW or self.n_arms * self.dim**2 > MOST_WORK_TO_DRAW
            return RULES[1] if large else RULES[0]
        return validate.option("explore", explore, RULES)

    def _build_state(self, partitions: int = 1, space: dict[str, NDArray[Any]] | None = None) -> None:
        """The state before the first reward, on the ``partitions``-th partition, with a new space or the one so far."""
        old = self.state if space is None else None
        space = space or {name: getattr(self.state, name) for name in SPACE_FIELDS}
        effective = float(space["space"]["radius"]["ridge"][0]) / self._unit
        radius = self._radius(min(self.settings["sketch_size"], self.dim, effective), 0.0)
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
            rows, slots = [[SPACE], [GUESS], [WIDTH]], old.place[SLOT, : self.n_arms]
            clusters.stats[rows, clusters.place[SLOT]] = old.stats[rows, slots]
        n_rays = self._number_rays(clusters)
        rays = np.zeros(max(n_rays, 1), RAY_RECORD)
        rays["share"] = space["space"]["ray_share"] = self._share(n_rays, partitions, "direction")
        space["space"]["ray_left"] = self._part("direction", partitions)
        rays["ridge"][:n_rays] = self._ray_ridge(space["space"]["direction"], ray_lengths(clusters.stats, n_rays))
        for name in ("n_rays", "first_rays", "untaught"):
            space["space"][name] = n_rays
        self.state = STATE(*clusters, rays=rays, **space)
        if old is None:
            ask_all(self.state, np.arange(self.state.stats.shape[1]))
        self.state.control["first_clusters"], self.state.control["changed"] = self.partition.n_clusters, EVERY

    def _new_space(self, moments: Floats) -> dict[str, NDArray[Any]]:
        """The arrays of the space before the first reward, from the eigenvalues of ``X'X/N``."""
        n, d = self.n_arms, len(self._basis)
        space = np.zeros(1, SPACE_RECORD)
        space["direction"] = self._radius(1.0, 0.0, "unbiased" if self.settings["radius"] == "mixture" else None)
        rank = effective_rank(moments, self._unit) if d else float(self.dim)
        space["most_ridges"] = most = most_ridges(rank, self.dim) if self.settings["ridge"] is None else 1
        space["radius"] = self._radius(rank, self._space_share(1, most))
        space["ridges"], space["arms_seen"], space["beta"] = 1, n, 1.0
        space["draws"] = self.settings["explore"] == "randomised"
        space["boldness"], space["caution"] = BOLDNESS * self.settings["noise"], CAUTION
        factor = np.zeros((2, d + 2, d))
        factor[:, :d] = np.eye(d) * math.sqrt(space["radius"]["ridge"][0])
        waiting = np.zeros(n, WAITING_RECORD)
        waiting["stamp"], features = coordinates(self.arms, self._basis)
        space["outside"], space["listed"] = int((waiting["stamp"] == OUTSIDE).sum()), UNLISTED
        self._set_budget(space, n, d)
        return {"space": space, "waiting": waiting, "features": features, "factor": factor}

    def _set_key(self, key: NDArray[np.uint64]) -> None:
        self.state.space["key"], self.state.space["second_key"] = key

    @exclusive
    def reseed(self, seed: Any) -> None:
        """Draw from another stream from now on; what was learned stays."""
        self._set_key(new_key(validate.generator(seed)))
        renew_choice(self.state)

    def _picks(self, count: int, allowed: Mask, waiting: Ints) -> Ints:
        """With draws, pending decisions are spread by further draws and by how many each arm has."""
        if self.settings["explore"] == "optimism":
            return super()._picks(count, allowed, waiting)
        picks, arm_at = np.empty(count, np.int64), self.state.place[ARM_AT]
        pulls = np.bincount(self.state.place[SLOT, waiting], minlength=arm_at.size)
        picks_by_draw(self.state, allowed[arm_at] & (arm_at >= 0), pulls, picks)
        return picks

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
        """Every arm's bound on each scale: prior, direction, cluster, and space (+inf: not in it)."""
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

    @classmethod
    def _converted(cls, saved: Saved) -> Saved:
        if saved.format == 1:
            convert_clusters(saved, "coordinates", "full")
            convert_scales(saved)
        if saved.format < 3:
            watch_clusters(saved)
            convert_space(saved)
        return saved

    def _check_indices(self, saved: Saved) -> None:
        super()._check_indices(saved)
        check_fits(saved, self.state, "full")
        check_scales(saved, self.state, self.n_arms)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return STATE


def default_size(rank: int) -> int:
    """16, and at most half the rank of all arms: a cluster that spans them would be a second fit of the space."""
    return min(SKETCH_SIZE, max(1, rank // 2)) if rank else SKETCH_SIZE


def checked_budget(budget: int | str) -> int | str:
    """A number of operations, or ``"auto"``."""
    if isinstance(budget, str) and budget == "auto":
        return budget
    try:
        return validate.whole("budget", budget, least=0)
    except ValueError:
        raise ValueError(f"budget must be a whole number >= 0 or 'auto', got {budget!r}") from None
