"""Bootstrap intervals over paired runs, for few of them.

With five runs a plain percentile interval of a mean is too short: its spread divides by n instead of n - 1, and it
knows nothing of Student's t. `interval` widens the percentiles to make up for both. No bootstrap leaves the range of
the data, though, which is still too short for so few runs: the interval also holds Student's.

**Reference** Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69(4), 2015:
the expanded percentile interval.

Several intervals that decide one question together get a higher level each, `simultaneous`.
"""

from typing import NamedTuple

import numpy as np
import scipy  # submodules load on first use
from numpy.typing import ArrayLike

from sketchbandits.results import student_band

LEVEL = 0.95
RESAMPLES, FEWEST, DRAWS = 20_000, 2_000, 2_000_000  # fewer where many runs would make them expensive
NOTHING = 1e-12  # stands for a regret of zero under a logarithm
SEED = 20_160_610  # any fixed number: the same runs give the same verdicts


class Interval(NamedTuple):
    """An estimate with its interval; the ends are NaN where a single run gives none."""

    mean: float
    low: float
    high: float

    def side(self, value: float) -> str:
        """``"above"`` or ``"below"`` where the whole interval is on one side of ``value``, else ``"unclear"``."""
        if self.low > value:
            return "above"
        return "below" if self.high < value else "unclear"

    def inside(self, low: float, high: float) -> str:
        """``"inside"`` or ``"outside"`` where the whole interval is, else ``"unclear"``."""
        if self.low > low and self.high < high:
            return "inside"
        return "outside" if self.low > high or self.high < low else "unclear"


def simultaneous(count: int) -> float:
    """The level of each of ``count`` intervals that together have `LEVEL`, whatever depends on what (Bonferroni)."""
    return 1 - (1 - LEVEL) / count


def interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """The mean over runs with its interval: what holds both expanded percentiles and Student's."""
    values = np.asarray(values, dtype=np.float64)
    n, mean = values.size, float(values.mean())
    if n < 2:
        return Interval(mean, np.nan, np.nan)
    below, above = student_band(values, level)
    student = scipy.special.stdtrit(n - 1, (1 + level) / 2)
    tail = scipy.special.ndtr(-student * np.sqrt(n / (n - 1)))
    resamples = min(RESAMPLES, max(FEWEST, DRAWS // n))
    chosen = np.random.default_rng(SEED).integers(n, size=(resamples, n))
    low, high = np.quantile(values[chosen].mean(axis=1), [tail, 1 - tail])
    return Interval(mean, min(float(low), float(below)), max(float(high), float(above)))


def ratio(numerator: ArrayLike, denominator: ArrayLike, level: float = LEVEL) -> Interval:
    """The geometric mean of paired ratios, with its interval."""
    above, below = (np.log(np.maximum(part, NOTHING)) for part in (numerator, denominator))
    logs = interval(above - below, level)
    return Interval(*(float(np.exp(value)) for value in logs))
