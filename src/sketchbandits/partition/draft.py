"""A partition in the making: what first-fit knows while arms are added."""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints

# Entries of ``Draft.counters``: clusters, full clusters, rows of bases in use, rank of the cluster that is not full.
N_CLUSTERS, N_FULL, N_ROWS, OPEN_RANK = range(4)


class Draft(NamedTuple):
    """Clusters so far, in arrays preallocated for the most there can be. Full clusters have ``rank`` rows each."""

    counters: Ints
    ranks: Ints  # of every cluster
    starts: Ints  # the first row in ``bases`` of every cluster
    bases: Floats
    omega: Floats  # what probes are made from
    probes: Floats  # of the clusters that were filled within the current block of arms
    rank: int  # of a full cluster
    tolerance: float

    @staticmethod
    def empty(n_arms: int, dim: int, rank: int, block: int, tolerance: float) -> "Draft":
        """No clusters yet; arms come in blocks of at most ``block``."""
        most = -(-n_arms // rank) + 1
        return Draft(
            counters=np.zeros(4, np.int64),
            ranks=np.zeros(most, np.int64),
            starts=np.zeros(most, np.int64),
            bases=np.empty((n_arms, dim)),  # memory is taken as rows are written
            # The outcome does not depend on what is drawn; the seed is one that nobody draws arms from.
            omega=np.random.default_rng([20_061_012, 1_729]).standard_normal(dim),
            probes=np.empty((block // rank + 2, dim)),
            rank=rank,
            tolerance=tolerance,
        )


# These two take arrays of a draft and not the draft: that compiles faster.
@kernel
def open_cluster(counters: Ints, starts: Ints) -> int:
    """The number of the cluster that is not full; a new one where all are."""
    if counters[N_CLUSTERS] == counters[N_FULL]:
        starts[counters[N_CLUSTERS]] = counters[N_ROWS]
        counters[N_CLUSTERS] += 1
    return counters[N_CLUSTERS] - 1


@kernel
def count_row(counters: Ints, ranks: Ints, rank: int) -> bool:
    """Count the row that was written for the open cluster; whether it is full now, with ``rank`` rows."""
    counters[N_ROWS] += 1
    counters[OPEN_RANK] += 1
    ranks[counters[N_CLUSTERS] - 1] = counters[OPEN_RANK]
    if counters[OPEN_RANK] < rank:
        return False
    counters[N_FULL] += 1
    counters[OPEN_RANK] = 0
    return True
