"""How much the rewards of one arm scatter: the noise as it is seen, whatever model a policy has of the arms' means.

    sum over arms of sum_j (y_j - mean)^2 ,  moved by (y - mean)^2 n/(n + 1) when an arm with n rewards gets one more

The step is Welford's, with the mean taken from the arm's exact sum: an offset of 1e9 in all rewards changes nothing.
Each step is one degree of freedom, also where nobody knows how much the earlier rewards scattered: a state read from a
file of an older format just begins to count. Arms that are freed take nothing with them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import inlined_kernel

SEEN = np.dtype(
    [
        ("squares", np.float64),  # the sum above; of a fit for contexts the least sum of squares, ridge included
        ("freedom", np.float64),  # its degrees of freedom
        ("firsts", np.float64),  # rewards that had no earlier one to be compared with
    ]
)


@inlined_kernel
def note(seen: Any, n: int, total: float, reward: float) -> None:
    """One more reward of an arm that has ``n`` with the sum ``total``."""
    if n == 0:
        seen["firsts"] += 1.0
        return
    count = float(n)
    error = count * reward - total
    seen["squares"] += error * error / (count * (count + 1.0))
    seen["freedom"] += 1.0


@inlined_kernel
def note_between(seen: Any, n: int, before: float, after: float, reward: float) -> None:
    """`note` for a policy that keeps means: the n-th reward has moved its arm's mean from ``before`` to ``after``."""
    if n == 1:
        seen["firsts"] += 1.0
        return
    seen["squares"] += (reward - before) * (reward - after)
    seen["freedom"] += 1.0


def nothing_seen() -> NDArray[Any]:
    """The record before the first reward."""
    return np.zeros(1, SEEN)


def begin_again(seen: NDArray[Any], firsts: int) -> None:
    """Forget what was seen; ``firsts`` arms, or dimensions of a fit, have rewards that later ones are compared with."""
    seen["squares"], seen["freedom"], seen["firsts"] = 0.0, 0.0, firsts
