"""How fast a cost grows with one size: the slope of a line through logarithms, and that of the stated complexity.

Only the upper part of the range is fitted: at small sizes a round costs what every round costs. The interval says how
far the noise of the clock moves the slope, by resampling the repetitions at every size; it cannot know whether a power
is the right law, which is what the figure is for.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sketchbandits.lab.growth import power
from sketchbandits.lab.intervals import LEVEL, Interval

FEWEST = 3  # sizes that a slope needs
RESAMPLES, SEED = 2_000, 20_240_601  # any fixed seed: the same samples give the same interval


def upper(n_sizes: int) -> slice:
    """The upper half of the sizes, and one more where that is too few."""
    return slice(max(0, n_sizes - max(FEWEST, (n_sizes + 1) // 2)), None)


def exponent(sizes: Sequence[float], samples: Sequence[Sequence[float]]) -> Interval:
    """The power with which medians grow over the upper sizes, with an interval of level 0.95."""
    part = upper(len(sizes))
    kept, chosen = sizes[part], [np.asarray(each, dtype=np.float64) for each in samples[part]]
    rng = np.random.default_rng(SEED)
    drawn = [np.median(each[rng.integers(each.size, size=(RESAMPLES, each.size))], axis=1) for each in chosen]
    low, high = np.quantile(power(kept, np.stack(drawn, axis=1)), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    middle = float(power(kept, [np.median(each) for each in chosen]))
    return Interval(middle, min(float(low), middle), max(float(high), middle))


def shown(exponent: float) -> str:
    """Two digits, and no minus before zero."""
    return f"{exponent:.2f}".replace("-0.00", "0.00")


def stated(sizes: Sequence[float], cost: Callable[[Any], float], points: Sequence[Any]) -> float:
    """The slope that a stated complexity has over the same sizes."""
    part = upper(len(sizes))
    return float(power(sizes[part], [cost(point) for point in points[part]]))
