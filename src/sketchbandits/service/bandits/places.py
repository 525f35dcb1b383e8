"""Which arm of the log is which arm of the policy."""

from collections.abc import Sequence

import numpy as np

from sketchbandits.kernels.linalg import Ints

FREED = -1


class ArmPlaces:
    """The place of every arm in the policy; the same numbers as long as no memory of removed arms was freed.

    ``place[arm]``: the arm's index in the policy, or `FREED`. ``arm_at[i]``: the arm at index i of the policy, or
    `FREED` for what the policy keeps of freed arms together. Both are None while nothing was freed.
    """

    def __init__(self, arm_at: Ints | None = None, n_arms: int = 0) -> None:
        self.arm_at, self.place = arm_at, None if arm_at is None else _inverse(arm_at, n_arms)

    def of(self, arm: int) -> int:
        """The index of one arm in the policy."""
        return arm if self.place is None else self.place.item(arm)

    def all_of(self, arms: Sequence[int]) -> list[int]:
        """The indices of arms in the policy; freed ones are left out."""
        if self.place is None:
            return list(arms)
        found = self.place[np.asarray(arms, np.int64)]
        kept: list[int] = found[found != FREED].tolist()
        return kept

    def arms_at(self, indices: list[int]) -> list[int]:
        """The arms at these indices of the policy."""
        if self.arm_at is None:
            return indices
        arms: list[int] = self.arm_at[indices].tolist()
        return arms

    def append(self, n_arms: int, size: int, new: int) -> None:
        """New arms, numbered from ``n_arms`` on, are the last ones of a policy with ``size`` arms."""
        if self.arm_at is not None:
            self.arm_at = np.append(self.arm_at, np.arange(n_arms, n_arms + new))
            assert self.arm_at.size == size
            self.place = _inverse(self.arm_at, n_arms + new)

    def free(self, kept: Ints, n_arms: int) -> None:
        """The policy has kept its arms ``kept``, in this order; `FREED` stands for what it keeps of others."""
        before = np.arange(n_arms) if self.arm_at is None else self.arm_at
        self.arm_at = np.where(kept == FREED, FREED, before[kept])
        self.place = _inverse(self.arm_at, n_arms)


def _inverse(arm_at: Ints, n_arms: int) -> Ints:
    place = np.full(n_arms, FREED, np.int64)
    own = np.flatnonzero(arm_at != FREED)
    place[arm_at[own]] = own
    return place
