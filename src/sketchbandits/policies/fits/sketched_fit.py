"""A sketched ridge fit, shared by SOFUL, CBSCFD and DBSLinUCB.

    V = S'S + alpha I from the sketch ,  b = sum y x exactly ,  theta_hat = V^-1 b

While nothing is lost, ``theta_hat`` is carried by ``theta_hat += V^-1 x (y - x.theta_hat)/D``: the rounding errors of
``b`` in directions that were never pulled would be divided by the ridge. Once a sketch has lost mass, what ``b`` has
outside its span is real, and every decomposition recomputes ``V^-1 b``.

For fixed arms the coordinates ``P = Q X'`` of all arms in the sketch's basis are kept (the counterpart of ``S X'``),
and between two decompositions every arm's mean and squared width follow by one rank-one step in O(N k). A row in a new
direction costs O(N k + k d) where the arms' Gram matrix is kept (N <= 2048), else O(N d). At a decomposition P is
turned, O(N k l); every 64th time, and whenever cancellation could show, it is recomputed from the arms.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import (
    FIXED,
    LOGDET,
    RADIUS,
    closed_information,
    compensated_radius,
    sketched_radius,
)
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import (
    MAX_STEP,
    ROUNDING,
    Floats,
    Ints,
    add_exactly,
    assign,
    combine,
    remove_projection,
)
from sketchbandits.kernels.whitening import spread
from sketchbandits.policies.rounds import DONE, LOST, MEAN, SUM, WIDTH2
from sketchbandits.policies.scatter import SEEN, note, nothing_seen
from sketchbandits.sketches import base as sketches
from sketchbandits.sketches import queries
from sketchbandits.sketches.base import ALPHA, COMPENSATED, RANK, ROWS, SHRUNK, SketchState

NORM2 = 4  # one more row of ``stats``
SAMPLES = 0  # the entry of ``level``
LARGEST_GRAM = 2048


class SketchedState(NamedTuple):
    """A sketch and what it says of every arm; for contexts there are no arms and only the first fields matter."""

    sketch: SketchState
    theta: Annotated[Floats, "d"]
    target: Annotated[Floats, "d"]  # b
    level: Annotated[Floats, "1"]  # SAMPLES
    radius: Annotated[NDArray[Any], "1", RADIUS]
    sampling: Annotated[Floats, "draw"]  # SCALE, HORIZON, ln(1/delta); empty for an optimistic policy
    key: Annotated[NDArray[np.uint64], "2"]
    choice: Annotated[Ints, "1"]
    counts: Annotated[Ints, "n"]
    stats: Annotated[Floats, "5 n"]  # per arm: MEAN, WIDTH2, SUM, LOST, NORM2
    arms: Annotated[Floats, "n d"]
    gram: Annotated[Floats, "g g"]  # X X', or empty
    coordinates: Annotated[Floats, "k n"]  # P in its first RANK rows, one column per arm
    work: Annotated[Floats, "2k+2d+n"]
    seen: Annotated[NDArray[Any], "1", SEEN]


def build(
    arms: Floats, sketch: SketchState, radius: NDArray[Any], sampling: Floats, key: NDArray[np.uint64]
) -> SketchedState:
    """The state before the first reward; ``arms`` may have no rows."""
    n, d = arms.shape
    stats = np.zeros((5, n))
    stats[NORM2] = (arms**2).sum(axis=1)
    stats[WIDTH2] = stats[NORM2] / radius["ridge"]
    most = sketch.basis.shape[0]
    return SketchedState(
        sketch=sketch,
        theta=np.zeros(d),
        target=np.zeros(d),
        level=np.zeros(1),
        radius=radius,
        sampling=sampling,
        key=key,
        choice=np.zeros(1, np.int64),
        counts=np.zeros(n, np.int64),
        stats=stats,
        arms=arms.copy(),  # writable, as a copy's are: another type would be compiled again
        gram=arms @ arms.T if n <= LARGEST_GRAM else np.zeros((0, 0)),
        coordinates=np.zeros((most, n)),
        work=np.zeros(2 * most + 2 * d + n),
        seen=nothing_seen(),
    )


@kernel
def sketch_radius(state: SketchedState, log_share: float) -> float:
    """The radius for what the sketch holds and has lost."""
    radius, sketch, n = state.radius[0], state.sketch, state.level[SAMPLES]
    if radius["kind"] == FIXED:
        return radius["value"]
    ridge, dim = radius["ridge"], radius["dim"]
    if radius["kind"] == LOGDET:
        q = queries.information(sketch)
    else:
        q = closed_information(n, min(dim, sketch.size[ROWS]), radius["rate"])
    noise, theta_norm, level = radius["noise"], radius["theta_norm"], sketch.level
    if level[COMPENSATED] > 0.0:
        return compensated_radius(q, level[ALPHA], dim, noise, theta_norm, ridge, log_share)
    return sketched_radius(q, level[SHRUNK], dim, noise, theta_norm, ridge, log_share)


@kernel
def _new_coordinate(state: SketchedState, arm: int, p: Floats, share: float) -> None:
    """The coordinates of all arms along the basis vector that ``arm`` has just added; ``share`` of it was new."""
    rank = state.sketch.size[RANK] - 1
    row, n = state.coordinates[rank], state.counts.size
    if state.gram.shape[0] == n and share > 0.01:
        combine(p[:rank], state.coordinates, row)
        for i in range(n):
            row[i] = (state.gram[arm, i] - row[i]) / p[rank]
    else:
        direction = state.sketch.basis[rank]
        for i in range(n):
            row[i] = np.dot(state.arms[i], direction)


@kernel
def _turn_coordinates(state: SketchedState, turn: Floats) -> None:
    """Old coordinates in the new basis; squared widths of what is outside it go to ``stats[WIDTH2]``."""
    rank, n = state.sketch.size[RANK], state.counts.size
    old = state.coordinates[: turn.shape[1]].copy()
    for k in range(rank):
        combine(turn[k], old, state.coordinates[k])
    outside = state.stats[WIDTH2]
    assign(outside, state.stats[NORM2])
    for k in range(rank):
        for i in range(n):
            outside[i] -= state.coordinates[k, i] ** 2
    for i in range(n):
        outside[i] = max(outside[i], 0.0)


@kernel
def _fresh_coordinates(state: SketchedState) -> None:
    """The same from the arms themselves, in two passes; a residual at rounding level is zero."""
    rank, d = state.sketch.size[RANK], state.theta.size
    x, p = state.work[:d], state.work[d : d + state.sketch.basis.shape[0]]
    for i in range(state.counts.size):
        assign(x, state.arms[i])
        left = remove_projection(state.sketch.basis, rank, x, p)
        for k in range(rank):
            state.coordinates[k, i] = p[k]
        inside = left**2 <= ROUNDING**2 * state.stats[NORM2, i]
        state.stats[WIDTH2, i] = 0.0 if inside else left**2


@kernel
def _refresh(state: SketchedState, turn: Floats) -> None:
    """Means and squared widths of all arms after a decomposition (the inverse is diagonal then)."""
    sketch, n = state.sketch, state.counts.size
    rank, alpha = sketch.size[RANK], sketch.level[ALPHA]
    if turn.shape[1] == 0:
        _fresh_coordinates(state)
    else:
        _turn_coordinates(state, turn)
    mean, width2 = state.stats[MEAN], state.stats[WIDTH2]
    for i in range(n):
        mean[i] = np.dot(state.arms[i], state.theta)
        width2[i] /= alpha
    for k in range(rank):
        weight = sketch.inverse[k, k]
        for i in range(n):
            width2[i] += state.coordinates[k, i] ** 2 * weight


@kernel
def _learn(state: SketchedState, x: Floats, u: Floats, D: float, reward: float) -> float:
    """Move the estimate along ``V^-1 x``, whose coordinates are ``u``; returns the error over ``D``."""
    for i in range(x.size):
        state.target[i] += reward * x[i]
    error = (reward - np.dot(x, state.theta)) / D
    for k in range(state.sketch.size[RANK]):
        for i in range(x.size):
            state.theta[i] += error * u[k] * state.sketch.basis[k, i]
    return error


@kernel
def _decompose(state: SketchedState, full: bool) -> Floats:
    """Shrink if the rows are full, make the inverse diagonal and, once mass is lost, recompute ``V^-1 b``."""
    sketch, theta = state.sketch, state.theta
    if full:
        sketches.shrink(sketch)
    turn = sketches.rebuild(sketch)
    if sketch.level[SHRUNK] > 0.0:
        assign(theta, state.target)
        queries.solve(sketch, theta)
    return turn


@kernel
def _append(state: SketchedState, x: Floats, p: Floats, u: Floats, reward: float) -> tuple[float, float]:
    """Hold a row and learn its reward; returns the growth of det V and the prediction's error over it."""
    D = sketches.append(state.sketch, x, p, u)
    return D, _learn(state, x, u, D, reward)


@kernel
def absorb(state: SketchedState, arm: int, reward: float) -> int:
    """Record a reward for an arm; a decomposition, where one is due, is part of it."""
    sketch, x, d = state.sketch, state.arms[arm], state.theta.size
    note(state.seen[0], state.counts[arm], state.stats[SUM, arm] + state.stats[LOST, arm], reward)
    state.counts[arm] += 1
    add_exactly(state.stats, SUM, arm, reward)
    state.level[SAMPLES] += 1.0
    if state.stats[NORM2, arm] == 0.0:
        return DONE
    most, n = sketch.basis.shape[0], state.counts.size
    p, u, g = state.work[d : d + most], state.work[d + most : d + 2 * most], state.work[-n:]
    sketches.open_block(sketch, x)
    share = sketches.extend(sketch, x, p)
    if share > 0.0:
        _new_coordinate(state, arm, p, share)
    D, error = _append(state, x, p, u, reward)
    full = sketches.is_full(sketch)
    if full or not 1.0 <= D <= MAX_STEP:
        _refresh(state, _decompose(state, full))
        return DONE
    combine(u[: sketch.size[RANK]], state.coordinates, g)
    spread(state.stats[MEAN], state.stats[WIDTH2], g, error, 1.0 / D)
    return DONE


@kernel
def absorb_context(state: SketchedState, x: Floats, reward: float) -> None:
    """Record a reward for a context."""
    state.level[SAMPLES] += 1.0
    if np.dot(x, x) == 0.0:
        return
    sketch, d, most = state.sketch, state.theta.size, state.sketch.basis.shape[0]
    p, u = state.work[d : d + most], state.work[d + most : d + 2 * most]
    sketches.open_block(sketch, x)
    sketches.extend(sketch, x, p)
    D, error = _append(state, x, p, u, reward)
    if sketch.level[SHRUNK] == 0.0:  # else the fit is not that of least squares
        state.seen[0]["squares"] += error * error * D
        state.seen[0]["freedom"] += 1.0
    full = sketches.is_full(sketch)
    if full or not 1.0 <= D <= MAX_STEP:
        _decompose(state, full)
