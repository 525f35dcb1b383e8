"""What an arithmetic operation takes on this machine: the step kernel of the policies, timed at three sizes.

An operation is a multiplication with its addition inside the kernels' inner loops. It costs more where a round's data
no longer fit into a cache: between the sizes that were timed the rate is interpolated in the logarithm of the size.
"""

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import ridge_step
from sketchbandits.policies import UCB1

RANK = 32
SHAPES = ((2_048, 20), (16_384, 4), (262_144, 1))  # columns and calls: 512 KB, 4 MB, 64 MB
REPETITIONS = 5
CALLED, ARRAY = 6, 0.04  # arrays of UCB1, whose calls are timed; what each more adds, as a share of that


class Machine(NamedTuple):
    """Microseconds of a `select` and an `update` from Python, and of an operation on so many bytes of data."""

    call_us: float
    rates: tuple[tuple[float, float], ...]  # (bytes, microseconds an operation), bytes increasing

    def rate(self, data: float) -> float:
        """Microseconds an operation on ``data`` bytes."""
        sizes, rates = np.array(self.rates).T
        return float(np.interp(np.log(max(data, 1.0)), np.log(sizes), rates))

    def microseconds(self, operations: float, data: float, arrays: int = CALLED) -> float:
        """A round of so many operations; the calls from Python are included, which take longer for more arrays."""
        return self.call_us * (1.0 + ARRAY * (arrays - CALLED)) + operations * self.rate(data)

    def operations(self, microseconds: float, data: float) -> int:
        """How many operations fit into a time, calls from Python not counted."""
        return max(0, int(microseconds / self.rate(data)))


def measure() -> Machine:
    """Time this machine: about a tenth of a second, once the kernels are compiled."""
    rates = tuple(
        (8.0 * RANK * columns, _step_us(columns, calls) / _step_operations(columns)) for columns, calls in SHAPES
    )
    policy = UCB1(np.zeros((1, 1)))
    return Machine(_least_us(lambda: policy.update(policy.select(), 0.5), 200), rates)


def _step_operations(columns: int) -> int:
    return 2 * RANK**2 + RANK * columns + 3 * columns


def _step_us(columns: int, calls: int) -> float:
    whitened = np.full((RANK, columns), 1e-3)
    inverse, means, widths = np.eye(RANK), np.zeros(columns), np.full(columns, RANK * 1e-6)
    u, g = np.zeros(RANK), np.zeros(columns)
    return _least_us(lambda: ridge_step(inverse, whitened, means, widths, u, g, 0, 0.5), calls)


def _least_us(function: Callable[[], object], calls: int) -> float:
    """The least of a few repetitions: other work on the machine only adds."""
    function()
    best = np.inf
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, (time.perf_counter() - start) / calls)
    return 1e6 * float(best)
