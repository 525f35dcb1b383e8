"""UCB1 with its bound as printed, in the library's own loop: what the library's UCB1 is measured against."""

from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import UCB1
from sketchbandits.kernels.linalg import add_exactly, tied_argmax
from sketchbandits.policies.rounds import DONE, general_loop, register

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class TextbookState(NamedTuple):
    """As the library's UCB1, with counts in place of their inverse roots."""

    choice: Ints
    counts: Ints
    stats: Floats  # per arm: mean, sum, and what the sum has lost to rounding
    clock: Ints  # 1 + rewards recorded
    factor: Floats  # R^2 c
    work: Floats


# Not the library's own decorator, nor its compiled `general_loop`: both keep an index on disk next to the library. It
# would name this module's state type, and a process that cannot import this module could no longer read the index.
_kernel = numba.njit(nogil=True, error_model="numpy")


@_kernel
def absorb(state: TextbookState, arm: int, reward: float) -> int:
    """Record a reward in the arm's mean."""
    stats = state.stats
    state.clock[0] += 1
    state.counts[arm] += 1
    add_exactly(stats, 1, arm, reward)
    stats[0, arm] = (stats[1, arm] + stats[2, arm]) / state.counts[arm]
    return DONE


@_kernel
def choose(state: TextbookState) -> int:
    """``argmax_i mean_i + sqrt(c ln t / n_i)``: one division and one root per arm."""
    mean, counts, values = state.stats[0], state.counts, state.work
    scale = state.factor[0] * np.log(max(state.clock[0], 2))
    for i in range(values.size):
        values[i] = mean[i] + np.sqrt(scale / counts[i])  # 1/0 is +inf: an arm without rewards comes first
    state.choice[0] = tied_argmax(values)
    return DONE


# The text of the library's own loop, compiled here; with the compiler off it is a plain function already.
_loop = _kernel(getattr(general_loop, "py_func", general_loop))

register(TextbookState, absorb=absorb, choose=choose, loop=_loop)


class TextbookUCB1(UCB1):
    """UCB1 with its bound evaluated as printed; the library's keeps ``1/sqrt(n_i)``, which is faster."""

    _seen = None  # it does not watch its assumptions

    def __init__(self, arms: ArrayLike, *, noise: float = 1.0, exploration: float = 2.0) -> None:
        super().__init__(arms, noise=noise, exploration=exploration)
        n = self.n_arms
        self.state = TextbookState(
            choice=np.zeros(1, np.int64),
            counts=np.zeros(n, np.int64),
            stats=np.zeros((3, n)),
            clock=np.ones(1, np.int64),
            factor=np.array([noise**2 * exploration]),
            work=np.zeros(n),
        )
        choose(self.state)

    def update(self, arm: int, reward: float) -> None:
        """Record a reward and choose the next arm."""
        absorb(self.state, arm, reward)
        choose(self.state)

    def bounds(self) -> Floats:
        """``mean + sqrt(c ln t / n)``, as `choose` left them."""
        return np.array(self.state.work)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return TextbookState
