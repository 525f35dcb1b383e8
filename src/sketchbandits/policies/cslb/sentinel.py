"""CS-LB's choice, the same for both engines: the cluster that changed renews its sentinel, then the largest acts."""

from typing import Any

import numpy as np

from sketchbandits.confidence import radius_value
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    BEST,
    BETA,
    CAPPED,
    CHANGED,
    FORM,
    LISTED,
    ROUND,
    START,
    TOP,
    UNCAPPED_TOP,
    cluster_radius,
    first_in,
)
from sketchbandits.policies.cslb.shortlist import best_listed
from sketchbandits.policies.cslb.tournament import first_capped_cluster, first_cluster, put_sentinel


@kernel
def best_slot(
    stats: Floats,
    shape: Ints,
    clock: Ints,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    work: Floats,
    c: int,
    beta: float,
) -> int:
    """The slot of cluster ``c`` with the largest bound; ``work`` gets the bound at TOP and UNCAPPED_TOP."""
    if shape[c, FORM] == LISTED:
        return best_listed(stats, shape, clock, whitened, core, listed, work, c, beta)
    return first_in(stats, shape[c, START], shape[c + 1, START], beta, clock[CAPPED], work)


@kernel
def set_sentinel(
    stats: Floats,
    shape: Ints,
    level: Floats,
    tree: Floats,
    clock: Ints,
    radius: Floats,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    work: Floats,
    c: int,
) -> None:
    """Give cluster ``c`` its radius, best slot and sentinel from its own statistics, with capped bounds."""
    beta = cluster_radius(radius, shape, level, c)
    shape[c, BEST] = best_slot(stats, shape, clock, whitened, core, listed, work, c, beta)
    level[c, BETA] = beta
    put_sentinel(level, tree, c, work[TOP], work[UNCAPPED_TOP])


@kernel
def set_all_sentinels(
    stats: Floats,
    shape: Ints,
    level: Floats,
    tree: Floats,
    clock: Ints,
    radius: Floats,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    work: Floats,
) -> None:
    """`set_sentinel` of every cluster."""
    for c in range(level.shape[0]):
        set_sentinel(stats, shape, level, tree, clock, radius, whitened, core, listed, work, c)


@kernel
def next_arm(
    place: Ints,
    stats: Floats,
    shape: Ints,
    level: Floats,
    tree: Floats,
    clock: Ints,
    radius: Floats,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    work: Floats,
) -> int:
    """Renew the sentinel of the cluster that changed, then let the largest sentinel's cluster choose its arm."""
    changed = clock[CHANGED]
    if clock[CAPPED] == 1:
        if clock[ROUND] > 1:
            set_sentinel(stats, shape, level, tree, clock, radius, whitened, core, listed, work, changed)
        return place[ARM_AT, shape[first_capped_cluster(level, tree), BEST]]
    # The paper's radius is one for all clusters and grows with the round.
    beta = radius_value(radius, clock[ROUND], 0.0)
    slot = -1
    if clock[ROUND] > 1:
        slot = best_slot(stats, shape, clock, whitened, core, listed, work, changed, beta)
        put_sentinel(level, tree, changed, work[TOP], work[UNCAPPED_TOP])
    c = first_cluster(level, tree)
    if c != changed or slot < 0:
        slot = best_slot(stats, shape, clock, whitened, core, listed, work, c, beta)
    return place[ARM_AT, slot]


def lists_of(state: Any) -> tuple[Floats, Floats, Ints]:
    """What `best_slot` needs of a state to search shortlists: nothing, in an engine that keeps none."""
    if not hasattr(state, "listed"):
        return np.zeros(0), np.zeros(0), np.zeros(0, np.int64)
    return state.whitened, state.core, state.listed
