"""Shared by the tests of `HybridCSLB`: arms, contexts and schemas, games that are played, and dense twins."""

import math

import naive
import numpy as np
import pytest

from sketchbandits import Features
from sketchbandits.features import Categorical, Numeric
from sketchbandits.snapshot import leaves

ARMS = np.random.default_rng(1).normal(size=(9, 5))
CONTEXTS = np.random.default_rng(2).normal(size=(400, 3))
FEATURES = np.random.default_rng(1).normal(size=(60, 4))  # of arms that come with requests
UNIT = FEATURES / np.linalg.norm(FEATURES, axis=1, keepdims=True)
SHAPES = {
    "contexts": {"context_dim": 3},
    "contexts, clusters": {"context_dim": 3, "sketch_size": 2},
    "alone": {},
    "alone, clusters": {"sketch_size": 2},
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
HOUR = 3_600.0

SCHEMA = Features([Numeric("age", mean=30.0, deviation=10.0), Categorical("country", ["NL", "DE"])])
PEOPLE = [{"age": 20.0 + i, "country": ("NL", "DE")[i % 2]} for i in range(30)]
FILMS = Features([Numeric("year", mean=1990.0, deviation=10.0), Numeric("length", deviation=60.0, missing=True)])
OFFERED = [{"year": 1970.0 + 3 * i, "length": None if i % 4 == 0 else 80.0 + i} for i in range(20)]


def memory(policy):
    """All that a policy remembers."""
    return [*(array.copy() for _, array in leaves(policy.state)), policy.arms.copy(), np.array(repr(policy._slots))]


def same(one, other):
    return all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def context_of(policy, t):
    return None if policy.context_dim is None else CONTEXTS[t % len(CONTEXTS)]


def played(policy, size, seed=0, arms=None, times=None):
    """Rewards for random arms (or ``arms``), recorded one by one; what was recorded."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, policy.n_arms, size) if arms is None else arms
    rewards = rng.normal(size=size) + 0.3 * chosen
    for t, (arm, reward) in enumerate(zip(chosen.tolist(), rewards.tolist(), strict=True)):
        policy.update(arm, reward, context=context_of(policy, t), at=None if times is None else float(times[t]))
    return chosen, rewards


def offered(policy, size, seed=0, ids=7, features=FEATURES, times=None):
    """Rewards for random ids, of arms that come with requests."""
    rng = np.random.default_rng(seed)
    for t in range(size):
        one = int(rng.integers(0, ids))
        at = None if times is None else float(times[t])
        policy.update(
            one, float(rng.normal() + 0.3 * one), context=context_of(policy, t), features=features[one], at=at
        )


def dense_fit(state, contexts, chosen, rewards, weights):
    """The coefficients and their covariance over R^2 of one weighted ridge regression, in the units of ``state``."""
    level = state.level[0]
    twin = naive.Hybrid(state.coordinates, state.cluster, level["ridge"], level["own_ridge"])
    for x, arm, reward, weight in zip(contexts, chosen, rewards, weights, strict=True):
        twin.record(int(arm), x * state.scale, 0.0)
        twin.rewards[-1] = math.sqrt(weight) * (reward - level["centre"])
    F, penalty = twin.design()
    F *= np.sqrt(np.asarray(weights))[:, None]
    inverse = np.linalg.inv(F.T @ F + np.diag(penalty))
    return twin, inverse @ F.T @ np.array(twin.rewards), inverse


def dense_prediction(state, x, contexts, chosen, rewards, weights):
    """All arms' means, and the covariance of their coefficients' predictions over R^2."""
    twin, theta, inverse = dense_fit(state, contexts, chosen, rewards, weights)
    X = np.array([twin.features(arm, x * state.scale) for arm in range(len(twin.z))])
    return state.level["centre"][0] + X @ theta, X @ inverse @ X.T


def rows_of(policy, size):
    """The contexts of `played`, with their constants."""
    return np.array([np.append([] if (u := context_of(policy, t)) is None else u, 1.0) for t in range(size)])


def row_of(context):
    return np.append([] if context is None else context, 1.0)


class Dense:
    """Requests as one ridge regression of all rewards, with own coefficients for every life of every id.

    An id's life ends when it gives up its fit; its coefficients remain in the regression, in the units of that moment.
    """

    def __init__(self, policy, max_arms):
        self.policy, self.max_arms = policy, max_arms
        self.known = {}  # id -> (features, life), the one whose last reward is the oldest first
        self.events = []  # (context with its constant, features, life, reward)
        self.scales = {}  # of lives that are over
        self.lives = 0

    def end(self, one):
        _, life = self.known.pop(one)
        self.scales[life] = self.policy.state.scale.copy()

    def begin(self, one, features):
        """Before the policy records a reward: who has to go is decided in the units of before."""
        if one in self.known:
            if features is None or np.array_equal(features, self.known[one][0]):
                return self.known[one]
            self.end(one)
        elif len(self.known) == self.max_arms:
            self.end(next(iter(self.known)))
        self.lives += 1
        return np.array(features, float), self.lives

    def record(self, one, features, x, reward):
        self.known.pop(one, None)
        self.known[one] = features
        self.events.append((x, *features, reward))

    def row(self, x, features, life):
        state = self.policy._main
        p, r = x.size, state.shared.shape[2]
        z = np.append(features * state.level["unit"][0], state.coordinates[0, -1])
        own = np.zeros((self.lives + 2, p))
        own[life] = x * self.scales.get(life, state.scale)
        assert z.size == r
        return np.concatenate([np.kron(x * state.scale, z), own.ravel()])

    def predict(self, x, ids, features):
        """Estimates and bounds."""
        level = self.policy._main.level[0]
        F = np.array([self.row(*event[:3]) for event in self.events])
        shared = self.policy._main.shared.size
        penalty = np.concatenate(
            [np.full(shared, level["ridge"]), np.full(F.shape[1] - shared, level["own_ridge"])],
        )
        inverse = np.linalg.inv(F.T @ F + np.diag(penalty))
        theta = inverse @ F.T @ (np.array([event[3] for event in self.events]) - level["centre"])
        rows = []
        for one, given_ in zip(ids, features, strict=True):
            known = self.known.get(one)
            life = known[1] if known is not None and np.array_equal(known[0], given_) else self.lives + 1
            rows.append(self.row(x, given_, life))
        X = np.array(rows)
        means = level["centre"] + X @ theta
        return means, means + 2.0 * level["noise"] * np.sqrt(np.einsum("nd,de,ne->n", X, inverse, X))


def x_of(policy, t):
    return np.append([] if policy.context_dim is None else CONTEXTS[t % len(CONTEXTS)], 1.0)
