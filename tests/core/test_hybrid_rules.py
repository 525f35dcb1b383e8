"""Hybrid CS-LB: Thompson draws, forgetting that is found out by watching, copies, files and threads."""

import copy
import math
import pickle
import threading

import numpy as np
import pytest
from conftest import JIT, rounds
from hybrid_tools import (
    ARMS,
    CONTEXTS,
    context_of,
    dense_prediction,
    every_shape,
    memory,
    played,
    row_of,
    rows_of,
    same,
)

from sketchbandits import HybridCSLB
from sketchbandits.policies.hybrid import refit
from sketchbandits.policies.hybrid.choice import noise_of
from sketchbandits.policies.hybrid.sampling import SAMPLES, sample_round, sampled
from sketchbandits.snapshot import leaves

GIVEN = {"noise": 0.5, "ridge": 2.0, "own_share": 0.1}


# ------------------------------------------------------------------------------------------------------------- Thompson
@every_shape
def test_samples_have_the_means_and_covariances_of_the_dense_posterior(shape):
    """Of all arms jointly: correlated within a cluster, independent between clusters."""
    policy = HybridCSLB(ARMS, **shape, explore="ts", **GIVEN)
    chosen, rewards = played(policy, 25)
    state, draws = policy.state, rounds(6_000, 300)
    x = row_of(context_of(policy, 30))
    means, covariance = dense_prediction(state, x, rows_of(policy, 25), chosen, rewards, np.ones(25))
    covariance = 0.25 * covariance  # R^2
    scores = np.empty((draws, 9))
    for i in range(draws):
        sampled(state, x, np.full(9, 0.5), sample_round(i // SAMPLES, 0, i % SAMPLES), scores[i])
    off = np.abs(scores.mean(axis=0) + state.level["centre"][0] - means)
    variances = np.diag(covariance)
    assert (off < 5.0 * np.sqrt(variances / draws)).all()
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / draws)
    assert (np.abs(np.cov(scores.T) - covariance) < 5.0 * error).all()
    apart = state.cluster[:, None] != state.cluster
    assert np.abs(covariance[apart]).max(initial=0.0) < 1e-12
    together = ~apart & ~np.eye(9, dtype=bool)
    assert np.abs(covariance[together]).max() > 0.02 * variances.min()


@every_shape
def test_choices_are_as_frequent_as_their_probabilities(shape):
    policy = HybridCSLB(ARMS, **shape, explore="ts", seed=4)
    played(policy, 30)
    context, draws = context_of(policy, 9), rounds(200, 20)
    for available in (None, [1, 4, 6]):
        expected, seen = np.zeros(9), np.zeros(9)
        for d in range(draws):
            shares = policy.probabilities(context, available=available, decision=d)
            arm = policy.select(context, available=available, decision=d)
            assert shares.sum() == pytest.approx(1.0)
            assert (shares * SAMPLES == np.round(shares * SAMPLES)).all()
            assert shares[arm] > 0.0
            expected += shares / draws
            seen[arm] += 1.0 / draws
        assert np.abs(seen - expected).max() < 4.0 * 0.5 / math.sqrt(draws)
        if available is not None:
            assert expected[[0, 2, 3, 5, 7, 8]].max() == 0.0


def test_the_share_of_samples_is_the_posterior_probability_to_be_best():
    policy = HybridCSLB(ARMS, context_dim=3, explore="ts", **GIVEN)
    chosen, rewards = played(policy, 40)
    means, covariance = dense_prediction(
        policy.state, row_of(CONTEXTS[50]), rows_of(policy, 40), chosen, rewards, np.ones(40)
    )
    draws = np.random.default_rng(0).multivariate_normal(means, 0.25 * covariance, size=40_000)
    best = np.bincount(draws.argmax(axis=1), minlength=9) / 40_000
    decisions = rounds(300, 10)
    shares = np.mean([policy.probabilities(CONTEXTS[50], decision=d) for d in range(decisions)], axis=0)
    assert np.abs(shares - best).max() < 5.0 * 0.5 / math.sqrt(decisions * SAMPLES) + 0.01


@every_shape
def test_the_factor_of_the_shared_precision_is_moved_with_it(shape):
    policy = HybridCSLB(ARMS, **shape, explore="ts")
    for stage in range(3):
        played(policy, 25, seed=stage)
        if stage == 1:
            policy.state.level["due"] = 10**9  # by the recursion alone from here on
        for factor, inverse in zip(policy.state.shared_factor, policy.state.shared_inverse, strict=True):
            assert np.array_equal(factor, np.triu(factor))
            assert np.allclose(inverse @ factor.T @ factor, np.eye(len(factor)), atol=1e-9)
    assert len(HybridCSLB(ARMS, **shape).state.shared_factor) == 0


def test_a_decision_repeats_and_depends_on_its_seed_and_number():
    policies = [HybridCSLB(ARMS, context_dim=3, explore="ts", seed=seed) for seed in (1, 1, 2)]
    for policy in policies:
        played(policy, 25)
    one, same_seed, other = (
        [policy.select(CONTEXTS[7], decision=d) for d in [*range(60), *range(60)]] for policy in policies
    )
    assert one == same_seed
    assert one[:60] == one[60:]
    assert one != other
    assert len(set(one)) > 1
    policy = policies[0]
    before = memory(policy)
    assert policy.select(CONTEXTS[7]) == policy.select(CONTEXTS[7], decision=25)
    assert policy.select(CONTEXTS[7], pending=[3, 3]) == policy.select(CONTEXTS[7], decision=27)
    many = [policy.select(CONTEXTS[7], decision=25 + i) for i in range(6)]
    assert policy.select_many(6, CONTEXTS[7]).tolist() == many
    assert same(before, memory(policy))
    policy.reseed(2)
    assert [policy.select(CONTEXTS[7], decision=d) for d in range(60)] == other[:60]


def test_a_sampled_slate_has_different_arms_and_begins_with_the_choice():
    policy = HybridCSLB(ARMS, context_dim=3, explore="ts")
    played(policy, 25)
    for d in range(30):
        slate = policy.select(CONTEXTS[3], slate=9, decision=d).tolist()
        assert sorted(slate) == list(range(9))
        assert slate[0] == policy.select(CONTEXTS[3], decision=d)
        assert set(policy.select(CONTEXTS[3], slate=2, available=[3, 8], decision=d).tolist()) == {3, 8}
    assert policy.select(CONTEXTS[3], cost=np.where(np.arange(9) == 4, 0.0, 1e6)) == 4
    assert policy.probabilities(CONTEXTS[3], cost=np.where(np.arange(9) == 4, 0.0, 1e6))[4] == 1.0


def test_samples_before_rewards_have_differed_try_the_least_known():
    policy = HybridCSLB(ARMS, context_dim=3, explore="ts")
    seen = set()
    for t in range(20):
        arm = policy.select(CONTEXTS[t])
        assert policy.probabilities(CONTEXTS[t])[arm] == 1.0
        policy.update(arm, 2.0, context=CONTEXTS[t])
        seen.add(arm)
    assert len(seen) >= 4


def test_sampling_finds_the_best_arm():
    means = np.array([0.2, 0.1, 0.3, 0.9, 0.4, 0.5])
    policy = HybridCSLB(6, explore="ts")
    policy.play_rounds(means, means.max() - means, 0.3 * np.random.default_rng(0).normal(size=rounds(500, 60)))
    assert policy.counts.argmax() == 3


@pytest.mark.parametrize(
    ("half_life", "reward"), [(None, (8.0, 0.0)), ("auto", (0.125, 3.0)), (50, (1.0, -40.0)), (None, (0.125, 3.0))]
)
def test_sampled_choices_do_not_depend_on_units(half_life, reward):
    factor, shift = reward
    rng = np.random.default_rng(3)
    theta, size = rng.normal(size=(3, 5)), rounds(80, 40)
    noise = rng.normal(size=size)
    one = HybridCSLB(ARMS, context_dim=3, explore="ts", half_life=half_life)
    other = HybridCSLB(ARMS * 4.0, context_dim=3, explore="ts", half_life=half_life)
    for t in range(size):
        u = CONTEXTS[t]
        arm = one.select(u)
        assert other.select(u * 0.5) == arm
        value = float(u @ theta @ ARMS[arm] + noise[t])
        one.update(arm, value, context=u)
        other.update(arm, factor * value + shift, context=u * 0.5)
    assert other.learned["noise"] == pytest.approx(factor * one.learned["noise"], rel=1e-6)


def test_choices_do_not_depend_on_the_unit_of_very_small_contexts():
    rng = np.random.default_rng(3)
    theta, contexts = rng.normal(size=(3, 5)), CONTEXTS[:120] / np.linalg.norm(CONTEXTS[:120], axis=1, keepdims=True)
    one, other = HybridCSLB(ARMS, context_dim=3), HybridCSLB(ARMS, context_dim=3)
    for u in contexts:
        arm = one.select(u)
        assert other.select(2.0**-30 * u) == arm
        value = float(u @ theta @ ARMS[arm] + 0.3 * rng.normal())
        one.update(arm, value, context=u)
        other.update(arm, value, context=2.0**-30 * u)
    assert one.state.scale[-1] == other.state.scale[-1]


@every_shape
def test_compiled_rounds_of_samples_are_as_single_ones(shape):
    one, other = (HybridCSLB(ARMS, **shape, explore="ts") for _ in range(2))
    rewards = np.random.default_rng(0).normal(size=(40, 9))
    chosen = one.play_user_rounds(CONTEXTS[:40], rewards, None)
    for t in range(40):
        assert other.select(context_of(other, t)) == chosen[t]
        other.update(int(chosen[t]), float(rewards[t, chosen[t]]), context=context_of(other, t))
    assert same(memory(one), memory(other))


# ------------------------------------------------------------------------------------------------------------- watching
def reversal(size, seed, *, turn=None):
    """Rewards of 20 arms whose parameter changes its sign at ``turn``, and the arms."""
    rng = np.random.default_rng(seed)
    arms, theta = rng.normal(size=(20, 3)), rng.normal(size=3)
    sign = np.where(np.arange(size) < (size if turn is None else turn), 1.0, -1.0)
    return arms, sign[:, None] * (arms @ theta) + 0.5 * rng.normal(size=(size, 20))


@pytest.mark.skipif(not JIT, reason="thousands of rounds")
@pytest.mark.parametrize("explore", ["randomised", "ucb", "ts"])
def test_a_world_that_turns_once_is_noticed_and_followed(explore):
    arms, rewards = reversal(5_000, 0, turn=2_500)
    policy, keeps = HybridCSLB(arms, half_life="auto", explore=explore), HybridCSLB(arms, explore=explore)
    chosen = policy.play_user_rounds(np.ones((5_000, 1)), rewards, None)
    kept = keeps.play_user_rounds(np.ones((5_000, 1)), rewards, None)
    assert 1 <= policy.learned["restarts"] <= 4
    late = np.arange(3_500, 5_000)
    assert rewards[late, chosen[late]].mean() > rewards[late, kept[late]].mean() - 0.05
    assert rewards[late, chosen[late]].mean() > rewards[late].mean(axis=0).max() - 0.3


@pytest.mark.parametrize("explore", ["randomised", "ucb", "ts"])
@pytest.mark.parametrize("context_dim", [None, 3])
def test_where_nothing_changes_watching_makes_no_difference(explore, context_dim):
    size = rounds(1_000, 60)
    arms, rewards = reversal(size, 1)
    contexts = np.random.default_rng(0).normal(size=(size, 3))
    if context_dim:
        rewards = rewards + contexts @ np.random.default_rng(3).normal(size=(3, 20))
    given = {"explore": explore, "context_dim": context_dim}
    watched, plain = HybridCSLB(arms, half_life="auto", **given), HybridCSLB(arms, **given)
    assert np.array_equal(
        watched.play_user_rounds(contexts, rewards, None), plain.play_user_rounds(contexts, rewards, None)
    )
    assert watched.learned["restarts"] == 0
    main, alone = (state._replace(choice=plain.state.choice) for state in (watched.state.main, plain.state))
    assert same([array for _, array in leaves(main)], [array for _, array in leaves(alone)])
    assert watched.select(contexts[0] if context_dim else None) == plain.select(contexts[0] if context_dim else None)
    assert "restarts" not in plain.learned


@every_shape
def test_both_copies_are_the_dense_fits(shape):
    policy = HybridCSLB(ARMS, **shape, half_life="auto")
    chosen, rewards, weights = [], [], np.zeros(0)
    rng, rows = np.random.default_rng(0), rows_of(policy, 81)
    fast = policy.state.fast.level[0]
    for t in range(80):
        faded = float(fast["faded"])
        chosen.append(int(rng.integers(0, 9)))
        rewards.append(float(rng.normal() + chosen[-1]))
        policy.update(chosen[-1], rewards[-1], context=context_of(policy, t))
        weights = np.append(weights, 1.0) * 2.0 ** (-(float(fast["faded"]) - faded) / 1_500)
        if t % 20 != 19:
            continue
        for state, by in ((policy.state.main, np.ones(t + 1)), (policy.state.fast, weights)):
            means, covariance = dense_prediction(state, rows[80], rows[: t + 1], chosen, rewards, by)
            u = rows[80] * state.scale
            assert np.allclose(state.level["centre"][0] + state.own @ u, means, rtol=1e-9, atol=1e-9)
            assert np.allclose(np.einsum("i,nij,j->n", u, state.spread, u), np.diag(covariance), rtol=1e-8)
    assert weights[0] < 1.0
    assert policy.counts.sum() == 80


@pytest.mark.parametrize("nth", range(3))
@pytest.mark.parametrize("changed", [0, 1])
def test_an_interrupt_while_copies_are_refitted_loses_nothing(monkeypatch, nth, changed):
    """In the first copy, in the second, and after a change was found."""
    policy, other = (HybridCSLB(ARMS, context_dim=3, half_life="auto") for _ in range(2))
    for one in (policy, other):
        played(one, 7)
        one.state.watch["changed"] = changed
    calls, whole = [], refit.shared_fits

    def interrupted(*given):
        calls.append(1)
        if len(calls) > nth:
            raise KeyboardInterrupt
        return whole(*given)

    monkeypatch.setattr(refit, "shared_fits", interrupted)
    try:
        policy.update(2, 1.0, context=CONTEXTS[0])
    except KeyboardInterrupt:
        assert len(calls) == nth + 1
    else:
        assert nth == 2, "there are two copies"
    monkeypatch.undo()
    other.update(2, 1.0, context=CONTEXTS[0])
    assert np.isfinite(policy.bounds(CONTEXTS[0])).all()
    assert 0 <= policy.select(CONTEXTS[0]) < 9
    for one in (policy, other):
        one.update(3, 0.5, context=CONTEXTS[1])
    assert policy.counts.sum() == other.counts.sum() == 9
    assert policy.learned["restarts"] == other.learned["restarts"] == changed
    assert np.allclose(policy.estimates(CONTEXTS[5]), other.estimates(CONTEXTS[5]), rtol=1e-9)
    assert np.allclose(policy.bounds(CONTEXTS[5]), other.bounds(CONTEXTS[5]), rtol=1e-9)


@every_shape
def test_arms_may_be_added_and_removed_while_watching(shape):
    policy = HybridCSLB(ARMS, **shape, half_life="auto")
    played(policy, 30)
    policy.state.watch["restarts"] = 3
    assert policy.add_arms(ARMS[:2] * 0.5).tolist() == [9, 10]
    policy.remove_arms([0, 10])
    played(policy, 30, seed=5)
    assert policy.learned["restarts"] == 3
    assert [copy_.counts.size for copy_ in (policy.state.main, policy.state.fast)] == [11, 11]
    assert policy.state.fast.active.sum() == 9
    assert policy.select(context_of(policy, 0)) not in (0, 10)


def test_a_single_outlier_is_no_change():
    policy = HybridCSLB(ARMS, half_life="auto")
    played(policy, rounds(300, 120))
    policy.update(0, 1e6)
    policy.update(1, -1e6)
    assert policy.learned["restarts"] == 0


# ----------------------------------------------------------------------------------------------- copies, files, threads
KINDS = {
    "ts": {"explore": "ts"},
    "ts, clusters": {"explore": "ts", "sketch_size": 2},
    "ts, forgetting": {"explore": "ts", "half_life": 30},
    "auto": {"half_life": "auto"},
    "auto, ts": {"half_life": "auto", "explore": "ts"},
    "time": {"half_life": "1h"},
    "time, ts": {"half_life": "5m", "explore": "ts", "sketch_size": 2},
    "time, ucb": {"half_life": "1d", "explore": "ucb"},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@pytest.mark.parametrize(
    ("kind", "context_dim"),
    [*((kind, 3) for kind in KINDS.values()), ({"explore": "ts"}, None), ({"half_life": "auto"}, None)],
)
def test_saved_loaded_copied_and_pickled_it_goes_on_bit_for_bit(kind, context_dim, tmp_path):
    policy = HybridCSLB(ARMS, context_dim=context_dim, **kind, seed=5)
    is_timed = kind.get("half_life") in ("1h", "5m", "1d")
    times = np.random.default_rng(3).uniform(0.0, 300.0, 40) if is_timed else None
    played(policy, 27, times=times)
    policy.remove_arms([3])
    context, at = context_of(policy, 1), 400.0 if is_timed else None
    policy.bounds(context, at=at)
    policy.save(tmp_path / "state.npz")
    others = [
        HybridCSLB.load(tmp_path / "state.npz"),
        policy.copy(),
        pickle.loads(pickle.dumps(policy)),
        copy.deepcopy(policy),
    ]
    for one in (policy, *others):
        played(one, 12, seed=8, times=times)
    for one in others:
        assert same(memory(policy), memory(one))
        assert one.learned == policy.learned
        assert one.settings == policy.settings
        assert np.array_equal(one.bounds(context, at=at), policy.bounds(context, at=at))
        assert [one.select(context, at=at, decision=d) for d in range(9)] == [
            policy.select(context, at=at, decision=d) for d in range(9)
        ]
    before = memory(policy)
    played(others[1], 5, times=times)
    assert same(before, memory(policy))


@pytest.mark.parametrize("value", [np.int64(50), np.uint8(50)])
def test_a_half_life_may_be_an_integer_of_numpy(value, tmp_path):
    policy, plain = HybridCSLB(ARMS, half_life=value), HybridCSLB(ARMS, half_life=50)
    for one in (policy, plain):
        played(one, 5)
    assert type(policy.settings["half_life"]) is int
    assert same(memory(policy), memory(plain))
    policy.save(tmp_path / "state.npz")
    assert same(memory(HybridCSLB.load(tmp_path / "state.npz")), memory(policy))


@every_kind
def test_threads_take_turns_and_no_reward_is_lost(kind):
    policy = HybridCSLB(ARMS, context_dim=3, **kind)
    is_timed = kind.get("half_life") in ("1h", "5m", "1d")
    failed, size = [], rounds(40, 5)

    def work(seed):
        rng = np.random.default_rng(seed)
        try:
            for t in range(size):
                at = float(t) if is_timed else None
                arm = policy.select(CONTEXTS[t], at=at)
                policy.update(int(arm), float(rng.normal()), context=CONTEXTS[t], at=at)
                if t % 10 == seed:
                    policy.bounds(CONTEXTS[t], at=None if at is None else at + 50.0)
                    policy.probabilities(CONTEXTS[t], decision=t)
                    policy.copy()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert policy.counts.sum() == 4 * size
    assert noise_of(policy._main, 0) >= policy.learned["noise"] > 0.0


@pytest.mark.parametrize(
    "name",
    [
        "update_many",
        "update",
        "play_rounds",
    ],
)
def test_rounds_without_moments_are_refused_where_half_lives_are_times(name):
    policy = HybridCSLB(ARMS, half_life="6h")
    calls = {
        "play_rounds": lambda: policy.play_rounds(np.zeros(9), np.zeros(9), np.arange(12.0)),
        "update_many": lambda: policy.update_many([0, 1], [0.0, 1.0]),
        "update": lambda: policy.update(0, 1.0),
    }
    before = memory(policy)
    with pytest.raises(ValueError, match=r"at must|half_life must not be a time"):
        calls[name]()
    assert same(before, memory(policy))
