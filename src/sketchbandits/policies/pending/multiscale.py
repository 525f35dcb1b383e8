"""Pending pulls in multi-scale CS-LB: clusters as CS-LB's, and rays.

A pending pull of an arm of length s adds ``s^2`` to its ray's V; the ray's determinant ratio discounts the widths of
its arms on the scales of direction and of space. For the latter that is not the exact ratio, and need not be: an
inflated bound stays above the observed one as long as no width is divided by more than the factor that all radii are
multiplied by, whatever the ratio stands for.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.cslb.layout import ARM_AT
from sketchbandits.policies.multiscale.state import DIRECTION, LENGTH, RAY, SPACE, SPACE_WIDTH, MultiscaleState
from sketchbandits.policies.pending.clusters import ClusterFits, cluster_bounds
from sketchbandits.policies.pending.clusters import discount as discount_cluster
from sketchbandits.policies.pending.rule import (
    CAP,
    CAPPED,
    LIMIT,
    LOWER,
    RATIO,
    UNCAPPED,
    PendingBounds,
    general_fill,
    general_fits,
    inflation,
    register_model,
)

# Rows of ``bounds``: means and widths on two scales, and what a pull of the slot adds to its ray's determinant ratio.
RAY_MEAN, RAY_WIDTH, SPACE_MEAN, WIDTH_IN_SPACE, GAIN = range(5)


class Scales(NamedTuple):
    """The clusters' fits; per slot its bounds on the other scales and its ray; per ray its determinant ratio."""

    clusters: ClusterFits
    bounds: Floats
    ray: Ints  # -1: a zero arm, or none
    ratio: Floats


@kernel
def fits(model: Scales, pending: PendingBounds, slot: int) -> bool:
    """Whether one more pull of ``slot`` stays within ``1 + C`` in its cluster and on its ray."""
    g = model.ray[slot]
    return general_fits(model, pending, slot) and (g < 0 or model.ratio[g] + model.bounds[GAIN, slot] <= LIMIT)


@kernel
def discount(model: Scales, pending: PendingBounds, slot: int) -> None:
    """One more pull of ``slot`` returned its mean."""
    discount_cluster(model.clusters, pending, slot)
    g = model.ray[slot]
    if g >= 0:
        model.ratio[g] += model.bounds[GAIN, slot]
        pending.level[RATIO, -1] = max(pending.level[RATIO, -1], model.ratio[g])


@kernel
def fill(model: Scales, pending: PendingBounds) -> None:
    """The least of the inflated bounds on all scales, capped and not."""
    general_fill(model, pending)
    stats, bounds, factor = pending.stats, model.bounds, inflation(pending)
    for i in range(model.ray.size):
        g = model.ray[i]
        f = factor / np.sqrt(model.ratio[g]) if g >= 0 else factor
        value = min(stats[UNCAPPED, i], bounds[RAY_MEAN, i] + f * bounds[RAY_WIDTH, i])
        stats[UNCAPPED, i] = min(value, bounds[SPACE_MEAN, i] + f * bounds[WIDTH_IN_SPACE, i])
        stats[CAPPED, i] = min(stats[UNCAPPED, i], stats[CAP, i])


register_model(Scales, discount=discount, fits=fits, fill=fill)


def multiscale_bounds(state: MultiscaleState) -> PendingBounds:
    """The pending bounds of a state."""
    pending = cluster_bounds(state, state.clusters["beta"])
    bounds, ray = direction_and_space(state), state.stats[RAY].astype(np.int64)
    ray[state.place[ARM_AT] < 0] = -1  # a free slot
    model = Scales(pending.model, bounds, ray, np.ones(state.rays.size))
    below = [bounds[RAY_MEAN] - bounds[RAY_WIDTH], bounds[SPACE_MEAN] - bounds[WIDTH_IN_SPACE], pending.stats[LOWER]]
    below[1][np.isinf(bounds[SPACE_MEAN])] = -np.inf  # not computed yet
    pending.stats[LOWER] = np.max(below, axis=0)
    return pending._replace(model=model)


def direction_and_space(state: MultiscaleState) -> Floats:
    """Means and widths of every slot on the scales of direction and space."""
    bounds, own = np.zeros((5, state.stats.shape[1])), np.flatnonzero(state.stats[RAY] >= 0)
    g, s = state.stats[RAY, own].astype(np.int64), state.stats[LENGTH, own]
    rays = state.rays[g]
    V = state.space["direction"]["ridge"][0] + rays["information"] + rays["information_lost"]
    bounds[RAY_MEAN, own] = s * (rays["reward"] + rays["reward_lost"]) / V
    bounds[RAY_WIDTH] = state.stats[DIRECTION] - bounds[RAY_MEAN]
    bounds[GAIN, own] = s**2 / V
    bounds[WIDTH_IN_SPACE] = state.stats[SPACE_WIDTH]
    bounds[SPACE_MEAN] = state.stats[SPACE] - state.stats[SPACE_WIDTH]
    return bounds
