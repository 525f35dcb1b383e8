"""How probable each arm is to be chosen: the probability of its part of the upper envelope.

The lines ``mean + zeta width`` are sorted by width; a line is on the envelope where it lies above all others, and of
equal lines the first. O(N log N).
"""

import math

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.pending.rule import Mask


def interval_probabilities(means: Floats, widths: Floats, floor: float, boldness: float, among: Mask) -> Floats:
    """Every arm's probability to be the highest at ``floor + boldness N(0, 1)^2``."""
    result = np.zeros(means.size)
    kept, starts = upper_envelope(means, widths, among)
    below = np.array([half_normal(math.sqrt(max(0.0, start - floor) / boldness)) for start in starts])
    result[kept] = np.diff(np.append(below, 1.0))
    return result


def upper_envelope(means: Floats, widths: Floats, among: Mask) -> tuple[list[int], list[float]]:
    """The arms of the envelope for zeta >= 0, and where each begins to be the highest."""
    arms = np.flatnonzero(among)
    order = arms[
        np.lexsort((arms, -means[arms], widths[arms]))
    ]  # of equal widths the highest first, then the lowest id
    kept: list[int] = []
    starts: list[float] = []
    for arm in order.tolist():
        if kept and widths[arm] == widths[kept[-1]]:
            continue  # parallel and not above
        begin = 0.0
        while kept:
            last = kept[-1]
            begin = (means[last] - means[arm]) / (widths[arm] - widths[last])
            if begin > starts[-1]:
                break
            kept.pop()
            starts.pop()
        kept.append(arm)
        starts.append(begin if len(kept) > 1 else 0.0)
    return kept, starts


def half_normal(z: float) -> float:
    """The probability that the size of a standard normal number is at most ``z``."""
    return math.erf(z / math.sqrt(2.0))
