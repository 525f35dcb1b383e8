"""Which span holds a vector? One product with a probe rules out most spans, one exact routine decides on the rest.

The probe of a span with orthonormal basis Q is a unit vector orthogonal to it:

    p = (I - Q'Q) omega / ||.|| ,   omega drawn once and used for all spans.

If x is within ``tol`` of the span, then ``|p.x| <= tol``, whatever was drawn; a unit vector elsewhere has a value of
about ``1/sqrt(d)``. What passes is measured by `linalg.remove_projection`, the one routine that decides on membership,
so that probes save time and never change an answer. First-fit, arms that are added later and streams of contexts all
ask this way.

At scale first-fit asks in ``m = l + 8`` dimensions instead of d: with ``G`` (m x d, entries N(0, 1), drawn once) the
probe of the compressed span ``Q G'`` is applied to ``G x``. A member then has ``|p.Gx| <= ||G|| tol``. In float32,
rounding p adds at most ``||G|| eps32`` and a product ``(m + 4) eps32/2 ||Gx||``.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import ROUNDING, Floats, Ints, assign, dot, remove_projection, scale
from sketchbandits.kernels.threads import Threads
from sketchbandits.partition.draft import Draft

Singles = NDArray[np.float32]

EPS32 = float(np.finfo(np.float32).eps)
LEAST = 1e3 * ROUNDING  # of omega: if a span leaves less of it, rounding would decide on the probe's direction
SLACK = 1e-9  # of a vector's norm: what rounding can add to a probe's value
TILE = 2**21  # entries of a float32 product at a time, 8 MiB; fewer where that is much compared with the bases


@kernel
def make_probe(basis: Floats, rank: int, omega: Floats, probe: Floats) -> None:
    """Write to ``probe`` the direction of omega orthogonal to the first ``rank`` rows of ``basis``.

    The probe is zero, which every vector passes, where the span leaves nothing but rounding of omega.
    """
    assign(probe, omega)
    left = remove_projection(basis, rank, probe, np.empty(rank))
    scale(probe, 1.0 / left if left > LEAST * np.sqrt(dot(omega, omega)) else 0.0)


@kernel
def residual_in_span(
    probe: Floats, basis: Floats, rank: int, x: Floats, norm: float, tolerance: float, rest: Floats, z: Floats
) -> float:
    """What the span of the first ``rank`` rows of ``basis`` leaves of x; +inf if more than ``tolerance`` of its norm.

    ``rest`` receives x less its part in the span, and ``z`` that part's coordinates, unless the probe rules x out.
    """
    if abs(dot(probe, x)) > (tolerance + SLACK) * norm:
        return np.inf
    assign(rest, x)
    left = remove_projection(basis, rank, rest, z)
    return left if left <= tolerance * norm else np.inf


@kernel
def search_tile(draft: Draft, directions: Floats, product: Singles, near: Singles, start: int, members: Ints) -> None:
    """For arms without a cluster: the first that contains them in a tile of full clusters, from number ``start`` on.

    ``product`` holds their float32 probe values, ``near`` the largest that a member can have there.
    """
    rest, z = np.empty(directions.shape[1]), np.empty(draft.rank)
    for i in range(members.size):
        if members[i] >= 0:
            continue
        row, passed = product[i], 0
        for j in range(row.size):
            passed += abs(row[j]) <= near[i]
        j = 0
        while passed > 0:
            if abs(row[j]) <= near[i]:
                passed -= 1
                first = draft.starts[start + j]
                assign(rest, directions[i])
                if remove_projection(draft.bases[first:], draft.rank, rest, z) <= draft.tolerance:
                    members[i] = start + j
                    passed = 0
            j += 1


class Compression:
    """Vectors and probes of full clusters in ``dim`` dimensions, more than the rank of a cluster, or all there are.

    In all dimensions there is nothing to compress: ``G`` is the identity, which is never written down.
    """

    def __init__(self, draft: Draft, dim: int) -> None:
        self.rank, self.dim, d = draft.rank, dim, draft.omega.size
        # The outcome does not depend on what is drawn; the seed is one that nobody draws arms from.
        generator = np.random.default_rng([20_061_012, 1_730])
        self.G: Floats | None = generator.standard_normal((self.dim, d)) if self.dim < d else None
        self.omega: Floats = self._compressed(draft.omega)
        stretch = 1.0 if self.G is None else float(np.linalg.norm(self.G, 2))
        self.limit = stretch * (1 + SLACK) * (draft.tolerance + EPS32)

    def apply(self, vectors: Floats, out: Floats) -> None:
        """``out = G x`` for every row."""
        out[:] = self._compressed(vectors)

    def probes(self, bases: Floats) -> Floats:
        """The probes of full clusters, given their bases one after the other; zero where nothing is orthogonal."""
        spans = np.linalg.qr(self._compressed(bases).reshape(-1, self.rank, self.dim).transpose(0, 2, 1))[0]
        probes = np.broadcast_to(self.omega[:, None], (len(spans), self.dim, 1))
        for _ in range(2):  # the second time for what rounding has left
            probes = probes - spans @ (spans.transpose(0, 2, 1) @ probes)
        left = np.linalg.norm(probes, axis=1, keepdims=True)
        found = (left > LEAST * np.linalg.norm(self.omega)) & (self.rank < self.dim)
        return np.where(found, probes / np.where(found, left, 1.0), 0.0)[:, :, 0]

    def _compressed(self, vectors: Floats) -> Floats:
        return vectors if self.G is None else vectors @ self.G.T


class Prober(Protocol):
    """Finds the full clusters of arms; ``known`` of them have their probes here."""

    known: int

    def append(self, probes: Floats) -> None:
        """Take the probes of the clusters that were filled next."""

    def members(self, directions: Floats, compressed: Floats) -> Ints:
        """For every arm the first of the clusters known so far that contains it, or -1."""


class CpuProber:
    """One float32 matrix product for a tile of clusters, then a compiled search for small entries."""

    def __init__(self, draft: Draft, compression: Compression, threads: Threads) -> None:
        self.draft, self.limit, self.threads = draft, compression.limit, threads
        self.probes = np.empty((draft.ranks.size, compression.dim), np.float32)
        self.known = 0
        self.entries = min(TILE, draft.bases.size // 8) // threads.workers
        self.buffers: dict[int, Singles] = {}  # one per thread, by where its part of a block starts

    def append(self, probes: Floats) -> None:
        """Take the probes of the clusters that were filled next."""
        self.probes[self.known : self.known + len(probes)] = probes
        self.known += len(probes)

    def members(self, directions: Floats, compressed: Floats) -> Ints:
        """For every arm the first of the clusters known so far that contains it, or -1."""
        members = np.full(len(compressed), -1)
        if self.known:
            self.threads.over(len(compressed), self._search, directions, compressed, members)
        return members

    def _search(self, directions: Floats, compressed: Floats, members: Ints, first: int, last: int) -> None:
        y, n, m = compressed[first:last], last - first, compressed.shape[1]
        bound = self.limit + (m + 4) * EPS32 / 2 * np.linalg.norm(y, axis=1)
        near, single = (bound * (1 + EPS32)).astype(np.float32), y.astype(np.float32)
        width = min(self.known, max(1, self.entries // n))
        if first not in self.buffers or self.buffers[first].size < n * width:
            self.buffers[first] = np.empty(n * width, np.float32)
        for start in range(0, self.known, width):
            probes = self.probes[start : min(self.known, start + width)]
            product = self.buffers[first][: n * len(probes)].reshape(n, len(probes))
            np.matmul(single, probes.T, out=product)
            search_tile(self.draft, directions[first:last], product, near, start, members[first:last])
