"""How fast regret grows with the rounds, and how fast any cost grows with a size."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.intervals import LEVEL, NOTHING, Interval, interval

if TYPE_CHECKING:  # `import sketchbandits` needs no experiments
    from sketchbandits.lab.experiments.study import Runs

# `slope_ratio` is 1 for linear regret, 0.65 for sqrt(t) and 0.42 for ln(t). The limit lies between the first two.
LINEAR_ABOVE = 0.8


def slope_ratio(runs: "Runs") -> Floats:
    """Regret gained in the last quarter of the rounds over that gained in the second quarter, one number per run."""
    T = float(runs.checkpoints[-1])
    late = runs.regret - runs.regret_at(0.75 * T)
    middle = runs.regret_at(0.5 * T) - runs.regret_at(0.25 * T)
    return late / np.maximum(middle, NOTHING)


def power(sizes: ArrayLike, values: Any) -> Floats:
    """The power of ``sizes`` with which ``values`` (..., sizes) grow: the least-squares slope of their logarithms."""
    x = np.log(np.asarray(sizes, dtype=np.float64))
    x -= x.mean()
    return np.log(np.maximum(np.asarray(values, dtype=np.float64), NOTHING)) @ x / (x @ x)


def exponent(sizes: ArrayLike, values: Floats, level: float = LEVEL) -> Interval:
    """The power with which ``values`` (runs, sizes) grow, with its interval over runs."""
    return interval(power(sizes, values), level)
