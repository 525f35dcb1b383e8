"""The bound of a ray, a line through 0: one number is to be known, the reward of its unit vector."""

import numpy as np

from sketchbandits.confidence import UNBIASED, radius_at, unbiased_width
from sketchbandits.kernels.compiled import kernel
from sketchbandits.policies.cslb.layout import Record

RAY_PULLS = 3.0  # a ray's ridge in pulls of its first arm: the radius is tightest for some ten times as many


@kernel
def unit_bound(ray: Record, direction: Record) -> tuple[float, float]:
    """Estimate and half-width for the unit vector, from ``I = sum n s^2`` and ``b = sum s y`` over the ray.

    ``b/I`` and `confidence.unbiased_width`; with the classical radius ``b/V`` and ``beta/sqrt(V)``, ``V = ridge + I``.
    """
    information, ridge = ray["information"] + ray["information_lost"], ray["ridge"]
    reward = ray["reward"] + ray["reward_lost"]
    if direction["kind"] == UNBIASED:
        if information <= 0.0:
            return 0.0, np.inf
        return reward / information, unbiased_width(information, ridge, direction["noise"], ray["share"])
    V = ridge + information
    beta = radius_at(direction, 0.0, np.log1p(information / ridge), ray["share"])
    return reward / V, beta / np.sqrt(V)
