"""Adding and removing arms: the one contract of `add_arms`, `remove_arms` and `active`. Ids never change.

`ChangingArms` checks the input and says what a subclass must do. `OneFit` does it for policies with one fit of all arms
(UCB1, OFUL, LinUCB): a new arm is one more column, in O(N d) per call and one refit of a ridge fit. Policies with
clusters are in `policies.cslb.changing_clusters`. Everywhere a removed arm is never played again, and its data stay.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.base import Policy
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.rounds import renew_choice


class ChangingArms(Policy):
    """A policy whose arms may be added and removed; a subclass gives `active`, `_append_arms` and `_close_arms`."""

    @exclusive
    def add_arms(self, arms: ArrayLike) -> NDArray[np.int64]:
        """Add ``arms``, one per row; returns their ids, which continue those of the arms there are."""
        self._check_changeable()
        new = validate.matrix("arms", arms, columns=self.dim)
        self._check_new(new)
        first = self.n_arms
        self._append_arms(new)
        return np.arange(first, self.n_arms)

    @exclusive
    def remove_arms(self, ids: ArrayLike) -> None:
        """Never play these arms again; what they taught stays. Their ids are not given out a second time."""
        self._check_changeable()
        gone = checked_arms(ids, self.n_arms, "ids")
        left = self.active
        left[gone] = False
        if not left.any():
            raise ValueError(f"ids must leave at least one arm to play, got all {int(self.active.sum())} that are left")
        self._close_arms(gone)

    def _check_changeable(self) -> None:
        """Refuse where this policy's settings do not allow arms to be added or removed."""

    def _check_new(self, arms: Floats) -> None:
        """Refuse arms to which the policy's guarantee does not extend."""

    def _append_arms(self, arms: Floats) -> None:
        """Give checked arms the next ids, grow ``arms``, ``n_arms`` and ``state``, and choose again."""
        raise NotImplementedError

    def _close_arms(self, ids: Ints) -> None:
        """Let these arms never be chosen again, and choose again."""
        raise NotImplementedError


class OneFit(ChangingArms):
    """One fit of all arms, whose state has a field ``closed``: 0 for an arm, -inf once it is removed."""

    @property
    @exclusive
    def active(self) -> NDArray[np.bool_]:
        """Which arms may be played: all but the removed ones."""
        return np.array(self.state.closed == 0.0)

    def _append_arms(self, arms: Floats) -> None:
        state = self._with_arms(arms)
        self.arms = np.concatenate([self.arms, arms])
        self.arms.setflags(write=False)
        self.n_arms, self.state = len(self.arms), state
        renew_choice(state)

    def _close_arms(self, ids: Ints) -> None:
        self.state.closed[ids] = -np.inf
        self._forget_choice()
        renew_choice(self.state)

    def _with_arms(self, arms: Floats) -> Any:
        """The state with these arms at the end."""
        raise NotImplementedError

    def _forget_choice(self) -> None:
        """Let no standing choice outlive its arm."""


def widened(array: NDArray[Any], more: int, value: float = 0.0) -> NDArray[Any]:
    """``array`` with ``more`` last columns of ``value``."""
    columns = np.full((*array.shape[:-1], more), value, array.dtype)
    return np.concatenate([array, columns], axis=-1)
