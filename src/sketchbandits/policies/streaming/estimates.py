"""The estimated mean reward of contexts: that of the narrowest interval among the fits that hold a context."""

from collections.abc import Iterator

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.streaming.clusters import OWN, VIEW, Clusters
from sketchbandits.policies.streaming.rounds import ContextualMultiscaleState


def estimates(state: ContextualMultiscaleState, contexts: Floats, theta_norm: float) -> Floats:
    """The space's estimate where no cluster holds a context, 0 where there is no space either. O(n K l (d + l))."""
    n, clusters, kept = len(contexts), state.clusters, state.space.theta.size > 0
    best, width = contexts @ state.space.theta if kept else np.zeros(n), np.full(n, np.inf)
    norms = np.linalg.norm(contexts, axis=1)
    for k in range(clusters.size["count"][0]):
        basis = clusters.bases[k, : clusters.ranks[k]]
        z = contexts @ basis.T
        left = np.linalg.norm(contexts - z @ basis, axis=1)
        for mean, own_width in _intervals(clusters, k, z):
            narrower = (left <= state.rule["near"][0] * norms) & (own_width + theta_norm * left < width)
            best[narrower], width[narrower] = mean[narrower], (own_width + theta_norm * left)[narrower]
    return best


def _intervals(clusters: Clusters, k: int, z: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Means and widths in cluster ``k`` for coordinates ``z``: by its own fit, and by its view of the space if any."""
    rank = clusters.ranks[k]
    own, view = clusters.factor[k, :, :rank, :rank]
    yield z @ clusters.theta[k, OWN, :rank], clusters.level["reach"][k] * _norms(np.linalg.solve(own.T, z.T))
    if clusters.level["view_radius"][k] < np.inf:
        yield z @ clusters.theta[k, VIEW, :rank], clusters.level["view_radius"][k] * _norms(view @ z.T)


def _norms(columns: Floats) -> Floats:
    return np.asarray(np.linalg.norm(columns, axis=0))
