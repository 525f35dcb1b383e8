"""A reward in the hybrid model: rank-one changes of the arm's own fit, of the shared fit, and of every arm's spread."""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.hybrid.layout import HybridState

LARGEST_STEP = 1e6  # a step by this factor costs six digits: a refit follows


@kernel
def rotate_in(factor: Floats, row: Floats) -> None:
    """Add ``row`` to the rows of which ``factor`` is the triangular factor, by Givens rotations; ``row`` is used up."""
    for k in range(row.size):
        if row[k] == 0.0:
            continue
        length = np.hypot(factor[k, k], row[k])
        c, s = factor[k, k] / length, row[k] / length
        factor[k, k] = length
        for i in range(k + 1, row.size):
            old = factor[k, i]
            factor[k, i] = c * old + s * row[i]
            row[i] = c * row[i] - s * old


@kernel
def record(state: HybridState, arm: int, x: Floats, reward: float) -> None:
    """Record ``reward`` of ``arm`` in context ``x``, and move every arm of its cluster. O((pr)^2 + |C| p (p + r)).

    With ``u`` the scaled context, A the arm's own precision, c its ridge and z its coordinates: ``g = A^-1 u``,
    ``push = c g x z``, ``h = A_0^-1 push``, ``D = 1 + u g``, ``D' = D + push h = 1 + u spread u`` and ``e`` what the
    prediction missed. The coefficients of arm b have the covariance w with that, ``spread u`` for the arm itself and
    ``c A_b^-1 H z_b`` for others, H being h as a matrix: they move by ``w e/D'``, their spread by ``-w w'/D'``.
    A reward that counts for less or more has ``x``, its constant with it, and ``reward`` multiplied by one number.
    """
    level, k = state.level[0], state.cluster[arm]
    p, r = state.shared.shape[1:]
    row, u, length = np.empty(p + 1), np.empty(p), 0.0
    for i in range(p):
        row[i], u[i] = x[i], x[i] * state.scale[i]
        if i < p - 1:
            length += x[i] ** 2
    row[p] = reward
    if x[p - 1] > 0.0:
        level["shortest"] = min(level["shortest"], length / x[p - 1] ** 2)
    rotate_in(state.factors[arm], row)
    own, inverse = state.own[arm], state.inverse[arm]
    g, w = np.empty(p), np.empty(p)
    D, e = 1.0, reward - level["centre"] * x[p - 1]
    for i in range(p):
        g[i] = np.dot(inverse[i], u)
        w[i] = np.dot(state.spread[arm, i], u)
        D += u[i] * g[i]
        e -= u[i] * own[i]
    h = np.empty((p, r))
    total = D + move_shared(state.shared[k], state.shared_inverse[k], g, state.coordinates[arm], D, e, level, h)
    if state.shared_factor.shape[0] > 0:
        push = np.empty(p * r)
        for i in range(p):
            for j in range(r):
                push[i * r + j] = level["own_ridge"] * g[i] * state.coordinates[arm, j] / np.sqrt(D)
        rotate_in(state.shared_factor[k], push)
    state.logdet[k] += np.log(total)
    move_arm(own, state.spread[arm], w, e, total)
    for i in range(p):
        for j in range(p):
            inverse[i, j] -= g[i] * g[j] / D
    move_others(state, arm, h, e, total)
    state.counts[arm] += 1
    level["samples"] += 1
    if total > LARGEST_STEP:
        level["due"] = level["samples"]


@kernel
def move_shared(
    shared: Floats, whole: Floats, g: Floats, z: Floats, D: float, e: float, level: np.void, h: Floats
) -> float:
    """Move a cluster's coefficients and the inverse of its precision; fills ``h``, returns ``push h``."""
    p, r = h.shape
    push, flat, more = np.empty(p * r), h.ravel(), 0.0
    for i in range(p):
        for j in range(r):
            push[i * r + j] = level["own_ridge"] * g[i] * z[j]
    for i in range(p * r):
        flat[i] = np.dot(whole[i], push)
        more += push[i] * flat[i]
    for i in range(p):
        for j in range(r):
            h[i, j] = flat[i * r + j]
            shared[i, j] += h[i, j] * e / (D + more)
    for i in range(p * r):
        step = flat[i] / (D + more)
        for j in range(p * r):
            whole[i, j] -= step * flat[j]
    return more


@kernel
def move_others(state: HybridState, arm: int, h: Floats, e: float, total: float) -> None:
    """Move all arms of the cluster but the one that was played."""
    k, (p, r) = state.cluster[arm], h.shape
    c, t, w = state.level[0]["own_ridge"], np.empty(p), np.empty(p)
    across = np.empty((r, p))
    for i in range(p):
        for j in range(r):
            across[j, i] = c * h[i, j]
    for place in range(state.starts[k], state.starts[k + 1]):
        b = state.members[place]
        if b == arm:
            continue
        times(across, state.coordinates[b], t)
        times(state.inverse[b], t, w)
        move_arm(state.own[b], state.spread[b], w, e, total)


@kernel
def times(rows: Floats, x: Floats, out: Floats) -> None:
    """``rows' x``, row by row, which compiles to vector instructions. For a symmetric matrix its product."""
    for i in range(out.size):
        out[i] = 0.0
    for j in range(x.size):
        factor = x[j]
        for i in range(out.size):
            out[i] += rows[j, i] * factor


@kernel
def move_arm(own: Floats, spread: Floats, w: Floats, e: float, total: float) -> None:
    """An arm's coefficients and their spread after a reward whose prediction has covariance ``w`` with them."""
    for i in range(w.size):
        step = w[i] / total
        own[i] += step * e
        for j in range(w.size):
            spread[i, j] -= step * w[j]
