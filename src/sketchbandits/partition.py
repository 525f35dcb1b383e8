"""Arms -> clusters of rank at most ``sketch_size``: first-fit by rank, the warm-up of CS-LB.

    arm x joins the first cluster whose rank with it stays <= l, else it opens a new one;
    x is in the span of a cluster with orthonormal basis Q  iff  ||x - Q'Q x|| <= tol ||x||.

Every cluster but the last has rank exactly ``l`` at any moment, so first-fit is: the first full cluster whose span
contains the arm, else the last cluster if its rank allows, else a new one. Hence ``K <= ceil(N/l)``.

**Cost** O(N K l d) time, O(N d) memory for bases and coordinates together.
**Reference** Yang, Xie and Lian, "Efficient Linear Bandits via Cluster-Aware Sketching", Algorithm 2.
**Departures** The rank is decided by the residual rule, not by the numerical rank of an SVD: that drifts with the
largest singular value and is ``l`` times dearer. A zero arm is in every span and joins the first cluster.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.compiled import kernel
from sketchbandits.linalg import Floats, Ints, assign, remove_projection

TOLERANCE = 1e-8
# Parallel arms already differ by rounding in direction: by 3e-8 in float32.
COARSE_TOLERANCE = {"float32": 1e-6, "float16": 1e-2}


@dataclass(frozen=True)
class Partition:
    """Clusters of arms, with an orthonormal basis for each. Arrays are read-only.

    ``labels[i]`` is the cluster of arm ``i``; ``ranks[c]`` the rank of cluster ``c``; ``tolerance`` the residual, as a
    share of an arm's norm, below which the arm counts as inside a span. Bases of all clusters are the rows of one
    array; ask `basis`, `members` and `coordinates` for a cluster's own.
    """

    labels: Ints
    ranks: Ints
    bases: Floats
    sketch_size: int
    tolerance: float

    @classmethod
    def first_fit(cls, arms: ArrayLike, *, sketch_size: int) -> "Partition":
        """Partition ``arms`` (one a row) in their order. Deterministic; bases and coordinates are float64 always."""
        directions = unit_directions(validate.matrix("arms", arms))
        tolerance = COARSE_TOLERANCE.get(np.asarray(arms).dtype.name, TOLERANCE)
        sketch_size = validate.whole("sketch_size", sketch_size)
        labels, ranks, bases = _first_fit(directions, min(sketch_size, directions.shape[1]), tolerance)
        for array in (labels, ranks, bases):
            array.setflags(write=False)
        return cls(labels, ranks, bases, sketch_size, tolerance)

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

    def _cluster(self, cluster: int) -> int:
        return validate.whole("cluster", cluster, least=0, most=self.n_clusters - 1)


def unit_directions(arms: Floats) -> Floats:
    """Arms scaled to norm 1 (zero stays zero), through their largest entry so that no square overflows or vanishes."""
    largest = np.abs(arms).max(axis=1, keepdims=True)
    scaled = arms / np.where(largest > 0, largest, 1.0)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(norms > 0, norms, 1.0)


@kernel
def _first_fit(directions: Floats, sketch_size: int, tolerance: float) -> tuple[Ints, Ints, Floats]:
    """Labels, ranks and stacked bases; arms come as unit vectors."""
    n, d = directions.shape
    labels = np.zeros(n, np.int64)
    ranks = np.zeros(n, np.int64)
    starts = np.zeros(n, np.int64)
    bases = np.empty((n, d))
    coordinates = np.empty(sketch_size)
    x = np.empty(d)
    clusters = 0
    rows = 0
    for i in range(n):
        chosen = -1
        left = 0.0
        for c in range(clusters):
            assign(x, directions[i])
            start = starts[c]
            left = remove_projection(bases[start : start + ranks[c]], ranks[c], x, coordinates)
            if left <= tolerance or ranks[c] < sketch_size:
                chosen = c
                break
        if chosen < 0:
            chosen = clusters
            clusters += 1
            starts[chosen] = rows
            assign(x, directions[i])
            left = np.sqrt(np.dot(x, x))
        labels[i] = chosen
        if left > tolerance:
            # Only the last cluster is open, so its basis is always the end of the stack.
            assign(bases[rows], x / left)
            rows += 1
            ranks[chosen] += 1
    return labels, ranks[:clusters].copy(), bases[:rows].copy()
