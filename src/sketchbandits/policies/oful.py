"""OFUL, optimism in the face of uncertainty for linear bandits: one ridge fit of all arms, O(d^2) per round.

    argmax_i  x_i.theta_hat + beta ||x_i||_{V^-1}

**Radius** ``"closed"`` (default): ``R sqrt(d ln(1 + n L^2/(ridge d)) + 2 ln(1/delta)) + sqrt(ridge) S`` with n rewards
recorded; ``"logdet"``: ``R sqrt(ln det(V/ridge) + 2 ln(1/delta)) + sqrt(ridge) S``; ``"mixture"``: ``sqrt(R^2 (ln
det(V/ridge) + 2 ln(1/delta)) + ridge S^2)``, never above it; or a function ``(n, logdet) -> beta``.
**Ridge** ``ridge=None``: the effective rank of the arms times ``R^2/S^2`` (`effective_rank`), where the mixture radius
is about smallest.
**Cap** ``cap=True``: every bound is at most the prior's, ``S ||x||``; ties of capped bounds go to the largest bound
without the cap, then to the lowest index.
**Switching** ``switching=C`` recomputes the choice only when det V has grown by a factor 1 + C (rarely switching OFUL):
O(d^2) per round, an O((N + d) d^2) refit at each of the O(d ln T / ln(1 + C)) switches, regret at most sqrt(1 + C)
times the bound.
**Cost** O(d^2 + N d) per round, O(N d + d^2) memory (`contextual`: O(n d^2) for n contexts, O(d^2) memory).
**Guarantee** the ellipsoid covers theta* at every round with probability ``1 - delta``.
**Reference** Abbasi-Yadkori, Pal and Szepesvari, NeurIPS 2011, Figures 1 and 3, Theorem 2; ``"mixture"``: Flynn, Reeb,
Kandemir and Peters, NeurIPS 2023.
**Departures** none in the arithmetic; ties within 1e-9 go to the lowest index.
"""

from typing import Any

from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.contextual import ContextualRidge
from sketchbandits.policies.contextual_form import ContextualForm, OwnParameters
from sketchbandits.policies.effective_rank import suited_ridge
from sketchbandits.policies.fits.capped import CappedState, capped_state, prior_bounds
from sketchbandits.policies.fits.ridge import ChangingRidge, RidgeState, build
from sketchbandits.policies.fits.switching import SwitchingState, switching_state
from sketchbandits.policies.parameters import Radius, Shared, check_radius, check_shared, linear_radius
from sketchbandits.snapshot import Saved

RADII = ("closed", "logdet", "mixture")


class OFUL(ContextualForm, ChangingRidge):
    """OFUL: one ridge fit of all arms, and a confidence ellipsoid that holds with probability ``1 - delta``.

    The reference with a guarantee: regret of order ``d sqrt(T)`` whatever the arms. O(d^2 + N d) per round: with
    many dimensions or arms `MultiscaleCSLB` is cheaper, and its bounds are tighter; `LinUCB` earns more where its
    constant can be tuned. The defaults are the textbook's; ``radius="mixture", ridge=None, cap=True`` has the same
    guarantee and usually far less regret. Arms may be added, removed and freed; `contextual` is the form for contexts
    that arrive each round.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    ridge
        The regulariser of the ridge fit, > 0 (default 1). It counts like ``ridge`` rewards of 0 in every direction.
        Keep 1 for arms of norm about 1; scale it with the squared norm otherwise. None takes the value that suits
        the arms of the constructor, their effective rank times ``R^2/S^2`` (fixed arms only).
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
        never larger and costs the same; ``"mixture"`` is never larger than ``"logdet"``; or a function
        ``(n, logdet) -> beta`` of your own.
    switching
        C > 0 lets the choice stand until det V has grown by the factor 1 + C, which saves the O(N d) of most rounds
        at regret ``sqrt(1 + C)`` times the bound (default None: choose in every round; fixed arms only).
    cap
        True caps every bound at ``S ||x||``, which the mean of no arm exceeds (default False; fixed arms only, and
        not with ``switching``).
    seed
        Accepted so that all policies can be built alike; nothing is random.

    """

    contextual = OwnParameters()
    contextual_class = ContextualRidge

    def __init__(
        self,
        arms: ArrayLike,
        *,
        ridge: float | None = 1.0,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        arm_norm: float | None = None,
        delta: float = 0.01,
        radius: Radius = "closed",
        switching: float | None = None,
        cap: bool = False,
        seed: Any = None,
    ) -> None:
        super().__init__(arms)
        shared = check_shared(1.0 if ridge is None else ridge, noise, theta_norm, arm_norm, delta, self.arms)
        radius, cap = check_radius(radius, RADII), validate.flag("cap", cap)
        if switching is not None:
            switching = validate.positive("switching", switching)
        if cap and switching is not None:
            raise ValueError(f"cap must be False with switching = {switching:g}, got True")
        validate.generator(seed)
        own = {"ridge": None if ridge is None else shared.ridge, "radius": radius, "switching": switching, "cap": cap}
        self.settings = {**shared._asdict(), **own}
        with self._warm_up():
            self.state = self._first_state(shared)

    def _first_state(self, shared: Shared) -> Any:
        """The state before the first reward."""
        if self.settings["ridge"] is None:
            shared = shared._replace(ridge=suited_ridge(self.arms, shared.noise, shared.theta_norm, shared.arm_norm))
        state = build(self.arms, linear_radius({**self.settings, **shared._asdict()}, self.dim))
        if self.settings["cap"]:
            return capped_state(state, prior_bounds(self.arms, shared.theta_norm))
        switching = self.settings["switching"]
        return state if switching is None else switching_state(state, switching)

    @property
    def _more_rows(self) -> tuple[str, ...]:
        return ("cap",) if self.settings["cap"] else ()

    def _fill_more_rows(self, state: Any, arms: Floats) -> None:
        if self.settings["cap"]:
            state.cap[state.cap.size - len(arms) :] = prior_bounds(arms, self.settings["theta_norm"])

    @classmethod
    def _converted(cls, saved: Saved) -> Saved:
        """Files of versions that had no ``cap`` are those of policies without one."""
        saved = super()._converted(saved)
        saved.settings.setdefault("cap", False)
        return saved

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        if settings["cap"]:
            return CappedState
        return RidgeState if settings["switching"] is None else SwitchingState

    @classmethod
    def _contextual(
        cls, *, dim: int, radius: Radius, switching: float | None, cap: bool, seed: Any, **shared: Any
    ) -> ContextualRidge:
        if switching is not None:
            raise ValueError(f"switching must be None without fixed arms, got {switching!r}")
        if validate.flag("cap", cap):
            raise ValueError("cap must be False without fixed arms, got True")
        if shared["ridge"] is None:
            raise ValueError("ridge must be a number > 0 without fixed arms, got None")
        settings = {**check_shared(**shared, arms=None)._asdict(), "radius": check_radius(radius, RADII)}
        fit_radius = linear_radius(settings, validate.whole("dim", dim))
        return ContextualRidge(cls.__name__, dim, settings, fit_radius, seed=seed)
