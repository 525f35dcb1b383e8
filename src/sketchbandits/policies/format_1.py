"""State files of version 0.1.0, whose format was 1: what it kept as rows of numbers is kept as records since.

Each function takes a file's arrays by their dotted names and replaces the old ones by those of today's layout.
"""

import numpy as np
from numpy.typing import NDArray

from sketchbandits.confidence import RADIUS
from sketchbandits.snapshot import Saved, take

_LEVEL = ("samples", "logdet", "growth", "steps", "switch", "switched_at")


def radius_of(numbers: NDArray[np.float64]) -> NDArray[np.void]:
    """A radius as one record."""
    return np.array([tuple(numbers)], RADIUS)


def convert_radius(saved: Saved, name: str = "state.radius") -> None:
    """The radius of a policy with one fit."""
    saved.arrays[name] = radius_of(take(saved, name))


def convert_ridge(saved: Saved, level_type: np.dtype[np.void]) -> None:
    """A ridge fit of all arms: its radius, its level, and more scratch space."""
    convert_radius(saved)
    level, old = np.zeros(1, level_type), take(saved, "state.level")
    for name, value in zip(_LEVEL, old, strict=True):
        level[name] = value
    saved.arrays["state.level"] = level
    r, n = saved.arrays["state.whitened"].shape
    saved.arrays["state.work"] = np.zeros(2 * r + n)
