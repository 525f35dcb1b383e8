"""Baselines whose arms come and go: the same bounds as built at once, and a removed arm stays away."""

import numpy as np
import pytest

from sketchbandits import CBRAP, OFUL, UCB1, LinUCB
from sketchbandits.snapshot import leaves

N, D, FIRST = 23, 7, 15
ARMS = np.random.default_rng(0).normal(size=(N, D))
ARMS /= np.linalg.norm(ARMS, axis=1).max()

MAKERS = {
    "oful": lambda arms: OFUL(arms, arm_norm=1.0),
    "oful-logdet": lambda arms: OFUL(arms, radius="logdet", ridge=0.4),
    "oful-rare": lambda arms: OFUL(arms, switching=0.5, arm_norm=1.0),
    "oful-capped": lambda arms: OFUL(arms, radius="mixture", cap=True, theta_norm=0.5),
    "oful-function": lambda arms: OFUL(arms, radius=lambda n, logdet: 1.0 + 0.1 * logdet),
    "linucb": lambda arms: LinUCB(arms, alpha=0.7),
    "ucb1": lambda arms: UCB1(arms),
}


def book(policies, n_arms, count, seed):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        arm, reward = int(generator.integers(n_arms)), float(generator.normal())
        for policy in policies:
            policy.update(arm, reward)


@pytest.fixture(params=MAKERS)
def make(request):
    return MAKERS[request.param]


def test_grown_arm_by_arm_is_as_built_at_once(make):
    whole, grown = make(ARMS), make(ARMS[:FIRST])
    book([whole, grown], FIRST, 120, seed=1)
    assert grown.add_arms(ARMS[FIRST : FIRST + 1]).tolist() == [FIRST]
    assert grown.add_arms(ARMS[FIRST + 1 :]).tolist() == list(range(FIRST + 1, N))
    np.testing.assert_allclose(grown.bounds(), whole.bounds(), rtol=1e-9)
    book([whole, grown], N, 150, seed=2)
    np.testing.assert_allclose(grown.bounds(), whole.bounds(), rtol=1e-9)
    assert np.array_equal(grown.arms, ARMS) and np.array_equal(grown.counts, whole.counts)


def test_a_removed_arm_is_never_chosen_and_still_teaches(make):
    policy, twin = make(ARMS), make(ARMS)
    book([policy, twin], N, 60, seed=3)
    gone = []
    for _ in range(4):
        gone.append(policy.select())
        policy.remove_arms(gone[-1:])
        for _ in range(5):
            assert policy.select() not in gone
            book([policy, twin], N, 1, seed=len(gone))
    assert not set(policy.select_many(40).tolist()) & set(gone)
    assert not policy.active[gone].any() and policy.active.sum() == N - len(gone)
    np.testing.assert_allclose(policy.bounds(), twin.bounds(), rtol=1e-9)


def test_refused_calls_change_nothing(make):
    policy = make(ARMS)
    policy.remove_arms([2])
    before = {name: array.copy() for name, array in leaves(policy.state)}
    for call, word in (
        (lambda: policy.add_arms(ARMS[:, :-1]), "arms"),
        (lambda: policy.add_arms(np.full((1, D), np.nan)), "arms"),
        (lambda: policy.remove_arms([N]), "ids"),
        (lambda: policy.remove_arms([0.5]), "ids"),
        (lambda: policy.remove_arms(np.arange(N)), "ids must leave"),
    ):
        with pytest.raises(ValueError, match=word):
            call()
    assert all(np.array_equal(before[name], array) for name, array in leaves(policy.state)) and policy.n_arms == N


def test_the_closed_radius_knows_how_long_arms_may_be():
    with pytest.raises(ValueError, match="arm_norm = 1"):
        OFUL(ARMS, arm_norm=1.0).add_arms(2.0 * ARMS[:1] / np.linalg.norm(ARMS[0]))


def test_saved_and_loaded_between(tmp_path):
    policy = UCB1(ARMS[:FIRST])
    policy.add_arms(ARMS[FIRST:])
    policy.remove_arms([policy.select()])
    policy.save(tmp_path / "policy.npz")
    again = UCB1.load(tmp_path / "policy.npz")
    assert again.select() == policy.select() and np.array_equal(again.active, policy.active)


def test_policies_without_it_say_nothing_of_it():
    assert not hasattr(CBRAP, "add_arms")
