"""Pending pulls in multi-scale CS-LB: clusters as CS-LB's, and rays.

A pending pull of an arm of length s adds ``s^2`` to its ray's V; the ray's determinant ratio discounts the widths of
its arms on the scales of direction and of space. For the latter that is not the exact ratio, and need not be: an
inflated bound stays above the observed one as long as no width is divided by more than the factor that all radii are
multiplied by, whatever the ratio stands for. An arm whose width in the space is of an older fit keeps the least bound
that it was ever given there, and is looked at again, without a budget, as soon as it leads.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.cslb.layout import ARM_AT as ARM_IN
from sketchbandits.policies.multiscale.rays import unit_bound
from sketchbandits.policies.multiscale.space import look
from sketchbandits.policies.multiscale.state import GUESS, LENGTH, OUTSIDE, RAY, SPACE, WIDTH, MultiscaleState
from sketchbandits.policies.pending.clusters import ClusterFits, cluster_bounds
from sketchbandits.policies.pending.clusters import discount as discount_cluster
from sketchbandits.policies.pending.rule import (
    ARM_AT,
    CAP,
    CAPPED,
    LIMIT,
    LOWER,
    RATIO,
    UNCAPPED,
    Mask,
    PendingBounds,
    general_fill,
    general_fits,
    inflation,
    register_model,
)

# Rows of ``bounds``: means and widths on two scales, what a pull of the slot adds to its ray's determinant ratio, and
# the least bound that the space ever gave it.
RAY_MEAN, RAY_WIDTH, SPACE_MEAN, WIDTH_IN_SPACE, GAIN, KEPT = range(6)


class Scales(NamedTuple):
    """The clusters' fits; per slot its bounds on the other scales and its ray; per ray its determinant ratio."""

    clusters: ClusterFits
    bounds: Floats
    ray: Ints  # -1: a zero arm, or none
    ratio: Floats
    stale: Mask  # per slot: whether its width in the space is of an older fit
    features: Floats
    factor: Floats
    beta: Floats  # the radius of the published fit


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
        in_space = min(bounds[KEPT, i], bounds[SPACE_MEAN, i] + f * bounds[WIDTH_IN_SPACE, i])
        stats[UNCAPPED, i] = min(value, in_space)
        stats[CAPPED, i] = min(stats[UNCAPPED, i], stats[CAP, i])


@kernel
def look_again(model: Scales, pending: PendingBounds, slot: int) -> bool:
    """Bring the width of a slot in the space up to date; False where it is."""
    if not model.stale[slot]:
        return False
    model.stale[slot] = False
    mean, width = look(model.features, model.factor, pending.place[ARM_AT, slot])
    model.bounds[SPACE_MEAN, slot], model.bounds[WIDTH_IN_SPACE, slot] = mean, model.beta[0] * width
    g, f = model.ray[slot], inflation(pending)
    if g >= 0:
        f /= np.sqrt(model.ratio[g])
    stats = pending.stats
    stats[UNCAPPED, slot] = min(stats[UNCAPPED, slot], mean + f * model.beta[0] * width)
    stats[CAPPED, slot] = min(stats[UNCAPPED, slot], stats[CAP, slot])
    return True


register_model(Scales, discount=discount, fits=fits, fill=fill, look_again=look_again)


def multiscale_bounds(state: MultiscaleState) -> PendingBounds:
    """The pending bounds of a state."""
    pending = cluster_bounds(state, state.clusters["beta"])
    bounds, arm_at = direction_and_space(state), state.place[ARM_IN]
    stamps = np.where(arm_at >= 0, state.waiting["stamp"][arm_at], OUTSIDE)
    stale = (stamps != OUTSIDE) & (stamps != state.space["version"][0])
    bounds[WIDTH_IN_SPACE, stale] = np.inf
    ray = np.where(arm_at >= 0, state.stats[RAY], -1).astype(np.int64)
    shared = (state.features, state.factor, state.space["beta"].copy())
    model = Scales(pending.model, bounds, ray, np.ones(state.rays.size), stale, *shared)
    below = [bounds[RAY_MEAN] - bounds[RAY_WIDTH], bounds[SPACE_MEAN] - bounds[WIDTH_IN_SPACE], pending.stats[LOWER]]
    pending.stats[LOWER] = np.max(below, axis=0)
    return pending._replace(model=model)


def direction_and_space(state: MultiscaleState) -> Floats:
    """Means and widths of every slot on the scales of direction and space; +inf where a scale knows nothing of it."""
    stats, arm_at = state.stats, state.place[ARM_IN]
    bounds, own = np.zeros((6, stats.shape[1])), np.flatnonzero(stats[RAY] >= 0)
    g, s = stats[RAY, own].astype(np.int64), stats[LENGTH, own]
    units = np.array([unit_bound(ray, state.space[0]["direction"]) for ray in state.rays])
    bounds[RAY_MEAN, own], bounds[RAY_WIDTH, own] = s * units[g, 0], np.abs(s) * units[g, 1]
    rays = state.rays[g]
    bounds[GAIN, own] = s**2 / (rays["ridge"] + rays["information"] + rays["information_lost"])
    inside = (arm_at >= 0) & (state.waiting["stamp"][arm_at] != OUTSIDE)
    bounds[SPACE_MEAN] = np.where(inside, stats[GUESS], 0.0)
    bounds[WIDTH_IN_SPACE] = np.where(inside, state.space["beta"] * stats[WIDTH], np.inf)
    bounds[KEPT] = stats[SPACE]
    return bounds
