"""Arms -> clusters of rank at most ``sketch_size``: first-fit by rank, the warm-up of CS-LB, or subspaces found first.

    arm x joins the first cluster whose rank with it stays <= l, else it opens a new one;
    x is in the span of a cluster with orthonormal basis Q  iff  ||x - Q'Q x|| <= tol ||x||.

Every cluster but the last has rank exactly ``l`` at any moment, so first-fit is: the first full cluster whose span
contains the arm, else the last cluster if its rank allows, else a new one. Hence ``K <= ceil(N/l)``.

**Cost** O(N d l + N K l) time (`partition.first_fit` says how), O(N d) memory: the bases, and little besides.
**Guarantee** Deterministic; each arm lies within the tolerance of the span of its cluster.
**Reference** Yang, Xie and Lian, "Efficient Linear Bandits via Cluster-Aware Sketching", Algorithm 2.
**Departures** The rank is decided by the residual rule, not by the numerical rank of an SVD: that drifts with the
largest singular value and is ``l`` times more expensive. A zero arm is in every span and joins the first cluster.
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
# The directions of parallel arms already differ by rounding: by 3e-8 in float32.
COARSE_TOLERANCE = {"float32": 1e-6, "float16": 1e-2}
FINEST = 1e-12  # below that rounding decides
LISTED = 10  # clusters that a notebook shows


@dataclass(frozen=True, repr=False, eq=False)
class Partition:
    """Clusters of arms, each within a subspace of low dimension, with an orthonormal basis for each cluster.

    `CSLB` and `MultiscaleCSLB` make one from their arms; build it yourself to use it for several policies, to choose
    how it is made (`first_fit` keeps the order of the arms, `subspaces` finds clusters whatever their order), or to
    inspect it: `members`, `basis`, `coordinates` and `residuals`. Arrays are read-only. Two partitions are equal when
    all of their fields are.

    Attributes
    ----------
    labels
        The cluster of every arm, from 0.
    ranks
        The rank of every cluster, at most ``sketch_size``.
    bases
        The bases of all clusters, one vector per row, in the order of the clusters.
    sketch_size
        The largest rank that a cluster may have.
    tolerance
        An arm counts as inside a span if what the span leaves of it is at most this share of the arm's norm.

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
        """Partition ``arms`` in their order; deterministic, with bases in float64.

        Parameters
        ----------
        arms
            One arm per row, of any number type. They are read one block at a time and never copied as a whole, so
            that a memory-mapped file (``np.load(path, mmap_mode="r")``) may be larger than memory.
        sketch_size
            The largest rank of a cluster. Larger values make fewer clusters and more expensive rounds.
        tolerance
            The residual, as a share of an arm's norm, up to which the arm belongs to a span. Default: about rounding,
            1e-8 (float32: 1e-6, float16: 1e-2). With 1e-2 and above most arms must be compared with most clusters
            exactly, O(N K l d), and bases are made of the first arms of a cluster, noise included: there `subspaces`,
            which fits its bases to all arms of a cluster, is more accurate.
        workers
            The number of threads; it does not change the outcome. Default: one per core, 16 at most.
        device
            ``"cuda"`` lets a GPU compare arms with clusters, with the same outcome; this needs PyTorch (``pip install
            'sketchbandits[cuda]'``). Default: ``"cpu"``.
        progress
            True or False: show a bar with the time left, or not. None: show it if stderr is a terminal and the call
            takes longer than a second. A function is called with (share done, what is done).

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
        return cls.from_arrays(*clusters, sketch_size, tolerance)

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
        """Partition ``arms`` whatever their order: find subspaces first, then use first-fit for what is left.

        First-fit depends on the order: arms of five 4-dimensional subspaces make five clusters when they come subspace
        by subspace, and a cluster for every few arms when they are shuffled. Here subspaces of dimension
        ``sketch_size`` at most are searched for first (`sketchbandits.partition.subspaces`), by the features alone, and
        `sketchbandits.partition.packing` makes clusters of them. There are never more clusters than `first_fit` makes
        with the same tolerance; they are not in its order, and several may have a rank below ``sketch_size``. Bases are
        least-squares fits of their arms.

        There is no guarantee that the fewest clusters are found: subspaces that hold hardly more arms than their
        dimension, or a small share of many arms, are likely to be missed.

        ``seed`` (a whole number, a ``SeedSequence``, a ``Generator`` or None) decides which arms the search starts
        from; the outcome depends on it, but neither on ``workers`` nor on time. The other parameters are those of
        `first_fit`.
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
        return cls.from_arrays(*clusters, sketch_size, tolerance)

    @classmethod
    def from_arrays(cls, labels: Ints, ranks: Ints, bases: Floats, sketch_size: int, tolerance: float) -> "Partition":
        """A partition of arrays that were made elsewhere; they become read-only and are not checked."""
        for array in (labels, ranks, bases):
            array.setflags(write=False)
        return cls(labels, ranks, bases, sketch_size, tolerance)

    def __repr__(self) -> str:
        return (
            f"Partition({self.labels.size:,} arms of dimension {self.bases.shape[1]} in {self.n_clusters:,} clusters "
            f"of rank at most {self.sketch_size}, tolerance {self.tolerance:g})"
        )

    def _repr_html_(self) -> str:
        """What a notebook shows: the totals, and the size and rank of the largest clusters."""
        sizes = np.bincount(self.labels, minlength=self.n_clusters)
        largest = np.argsort(-sizes, kind="stable")[:LISTED]
        rows = "".join(f"<tr><th>{c}</th><td>{sizes[c]:,}</td><td>{self.ranks[c]}</td></tr>" for c in largest)
        left = self.n_clusters - largest.size
        more = f"<p>{left:,} smaller clusters, with {sizes.sum() - sizes[largest].sum():,} arms</p>" if left else ""
        return (
            f"<p>{self.labels.size:,} arms of dimension {self.bases.shape[1]} in {self.n_clusters:,} clusters of rank "
            f"at most {self.sketch_size}, tolerance {self.tolerance:g}</p>"
            f"<table><thead><tr><th>cluster</th><th>arms</th><th>rank</th></tr></thead><tbody>{rows}</tbody></table>"
            f"{more}"
        )

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
        """An orthonormal basis of a cluster's span, one vector per row: shape ``(rank, d)``."""
        end = int(self.ranks[: self._cluster(cluster) + 1].sum())
        return self.bases[end - self.ranks[cluster] : end]

    def coordinates(self, arms: ArrayLike, cluster: int) -> Floats:
        """The arms of a cluster in its basis: shape ``(members, rank)``; ``arms`` are those that were partitioned."""
        array = validate.matrix("arms", arms, columns=self.bases.shape[1])
        self._check_rows(array)
        return array[self.members(cluster)] @ self.basis(cluster).T

    def residuals(self, arms: ArrayLike) -> Floats:
        """How far each arm is from the span of its cluster, as a share of its norm; 0 for a zero arm. O(N l d)."""
        array = validate.vectors("arms", arms, columns=self.bases.shape[1])
        self._check_rows(array)
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

    def _check_rows(self, arms: NDArray[Any]) -> None:
        if arms.shape[0] != self.labels.size:
            raise ValueError(f"arms must have {self.labels.size} rows, as partitioned, got {arms.shape[0]}")


def _checked(arms: ArrayLike, tolerance: float | None, workers: int | None) -> tuple[NDArray[Any], float, int]:
    """The arms as an array, its entries not yet checked; the tolerance, by dtype if None; the number of threads."""
    array = validate.vectors("arms", arms)
    if tolerance is None:
        tolerance = COARSE_TOLERANCE.get(array.dtype.name, TOLERANCE)
    elif validate.probability("tolerance", tolerance) < FINEST:
        raise ValueError(f"tolerance must be None or a number from {FINEST:g} to below 1, got {tolerance!r}")
    workers = validate.whole("workers", workers) if workers is not None else min(MOST_WORKERS, os.cpu_count() or 1)
    return array, float(tolerance), workers


def _check_entries(rows: Floats, start: int) -> None:
    validate.entries("arms", rows, start)
