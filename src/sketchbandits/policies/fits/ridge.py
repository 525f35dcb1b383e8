"""The exact ridge fit on a fixed arm set, shared by OFUL, LinUCB, LinTS and CBRAP.

    V = ridge I + sum x x' ,  mean_i = x_i.theta_hat ,  width2_i = ||x_i||^2_{V^-1}

kept for all arms by rank-one steps in whitened coordinates (`kernels.linalg`): O(d^2 + N d) per round, and a
refit in O((N + d) d^2) from per-arm sums after large or many steps. Memory O(N d + d^2).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits import snapshot
from sketchbandits.confidence import RADIUS, radius_value
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import (
    MAX_GROWTH,
    MAX_STEP,
    MAX_STEPS,
    Floats,
    Ints,
    add_exactly,
    tied_argmax,
)
from sketchbandits.kernels.whitening import ridge_step, whitened_fit
from sketchbandits.policies.base import Policy
from sketchbandits.policies.changing_arms import OneFit, columns, widened
from sketchbandits.policies.format_1 import convert_ridge
from sketchbandits.policies.format_2 import arms_with_rewards, begin_to_watch_in
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.parameters import called_radius
from sketchbandits.policies.pending.rule import PendingBounds, grow, new_bounds, register_model
from sketchbandits.policies.remainder import remainder_of
from sketchbandits.policies.rounds import AFTER, BEFORE, DONE, LOST, MEAN, SUM, WIDTH2, register
from sketchbandits.policies.scatter import SEEN, note

LEVEL = np.dtype(
    [
        ("samples", np.float64),  # rewards recorded
        ("logdet", np.float64),  # ln det(V/ridge)
        ("growth", np.float64),  # since the last refit: one plus the trace of what was added to the whitened V
        ("steps", np.float64),  # since the last refit
        ("refit", np.float64),  # 1 where one is due
        ("switch", np.float64),  # ln(1 + C) for a rarely switching fit (`switching`), 0 for the others
        ("switched_at", np.float64),  # ln det at the last switch
        ("seen", SEEN),
    ]
)

_UNCAPPED = np.array(np.inf)
ROUNDED_NORM = 1e-6  # arms of float32, or from a file with few digits, may be longer than ``arm_norm`` by so much


class RidgeState(NamedTuple):
    """Per-arm statistics and the inverse in whitened coordinates."""

    choice: Annotated[Ints, "1"]
    counts: Annotated[Ints, "n"]
    stats: Annotated[Floats, "4 n"]  # per arm: MEAN, WIDTH2, SUM, LOST
    coordinates: Annotated[Floats, "r n"]  # arms as columns
    whitened: Annotated[Floats, "r n"]
    inverse: Annotated[Floats, "r r"]
    level: Annotated[NDArray[Any], "1", LEVEL]
    radius: Annotated[NDArray[Any], "1", RADIUS]
    closed: Annotated[Floats, "n"]  # per arm 0, or -inf once it is removed
    work: Annotated[Floats, "n+2r"]


def build(arms: Floats, radius: NDArray[Any]) -> RidgeState:
    """The state before the first reward."""
    n, d = arms.shape
    coordinates = arms.T.copy(order="C")  # writable, as a copy's are: another type would be compiled again
    stats = np.zeros((4, n))
    stats[WIDTH2] = (arms**2).sum(axis=1) / radius["ridge"]
    level = np.zeros(1, LEVEL)
    level["switched_at"], level["growth"] = -np.inf, 1.0
    return RidgeState(
        choice=np.zeros(1, np.int64),
        counts=np.zeros(n, np.int64),
        stats=stats,
        coordinates=coordinates,
        whitened=coordinates / np.sqrt(radius["ridge"]),
        inverse=np.eye(d),
        level=level,
        radius=radius,
        closed=np.zeros(n),
        work=np.zeros(n + 2 * d),
    )


@kernel
def record(counts: Ints, stats: Floats, level: Any, arm: int, reward: float) -> None:
    """Count a reward for its arm."""
    note(level["seen"], counts[arm], stats[SUM, arm] + stats[LOST, arm], reward)
    counts[arm] += 1
    add_exactly(stats, SUM, arm, reward)
    level["samples"] += 1.0


def refit(state: Any) -> None:
    """All statistics from per-arm counts and sums, in freshly whitened coordinates.

    Not compiled: it is rare compared with a round, and a first decision need not wait for its compilation.
    """
    stats, level, ridge = state.stats, state.level, float(state.radius["ridge"][0])
    fit = whitened_fit(state.coordinates, state.counts, stats[SUM] + stats[LOST], ridge)
    state.whitened[:], level["logdet"] = fit.W, fit.logdet
    stats[MEAN], stats[WIDTH2] = fit.theta @ fit.W, (fit.W**2).sum(axis=0)
    state.inverse[:] = np.eye(len(fit.theta))
    level["growth"], level["steps"] = 1.0, 0.0


def settled(state: Any) -> None:
    """A refit that was due, and the choice after it, are done."""
    state.level["refit"] = 0.0


@kernel
def step_is_sound(level: Any, W: Floats, arm: int, D: float) -> bool:
    """Count a step that multiplied det V by ``D``; False where the statistics need a refit instead.

    The trace of what was added since the last fit bounds the inverse's condition, and in many dimensions far better
    than the determinant does.
    """
    level["refit"] = 1.0
    if not 1.0 <= D <= MAX_STEP:
        return False
    level["logdet"] += np.log(D)
    growth = level["growth"]
    for k in range(W.shape[0]):
        growth += W[k, arm] ** 2
    level["growth"] = growth
    level["steps"] += 1.0
    if growth > MAX_GROWTH or level["steps"] >= MAX_STEPS:
        return False
    level["refit"] = 0.0
    return True


@kernel
def absorb(state: RidgeState, arm: int, reward: float) -> int:
    """Record a reward."""
    level, stats, W = state.level[0], state.stats, state.whitened
    if level["refit"] > 0.0:
        return BEFORE
    record(state.counts, stats, level, arm, reward)
    D = ridge_step(state.inverse, W, stats[MEAN], stats[WIDTH2], state.work, arm, reward)
    return DONE if step_is_sound(level, W, arm, D) else AFTER


@kernel
def choose(state: Any) -> int:
    """Write the arm with the largest upper confidence bound into the state."""
    values = state.work[2 * state.inverse.shape[0] :]
    fill_bounds(state.radius[0], state.level[0], state.stats, values)
    for i in range(values.size):
        values[i] += state.closed[i]
    state.choice[0] = tied_argmax(values)
    return DONE


@kernel
def fill_bounds(radius: Any, level: Any, stats: Floats, out: Floats) -> None:
    """``mean + beta width`` for every arm."""
    beta = radius_value(radius, level["samples"], level["logdet"])
    for i in range(out.size):
        out[i] = stats[MEAN, i] + beta * np.sqrt(stats[WIDTH2, i])


register(RidgeState, absorb=absorb, choose=choose, refit=refit, settled=settled)


class RidgeModel(NamedTuple):
    """What pending pulls change, and the whitened arms."""

    inverse: Floats
    whitened: Floats
    work: Floats


@kernel
def discount(model: RidgeModel, pending: PendingBounds, slot: int) -> None:
    """One more pull of ``slot`` returned its mean."""
    stats, mean = pending.stats, pending.stats[MEAN, slot]
    grow(pending, 0, 1.0 + stats[WIDTH2, slot])
    ridge_step(model.inverse, model.whitened, stats[MEAN], stats[WIDTH2], model.work, slot, mean)


register_model(RidgeModel, discount=discount)


class RidgePolicy(Policy):
    """A policy whose state holds an exact ridge fit of all arms."""

    @exclusive
    def bounds(self) -> Floats:
        """``x.theta_hat + beta ||x||_{V^-1}`` for every arm, at most the prior's bound where the policy caps bounds."""
        state, out = self._today(), np.empty(self.n_arms)
        fill_bounds(state.radius[0], state.level[0], state.stats, out)
        return np.minimum(out, self._cap)

    @exclusive
    def estimates(self) -> Floats:
        """``x.theta_hat`` for every arm, at most its bound."""
        return np.minimum(self._today().stats[MEAN], self._cap)

    @property
    def _cap(self) -> Floats:
        """The largest value that each arm's bound may take: +inf unless the state has a row for it (`capped`)."""
        return getattr(self.state, "cap", _UNCAPPED)

    def _today(self) -> Any:
        """The state with means and widths as of the last reward; rarely switching policies keep older ones."""
        if self.state.level["switch"][0] == 0.0:
            return self.state
        state = snapshot.copy_state(self.state)
        refit(state)
        return state

    def _pending_bounds(self) -> PendingBounds:
        state = self._today()
        model = RidgeModel(state.inverse.copy(), state.whitened, np.empty(state.work.size))
        beta = radius_value(state.radius[0], state.level[0]["samples"], state.level[0]["logdet"])
        return new_bounds(model, state.stats, beta, cap=self._cap)

    @property
    def _seen(self) -> NDArray[Any]:
        seen: NDArray[Any] = self.state.level["seen"]
        return seen

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "r": self.dim}

    def _refresh_radius(self) -> None:
        if self._radius_is_function:
            level = self.state.level[0]
            self.state.radius["value"] = called_radius(self.settings["radius"], level["samples"], level["logdet"])

    @classmethod
    def _converted(cls, saved: snapshot.Saved) -> snapshot.Saved:
        if saved.format == 1:
            convert_ridge(saved, LEVEL)
        if saved.format < 3:
            begin_to_watch_in(saved, "state.level", LEVEL, arms_with_rewards(saved))
        return saved

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return RidgeState


class ChangingRidge(RidgePolicy, OneFit):
    """A ridge fit of the arms' own features, to which arms may be added."""

    def _check_new(self, arms: Floats) -> None:
        largest, limit = float(np.linalg.norm(arms, axis=1).max()), self._norm_limit
        if largest > limit * (1 + ROUNDED_NORM):
            # As many digits as show the difference.
            given = f"arm_norm = {limit:.12g} with radius='closed', got {largest:.12g}"
            raise ValueError(f"arms must have norms up to {given}")

    @property
    def _norm_limit(self) -> float:
        """How long an arm may be: only the closed radius rests on it."""
        return self.settings["arm_norm"] if self.settings.get("radius") == "closed" else np.inf

    def _with_arms(self, arms: Floats) -> RidgeState:
        state, more = self.state, len(arms)
        coordinates = np.concatenate([state.coordinates, arms.T], axis=1)
        names = ("counts", "stats", "whitened", "closed", "work", *self._more_rows)
        rest = {name: widened(getattr(state, name), more) for name in names}
        grown: RidgeState = snapshot.copy_state(state._replace(coordinates=coordinates, **rest))
        self._fill_more_rows(grown, arms)
        grown.level["switched_at"] = -np.inf
        refit(grown)
        self._widen_norm(grown, float(np.linalg.norm(arms, axis=1).max()))
        return grown

    @property
    def _more_rows(self) -> tuple[str, ...]:
        """Fields of the state, in addition to those of `RidgeState`, that have an entry per arm."""
        return ()

    def _fill_more_rows(self, state: Any, arms: Floats) -> None:
        """Write the last entries of these fields, those of ``arms``."""

    def _widen_norm(self, state: RidgeState, largest: float) -> None:
        """Let the closed radius cover an arm that is longer than ``arm_norm`` by rounding."""
        if largest > self._norm_limit:
            self.settings["arm_norm"] = largest
            state.radius["rate"] = largest**2 / state.radius["ridge"]

    def _without(self, kept: Ints, gone: Ints) -> tuple[RidgeState, Floats]:
        state, n = self.state, kept.size
        sums = state.stats[SUM, gone] + state.stats[LOST, gone]
        part = remainder_of(state.coordinates[:, gone], state.counts[gone], sums)
        names = ("coordinates", "counts", "stats", "whitened", "closed", *self._more_rows)
        more = part.counts.size
        left: RidgeState = state._replace(**{name: columns(getattr(state, name), kept, more) for name in names})
        left = snapshot.copy_state(left._replace(work=np.zeros(n + more + 2 * self.dim)))
        left.coordinates[:, n:], left.counts[n:], left.stats[SUM, n:] = part.columns, part.counts, part.sums
        left.closed[n:] = -np.inf
        self._fill_more_rows(left, part.columns.T)
        refit(left)
        return left, part.columns.T

    def _forget_choice(self) -> None:
        self.state.level["switched_at"] = -np.inf
