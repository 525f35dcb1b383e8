"""CS-LB's fast engine: every cluster's ridge fit in the coordinates of its span, O(r^2 + |C| r) a round.

All arms of a cluster lie in one subspace of dimension r <= l, known after warm-up. Means and squared widths of its arms
follow each pull by one rank-one step (`linalg.ridge_step`), in coordinates whitened by the data so far
(`linalg.whiten`). Equal to Algorithms 1-3 in exact arithmetic.
"""

from typing import Any, NamedTuple

import numpy as np

from sketchbandits.compiled import kernel
from sketchbandits.confidence import RIDGE
from sketchbandits.linalg import (
    MAX_GROWTH,
    MAX_STEP,
    MAX_STEPS,
    Floats,
    Ints,
    identity,
    refit,
    ridge_step,
    whiten,
)
from sketchbandits.partition import Partition
from sketchbandits.policies.base import LOST, MEAN, SUM, WIDTH2, register
from sketchbandits.policies.cslb_sentinel import (
    A_START,
    ARM_AT,
    GROWTH,
    LOGDET,
    RANK,
    START,
    STEPS,
    Z_START,
    Sentinels,
    book,
    choose,
)


class State(NamedTuple):
    """`Sentinels`, and per cluster its coordinates, whitened coordinates (rank x size) and inverse (rank x rank)."""

    choice: Ints
    counts: Ints
    place: Ints
    stats: Floats
    shape: Ints
    level: Floats
    clock: Ints
    radius: Floats
    coordinates: Floats
    whitened: Floats
    inverse: Floats
    work: Floats


def build(arms: Floats, partition: Partition, sentinels: Sentinels, radius: Floats) -> State:
    """The state before the first reward."""
    shape, order = sentinels.shape, sentinels.place[ARM_AT]
    n_clusters = partition.n_clusters
    coordinates = np.empty(shape[-1, Z_START])
    inverse = np.zeros(shape[-1, A_START])
    rows = np.concatenate([[0], np.cumsum(partition.ranks)])
    for c in range(n_clusters):
        members = order[shape[c, START] : shape[c + 1, START]]
        block = partition.bases[rows[c] : rows[c + 1]] @ arms[members].T
        coordinates[shape[c, Z_START] : shape[c + 1, Z_START]] = block.ravel()
        inverse[shape[c, A_START] : shape[c + 1, A_START]] = np.eye(partition.ranks[c]).ravel()
    largest_rank = int(partition.ranks.max())
    return State(
        *sentinels,
        radius=radius,
        coordinates=coordinates,
        whitened=coordinates / np.sqrt(radius[RIDGE]),
        inverse=inverse,
        work=np.zeros(sentinels.counts.size + largest_rank),
    )


@kernel
def _refit(state: State, c: int) -> None:
    """Statistics of cluster ``c`` from its per-arm counts and sums alone, in freshly whitened coordinates."""
    first, last, r = state.shape[c, START], state.shape[c + 1, START], state.shape[c, RANK]
    z0, z1 = state.shape[c, Z_START], state.shape[c + 1, Z_START]
    Z = state.coordinates[z0:z1].reshape(r, last - first)
    W = state.whitened[z0:z1].reshape(r, last - first)
    A = state.inverse[state.shape[c, A_START] : state.shape[c + 1, A_START]].reshape(r, r)
    stats = state.stats[:, first:last]
    state.level[c, LOGDET] = whiten(Z, state.counts[first:last], state.radius[RIDGE], W)
    refit(W, stats[SUM], stats[LOST], stats[MEAN], stats[WIDTH2])
    identity(A)
    state.level[c, GROWTH] = 0.0
    state.shape[c, STEPS] = 0


@kernel
def absorb(state: State, arm: int, reward: float) -> None:
    """Book a reward into its cluster."""
    slot, c = book(state, arm, reward)
    r = state.shape[c, RANK]
    if r == 0:
        return
    first, last = state.shape[c, START], state.shape[c + 1, START]
    W = state.whitened[state.shape[c, Z_START] : state.shape[c + 1, Z_START]].reshape(r, last - first)
    A = state.inverse[state.shape[c, A_START] : state.shape[c + 1, A_START]].reshape(r, r)
    mean, width2 = state.stats[MEAN, first:last], state.stats[WIDTH2, first:last]
    u, g = state.work[:r], state.work[r : r + last - first]
    D = ridge_step(A, W, mean, width2, u, g, slot - first, reward)
    if 1.0 <= D <= MAX_STEP:
        growth = np.log(D)
        state.level[c, LOGDET] += growth
        state.level[c, GROWTH] += growth
        state.shape[c, STEPS] += 1
        if state.level[c, GROWTH] <= MAX_GROWTH and state.shape[c, STEPS] < MAX_STEPS:
            return
    _refit(state, c)


register(State, absorb=absorb, choose=choose)
