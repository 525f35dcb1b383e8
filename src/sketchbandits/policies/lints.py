"""LinTS, linear Thompson sampling: play the best arm of a parameter drawn around the ridge estimate.

    theta ~ theta_hat + v V^{-1/2} eta ,  eta standard normal ;   argmax_i x_i.theta

**Scale** theory (default): ``v = beta(delta')``, OFUL's radius, with ``delta' = delta/(4T)`` for ``horizon=T`` and
``delta/(t(t+1))`` without; ``scale=v`` is a free constant for practice. A function ``radius`` gives v itself.
**Cost** O(d^2 + N d) per round, O(N d + d^2) memory (`contextual`: O(n d + d^2) for n contexts, O(d^2) memory).
**Guarantee** the regret bound of Abeille and Lazaric in theory mode; `bounds` is OFUL's bound and its ellipsoid covers
theta* with probability ``1 - delta``. None for a free ``scale``.
**Reference** Agrawal and Goyal, ICML 2013, Algorithm 1; Abeille and Lazaric, AISTATS 2017, Figure 1.
**Departures** The draw is a function of (seed, rewards recorded, number of pending decisions), so that `select` has no
side effect and a run can be replayed: pending decisions get a fresh draw each from the same distribution. It goes
through a kept factor of ``V^-1``, never an explicit matrix root.
"""

import math
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.confidence import RADIUS, SCALE, radius_at, sampling_share
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import new_key, normals
from sketchbandits.kernels.linalg import Floats, Ints, combine, matvec, tied_argmax
from sketchbandits.kernels.whitening import root_step
from sketchbandits.policies.base import Policy
from sketchbandits.policies.contextual import ContextualRidge
from sketchbandits.policies.contextual_form import ContextualForm, OwnParameters
from sketchbandits.policies.fits.ridge import LEVEL, RidgePolicy, build, record, refit, settled, step_is_sound
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.parameters import Radius, check_radius, check_shared, linear_radius
from sketchbandits.policies.pending.rule import Mask, draw_round, first_among
from sketchbandits.policies.rounds import AFTER, BEFORE, DONE, MEAN, WIDTH2, register, renew_choice


class LinTSState(NamedTuple):
    """As `ridge.RidgeState`, with a square root of the inverse in ``inverse``, and the key of the draws."""

    choice: Annotated[Ints, "1"]
    counts: Annotated[Ints, "n"]
    stats: Annotated[Floats, "4 n"]
    coordinates: Annotated[Floats, "r n"]
    whitened: Annotated[Floats, "r n"]
    inverse: Annotated[Floats, "r r"]
    level: Annotated[NDArray[Any], "1", LEVEL]
    radius: Annotated[NDArray[Any], "1", RADIUS]
    closed: Annotated[Floats, "n"]
    work: Annotated[Floats, "2r+n"]
    sampling: Annotated[Floats, "3"]  # SCALE, HORIZON, ln(1/delta)
    key: Annotated[NDArray[np.uint64], "2"]


@kernel
def absorb(state: LinTSState, arm: int, reward: float) -> int:
    """Record a reward."""
    level, stats = state.level[0], state.stats
    if level["refit"] > 0.0:
        return BEFORE
    record(state.counts, stats, level, arm, reward)
    D = root_step(state.inverse, state.whitened, stats[MEAN], stats[WIDTH2], state.work, arm, reward)
    return DONE if step_is_sound(level, state.whitened, arm, D) else AFTER


@kernel
def choose(state: LinTSState) -> int:
    """The best arm for this round's draw."""
    state.choice[0] = tied_argmax(draw_values(state, 0, state.work))
    return DONE


@kernel
def draw_values(state: LinTSState, index: int, work: Floats) -> Floats:
    """Every arm's value under this round's draw for the decision with ``index`` others pending; a part of ``work``."""
    d, n = state.whitened.shape
    eta, root, values = work[:d], work[d : 2 * d], work[2 * d : 2 * d + n]
    samples = state.level[0]["samples"]
    v = state.sampling[SCALE]
    if np.isnan(v):
        v = radius_at(state.radius[0], samples, state.level[0]["logdet"], sampling_share(state.sampling, samples))
    normals(state.key, draw_round(samples, index), eta)
    matvec(state.inverse, eta, root)
    combine(root, state.whitened, values)
    for i in range(n):
        values[i] = state.stats[MEAN, i] + v * values[i]
    return values


@kernel
def draw_picks(state: LinTSState, index: int, among: Mask, work: Floats, picks: Ints) -> None:
    """The best arm ``among`` those allowed for each of ``picks.size`` draws, from ``index`` on."""
    for i in range(picks.size):
        values = draw_values(state, index + i, work)
        picks[i] = first_among(values, values, among)


register(LinTSState, absorb=absorb, choose=choose, refit=refit, settled=settled)


def check_sampling(scale: float | None, horizon: int | None) -> dict[str, Any]:
    """The checked scale of Thompson draws."""
    return {
        "scale": None if scale is None else validate.number("scale", scale, least=0.0),
        "horizon": None if horizon is None else validate.whole("horizon", horizon),
    }


def sampling_array(settings: dict[str, Any]) -> Floats:
    """The scale of Thompson draws as kernels take it, from a policy's settings."""
    scale = math.nan if settings["scale"] is None else settings["scale"]
    return np.array([scale, settings["horizon"] or 0, -math.log(settings["delta"])])


class LinTS(ContextualForm, RidgePolicy):
    """LinTS, linear Thompson sampling: the best arm of a parameter drawn around the ridge estimate.

    For randomised decisions (their probabilities make logs that can be evaluated offline) and for delayed rewards,
    which its draws hardly notice. With the theory's scale it explores more than `OFUL`; a free ``scale`` is common
    in practice. `contextual` is the form for contexts that arrive each round.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    ridge
        The regulariser of the ridge fit, > 0 (default 1). It counts like ``ridge`` rewards of 0 in every direction.
        Keep 1 for arms of norm about 1; scale it with the squared norm otherwise.
    noise
        R, the scale of the reward noise, in units of the reward (default 1): the noise must be R-sub-Gaussian. 0.5
        is valid for every reward in [0, 1]. Too small and the bounds fail, too large and exploration is slow.
    theta_norm
        S, an upper bound on the norm of the unknown parameter, in units of the reward per unit of arm norm (default
        1).
    arm_norm
        L, an upper bound on the norms of the arms (default: the largest norm given; 1 for contexts).
    delta
        The probability with which the bounds may fail at any time, in (0, 1) (default 0.01).
    radius
        ``"closed"`` (default) grows with the number of rewards alone; ``"logdet"`` measures what was learned, is
        never larger and costs the same; or a function ``(n, logdet) -> beta`` of your own.
    scale
        A free factor of the draw, in units of the reward, >= 0 (default None: the theory's, which is conservative).
        0.1 to 1 times ``noise`` is common; no guarantee.
    horizon
        T, the rounds to be played, if known (default None): the theory's scale is a little smaller then.
    seed
        Draws depend on it, on the rewards recorded and on the number of pending decisions, and on nothing else.

    """

    contextual = OwnParameters()
    contextual_class = ContextualRidge

    def __init__(
        self,
        arms: ArrayLike,
        *,
        ridge: float = 1.0,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        arm_norm: float | None = None,
        delta: float = 0.01,
        radius: Radius = "closed",
        scale: float | None = None,
        horizon: int | None = None,
        seed: Any = None,
    ) -> None:
        super().__init__(arms)
        shared = {"ridge": ridge, "noise": noise, "theta_norm": theta_norm, "arm_norm": arm_norm, "delta": delta}
        self.settings = self._checked(self.arms, radius=radius, scale=scale, horizon=horizon, **shared)
        key = new_key(validate.generator(seed))
        with self._warm_up():
            fit = build(self.arms, linear_radius(self.settings, self.dim))
            self.state = LinTSState(*fit, sampling=sampling_array(self.settings), key=key)

    @staticmethod
    def _checked(
        arms: Floats | None, *, radius: Radius, scale: float | None, horizon: int | None, **shared: Any
    ) -> dict[str, Any]:
        checked = check_shared(**shared, arms=arms)._asdict()
        return {**checked, "radius": check_radius(radius), **check_sampling(scale, horizon)}

    @exclusive
    def reseed(self, seed: Any) -> None:
        """Draw from another stream from now on; what was learned stays."""
        self.state.key[:] = new_key(validate.generator(seed))
        renew_choice(self.state)

    _pending_bounds = Policy._pending_bounds  # pending decisions are spread by draws, not by bounds

    def _picks(self, count: int, allowed: Mask, waiting: Ints) -> Ints:
        picks = np.empty(count, np.int64)
        draw_picks(self.state, waiting.size, allowed, np.empty_like(self.state.work), picks)
        return picks

    @classmethod
    def _contextual(cls, *, dim: int, seed: Any, **given: Any) -> ContextualRidge:
        settings = cls._checked(None, **given)
        radius, sampling = linear_radius(settings, validate.whole("dim", dim)), sampling_array(settings)
        return ContextualRidge(cls.__name__, dim, settings, radius, sampling=sampling, seed=seed)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return LinTSState
