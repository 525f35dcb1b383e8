"""Rewards that arrive after later decisions were taken: the queue that `simulate` keeps for delays and batches."""

import heapq
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.linalg import Ints


class DelayLaw(Protocol):
    """How late rewards are; see `sketchbandits.environments.delays`."""

    def draw(self, generator: np.random.Generator, size: int) -> Ints:
        """For each of the next ``size`` decisions, how many others are taken before its reward can be used."""


class Lateness(NamedTuple):
    """Why rewards come late: ``delay`` (None: no delay) and ``batch``, the decisions taken together.

    ``pending`` says whether outstanding decisions are passed to policies; None leaves it to each policy.
    """

    delay: DelayLaw | None
    batch: int
    pending: bool | None

    def passes_pending(self, policy: Any) -> bool:
        """Whether this policy is passed its outstanding decisions."""
        if self.pending is not None:
            return self.pending
        return getattr(policy, "pending_by_default", False) and callable(getattr(policy, "select_many", None))


def check_lateness(delay: DelayLaw | None, batch: int, pending: bool | None) -> Lateness | None:
    """The arguments of `simulate`, checked; None where every reward is known before the next decision."""
    if delay is not None and not callable(getattr(delay, "draw", None)):
        raise ValueError(f"delay must be None or have draw(generator, size), got {delay!r}")
    if pending is not None and not isinstance(pending, (bool, np.bool_)):
        raise ValueError(f"pending must be True, False or None, got {pending!r}")
    batch = validate.whole("batch", batch)
    if batch == 1 and delay is None:
        return None
    return Lateness(delay, batch, None if pending is None else bool(pending))


class OutstandingRewards:
    """Rewards on their way: that of decision t with delay D can be used from decision t + 1 + D on."""

    def __init__(self, lateness: Lateness, seed: np.random.SeedSequence) -> None:
        self.delay, self.batch = lateness.delay, lateness.batch
        self.generator = np.random.default_rng(seed)
        self.decisions_taken = 0
        self.arms: dict[int, Any] = {}  # arm (or context) of every outstanding decision, oldest first
        self.arrivals: list[tuple[int, int, float]] = []  # a heap of (due, decision, reward)

    @property
    def place_in_batch(self) -> int:
        """0 for the first decision of a batch."""
        return self.decisions_taken % self.batch

    def draw_delays(self, size: int) -> list[int]:
        """The delays of the next ``size`` decisions."""
        if self.delay is None:
            return [0] * size
        drawn = np.asarray(self.delay.draw(self.generator, size))
        if drawn.shape != (size,) or drawn.dtype.kind not in "iu" or drawn.min() < 0:
            raise ValueError(f"delay must draw {size} whole numbers >= 0, got {drawn!r}")
        return drawn.tolist()

    def send(self, arm: Any, reward: float, delay: int) -> None:
        """Add the reward of a decision just taken."""
        self.arms[self.decisions_taken] = arm
        heapq.heappush(self.arrivals, (self.decisions_taken + 1 + delay, self.decisions_taken, reward))
        self.decisions_taken += 1

    def receive(self) -> Iterator[tuple[Any, float]]:
        """Remove and yield the arms and rewards that have arrived, in order of arrival; none within a batch."""
        if self.place_in_batch > 0:
            return
        while self.arrivals and self.arrivals[0][0] <= self.decisions_taken:
            _, decision, reward = heapq.heappop(self.arrivals)
            yield self.arms.pop(decision), reward
