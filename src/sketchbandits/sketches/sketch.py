"""The public face of a matrix sketch."""

from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.sketches.base import ALPHA, ROWS, SHRUNK, SketchState, insert
from sketchbandits.sketches.queries import inverse_norms


class Sketch:
    """A matrix sketch: ``update(x)`` adds a row to X; `matrix` stands for it, ``S'S ~ X'X``."""

    state: SketchState

    def __init__(self, dim: int, sketch_size: int, ridge: float) -> None:
        self.dim = validate.whole("dim", dim)
        self.sketch_size = validate.whole("sketch_size", sketch_size)
        self.ridge = validate.positive("ridge", ridge)

    def update(self, x: ArrayLike) -> None:
        """Add the row ``x``."""
        insert(self.state, validate.vector("x", x, size=self.dim))

    @property
    def matrix(self) -> Floats:
        """The rows held, ``S``."""
        return self.state.rows[: self.state.size[ROWS]].copy()

    @property
    def shrunk_mass(self) -> float:
        """``rho``: what shrinking has taken from every direction at most, ``0 <= X'X - S'S <= rho I``."""
        return float(self.state.level[SHRUNK])

    @property
    def alpha(self) -> float:
        """The diagonal of ``V = S'S + alpha I``."""
        return float(self.state.level[ALPHA])

    def inverse_norms(self, vectors: ArrayLike) -> Floats:
        """``||x||_{V^-1}`` for every row of ``vectors``, without a d x d matrix."""
        return inverse_norms(self.state, validate.matrix("vectors", vectors, columns=self.dim))
