"""CS-LB's outlook on pending pulls: O(r^2 + |C| r) a discounted pull, in copies of the clusters that it touches."""

from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, assign, gram_step, ridge_step
from sketchbandits.policies.cslb import coordinates as cslb_coordinates
from sketchbandits.policies.cslb.layout import A_START, ARM_AT, CAP, FEW, FORM, OFFSET, RANK, SLOT, START, Z_START
from sketchbandits.policies.cslb.sketch import LiteralState
from sketchbandits.policies.pending.imagined import imagined
from sketchbandits.policies.pending.rule import GROUP, MEAN, WIDTH2, Mask, Outlook, grow, new_outlook, register_outlook


class Clusters(NamedTuple):
    """The coordinate engine's fits; a cluster with shortlists is treated as one without."""

    shape: Ints
    whitened: Floats
    core: Floats  # the state's
    own: Floats  # as large, and filled for a cluster when its first pull is pending
    copied: Mask  # per cluster
    work: Floats


@kernel
def discount(model: Clusters, outlook: Outlook, slot: int) -> None:
    """One more pull of ``slot`` returned its mean."""
    c, shape, stats = outlook.place[GROUP, slot], model.shape, outlook.stats
    first, n, r, a = shape[c, START], shape[c + 1, START] - shape[c, START], shape[c, RANK], shape[c, A_START]
    few = shape[c, FORM] == FEW
    # The fit of a cluster with shortlists begins with its inverse, as the core of one without.
    own, mean = model.own[a : a + (n * n if few else r * r)], stats[MEAN, slot]
    if not model.copied[c]:
        assign(own, model.core[a : a + own.size])
        model.copied[c] = True
    grow(outlook, c, 1.0 + stats[WIDTH2, slot])
    if few:
        gram_step(own, 0, stats, first, n, slot - first, mean, model.work)
    elif r > 0:
        W = model.whitened[shape[c, Z_START] : shape[c + 1, Z_START]].reshape(r, n)
        means, width2 = stats[MEAN, first : first + n], stats[WIDTH2, first : first + n]
        u, g = model.work[:r], model.work[r : r + n]
        ridge_step(own.reshape(r, r), W, means, width2, u, g, slot - first, mean)


register_outlook(Clusters, discount=discount)


def cluster_outlook(state: Any, radius: Floats, cap: Floats | None = None) -> Outlook:
    """The outlook of a CS-LB state of either engine; ``radius`` has one entry a cluster, ``cap`` one a slot."""
    if isinstance(state, LiteralState):
        stats = state.stats
        model: Any = imagined(state, "arms", "place")
    else:
        stats = cslb_coordinates.current_stats(state)
        model = Clusters(
            shape=state.shape,
            whitened=state.whitened,
            core=state.core,
            own=np.empty_like(state.core),
            copied=np.zeros(radius.size, np.bool_),
            work=np.empty(state.work.size),
        )
    return new_outlook(
        model,
        stats,
        radius,
        cap=stats[CAP] if cap is None else cap,
        offset=stats[OFFSET],
        start=np.ascontiguousarray(state.shape[:, START]),
        arm_at=state.place[ARM_AT],
        slot_of=state.place[SLOT],
    )
