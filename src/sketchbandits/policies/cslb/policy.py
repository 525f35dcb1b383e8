"""CS-LB, Cluster Sketch Linear Bandits: one lossless ridge fit per cluster of arms.

The *sentinel* of a cluster is its largest upper confidence bound; the cluster with the largest sentinel plays.

    W_t = argmax_C U(C) ;   x_t = argmax_{x in W_t} x.theta_C + beta ||x||_{V_C^-1}
    after the reward:  U(W_t) = max_{x in W_t} x.theta_C + beta ||x||_{V_C^-1} ;  other clusters are untouched

**Radius** ``"paper"`` (default) is Eq. (2), ``R sqrt(l ln(1 + t L^2/(l ridge)) + 2 ln(N/(l delta))) + S sqrt(ridge)``,
with ``t = 1 + rewards recorded``. ``"logdet"`` is the cluster's own
``R sqrt(ln det(V_C/ridge) + 2 ln(K/delta)) + S sqrt(ridge)``, never larger when ``K <= N/l``; there every bound is
capped at ``S ||x||``, and arms are ordered by (capped bound, uncapped bound, lowest index). A function
``(n, logdet) -> beta`` is asked about the cluster that changed, and capped likewise.

**Cost** ``engine="coordinates"`` (default) keeps every cluster in the coordinates of its span: O(r^2 + |C| r) per
round for a cluster of rank r <= l, plus O(log K) to compare sentinels (`tournament`). A huge cluster keeps shortlists,
so that in the long run a round examines few of its arms (`shortlist`), with the same choices. The dimension d plays no
role after the warm-up: a round touches O(N l) memory; arms and bases take O(N d) more. ``engine="sketch"`` runs
Algorithms 1-3 as printed: O(l^2 d + |C| l d) per round, memory O(N d).

**Guarantee** every cluster's ellipsoid covers theta* at every round with probability ``1 - delta`` (Lemma 1), and for
``ridge >= max(1, L^2)`` regret is at most Theorem 1's `sketchbandits.confidence.theorem_bound`. Eq. (2) as printed
shares ``delta`` among N/l clusters; where first-fit makes more (never over ceil(N/l)), ``"logdet"`` shares it among K.

**Reference** Yang, Xie and Lian, "Efficient Linear Bandits via Cluster-Aware Sketching", Algorithms 1-3, Eq. (2).

**Departures** Sentinels and arms within 1e-9 (relative) of the largest tie, and the lowest index wins: unit arms tie
exactly at the start. When ``N < l`` Eq. (2)'s root can turn negative: there ``l`` is the rank and ``N/l`` at least K.
With ``"paper"``, `bounds` uses today's radius while `select` uses sentinels as they were last set, as printed, so
``argmax(bounds())`` need not be `select`.
"""

import functools
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.confidence import radius_value
from sketchbandits.kernels.linalg import Floats
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb import coordinates, sketch
from sketchbandits.policies.cslb.changing_clusters import ChangingClusters, check_partition, warn_of_tolerance
from sketchbandits.policies.cslb.format_1 import convert_clusters
from sketchbandits.policies.cslb.format_2 import watch_clusters
from sketchbandits.policies.cslb.layout import CAP, CLUSTER, EVERY, N_STATS, NEGLIGIBLE, OFF_SPAN, SLOT, Records
from sketchbandits.policies.cslb.merged import off_spans, warn_of_merged
from sketchbandits.policies.cslb.saved import check_fits, check_literal
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.parameters import Radius, Shared, called_radius, check_radius, check_shared, radius_record
from sketchbandits.policies.pending.clusters import cluster_bounds
from sketchbandits.policies.pending.rule import PendingBounds
from sketchbandits.policies.rounds import MEAN, WIDTH2
from sketchbandits.snapshot import Saved

_ENGINES: dict[str, Any] = {"coordinates": coordinates, "sketch": sketch}


@functools.cache
def _compile_warm_up() -> None:
    """Compile, or load, the partition's kernels once on two arms, so that the warm-up's time is its own."""
    Partition.first_fit(np.eye(2), sketch_size=1)


class CSLB(ChangingClusters):
    """CS-LB: one lossless ridge fit per cluster of arms; the cluster with the largest bound is played.

    For many arms in many dimensions that lie near few low-dimensional subspaces: a round costs O(r^2 + |C| r) for a
    cluster C of rank r, whatever the dimension. `MultiscaleCSLB` has tighter bounds at a similar cost and is the one to
    try first; `OFUL` learns from all arms together and is preferable where there are few dimensions. With
    ``radius="logdet"`` arms may be added, removed and freed.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    sketch_size
        l, the largest rank of a cluster. Small clusters are cheap and learn from fewer arms; `sketchbandits inspect`
        shows how many clusters each size makes. Required unless ``partition`` is given.
    partition
        A `Partition` of these arms made beforehand, with more threads, on a GPU, or for several policies.
    ridge
        The regulariser of every fit, > 0 (default 1). The theorem wants at least ``max(1, L^2)``.
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
        ``"paper"`` (default) is the paper's Eq. (2). ``"logdet"`` measures what each cluster has learned: far less
        regret in practice. Or a function ``(n, logdet) -> beta`` of your own.
    engine
        ``"coordinates"`` (default) is the cheap equal form; ``"sketch"`` runs Algorithms 1-3 as printed.
    scan
        How clusters of 4,096 arms and more are searched: ``"auto"`` (default) by shortlists, with the same choices;
        ``"shortlist"`` keeps them for small clusters too, ``"full"`` for none.
    tolerance
        Arms within this share of their norm of a span may share its cluster, in [0, 1) (default 0: rounding only).
        Fewer clusters, at the price of two more terms in the bound and of regret linear in the tolerance.
    horizon
        The number of rounds to come, used only to warn where the tolerance would cost more than it saves.
    seed
        Accepted so that all policies can be built alike; nothing is random.

    """

    def __init__(
        self,
        arms: ArrayLike,
        *,
        sketch_size: int | None = None,
        partition: Partition | None = None,
        ridge: float = 1.0,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        arm_norm: float | None = None,
        delta: float = 0.01,
        radius: Radius = "paper",
        engine: str = "coordinates",
        scan: str = "auto",
        tolerance: float = 0.0,
        horizon: int | None = None,
        seed: Any = None,
    ) -> None:
        super().__init__(arms)
        sketch_size, tolerance = check_partition(self.arms, sketch_size, partition, tolerance)
        shared = check_shared(ridge, noise, theta_norm, arm_norm, delta, self.arms)
        radius = check_radius(radius, ("paper", "logdet"))
        engine = validate.option("engine", engine, tuple(_ENGINES))
        scan = validate.option("scan", scan, ("auto", "full", "shortlist"))
        if tolerance > NEGLIGIBLE and (radius != "logdet" or engine != "coordinates"):
            raise ValueError(f"tolerance must be 0 unless radius='logdet' and engine='coordinates', got {tolerance:g}")
        horizon = None if horizon is None else validate.whole("horizon", horizon)
        warn_of_tolerance(tolerance, shared, horizon)
        validate.generator(seed)
        self.settings = {
            "sketch_size": sketch_size,
            **shared._asdict(),
            "radius": radius,
            "engine": engine,
            "scan": scan,
            "tolerance": tolerance,
            "horizon": horizon,
        }
        self._decide_pending()
        _compile_warm_up()
        with self._warm_up():
            # The caller's own array, not our float64 copy of it: a float32 input has its own tolerance.
            self._partition = partition or Partition.first_fit(
                arms, sketch_size=sketch_size, tolerance=tolerance or None
            )
            self._build_state()
        warn_of_merged(off_spans(self.arms, self.partition, self.settings), self.settings)

    def _decide_pending(self) -> None:
        """Pending decisions lower the regret with the paper's radius only, see docs/delays.md."""
        self.pending_by_default = self.settings["radius"] == "paper"

    def _restore(self, saved: Saved, sizes: dict[str, int]) -> None:
        super()._restore(saved, sizes)
        self._decide_pending()

    def _build_state(self, partitions: int = 1) -> None:
        """The state before the first reward, on the ``partitions``-th partition."""
        engine, shared = _ENGINES[self.settings["engine"]], Shared(**{k: self.settings[k] for k in Shared._fields})
        setting = coordinates.Setting(
            shared=shared,
            radius=self._radius_record(shared),
            capped=self.settings["radius"] != "paper",
            log_share=self._share(self.partition.n_clusters, partitions),
            scan=self._scan,
            rows=N_STATS,
        )
        self.state = engine.build(self.arms, self.partition, setting)
        if setting.capped:
            self.state.control["changed"] = EVERY

    def _radius_record(self, shared: Shared) -> Records:
        radius, n_clusters = self.settings["radius"], self.partition.n_clusters
        if radius != "paper":
            return radius_record(radius, shared, dim=0, log_share=0.0)  # every cluster has a share of its own
        l = self.settings["sketch_size"]
        ratio = self.n_arms / l
        if self.n_arms < l:
            l = max(1, int(self.partition.ranks.max()))
            ratio = max(self.n_arms / l, n_clusters)
        return radius_record("closed", shared, dim=l, log_share=math.log(ratio / shared.delta))

    def _refresh_radius(self) -> None:
        if not self._radius_is_function:
            return
        changed, clusters = int(self.state.control["changed"][0]), self.state.clusters
        for c in range(clusters.size) if changed < 0 else (changed,):
            own = clusters[c]
            logdet = float(own["logdet"] + np.log(own["growth"]))
            own["beta"] = called_radius(self.settings["radius"], own["samples"], logdet)

    @exclusive
    def bounds(self) -> Floats:
        """The upper confidence bound of every arm: Eq. (2) with today's radius, or the capped bounds of its cluster."""
        state = self.state
        if self.settings["radius"] == "paper":
            beta: Any = radius_value(state.control[0]["radius"], state.control[0]["round"], 0.0)
        else:
            beta = state.clusters["beta"][state.place[CLUSTER, : self.n_arms]]
        stats = coordinates.current_stats(state)[:, state.place[SLOT, : self.n_arms]]
        off = self.settings["theta_norm"] * stats[OFF_SPAN]
        return np.minimum(stats[CAP], stats[MEAN] + beta * np.sqrt(stats[WIDTH2]) + off)

    @exclusive
    def estimates(self) -> Floats:
        """The estimate of its cluster's fit for every arm, at most the largest value that its bound may take."""
        stats = coordinates.current_stats(self.state)[:, self.state.place[SLOT, : self.n_arms]]
        return np.minimum(stats[MEAN], stats[CAP])

    @property
    def _scan(self) -> str:
        """Shortlists know nothing of arms off their span."""
        return "full" if self.settings["tolerance"] > NEGLIGIBLE else str(self.settings["scan"])

    def _check_changeable(self) -> None:
        if self.settings["radius"] != "logdet" or self.settings["engine"] != "coordinates":
            given = f"radius={self.settings['radius']!r}, engine={self.settings['engine']!r}"
            raise ValueError(f"arms may come and go with radius='logdet' and engine='coordinates' only, got {given}")

    def _begin_later_shares(self) -> None:
        k = self.partition.n_clusters + self._freed.clusters
        self.state.clusters["share"] += math.log((k + 1) / k)
        self._renew_all()

    def _share(self, count: int, partitions: int) -> float:
        later = partitions * (partitions + 1) * (count + 1) if partitions > 1 else count
        return math.log(later / self.settings["delta"])

    def _pending_bounds(self) -> PendingBounds:
        state, radius = self.state, self.state.clusters["beta"]
        if self.settings["radius"] == "paper":
            radius = np.full_like(radius, radius_value(state.control[0]["radius"], state.control[0]["round"], 0.0))
        return cluster_bounds(state, radius)

    @property
    @exclusive
    def counts(self) -> NDArray[np.int64]:
        """How many rewards were recorded for each arm."""
        return np.array(self.state.counts[self.state.place[SLOT, : self.n_arms]])

    @classmethod
    def _converted(cls, saved: Saved) -> Saved:
        if saved.format == 1:
            coarse = saved.settings["tolerance"] > NEGLIGIBLE
            convert_clusters(saved, saved.settings["engine"], "full" if coarse else saved.settings["scan"])
        if saved.format < 3:
            watch_clusters(saved)
        return saved

    def _check_indices(self, saved: Saved) -> None:
        super()._check_indices(saved)
        if self.settings["engine"] == "sketch":
            check_literal(saved, self.state)
            return
        check_fits(saved, self.state, self._scan)
        self.state = coordinates.typed(self.state)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return sketch.LiteralState if settings["engine"] == "sketch" else coordinates.CoordinateState
