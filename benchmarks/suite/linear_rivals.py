"""LinUCB for contexts, one parameter for all arms or one per arm: the yardsticks of `benchmarks/practice.py`.

Textbook form (Li, Chu, Langford and Schapire, WWW 2010): ridge 1, ``alpha`` standard deviations, the inverse moved by
Sherman and Morrison. Each plays rounds in one compiled loop and returns what it chose.
"""

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@numba.njit
def _learn(inverse: Floats, b: Floats, theta: Floats, x: Floats, reward: float) -> None:
    g = inverse @ x
    D = 1.0 + np.dot(x, g)
    for i in range(x.size):
        b[i] += x[i] * reward
        for j in range(x.size):
            inverse[i, j] -= g[i] * g[j] / D
    theta[:] = inverse @ b


@numba.njit
def _bound(inverse: Floats, theta: Floats, x: Floats, alpha: float) -> float:
    return np.dot(x, theta) + alpha * np.sqrt(np.dot(x, inverse @ x))


@numba.njit
def _shared(inverse: Floats, b: Floats, theta: Floats, game: tuple[Floats, Floats, Floats, Mask], alpha: float) -> Ints:
    contexts, arms, rewards, available = game
    n, chosen = arms.shape[0], np.empty(contexts.shape[0], np.int64)
    for t in range(contexts.shape[0]):
        best, arm = -np.inf, -1
        for a in range(n):
            if available[t, a]:
                value = _bound(inverse, theta, np.kron(contexts[t], arms[a]), alpha)
                if value > best:
                    best, arm = value, a
        chosen[t] = arm
        _learn(inverse, b, theta, np.kron(contexts[t], arms[arm]), rewards[t, arm])
    return chosen


@numba.njit
def _disjoint(
    inverse: Floats, b: Floats, theta: Floats, game: tuple[Floats, Floats, Floats, Mask], alpha: float
) -> Ints:
    contexts, arms, rewards, available = game
    n, chosen = arms.shape[0], np.empty(contexts.shape[0], np.int64)
    for t in range(contexts.shape[0]):
        best, arm = -np.inf, -1
        for a in range(n):
            if available[t, a]:
                value = _bound(inverse[a], theta[a], contexts[t], alpha)
                if value > best:
                    best, arm = value, a
        chosen[t] = arm
        _learn(inverse[arm], b[arm], theta[arm], contexts[t], rewards[t, arm])
    return chosen


class LinUCBForUsers:
    """LinUCB on ``context x arm`` (``shared``), or one LinUCB on the context per arm."""

    def __init__(self, arms: Floats, p: int, *, shared: bool, alpha: float) -> None:
        self.arms, self.shared, self.alpha = np.ascontiguousarray(arms), shared, alpha
        n, size = len(arms), p * arms.shape[1] if shared else p
        shape = (size,) if shared else (n, size)
        self.inverse = np.eye(size) if shared else np.tile(np.eye(size), (n, 1, 1))
        self.b, self.theta = np.zeros(shape), np.zeros(shape)

    def play_user_rounds(self, contexts: Floats, rewards: Floats, available: Mask | None) -> Ints:
        """Choose and learn in rounds, one per row."""
        among = np.ones(rewards.shape, np.bool_) if available is None else available
        game = (np.ascontiguousarray(contexts), self.arms, np.ascontiguousarray(rewards), among)
        chosen: Ints = (_shared if self.shared else _disjoint)(self.inverse, self.b, self.theta, game, self.alpha)
        return chosen
