"""Pending pulls in CS-LB: O(r^2 + |C| r) per discounted pull, in copies of the fits of the clusters that it touches."""

from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, assign
from sketchbandits.kernels.whitening import gram_step, ridge_step
from sketchbandits.policies.cslb.coordinates import current_stats
from sketchbandits.policies.cslb.layout import ARM_AT, CAP, FEW, OFFSET, SLOT, Records
from sketchbandits.policies.cslb.shortlist import whitened_of
from sketchbandits.policies.cslb.sketch import LiteralState
from sketchbandits.policies.pending.rule import (
    GROUP,
    MEAN,
    WIDTH2,
    Mask,
    PendingBounds,
    grow,
    new_bounds,
    register_model,
)
from sketchbandits.policies.pending.state_copy import copied_state


class ClusterFits(NamedTuple):
    """The coordinate engine's fits; a cluster with shortlists is treated as one without."""

    control: Records
    clusters: Records
    fits: Floats  # the state's
    copies: Floats  # as large; a cluster's core is copied when its first pull is pending
    copied: Mask  # per cluster


@kernel
def discount(model: ClusterFits, pending: PendingBounds, slot: int) -> None:
    """One more pull of ``slot`` returned its mean."""
    c, stats, copies = pending.place[GROUP, slot], pending.stats, model.copies
    own, work = model.clusters[c], model.control[0]["work"]
    first, n, r, a, few = own["start"], own["size"], own["rank"], own["core"], own["form"] == FEW
    if not model.copied[c]:
        # The fit of a cluster with shortlists begins with its inverse, as the core of one without.
        length = n * n if few else r * r
        assign(copies[a : a + length], model.fits[a : a + length])
        model.copied[c] = True
    mean = stats[MEAN, slot]
    grow(pending, c, 1.0 + stats[WIDTH2, slot])
    if few:
        gram_step(copies, a, work, stats, first, n, slot - first, mean)
    elif r > 0:
        means, width2 = stats[MEAN, first : first + n], stats[WIDTH2, first : first + n]
        A, scratch = copies[a : a + r * r].reshape(r, r), copies[work : work + 2 * r + n]
        ridge_step(A, whitened_of(own, model.fits), means, width2, scratch, slot - first, mean)


register_model(ClusterFits, discount=discount)


def cluster_bounds(state: Any, radius: Floats) -> PendingBounds:
    """The pending bounds of a CS-LB state of either engine; ``radius`` has one entry per cluster."""
    stats = state.stats if isinstance(state, LiteralState) else current_stats(state)
    if isinstance(state, LiteralState):
        model: Any = copied_state(state, "arms")
    else:
        copied = np.zeros(state.clusters.size, np.bool_)
        model = ClusterFits(state.control, state.clusters, state.fits, np.empty_like(state.fits), copied)
    return new_bounds(
        model,
        stats,
        radius,
        cap=stats[CAP],
        offset=stats[OFFSET],
        start=np.append(state.clusters["start"], state.stats.shape[1]),
        arm_at=state.place[ARM_AT],
        slot_of=state.place[SLOT],
    )
