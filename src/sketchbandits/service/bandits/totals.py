"""What a bandit has counted: decisions, rewards and their sums, in all, per arm and per minute of the last day."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

MINUTES_KEPT = 1_440
_PER_ARM = ("sums", "left_out", "counts", "outstanding")


class Totals:
    """Counts and sums, changed in the order of the log, live and in replay."""

    def __init__(self, n_arms: int) -> None:
        self.decisions = self.rewards = self.defaults = self.retracted = 0
        self.reward_sum = 0.0
        self.minutes: dict[int, list[float]] = {}  # start -> decisions, rewards, their sum, defaults
        # Per arm, since not every policy keeps them: the sum of rewards, and what rounding has left out of it. A reward
        # of 1e12 that is taken back again must leave the sum of the others, to the last digit.
        self.sums, self.left_out = np.zeros(n_arms), np.zeros(n_arms)
        self.counts = np.zeros(n_arms, np.int64)
        self.outstanding = np.zeros(n_arms, np.int64)

    def grow(self, n_arms: int) -> None:
        """There are more arms."""
        for name in _PER_ARM:
            array = getattr(self, name)
            setattr(self, name, np.concatenate([array, np.zeros(n_arms - array.size, array.dtype)]))

    def decided(self, arms: Sequence[int], time: float) -> None:
        """Decisions for these arms."""
        self.decisions += len(arms)
        self._minute(time)[0] += len(arms)
        for arm in arms:
            self.outstanding[arm] += 1

    def rewarded(self, arm: int, reward: float, time: float, *, default: bool) -> None:
        """The reward of a decision, or the default at its deadline."""
        minute = self._minute(time)
        self.rewards += 1
        self.reward_sum += reward
        self._add(arm, reward)
        self.counts[arm] += 1
        self.outstanding[arm] -= 1
        minute[1] += 1
        minute[2] += reward
        if default:
            self.defaults += 1
            minute[3] += 1

    def copy(self) -> "Totals":
        """Totals that do not change any more."""
        twin = Totals(self.sums.size)
        vars(twin).update(vars(self))
        twin.minutes = {start: list(minute) for start, minute in list(self.minutes.items())}
        for name in _PER_ARM:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def retract(self, arms: Sequence[int], rewards: Sequence[float]) -> None:
        """Rewards were taken back; the minutes still say what came in."""
        for arm, reward in zip(arms, rewards, strict=True):
            self._add(arm, -reward)
            self.counts[arm] -= 1
        self.rewards -= len(arms)
        self.retracted += len(arms)
        self.sums, self.left_out = _two_sum(self.sums, self.left_out)
        self.reward_sum = math.fsum(self.sums)

    def _add(self, arm: int, reward: float) -> None:
        total, rest = _two_sum(self.sums.item(arm), reward)
        self.sums[arm] = total
        self.left_out[arm] += rest

    def _minute(self, time: float) -> list[float]:
        start = int(time // 60) * 60
        if start not in self.minutes:
            # Called in the order of the log, live and in replay, so that both drop the same minutes.
            self.minutes = {kept: entry for kept, entry in self.minutes.items() if kept > start - MINUTES_KEPT * 60}
        return self.minutes.setdefault(start, [0, 0, 0.0, 0])

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes back; outstanding decisions are in the bandit's own list."""
        return {
            "numbers": [self.decisions, self.rewards, self.defaults, self.retracted, self.reward_sum],
            "minutes": [[start, *minute] for start, minute in list(self.minutes.items())],
            "sums": self.sums.tolist(),
            "left_out": self.left_out.tolist(),
            "counts": self.counts.tolist(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any], outstanding: Sequence[int]) -> "Totals":
        """What `to_json` made, with the arms of outstanding decisions."""
        totals = cls(len(value["sums"]))
        totals.decisions, totals.rewards, totals.defaults, totals.retracted, totals.reward_sum = value["numbers"]
        totals.minutes = {start: minute for start, *minute in value["minutes"]}
        totals.sums, totals.left_out = np.array(value["sums"]), np.array(value["left_out"])
        totals.counts = np.array(value["counts"], np.int64)
        totals.outstanding = np.bincount(np.asarray(outstanding, np.int64), minlength=totals.sums.size)
        return totals


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """The rounded sum, and exactly what rounding has left out (Knuth, TAOCP 2, 4.2.2, theorem B)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)
