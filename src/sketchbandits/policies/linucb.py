"""LinUCB: OFUL's rule with a constant in place of the radius.

    argmax_i  x_i.theta_hat + alpha ||x_i||_{V^-1}

**Cost** O(d^2 + N d) per round, O(N d + d^2) memory (`contextual`: O(n d^2) for n contexts, O(d^2) memory).
**Reference** Li, Chu, Langford and Schapire, WWW 2010, Algorithm 1; Chu, Li, Reyzin and Schapire, AISTATS 2011.
**Departures** One parameter for all arms (the "hybrid-free" form of 2011), not one per arm.
**Guarantee** none: with a constant ``alpha`` the ellipsoid is not claimed to cover theta*.
"""

from typing import Any

from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.policies.contextual import ContextualRidge
from sketchbandits.policies.contextual_form import ContextualForm, OwnParameters
from sketchbandits.policies.fits.ridge import ChangingRidge, build
from sketchbandits.policies.parameters import constant_radius


class LinUCB(ContextualForm, ChangingRidge):
    """LinUCB: one ridge fit of all arms and a bonus of ``alpha`` widths, tuned by hand.

    For a strong, simple baseline when ``alpha`` can be tuned: it explores less than `OFUL`, whose radius carries a
    guarantee, and often earns more. With thousands of arms or dimensions `MultiscaleCSLB` is cheaper and needs no
    tuning. Arms may be added, removed and freed; `contextual` is the form for contexts that arrive each round.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    alpha
        Widths that are added to the estimate, in units of the reward, >= 0 (default 1). 0 is greedy; try 0.1 to 2
        on logged data.
    ridge
        The regulariser of the ridge fit, > 0 (default 1).
    seed
        Accepted so that all policies can be built alike; nothing is random.

    """

    contextual = OwnParameters()
    contextual_class = ContextualRidge

    def __init__(self, arms: ArrayLike, *, alpha: float = 1.0, ridge: float = 1.0, seed: Any = None) -> None:
        super().__init__(arms)
        validate.generator(seed)
        self.settings = self._checked(alpha, ridge)
        with self._warm_up():
            self.state = build(self.arms, constant_radius(**self.settings))

    @staticmethod
    def _checked(alpha: float, ridge: float) -> dict[str, Any]:
        return {"alpha": validate.number("alpha", alpha, least=0.0), "ridge": validate.positive("ridge", ridge)}

    @classmethod
    def _contextual(cls, *, dim: int, alpha: float, ridge: float, seed: Any) -> ContextualRidge:
        settings = cls._checked(alpha, ridge)
        return ContextualRidge(cls.__name__, dim, settings, constant_radius(**settings), seed=seed)
