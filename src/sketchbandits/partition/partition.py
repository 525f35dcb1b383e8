"""Arms -> clusters of rank at most ``sketch_size``: first-fit by rank, the warm-up of CS-LB, or subspaces found first.

    arm x joins the first cluster whose rank with it stays <= l, else it opens a new one;
    x is in the span of a cluster with orthonormal basis Q  iff  ||x - Q'Q x|| <= tol ||x||.

Every cluster but the last has rank exactly ``l`` at any moment, so first-fit is: the first full cluster whose span
contains the arm, else the last cluster if its rank allows, else a new one. Hence ``K <= ceil(N/l)``.

**Cost** O(N d l + N K l) time (`partition.first_fit` says how), O(N d) memory: the bases, and little beside them.
**Reference** Yang, Xie and Lian, "Efficient Linear Bandits via Cluster-Aware Sketching", Algorithm 2.
**Departures** The rank is decided by the residual rule, not by the numerical rank of an SVD: that drifts with the
largest singular value and is ``l`` times dearer. A zero arm is in every span and joins the first cluster.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.partition.first_fit import check_device, first_fit
from sketchbandits.partition.packing import Packing
from sketchbandits.progress import Bar

TOLERANCE = 1e-8
BLOCK = 4096  # arms at a time
MOST_WORKERS = 16  # more threads mostly wait for each other
# Parallel arms already differ by rounding in direction: by 3e-8 in float32.
COARSE_TOLERANCE = {"float32": 1e-6, "float16": 1e-2}
FINEST = 1e-12  # below that rounding decides


@dataclass(frozen=True, eq=False)
class Partition:
    """Clusters of arms, with an orthonormal basis for each. Arrays are read-only.

    ``labels[i]`` is the cluster of arm ``i``; ``ranks[c]`` the rank of cluster ``c``; ``tolerance`` the residual, as a
    share of an arm's norm, below which the arm counts as inside a span. Bases of all clusters are the rows of one
    array; ask `basis`, `members` and `coordinates` for a cluster's own. Two partitions are equal when all of their
    fields are.
    """

    labels: Ints
    ranks: Ints
    bases: Floats
    sketch_size: int
    tolerance: float

    @classmethod
    def first_fit(
        cls,
        arms: ArrayLike,
        *,
        sketch_size: int,
        tolerance: float | None = None,
        workers: int | None = None,
        device: str = "cpu",
        progress: bool | Callable[[float, str], None] | None = None,
    ) -> "Partition":
        """Partition ``arms`` (one a row) in their order. Deterministic; bases and coordinates are float64 always.

        ``tolerance``: an arm belongs to a span when ``||x - Q'Q x|| <= tolerance ||x||``; by default 1e-8 (float32:
        1e-6, float16: 1e-2), which is rounding. With a coarse one, 1e-2 and above, most arms must be compared with most
        clusters exactly: O(N K l d). Bases are made of the first arms of a cluster, with their noise: `subspaces` fits.
        ``arms`` are read a block at a time and never copied as a whole: a memory-mapped file will do (``np.load(path,
        mmap_mode="r")``), and so will float32. ``workers`` threads are used (default: one a core, 16
        at most); ``device="cuda"`` lets a GPU compare arms with clusters (needs PyTorch: ``pip install
        'sketchbandits[cuda]'``). Neither changes the outcome. ``progress``: a bar with the time left, by default where
        there is a terminal and it takes longer than a second; or a function of (share done, what is done).
        """
        array, tolerance, workers = _checked(arms, tolerance, workers)
        sketch_size = validate.whole("sketch_size", sketch_size)
        with Bar(progress) as bar:
            clusters = first_fit(
                array,
                sketch_size,
                tolerance,
                check=_check_entries,
                workers=workers,
                device=check_device(device),
                show=lambda share: bar.show(share, f"partitioning {array.shape[0]:,} arms"),
            )
        return cls._of(clusters, sketch_size, tolerance)

    @classmethod
    def subspaces(
        cls,
        arms: ArrayLike,
        sketch_size: int,
        seed: Any = 0,
        *,
        tolerance: float | None = None,
        workers: int | None = None,
        progress: bool | Callable[[float, str], None] | None = None,
    ) -> "Partition":
        """Partition ``arms`` whatever their order: subspaces of dimension ``sketch_size`` at most, then first-fit.

        First-fit depends on the order: arms of five 4-dimensional subspaces make five clusters when they come subspace
        by subspace, and a cluster for every few arms when they are shuffled. Here the subspaces are looked for first
        (`sketchbandits.partition.subspaces`), from the features alone, and `partition.packing` makes clusters of them.
        There are never more of these than `first_fit` makes with the same tolerance; the clusters are not in its order,
        and several may have a rank below ``sketch_size``. Bases are least-squares fits of their arms.

        The outcome depends on ``seed``, and neither on ``workers`` nor on a clock. There is no guarantee that the
        fewest clusters are found: subspaces are likely missed that hold hardly more arms than their dimension, or a
        small share of many arms. Other options as in `first_fit`.
        """
        array, tolerance, workers = _checked(arms, tolerance, workers)
        sketch_size, generator = validate.whole("sketch_size", sketch_size), validate.generator(seed)
        with Bar(progress) as bar:
            clusters = Packing(
                array,
                sketch_size,
                tolerance,
                generator,
                workers=workers,
                check=_check_entries,
                show=lambda share: bar.show(share, f"partitioning {array.shape[0]:,} arms"),
            ).run()
        return cls._of(clusters, sketch_size, tolerance)

    @classmethod
    def _of(cls, clusters: tuple[Ints, Ints, Floats], sketch_size: int, tolerance: float) -> "Partition":
        for array in clusters:
            array.setflags(write=False)
        return cls(*clusters, sketch_size, tolerance)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        return all(np.array_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    @property
    def n_clusters(self) -> int:
        """The number of clusters, ``K``."""
        return self.ranks.size

    def members(self, cluster: int) -> NDArray[np.int64]:
        """The arms of a cluster, in order."""
        return np.flatnonzero(self.labels == self._cluster(cluster))

    def basis(self, cluster: int) -> Floats:
        """An orthonormal basis of a cluster's span, one vector a row: shape ``(rank, d)``."""
        end = int(self.ranks[: self._cluster(cluster) + 1].sum())
        return self.bases[end - self.ranks[cluster] : end]

    def coordinates(self, arms: ArrayLike, cluster: int) -> Floats:
        """The arms of a cluster in its basis: shape ``(members, rank)``."""
        array = validate.matrix("arms", arms, columns=self.bases.shape[1])
        if array.shape[0] != self.labels.size:
            raise ValueError(f"arms must have {self.labels.size} rows, as partitioned, got {array.shape[0]}")
        return array[self.members(cluster)] @ self.basis(cluster).T

    def residuals(self, arms: ArrayLike) -> Floats:
        """How far each arm is from the span of its cluster, as a share of its norm; 0 for a zero arm. O(N l d)."""
        array = validate.vectors("arms", arms, columns=self.bases.shape[1])
        if array.shape[0] != self.labels.size:
            raise ValueError(f"arms must have {self.labels.size} rows, as partitioned, got {array.shape[0]}")
        result = np.zeros(self.labels.size)
        order = np.argsort(self.labels, kind="stable")
        ends, rows = np.cumsum(np.bincount(self.labels, minlength=self.n_clusters)), np.cumsum(self.ranks)
        for end, count, row, rank in zip(ends, np.diff(ends, prepend=0), rows, self.ranks, strict=True):
            basis = self.bases[row - rank : row]
            for first in range(end - count, end, BLOCK):
                members = order[first : min(end, first + BLOCK)]
                own = np.asarray(array[members], dtype=np.float64)
                norms = np.linalg.norm(own, axis=1)
                left = np.linalg.norm(own - own @ basis.T @ basis, axis=1)
                result[members] = left / np.where(norms > 0, norms, 1.0)
        return result

    def _cluster(self, cluster: int) -> int:
        return validate.whole("cluster", cluster, least=0, most=self.n_clusters - 1)


def _checked(arms: ArrayLike, tolerance: float | None, workers: int | None) -> tuple[NDArray[Any], float, int]:
    """The arms as an array, its entries still unseen; the tolerance, by dtype if not given; the number of threads."""
    array = validate.vectors("arms", arms)
    if tolerance is None:
        tolerance = COARSE_TOLERANCE.get(array.dtype.name, TOLERANCE)
    elif validate.probability("tolerance", tolerance) < FINEST:
        raise ValueError(f"tolerance must be None or a number from {FINEST:g} to below 1, got {tolerance!r}")
    workers = validate.whole("workers", workers) if workers is not None else min(MOST_WORKERS, os.cpu_count() or 1)
    return array, float(tolerance), workers


def _check_entries(rows: Floats, start: int) -> None:
    validate.entries("arms", rows, start)
