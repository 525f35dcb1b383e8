"""Singular values of the arms, and what they say: rank, energy, and what a sketch of a given size would lose.

Rows go through one QR decomposition per block (the R factors are stacked), which keeps small singular values that the
Gram matrix would drown. **Cost** O(N d^2), or that of as many rows as `MOST_WORK` allows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.lab.advice.groups import BLOCK

MOST_WORK = 5e10  # multiplications
FEWEST_ROWS = 2048


class Spectrum(NamedTuple):
    """Singular values of ``rows`` of the arms, largest first; ``tolerance`` of the largest separates them from 0."""

    values: Floats
    tolerance: float
    rows: int

    @property
    def rank(self) -> int:
        """How many directions the arms have."""
        return int((self.values > self.tolerance * self.values[0]).sum())

    def dims_for(self, share: float) -> int:
        """The least number of directions that hold this share of the energy (squared singular values)."""
        energy = np.cumsum(self.values**2)
        return int(np.searchsorted(energy, share * energy[-1] * (1.0 - 1e-12)) + 1) if energy[-1] > 0.0 else 0

    def tail(self, size: int) -> float:
        """The share of the energy beyond the leading ``size`` directions."""
        energy = self.values**2
        return float(energy[size:].sum() / energy.sum()) if energy.sum() > 0.0 else 0.0

    def shrunk(self, size: int) -> float:
        """What Frequent Directions of this size takes from every direction per row, if rows are drawn from the arms.

        ``min_{k < size} (lambda_{k+1} + ... + lambda_d)/(size - k)`` with ``lambda`` the mean squared singular values.
        """
        energy = np.append(self.values**2, 0.0) / self.rows
        tails = np.cumsum(energy[::-1])[::-1]
        kept = np.arange(min(size, len(energy)))
        return float((tails[kept] / (size - kept)).min()) if size < self.rank else 0.0


def spectrum(arms: NDArray[Any], tolerance: float, rng: np.random.Generator, show: Callable[[float], None]) -> Spectrum:
    """The spectrum of all arms, or of a random sample where they are too many for their dimension."""
    n, d = arms.shape
    rows = min(n, max(FEWEST_ROWS, int(MOST_WORK / d**2)))
    chosen = np.arange(n) if rows == n else np.sort(rng.choice(n, rows, replace=False))
    factor: Floats = np.zeros((0, d))
    size = max(BLOCK, d)
    with one_blas_thread():
        for start in range(0, rows, size):
            block = np.asarray(arms[chosen[start : start + size]], dtype=np.float64)
            factor = np.asarray(np.linalg.qr(np.concatenate([factor, block]), mode="r"), dtype=np.float64)
            show(min(1.0, (start + size) / rows))
        values = np.linalg.svd(factor, compute_uv=False)
    return Spectrum(np.asarray(values, dtype=np.float64), tolerance, rows)
