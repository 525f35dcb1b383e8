"""Ridge statistics in *whitened* coordinates.

Given arms as columns ``z_i`` and data with counts ``n_i``,

    V = ridge I + sum_i n_i z_i z_i'      (r x r)

`whiten` finds ``W`` with ``W'W = V^-1`` and stores ``W z_i``; in those coordinates ``V`` is the identity, and
`ridge_step` records further pulls by rank-one steps on ``A = V^-1``, which starts at ``I``. The condition of ``A`` is
at most the determinant's growth since the last whitening, or one plus the trace of what was added, and callers keep one
of them below `MAX_GROWTH`. The steps therefore stay accurate to a few digits of machine precision for *every* ridge and
arm scale, where the same recursion on the plain inverse loses all digits (for ``ridge=1e-8`` and arms of size 1e6 after
one pull).
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import (
    MAX_STEP,
    ROUNDING,
    SVD_NOISE,
    TILE,
    Floats,
    Ints,
    assign,
    combine,
    downdate,
    identity,
    matvec,
    scale,
)


@kernel
def ridge_step(A: Floats, W: Floats, mean: Floats, width2: Floats, work: Floats, j: int, reward: float) -> float:
    """Record one pull of column ``j`` and return the factor ``D`` by which det V grows.

        u = A w_j ;  g = W'u ;  D = 1 + g_j
        A -= u u'/D ;  mean += g (reward - mean_j)/D ;  width2 -= g^2/D

    ``work`` gets u, w_j and g. By Cauchy-Schwarz no squared width shrinks by more than ``D``, which
    is the floor that keeps widths positive. With ``D`` outside ``[1, MAX_STEP]`` nothing is changed: the caller whitens
    instead. Cost O(r^2 + n r).
    """
    r, n = W.shape
    u, w, g = work[:r], work[r : 2 * r], work[2 * r : 2 * r + n]
    assign(w, W[:, j])  # contiguous: Numba compiles a kernel once for each kind of array
    combine(w, A, u)
    combine(u, W, g)
    D = 1.0 + g[j]
    if not 1.0 <= D <= MAX_STEP:
        return D
    scale = 1.0 / D
    downdate(A, u, scale)
    spread(mean, width2, g, (reward - mean[j]) * scale, scale)
    return D


@kernel
def gram_step(fits: Floats, start: int, work: int, stats: Floats, first: int, n: int, j: int, reward: float) -> float:
    """`ridge_step` for few arms: ``G = Z V^-1 Z'`` itself instead of coordinates.

        g = G_j ;  D = 1 + g_j ;  G -= g g'/D ;  mean += g (reward - mean_j)/D ;  width2 = diag G

    ``G`` is n x n from ``fits[start]`` on, of which the lower triangle is kept up; scratch space begins at
    ``fits[work]``. Rows 0 and 1 of ``stats`` hold means and squared widths, the arms' own from column ``first`` on.
    Cost O(n^2): the cheaper form while n <= 2 r.
    """
    G, g = fits[start : start + n * n], fits[work : work + n]
    mean, width2 = stats[0, first : first + n], stats[1, first : first + n]
    D = 1.0 + G[j * n + j]
    if not 1.0 <= D <= MAX_STEP:
        return D
    scale = 1.0 / D
    error = (reward - mean[j]) * scale
    for i in range(j + 1):
        g[i] = G[j * n + i]
    for i in range(j + 1, n):
        g[i] = G[i * n + j]
    for i in range(n):
        mean[i] += g[i] * error
        s = g[i] * scale
        for k in range(i + 1):
            G[i * n + k] -= s * g[k]
        least = width2[i] * scale
        width2[i] = G[i * n + i] if G[i * n + i] > least else least
    return D


@kernel
def root_step(F: Floats, W: Floats, mean: Floats, width2: Floats, work: Floats, j: int, reward: float) -> float:
    """`ridge_step` for a square root ``F`` of the inverse, ``A = F F'`` (Potter's form), which sampling needs.

        s = F'w_j ;  u = F s ;  g = W'u ;  D = 1 + g_j ;  F -= u s'/(D + sqrt D)

    ``work`` holds s, u and g.
    """
    r, n = W.shape
    s, u, g = work[:r], work[r : 2 * r], work[2 * r : 2 * r + n]
    assign(u, W[:, j])
    combine(u, F, s)
    matvec(F, s, u)
    combine(u, W, g)
    D = 1.0 + g[j]
    if not 1.0 <= D <= MAX_STEP:
        return D
    shrink = 1.0 / (D + np.sqrt(D))
    for a in range(r):
        for b in range(r):
            F[a, b] -= shrink * u[a] * s[b]
    spread(mean, width2, g, (reward - mean[j]) / D, 1.0 / D)
    return D


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
    ridge is added *after* it, so a tiny one is not lost next to large data; the estimate uses ``U``, not ``sum y z``,
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


class WhitenedFit(NamedTuple):
    """A ridge fit in coordinates where V is the identity."""

    W: Floats  # the columns
    theta: Floats  # the estimate
    logdet: float  # ln det(V/ridge)


def whitened_fit(Z: Floats, counts: Ints, sums: Floats, ridge: float) -> WhitenedFit:
    """`whiten` in NumPy, for fits of so many arms that a refit is rare compared with a round's work.

    Products are sums over one axis, not BLAS, whose last bits depend on its threads.
    """
    r = len(Z)
    sigma, frame, target = np.zeros(r), np.eye(r), np.zeros(r)
    if (pulled := np.flatnonzero(counts)).size:
        root = np.sqrt(counts[pulled])
        rows = np.zeros((max(pulled.size, r), r))
        rows[: pulled.size] = root[:, None] * Z[:, pulled].T
        U, sigma, frame = np.linalg.svd(rows, full_matrices=False)
        sigma[sigma <= SVD_NOISE * sigma[0]] = 0.0
        target = np.einsum("ik,i->k", U[: pulled.size], sums[pulled] / root)
    weight = 1.0 / np.sqrt(sigma**2 + ridge)
    W = np.einsum("kj,ji->ki", frame, Z)
    W[np.abs(W) <= ROUNDING * np.sqrt((Z**2).sum(axis=0))] = 0.0
    return WhitenedFit(W * weight[:, None], target * sigma * weight, float(np.log1p(sigma**2 / ridge).sum()))
