"""CBRAP, contextual bandits with random projection: LinUCB on features squeezed by one random matrix.

    M is m x d with entries N(0, 1/m), drawn once ;   LinUCB with ridge and alpha on M x

**Cost** O(m^2 + N m) a round, O(N m + m d) memory, m = ``sketch_size``.
**Reference** Yu, Lyu and King, AAAI 2017 (not read; from the statement in later papers).
**Departures** ``alpha`` is the user's, not the paper's schedule.
**Guarantee** none: the projected model is misspecified, and `bounds` is the index that is maximised, not a bound.
"""

from typing import Annotated, Any

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.contextual import ContextualRidge
from sketchbandits.policies.fits.ridge import RidgePolicy, build
from sketchbandits.policies.parameters import check_shared, constant_radius
from sketchbandits.snapshot import Saved, take_array


def draw_projection(generator: np.random.Generator, sketch_size: int, dim: int) -> Floats:
    """An ``m x d`` matrix with entries N(0, 1/m)."""
    return generator.standard_normal((sketch_size, dim)) / np.sqrt(sketch_size)


class CBRAP(RidgePolicy):
    """CBRAP on a fixed arm set; `contextual` for a fresh arm set each round. ``seed`` draws the projection."""

    def __init__(
        self, arms: ArrayLike, *, sketch_size: int, alpha: float = 1.0, ridge: float = 1.0, seed: Any = None
    ) -> None:
        super().__init__(arms)
        sketch_size = validate.whole("sketch_size", sketch_size)
        alpha = validate.number("alpha", alpha, least=0.0)
        ridge = validate.positive("ridge", ridge)
        self.settings = {"sketch_size": sketch_size, "alpha": alpha, "ridge": ridge}
        with self._warm_up():
            self.projection = draw_projection(validate.generator(seed), sketch_size, self.dim)
            self.state = build(self.arms @ self.projection.T, constant_radius(alpha, ridge))

    @staticmethod
    def contextual(
        *, dim: int, sketch_size: int, alpha: float = 1.0, ridge: float = 1.0, seed: Any = None
    ) -> ContextualRidge:
        """CBRAP for contexts that arrive each round: ``select(contexts)``, ``update(context, reward)``."""
        dim = validate.whole("dim", dim)
        sketch_size = validate.whole("sketch_size", sketch_size)
        projection = draw_projection(validate.generator(seed), sketch_size, dim)
        shared = check_shared(ridge, 1.0, 1.0, None, 0.5, None)
        alpha = validate.number("alpha", alpha, least=0.0)
        return ContextualRidge(dim=dim, shared=shared, radius=alpha, name="CBRAP", projection=projection, seed=0)

    def _extra(self) -> dict[str, Any]:
        return {"projection": self.projection}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "r": self.settings["sketch_size"]}

    def _restore(self, saved: Saved, sizes: dict[str, int]) -> None:
        self.projection = take_array(saved, "projection", Annotated[Floats, "r d"], sizes)
