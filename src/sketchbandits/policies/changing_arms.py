"""Adding, removing and freeing arms: the one contract of `add_arms`, `remove_arms`, `free_arms` and `active`.

`ChangingArms` checks the input and says what a subclass must do. `OneFit` does it for policies with one fit of all arms
(UCB1, OFUL, LinUCB): a new arm is one more column, in O(N d) per call and one refit of a ridge fit. Policies with
clusters are in `policies.cslb.changing_clusters`. Everywhere a removed arm is never played again, and its data stay.

Ids change in `free_arms` only, which gives back the memory of removed arms. What those taught a ridge fit stays, in
*remainder* arms (`policies.remainder`): internal ones that are never played, at most as many as the fit has dimensions.
Each call merges them with those of earlier calls. Bounds and estimates of the arms that are kept stay what they were,
up to rounding, and so does all that follows. `UCB1` needs none: an arm teaches it nothing about others.
"""

from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.base import Policy
from sketchbandits.policies.guard import all_or_nothing, exclusive
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.rounds import renew_choice
from sketchbandits.snapshot import Saved, take_array, within


@runtime_checkable
class TakesArms(Protocol):
    """What arms can be added to and removed from: `ChangingArms`, and policies that cannot free the memory of any."""

    def add_arms(self, arms: ArrayLike) -> NDArray[np.int64]:
        """Add ``arms``; returns their ids."""

    def remove_arms(self, ids: ArrayLike) -> None:
        """Never play these arms again."""


class ChangingArms(Policy):
    """A policy whose arms change; a subclass gives `active`, `_append_arms`, `_close_arms` and `_forget`."""

    _remainders: Ints = np.zeros(0, np.int64)  # ids of the arms that carry what freed ones taught

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

    @exclusive
    def free_arms(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Forget these removed arms, whose memory is given back; what they taught stays. **The others get new ids.**

        Returns ``kept``: the arm that now has the id ``i`` had the id ``kept[i]`` before. The order stays. Entries of
        -1 at the end are internal arms that are never played and carry what freed arms taught; there are at most as
        many as a fit has dimensions, for each fit. No reward and no pending decision may still be on its way to a
        freed arm. Without ids nothing changes, and internal arms stay in their places.
        """
        self._check_changeable()
        freed = np.unique(checked_arms(ids, self.n_arms, "ids"))
        playing = freed[self.active[freed]]
        if playing.size:
            raise ValueError(f"ids must be those of removed arms, got {playing[0]}, which may still be played")
        if not freed.size:
            kept = np.arange(self.n_arms)
            kept[self._remainders] = -1
            return kept
        with all_or_nothing(self):
            return self._forget(freed)

    @property
    def _observed(self) -> NDArray[np.bool_]:
        own = super()._observed
        own[self._remainders] = False
        return own

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

    def _forget(self, ids: Ints) -> Ints:
        """Forget these closed arms and make new remainders in place of the old ones; what `free_arms` returns."""
        raise NotImplementedError

    def _renumber(self, kept: Ints, rest: Floats, state: Any) -> Ints:
        """Take over a ``state`` of the arms ``kept`` and the remainders ``rest``; returns what `free_arms` does."""
        self.arms = np.concatenate([self.arms[kept], rest])
        self.arms.setflags(write=False)
        self.n_arms, self.state, self._kept_bounds = len(self.arms), state, None
        self._remainders = np.arange(kept.size, self.n_arms)
        return np.concatenate([kept, np.full(len(rest), -1)])

    def _staying(self, freed: Ints) -> NDArray[np.bool_]:
        """Which arms stay when these are freed: all others but for the remainders, which are made anew."""
        stay = np.ones(self.n_arms, np.bool_)
        stay[freed] = stay[self._remainders] = False
        return stay

    def _extra(self) -> dict[str, NDArray[Any]]:
        return {"remainders": self._remainders} if self._remainders.size else {}

    def _restore(self, saved: Saved, sizes: dict[str, int]) -> None:
        if "remainders" in saved.arrays:
            ids = take_array(saved, "remainders", Annotated[Ints, "remainders"], sizes)
            within(saved, "remainders", ids, 0, self.n_arms - 1)
            self._remainders = ids


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

    def _forget(self, ids: Ints) -> Ints:
        stay, choice = self._staying(ids), int(self.state.choice[0])
        kept = np.flatnonzero(stay)
        state, rest = self._without(kept, np.flatnonzero(~stay))
        result = self._renumber(kept, rest, state)
        if stay[choice]:  # it stands: nothing was learned
            state.choice[0] = np.searchsorted(kept, choice)
        else:  # an interrupt kept `remove_arms` from making the next choice
            state.choice[0] = np.flatnonzero(self.active)[0]
            self._forget_choice()
            renew_choice(state)
        return result

    def _with_arms(self, arms: Floats) -> Any:
        """The state with these arms at the end."""
        raise NotImplementedError

    def _without(self, kept: Ints, gone: Ints) -> tuple[Any, Floats]:
        """The state of the arms ``kept``, then of remainders of those ``gone``, and the latter's rows."""
        raise NotImplementedError

    def _forget_choice(self) -> None:
        """Let no standing choice outlive its arm."""


def widened(array: NDArray[Any], more: int, value: float = 0.0) -> NDArray[Any]:
    """``array`` with ``more`` last columns of ``value``."""
    columns = np.full((*array.shape[:-1], more), value, array.dtype)
    return np.concatenate([array, columns], axis=-1)


def columns(array: NDArray[Any], kept: Ints, more: int = 0) -> NDArray[Any]:
    """The columns ``kept`` of ``array``, then ``more`` of 0; contiguous, as compiled code expects it."""
    return widened(np.ascontiguousarray(array[..., kept]), more)
