"""Clusters whose arms are added, removed and freed (`policies.changing_arms`), and `repartition`.

A new arm joins the first cluster whose span holds it, else the last one whose rank may grow, else it opens a
cluster: first-fit is an online rule, so a policy grown arm by arm has the clusters, means, widths and determinants of
one that was built with all arms. In a cluster of many arms its mean and width come from the current fit in O(r^2); the
Gram matrix of a small one (at most 2 r arms) is computed again in O(r^3). Features alone decide, never rewards.

**Shares of delta** The K clusters known at first take ``delta/(K + 1)`` each and the k-th later one
``delta/((K + 1) k (k + 1))``: in all ``delta`` exactly. `CSLB` without growth spends ``delta/K`` and begins with these
shares at the first new arm, and its j-th partition spends ``delta/(j (j + 1))`` for j > 1: the bounds in use at any one
time hold together with probability ``1 - delta``, those of all times together with ``1 - 5 delta/2`` at worst.
`MultiscaleCSLB` keeps its shares from the start, and never spends more than ``delta``.

A removed arm is never played again; its data stay and go on teaching its cluster. `repartition` rebuilds from the
counts and sums of *all* arms ever added: leaving out arms that were removed after a high reward would bias the bounds.
After `free_arms` (`policies.cslb.freeing`) these are no longer known, and `repartition` is refused. It is also refused,
unless forced, where the new clusters may depend on rewards: a fit covers only what joined it by a rule that was settled
before each reward. That is so for the default partition of arms that were all known before the first reward, if none of
them was freed since.
"""

import math
import warnings
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.partition.growing_spans import GrowingSpans, Placement
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.assumptions import Norm
from sketchbandits.policies.changing_arms import ChangingArms
from sketchbandits.policies.cslb.coordinates import coordinates_of, estimate_of, frame_of, refit
from sketchbandits.policies.cslb.freeing import NONE_FREED, Freed, Plan, compacted, make_plan, partition_of, rows_of
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CAP,
    CLUSTER,
    EVERY,
    LISTED,
    MANY,
    NEGLIGIBLE,
    NONE,
    OFF_SPAN,
    OFFSET,
    SLOT,
)
from sketchbandits.policies.cslb.merged import ROUNDING, warn_of_merged
from sketchbandits.policies.cslb.saved import check_places
from sketchbandits.policies.cslb.shortlist import whitened_of
from sketchbandits.policies.cslb.spare_slots import SPARE, core, restore_rewards, with_slots
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.parameters import Shared
from sketchbandits.policies.remainder import Remainder
from sketchbandits.policies.rounds import LOST, MEAN, RENEW, SUM, WIDTH2, renew_choice, take_step
from sketchbandits.snapshot import Saved, take_array, within


class Repartition(NamedTuple):
    """What `repartition` found: the clusters before and after, the ratio of predicted regrets, whether it was done."""

    clusters_before: int
    clusters_after: int
    ratio: float
    done: bool


def check_partition(
    arms: Floats, sketch_size: int | None, partition: Partition | None, tolerance: float
) -> tuple[int, float]:
    """Sketch size and tolerance, given or the partition's; a partition that is not one of these arms is refused."""
    tolerance = validate.number("tolerance", tolerance, least=0.0)
    if tolerance >= 1.0:
        raise ValueError(f"tolerance must be a number >= 0 and < 1, got {tolerance!r}")
    if partition is None:
        return validate.whole("sketch_size", sketch_size), tolerance
    if not isinstance(partition, Partition):
        raise ValueError(f"partition must be a Partition or None, got {partition!r}")
    if sketch_size is not None and validate.whole("sketch_size", sketch_size) != partition.sketch_size:
        raise ValueError(f"sketch_size must be left out or the partition's {partition.sketch_size}, got {sketch_size}")
    found = (partition.labels.size, partition.bases.shape[1])
    if found != arms.shape:
        raise ValueError(f"partition must be one of arms of shape {arms.shape}, got one of shape {found}")
    residuals = partition.residuals(arms)
    if (worst := float(residuals.max())) > 2.0 * partition.tolerance:
        raise ValueError(
            f"partition must be one of these arms, within {partition.tolerance:g} of the spans of their clusters, "
            f"got arm {int(residuals.argmax())} at {worst:.3g}"
        )
    if tolerance not in (0.0, partition.tolerance):
        raise ValueError(f"tolerance must be left out or the partition's {partition.tolerance:g}, got {tolerance:g}")
    return partition.sketch_size, partition.tolerance if partition.tolerance > NEGLIGIBLE else 0.0


def warn_of_tolerance(tolerance: float, shared: Shared, horizon: int | None) -> None:
    """One warning where what the tolerance may cost over the horizon makes the bound vacuous.

    An arm off its span by ``tolerance`` can be worth ``S L tolerance`` more than a bound without the extra terms says,
    in each of T rounds; compared with the square root of T that any bound grows with, that must stay small.
    """
    if horizon is None or tolerance <= NEGLIGIBLE:
        return
    cost = shared.theta_norm * shared.arm_norm * tolerance * horizon
    if cost > math.sqrt(horizon):
        warnings.warn(
            f"tolerance={tolerance:g} may cost S L eps T = {cost:.3g} of regret over horizon={horizon}, more than "
            f"sqrt(T) = {math.sqrt(horizon):.3g}: the bound says nothing there; take a smaller tolerance",
            stacklevel=3,
        )


def later_share(k: int) -> float:
    """``ln(k (k + 1))``: how much more ``ln(1/delta')`` the k-th later cluster or ray has than one known at first."""
    return math.log(k * (k + 1.0)) if k > 0 else 0.0


def predicted_regret(n_clusters: int, rank: int, log_share: float, rounds: int) -> float:
    """``beta sqrt(K r ln(1 + T/r))`` up to constants: what the regret bound of a partition grows with."""
    information = rank * math.log1p(rounds / max(rank, 1))
    return math.sqrt(information + 2.0 * log_share) * math.sqrt(n_clusters * max(information, 1e-300))


class ChangingClusters(ChangingArms):
    """What CS-LB with the log-det radius and multi-scale CS-LB share: arms and clusters may change."""

    _partition: Partition | None
    _spans: GrowingSpans | None = None
    _buffer: Floats | None = None  # ``arms`` is a view of its first rows
    _freed: Freed = NONE_FREED
    _off: float = 0.0  # how far arms that were added are from what stands for them
    _grown: bool = False  # whether arms were added to a policy with rewards, or freed from one

    @property
    @exclusive
    def partition(self) -> Partition:
        """The clusters as they are now."""
        if self._partition is None:
            assert self._spans is not None
            labels = self.state.place[CLUSTER, : self.n_arms].copy()
            self._partition = self._spans.partition(labels, self.settings["sketch_size"])
        return self._partition

    @property
    @exclusive
    def active(self) -> NDArray[np.bool_]:
        """Which arms may be played: all but the removed ones."""
        offsets: Floats = self.state.stats[OFFSET, self.state.place[SLOT, : self.n_arms]]
        return offsets > -np.inf

    @property
    def _seen(self) -> NDArray[Any]:
        seen: NDArray[Any] = self.state.control["seen"]
        return seen

    def _norm(self, noise: float, theta_norm: float, *, most: float) -> Norm | None:
        # A cluster all of whose arms are freed takes its rewards along: a fit of the others is of rewards that were
        # selected by their values. An arm's own are all there.
        return super()._norm(noise, theta_norm, most=0.0 if self._freed.rewards else most)

    def _sums(self) -> Floats:
        sums: Floats = self.state.stats[[SUM, LOST]][:, self.state.place[SLOT, : self.n_arms]].sum(axis=0)
        return sums

    @exclusive
    def copy(self) -> Self:
        """An independent policy in the same state."""
        twin = super().copy()
        twin._partition, twin._spans, twin._buffer = self.partition, None, None
        return twin

    def _append_arms(self, arms: Floats) -> None:
        """O(K d + l d) per arm to find its cluster, then O(l^3) at most (multi-scale: O(|C| d) more, to find its ray).

        Nothing is forgotten or fitted again except the small cluster that gains an arm.
        """
        self._grown |= bool(self.state.control["round"][0] > 1)
        self.settings["arm_norm"] = max(self.settings["arm_norm"], float(np.linalg.norm(arms, axis=1).max()))
        self._spans = self._spans or GrowingSpans(self.partition, min(self.settings["sketch_size"], self.dim))
        if self.state.control["first_clusters"][0] == 0:
            self.state.control["first_clusters"] = self.state.clusters.size + self._freed.clusters
            self._begin_later_shares()
        touched = {self._add(row) for row in arms}
        self._partition = None
        self._renew(touched)
        warn_of_merged(self._off, self.settings)
        self._off = 0.0

    def _close_arms(self, ids: Ints) -> None:
        self._kept_bounds = None  # the next choice may look at arms again
        slots = self.state.place[SLOT, ids]
        self.state.stats[OFFSET, slots] = -np.inf
        touched = set(self.state.place[CLUSTER, ids].tolist())
        for c in touched:
            if self.state.clusters["form"][c] == LISTED:  # a removed arm may be on a shortlist
                refit(self.state, c)
        self._renew(touched)

    def _forget(self, ids: Ints) -> Ints:
        """O(N l + K l^3), and O(K l d) at the next new arm; see `policies.cslb.freeing`."""
        self._grown |= bool(self.state.control["round"][0] > 1)
        old, stay, part = self.state, self._staying(ids), self.partition
        choice, waited = int(old.choice.item(0)), bool(old.control["refit"][0] != NONE)
        plan = make_plan(old, part.labels, stay, self._other_remainders(~stay))
        state = self._other_scales(old, compacted(old, plan, self._scan, self.settings["theta_norm"]), plan)
        self._count_freed(state, part.n_clusters - plan.clusters.size, plan.kept.size)
        result = self._renumber(plan.kept, rows_of(plan, part), state)
        self._partition, self._spans, self._buffer = partition_of(part, plan), None, None
        state.control["changed"] = EVERY
        take_step(state, 0, 0.0, RENEW)
        if waited or not stay[choice]:  # an interrupt kept an earlier call from making the next choice
            renew_choice(state)
        else:  # it stands: nothing was learned
            state.control["choice"] = np.searchsorted(plan.kept, choice)
        return result

    def _count_freed(self, state: Any, clusters: int, n_kept: int) -> None:
        """``state`` is without so many clusters; its arms from ``n_kept`` on are internal."""
        rewards = int(state.control["round"][0]) - 1 - int(state.counts[state.place[SLOT, :n_kept]].sum())
        self._freed = self._freed._replace(clusters=self._freed.clusters + clusters, rewards=rewards)

    def _other_remainders(self, gone: NDArray[np.bool_]) -> list[Remainder]:
        """What arms that go have taught, or have still to teach, on other scales than their clusters."""
        return []

    def _other_scales(self, old: Any, new: Any, plan: Plan) -> Any:
        """``new``, whose clusters hold the arms of ``plan``, with what else the policy kept of those in ``old``."""
        return new

    @exclusive
    def repartition(self, partition: Partition | None = None, *, force: bool = False) -> Repartition:
        """Rebuild from every arm's count and sum on a new partition (default: `Partition.subspaces`), if that pays.

        It pays where the regret bound that the clusters promise for as many rounds again gets smaller; the new
        partition's smaller part of delta is counted in. The ids stay.

        Once there are rewards, a ``partition`` of your own, or any after arms were added to a policy with rewards or
        freed from one, may depend on them; the bounds are then no longer guaranteed (chosen to that end, they failed in
        96 % of runs), and the call is refused. ``force`` rebuilds in any case, without that guarantee where it is not
        given.
        """
        force = validate.flag("force", force)
        self._check_changeable()
        if not force:
            self._check_independent(partition)
        if self._freed.rewards:
            raise ValueError(
                "repartition needs the rewards of every arm that there was, "
                f"got a policy that has freed arms with {self._freed.rewards} rewards"
            )
        size = self.settings["sketch_size"]
        # The arms are float64 here, but rounding of a coarser type may be in them: the tolerance in use allows for it.
        candidate = partition or Partition.subspaces(self.arms, size, tolerance=self.partition.tolerance)
        _, tolerance = check_partition(self.arms, size, candidate, self.settings["tolerance"])
        rounds = max(1, int(self.state.counts.sum()))
        ranks = [int(part.ranks.max(initial=1)) for part in (self.partition, candidate)]
        now = predicted_regret(self.partition.n_clusters, ranks[0], float(self.state.clusters["share"][0]), rounds)
        share = self._share(candidate.n_clusters, int(self.state.control["partitions"][0]) + 1)
        then = predicted_regret(candidate.n_clusters, ranks[1], share, rounds)
        before, done = self.partition.n_clusters, force or then < now
        if done:
            self.settings["tolerance"] = tolerance
            self._rebuild(candidate)
        return Repartition(before, candidate.n_clusters, then / now, done)

    def _check_independent(self, partition: Partition | None) -> None:
        """Refuse a partition that may depend on rewards."""
        if self.state.control["round"][0] == 1:
            return
        why = "clusters that may depend on rewards leave the bounds without their guarantee"
        if partition is not None:
            raise ValueError(f"partition must be None or force=True once rewards are recorded, got a Partition: {why}")
        if self._grown:
            done = "arms were added or freed after rewards were recorded"
            raise ValueError(f"force must be True where {done}, got False: {why}")

    def _extra(self) -> dict[str, NDArray[Any]]:
        part, freed = self.partition, self._freed
        return {
            **super()._extra(),
            **({} if freed == NONE_FREED else {"freed": np.array(freed, np.int64)}),
            "grown": np.array(self._grown, np.int64),
            "labels": part.labels,
            "ranks": part.ranks,
            "bases": part.bases,
            "tolerance": np.array(part.tolerance),
        }

    def _restore(self, saved: Saved, sizes: dict[str, int]) -> None:
        super()._restore(saved, sizes)
        if "freed" in saved.arrays:
            freed = take_array(saved, "freed", Annotated[Ints, "3"], sizes)
            within(saved, "freed", freed, 0, 2**62)
            self._freed = Freed(*freed.tolist())
        self._grown = self._was_grown(saved, sizes)
        labels = take_array(saved, "labels", Annotated[Ints, "n"], sizes)
        ranks = take_array(saved, "ranks", Annotated[Ints, "clusters"], sizes)
        within(saved, "ranks", ranks, 0, self.dim)
        within(saved, "labels", labels, 0, ranks.size - 1)
        bases = take_array(saved, "bases", Annotated[Floats, "rows d"], {**sizes, "rows": int(ranks.sum())})
        tolerance = float(take_array(saved, "tolerance", Annotated[Floats, ""], sizes))
        for array in (labels, ranks, bases):
            array.setflags(write=False)
        self._partition = Partition(labels, ranks, bases, self.settings["sketch_size"], tolerance)

    def _was_grown(self, saved: Saved, sizes: dict[str, int]) -> bool:
        """Whether arms were added to a policy with rewards; older files do not say, so where it cannot be excluded."""
        if saved.format >= 3:
            return bool(take_array(saved, "grown", Annotated[Ints, ""], sizes))
        # CS-LB counts its first clusters from its first new arm on, multi-scale from the start.
        return bool(self.state.control["round"][0] > 1 and self.state.control["first_clusters"][0] > 0)

    def _check_indices(self, saved: Saved) -> None:
        super()._check_indices(saved)
        check_places(saved, self.state, self.n_arms, self.dim)

    def _add(self, arm: Floats) -> int:
        """Give one arm its slot; returns its cluster."""
        assert self._spans is not None
        found = self._spans.find(arm)
        self._make_slot(found)
        self._spans.extend(found)
        c, state = found.cluster, self.state
        own = state.clusters[c]
        slot = int(own["start"] + np.flatnonzero(self._free(c))[0])
        rank = int(self._spans.ranks[c])
        basis = self._spans.bases[c, :rank]
        coordinates_of(own, state.fits)[:rank, slot - own["start"]] = basis @ arm
        self._keep(arm)
        state.place[:2, self.n_arms] = slot, c
        state.stats[:, slot] = 0.0
        norm, off = float(np.linalg.norm(arm)), float(np.linalg.norm(arm - basis.T @ (basis @ arm)))
        if self._spans.tolerance <= NEGLIGIBLE:
            self._note_off(off, norm)
            off = 0.0
        state.stats[CAP, slot], state.stats[OFF_SPAN, slot] = self.settings["theta_norm"] * norm, off
        state.stats[OFFSET, slot] = self.settings["theta_norm"] * off
        state.place[ARM_AT, slot] = self.n_arms
        self._place_in_fit(c, slot)
        self._admit(self.n_arms, slot, c, arm)
        self.n_arms += 1
        return c

    def _note_off(self, off: float, norm: float) -> None:
        """Something stands for an arm of this norm that is so far off."""
        if off > ROUNDING * norm:
            self._off = max(self._off, off)

    def _place_in_fit(self, c: int, slot: int) -> None:
        """The new arm's mean and width."""
        state = self.state
        own = state.clusters[c]
        i = slot - int(own["start"])
        if own["form"] != MANY:
            refit(state, c)
            return
        w = frame_of(own, state.fits) @ coordinates_of(own, state.fits)[:, i]
        whitened_of(own, state.fits)[:, i] = w
        state.stats[MEAN, slot] = estimate_of(own, state.fits) @ w
        state.stats[WIDTH2, slot] = w @ core(own, state.fits, int(own["rank"])) @ w

    def _free(self, c: int) -> NDArray[np.bool_]:
        own = self.state.clusters[c]
        free: NDArray[np.bool_] = self.state.place[ARM_AT, own["start"] : own["start"] + own["size"]] < 0
        return free

    def _make_slot(self, found: Placement) -> None:
        """A free slot in the arm's cluster, and a free coordinate where it brings a direction."""
        assert self._spans is not None
        c, state, rank = found.cluster, self.state, self._spans.rank
        sizes, ranks = state.clusters["size"].copy(), state.clusters["rank"].copy()
        new = c == sizes.size
        if new:
            more = max(1, c // SPARE)
            sizes, ranks = np.append(sizes, np.full(more, rank)), np.append(ranks, np.full(more, rank))
        elif not self._free(c).any():
            sizes[c] *= 2
        if found.direction is not None and self._rank_of(c) == ranks[c]:
            ranks[c] = rank
        if new or sizes[c] != state.clusters["size"][c] or ranks[c] != state.clusters["rank"][c]:
            self.state = with_slots(state, sizes, ranks, self._scan)
        if c == self._spans.ranks.size:
            self._open(c)

    def _rank_of(self, c: int) -> int:
        assert self._spans is not None
        return int(self._spans.ranks[c]) if c < self._spans.ranks.size else 0

    def _open(self, c: int) -> None:
        """Cluster ``c`` opens: its part of delta."""
        clusters, first = self.state.clusters, int(self.state.control["first_clusters"][0])
        clusters["share"][c] = clusters["share"][0] + later_share(c + 1 + self._freed.clusters - first)

    def _keep(self, arm: Floats) -> None:
        """Append to ``arms``, with capacity for as many again."""
        if self._buffer is None or len(self._buffer) == self.n_arms:
            buffer = np.empty((2 * self.n_arms, self.dim))
            buffer[: self.n_arms] = self.arms
            self._buffer = buffer
        self._buffer[self.n_arms] = arm
        self.arms = self._buffer[: self.n_arms + 1]
        self.arms.setflags(write=False)

    @property
    def _scan(self) -> str:
        """How large clusters are searched."""
        raise NotImplementedError

    def _begin_later_shares(self) -> None:
        """Set a part of delta aside for later clusters."""

    def _admit(self, arm: int, slot: int, cluster: int, x: Floats) -> None:
        """What else a policy keeps of an arm."""

    def _renew(self, clusters: set[int]) -> None:
        """Renew these clusters' sentinels, then the choice."""
        for c in sorted(clusters):  # a choice in between could spend the budget of the space's fit
            self.state.control["changed"] = c
            take_step(self.state, 0, 0.0, RENEW)
        renew_choice(self.state)

    def _renew_all(self) -> None:
        """Renew every cluster's sentinel, then the choice."""
        self.state.control["changed"] = EVERY
        self._refresh_radius()
        renew_choice(self.state)

    def _share(self, count: int, partitions: int) -> float:
        """``ln(1/delta')`` of each of ``count`` clusters known at first, on the ``partitions``-th partition."""
        raise NotImplementedError

    def _build_state(self, partitions: int = 1) -> None:
        """The state before the first reward, on the ``partitions``-th partition."""
        raise NotImplementedError

    def _restore_scales(self, counts: Ints, sums: Floats) -> None:
        """What else there is to rebuild from every arm's count and sum."""

    def _rebuild(self, partition: Partition) -> None:
        """The state rebuilt on another partition, from every arm's count and sum."""
        slots, partitions = self.state.place[SLOT, : self.n_arms], int(self.state.control["partitions"][0]) + 1
        counts, sums, active = self.state.counts[slots], self.state.stats[[SUM, LOST]][:, slots], self.active
        seen = self._seen.copy()
        self._partition, self._spans, self._freed = partition, None, NONE_FREED
        self._build_state(partitions)
        self.state.control["seen"] = seen
        self.state.control["first_clusters"], self.state.control["partitions"] = partition.n_clusters, partitions
        restore_rewards(self.state, counts, sums, active)
        self._restore_scales(counts, sums.sum(axis=0))
        self._renew_all()
