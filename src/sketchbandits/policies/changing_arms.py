"""Baselines whose arms may come and go: `add_arms` and `remove_arms` on UCB1, OFUL and LinUCB. Ids are stable for ever.

One fit serves all arms, so there is nothing to divide anew: a new arm is one more column, in O(N d) for a call and one
refit of a ridge fit. A removed arm is never played again; its data stay.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.base import Policy
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.rounds import choose


class Growing(Policy):
    """A policy whose state has a field ``closed``: 0 for an arm, -inf once it is removed."""

    @property
    def active(self) -> NDArray[np.bool_]:
        """Which arms may be played: all but the removed ones."""
        return np.array(self.state.closed == 0.0)

    def add_arms(self, arms: ArrayLike) -> NDArray[np.int64]:
        """Add ``arms`` (one a row); returns their ids, which continue those of the arms there are."""
        new = validate.matrix("arms", arms, columns=self.dim)
        self._check_new(new)
        first, state = self.n_arms, self._with_arms(new)
        self.arms = np.concatenate([self.arms, new])
        self.arms.setflags(write=False)
        self.n_arms, self.state = len(self.arms), state
        choose(state)
        return np.arange(first, self.n_arms)

    def remove_arms(self, ids: ArrayLike) -> None:
        """Never play these arms again; what they taught stays. Their ids are not given out a second time."""
        gone = checked_arms(ids, self.n_arms, "ids")
        left = self.active
        left[gone] = False
        if not left.any():
            raise ValueError(f"ids must leave at least one arm to play, got all {int(self.active.sum())} that are left")
        self.state.closed[gone] = -np.inf
        self._forget_choice()
        choose(self.state)

    def _check_new(self, arms: Floats) -> None:
        """Refuse arms that the policy's guarantee does not reach."""

    def _with_arms(self, arms: Floats) -> Any:
        """The state with these arms at the end."""
        raise NotImplementedError

    def _forget_choice(self) -> None:
        """Let no standing choice outlive its arm."""


def widened(array: NDArray[Any], more: int, value: float = 0.0) -> NDArray[Any]:
    """``array`` with ``more`` last columns of ``value``."""
    room = np.full((*array.shape[:-1], more), value, array.dtype)
    return np.concatenate([array, room], axis=-1)
