"""Compiled small-matrix kernels shared by partition, sketches and policies.

Everything here works on *whitened* ridge statistics. Given arms as columns ``z_i`` and data with counts ``n_i``,

    V = ridge I + sum_i n_i z_i z_i'      (r x r)

`whiten` finds ``W`` with ``W'W = V^-1`` and stores ``W z_i``; in those coordinates ``V`` is the identity, and
`ridge_step` books further pulls by rank-one steps on ``A = V^-1``, which starts at ``I``. The condition of ``A`` is at
most the determinant's growth since the last whitening, or one plus the trace of what was added, and callers keep one of
them below `MAX_GROWTH`: the steps therefore stay
accurate to a few digits of machine precision for *every* ridge and arm scale, where the same recursion on the plain
inverse loses all digits (for ``ridge=1e-8`` and arms of size 1e6 after one pull).
"""

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIE = 1e-9  # values this close, relatively, count as equal: correct implementations differ by an ulp
MAX_STEP = 10.0  # a pull that multiplies det V by more is booked by a fresh whitening
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
def add_exactly(total: Floats, lost: Floats, i: int, value: float) -> None:
    """``total[i] += value`` with the rounding error kept in ``lost[i]`` (Neumaier's sum)."""
    old = total[i]
    new = old + value
    if abs(old) >= abs(value):
        lost[i] += (old - new) + value
    else:
        lost[i] += (value - new) + old
    total[i] = new


@kernel
def combine(weights: Floats, rows: Floats, out: Floats) -> None:
    """``out = weights @ rows`` for a C-contiguous ``rows``, four rows at a time: vector code without ``fastmath``."""
    r, n = weights.size, out.size
    out[:] = 0.0
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
def ridge_step(
    A: Floats, W: Floats, mean: Floats, width2: Floats, u: Floats, g: Floats, j: int, reward: float
) -> float:
    """Book one pull of column ``j`` and return the factor ``D`` by which det V grows.

        u = A w_j ;  g = W'u ;  D = 1 + g_j
        A -= u u'/D ;  mean += g (reward - mean_j)/D ;  width2 -= g^2/D

    By Cauchy-Schwarz no squared width shrinks by more than ``D``, which is the floor that keeps widths positive.
    With ``D`` outside ``[1, MAX_STEP]`` nothing is changed: the caller whitens instead. Cost O(r^2 + n r).
    """
    combine(W[:, j], A, u)
    combine(u, W, g)
    D = 1.0 + g[j]
    if not 1.0 <= D <= MAX_STEP:
        return D
    scale = 1.0 / D
    downdate(A, u, scale)
    spread(mean, width2, g, (reward - mean[j]) * scale, scale)
    return D


@kernel
def gram_step(G: Floats, start: int, stats: Floats, first: int, n: int, j: int, reward: float, g: Floats) -> float:
    """`ridge_step` for few arms: ``G = Z V^-1 Z'`` itself instead of coordinates.

        g = G_j ;  D = 1 + g_j ;  G -= g g'/D ;  mean += g (reward - mean_j)/D ;  width2 = diag G

    ``G`` is n x n from ``G[start]`` on, of which the lower triangle is kept up. Rows 0 and 1 of ``stats`` hold means
    and squared widths, the arms' own from column ``first`` on. Cost O(n^2): the cheaper form while n <= 2 r.
    """
    H, mean, width2 = G[start : start + n * n], stats[0, first : first + n], stats[1, first : first + n]
    D = 1.0 + H[j * n + j]
    if not 1.0 <= D <= MAX_STEP:
        return D
    scale = 1.0 / D
    error = (reward - mean[j]) * scale
    for i in range(j + 1):
        g[i] = H[j * n + i]
    for i in range(j + 1, n):
        g[i] = H[i * n + j]
    for i in range(n):
        mean[i] += g[i] * error
        s = g[i] * scale
        for k in range(i + 1):
            H[i * n + k] -= s * g[k]
        least = width2[i] * scale
        width2[i] = H[i * n + i] if H[i * n + i] > least else least
    return D


@kernel
def root_step(
    F: Floats, W: Floats, mean: Floats, width2: Floats, s: Floats, u: Floats, g: Floats, j: int, y: float
) -> float:
    """`ridge_step` for a square root ``F`` of the inverse, ``A = F F'`` (Potter's form), which sampling needs.

    s = F'w_j ;  u = F s ;  g = W'u ;  D = 1 + g_j ;  F -= u s'/(D + sqrt D)
    """
    combine(W[:, j], F, s)
    matvec(F, s, u)
    combine(u, W, g)
    D = 1.0 + g[j]
    if not 1.0 <= D <= MAX_STEP:
        return D
    shrink = 1.0 / (D + np.sqrt(D))
    for a in range(u.size):
        for b in range(s.size):
            F[a, b] -= shrink * u[a] * s[b]
    spread(mean, width2, g, (y - mean[j]) / D, 1.0 / D)
    return D


@kernel
def triangular_step(R: Floats, target: Floats, x: Floats, y: float) -> float:
    """Rotate the row ``(x, y)`` into the triangular system ``R theta = target``; return how much ``ln det R'R`` grows.

    Givens rotations: O(d^2), backward stable, so nothing ever needs a refit. ``x`` is used up.
    """
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
    return growth


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


@kernel
def spread(mean: Floats, width2: Floats, g: Floats, error: float, scale: float) -> None:
    """The effect of one pull on every arm's mean and squared width."""
    for i in range(mean.size):
        mean[i] += g[i] * error
        width2[i] = max(width2[i] - g[i] * g[i] * scale, width2[i] * scale)


@kernel
def turn(basis: Floats, Z: Floats, W: Floats) -> None:
    """``W = basis @ Z`` for an r x r ``basis``, a tile of columns at a time that stays in cache. Cost O(n r^2).

    No BLAS here: its threads would wait for each other in every round that needs this, and its last bits depend on
    them.
    """
    r, n = Z.shape
    tile = np.empty((r, TILE))
    for first in range(0, n, TILE):
        size = min(TILE, n - first)
        for k in range(r):
            assign(tile[k, :size], Z[k, first : first + size])
        for k in range(r):
            combine(basis[k], tile, W[k, first : first + size])


@kernel
def pulled_rows(Z: Floats, counts: Ints, pulled: Ints) -> Floats:
    """Rows ``sqrt(n_i) z_i'`` of the pulled arms; at least r, so that the right factor of an SVD is a whole basis."""
    r = Z.shape[0]
    rows = np.zeros((max(pulled.size, r), r))
    for k in range(pulled.size):
        for a in range(r):
            rows[k, a] = np.sqrt(counts[pulled[k]]) * Z[a, pulled[k]]
    return rows


@kernel
def whiten(
    Z: Floats, counts: Ints, sums: Floats, lost: Floats, ridge: float, W: Floats, theta: Floats, frame: Floats
) -> float:
    """Fill ``W`` with the columns of ``Z`` in coordinates where V is the identity; return ``ln det(V/ridge)``.

    ``theta`` receives the ridge estimate in those coordinates, for per-arm reward sums ``sums + lost``, and ``frame``
    the map to them: ``W = frame Z``. All come from one SVD ``U Sigma B`` of the pulled rows ``sqrt(n_i) z_i'``. The
    ridge is added *after* it, so a tiny one is not lost beside large data; and the rewards meet ``U``, not ``sum y z``,
    whose rounding errors would spoil the estimate in directions that were never pulled. Cost O((n + r) r^2), O(n r)
    before the first pull.
    """
    r, n = Z.shape
    # A coordinate at rounding level would let an arm teach about directions that it does not have.
    dust = np.zeros(n)
    for k in range(r):
        for i in range(n):
            dust[i] += Z[k, i] ** 2
    for i in range(n):
        dust[i] = ROUNDING * np.sqrt(dust[i])
    pulled = np.flatnonzero(counts)
    sigma = np.zeros(r)
    for k in range(r):
        theta[k] = 0.0
    if pulled.size == 0:
        identity(frame)
        for k in range(r):
            assign(W[k], Z[k])
    else:
        U, sigma, basis = np.linalg.svd(pulled_rows(Z, counts, pulled), False)
        for k in range(r):
            assign(frame[k], basis[k])
        turn(frame, Z, W)
    logdet = 0.0
    for k in range(r):
        if sigma[k] <= SVD_NOISE * sigma[0]:
            sigma[k] = 0.0
        weight = 1.0 / np.sqrt(sigma[k] ** 2 + ridge)
        logdet += np.log1p(sigma[k] ** 2 / ridge)
        scale(frame[k], weight)
        for i in range(n):
            W[k, i] = W[k, i] * weight if abs(W[k, i]) > dust[i] else 0.0
        for i in range(pulled.size):
            j = pulled[i]
            theta[k] += U[i, k] * (sums[j] + lost[j]) / np.sqrt(counts[j]) * (sigma[k] * weight)
    return logdet


@kernel
def evaluate(W: Floats, theta: Floats, mean: Floats, width2: Floats) -> None:
    """Means and squared widths of every arm from whitened coordinates and estimate. Cost O(n r)."""
    combine(theta, W, mean)
    for i in range(width2.size):
        width2[i] = 0.0
    for k in range(W.shape[0]):
        for i in range(width2.size):
            width2[i] += W[k, i] ** 2


@kernel
def gram(W: Floats, G: Floats) -> None:
    """``G = W'W``."""
    r, n = W.shape
    for i in range(n):
        for j in range(i + 1):
            total = 0.0
            for k in range(r):
                total += W[k, i] * W[k, j]
            G[i, j] = G[j, i] = total


@kernel
def identity(A: Floats) -> None:
    """``A = I``."""
    A[:] = 0.0
    for k in range(A.shape[0]):
        A[k, k] = 1.0


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
    beside it, and twice is enough (Giraud, Langou and Rozloznik 2005). Every decision on membership or rank in this
    library rests on this one routine. Cost O(rank d).
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
