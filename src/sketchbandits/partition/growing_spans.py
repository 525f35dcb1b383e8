"""Where arms that are added later belong: first-fit continued, one arm at a time.

First-fit is an online rule, so that an arm added later gets the cluster that it would have had from the start: the
first whose span holds it, else the last whose rank may grow, else a new one. Assignments are those of `first_fit`, by
the same routines, bit for bit.

**Cost** O(K d + l d) per arm, O(K l d) memory.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints, remove_projection
from sketchbandits.partition.first_fit import unit_rows
from sketchbandits.partition.partition import Partition
from sketchbandits.partition.probe import SLACK, make_probe, residual_in_span


class Placement(NamedTuple):
    """The cluster of a new arm, and the direction that the arm adds to its basis (None: it lies in the span)."""

    cluster: int
    direction: Floats | None


class GrowingSpans:
    """The bases of clusters, which may gain directions, each with its probe (`partition.probe`)."""

    def __init__(self, partition: Partition, rank: int) -> None:
        self.rank, self.tolerance = rank, partition.tolerance
        k, d = partition.n_clusters, partition.bases.shape[1]
        self.ranks = partition.ranks.copy()
        self.bases = np.zeros((k, rank, d))
        self.probes = np.zeros((k, d))
        # The outcome does not depend on what is drawn; the seed is one that nobody draws arms from.
        self.omega: Floats = np.random.default_rng([20_061_012, 1_730]).standard_normal((d,))
        ends = np.cumsum(self.ranks)
        for c in range(k):
            self.bases[c, : self.ranks[c]] = partition.bases[ends[c] - self.ranks[c] : ends[c]]
            self._renew_probe(c)

    def find(self, arm: Floats) -> Placement:
        """The first cluster whose span holds the arm, else the last whose rank may grow, else a new one."""
        unit: Floats = np.empty((1, arm.size))
        unit_rows(arm[None], unit, np.zeros(1, np.int64), 0, 1)
        x, rest, z = unit[0], np.empty(arm.size), np.empty(self.rank)
        near = np.abs(self.probes[: self.ranks.size] @ x) <= self.tolerance + SLACK
        for c in np.flatnonzero(near).tolist():
            basis, rank = self.bases[c], int(self.ranks[c])
            if residual_in_span(self.probes[c], basis, rank, x, 1.0, self.tolerance, rest, z) < np.inf:
                return Placement(c, None)
        growable = np.flatnonzero(self.ranks < self.rank)
        c = int(growable[-1]) if growable.size else self.ranks.size
        basis, rank = (self.bases[c], int(self.ranks[c])) if growable.size else (self.bases[0], 0)
        left = remove_projection(basis, rank, x, z)
        return Placement(c, x * (1.0 / left))

    def extend(self, placement: Placement) -> None:
        """Add the direction of a new arm to the basis of its cluster, which may be a new one."""
        if placement.direction is None:
            return
        c = placement.cluster
        if c == self.ranks.size:
            self.ranks = np.append(self.ranks, 0)
            if c == self.bases.shape[0]:  # twice the capacity
                self.bases = np.concatenate([self.bases, np.zeros_like(self.bases)])
                self.probes = np.concatenate([self.probes, np.zeros_like(self.probes)])
        self.bases[c, self.ranks[c]] = placement.direction
        self.ranks[c] += 1
        self._renew_probe(c)

    def partition(self, labels: Ints, sketch_size: int) -> Partition:
        """The partition as it is now, with the cluster of every arm."""
        bases = np.concatenate([self.bases[c, :r] for c, r in enumerate(self.ranks)])
        return Partition.from_arrays(labels, self.ranks.copy(), bases, sketch_size, self.tolerance)

    def _renew_probe(self, c: int) -> None:
        make_probe(self.bases[c], int(self.ranks[c]), self.omega, self.probes[c])
