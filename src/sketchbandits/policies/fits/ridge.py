"""The exact ridge fit on a fixed arm set, shared by OFUL, LinUCB, LinTS and CBRAP.

    V = ridge I + sum x x' ,  mean_i = x_i.theta_hat ,  width2_i = ||x_i||^2_{V^-1}

kept for all arms by rank-one steps in whitened coordinates (`kernels.linalg`): O(d^2 + N d) a round, and a
refit in O((N + d) d^2) from per-arm sums after large or many steps. Memory O(N d + d^2).
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from sketchbandits import snapshot
from sketchbandits.confidence import RIDGE, VALUE, radius_value
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import (
    MAX_GROWTH,
    MAX_STEP,
    MAX_STEPS,
    Floats,
    Ints,
    add_exactly,
    combine,
    downdate,
    evaluate,
    identity,
    ridge_step,
    tied_argmax,
    whiten,
)
from sketchbandits.policies.base import Policy
from sketchbandits.policies.changing_arms import OneFit, widened
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.parameters import called_radius
from sketchbandits.policies.pending.rule import Outlook, grow, new_outlook, register_outlook
from sketchbandits.policies.rounds import LOST, MEAN, SUM, WIDTH2, register

SAMPLES, LOGDET, GROWTH, STEPS, SWITCH, SWITCHED_AT = range(6)  # entries of ``level``


class RidgeState(NamedTuple):
    """Per-arm statistics and the inverse in whitened coordinates."""

    choice: Annotated[Ints, "1"]
    counts: Annotated[Ints, "n"]
    stats: Annotated[Floats, "4 n"]  # per arm: MEAN, WIDTH2, SUM, LOST
    coordinates: Annotated[Floats, "r n"]  # arms as columns
    whitened: Annotated[Floats, "r n"]
    inverse: Annotated[Floats, "r r"]
    level: Annotated[Floats, "6"]
    radius: Annotated[Floats, "9"]
    closed: Annotated[Floats, "n"]  # per arm 0, or -inf once it is removed
    work: Annotated[Floats, "n+r"]


def build(arms: Floats, radius: Floats, *, switching: float | None = None) -> RidgeState:
    """The state before the first reward; ``switching=C`` lets the choice stand until det V has grown by 1 + C."""
    n, d = arms.shape
    coordinates = arms.T.copy(order="C")  # writable, as a copy's are: another type would be compiled again
    stats = np.zeros((4, n))
    stats[WIDTH2] = (arms**2).sum(axis=1) / radius[RIDGE]
    level = np.zeros(6)
    level[SWITCH] = 0.0 if switching is None else np.log1p(switching)
    level[SWITCHED_AT] = -np.inf
    level[GROWTH] = 1.0
    return RidgeState(
        choice=np.zeros(1, np.int64),
        counts=np.zeros(n, np.int64),
        stats=stats,
        coordinates=coordinates,
        whitened=coordinates / np.sqrt(radius[RIDGE]),
        inverse=np.eye(d),
        level=level,
        radius=radius,
        closed=np.zeros(n),
        work=np.zeros(n + d),
    )


@kernel
def book(state: Any, arm: int, reward: float) -> None:
    """Count a reward for its arm."""
    state.counts[arm] += 1
    add_exactly(state.stats[SUM], state.stats[LOST], arm, reward)
    state.level[SAMPLES] += 1.0


@kernel
def refit_all(state: Any) -> None:
    """All statistics from per-arm counts and sums, in freshly whitened coordinates."""
    stats = state.stats
    theta = state.work[: state.inverse.shape[0]]
    Z, W, ridge = state.coordinates, state.whitened, state.radius[RIDGE]
    state.level[LOGDET] = whiten(Z, state.counts, stats[SUM], stats[LOST], ridge, W, theta, state.inverse)
    evaluate(W, theta, stats[MEAN], stats[WIDTH2])
    identity(state.inverse)
    state.level[GROWTH] = 1.0
    state.level[STEPS] = 0.0


@kernel
def step_is_sound(level: Floats, W: Floats, arm: int, D: float) -> bool:
    """Count a step that multiplied det V by ``D``; False where the statistics need a refit instead.

    The trace of what was added since the last fit bounds the inverse's condition, and in many dimensions far better
    than the determinant does.
    """
    if not 1.0 <= D <= MAX_STEP:
        return False
    level[LOGDET] += np.log(D)
    for k in range(W.shape[0]):
        level[GROWTH] += W[k, arm] ** 2
    level[STEPS] += 1.0
    return level[GROWTH] <= MAX_GROWTH and level[STEPS] < MAX_STEPS


@kernel
def absorb(state: RidgeState, arm: int, reward: float) -> None:
    """Book a reward; between switches only V is kept up, the arms' means and widths wait for the next switch."""
    book(state, arm, reward)
    d = state.inverse.shape[0]
    u, g = state.work[:d], state.work[d:]
    W, A = state.whitened, state.inverse
    if state.level[SWITCH] > 0.0:
        combine(W[:, arm], A, u)
        D = 1.0
        for k in range(d):
            D += u[k] * W[k, arm]
        if 1.0 <= D <= MAX_STEP:
            downdate(A, u, 1.0 / D)
    else:
        D = ridge_step(A, W, state.stats[MEAN], state.stats[WIDTH2], u, g, arm, reward)
    if not step_is_sound(state.level, W, arm, D):
        refit_all(state)


@kernel
def choose(state: RidgeState) -> None:
    """The largest upper confidence bound, or the standing choice until it is time to switch."""
    level = state.level
    if level[SWITCH] > 0.0:
        if level[LOGDET] < level[SWITCHED_AT] + level[SWITCH]:
            return
        level[SWITCHED_AT] = level[LOGDET]
        refit_all(state)
    values = state.work[state.inverse.shape[0] :]
    fill_bounds(state, values)
    for i in range(values.size):
        values[i] += state.closed[i]
    state.choice[0] = tied_argmax(values)


@kernel
def fill_bounds(state: Any, out: Floats) -> None:
    """``mean + beta width`` for every arm."""
    beta = radius_value(state.radius, state.level[SAMPLES], state.level[LOGDET])
    mean, width2 = state.stats[MEAN], state.stats[WIDTH2]
    for i in range(out.size):
        out[i] = mean[i] + beta * np.sqrt(width2[i])


register(RidgeState, absorb=absorb, choose=choose)


class RidgeModel(NamedTuple):
    """What pending pulls change, and the whitened arms."""

    inverse: Floats
    whitened: Floats
    work: Floats


@kernel
def discount(model: RidgeModel, outlook: Outlook, slot: int) -> None:
    """One more pull of ``slot`` returned its mean."""
    d, stats = model.inverse.shape[0], outlook.stats
    grow(outlook, 0, 1.0 + stats[WIDTH2, slot])
    u, g = model.work[:d], model.work[d:]
    ridge_step(model.inverse, model.whitened, stats[MEAN], stats[WIDTH2], u, g, slot, stats[MEAN, slot])


register_outlook(RidgeModel, discount=discount)


class RidgePolicy(Policy):
    """A policy whose state holds an exact ridge fit of all arms."""

    @exclusive
    def bounds(self) -> Floats:
        """``x.theta_hat + beta ||x||_{V^-1}`` for every arm."""
        out = np.empty(self.n_arms)
        fill_bounds(self._today(), out)
        return out

    @exclusive
    def estimates(self) -> Floats:
        """``x.theta_hat`` for every arm."""
        return np.array(self._today().stats[MEAN])

    def _today(self) -> Any:
        """The state with means and widths as of the last reward; rarely switching policies keep older ones."""
        if self.state.level[SWITCH] == 0.0:
            return self.state
        state = snapshot.copy_state(self.state)
        refit_all(state)
        return state

    def _outlook(self) -> Outlook:
        state = self._today()
        model = RidgeModel(state.inverse.copy(), state.whitened, np.empty(state.work.size))
        beta = radius_value(state.radius, state.level[SAMPLES], state.level[LOGDET])
        return new_outlook(model, state.stats, beta)

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "r": self.dim}

    def _refresh_radius(self) -> None:
        if self._radius_is_function:
            level = self.state.level
            self.state.radius[VALUE] = called_radius(self.settings["radius"], level[SAMPLES], level[LOGDET])

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return RidgeState


class ChangingRidge(RidgePolicy, OneFit):
    """A ridge fit of the arms' own features, to which arms may be added."""

    def _check_new(self, arms: Floats) -> None:
        largest, limit = float(np.linalg.norm(arms, axis=1).max()), self.settings.get("arm_norm")
        if self.settings.get("radius") == "closed" and limit is not None and largest > limit * (1 + 1e-9):
            raise ValueError(f"arms must have norms up to arm_norm = {limit:g} with radius='closed', got {largest:g}")

    def _with_arms(self, arms: Floats) -> RidgeState:
        state, more = self.state, len(arms)
        columns = np.concatenate([state.coordinates, arms.T], axis=1)
        rest = {name: widened(getattr(state, name), more) for name in ("counts", "stats", "whitened", "closed", "work")}
        grown: RidgeState = snapshot.copy_state(state._replace(coordinates=columns, **rest))
        grown.level[SWITCHED_AT] = -np.inf
        refit_all(grown)
        return grown

    def _forget_choice(self) -> None:
        self.state.level[SWITCHED_AT] = -np.inf
