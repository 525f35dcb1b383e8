"""Least squares as a triangular system ``R theta = target`` with ``R'R = V``: Givens rotations, which need no refit."""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import ROUNDING, Floats


@kernel
def triangular_step(R: Floats, target: Floats, x: Floats, y: float) -> float:
    """Rotate the row ``(x, y)`` into the triangular system ``R theta = target``; return how much ``ln det R'R`` grows.

    Givens rotations: O(d^2), backward stable, so nothing ever needs a refit. ``x`` is used up.
    """
    return rotate(R, target, x, y)[0]


@kernel
def rotate(R: Floats, target: Floats, x: Floats, y: float) -> tuple[float, float]:
    """`triangular_step`, and the part of ``y`` that no theta can fit: the least sum of squares grows by its square."""
    growth = 0.0
    dust = ROUNDING * np.sqrt(np.dot(x, x))
    for k in range(x.size):
        # What rounding leaves of a row that is in the span would teach about directions that it does not have.
        if abs(x[k]) <= dust:
            continue
        length = np.hypot(R[k, k], x[k])
        c, s = R[k, k] / length, x[k] / length
        growth -= 2.0 * np.log(c)
        for i in range(k, x.size):
            old = R[k, i]
            R[k, i] = c * old + s * x[i]
            x[i] = c * x[i] - s * old
        old = target[k]
        target[k] = c * old + s * y
        y = c * y - s * old
    return growth, y


@kernel
def solve_upper(R: Floats, target: Floats, out: Floats) -> None:
    """Solve ``R out = target``."""
    n = target.size
    for k in range(n - 1, -1, -1):
        total = target[k]
        for i in range(k + 1, n):
            total -= R[k, i] * out[i]
        out[k] = total / R[k, k]


@kernel
def triangular_norms(R: Floats, rows: Floats, out: Floats) -> None:
    """``||x||`` under ``(R'R)^-1`` for every row, by solving ``R's = x``; ``rows`` is used up. O(n d^2)."""
    for a in range(rows.shape[0]):
        x, total = rows[a], 0.0
        for k in range(x.size):
            s = x[k] / R[k, k]
            total += s * s
            for i in range(k + 1, x.size):
                x[i] -= s * R[k, i]
        out[a] = np.sqrt(total)
