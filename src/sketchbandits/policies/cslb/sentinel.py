"""CS-LB's choice, the same for both engines: the cluster that changed renews its sentinel, then the largest acts."""

from sketchbandits.confidence import radius_value
from sketchbandits.kernels.compiled import inlined_kernel
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.cslb.layout import (
    EVERY,
    LISTED,
    NONE,
    TOP,
    UNCAPPED_TOP,
    Lists,
    Record,
    Records,
    cluster_radius,
    first_capped_slot,
    first_slot,
)
from sketchbandits.policies.cslb.shortlist import best_listed
from sketchbandits.policies.cslb.tournament import first_capped_cluster, first_cluster, put_sentinel


@inlined_kernel
def best_slot(control: Record, own: Record, stats: Floats, fits: Floats, beta: float, lists: Lists) -> int:
    """The slot of a cluster with the largest bound; ``fits`` gets the bound at TOP and UNCAPPED_TOP."""
    if lists is not None and own["form"] == LISTED:
        return best_listed(control, own, stats, fits, beta)
    first, last = own["start"], own["start"] + own["size"]
    if control["capped"] == 1:
        return first_capped_slot(stats, first, last, beta, fits, control["work"])
    return first_slot(stats, first, last, beta, fits, control["work"])


@inlined_kernel
def next_slot(control: Record, clusters: Records, stats: Floats, fits: Floats, lists: Lists) -> int:
    """Renew the sentinels of what has changed, then let the largest sentinel's cluster choose its slot.

    The paper's radius is one for all clusters and grows with the round: there the winner's bounds are computed again.
    Otherwise a cluster's bounds depend on its own data alone, and its best slot is known.
    """
    changed, capped = control["changed"], control["capped"] == 1
    beta = 0.0 if capped else radius_value(control["radius"], float(control["round"]), 0.0)
    first, last, slot = changed, changed + 1, -1
    if changed == EVERY:
        first, last = 0, clusters.size
    elif changed == NONE:
        first, last = 0, 0
    for c in range(first, last):
        own = clusters[c]
        if capped:
            beta = own["beta"] = cluster_radius(control["radius"], own)
        slot = best_slot(control, own, stats, fits, beta, lists)
        own["best"] = slot
        put_sentinel(control, own, c, fits, fits[TOP], fits[UNCAPPED_TOP])
    if capped:
        return clusters[first_capped_cluster(control, clusters, fits)]["best"]
    winner = first_cluster(control, clusters, fits)
    return slot if winner == changed else best_slot(control, clusters[winner], stats, fits, beta, lists)
