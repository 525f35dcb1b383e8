"""What a round of every policy takes: arithmetic operations, the bytes they touch, and the memory a policy keeps.

Operations are multiplications with their additions, as the kernels do them on long rows. What runs slower is counted as
several: a look at an arm (a root, a comparison) as `LOOK`, sums that go element by element as `SLOW`, a call of LAPACK
as `CALL`. These weights were set once by measurement; `benchmarks/advice.py` compares the outcome with the clock. Means
over a long run: what happens every so many rounds is shared out.
"""

import math
from typing import NamedTuple

from sketchbandits.kernels.linalg import MAX_STEPS
from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.policies.cslb.shortlist import LEAST_ARMS
from sketchbandits.policies.fits.sketched import LARGEST_GRAM

LOOK, SLOW, CALL, NORMAL, DOT = 14, 2, 130_000, 100, 200
NUMBER = 8  # bytes
FIRST_LOOKS = 1000  # rounds in which shortlists do not help yet


class Cost(NamedTuple):
    """A mean round: operations, and bytes that it touches; the bytes that the policy keeps, and in how many arrays.

    A call from Python hands every array of the state to the kernel, which is most of what the call takes.
    """

    operations: float
    touched: float
    memory: float
    arrays: int


def ucb1(n: int, d: int) -> Cost:
    """A look at every arm."""
    return Cost(n * LOOK / 2, NUMBER * 4 * n, NUMBER * (n * d + 6 * n), 6)


def oful(n: int, d: int) -> Cost:
    """A rank-one step on all arms, and a look at each; also LinUCB."""
    step = 2 * d * d + n * (d + LOOK) + _refit(n, d) / MAX_STEPS
    return Cost(step, NUMBER * (n * d + d * d), NUMBER * (3 * n * d + 2 * d * d), 9)


def rarely_switching(n: int, d: int, switches: float, rounds: int) -> Cost:
    """A rank-one step on the inverse alone; all arms are evaluated afresh at each switch."""
    step = 2 * d * d + min(1.0, switches / rounds) * _refit(n, d)
    return Cost(step, NUMBER * d * d, NUMBER * (3 * n * d + 2 * d * d), 9)


def lints(n: int, d: int) -> Cost:
    """A step on a root of the inverse, a draw, and its value at every arm."""
    step = 4 * d * d + n * (2 * d + LOOK) + NORMAL * d + _refit(n, d) / MAX_STEPS
    return Cost(step, NUMBER * (n * d + d * d), NUMBER * (3 * n * d + 2 * d * d), 11)


def cbrap(n: int, d: int, size: int) -> Cost:
    """OFUL's round in ``size`` dimensions."""
    step = oful(n, size)
    return step._replace(memory=step.memory + NUMBER * (n + size) * d)


def cslb(n: int, d: int, row: ClusterRow, rounds: int) -> Cost:
    """A rank-one step inside the cluster that acts; a huge cluster keeps shortlists."""
    size, r = row.acting, min(row.sketch_size, row.acting)
    step = _cluster_step(size, r) + size * LOOK
    if size >= LEAST_ARMS:
        # Lists last about in proportion to the rounds played: so many looks at all arms in the long run.
        full = FIRST_LOOKS * (1.0 + math.log(max(1.0, rounds / FIRST_LOOKS)))
        step *= min(1.0, full / rounds + 1 / 256)
    memory = NUMBER * (n * d + row.total_rank * d + 2 * n * r + 8 * n)
    return Cost(step + _tournament(row), NUMBER * size * r, memory, 14)


def multiscale(n: int, d: int, space_dims: int, row: ClusterRow) -> Cost:
    """CS-LB's round with a look at every scale; what the space's scale may spend comes on top."""
    size, r = row.acting, min(row.sketch_size, row.acting)
    step = _cluster_step(size, r) + 2 * size * LOOK
    clusters = NUMBER * (n * d + row.total_rank * d + 2 * n * r + 20 * n)
    space = NUMBER * (n * space_dims + 2 * space_dims * space_dims)
    return Cost(step + _tournament(row), NUMBER * size * r, clusters + space, 25)


def budget_weight(dims: int) -> float:
    """What an operation of MultiscaleCSLB's budget is worth: rotations and solutions on rows that grow shorter."""
    return 1.5 + 80.0 / max(dims, 1)


def space_refresh(n: int, dims: int) -> float:
    """Operations from one fit of the space to the next at most: every arm's row (3 D^2) and every arm's bound (D^2)."""
    return 4.0 * n * dims * dims


def sketched(n: int, d: int, size: int, rank: int) -> Cost:
    """SOFUL and CBSCFD: a step with up to ``2 size`` rows, and a decomposition every ``size`` rounds."""
    k = min(1.5 * size, rank)
    found = _sketched(n, d, k, size, 2 * size)
    if n > LARGEST_GRAM and size < rank:
        # A row in a new direction: its coordinate of every arm, by dot products.
        return found._replace(operations=found.operations + n * (d + DOT))
    return found


def dyadic(n: int, d: int, size: int, rank: int) -> Cost:
    """DBSLinUCB: blocks double until one holds the rank; that one is decomposed every so many rounds."""
    held = size
    while held < rank:
        held *= 2
    return _sketched(n, d, rank, held, 2 * held)


def _sketched(n: int, d: int, k: float, every: int, rows: int) -> Cost:
    step = n * (k + LOOK) + SLOW * (5 * k * d + 2 * k * k)
    turn = 2 * _svd(rows, k) + k * k * d + n * (k * k + d + DOT)
    gram = n * n if n <= LARGEST_GRAM else 0
    memory = NUMBER * (2 * n * d + gram + n * min(rows, d) + 2 * rows * d)
    return Cost(step + turn / every, NUMBER * (n * k + k * d), memory, 20)


def _cluster_step(size: float, r: float) -> float:
    """A step in the form that is cheaper: the Gram matrix of few arms, or coordinates."""
    step = size * size / 2 if size <= 2 * r else 2 * r * r + size * r
    return step + _refit(size, r) / MAX_STEPS


def _tournament(row: ClusterRow) -> float:
    """To find the largest sentinel."""
    return 16 * math.log(row.fewest + 1.0)


def _refit(n: float, r: float) -> float:
    """All arms whitened and evaluated from per-arm sums."""
    return 2 * n * r * r + _svd(r, r)


def _svd(m: float, k: float) -> float:
    """An SVD or QR of an m x k matrix."""
    return CALL + 1200 * k * k + 4 * m * k * k
