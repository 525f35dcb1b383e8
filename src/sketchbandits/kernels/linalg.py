"""Compiled vector and small-matrix kernels that partition, sketches and policies share, and their constants."""

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIE = 1e-9  # values this close, relatively, count as equal: correct implementations differ by an ulp
MAX_STEP = 10.0  # a pull that multiplies det V by more is recorded by a fresh whitening
MAX_GROWTH = 1e4  # bound on the condition of A after which the statistics are whitened afresh
MAX_STEPS = 10_000  # likewise after this many pulls, so that rounding errors cannot pile up
SVD_NOISE = 1e-14  # singular values below this share of the largest are rounding noise
TILE = 512  # columns at a time that stay in cache
ROUNDING = 1e-13  # a residual below this share of its vector is rounding noise, not a direction


@kernel
def tie_threshold(top: float) -> float:
    """The least value that counts as equal to ``top``; +inf equals only itself."""
    return top if np.isinf(top) else top - TIE * abs(top)


@kernel
def tied_argmax(values: Floats) -> int:
    """The lowest index whose value ties with the largest."""
    top = values[0]
    for i in range(1, values.size):
        if values[i] > top:
            top = values[i]
    threshold = tie_threshold(top)
    for i in range(values.size):
        if values[i] >= threshold:
            return i
    return 0


@kernel
def assign(out: Floats, values: Floats) -> None:
    """``out[:] = values`` for vectors, which compiles in a tenth of the time of the slice assignment."""
    for i in range(out.size):
        out[i] = values[i]


@kernel
def scale(x: Floats, factor: float) -> None:
    """``x *= factor``."""
    for i in range(x.size):
        x[i] *= factor


@kernel
def lost_digits(old: float, value: float) -> float:
    """What rounding loses of ``old + value`` (Neumaier's sum)."""
    new = old + value
    if abs(old) >= abs(value):
        return (old - new) + value
    return (value - new) + old


@kernel
def add_exactly(table: Floats, row: int, i: int, value: float) -> None:
    """``table[row, i] += value``, with what rounding loses kept in the row after it."""
    table[row + 1, i] += lost_digits(table[row, i], value)
    table[row, i] += value


@kernel
def combine(weights: Floats, rows: Floats, out: Floats) -> None:
    """``out = weights @ rows`` for a C-contiguous ``rows``, four rows at a time: vector code without ``fastmath``."""
    r, n = weights.size, out.size
    for i in range(n):
        out[i] = 0.0
    k = 0
    while k + 4 <= r:
        a, b, c, d = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for i in range(n):
            out[i] += (a * rows[k, i] + b * rows[k + 1, i]) + (c * rows[k + 2, i] + d * rows[k + 3, i])
        k += 4
    while k < r:
        a = weights[k]
        for i in range(n):
            out[i] += a * rows[k, i]
        k += 1


@kernel
def matvec(A: Floats, x: Floats, out: Floats) -> None:
    """``out = A x``, with four partial sums a row."""
    n = x.size
    for k in range(A.shape[0]):
        a = b = c = d = 0.0
        i = 0
        while i + 4 <= n:
            a += A[k, i] * x[i]
            b += A[k, i + 1] * x[i + 1]
            c += A[k, i + 2] * x[i + 2]
            d += A[k, i + 3] * x[i + 3]
            i += 4
        while i < n:
            a += A[k, i] * x[i]
            i += 1
        out[k] = (a + b) + (c + d)


@kernel
def downdate(A: Floats, u: Floats, scale: float) -> None:
    """``A -= scale u u'``."""
    r = A.shape[0]
    for a in range(r):
        s = u[a] * scale
        for b in range(r):
            A[a, b] -= s * u[b]


@kernel
def identity(A: Floats) -> None:
    """``A = I``."""
    for a in range(A.shape[0]):
        for b in range(A.shape[0]):
            A[a, b] = 1.0 if a == b else 0.0


@kernel
def dot(x: Floats, y: Floats) -> float:
    """``x.y``, with eight partial sums: vector code without ``fastmath``."""
    n = x.size
    a = b = c = d = e = f = g = h = 0.0
    i = 0
    while i + 8 <= n:
        a += x[i] * y[i]
        b += x[i + 1] * y[i + 1]
        c += x[i + 2] * y[i + 2]
        d += x[i + 3] * y[i + 3]
        e += x[i + 4] * y[i + 4]
        f += x[i + 5] * y[i + 5]
        g += x[i + 6] * y[i + 6]
        h += x[i + 7] * y[i + 7]
        i += 8
    while i < n:
        a += x[i] * y[i]
        i += 1
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@kernel
def subtract_combination(weights: Floats, rows: Floats, x: Floats) -> None:
    """``x -= weights @ rows``, four rows at a time."""
    r, n = weights.size, x.size
    k = 0
    while k + 4 <= r:
        a, b, c, d = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        for i in range(n):
            x[i] -= (a * rows[k, i] + b * rows[k + 1, i]) + (c * rows[k + 2, i] + d * rows[k + 3, i])
        k += 4
    while k < r:
        a = weights[k]
        for i in range(n):
            x[i] -= a * rows[k, i]
        k += 1


@kernel
def remove_projection(Q: Floats, rank: int, x: Floats, coordinates: Floats) -> float:
    """Take from ``x`` its part in the span of ``Q``'s first rows by classical Gram-Schmidt; return what is left.

    ``coordinates[:rank]`` receives ``Q x``, ``x`` becomes ``x - Q'Q x``, and its norm is returned. A second pass
    follows where the first leaves less than half of ``x``: what rounding has left in the span is then no longer small
    compared with it, and two passes are enough (Giraud, Langou and Rozloznik 2005). Every decision on membership or
    rank in this library rests on this one routine. Cost O(rank d).
    """
    before = left = dot(x, x)
    for k in range(rank):
        coordinates[k] = 0.0
    part = np.empty(rank)
    for _ in range(2):
        for k in range(rank):
            part[k] = dot(Q[k], x)
            coordinates[k] += part[k]
        subtract_combination(part, Q, x)
        left = dot(x, x)
        if left >= 0.25 * before:
            break
    return np.sqrt(left)
