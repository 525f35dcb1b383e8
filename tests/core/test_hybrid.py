"""Hybrid CS-LB: exact fits, what it learns, units, propensities, arms that change, files, refusals."""

import math
import tracemalloc

import naive
import numpy as np
import pytest
from conftest import rounds
from hybrid_tools import ARMS, CONTEXTS, context_of, every_shape, memory, played, same

from sketchbandits import UCB1, HybridCSLB, simulate
from sketchbandits.environments import ContextualEnvironment
from sketchbandits.policies.hybrid import learning, refit
from sketchbandits.policies.hybrid.choice import noise_of
from sketchbandits.policies.hybrid.envelope import interval_probabilities, upper_envelope
from sketchbandits.policies.hybrid.statistics import units_of


def scaled(policy, t):
    context = context_of(policy, t)
    return np.append([] if context is None else context, 1.0) * policy.state.scale


def twin_of(policy, chosen, rewards):
    level = policy.state.level[0]
    twin = naive.Hybrid(policy.state.coordinates, policy.state.cluster, level["ridge"], level["own_ridge"])
    for t, (arm, reward) in enumerate(zip(chosen, rewards, strict=True)):
        twin.record(arm, scaled(policy, t), reward)
    return twin


# ------------------------------------------------------------------------------------------------------------ exactness
@every_shape
@pytest.mark.parametrize("size", [1, 6, 70])
def test_means_and_widths_are_those_of_the_dense_fit(shape, size):
    policy = HybridCSLB(ARMS, **shape)
    chosen, rewards = played(policy, size)
    level = policy.state.level[0]
    twin = twin_of(policy, chosen, rewards)
    means, widths = twin.predict(scaled(policy, size), float(level["centre"]))
    context = context_of(policy, size)
    assert np.allclose(policy.estimates(context), means, rtol=1e-9, atol=1e-9)
    noise = np.array([noise_of(policy.state, arm) for arm in range(9)])
    assert np.allclose(policy.bounds(context), means + 2.0 * noise * widths, rtol=1e-9, atol=1e-9)
    assert (noise >= level["noise"]).all()


@every_shape
def test_a_refit_gives_what_the_recursion_gave(shape):
    policy = HybridCSLB(ARMS, **shape)
    played(policy, 60)
    policy.state.level["due"] = 10**9
    played(policy, 300, seed=3)
    before = [getattr(policy.state, name).copy() for name in ("own", "spread", "inverse", "shared", "shared_inverse")]
    scale, level = policy.state.scale.copy(), policy.state.level[0].copy()
    units = units_of(policy.state.factors)._replace(scale=scale)
    refit.fit(policy.state, units, float(level["centre"]) - units.mean)
    for name, old in zip(("own", "spread", "inverse", "shared", "shared_inverse"), before, strict=True):
        assert np.allclose(getattr(policy.state, name), old, rtol=1e-9, atol=1e-11)


@every_shape
def test_the_evidence_is_that_of_all_rewards_together(shape):
    policy = HybridCSLB(ARMS, **shape)
    chosen, rewards = played(policy, 45)
    state = policy.state
    units = units_of(state.factors)._replace(scale=state.scale.copy())
    constants = (float(state.scale[-1]), float(state.coordinates[0, -1]) if state.level["constant"][0] else 1.0)
    found = []
    for ridge, own in [(1.0, 10.0), (30.0, 2.0), (0.2, 400.0)]:
        question = learning.Question(state, units, math.nan, ridge, math.nan)
        answer = question.answer(constants, np.array([own]))
        prior = sum(
            -0.5 * ((math.log(value) - mean) / deviation) ** 2
            for value, (mean, deviation) in [(ridge, learning.RIDGE_PRIOR), (own, learning.OWN_PRIOR)]
        )
        twin = twin_of(policy, chosen, rewards)
        twin.ridge, twin.own_ridge = ridge, own
        value, centre, noise = twin.evidence(learning.prior_weight(len(rewards)))
        assert units.mean + answer.shift == pytest.approx(centre, rel=1e-9)
        assert answer.noise == pytest.approx(noise, rel=1e-9)
        found.append((answer.evidence - prior, value))
    (a, b), *others = found
    for c, d in others:
        assert c - a == pytest.approx(d - b, abs=1e-8)


@every_shape
def test_the_order_of_rewards_does_not_matter(shape):
    one, other = HybridCSLB(ARMS, **shape), HybridCSLB(ARMS, **shape)
    rng = np.random.default_rng(5)
    arms, rewards = rng.integers(0, 9, 50), rng.normal(size=50)
    for order, policy in ((np.arange(50), one), (rng.permutation(50), other)):
        for t in order.tolist():
            policy.update(int(arms[t]), float(rewards[t]), context=context_of(policy, t))
    context = context_of(one, 7)
    one.add_arms(ARMS[:1])  # both refit with all rewards
    other.add_arms(ARMS[:1])
    assert np.allclose(one.estimates(context), other.estimates(context), rtol=1e-9, atol=1e-9)


# ------------------------------------------------------------------------------------------------------------- learning
@pytest.mark.parametrize("explore", ["randomised", "ucb"])
@pytest.mark.parametrize("reward", [(8.0, 0.0), (0.125, 3.0), (1.0, -40.0)])
def test_choices_do_not_depend_on_units(explore, reward):
    factor, shift = reward
    rng = np.random.default_rng(3)
    theta, noise = rng.normal(size=(3, 5)), rng.normal(size=300)
    one = HybridCSLB(ARMS, context_dim=3, explore=explore)
    other = HybridCSLB(ARMS * 4.0, context_dim=3, explore=explore)
    for t in range(rounds(150, 60)):
        u = CONTEXTS[t]
        arm = one.select(u)
        assert other.select(u * 0.5) == arm
        value = float(u @ theta @ ARMS[arm] + noise[t])
        one.update(arm, value, context=u)
        other.update(arm, factor * value + shift, context=u * 0.5)
    assert other.learned["noise"] == pytest.approx(factor * one.learned["noise"], rel=1e-6)
    assert other.learned["ridge"] == pytest.approx(one.learned["ridge"])


def test_noise_and_shares_are_learned():
    rng = np.random.default_rng(0)
    arms, theta = rng.normal(size=(40, 3)), rng.normal(size=3)
    for own, low, high in ((0.0, 0.0, 0.03), (2.0, 0.25, 1.0)):
        policy, deviations = HybridCSLB(arms), own * rng.normal(size=40)
        for arm in rng.integers(0, 40, 1_500).tolist():
            policy.update(arm, float(arms[arm] @ theta + deviations[arm] + 0.5 * rng.normal()))
        assert policy.learned["noise"] == pytest.approx(0.5, rel=0.1)
        assert low <= policy.learned["own_share"] <= high


def test_what_is_given_is_held():
    policy = HybridCSLB(ARMS, context_dim=3, noise=0.7, ridge=5.0, own_share=0.2)
    played(policy, 50)
    assert policy.learned == {"noise": 0.7, "ridge": 5.0, "own_share": pytest.approx(0.2)}
    policy = HybridCSLB(ARMS, own_share=0.25)
    played(policy, 50)
    assert policy.learned["own_share"] == pytest.approx(0.25)


@pytest.mark.parametrize("explore", ["randomised", "ucb"])
def test_it_finds_the_right_arm_for_each_user(explore):
    rng = np.random.default_rng(4)
    arms, theta = rng.normal(size=(30, 4)), rng.normal(size=(3, 4))
    env = ContextualEnvironment(arms, theta, own=0.3 * rng.normal(size=(30, 3)), noise=0.3)
    result = simulate(
        env,
        {"hybrid": HybridCSLB(arms, context_dim=3, explore=explore), "ucb1": UCB1(arms, noise=5.0)},
        rounds=1_000,
        runs=2,
        seed=3,
    )
    regret = result.final_regret
    assert regret["hybrid"].max() < 0.15 * regret["ucb1"].min()


def test_features_that_say_nothing_do_not_mislead():
    """Every arm is on its own: the shared part must not hide the best one."""
    rng = np.random.default_rng(6)
    arms, means = rng.normal(size=(20, 6)), rng.normal(size=20)
    policy = HybridCSLB(arms)
    policy.play_rounds(means, means.max() - means, 0.3 * rng.normal(size=1_000))
    assert policy.counts.argmax() == means.argmax()
    assert policy.counts.max() > 700


def test_what_is_old_counts_less():
    """The fit is that of rewards with weights that halve with every half-life."""
    policy = HybridCSLB(ARMS, context_dim=3, half_life=40, noise=1.0, ridge=2.0, own_share=0.1)
    chosen, rewards = played(policy, 200)
    policy.add_arms(ARMS[:1])  # refits
    level = policy.state.level[0]
    assert level["faded"] == 200
    # A reward fades with the first refit after it, by all that was recorded since the refit before: at most 2 here.
    weights = 2.0 ** (-(199.5 - np.arange(200)) / 40)
    u = np.array([scaled(policy, t) for t in range(201)])
    design = [
        np.concatenate([np.kron(u[t], policy.state.coordinates[a]), np.kron(np.eye(10)[a], u[t])])
        for t, a in enumerate(chosen)
    ]
    F, y = np.array(design), rewards - level["centre"]
    shared = policy.state.shared.size
    penalty = np.concatenate([np.full(shared, 2.0), np.full(F.shape[1] - shared, float(level["own_ridge"]))])
    theta = np.linalg.solve((F.T * weights) @ F + np.diag(penalty), (F.T * weights) @ y)
    own = theta[shared:].reshape(10, 4)
    expected = [
        level["centre"] + u[200] @ (theta[:shared].reshape(4, -1) @ z + w)
        for z, w in zip(policy.state.coordinates, own, strict=True)
    ]
    assert np.allclose(policy.estimates(CONTEXTS[200]), expected, atol=0.02)
    keeps = HybridCSLB(ARMS, context_dim=3, noise=1.0, ridge=2.0, own_share=0.1)
    played(keeps, 200)
    assert np.abs(policy.estimates(CONTEXTS[200])[:9] - keeps.estimates(CONTEXTS[200])).max() > 0.1


def test_forgetting_follows_a_world_that_turns():
    rng = np.random.default_rng(2)
    arms = rng.normal(size=(20, 3))
    theta = rng.normal(size=3)
    env = ContextualEnvironment(arms, theta, noise=0.5, drift=[(1_500, -theta)])
    result = simulate(
        env, {"forgets": HybridCSLB(arms, half_life=200), "keeps": HybridCSLB(arms)}, rounds=3_000, runs=2, seed=1
    )
    late = {name: curves[:, -1] - curves[:, len(result.checkpoints) // 2] for name, curves in result.regret.items()}
    assert late["forgets"].max() < 0.5 * late["keeps"].min()


# --------------------------------------------------------------------------------------------------------- propensities
@every_shape
def test_propensities_are_the_frequencies_of_choices(shape):
    policy = HybridCSLB(ARMS, **shape, seed=3)
    played(policy, 30)
    context, draws = context_of(policy, 9), 2_000
    for available in (None, [1, 4, 6]):
        expected = policy.probabilities(context, available=available)
        assert expected.sum() == pytest.approx(1.0)
        chosen = [policy.select(context, available=available, decision=i) for i in range(draws)]
        seen = np.bincount(chosen, minlength=9) / draws
        assert (expected[np.unique(chosen)] > 0.0).all()
        assert np.abs(seen - expected).max() < 4.0 * 0.5 / math.sqrt(draws)


def test_lines_that_differ_by_rounding_errors_are_one():
    """Of nearly equal arms the first has the whole probability, and is the only one that is chosen."""
    arms = np.repeat(ARMS[:3], 3, axis=0)
    arms[1::3] *= 1.0 + 1e-15
    policy = HybridCSLB(arms, noise=1.0, ridge=1.0, own_share=1e-9)
    policy.update(2, 1.0)
    policy.update(5, 0.5)
    expected = policy.probabilities()
    chosen = {policy.select(decision=i) for i in range(500)}
    assert (expected[list(chosen)] > 0.0).all()
    assert (expected[[1, 4, 7, 8]] == 0.0).all()


def test_the_envelope_is_that_of_a_fine_grid():
    rng = np.random.default_rng(0)
    for trial in range(60):
        n = int(rng.integers(1, 12))
        means, widths = rng.integers(-3, 4, n) / 2.0, rng.integers(0, 4, n) / 2.0  # ties and zero widths
        if trial % 3 == 0:
            means, widths = rng.normal(size=n), np.abs(rng.normal(size=n))
        among = rng.random(n) < 0.8
        among[int(rng.integers(n))] = True
        kept, starts = upper_envelope(means, widths, among)
        assert starts[0] == 0.0
        assert all(np.diff(starts) > 0.0)
        for zeta in rng.exponential(2.0, 200):
            owner = kept[int(np.searchsorted(starts, zeta, side="right")) - 1]
            values = np.where(among, means + zeta * widths, -np.inf)
            assert values[owner] == pytest.approx(values.max(), abs=1e-12)
        assert interval_probabilities(means, widths, 0.3, 1.2, among).sum() == pytest.approx(1.0)


# ------------------------------------------------------------------------------------------------------------ decisions
def test_a_slate_has_different_arms_and_begins_with_the_choice():
    policy = HybridCSLB(ARMS, context_dim=3, seed=1)
    played(policy, 40)
    u = CONTEXTS[5]
    slate = policy.select(u, slate=4)
    assert len(set(slate.tolist())) == 4
    assert slate[0] == policy.select(u)
    assert policy.select(u, slate=2, available=[3, 8]).tolist() in ([3, 8], [8, 3])
    assert sorted(policy.select(u, slate=9).tolist()) == list(range(9))
    assert np.array_equal(policy.select_many(3, u), [policy.select(u, pending=[0] * i) for i in range(3)])


def test_a_price_is_subtracted():
    policy = HybridCSLB(ARMS, context_dim=3, explore="ucb")
    played(policy, 60)
    u = CONTEXTS[5]
    best = policy.select(u)
    assert policy.select(u, cost=np.where(np.arange(9) == best, 100.0, 0.0)) != best
    assert policy.select(u, cost=np.full(9, 7.0)) == best
    assert policy.probabilities(u)[best] == 1.0


def test_before_rewards_differ_the_least_known_arms_are_tried_in_turn():
    policy = HybridCSLB(ARMS, context_dim=3)
    seen = []
    for t in range(40):
        seen.append(policy.select(CONTEXTS[t]))
        policy.update(seen[-1], 0.0, context=CONTEXTS[t])
    assert len(set(seen)) >= 4
    assert (policy.estimates(CONTEXTS[0]) == 0.0).all()
    assert policy.learned["noise"] == 0.0


def test_a_number_means_so_many_arms_without_features():
    policy = HybridCSLB(6, seed=2)
    means = np.array([0.1, 0.5, 0.3, 0.9, 0.2, 0.4])
    policy.play_rounds(means, means.max() - means, 0.1 * np.random.default_rng(0).normal(size=800))
    assert policy.counts.argmax() == 3
    assert policy.add_arms(2).tolist() == [6, 7]
    assert policy.n_arms == 8


# ---------------------------------------------------------------------------------------------- batches, arms and files
@every_shape
def test_batches_are_as_single_rewards(shape):
    one, other = HybridCSLB(ARMS, **shape), HybridCSLB(ARMS, **shape)
    chosen, rewards = played(one, 50)
    contexts = None if one.context_dim is None else CONTEXTS[:50]
    other.update_many(chosen, rewards, contexts=contexts)
    assert same(memory(one), memory(other))


@every_shape
def test_compiled_rounds_are_as_single_ones(shape):
    one, other = HybridCSLB(ARMS, **shape), HybridCSLB(ARMS, **shape)
    rng = np.random.default_rng(0)
    rewards, available = rng.normal(size=(60, 9)), rng.random((60, 9)) < 0.6
    available[:, 2] = True
    for policy in (one, other):
        policy.remove_arms([4])
    chosen = one.play_user_rounds(CONTEXTS[:60], rewards, available)
    for t in range(60):
        context = context_of(other, t)
        assert other.select(context, available=available[t]) == chosen[t]
        other.update(int(chosen[t]), float(rewards[t, chosen[t]]), context=context)
    assert same(memory(one), memory(other))
    assert 4 not in chosen


@every_shape
def test_arms_added_later_are_as_those_known_from_the_start(shape):
    given = {**shape, "noise": 1.0, "ridge": 2.0, "own_share": 0.1}
    grown, whole = HybridCSLB(ARMS[:4, :], **given), HybridCSLB(ARMS, **given)
    played(grown, 30, arms=np.arange(30) % 4)
    played(whole, 30, arms=np.arange(30) % 4)
    assert grown.add_arms(ARMS[4:]).tolist() == [4, 5, 6, 7, 8]
    whole.add_arms(ARMS[:1])
    grown.add_arms(ARMS[:1])
    context = context_of(grown, 3)
    assert np.allclose(grown.estimates(context), whole.estimates(context), rtol=1e-9)
    assert np.allclose(grown.bounds(context), whole.bounds(context), rtol=1e-9)


def test_removed_arms_are_not_chosen_and_go_on_teaching():
    policy = HybridCSLB(ARMS, context_dim=3)
    played(policy, 60)
    before = policy.estimates(CONTEXTS[0])
    policy.remove_arms([0, 7])
    assert np.array_equal(policy.estimates(CONTEXTS[0]), before)
    assert policy.probabilities(CONTEXTS[0])[[0, 7]].tolist() == [0.0, 0.0]
    assert not {0, 7} & {policy.select(CONTEXTS[0], decision=i) for i in range(200)}
    assert policy.active.sum() == 7


@every_shape
def test_saved_loaded_and_copied_it_goes_on_bit_for_bit(shape, tmp_path):
    policy = HybridCSLB(ARMS, **shape)
    played(policy, 37)
    policy.remove_arms([3])
    policy.save(tmp_path / "state.npz")
    loaded, copied = HybridCSLB.load(tmp_path / "state.npz"), policy.copy()
    for one in (policy, loaded, copied):
        played(one, 60, seed=8)
    assert same(memory(policy), memory(loaded))
    assert same(memory(policy), memory(copied))
    context = context_of(policy, 1)
    assert policy.select(context) == loaded.select(context) == copied.select(context)


def test_a_file_with_other_clusters_is_refused(tmp_path):
    policy = HybridCSLB(ARMS, sketch_size=2)
    policy.state.starts[-1] -= 1
    policy.save(tmp_path / "state.npz")
    with pytest.raises(ValueError, match=r"path must hold a whole state, got one with other clusters"):
        HybridCSLB.load(tmp_path / "state.npz")


# ------------------------------------------------------------------------------------------------------------- extremes
@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8])
def test_scales_far_from_one_leave_finite_numbers(size):
    policy = HybridCSLB(ARMS * size, context_dim=3)
    rng = np.random.default_rng(0)
    for t in range(200):
        u = CONTEXTS[t] / size
        arm = policy.select(u)
        policy.update(arm, float(size * rng.normal()), context=u)
    assert np.isfinite(policy.bounds(CONTEXTS[0] / size)).all()
    assert 0.5 * size < policy.learned["noise"] < 2.0 * size


@pytest.mark.parametrize("arms", [np.zeros((4, 3)), np.ones((1, 1)), np.ones((5, 2)), np.eye(3)[[0, 0, 1, 1]]])
@pytest.mark.parametrize("context_dim", [None, 2])
def test_degenerate_arms_and_contexts_are_played(arms, context_dim):
    policy = HybridCSLB(arms, context_dim=context_dim)
    for t in range(30):
        context = None if context_dim is None else np.zeros(2)
        arm = policy.select(context)
        assert 0 <= arm < len(arms)
        policy.update(arm, float(t % 3), context=context)
        assert np.isfinite(policy.bounds(context)).all()


@pytest.mark.parametrize(("explore", "rate"), [("randomised", 0.5), ("randomised", 0.6), ("ucb", 0.5)])
def test_an_arm_that_always_pays_the_same_seldom_hides_a_better_one(explore, rate):
    """Its rewards say that there is no noise; the other's first ones, by bad luck 0, must not be taken for certain."""
    size, stuck = rounds(2_000, 300), 0
    for seed in range(rounds(8, 1)):
        rng = np.random.default_rng(seed)
        rewards = np.column_stack([np.full(size, 0.3), rng.random(size) < rate]).astype(float)
        policy = HybridCSLB(2, seed=seed, explore=explore)
        policy.play_user_rounds(np.ones((size, 1)), rewards, None)
        stuck += policy.counts[1] < size // 20
    assert stuck <= 1  # with the noise of all rewards alone half of the runs were


def test_given_values_are_held_whatever_the_rewards():
    policy = HybridCSLB(3, noise=1e-60)
    for t in range(20):
        policy.update(t % 3, 1e95 * (t % 2))
    assert policy.learned["noise"] == 1e-60
    assert np.isfinite(policy.bounds()).all()


def test_an_interrupt_in_a_refit_leaves_the_fit_that_there_was(monkeypatch):
    policy = HybridCSLB(ARMS, context_dim=3)
    played(policy, 7)
    before = policy.estimates(CONTEXTS[0])

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(refit, "shared_fits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        policy.update(2, 1.0, context=CONTEXTS[0])
    monkeypatch.undo()
    assert np.abs(policy.estimates(CONTEXTS[0]) - before).max() < 1.0  # one reward more, by the recursion
    policy.update(3, 0.5, context=CONTEXTS[1])
    assert policy.counts.sum() == 9
    other = HybridCSLB(ARMS, context_dim=3)
    played(other, 7)
    other.update(2, 1.0, context=CONTEXTS[0])
    other.update(3, 0.5, context=CONTEXTS[1])
    assert np.allclose(policy.estimates(CONTEXTS[5]), other.estimates(CONTEXTS[5]), rtol=1e-9)


def test_prices_count_before_rewards_have_differed_and_never_hide_what_arms_differ_by():
    policy = HybridCSLB(5)
    for arm in range(5):
        policy.update(arm, 1.0)
    for decision in range(20):
        assert policy.select(cost=[1e6, 0.0, 0.0, 0.0, 0.0], decision=decision) != 0
    assert policy.probabilities(cost=[1e6, 0.0, 0.0, 0.0, 0.0])[0] == 0.0
    means = np.array([0.2, 0.1, 0.3, 0.9, 0.4, 0.5])
    policy = HybridCSLB(6, explore="ucb")
    policy.play_rounds(means, means.max() - means, 0.2 * np.random.default_rng(0).normal(size=1_000))
    for price in (1.0, 1e12, 1e15, 1e90):
        assert policy.select(cost=[0.0, 0.0, 0.0, 0.0, 0.0, price]) == 3


def test_the_number_of_a_decision_changes_draws_only():
    policy = HybridCSLB(ARMS, explore="ucb")
    played(policy, 60)
    assert {policy.select(decision=d) for d in (0, 10, 10**6, 2**39)} == {policy.select()}


def test_a_refit_takes_little_more_memory_than_the_state():
    arms = np.random.default_rng(0).normal(size=(800, 120))
    policy = HybridCSLB(arms)
    rng = np.random.default_rng(1)
    policy.state.level["due"] = 10**9
    policy.update_many(np.arange(800), rng.normal(size=800))
    tracemalloc.start()
    refit.refit(policy.state)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20e6  # the outer products of all coordinates would take 92 MB


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.fixture(scope="module")
def asked():
    policy = HybridCSLB(ARMS, context_dim=3)
    played(policy, 12)
    return policy


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.select(), r"context must be a vector of length 3, got None"),
        (lambda p: p.select([1.0, 2.0]), r"context must"),
        (lambda p: p.select([1.0, 2.0, np.nan]), r"context"),
        (lambda p: p.select(CONTEXTS[0], slate=10), r"slate must be a whole number from 1 to 9, got 10"),
        (lambda p: p.select(CONTEXTS[0], slate=2, available=[1]), r"slate must be a whole number from 1 to 1, got 2"),
        (lambda p: p.select(CONTEXTS[0], available=[]), r"available must hold at least one arm"),
        (lambda p: p.select(CONTEXTS[0], cost=[1.0]), r"cost must"),
        (lambda p: p.select(CONTEXTS[0], decision=-1), r"decision must be a whole number from 0"),
        (lambda p: p.select(CONTEXTS[0], pending=[9]), r"pending\[0\] must be a whole number from 0 to 8, got 9"),
        (lambda p: p.update(0, 1.0), r"context must be a vector of length 3, got None"),
        (lambda p: p.update(9, 1.0, context=CONTEXTS[0]), r"arm must be a whole number from 0 to 8, got 9"),
        (lambda p: p.update(0, np.inf, context=CONTEXTS[0]), r"reward must be a number"),
        (lambda p: p.update_many([0, 1], [1.0, 2.0]), r"contexts must have one row of length 3 per arm, got None"),
        (lambda p: p.update_many([0], [1.0], contexts=CONTEXTS[:2]), r"contexts must have as many rows as arms, 1"),
        (lambda p: p.estimates(np.ones(4)), r"context must"),
        (lambda p: p.add_arms(np.ones((1, 4))), r"arms must"),
        (lambda p: p.play_rounds(np.zeros(9), np.zeros(9), np.zeros(3)), r"context_dim must be None to play rounds"),
        (lambda p: p.play_user_rounds(CONTEXTS[:2], np.ones((2, 8)), None), r"rewards must"),
        (
            lambda p: p.play_user_rounds(CONTEXTS[:3], np.ones((2, 9)), None),
            r"contexts must have as many rows as arms, 2",
        ),
        (lambda p: p.play_user_rounds(CONTEXTS[:2], np.full((2, 9), np.nan), None), r"rewards"),
        (
            lambda p: p.play_user_rounds(CONTEXTS[:2], np.ones((2, 9)), np.zeros((2, 9), bool)),
            r"available must hold at least one arm that may be played, got none in round 0",
        ),
        (
            lambda p: p.play_user_rounds(CONTEXTS[:2], np.ones((2, 9)), np.ones((1, 9), bool)),
            r"available must be a mask of shape \(2, 9\), got bool \(1, 9\)",
        ),
        (lambda p: p.remove_arms(np.arange(9)), r"ids must leave at least one arm to play"),
    ],
)
def test_refused_calls_name_the_argument_and_change_nothing(call, message, asked):
    policy = asked.copy()
    before = memory(policy)
    with pytest.raises(ValueError, match=message):
        call(policy)
    assert same(before, memory(policy))
    assert policy.n_arms == 9


def test_a_context_is_refused_by_a_policy_without():
    policy = HybridCSLB(ARMS)
    for call in (
        lambda: policy.select([1.0]),
        lambda: policy.update(0, 1.0, context=[1.0]),
        lambda: policy.estimates([1.0]),
    ):
        with pytest.raises(ValueError, match=r"context must be None for a policy without contexts, got \[1\.0\]"):
            call()
    with pytest.raises(ValueError, match=r"contexts must be None for a policy without contexts"):
        policy.update_many([0], [1.0], contexts=[[1.0]])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"context_dim": 0}, r"context_dim must be a whole number >= 1, got 0"),
        ({"sketch_size": 0}, r"sketch_size must be a whole number >= 1, got 0"),
        ({"explore": "greedy"}, r"explore must be one of 'randomised', 'ucb', 'ts', 'theory', got 'greedy'"),
        ({"half_life": 0}, r"half_life must be None, a whole number of rewards >= 1, a time .*, got 0"),
        ({"noise": 0.0}, r"noise must be a number > 0"),
        ({"ridge": -1.0}, r"ridge must be a number > 0"),
        ({"own_share": 1.0}, r"own_share must be a number from 1e-09 to 0.999999999, got 1.0"),
        ({"own_share": 5e-324}, r"own_share must be a number from 1e-09 to"),
        ({"ridge": 1e-100}, r"ridge must be a number from 1e-08 to 100000000"),
        ({"context_dim": 10**6}, r"arms must be few enough for the memory, .* context_dim=1000000"),
    ],
)
def test_bad_parameters_are_refused_by_name(given, message):
    with pytest.raises(ValueError, match=message):
        HybridCSLB(ARMS, **given)
    with pytest.raises(ValueError, match=r"arms must be a whole number >= 1, got 0"):
        HybridCSLB(0)
