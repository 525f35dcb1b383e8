"""What `simulate` needs from an environment: any object with these attributes and methods can be played.

An environment says what each choice is worth on average and draws the noise of the rewards. `simulate` adds the two,
so that every policy receives the same noise value in the same round, whatever it chooses.
"""

from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class FixedArmsEnvironment(Protocol):
    """Arms that are the same in every round, such as `LinearEnvironment` and `ReplayEnvironment`."""

    @property
    def contextual(self) -> Literal[False]:
        """False: policies are built on the arms and choose one of them."""

    @property
    def n_arms(self) -> int:
        """How many arms there are."""

    @property
    def means(self) -> NDArray[np.float64]:
        """The expected reward of every arm."""

    @property
    def gaps(self) -> NDArray[np.float64]:
        """The regret of playing each arm once: how far its mean is below the largest."""

    def draw_noise(self, generator: np.random.Generator, size: int) -> NDArray[np.float64]:
        """The noise of the next ``size`` rewards; two calls in a row must give what one call for both gives."""


class FreshArmsEnvironment(Protocol):
    """New arms in every round, each a vector of its own, such as `LabelledEnvironment`."""

    @property
    def contextual(self) -> Literal[True]:
        """True: policies choose one of the contexts that a round offers."""

    @property
    def dim(self) -> int:
        """The length of a context."""

    def contexts(self, generator: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One round: its contexts, one per row, and the expected reward of each."""

    def draw_noise(self, generator: np.random.Generator, size: int) -> NDArray[np.float64]:
        """The noise of the next ``size`` rewards; two calls in a row must give what one call for both gives."""


class Rounds(NamedTuple):
    """Some rounds of a `UsersEnvironment`, one per row.

    ``contexts`` (size, p): who asks. ``means`` and ``rewards`` (size, N): the expected reward of every arm, and the one
    that it pays if it is chosen. ``available`` (size, N): which arms may be chosen; None where all may.
    """

    contexts: NDArray[np.float64]
    means: NDArray[np.float64]
    rewards: NDArray[np.float64]
    available: NDArray[np.bool_] | None


class UsersEnvironment(Protocol):
    """Fixed arms for users who differ, such as `ContextualEnvironment`."""

    @property
    def contextual(self) -> Literal[False]:
        """False: policies are built on the arms and choose one of them."""

    @property
    def n_arms(self) -> int:
        """How many arms there are."""

    @property
    def context_dim(self) -> int | None:
        """The length of a context; None where every round is the same."""

    def rounds(self, generator: np.random.Generator, first: int, size: int) -> Rounds:
        """The rounds ``first`` to ``first + size - 1``; two calls in a row give what one call for both gives."""


Environment = FixedArmsEnvironment | FreshArmsEnvironment | UsersEnvironment
