"""The yardsticks of `benchmarks/practice.py` choose what regressions solved anew in every round choose."""

import numpy as np
import pytest
import scipy

from suite.linear_rivals import DisjointLinTSForUsers, GreedyForUsers, LinUCBForUsers, SharedLinTSForUsers

N, Q, ROUNDS, SEED = 6, 3, 80, 5


def game(p, subset):
    rng = np.random.default_rng(p)
    contexts = np.ones((ROUNDS, 1)) if p == 1 else rng.normal(size=(ROUNDS, p))
    arms, rewards, available = rng.normal(size=(N, Q)), rng.normal(size=(ROUNDS, N)), None
    if subset:
        available = rng.random((ROUNDS, N)) < 0.6
        available[:, 2] = True
    return arms, contexts, rewards, available


class Slow:
    """One ridge regression, solved anew for every question; Thompson sampling's root of its inverse by `eigh`."""

    def __init__(self, size):
        self.size, self.rows, self.rewards, self.root = size, [], [], np.eye(size)

    def learn(self, x, reward):
        self.rows.append(x)
        self.rewards.append(reward)
        s = self.root.T @ x
        values, vectors = scipy.linalg.eigh(np.eye(self.size) + np.outer(s, s))
        self.root = self.root @ (vectors / np.sqrt(values)) @ vectors.T

    def fit(self):
        X = np.reshape(self.rows, (-1, self.size))
        inverse = np.linalg.inv(np.eye(self.size) + X.T @ X)
        return inverse @ X.T @ np.array(self.rewards), inverse


def slowly(arms, contexts, rewards, available, shared, scores):
    """Play with ``scores(t, fits, features)`` of all arms; ``fits`` and ``features`` have one entry per arm."""
    p = contexts.shape[1]
    fits = [Slow(p * Q)] * N if shared else [Slow(p) for _ in range(N)]
    chosen = []
    for t, u in enumerate(contexts):
        features = [np.kron(u, arm) if shared else u for arm in arms]
        among = np.ones(N, bool) if available is None else available[t]
        chosen.append(int(np.where(among, scores(t, fits, features, among), -np.inf).argmax()))
        fits[chosen[-1]].learn(features[chosen[-1]], rewards[t, chosen[-1]])
    return chosen


def bounds(fits, features, widths):
    found = []
    for fit, x, width in zip(fits, features, widths, strict=True):
        theta, inverse = fit.fit()
        found.append(x @ theta + width * np.sqrt(x @ inverse @ x))
    return np.array(found)


def in_two_pieces(policy, contexts, rewards, available):
    chosen = []
    for half in (slice(0, 30), slice(30, None)):
        among = None if available is None else available[half]
        chosen += policy.play_user_rounds(contexts[half], rewards[half], among).tolist()
    return chosen


@pytest.mark.parametrize("subset", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("p", [1, 2])
def test_linucb(p, shared, subset):
    arms, contexts, rewards, available = game(p, subset)
    found = LinUCBForUsers(arms, p, shared=shared, alpha=0.7)
    expected = slowly(
        *(arms, contexts, rewards, available, shared), lambda t, fits, xs, among: bounds(fits, xs, np.full(N, 0.7))
    )
    assert in_two_pieces(found, contexts, rewards, available) == expected
    assert len(set(expected)) > 2


@pytest.mark.parametrize("subset", [False, True])
@pytest.mark.parametrize("p", [1, 2])
def test_disjoint_lints_draws_for_each_arm(p, subset):
    arms, contexts, rewards, available = game(p, subset)
    found = DisjointLinTSForUsers(arms, p, scale=0.4, seed=SEED)
    draws = 0.4 * np.random.default_rng(SEED).standard_normal((ROUNDS, N))
    expected = slowly(
        *(arms, contexts, rewards, available, False), lambda t, fits, xs, among: bounds(fits, xs, draws[t])
    )
    assert in_two_pieces(found, contexts, rewards, available) == expected
    assert len(set(expected)) > 2


@pytest.mark.parametrize("subset", [False, True])
@pytest.mark.parametrize("p", [1, 2])
def test_shared_lints_draws_one_parameter(p, subset):
    arms, contexts, rewards, available = game(p, subset)
    found = SharedLinTSForUsers(arms, p, scale=0.4, seed=SEED)
    draws = np.random.default_rng(SEED).standard_normal((ROUNDS, p * Q))
    last = []

    def scores(t, fits, features, among):
        last[:] = fits[:1]
        theta, inverse = fits[0].fit()
        assert fits[0].root @ fits[0].root.T == pytest.approx(inverse, abs=1e-12)
        return np.array(features) @ (theta + 0.4 * fits[0].root @ draws[t])

    expected = slowly(arms, contexts, rewards, available, True, scores)
    assert in_two_pieces(found, contexts, rewards, available) == expected
    assert len(set(expected)) > 2
    theta, inverse = last[0].fit()
    assert found.theta == pytest.approx(theta, abs=1e-12)
    assert found.root @ found.root.T == pytest.approx(inverse, abs=1e-12)


@pytest.mark.parametrize("subset", [False, True])
@pytest.mark.parametrize("p", [1, 2])
def test_epsilon_greedy(p, subset):
    arms, contexts, rewards, available = game(p, subset)
    found = GreedyForUsers(arms, p, epsilon=0.3, seed=SEED)
    lots = np.random.default_rng(SEED).random(ROUNDS)

    def scores(t, fits, features, among):
        if lots[t] >= 0.3:
            return np.array(features) @ fits[0].fit()[0]
        offered = np.flatnonzero(among)
        return np.eye(N)[offered[int(lots[t] / 0.3 * offered.size)]]

    expected = slowly(arms, contexts, rewards, available, True, scores)
    assert in_two_pieces(found, contexts, rewards, available) == expected
    assert len(set(expected)) > 2


def test_a_shared_fit_stays_exact_for_long():
    """Ten thousand rank-one moves: every arm's mean and deviation are still those of the regression."""
    rng = np.random.default_rng(1)
    arms, contexts, rewards = rng.normal(size=(N, Q)), rng.normal(size=(10_000, 2)), rng.normal(size=(10_000, N))
    policy = LinUCBForUsers(arms, 2, shared=True, alpha=0.5)
    chosen = policy.play_user_rounds(contexts, rewards, None)
    X = np.array([np.kron(u, arms[a]) for u, a in zip(contexts, chosen, strict=True)])
    inverse = np.linalg.inv(np.eye(2 * Q) + X.T @ X)
    theta = inverse @ X.T @ rewards[np.arange(10_000), chosen]
    for a in range(N):
        rows = np.array([np.kron(e, arms[a]) for e in np.eye(2)])
        assert policy.fit.means[a] == pytest.approx(rows @ theta, abs=1e-11)
        assert policy.fit.spreads[a] == pytest.approx(rows @ inverse @ rows.T, abs=1e-13)
