"""Reward noise: a Gaussian that is truncated at a few scales."""

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from sketchbandits import validate

# A Gaussian passes 9 scales with probability 2e-19, below the step 2**-53 of the uniforms it is made from.
FARTHEST = 9.0
# Below this the cumulative distribution at +-cut is too close to 1/2 for float64 to spread samples over the interval.
NARROWEST = 1e-6


def truncated_gaussian(
    generator: np.random.Generator, size: int | tuple[int, ...], *, scale: float = 1.0, cut: float = 3.0
) -> NDArray[np.float64]:
    """Samples of ``N(0, scale^2)`` conditioned on ``|x| <= cut * scale``.

    Formula: ``scale * F^-1(F(-cut) + u (F(cut) - F(-cut)))``, ``u`` uniform, ``F`` the normal distribution function.
    ``size`` is a number of samples or a shape; ``generator`` is advanced by one uniform per sample, whatever ``scale``
    and ``cut``. Drawing ``n`` and then ``m`` values thus gives the same numbers as drawing ``n + m``, and a run may
    draw its noise in chunks of any length. ``scale=0`` gives zeros. No value is infinite or beyond ``cut * scale``.
    Reference: the CS-LB paper, "Experimental Setup" (``cut = 3``).
    Departures: the paper's "variance R = 1" is read as the scale before truncation; the variance is ``0.973 scale^2``
    at ``cut=3``. Truncation keeps the noise ``scale``-sub-Gaussian, as the confidence radii assume.
    """
    generator = checked_generator(generator)
    shape = checked_size(size)
    scale = validate.number("scale", scale, least=0.0)
    edge = min(validate.number("cut", cut, least=NARROWEST), FARTHEST)
    low, high = scipy.special.ndtr(-edge), scipy.special.ndtr(edge)
    samples = scipy.special.ndtri(low + generator.random(shape) * (high - low))
    # Rounding may carry the extreme quantiles past the edge, or to infinity when the probability rounds to 1.
    result: NDArray[np.float64] = scale * np.clip(samples, -edge, edge)
    return result


def checked_generator(generator: Any) -> np.random.Generator:
    """A generator itself: a seed in its place would give the same numbers at every call."""
    if isinstance(generator, np.random.Generator):
        return generator
    raise ValueError(f"generator must be a numpy.random.Generator, got {generator!r}")


def checked_size(size: Any) -> tuple[int, ...]:
    """A shape from a whole number or a tuple of them; zero is allowed."""
    entries = size if isinstance(size, tuple) else (size,)
    return tuple(validate.whole("size", entry, least=0) for entry in entries)
