"""How late rewards are: for each decision, how many others are taken before its reward can be used.

A delay is drawn for every decision, whatever its arm and reward: then late rewards keep every confidence bound valid.
Feedback that comes only when it is positive does not; there, record a default reward for what is missing after a time
limit. Every law takes one uniform number per decision: drawing ``n`` and then ``m`` delays gives the same as drawing
``n + m``.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sketchbandits import validate
from sketchbandits.environments.noise import checked_generator

LONGEST = 2.0**60  # longer than any run, and still a whole number


@dataclass(frozen=True)
class Delay:
    """A law of delays, made by the functions below; ``name`` says which."""

    name: str
    _quantile: Callable[[NDArray[np.float64]], NDArray[np.float64]] = field(repr=False)

    def draw(self, generator: np.random.Generator, size: int) -> NDArray[np.int64]:
        """The delays of the next ``size`` decisions, whole numbers >= 0."""
        uniform = checked_generator(generator).random(validate.whole("size", size, least=0))
        return np.floor(np.minimum(self._quantile(uniform), LONGEST)).astype(np.int64)


def fixed_delay(rounds: int) -> Delay:
    """Every reward comes ``rounds`` decisions late; with 0 it is known before the next decision."""
    rounds = validate.whole("rounds", rounds, least=0)
    return Delay(f"fixed, {rounds}", lambda uniform: np.full(uniform.size, float(rounds)))


def geometric_delay(mean: float) -> Delay:
    """Memoryless delays with the given ``mean``, in decisions: ``P(delay >= k) = (mean/(1 + mean))^k``."""
    mean = validate.positive("mean", mean)
    rate = np.log1p(1.0 / mean)
    return Delay(f"geometric, mean {mean:g}", lambda uniform: -np.log1p(-uniform) / rate)


def heavy_tailed_delay(mean: float, *, tail: float = 1.5) -> Delay:
    """A few rewards come very late: ``P(delay >= k) = (1 + k/s)^-tail``, a discrete Pareto law.

    ``mean``, in decisions, is that of the law before rounding down, half a decision more than the mean of the delays;
    it sets ``s = mean (tail - 1)``. ``tail > 1`` says how heavy the tail is: the smaller, the heavier; the variance is
    infinite for ``tail <= 2``.
    """
    mean = validate.positive("mean", mean)
    tail = validate.number("tail", tail, above=1.0)
    scale = mean * (tail - 1.0)
    return Delay(f"heavy-tailed, mean {mean:g}", lambda uniform: scale * np.expm1(-np.log1p(-uniform) / tail))
