"""How many clusters there are for a sketch size: ``K(l)`` and ``l^2 K(l)``, which CS-LB's bound grows with.

Theorem 1 is about ``beta sqrt(l K T)`` with ``beta ~ sqrt(l)``: the sketch size that makes ``l^2 K(l)`` least makes the
bound least. OFUL is ``l = rank, K = 1``; one scalar fit per ray is ``l = 1``.

**Cost** first-fit is O(N d l + N K l), `Partition.subspaces` more. Where that passes `MOST_WORK`, a random sample of
the arms, in their order, is partitioned, and half of it: what grows from the half to the whole is taken to go on
growing at that rate. ``K`` grows ever more slowly, so the estimate is mostly an upper one. ``K(1)``, the number of
rays, is always exact.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Ints
from sketchbandits.partition.partition import Partition

MOST_WORK = 4e9  # about a second
MOST_SAMPLED = 10_000
PURSUITS = 64  # of subspaces, each through as many arms as are sampled
SMALL = (*range(1, 13), 14, 16, 20, 24, 32, 40, 48)  # then 2^k and 3/2 2^k


class ClusterRow(NamedTuple):
    """Clusters for one sketch size ``l``; with ``sampled > 0`` they are estimates from so many arms.

    ``clusters`` is first-fit's K, ``subspaces`` that of `Partition.subspaces`, none where it was not tried; the rest is
    of the smaller of the two. ``deficiency`` is ``l K`` minus the sum of the ranks: rank that is not used.
    """

    sketch_size: int
    clusters: int
    subspaces: int | None
    largest: int
    total_rank: int
    sampled: int

    @property
    def fewest(self) -> int:
        """K by the better of the two ways."""
        return self.clusters if self.subspaces is None else min(self.clusters, self.subspaces)

    @property
    def score(self) -> int:
        """``l^2 K(l)``."""
        return self.sketch_size**2 * self.fewest

    @property
    def deficiency(self) -> int:
        """How much smaller the ranks are than the sketch size allows."""
        return self.sketch_size * self.fewest - self.total_rank


def sizes_to_try(rank: int) -> tuple[int, ...]:
    """Every small size, then two for each doubling, and the rank itself, where one cluster holds everything."""
    grown = (size for k in range(6, 40) for size in (2**k, 3 * 2 ** (k - 1)))
    return tuple(sorted({size for size in (*SMALL, *grown) if size < rank} | {rank}))


def cluster_table(
    arms: NDArray[Any],
    sizes: Sequence[int],
    rank: int,
    rays: Ints,
    rng: np.random.Generator,
    show: Callable[[float, str], None],
) -> tuple[ClusterRow, ...]:
    """One row per sketch size, in the order of ``sizes``; ``rays`` are labels of arms on one line, -1 for zero arms."""
    rows, counts = [], np.bincount(rays + 1, minlength=2)
    counts[1] += counts[0]  # zero arms join the first cluster
    for i, size in enumerate(sizes):
        show(i / len(sizes), f"clusters of rank {size}")
        rows.append(_row(arms, size, rank, counts[1:], rng))
    return tuple(rows)


class _Count(NamedTuple):
    """The size of a partition."""

    clusters: float
    largest: float
    total_rank: float


def _row(arms: NDArray[Any], size: int, rank: int, rays: Ints, rng: np.random.Generator) -> ClusterRow:
    n, d = arms.shape
    if size >= rank:
        return ClusterRow(size, 1, 1, n, rank, 0)
    if size == 1:
        return ClusterRow(1, rays.size, None, int(rays.max()), rays.size, 0)
    sampled = affordable(n, d, size)
    parts = _samples(arms, sampled, rng)
    ways = [_first_fit]
    if PURSUITS * sampled * d * size <= MOST_WORK:
        ways.append(_subspaces)
    # A full cluster has as many rays of its own as its rank: K <= ceil(rays/l), whatever a sample says.
    most = math.ceil(rays.size / size)
    counts = [_grown([way(part, size) for part in parts], sampled, n) for way in ways]
    best = min(counts, key=lambda count: count.clusters)
    return ClusterRow(
        sketch_size=size,
        clusters=min(most, round(counts[0].clusters)),
        subspaces=min(most, round(counts[1].clusters)) if len(counts) > 1 else None,
        largest=min(n, round(best.largest)),
        total_rank=min(rays.size, round(best.total_rank), size * min(most, round(best.clusters))),
        sampled=sampled if sampled < n else 0,
    )


def _samples(arms: NDArray[Any], sampled: int, rng: np.random.Generator) -> list[NDArray[Any]]:
    """All arms, or a random sample of them and half of it, in their order."""
    if sampled == len(arms):
        return [arms]
    chosen = rng.permutation(len(arms))[:sampled]
    return [arms[np.sort(chosen[:count])] for count in (sampled, sampled // 2)]


def affordable(n: int, dim: int, size: int) -> int:
    """The number of arms, in general position, that can be partitioned within the limit."""
    quadratic = math.sqrt(MOST_WORK * size / (2 * (size + 8)))
    linear = MOST_WORK / (2 * dim * (size + 8))
    most = max(4 * size, int(min(quadratic, linear)))
    return n if n <= most else min(most, MOST_SAMPLED)


def _first_fit(arms: NDArray[Any], size: int) -> _Count:
    return _count(Partition.first_fit(arms, sketch_size=size, progress=False))


def _subspaces(arms: NDArray[Any], size: int) -> _Count:
    return _count(Partition.subspaces(arms, size, progress=False))


def _count(partition: Partition) -> _Count:
    largest = np.bincount(partition.labels, minlength=partition.n_clusters).max()
    return _Count(float(partition.n_clusters), float(largest), float(partition.ranks.sum()))


def _grown(counts: Sequence[_Count], sampled: int, n: int) -> _Count:
    """Straight on from the half sample through the whole one to all arms; with one count, that of all arms."""
    if len(counts) == 1:
        return counts[0]
    whole, half = counts
    steps = (n - sampled) / (sampled - sampled // 2)
    return _Count(*(b + max(0.0, b - a) * steps for a, b in zip(half, whole, strict=True)))
