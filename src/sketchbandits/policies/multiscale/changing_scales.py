"""Arms that come and go in multi-scale CS-LB: their rays, their coordinates in the space, shares of delta, budgets.

A new arm joins a ray of its cluster or opens one, and gets coordinates in the space of all arms, which grows where it
leaves their span (`space_basis`). What freed arms taught is in `freeing`.
"""

import math
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import UNBIASED
from sketchbandits.kernels.linalg import Floats
from sketchbandits.partition.growing_spans import Placement
from sketchbandits.policies.cslb.changing_clusters import ChangingClusters
from sketchbandits.policies.cslb.freeing import Plan
from sketchbandits.policies.cslb.layout import ARM_AT, NEGLIGIBLE, SLOT, Records
from sketchbandits.policies.effective_rank import prior_variance
from sketchbandits.policies.multiscale.freeing import waiting_parts, with_scales
from sketchbandits.policies.multiscale.rays import RAY_PULLS
from sketchbandits.policies.multiscale.space_basis import (
    MOST_DIMENSIONS,
    ask_all,
    coordinates,
    doublings,
    grown_basis,
    raise_ridge,
    wanted_ridge,
    widened,
)
from sketchbandits.policies.multiscale.state import (
    BOUND,
    LENGTH,
    OUTSIDE,
    RAY,
    RAY_RECORD,
    SPACE,
    WAITING_RECORD,
    ray_in_cluster,
)
from sketchbandits.policies.parameters import Shared, radius_record
from sketchbandits.policies.remainder import Remainder
from sketchbandits.snapshot import Saved, take_array

SHARES = {"direction": 0.5, "cluster": 0.1, "space": 0.4}
LEAST_LEFT = 1e-15  # of delta, for rays: below it subtraction has left nothing but rounding
FIRST_RIDGE = 0.75  # of the space's part of delta, where there may be further ridges
LEAST_BUDGET = 2048
LEAST_NEWS, MOST_NEWS = 1.0 / 16.0, 0.5  # growth of ln det V from which a new fit of the space is worth its work
NEWS_PER_DIMENSION = 0.01  # of a fit that looks at all arms at once
SAVED_ROUNDS = 16  # budgets that may be saved up, so that no round is much longer than the others


def partition_share(j: int) -> float:
    """The j-th partition's part of delta: nine tenths for the first, ``1/(10 j (j - 1))`` for later ones, in all 1."""
    return 0.9 if j == 1 else 0.1 / (j * (j - 1.0))


def ridge_share(j: int, most: int) -> float:
    """The part of the j-th of at most ``most`` ridges: three quarters for the first, the rest for all others alike."""
    if most == 1:
        return 1.0
    return FIRST_RIDGE if j == 1 else (1.0 - FIRST_RIDGE) / (most - 1)


def most_ridges(rank: float, dim: int) -> int:
    """How many ridges, each twice the one before, arms of ``dim`` features may want as their effective rank grows."""
    return 1 + doublings(min(dim, MOST_DIMENSIONS) / rank)


def auto_budget(n_arms: int, dim: int) -> int:
    """The operations that ``budget="auto"`` means: a row of the space's fit and half of all estimates."""
    return max(LEAST_BUDGET, 3 * dim**2 + n_arms * dim // 2)


class ChangingScales(ChangingClusters):
    """What multi-scale CS-LB keeps of an arm beside its cluster, for arms known at first and for later ones."""

    _basis: Floats  # of the space, one direction per row

    @property
    def _unit(self) -> float:
        """``(R/S)^2``: a scale's ridge is its rank times this."""
        return prior_variance(*(self.settings[name] for name in ("noise", "theta_norm", "arm_norm")))

    def _shared(self, ridge: float) -> Shared:
        given = {name: self.settings[name] for name in Shared._fields}
        return Shared(**{**given, "ridge": ridge})

    def _radius(self, rank: float, log_share: float, kind: str | None = None) -> Records:
        """A scale's radius: with the ridge that was given, or the one that suits its rank."""
        ridge = self.settings["ridge"] or rank * self._unit
        return radius_record(kind or self.settings["radius"], self._shared(ridge), dim=0, log_share=log_share)

    def _ray_ridge(self, direction: Records, length: Any) -> Any:
        """The ridge of a ray by the length of its first arm; a radius with a bias term belongs to one ridge."""
        if self.settings["ridge"] is None and direction["kind"][0] == UNBIASED:
            return RAY_PULLS * np.square(length)
        return float(direction["ridge"][0])

    def _share(self, count: int, partitions: int, scale: str = "cluster") -> float:
        """``ln(1/delta')`` of one of ``count`` rays or clusters known at first."""
        return math.log((count + 1) / self._part(scale, partitions))

    def _part(self, scale: str, partitions: int) -> float:
        """What all rays or clusters of a partition may spend of delta."""
        return SHARES[scale] * partition_share(partitions) * float(self.settings["delta"])

    def _space_share(self, ridges: int, most: int) -> float:
        """``ln(1/delta')`` of the space with its ``ridges``-th ridge of at most ``most``."""
        return -math.log(SHARES["space"] * ridge_share(ridges, most) * self.settings["delta"])

    def _set_budget(self, space: Records, n_arms: int, dim: int) -> None:
        """The operations of a round, and the news from which a new fit is made."""
        budget = self.settings["budget"]
        if budget == "auto":
            budget = auto_budget(n_arms, dim)
        space["budget"], space["most"] = float(budget), SAVED_ROUNDS * float(budget) + 8.0 * dim**2
        draws = self.settings["explore"] == "randomised"
        space["least_news"] = min(MOST_NEWS, max(LEAST_NEWS, NEWS_PER_DIMENSION * dim)) if draws else LEAST_NEWS

    def copy(self) -> Self:
        """An independent policy in the same state."""
        twin = super().copy()
        twin._basis = self._basis
        return twin

    def _append_arms(self, arms: Floats) -> None:
        self._grow_space(arms)
        super()._append_arms(arms)
        self._share_among_rays()
        self._follow_rank()

    def _grow_space(self, arms: Floats) -> None:
        """Give the space a further coordinate for every new arm that leaves the span of those before it."""
        if self.settings["budget"] == 0:
            return
        self._basis = grown_basis(self._basis, arms, MOST_DIMENSIONS)
        if len(self._basis) > self.state.features.shape[1]:
            self.state = widened(self.state, len(self._basis))

    def _follow_rank(self) -> None:
        """The budget, and the ridge where the effective rank of all arms has doubled."""
        d, space = self.state.features.shape[1], self.state.space
        self._set_budget(space, self.n_arms, d)
        ridges, most = int(space["ridges"][0]), int(space["most_ridges"][0])
        if ridges == most or d == 0:
            return
        more = doublings(wanted_ridge(self.state, self.n_arms, self._unit) / float(space["radius"]["ridge"][0]))
        more = min(more, most - ridges)
        if more > 0:
            raise_ridge(self.state, more, self._space_share(ridges + more, most))
            self._renew_all()

    def _make_slot(self, found: Placement) -> None:
        before = self.state
        super()._make_slot(found)
        if self.state is not before:  # free slots are on no ray, and no draw chooses them
            free = self.state.place[ARM_AT] < 0
            self.state.stats[RAY, free], self.state.stats[BOUND, free] = -1.0, -np.inf

    def _admit(self, arm: int, slot: int, cluster: int, x: Floats) -> None:
        """The new arm's ray, found among its cluster's or new, and its place in the space."""
        self._grow_per_arm()
        g, length = self._ray_of(arm, cluster, x)
        state = self.state  # not before: a new ray may have moved it
        state.stats[RAY, slot], state.stats[LENGTH, slot], state.stats[SPACE, slot] = g, length, np.inf
        state.waiting[arm] = np.zeros((), WAITING_RECORD)
        stamp, features = coordinates(x[None], self._basis)
        state.waiting["stamp"][arm], state.features[arm] = stamp[0], features[0]
        state.space["outside"] += int(stamp[0] == OUTSIDE)
        ask_all(state, np.array([slot]))

    def _ray_of(self, arm: int, cluster: int, x: Floats) -> tuple[int, float]:
        """The ray of a new arm, found among those of its cluster or opened, and its signed length: O(|C| d)."""
        norm = float(np.linalg.norm(x))
        if norm == 0.0:
            return -1, 0.0
        tolerance = min(self.partition_tolerance, NEGLIGIBLE)
        found = ray_in_cluster(self.state, self.state.clusters[cluster], self.arms, arm, tolerance)
        if found is None:
            return self._open_ray(norm), norm
        ray, length, off = found
        self._note_off(off, norm)
        return ray, length

    @property
    def partition_tolerance(self) -> float:
        """The share of its norm by which an arm may be off its cluster's span."""
        return self._spans.tolerance if self._spans is not None else self.partition.tolerance

    def _share_among_rays(self) -> None:
        """Divide what rays with rewards have left of delta among those without, and as many as came later.

        A ray without a reward has no interval yet, so its share may still be changed, whatever was seen of others.
        """
        space = self.state.space[0]
        later = max(0, int(space["n_rays"]) + self._freed.rays - int(space["first_rays"]))
        left = max(float(space["ray_left"]), LEAST_LEFT * self.settings["delta"])
        space["ray_share"] = math.log((int(space["untaught"]) + 1 + later) / left)

    def _open_ray(self, length: float) -> int:
        state = self.state
        g = int(state.space["n_rays"][0])
        if g == state.rays.size:
            self.state = state = state._replace(rays=np.concatenate([state.rays, np.zeros_like(state.rays)]))
        state.rays[g] = np.zeros((), RAY_RECORD)
        state.rays["ridge"][g] = self._ray_ridge(state.space["direction"], length)
        state.rays["share"][g] = state.space["ray_share"][0]
        state.space["n_rays"] += 1
        state.space["untaught"] += 1
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
        state.space["arms_seen"] = plan.kept.size
        self._set_budget(state.space, plan.labels.size, state.features.shape[1])
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
        taught, space = int((state.rays["information"] > 0.0).sum()), state.space
        space["untaught"] -= taught
        space["ray_left"] -= taught * np.exp(-space["ray_share"])

    def _extra(self) -> dict[str, NDArray[Any]]:
        return {**super()._extra(), "basis": self._basis}

    def _restore(self, saved: Saved, sizes: dict[str, int]) -> None:
        super()._restore(saved, sizes)
        self._basis = take_array(saved, "basis", Annotated[Floats, "p d"], sizes)
