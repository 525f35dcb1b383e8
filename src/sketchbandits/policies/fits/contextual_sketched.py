"""SOFUL, CBSCFD and DBSLinUCB for a fresh arm set each round: the sketched ridge fit of `sketched`, without arms."""

from typing import Any

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import new_key
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.assumptions import LeastSquares
from sketchbandits.policies.contextual import ContextualPolicy
from sketchbandits.policies.contextual_form import ContextualForm, OwnParameters
from sketchbandits.policies.fits.sketched import SketchedPolicy, draw_direction, sampling_scale
from sketchbandits.policies.fits.sketched_fit import SAMPLES, SketchedState, absorb_context, build, sketch_radius
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.parameters import linear_radius
from sketchbandits.sketches import base as sketches
from sketchbandits.sketches import queries, sizes
from sketchbandits.sketches.base import SketchState
from sketchbandits.snapshot import Saved, within


@kernel
def absorb_rows(state: SketchedState, rows: Floats, rewards: Floats) -> None:
    """Record rewards in order, each for its row."""
    for t in range(rewards.size):
        absorb_context(state, rows[t], rewards[t])


class ContextualSketch(ContextualPolicy):
    """SOFUL, CBSCFD or DBSLinUCB for contexts: built by their ``contextual``. O(k d) per update."""

    def __init__(
        self, name: str, settings: dict[str, Any], sketch: SketchState, *, sampling: Floats, seed: Any
    ) -> None:
        super().__init__(sketch.basis.shape[1])
        self.settings = {"name": name, "dim": self.dim, **settings}
        radius, key = linear_radius(settings, self.dim), new_key(validate.generator(seed))
        self.state = build(np.zeros((0, self.dim)), sketch, radius, sampling, key)
        self._refresh_radius()

    @exclusive
    def reseed(self, seed: Any) -> None:
        """Draw from another stream from now on; what was learned stays."""
        self.state.key[:] = new_key(validate.generator(seed))

    def _samples(self) -> tuple[float, float]:
        return self.state.level[SAMPLES], self.state.sketch.level[sketches.LOGDET]

    def _bounds(self, contexts: Floats) -> Floats:
        beta = sketch_radius(self.state, self.state.radius[0]["log_share"])
        return contexts @ self.state.theta + beta * queries.inverse_norms(self.state.sketch, contexts)

    def _estimates(self, contexts: Floats) -> Floats:
        return contexts @ self.state.theta

    def _scores(self, contexts: Floats) -> Floats:
        if not self.state.sampling.size:
            return self._bounds(contexts)
        draw = np.empty(self.dim)
        draw_direction(self.state, draw)
        return contexts @ (self.state.theta + sampling_scale(self.state) * draw)

    def _absorb(self, rows: Floats, rewards: Floats) -> None:
        absorb_rows(self.state, rows, rewards)

    def _least_squares(self) -> LeastSquares:
        """Rewards count in the sum of squares up to the first loss of the sketch."""
        state, sketch = self.state, self.state.sketch
        rows = sketch.rows[: sketch.size[sketches.ROWS]]
        V = rows.T @ rows + sketch.level[sketches.ALPHA] * np.eye(self.dim)
        return LeastSquares(V, state.theta, float(state.target @ state.theta), self.settings["ridge"], state.seen[0])

    def _beta(self, log_share: float, noise: float, theta_norm: float) -> float:
        radius = self.state.radius.copy()
        radius["noise"], radius["theta_norm"] = noise, theta_norm
        return sketch_radius(self.state._replace(radius=radius), log_share)

    def _sizes(self) -> dict[str, int]:
        return {**super()._sizes(), "n": 0, "g": 0, "rows": sizes.rows_of(self.settings, self.dim)}

    def _check_indices(self, saved: Saved) -> None:
        within(saved, "state.sampling, its size", self.state.sampling.size % 3, 0, 0)
        sizes.check_sizes(saved, self.state.sketch)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return SketchedState


class SketchedBothWays(ContextualForm, SketchedPolicy):
    """A sketched policy on fixed arms with its contextual form."""

    contextual = OwnParameters()
    contextual_class = ContextualSketch

    @classmethod
    def _checked(cls, arms: Floats | None, **given: Any) -> dict[str, Any]:
        """The settings from all keyword parameters except ``seed``."""
        raise NotImplementedError

    @classmethod
    def _contextual(cls, *, dim: int, seed: Any, **given: Any) -> ContextualSketch:
        settings = cls._checked(None, **given)
        sketch = cls._sketch(settings, validate.whole("dim", dim))
        return ContextualSketch(cls.__name__, settings, sketch, sampling=cls._sampling(settings), seed=seed)
