"""LinUCB, LinTS and epsilon-greedy for users: the yardsticks of `benchmarks/practice.py`.

Ridge regression with ridge 1 on ``context x arm`` (``shared``: one parameter for all arms), or on the context alone
(``disjoint``: one parameter per arm), and a textbook rule on it:

    LinUCB (Li, Chu, Langford and Schapire, WWW 2010):  argmax  mean_a + alpha sd_a
    LinTS (Agrawal and Goyal, ICML 2013):  argmax  x_a . theta ,  theta ~ N(estimate, scale^2 V^-1), drawn each round
    epsilon-greedy:  argmax  mean_a , but with probability epsilon any arm that is offered

One call plays many rounds in one compiled loop and returns what was chosen. A shared fit is not evaluated on every
``x_a = u x z_a``, which would cost O((p q)^2) per arm and decision. With ``V^-1`` in blocks of the arms' q features,

    mean_a(u) = u . m_a ,  m_a = Theta z_a ,   sd_a(u)^2 = u' M_a u ,  M_a = (I x z_a') V^-1 (I x z_a)   (p x p)

and a reward of x moves them by ``t = (g as p x q) z_a``, ``g = V^-1 x``, ``D = 1 + x . g``, ``e`` the residual:
``m_a += t e / D``, ``M_a -= t t' / D``. That is O(N p^2) per decision and O((p q)^2 + N p (p + q)) per reward,
exact but for rounding. Sampling one parameter needs a root ``S S' = V^-1`` instead, which a reward moves by (Potter)
``S -= (1 - 1/sqrt(D)) / |s|^2  (S s) s'``, ``s = S'x``. ``tests/core/test_linear_rivals.py`` compares all of this with
regressions solved anew in every round.
"""

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Game(NamedTuple):
    """Some rounds, one per row; ``available`` has one row per round, or one for all."""

    contexts: Floats
    rewards: Floats
    available: Mask

    @classmethod
    def of(cls, contexts: Floats, rewards: Floats, available: Mask | None) -> "Game":
        """As `play_user_rounds` is given them."""
        among = np.ones((1, rewards.shape[1]), np.bool_) if available is None else available
        return cls(*map(np.ascontiguousarray, (contexts, rewards, among)))


class Fit(NamedTuple):
    """Every arm's ``m_a`` and ``M_a``; ``inverse`` is that of the shared regression, empty where there is none."""

    arms: Floats  # n q
    means: Floats  # n p
    spreads: Floats  # n p p
    inverse: Floats  # pq pq


class Rule(NamedTuple):
    """``mean + width * sd * factor``; any arm if the round's lot, uniform on [0, 1), is below ``epsilon``.

    ``factors`` has one row per round, or one for all; likewise ``lots``.
    """

    width: float
    factors: Floats
    epsilon: float
    lots: Floats


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _any_of(among: Mask, lot: float) -> int:
    """The offered arm that a lot in [0, 1) falls on."""
    left = int(lot * among.sum())
    for a in range(among.size):
        if among[a]:
            if left == 0:
                return a
            left -= 1
    return -1


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _best_of(fit: Fit, u: Floats, among: Mask, width: float, factors: Floats) -> int:
    """The first of the largest indices."""
    best, arm, p = -np.inf, -1, u.size
    for a in range(among.size):
        if not among[a]:
            continue
        value, square = 0.0, 0.0
        for i in range(p):
            value += u[i] * fit.means[a, i]
            inner = 0.0
            for j in range(p):
                inner += fit.spreads[a, i, j] * u[j]
            square += u[i] * inner
        value += width * factors[a] * np.sqrt(max(square, 0.0))
        if value > best:
            best, arm = value, a
    return arm


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _move(means: Floats, spread: Floats, t: Floats, residual: float, D: float) -> None:
    """One arm's ``m_a`` and ``M_a`` after a reward."""
    for i in range(t.size):
        means[i] += t[i] * residual / D
        for j in range(t.size):
            spread[i, j] -= t[i] * t[j] / D


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _learn_disjoint(fit: Fit, arm: int, u: Floats, reward: float) -> None:
    t = fit.spreads[arm] @ u
    residual = reward - np.dot(u, fit.means[arm])
    _move(fit.means[arm], fit.spreads[arm], t, residual, 1.0 + np.dot(u, t))


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _learn_shared(fit: Fit, arm: int, u: Floats, reward: float) -> None:
    p, q = u.size, fit.arms.shape[1]
    x = np.kron(u, fit.arms[arm])
    g = fit.inverse @ x
    D, residual = 1.0 + np.dot(x, g), reward - np.dot(u, fit.means[arm])
    for i in range(x.size):
        for j in range(x.size):
            fit.inverse[i, j] -= g[i] * g[j] / D
    t = np.empty(p)
    for a in range(len(fit.arms)):
        for i in range(p):
            t[i] = 0.0
            for k in range(q):
                t[i] += g[i * q + k] * fit.arms[a, k]
        _move(fit.means[a], fit.spreads[a], t, residual, D)


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _play(fit: Fit, game: Game, rule: Rule) -> Ints:
    chosen = np.empty(len(game.contexts), np.int64)
    for t in range(chosen.size):
        u, among = game.contexts[t], game.available[min(t, len(game.available) - 1)]
        lot = rule.lots[min(t, rule.lots.size - 1)]
        if lot < rule.epsilon:
            arm = _any_of(among, lot / rule.epsilon)
        else:
            arm = _best_of(fit, u, among, rule.width, rule.factors[min(t, len(rule.factors) - 1)])
        chosen[t] = arm
        if fit.inverse.size:
            _learn_shared(fit, arm, u, game.rewards[t, arm])
        else:
            _learn_disjoint(fit, arm, u, game.rewards[t, arm])
    return chosen


@numba.njit(cache=True, nogil=True, error_model="numpy")
def _play_sampled(arms: Floats, theta: Floats, root: Floats, game: Game, scale: float, normals: Floats) -> Ints:
    """Thompson sampling of one parameter for all arms: ``theta + scale S xi``."""
    p, q = game.contexts.shape[1], arms.shape[1]
    chosen = np.empty(len(game.contexts), np.int64)
    for t in range(chosen.size):
        u, among = game.contexts[t], game.available[min(t, len(game.available) - 1)]
        drawn = theta + scale * (root @ normals[t])
        weights = np.zeros(q)
        for i in range(p):
            for k in range(q):
                weights[k] += u[i] * drawn[i * q + k]
        best, arm = -np.inf, -1
        for a in range(len(arms)):
            if among[a]:
                value = np.dot(weights, arms[a])
                if value > best:
                    best, arm = value, a
        chosen[t] = arm
        x = np.kron(u, arms[arm])
        s = x @ root
        square = np.dot(s, s)
        if square > 0.0:
            g, D = root @ s, 1.0 + square
            theta += g * ((game.rewards[t, arm] - np.dot(x, theta)) / D)
            shrink = (1.0 - 1.0 / np.sqrt(D)) / square
            for i in range(x.size):
                for j in range(x.size):
                    root[i, j] -= shrink * g[i] * s[j]
    return chosen


class _Ridge:
    """A fit with ridge 1 of which every arm's mean and deviation are kept."""

    def __init__(self, arms: Floats, p: int, *, shared: bool) -> None:
        rows = np.ascontiguousarray(arms, dtype=np.float64)
        n, q = rows.shape
        size = p * q if shared else 0
        squares = (rows * rows).sum(axis=1) if shared else np.ones(n)
        self.fit = Fit(rows, np.zeros((n, p)), squares[:, None, None] * np.eye(p), np.eye(size))

    def _rule(self, size: int) -> Rule:
        """The rule of the next ``size`` rounds."""
        raise NotImplementedError

    def play_user_rounds(self, contexts: Floats, rewards: Floats, available: Mask | None) -> Ints:
        """Choose and learn in rounds, one per row."""
        chosen: Ints = _play(self.fit, Game.of(contexts, rewards, available), self._rule(len(rewards)))
        return chosen


class LinUCBForUsers(_Ridge):
    """LinUCB on ``context x arm`` (``shared``), or one LinUCB on the context per arm."""

    def __init__(self, arms: Floats, p: int, *, shared: bool, alpha: float) -> None:
        super().__init__(arms, p, shared=shared)
        self.rule = Rule(float(alpha), np.ones((1, len(arms))), 0.0, np.ones(1))

    def _rule(self, size: int) -> Rule:
        return self.rule


class GreedyForUsers(_Ridge):
    """Epsilon-greedy on one regression for all arms."""

    def __init__(self, arms: Floats, p: int, *, epsilon: float, seed: int) -> None:
        super().__init__(arms, p, shared=True)
        self.epsilon, self.generator = float(epsilon), np.random.default_rng(seed)

    def _rule(self, size: int) -> Rule:
        return Rule(0.0, np.ones((1, len(self.fit.arms))), self.epsilon, self.generator.random(size))


class DisjointLinTSForUsers(_Ridge):
    """Thompson sampling of one parameter per arm: each arm's draw of ``u . theta_a`` is independent of the others'."""

    def __init__(self, arms: Floats, p: int, *, scale: float, seed: int) -> None:
        super().__init__(arms, p, shared=False)
        self.scale, self.generator = float(scale), np.random.default_rng(seed)

    def _rule(self, size: int) -> Rule:
        return Rule(self.scale, self.generator.standard_normal((size, len(self.fit.arms))), 0.0, np.ones(1))


class SharedLinTSForUsers:
    """Thompson sampling of one parameter for all arms, a new draw in every round."""

    def __init__(self, arms: Floats, p: int, *, scale: float, seed: int) -> None:
        self.arms = np.ascontiguousarray(arms, dtype=np.float64)
        self.scale, self.generator = float(scale), np.random.default_rng(seed)
        self.theta, self.root = np.zeros(p * self.arms.shape[1]), np.eye(p * self.arms.shape[1])

    def play_user_rounds(self, contexts: Floats, rewards: Floats, available: Mask | None) -> Ints:
        """Choose and learn in rounds, one per row."""
        game = Game.of(contexts, rewards, available)
        normals = self.generator.standard_normal((len(rewards), self.theta.size))
        chosen: Ints = _play_sampled(self.arms, self.theta, self.root, game, self.scale, normals)
        return chosen
