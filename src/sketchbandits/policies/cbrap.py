"""CBRAP, contextual bandits with random projection: LinUCB on features squeezed by one random matrix.

    M is m x d with entries N(0, 1/m), drawn once ;   LinUCB with ridge and alpha on M x

**Cost** O(m^2 + N m) per round, O(N m + m d) memory, m = ``sketch_size``.
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
from sketchbandits.policies.contextual_form import ContextualForm, OwnParameters
from sketchbandits.policies.fits.ridge import RidgePolicy, build
from sketchbandits.policies.parameters import constant_radius
from sketchbandits.snapshot import Saved, take_array


def draw_projection(generator: np.random.Generator, sketch_size: int, dim: int) -> Floats:
    """An ``m x d`` matrix with entries N(0, 1/m)."""
    return generator.standard_normal((sketch_size, dim)) / np.sqrt(sketch_size)


class CBRAP(ContextualForm, RidgePolicy):
    """CBRAP: LinUCB on features that are compressed once, by a random projection.

    For a quick saving in high dimensions where the features fill all directions evenly. The projected model is
    wrong, so there is no guarantee; where arms lie near few directions `SOFUL` keeps those, and where they form
    clusters `MultiscaleCSLB` loses nothing. `contextual` is the form for contexts that arrive each round.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    sketch_size
        m, the dimensions after the projection. O(m^2 + N m) per round; the error falls like 1/sqrt(m).
    alpha
        Widths that are added to the estimate, in units of the reward, >= 0 (default 1).
    ridge
        The regulariser of the ridge fit, > 0 (default 1).
    seed
        Draws the projection.

    """

    contextual = OwnParameters()
    contextual_class = ContextualRidge

    def __init__(
        self, arms: ArrayLike, *, sketch_size: int, alpha: float = 1.0, ridge: float = 1.0, seed: Any = None
    ) -> None:
        super().__init__(arms)
        self.settings = self._checked(sketch_size, alpha, ridge)
        radius = constant_radius(self.settings["alpha"], self.settings["ridge"])
        with self._warm_up():
            self.projection = draw_projection(validate.generator(seed), self.settings["sketch_size"], self.dim)
            self.state = build(self.arms @ self.projection.T, radius)

    @staticmethod
    def _checked(sketch_size: int, alpha: float, ridge: float) -> dict[str, Any]:
        return {
            "sketch_size": validate.whole("sketch_size", sketch_size),
            "alpha": validate.number("alpha", alpha, least=0.0),
            "ridge": validate.positive("ridge", ridge),
        }

    @classmethod
    def _contextual(cls, *, dim: int, sketch_size: int, alpha: float, ridge: float, seed: Any) -> ContextualRidge:
        dim, settings = validate.whole("dim", dim), cls._checked(sketch_size, alpha, ridge)
        projection = draw_projection(validate.generator(seed), settings["sketch_size"], dim)
        radius = constant_radius(settings["alpha"], settings["ridge"])
        return ContextualRidge(cls.__name__, dim, settings, radius, projection=projection, seed=0)

    def _extra(self) -> dict[str, Any]:
        return {"projection": self.projection}

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "r": self.settings["sketch_size"]}

    def _restore(self, saved: Saved, sizes: dict[str, int]) -> None:
        self.projection = take_array(saved, "projection", Annotated[Floats, "r d"], sizes)
