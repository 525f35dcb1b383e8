"""Rounds with users, for `simulate`: who asks, what each arm would pay, and which arms may be chosen.

The environment draws the rounds; a policy with contexts is given them, one without chooses for everybody alike. One
with ``play_user_rounds`` plays many rounds in one compiled call.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.late_rewards import OutstandingRewards

if TYPE_CHECKING:
    from sketchbandits.environments.protocol import Rounds, UsersEnvironment

AT_A_TIME = 2_048  # rounds whose rewards are drawn together


class UserRounds:
    """Any object with ``select(context, available=)``, ``update(arm, reward, context=)``, or one without contexts."""

    def __init__(
        self, env: "UsersEnvironment", policy: Any, generator: np.random.Generator, late: OutstandingRewards | None
    ) -> None:
        self.env, self.policy, self.generator, self.late = env, policy, generator, late
        self.played, self.reward = 0, 0.0
        self.takes_context = env.context_dim is not None and getattr(policy, "context_dim", None) is not None
        if callable(getattr(policy, "copy", None)):  # compile off the clock
            trial = policy.copy()
            self._record(trial, 0, 0.0, np.ones(env.context_dim or 1))

    def play(self, noise: Floats) -> tuple[float, float]:
        """Play ``noise.size`` more rounds; returns their regret and the seconds they took."""
        regret = seconds = 0.0
        for first in range(0, noise.size, AT_A_TIME):
            rounds = self.env.rounds(self.generator, self.played, min(AT_A_TIME, noise.size - first))
            more, spent = self._play(rounds)
            regret, seconds = regret + more, seconds + spent
            self.played += len(rounds.means)
        return regret, seconds

    def _play(self, rounds: "Rounds") -> tuple[float, float]:
        size = len(rounds.means)
        started = time.perf_counter()
        if self.late is None and callable(getattr(self.policy, "play_user_rounds", None)):
            chosen = self.policy.play_user_rounds(rounds.contexts, rounds.rewards, rounds.available)
        else:
            chosen = self._one_by_one(rounds)
        seconds = time.perf_counter() - started
        self.reward += float(rounds.rewards[np.arange(size), chosen].sum())
        allowed = rounds.means if rounds.available is None else np.where(rounds.available, rounds.means, -np.inf)
        return float((allowed.max(axis=1) - rounds.means[np.arange(size), chosen]).sum()), seconds

    def _one_by_one(self, rounds: "Rounds") -> Ints:
        size = len(rounds.means)
        delays = [0] * size if self.late is None else self.late.draw_delays(size)
        chosen = np.empty(size, np.int64)
        for t in range(size):
            chosen[t] = arm = self._choose(rounds, t)
            self._send(arm, float(rounds.rewards[t, arm]), rounds.contexts[t], delays[t])
        return chosen

    def _choose(self, rounds: "Rounds", t: int) -> int:
        given: dict[str, Any] = {} if rounds.available is None else {"available": rounds.available[t]}
        arm = self.policy.select(*[rounds.contexts[t]] * self.takes_context, **given)
        if not 0 <= arm < self.env.n_arms or not given.get("available", {arm: True})[arm]:
            allowed = f"must be one that may be chosen, from 0 to {self.env.n_arms - 1}"
            raise ValueError(f"{self.policy!r} selected arm {arm!r}, {allowed}")
        return int(arm)

    def _send(self, arm: int, reward: float, context: Floats, delay: int) -> None:
        if self.late is None:
            self._record(self.policy, arm, reward, context)
            return
        self.late.send((arm, context), reward, delay)
        for (earlier, who), known in self.late.receive():
            self._record(self.policy, earlier, known, who)

    def _record(self, policy: Any, arm: int, reward: float, context: Floats) -> None:
        update: Callable[..., None] = policy.update
        if self.takes_context:
            update(arm, reward, context=context)
        else:
            update(arm, reward)
