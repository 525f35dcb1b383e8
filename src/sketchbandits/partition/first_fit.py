"""First-fit by rank at scale: one probe per cluster instead of a projection, in blocks, with the plain outcome.

Arms come as unit vectors x. A full cluster is asked about an arm by one product with its probe (`partition.probe`), and
exactly only if the arm passes. No member fails its probe, so that the labels, ranks *and bases* are those of the plain
loop "for every arm, for every cluster in order", bit for bit.

A block of arms goes through four steps: (1) unit vectors, compressed at scale; (2) the first cluster that was full
before the block and contains the arm: one float32 product, then the exact routine for the few that pass; (3) at scale
a *plan* (`partition.plan`): the arms left over, in order, fill cluster after cluster, which holds in general position,
and all clusters of the block are orthonormalised in parallel; (4) in order, the outcome: as planned up to the first arm
that lies in a span of this block, arm by arm from there to the end of the block.

**Cost** O(N d l) for bases and compression, O(N K l) for probes, against O(N K l d) of the plain loop and O(N K l^2 d)
with an SVD for every test. Where the tolerance is coarse (float16; 1e-2 and above), or arms are within some hundred
tolerances of many spans, most arms pass their probes and the cost is that of the plain loop, with the same outcome.
Memory beyond the bases: blocks of an eighth of the arms at most, and some ``4 (l + 8)/l + 16/l + 8`` bytes per arm for
probes and labels.
**Guarantee** The outcome of the plain loop, whatever the blocks, plans, threads and device.
**Reference** Yang, Xie and Lian, "Efficient Linear Bandits via Cluster-Aware Sketching", Algorithm 2.
**Departures** See `sketchbandits.partition.partition`.
"""

import importlib.util
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, assign, dot, remove_projection, scale
from sketchbandits.kernels.threads import Threads, threads
from sketchbandits.partition.draft import N_CLUSTERS, N_FULL, N_ROWS, OPEN_RANK, Draft, count_row, open_cluster
from sketchbandits.partition.plan import find_suspects, follow_plan, plan
from sketchbandits.partition.probe import Compression, CpuProber, Prober, make_probe, residual_in_span
from sketchbandits.validate import LARGEST, SMALLEST

BLOCK = (256, 4096)  # arms per block: least and most
EXTRA = 8  # compressed dimensions beyond l
PLANNED = 2**20  # N l d from which compression and plans are worth their compilation
PARALLEL = 2**24  # N l d from which threads are worth their start
SERIAL = 2**18  # N l d from which BLAS would start threads of its own, and is limited to one


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
def settle(draft: Draft, directions: Floats, todo: Ints, labels: Ints, before: int) -> None:
    """Give the arms ``todo`` of a block, which no cluster of earlier blocks contains, their clusters, in order.

    ``before`` clusters were full when the block began; those filled since by a plan still need their probes.
    """
    counters, starts, bases, probes = draft.counters, draft.starts, draft.bases, draft.probes
    rank, tolerance, rest, z = draft.rank, draft.tolerance, np.empty(directions.shape[1]), np.empty(draft.rank)
    for c in range(before, counters[N_FULL]):
        make_probe(bases[starts[c] :], rank, draft.omega, probes[c - before])
    for i in todo:
        x, c, left = directions[i], before, np.inf
        while c < counters[N_FULL] and left == np.inf:
            left = residual_in_span(probes[c - before], bases[starts[c] :], rank, x, 1.0, tolerance, rest, z)
            c += 1
        labels[i] = c - 1
        if left < np.inf:
            continue
        c = labels[i] = open_cluster(counters, starts)
        end = counters[N_ROWS]
        assign(bases[end], x)
        left = remove_projection(bases[starts[c] :], end - starts[c], bases[end], z)
        if left > tolerance:
            scale(bases[end], 1.0 / left)
            if count_row(counters, draft.ranks, rank):
                make_probe(bases[starts[c] :], rank, draft.omega, probes[c - before])


class FirstFit:
    """One partition in the making: `add` block after block, then `finish`."""

    def __init__(
        self, n: int, dim: int, sketch_size: int, tolerance: float, *, block: int, threads: Threads, device: str
    ) -> None:
        rank = min(sketch_size, dim)
        self.plans = n * dim * rank >= PLANNED
        self.draft = Draft.empty(n, dim, rank, block, tolerance)
        self.compression = Compression(self.draft, min(rank + EXTRA, dim) if self.plans else dim)
        self.threads, self.prober = threads, make_prober(device, self.draft, self.compression, threads)
        self.block = np.empty((block, dim))
        self.compressed = np.empty((block, self.compression.dim)) if self.compression.dim < dim else self.block
        self.wait = 0  # blocks until the next plan

    def add(self, rows: Floats, labels: Ints) -> bool:
        """Write the labels of the next block of arms; False, and nothing done, if it has entries it may not have."""
        n, before, suspects = len(rows), int(self.draft.counters[N_FULL]), np.zeros(len(rows), np.int64)
        directions, compressed = self.block[:n], self.compressed[:n]
        self.threads.over(n, self._prepare, rows, suspects)
        if suspects.any():
            return False
        labels[:] = self.prober.members(directions, compressed)
        todo, done = np.flatnonzero(labels < 0), 0
        if self.plans and self.wait == 0 and todo.size > 0:
            done = self._follow_plan(directions, compressed, todo, labels)
            # Where plans break early they are twice the work: the next blocks go arm by arm.
            self.wait = 8 if 2 * done < todo.size else 0
        else:
            self.wait = max(0, self.wait - 1)
        if done < todo.size:
            settle(self.draft, directions, todo[done:], labels, before)
        self._hand_on_probes(before)
        return True

    def _prepare(self, rows: Floats, suspects: Ints, first: int, last: int) -> None:
        """Unit vectors, and their compression."""
        unit_rows(rows, self.block, suspects, first, last)
        if self.compressed is not self.block:
            self.compression.apply(self.block[first:last], self.compressed[first:last])

    def _hand_on_probes(self, before: int) -> None:
        """Later blocks compare their arms with the clusters filled in this one."""
        known, full = self.prober.known, int(self.draft.counters[N_FULL])
        if not self.plans:  # nor compression: the probes that `settle` made will do
            self.prober.append(self.draft.probes[: full - before])
        elif known < full:
            self.prober.append(self._probes(known, full))

    def _probes(self, first: int, last: int) -> Floats:
        """The compressed probes of clusters ``first : last``, full or planned: all before them have ``rank`` rows."""
        found = np.empty((last - first, self.compression.dim))
        self.threads.over(last - first, self._probes_part, first * self.draft.rank, found)
        return found

    def _probes_part(self, row: int, found: Floats, first: int, last: int) -> None:
        rank = self.draft.rank
        found[first:last] = self.compression.probes(self.draft.bases[row + first * rank : row + last * rank])

    def _follow_plan(self, directions: Floats, compressed: Floats, todo: Ints, labels: Ints) -> int:
        """Plan the block's clusters as if every arm of ``todo`` added to the rank; how many of them do so in order."""
        draft, rank, n = self.draft, self.draft.rank, len(directions)
        held, full = int(draft.counters[OPEN_RANK]), int(draft.counters[N_FULL])
        groups = -(-(held + todo.size) // rank)
        lefts, suspects, broken = np.empty(n), np.zeros(n, np.int64), np.zeros(groups + 1, np.int64)
        broken[-1] = 1
        self.threads.over(groups, plan, draft, directions, todo, lefts, broken)
        whole = min(int(broken.argmax()), (held + todo.size) // rank)
        probes, limit = self._probes(full, full + whole), self.compression.limit
        values = (compressed if todo.size == n else compressed[todo]) @ probes.T
        self.threads.over(todo.size, find_suspects, draft, values, limit, todo, suspects)
        done = follow_plan(draft, directions, todo, lefts, suspects, values, limit, labels)
        self.prober.append(probes[: int(draft.counters[N_FULL]) - full])
        return done

    def finish(self) -> tuple[Ints, Floats]:
        """Ranks, and the bases of all clusters as rows of one array."""
        counters, bases = self.draft.counters, self.draft.bases
        bases.resize((int(counters[N_ROWS]), bases.shape[1]), refcheck=False)  # in place: no second copy
        return self.draft.ranks[: counters[N_CLUSTERS]].copy(), bases


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


def make_prober(device: str, draft: Draft, compression: Compression, threads: Threads) -> Prober:
    """Where the matrix products with the probes run."""
    if device == "cpu":
        return CpuProber(draft, compression, threads)
    from sketchbandits.partition.cuda import TorchProber  # an extra: PyTorch is loaded only where it is asked for

    return TorchProber(device, draft, compression)


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
    """Labels, ranks and stacked bases of ``arms``, which are read one block at a time.

    ``check`` refuses a block with entries that no arm may have; ``show`` is called with the share of the work that is
    done. Where ``most`` clusters are not enough the work ends early: there are then more ranks than that, and arms
    without a cluster of theirs.
    """
    n, d = arms.shape
    labels = np.zeros(n, np.int64)
    work = n * d * min(sketch_size, d)
    workers = workers if work >= PARALLEL else 1
    wanted = min(64 * sketch_size, n // 8) if work >= PLANNED else 0  # large blocks are for plans
    block = max(1, min(n, BLOCK[1], max(BLOCK[0], wanted)))
    with threads(workers) if work >= SERIAL else nullcontext(Threads()) as pool:
        fit = FirstFit(n, d, sketch_size, tolerance, block=block, threads=pool, device=device)
        for start in range(0, n, block):
            rows = np.ascontiguousarray(arms[start : start + block], np.float64)
            if not fit.add(rows, labels[start : start + block]):
                check(rows, start)
            show(_share(start + len(rows), n, fit))
            if fit.draft.counters[N_CLUSTERS] > most:
                break
    return (labels, *fit.finish())


def _share(done: int, n: int, fit: FirstFit) -> float:
    """The share of the work that is done: bases grow with the arms, probing with the arms and the clusters so far."""
    draft = fit.draft
    bases = draft.rank * draft.omega.size
    probing = fit.compression.dim * int(draft.counters[N_FULL]) / 32  # a matrix product is so much faster
    return done * (bases + probing) / (n * (bases + probing * n / done))
