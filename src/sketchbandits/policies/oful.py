"""OFUL, optimism in the face of uncertainty for linear bandits: one ridge fit of all arms, O(d^2) per round.

    argmax_i  x_i.theta_hat + beta ||x_i||_{V^-1}

**Radius** ``"closed"`` (default): ``R sqrt(d ln(1 + n L^2/(ridge d)) + 2 ln(1/delta)) + sqrt(ridge) S`` with n rewards
recorded; ``"logdet"``: ``R sqrt(ln det(V/ridge) + 2 ln(1/delta)) + sqrt(ridge) S``; or a function
``(n, logdet) -> beta``.
**Switching** ``switching=C`` recomputes the choice only when det V has grown by a factor 1 + C (rarely switching OFUL):
O(d^2) per round, an O((N + d) d^2) refit at each of the O(d ln T / ln(1 + C)) switches, regret at most sqrt(1 + C)
times the bound.
**Cost** O(d^2 + N d) per round, O(N d + d^2) memory (`contextual`: O(n d^2) for n contexts, O(d^2) memory).
**Guarantee** the ellipsoid covers theta* at every round with probability ``1 - delta``.
**Reference** Abbasi-Yadkori, Pal and Szepesvari, NeurIPS 2011, Figures 1 and 3, Theorem 2.
**Departures** none in the arithmetic; ties within 1e-9 go to the lowest index.
"""

from typing import Any

from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.policies.contextual import ContextualRidge
from sketchbandits.policies.contextual_form import ContextualForm, OwnParameters
from sketchbandits.policies.fits.ridge import ChangingRidge, RidgeState, build
from sketchbandits.policies.fits.switching import SwitchingState, switching_state
from sketchbandits.policies.parameters import Radius, check_radius, check_shared, linear_radius


class OFUL(ContextualForm, ChangingRidge):
    """OFUL: one ridge fit of all arms, and a confidence ellipsoid that holds with probability ``1 - delta``.

    The reference with a guarantee: regret of order ``d sqrt(T)`` whatever the arms. O(d^2 + N d) per round: with
    many dimensions or arms `MultiscaleCSLB` is cheaper, and its bounds are tighter; `LinUCB` earns more where its
    constant can be tuned. Arms may be added, removed and freed; `contextual` is the form for contexts that arrive each
    round.

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
    switching
        C > 0 lets the choice stand until det V has grown by the factor 1 + C, which saves the O(N d) of most rounds
        at regret ``sqrt(1 + C)`` times the bound (default None: choose in every round; fixed arms only).
    seed
        Accepted so that all policies can be built alike; nothing is random.

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
        switching: float | None = None,
        seed: Any = None,
    ) -> None:
        super().__init__(arms)
        shared = check_shared(ridge, noise, theta_norm, arm_norm, delta, self.arms)
        radius = check_radius(radius)
        if switching is not None:
            switching = validate.positive("switching", switching)
        validate.generator(seed)
        self.settings = {**shared._asdict(), "radius": radius, "switching": switching}
        with self._warm_up():
            state = build(self.arms, linear_radius(self.settings, self.dim))
            self.state = state if switching is None else switching_state(state, switching)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return RidgeState if settings["switching"] is None else SwitchingState

    @classmethod
    def _contextual(
        cls, *, dim: int, radius: Radius, switching: float | None, seed: Any, **shared: Any
    ) -> ContextualRidge:
        if switching is not None:
            raise ValueError(f"switching must be None without fixed arms, got {switching!r}")
        settings = {**check_shared(**shared, arms=None)._asdict(), "radius": check_radius(radius)}
        fit_radius = linear_radius(settings, validate.whole("dim", dim))
        return ContextualRidge(cls.__name__, dim, settings, fit_radius, seed=seed)
