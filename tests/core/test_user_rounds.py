"""Worlds in which users differ: their rounds, and `simulate` in them."""

import numpy as np
import pytest
from rating_files import write_recbole

from sketchbandits import UCB1, LinUCB, simulate
from sketchbandits.environments import (
    ContextualEnvironment,
    ReplayEnvironment,
    ViewersEnvironment,
    fixed_delay,
    read_movielens,
    rotation,
)

RNG = np.random.default_rng(4)
ARMS, THETA = RNG.normal(size=(7, 3)), RNG.normal(size=(4, 3))


def worlds():
    users = RNG.normal(size=(9, 4))
    logged = np.arange(21) % 7
    return {
        "sphere": ContextualEnvironment(ARMS, THETA, own=RNG.normal(size=(7, 4)), noise=0.5),
        "users": ContextualEnvironment(ARMS, THETA, users=users, rewards="bernoulli", arrivals=[0, 0, 5, 9, 0, 30, 0]),
        "alone": ContextualEnvironment(ARMS, THETA[0], drift=[(8, THETA[1]), (20, THETA[2])]),
        "replay": ReplayEnvironment(ARMS, logged, logged * 1.5),
    }


WORLDS = worlds()


@pytest.mark.parametrize("name", WORLDS)
def test_rounds_are_the_same_in_any_chunks(name):
    env = WORLDS[name]
    whole = env.rounds(np.random.default_rng(1), 0, 40)
    generator = np.random.default_rng(1)
    parts = [env.rounds(generator, first, size) for first, size in ((0, 3), (3, 1), (4, 30), (34, 6))]
    for field, array in zip(whole._fields, whole, strict=True):
        if array is not None:
            assert np.array_equal(array, np.concatenate([getattr(part, field) for part in parts]))
    assert whole.means.shape == whole.rewards.shape == (40, 7)


def test_means_are_bilinear_with_deviations():
    own = RNG.normal(size=(7, 4))
    env = ContextualEnvironment(ARMS, THETA, own=own, noise=0.25)
    rounds = env.rounds(np.random.default_rng(0), 0, 5_000)
    assert np.allclose(np.linalg.norm(rounds.contexts, axis=1), 1.0)
    assert np.abs(rounds.contexts.mean(axis=0)).max() < 0.03
    for t in range(20):
        expected = [rounds.contexts[t] @ (THETA @ ARMS[a] + own[a]) for a in range(7)]
        assert np.allclose(rounds.means[t], expected)
    noise = rounds.rewards - rounds.means
    assert np.allclose(noise, noise[:, :1])  # one draw per round: policies are compared in pairs
    assert noise.std() == pytest.approx(0.25, rel=0.03)


def test_bernoulli_rewards_have_their_means_as_rates():
    users = np.array([[1.0, 0.0], [0.0, 1.0]])
    env = ContextualEnvironment([[1.0], [2.0]], [[0.2], [0.7]], users=users, rewards="bernoulli")
    rounds = env.rounds(np.random.default_rng(0), 0, 20_000)
    assert set(np.unique(rounds.rewards)) == {0.0, 1.0}
    assert np.unique(rounds.means).tolist() == [0.2, 0.4, 0.7, 1.0]  # 1.4 is no rate
    for user in users:
        own = (rounds.contexts == user).all(axis=1)
        assert np.allclose(rounds.rewards[own].mean(axis=0), rounds.means[own][0], atol=0.02)


def test_drift_and_arrivals_come_when_they_are_said_to():
    env = ContextualEnvironment(ARMS, THETA[0], drift=[(8, THETA[1])], arrivals=[0, 8, 0, 0, 0, 0, 0])
    rounds = env.rounds(np.random.default_rng(0), 6, 4)
    assert np.allclose(rounds.means[:2], ARMS @ THETA[0])
    assert np.allclose(rounds.means[2:], ARMS @ THETA[1])
    assert rounds.available[:, 1].tolist() == [False, False, True, True]
    assert rounds.available[:, [0, 2, 3, 4, 5, 6]].all()


@pytest.mark.parametrize("shape", [(3,), (4, 3)])
def test_a_rotation_keeps_the_length_and_ends_where_it_should(shape):
    theta = RNG.normal(size=shape)
    turned = rotation(theta, rounds=1_000, turn=90.0, steps=9, seed=1)
    assert [first for first, _ in turned] == [100 * k for k in range(1, 10)]
    for _, later in turned:
        assert later.shape == shape
        assert np.linalg.norm(later) == pytest.approx(np.linalg.norm(theta))
    assert np.vdot(turned[-1][1], theta) == pytest.approx(0.0, abs=1e-12)
    ContextualEnvironment(ARMS, theta, drift=turned)


def test_viewers_are_offered_some_of_what_they_rated(tmp_path):
    rows = [(user, item, 1 + (user * item) % 5, user + item) for user in range(1, 7) for item in range(1, 13)]
    rows = [row for row in rows if row[0] != 6 or row[1] < 3]  # the last user has rated two
    ratings = read_movielens(write_recbole(tmp_path, rows))
    contexts = np.eye(6)
    env = ViewersEnvironment(ratings, np.arange(12), contexts, offered=4, least=5)
    assert env.users.tolist() == [0, 1, 2, 3, 4]
    rounds = env.rounds(np.random.default_rng(2), 0, 500)
    assert (rounds.available.sum(axis=1) == 4).all()
    assert (rounds.available.mean(axis=0) > 0.2).all()
    for t in range(30):
        user = int(rounds.contexts[t].argmax()) + 1
        for arm in np.flatnonzero(rounds.available[t]):
            rating = 1 + (user * int(ratings.item_ids[arm])) % 5
            low, high = ratings.scale
            assert rounds.rewards[t, arm] == (rating - low) / (high - low)


# ------------------------------------------------------------------------------------------------------------- simulate
class Greedy:
    """The best arm for a context, known beforehand."""

    context_dim = 4

    def __init__(self):
        self.seen = []

    def select(self, context, *, available=None):
        values = ARMS @ THETA.T @ context
        return int(np.where(np.ones(7, bool) if available is None else available, values, -np.inf).argmax())

    def update(self, arm, reward, *, context):
        self.seen.append((arm, reward, tuple(context)))


def test_a_policy_with_contexts_is_given_them_and_one_without_chooses_for_everybody():
    env = ContextualEnvironment(ARMS, THETA, noise=0.1)
    played = {}
    result = simulate(
        env,
        {"knows": Greedy(), "ucb1": UCB1(ARMS), "linucb": LinUCB(ARMS)},
        rounds=60,
        runs=2,
        after=lambda name, run, policy: played.setdefault(name, policy),
    )
    assert np.allclose(result.final_regret["knows"], 0.0)
    assert (result.regret["ucb1"][:, -1] > 0.0).all()
    assert len(played["knows"].seen) == 60
    assert played["ucb1"].counts.sum() == played["linucb"].counts.sum() == 60


def test_only_what_is_available_is_chosen_and_rewards_may_be_late():
    env = ContextualEnvironment(ARMS, THETA, arrivals=[0, 90, 90, 0, 90, 90, 90], noise=0.1)
    played = {}
    simulate(
        env,
        {"knows": Greedy(), "ucb1": UCB1(ARMS)},
        rounds=50,
        delay=fixed_delay(7),
        after=lambda name, run, policy: played.setdefault(name, policy),
    )
    assert set(np.flatnonzero(played["ucb1"].counts)) == {0, 3}
    assert played["ucb1"].counts.sum() == len(played["knows"].seen) == 50 - 7
    assert {arm for arm, _, _ in played["knows"].seen} <= {0, 3}


class Stubborn(Greedy):
    def select(self, context, *, available=None):
        return 1


def test_what_may_not_be_chosen_is_refused():
    env = ContextualEnvironment(ARMS, THETA, arrivals=[0, 90, 0, 0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"selected arm 1, must be one that may be chosen, from 0 to 6"):
        simulate(env, {"stubborn": Stubborn()}, rounds=5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"theta": np.ones((4, 2))}, r"theta must have shape \(4, 3\), got \(4, 2\)"),
        ({"theta": 1.0}, r"theta must be a vector or a matrix of numbers, got 1.0"),
        ({"theta": "abc"}, r"theta must be a vector or a matrix of numbers, got 'abc'"),
        ({"own": np.ones((7, 3))}, r"own must have shape \(7, 4\), got \(7, 3\)"),
        ({"users": np.ones((5, 3))}, r"users must have one column per row of theta, 4, got \(5, 3\)"),
        ({"rewards": "poisson"}, r"rewards must be one of 'gaussian', 'bernoulli', got 'poisson'"),
        ({"drift": [(0, THETA)]}, r"drift must be a whole number >= 1, got 0"),
        ({"drift": [(5, THETA), (5, THETA)]}, r"drift must be a whole number >= 6, got 5"),
        ({"arrivals": np.ones(7)}, r"arrivals must let at least one arm be there from round 0, got 1 as first"),
        ({"noise": -1.0}, r"noise must be a number >= 0"),
    ],
)
def test_bad_worlds_are_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        ContextualEnvironment(ARMS, **{"theta": THETA, **given})


def test_a_policy_for_other_contexts_is_refused():
    policy = Greedy()
    policy.context_dim = 3
    with pytest.raises(ValueError, match=r"policies\['greedy'\] must have context_dim = 4, got 3"):
        simulate(WORLDS["sphere"], {"greedy": policy}, rounds=5)
