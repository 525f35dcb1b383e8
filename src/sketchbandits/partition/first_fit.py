"""First-fit by rank at scale: one probe a cluster instead of a projection, in blocks, with the plain outcome.

Arms come as unit vectors x. A full cluster with orthonormal basis Q (l rows) is asked about an arm by *one* number:

    p.(G x) ,   p = (I - B'B) omega / ||.|| ,   B an orthonormal basis of Q G'

with ``G`` (m x d, m = l + 8, entries N(0, 1)) and ``omega`` drawn once. If x is within ``tol`` of the span of Q, then
``|p.Gx| <= ||G|| tol``, whatever was drawn; rounding p to float32 adds at most ``||G|| eps32`` and a float32 product
``(m + 4) eps32/2 ||Gx||``. So no member is missed, and what passes is asked again by `linalg.remove_projection`, the
one routine that decides on membership. Whatever was drawn, the labels, ranks *and bases* are those of the plain loop
"for every arm, for every cluster in order", bit for bit.

A block of arms goes through four steps: (1) unit vectors and ``G x``; (2) the first cluster that was full before the
block and contains the arm: one float32 product, then the exact routine for the few that pass; (3) a *plan*: the arms
left over, in order, fill cluster after cluster, which holds in general position, and there all clusters of the block
are orthonormalised side by side; (4) in order, the outcome: as planned up to the first arm that lies in a span of this
block, arm by arm from there to the block's end.

**Cost** O(N d l) for bases and compression, O(N K l) for probes, against O(N K l d) of the plain loop and O(N K l^2 d)
with an SVD for every test. A probe is a number of size 1 and a member's at most ``||G|| tol``, about ``2 sqrt(d) tol``:
where the tolerance is coarse (float16; 1e-2 and above), or arms are within some hundred tolerances of many spans, most
pass their probes and the plain loop's cost comes back, with the same outcome. Memory beyond the bases: blocks of an
eighth of the arms at most, and some ``4 (l + 8)/l + 16/l + 8`` bytes an arm for probes and labels.
"""

import importlib.util
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import ROUNDING, Floats, Ints, assign, dot, remove_projection, scale
from sketchbandits.kernels.threads import Threads, threads
from sketchbandits.validate import LARGEST, SMALLEST

Singles = NDArray[np.float32]

EXTRA = 8  # compressed dimensions beyond l
EPS32 = float(np.finfo(np.float32).eps)
BLOCK = (256, 4096)  # arms a block: least and most
TILE = 2**21  # entries of a float32 product at a time, 8 MiB; fewer where that is much beside the bases
PARALLEL = 2**24  # N l d from which threads are worth their start
SERIAL = 2**18  # N l d from which BLAS would start threads of its own, and is held to one

CLUSTERS, FULL, ROWS, HELD = range(4)  # entries of ``at``: clusters, full ones, rows of bases, the open one's rank


class Clusters(NamedTuple):
    """A partition in the making, with room for the largest it can become. Full clusters have ``rank`` rows each."""

    at: Ints
    ranks: Ints  # per cluster
    starts: Ints  # per cluster its first row in ``bases``
    bases: Floats
    probes: Singles  # per full cluster
    G: Floats
    omega: Floats
    rank: int  # of a full cluster
    limit: float  # a member's largest probe value
    tolerance: float


@kernel
def unit_rows(rows: Floats, out: Floats, suspects: Ints, first: int, last: int) -> None:
    """``out = x/||x||`` (zero stays zero), through the largest entry so that no square overflows or vanishes.

    ``suspects[i]`` becomes 1 for a row that is not finite or whose entries are beyond the library's limits.
    """
    d = rows.shape[1]
    for i in range(first, last):
        largest = 0.0
        for j in range(d):
            largest = max(largest, abs(rows[i, j]))
        if largest > LARGEST:
            suspects[i] = 1
            continue
        factor = 1.0 / largest if largest > 0.0 else 0.0
        for j in range(d):
            out[i, j] = rows[i, j] * factor
        norm = np.sqrt(dot(out[i], out[i]))
        sound = norm > 0.0 and largest >= SMALLEST
        suspects[i] = not (sound or (norm == 0.0 and largest == 0.0))
        if sound:
            scale(out[i], 1.0 / norm)


@kernel
def joins(clusters: Clusters, c: int, x: Floats, y: Floats, work: Floats) -> bool:
    """Whether a unit vector x, compressed to y, lies in the span of the full cluster ``c``: a probe, then exactly."""
    value, probe = 0.0, clusters.probes[c]
    for k in range(y.size):
        value += np.float64(probe[k]) * y[k]
    if abs(value) > clusters.limit:
        return False
    start, residual = clusters.starts[c], work[: x.size]
    assign(residual, x)
    basis = clusters.bases[start : start + clusters.rank]
    return remove_projection(basis, clusters.rank, residual, work[x.size :]) <= clusters.tolerance


@kernel
def search_tile(
    clusters: Clusters,
    directions: Floats,
    compressed: Floats,
    product: Singles,
    near: Singles,
    start: int,
    members: Ints,
) -> None:
    """For arms without a cluster yet: the first that they join of a tile of full clusters, from ``start`` on.

    ``product`` holds their float32 probe values, ``near`` the largest that a member can have there.
    """
    work = np.empty(directions.shape[1] + clusters.rank)
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
                if joins(clusters, start + j, directions[i], compressed[i], work):
                    members[i] = start + j
                    passed = 0
            j += 1


@kernel
def plan(
    clusters: Clusters, directions: Floats, todo: Ints, lefts: Floats, broken: Ints, first: int, last: int
) -> None:
    """Orthonormalise clusters ``first : last`` of a block as if the arms ``todo`` filled them in order.

    Their basis vectors are written where they will stand, what is left of each arm to ``lefts``. ``broken[g]`` is set
    where cluster g meets an arm in its span: the plan holds up to there.
    """
    bases, rank = clusters.bases, clusters.rank
    held = clusters.at[HELD]
    coordinates = np.empty(rank)
    for g in range(first, last):
        start = clusters.at[ROWS] - held + g * rank
        size = held if g == 0 else 0
        for k in range(g * rank - held + size, min((g + 1) * rank - held, todo.size)):
            x = bases[start + size]
            assign(x, directions[todo[k]])
            left = remove_projection(bases[start : start + size], size, x, coordinates)
            lefts[todo[k]] = left
            if left <= clusters.tolerance:
                broken[g] = 1
                break
            scale(x, 1.0 / left)
            size += 1


@kernel
def make_probe(clusters: Clusters, spanning: Floats, c: int) -> None:
    """The probe of cluster ``c``: orthogonal to the rows of ``spanning``, which are used up.

    It is zero, which everyone passes, where they span everything or omega, and nothing but rounding is left of it.
    """
    l, m = spanning.shape
    coordinates = np.empty(l)
    p = clusters.omega.copy()
    for k in range(l):
        row = spanning[k]
        before = np.sqrt(dot(row, row))
        left = remove_projection(spanning[:k], k, row, coordinates)
        # What rounding leaves of a dependent row is no direction.
        scale(row, 1.0 / left if left > ROUNDING * before else 0.0)
    before = np.sqrt(dot(p, p))
    left = remove_projection(spanning, l, p, coordinates)
    scale(p, 1.0 / left if l < m and left > ROUNDING * before else 0.0)
    for j in range(m):
        clusters.probes[c, j] = p[j]


@kernel
def make_probes(clusters: Clusters, spanning: Floats, first: int) -> None:
    """Probes of planned clusters from number ``first`` of the plan on, given their compressed bases."""
    for g in range(spanning.shape[0] // clusters.rank):
        rows = spanning[g * clusters.rank : (g + 1) * clusters.rank]
        make_probe(clusters, rows, clusters.at[FULL] + first + g)


@kernel
def find_suspects(clusters: Clusters, inside: Floats, todo: Ints, suspects: Ints, first: int, last: int) -> None:
    """Mark the arms of a plan that pass the probe of a cluster planned before their own.

    ``inside[k]`` are the values of arm ``todo[k]`` for the probes of the planned clusters.
    """
    for k in range(first, last):
        passed = 0
        for g in range(min((clusters.at[HELD] + k) // clusters.rank, inside.shape[1])):
            passed += abs(inside[k, g]) <= clusters.limit
        suspects[todo[k]] = passed > 0


@kernel
def full_in_block(clusters: Clusters, before: int, x: Floats, y: Floats, work: Floats) -> int:
    """The first cluster that x joins of those filled since there were ``before`` full ones; -1 if none."""
    for c in range(before, clusters.at[FULL]):
        if joins(clusters, c, x, y, work):
            return c
    return -1


@kernel
def settle(
    clusters: Clusters,
    directions: Floats,
    compressed: Floats,
    members: Ints,
    lefts: Floats,
    suspects: Ints,
    planned: bool,
    labels: Ints,
) -> int:
    """Give the arms of a block their clusters, in order; return how many went as planned.

    As long as the plan holds, only ``suspects`` can lie in a span of this block, and what is left of an arm is known.
    """
    n, d = directions.shape
    at, bases = clusters.at, clusters.bases
    work = np.empty(d + clusters.rank)
    before, kept = at[FULL], 0
    for i in range(n):
        c = members[i]
        if c < 0 and (not planned or suspects[i]):
            c = full_in_block(clusters, before, directions[i], compressed[i], work)
            planned = planned and c < 0
        if c >= 0:
            labels[i] = c
            continue
        if at[CLUSTERS] == at[FULL]:
            clusters.starts[at[CLUSTERS]] = at[ROWS]
            at[CLUSTERS] += 1
        c = at[CLUSTERS] - 1
        labels[i] = c
        start, x, left = clusters.starts[c], bases[at[ROWS]], lefts[i]
        if not planned:
            assign(x, directions[i])
            left = remove_projection(bases[start : at[ROWS]], at[HELD], x, work[d:])
        if left <= clusters.tolerance:
            planned = False
            continue
        if not planned:
            scale(x, 1.0 / left)
        kept += planned
        at[ROWS] += 1
        at[HELD] += 1
        clusters.ranks[c] = at[HELD]
        if at[HELD] == clusters.rank:
            if not planned:
                make_probe(clusters, np.dot(bases[start : at[ROWS]], clusters.G.T), c)
            at[FULL] += 1
            at[HELD] = 0
    return kept


class Prober(Protocol):
    """Finds the full clusters of arms."""

    def members(self, directions: Floats, compressed: Floats, full: int) -> Ints:
        """For every arm the first cluster below ``full`` that it joins, or -1."""


class CpuProber:
    """One float32 matrix product for a tile of clusters, then a compiled look for small entries."""

    def __init__(self, clusters: Clusters, threads: Threads) -> None:
        self.clusters, self.threads = clusters, threads
        self.entries = min(TILE, clusters.bases.size // 8) // threads.workers
        self.buffers: dict[int, Singles] = {}  # per thread, by where its part of a block starts

    def members(self, directions: Floats, compressed: Floats, full: int) -> Ints:
        """For every arm the first cluster below ``full`` that it joins, or -1."""
        members = np.full(len(compressed), -1)
        if full:
            self.threads.over(len(compressed), self._search, directions, compressed, full, members)
        return members

    def _search(self, directions: Floats, compressed: Floats, full: int, members: Ints, first: int, last: int) -> None:
        x, y, n, m = directions[first:last], compressed[first:last], last - first, compressed.shape[1]
        bound = self.clusters.limit + (m + 4) * EPS32 / 2 * np.linalg.norm(y, axis=1)
        near, single = (bound * (1 + EPS32)).astype(np.float32), y.astype(np.float32)
        width = min(full, max(1, self.entries // n))
        if first not in self.buffers or self.buffers[first].size < n * width:
            self.buffers[first] = np.empty(n * width, np.float32)
        for start in range(0, full, width):
            probes = self.clusters.probes[start : min(full, start + width)]
            product = self.buffers[first][: n * len(probes)].reshape(n, len(probes))
            np.matmul(single, probes.T, out=product)
            search_tile(self.clusters, x, y, product, near, start, members[first:last])


class FirstFit:
    """One partition in the making: `add` block after block, then `finish`."""

    def __init__(
        self, n: int, dim: int, sketch_size: int, tolerance: float, *, block: int, threads: Threads, device: str
    ) -> None:
        rank = min(sketch_size, dim)
        most, m = -(-n // rank) + 1, min(rank + EXTRA, dim)
        # The outcome does not depend on what is drawn; the seed is one that nobody draws arms from.
        generator = np.random.default_rng([20_061_012, 1_729])
        G = generator.standard_normal((m, dim)) if m < dim else np.eye(dim)
        self.clusters = Clusters(
            at=np.zeros(4, np.int64),
            ranks=np.zeros(most, np.int64),
            starts=np.zeros(most, np.int64),
            bases=np.empty((n, dim)),  # memory is taken as rows are written
            probes=np.empty((most, m), np.float32),
            G=G,
            omega=generator.standard_normal(m),
            rank=rank,
            limit=float(np.linalg.norm(G, 2)) * (1 + 1e-9) * (tolerance + EPS32),
            tolerance=tolerance,
        )
        self.threads, self.prober = threads, make_prober(device, self.clusters, threads)
        self.block = np.empty((block, dim))
        self.compressed = np.empty((block, m)) if m < dim else self.block
        self.wait = 0  # blocks until the next plan

    def add(self, rows: Floats, labels: Ints) -> bool:
        """Write the labels of the next block of arms; False, and nothing done, where it has entries it may not have."""
        clusters, n = self.clusters, len(rows)
        directions, compressed, suspects = self.block[:n], self.compressed[:n], np.zeros(n, np.int64)
        self.threads.over(n, self._prepare, rows, suspects)
        if suspects.any():
            return False
        members = self.prober.members(directions, compressed, int(clusters.at[FULL]))
        todo, lefts = np.flatnonzero(members < 0), np.empty(n)
        planned = self.wait == 0 and todo.size > 0
        if planned:
            self._plan(directions, compressed, todo, lefts, suspects)
        kept = settle(clusters, directions, compressed, members, lefts, suspects, planned, labels)
        # Where plans break early they are twice the work: the next blocks go arm by arm.
        self.wait = 8 if planned and 2 * kept < todo.size else max(0, self.wait - 1)
        return True

    def _prepare(self, rows: Floats, suspects: Ints, first: int, last: int) -> None:
        """Unit vectors, and their compression."""
        unit_rows(rows, self.block, suspects, first, last)
        if self.compressed is not self.block:
            np.matmul(self.block[first:last], self.clusters.G.T, out=self.compressed[first:last])

    def _plan(self, directions: Floats, compressed: Floats, todo: Ints, lefts: Floats, suspects: Ints) -> None:
        """Bases and probes of the block's clusters as they are if every arm left over adds to the rank."""
        clusters, rank = self.clusters, self.clusters.rank
        held, full = int(clusters.at[HELD]), int(clusters.at[FULL])
        groups = -(-(held + todo.size) // rank)
        broken = np.zeros(groups + 1, np.int64)
        broken[-1] = 1
        self.threads.over(groups, plan, clusters, directions, todo, lefts, broken)
        whole = min(int(broken.argmax()), (held + todo.size) // rank)
        self.threads.over(whole, self._make_probes)
        probes = clusters.probes[full : full + whole].astype(np.float64)
        inside = (compressed if todo.size == len(compressed) else compressed[todo]) @ probes.T
        self.threads.over(todo.size, find_suspects, clusters, inside, todo, suspects)

    def _make_probes(self, first: int, last: int) -> None:
        """Probes of the planned clusters ``first : last``."""
        clusters = self.clusters
        start = int(clusters.at[ROWS] - clusters.at[HELD])
        spanning = clusters.bases[start + first * clusters.rank : start + last * clusters.rank] @ clusters.G.T
        make_probes(clusters, spanning, first)

    def finish(self) -> tuple[Ints, Floats]:
        """Ranks, and the bases of all clusters as rows of one array."""
        at, bases = self.clusters.at, self.clusters.bases
        bases.resize((int(at[ROWS]), bases.shape[1]), refcheck=False)  # in place: no second copy
        return self.clusters.ranks[: at[CLUSTERS]].copy(), bases


def check_device(device: Any) -> str:
    """``"cpu"``, or a CUDA device that PyTorch can see."""
    if device == "cpu":
        return "cpu"
    if not isinstance(device, str) or not re.fullmatch(r"cuda(:\d+)?", device):
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:0', 'cuda:1' and so on, got {device!r}")
    if importlib.util.find_spec("torch") is None:
        raise ValueError(f"device must be 'cpu' where PyTorch is not installed (the extra 'cuda'), got {device!r}")
    from sketchbandits.partition import cuda as accelerator

    return accelerator.check_device(device)


def make_prober(device: str, clusters: Clusters, threads: Threads) -> Prober:
    """Where the matrix products with the probes run."""
    if device == "cpu":
        return CpuProber(clusters, threads)
    from sketchbandits.partition.cuda import TorchProber  # an extra: PyTorch is loaded only where it is asked for

    return TorchProber(device, clusters)


def first_fit(
    arms: NDArray[Any],
    sketch_size: int,
    tolerance: float,
    *,
    check: Callable[[Floats, int], None],
    workers: int,
    device: str,
    show: Callable[[float], None],
    most: float = math.inf,
) -> tuple[Ints, Ints, Floats]:
    """Labels, ranks and stacked bases of ``arms``, which are read a block at a time.

    ``check`` refuses a block with entries that no arm may have; ``show`` is told the share of the work that is done.
    Where ``most`` clusters are not enough the work ends early: there are then more ranks than that, and arms without
    a cluster of theirs.
    """
    n, d = arms.shape
    block = max(1, min(n, BLOCK[1], max(BLOCK[0], min(64 * sketch_size, n // 8))))
    labels = np.zeros(n, np.int64)
    work = n * d * min(sketch_size, d)
    workers = workers if work >= PARALLEL else 1
    with threads(workers) if work >= SERIAL else nullcontext(Threads()) as side_by_side:
        fit = FirstFit(n, d, sketch_size, tolerance, block=block, threads=side_by_side, device=device)
        for start in range(0, n, block):
            rows = np.ascontiguousarray(arms[start : start + block], np.float64)
            if not fit.add(rows, labels[start : start + block]):
                check(rows, start)
            show(_share(start + len(rows), n, fit.clusters))
            if fit.clusters.at[CLUSTERS] > most:
                break
    return (labels, *fit.finish())


def _share(done: int, n: int, clusters: Clusters) -> float:
    """The share of the work that is done: bases grow with the arms, probing with the arms and the clusters so far."""
    m, d = clusters.G.shape
    probing = m * int(clusters.at[FULL]) / 32  # a matrix product is so much faster than Gram-Schmidt
    return done * (clusters.rank * d + probing) / (n * (clusters.rank * d + probing * n / done))
