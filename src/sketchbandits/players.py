"""How a policy plays its rounds in an environment, one class a way; `simulate` says which and keeps the score.

Every player has ``rounds(noise) -> (regret, seconds)``: it plays ``noise.size`` more rounds. On fixed arms a library
policy does so inside one compiled kernel; contexts, late rewards and other objects are played one decision at a time.
"""

import heapq
import time
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.base import Policy
from sketchbandits.policies.contextual import ContextualPolicy


class Delay(Protocol):
    """How late rewards are; see `sketchbandits.environments.delays`."""

    def draw(self, generator: np.random.Generator, size: int) -> Ints:
        """For the next ``size`` decisions, how many others are taken before the reward can be used."""


class FixedCompiled:
    """A library policy on fixed arms: rounds are played inside the kernel."""

    def __init__(self, env: Any, policy: Any, contexts: np.random.Generator) -> None:
        self.env, self.policy = env, policy
        policy.play_rounds(env.means, env.gaps, np.zeros(0))  # compile, or load the compiled kernel, off the clock

    def rounds(self, noise: Floats) -> tuple[float, float]:
        """Play on."""
        started = time.perf_counter()
        regret = self.policy.play_rounds(self.env.means, self.env.gaps, noise)
        return regret, time.perf_counter() - started


class FixedPlain:
    """Any object with ``select()`` and ``update(arm, reward)``."""

    def __init__(self, env: Any, policy: Any, contexts: np.random.Generator) -> None:
        self.env, self.policy = env, policy
        self.means, self.gaps = env.means.tolist(), env.gaps.tolist()
        if isinstance(policy, Policy):
            policy.copy().update(0, 0.0)  # compile off the clock

    def rounds(self, noise: Floats) -> tuple[float, float]:
        """Play on."""
        policy, means, gaps, regret = self.policy, self.means, self.gaps, 0.0
        started = time.perf_counter()
        for value in noise.tolist():
            arm = self._checked(policy.select())
            regret += gaps[arm]
            policy.update(arm, means[arm] + value)
        return regret, time.perf_counter() - started

    def _checked(self, arm: int) -> int:
        if not 0 <= arm < len(self.means):
            raise ValueError(f"{self.policy!r} selected arm {arm!r}, must be from 0 to {len(self.means) - 1}")
        return arm


class Contextual:
    """Any object with ``select(contexts)`` and ``update(context, reward)``; drawing contexts is off the clock."""

    def __init__(self, env: Any, policy: Any, contexts: np.random.Generator) -> None:
        self.env, self.policy, self.contexts = env, policy, contexts
        if isinstance(policy, ContextualPolicy):  # compile off the clock
            sample, _ = env.contexts(np.random.default_rng(0))
            twin = policy.copy()
            twin.update(sample[twin.select(sample)], 0.0)

    def rounds(self, noise: Floats) -> tuple[float, float]:
        """Play on."""
        regret = seconds = 0.0
        for value in noise.tolist():
            contexts, expected = self.env.contexts(self.contexts)
            started = time.perf_counter()
            choice = self.policy.select(contexts)
            seconds += time.perf_counter() - started
            if not 0 <= choice < len(expected):
                raise ValueError(f"{self.policy!r} selected {choice!r}, must be from 0 to {len(expected) - 1}")
            reward = float(expected[choice]) + value
            started = time.perf_counter()
            self._book(contexts[choice], reward)
            seconds += time.perf_counter() - started
            regret += float(expected.max() - expected[choice])
        return regret, seconds

    def _book(self, context: Floats, reward: float) -> None:
        self.policy.update(context, reward)


class Outstanding:
    """Rewards on their way: that of decision t with delay D is due from decision t + 1 + D on."""

    def __init__(self, delay: Delay | None, generator: np.random.Generator, batch: int) -> None:
        self.delay, self.generator, self.batch = delay, generator, batch
        self.now = 0
        self.arms: dict[int, Any] = {}  # decision: arm or context, oldest first
        self.arrivals: list[tuple[int, int, float]] = []  # a heap of (due, decision, reward)

    def delays(self, size: int) -> list[int]:
        """Of the next decisions."""
        if self.delay is None:
            return [0] * size
        drawn = np.asarray(self.delay.draw(self.generator, size))
        if drawn.shape != (size,) or drawn.dtype.kind not in "iu" or drawn.min() < 0:
            raise ValueError(f"delay must draw {size} whole numbers >= 0, got {drawn!r}")
        return drawn.tolist()

    def send(self, arm: Any, reward: float, delay: int) -> None:
        """A decision was taken."""
        self.arms[self.now] = arm
        heapq.heappush(self.arrivals, (self.now + 1 + delay, self.now, reward))
        self.now += 1

    def due(self) -> Iterator[tuple[Any, float]]:
        """Arms and rewards that have arrived, in order of arrival; none inside a batch."""
        while self.now % self.batch == 0 and self.arrivals and self.arrivals[0][0] <= self.now:
            _, decision, reward = heapq.heappop(self.arrivals)
            yield self.arms.pop(decision), reward


class LateFixed(FixedPlain):
    """Decisions ahead of rewards on fixed arms: told of what is pending, or naively, as though nothing were."""

    def __init__(self, env: Any, policy: Any, contexts: np.random.Generator, late: Outstanding, told: bool) -> None:
        super().__init__(env, policy, contexts)
        self.late, self.told = late, told
        self.chosen: list[int] = []
        if told and isinstance(policy, Policy):
            policy.copy().select_many(2, pending=[0])  # compile off the clock

    def rounds(self, noise: Floats) -> tuple[float, float]:
        """Play on."""
        late, policy, means, regret = self.late, self.policy, self.means, 0.0
        started = time.perf_counter()
        for value, delay in zip(noise.tolist(), late.delays(noise.size), strict=True):
            for arm, reward in late.due():
                policy.update(arm, reward)
            arm = self._next()
            regret += self.gaps[arm]
            late.send(arm, means[arm] + value, delay)
        return regret, time.perf_counter() - started

    def _next(self) -> int:
        """The arm of this decision; a batch is chosen when its first is due."""
        place, policy, size = self.late.now % self.late.batch, self.policy, self.late.batch
        if place == 0 and self.told:
            waiting = np.fromiter(self.late.arms.values(), np.int64, len(self.late.arms))
            self.chosen = policy.select_many(size, pending=waiting).tolist()
        elif place == 0:
            self.chosen = [policy.select() for _ in range(size)]
        return self._checked(self.chosen[place])


class LateContextual(Contextual):
    """Rewards that come later, for contexts."""

    def __init__(self, env: Any, policy: Any, contexts: np.random.Generator, late: Outstanding) -> None:
        super().__init__(env, policy, contexts)
        self.late = late

    def rounds(self, noise: Floats) -> tuple[float, float]:
        """Play on."""
        self.due = iter(self.late.delays(noise.size))
        return super().rounds(noise)

    def _book(self, context: Floats, reward: float) -> None:
        self.late.send(context, reward, next(self.due))
        for earlier, known in self.late.due():
            self.policy.update(earlier, known)
