"""SOFUL, CBSCFD and DBSLinUCB on fixed arms: how they choose from the sketched fit of `sketched_fit`."""

from typing import Any

import numpy as np

from sketchbandits import validate
from sketchbandits.confidence import (
    SCALE,
    sampling_share,
)
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import new_key, normals
from sketchbandits.kernels.linalg import (
    Floats,
    Ints,
    tied_argmax,
)
from sketchbandits.policies.base import Policy
from sketchbandits.policies.fits.sketched_fit import LARGEST_GRAM, SAMPLES, SketchedState, absorb, build, sketch_radius
from sketchbandits.policies.format_1 import convert_radius
from sketchbandits.policies.format_2 import arms_with_rewards, begin_to_watch
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.parameters import called_radius, linear_radius
from sketchbandits.policies.pending.rule import Mask, PendingBounds, draw_round, first_among, new_bounds
from sketchbandits.policies.pending.state_copy import copied_state
from sketchbandits.policies.rounds import DONE, MEAN, WIDTH2, register
from sketchbandits.sketches import base as sketches
from sketchbandits.sketches import queries, sizes
from sketchbandits.sketches.base import ALPHA, RANK, ROWS, SHRUNK, SketchState
from sketchbandits.snapshot import Saved


@kernel
def choose(state: SketchedState) -> int:
    """The largest upper confidence bound, or the best arm of this round's draw."""
    values = state.work[-state.counts.size :]
    if state.sampling.size > 0:
        draw_values(state, 0, values)
    else:
        fill_bounds(state, values)
    state.choice[0] = tied_argmax(values)
    return DONE


@kernel
def draw_values(state: SketchedState, index: int, values: Floats) -> None:
    """Every arm's value under this round's draw for the decision with ``index`` others pending."""
    draw = np.empty(state.theta.size)
    draw_direction_at(state, index, draw)
    v = sampling_scale(state)
    for i in range(values.size):
        values[i] = state.stats[MEAN, i] + v * np.dot(state.arms[i], draw)


@kernel
def draw_picks(state: SketchedState, index: int, among: Mask, picks: Ints) -> None:
    """The best arm ``among`` those allowed for each of ``picks.size`` draws, from ``index`` on."""
    values = np.empty(among.size)
    for i in range(picks.size):
        draw_values(state, index + i, values)
        picks[i] = first_among(values, values, among)


@kernel
def fill_bounds(state: SketchedState, out: Floats) -> None:
    """``mean + beta width`` for every arm."""
    beta = sketch_radius(state, state.radius[0]["log_share"])
    for i in range(out.size):
        out[i] = state.stats[MEAN, i] + beta * np.sqrt(state.stats[WIDTH2, i])


@kernel
def sampling_scale(state: SketchedState) -> float:
    """The factor of a Thompson draw."""
    v = state.sampling[SCALE]
    return sketch_radius(state, sampling_share(state.sampling, state.level[SAMPLES])) if np.isnan(v) else v


@kernel
def draw_direction(state: SketchedState, out: Floats) -> None:
    """Draw of this round."""
    draw_direction_at(state, 0, out)


@kernel
def draw_direction_at(state: SketchedState, index: int, out: Floats) -> None:
    """``V^-1 (sqrt(alpha) Z_1 + S'Z_2)`` with standard normal Z: covariance exactly ``V^-1``."""
    sketch, d = state.sketch, out.size
    rows, alpha = sketch.size[ROWS], sketch.level[ALPHA]
    z = np.empty(d + rows)
    normals(state.key, draw_round(state.level[SAMPLES], index), z)
    for i in range(d):
        out[i] = np.sqrt(alpha) * z[i]
    for k in range(rows):
        for i in range(d):
            out[i] += z[d + k] * sketch.rows[k, i]
    queries.solve(sketch, out)


register(SketchedState, absorb=absorb, choose=choose)


class SketchedPolicy(Policy):
    """A policy on a fixed arm set whose state holds a sketched ridge fit."""

    def _start(self, settings: dict[str, Any], seed: Any) -> None:
        """Build the state from checked settings."""
        self.settings = settings
        radius, sketch = linear_radius(settings, self.dim), self._sketch(settings, self.dim)
        key = new_key(validate.generator(seed))
        with self._warm_up():
            self.state = build(self.arms, sketch, radius, self._sampling(settings), key)

    @classmethod
    def _sketch(cls, settings: dict[str, Any], dim: int) -> SketchState:
        """An empty sketch of the policy's kind."""
        raise NotImplementedError

    @classmethod
    def _sampling(cls, settings: dict[str, Any]) -> Floats:
        """The scale of Thompson draws; empty for an optimistic policy."""
        return np.zeros(0)

    @exclusive
    def bounds(self) -> Floats:
        """``x.theta_hat + beta ||x||_{V^-1}`` for every arm, with the sketched V and its radius."""
        out = np.empty(self.n_arms)
        fill_bounds(self.state, out)
        return out

    @exclusive
    def estimates(self) -> Floats:
        """``x.theta_hat`` for every arm."""
        return np.array(self.state.stats[MEAN])

    def _picks(self, count: int, allowed: Mask, waiting: Ints) -> Ints:
        if self.state.sampling.size == 0:
            return super()._picks(count, allowed, waiting)
        picks = np.empty(count, np.int64)
        draw_picks(self.state, waiting.size, allowed, picks)
        return picks

    def _pending_bounds(self) -> PendingBounds:
        state = self.state
        beta = sketch_radius(state, state.radius[0]["log_share"])
        return new_bounds(copied_state(state, "arms", "gram"), state.stats, beta)

    @exclusive
    def reseed(self, seed: Any) -> None:
        """Draw from another stream from now on; what was learned stays."""
        self.state.key[:] = new_key(validate.generator(seed))
        choose(self.state)

    @property
    def shrunk_mass(self) -> float:
        """What shrinking has taken from every direction at most, ``rho``."""
        return float(self.state.sketch.level[SHRUNK])

    @property
    def sketch_rank(self) -> int:
        """How many directions the sketch holds, ``k``: a round costs O(N k + k d)."""
        return int(self.state.sketch.size[RANK])

    def _refresh_radius(self) -> None:
        if self._radius_is_function:
            n, logdet = self.state.level[SAMPLES], self.state.sketch.level[sketches.LOGDET]
            self.state.radius["value"] = called_radius(self.settings["radius"], n, logdet)

    def _sizes(self) -> dict[str, int]:
        gram = self.n_arms if self.n_arms <= LARGEST_GRAM else 0
        draw, rows = 3 if self.settings.get("exploration") == "ts" else 0, sizes.rows_of(self.settings, self.dim)
        return {**super()._sizes(), "g": gram, "draw": draw, "rows": rows}

    def _check_indices(self, saved: Saved) -> None:
        super()._check_indices(saved)
        sizes.check_sizes(saved, self.state.sketch)

    @classmethod
    def _converted(cls, saved: Saved) -> Saved:
        if saved.format == 1:
            convert_radius(saved)
        if saved.format < 3:
            begin_to_watch(saved, arms_with_rewards(saved))
        return saved

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return SketchedState
