"""Hybrid CS-LB with arms that come with requests: exact fits whoever was dropped, what is learned, ids, batches."""

import math

import numpy as np
import pytest
from conftest import JIT, rounds
from hybrid_tools import CONTEXTS, FEATURES, HOUR, UNIT, Dense, context_of, memory, offered, same, x_of
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchbandits import HybridCSLB
from sketchbandits.policies.hybrid.rounds import refit_now

GIVEN = {"noise": 1.0, "ridge": 2.0, "own_share": 0.1}
both_contexts = pytest.mark.parametrize("context_dim", [None, 3])


# ------------------------------------------------------------------------------------------------------------ exactness
@both_contexts
def test_where_nobody_is_dropped_it_is_the_policy_of_fixed_arms(context_dim):
    """Features of unit norm have the same units in both."""
    fixed = HybridCSLB(UNIT[:7], context_dim=context_dim, **GIVEN)
    comes = HybridCSLB(feature_dim=4, context_dim=context_dim, **GIVEN)
    rng, ids = np.random.default_rng(0), [f"id {i}" for i in range(7)]
    assert fixed.state.level["constant"][0] == 1
    for t in range(70):
        arm, reward, context = int(rng.integers(0, 7)), float(rng.normal()), context_of(fixed, t)
        fixed.update(arm, reward, context=context)
        comes.update(ids[arm], reward, context=context, features=UNIT[arm])
        if t % 6 == 0 and fixed.state.coordinates[0, -1] == comes.state.coordinates[0, -1]:
            asked = {"arms": ids, "features": UNIT[:7]}
            assert np.allclose(fixed.estimates(context), comes.estimates(context, **asked), rtol=1e-9, atol=1e-9)
            assert np.allclose(fixed.bounds(context), comes.bounds(context, **asked), rtol=1e-9, atol=1e-9)
            assert np.allclose(
                fixed.probabilities(context), comes.probabilities(context, **asked), rtol=1e-6, atol=1e-6
            )
    assert len(comes.known_arms) == 7


@both_contexts
@pytest.mark.parametrize(("max_arms", "learns"), [(1, False), (3, False), (50, False), (50, True)])
def test_means_and_widths_are_those_of_one_regression_of_all_rewards(context_dim, max_arms, learns):
    """Also where ids were dropped and came back; with ridges that are learned, as long as nobody is dropped."""
    policy = HybridCSLB(feature_dim=4, context_dim=context_dim, max_arms=max_arms, **({} if learns else GIVEN))
    twin, rng = Dense(policy, max_arms), np.random.default_rng(3)
    for t in range(60):
        one, reward = int(rng.integers(0, 6)), float(rng.normal())
        features = FEATURES[one + 10 * (t > 40 and not learns)]  # from then on all have other features
        begun = twin.begin(one, features)
        policy.update(one, reward, context=context_of(policy, t), features=features)
        twin.record(one, begun, x_of(policy, t), reward)
        assert policy.known_arms == list(twin.known)
        if t % 9 == 8:
            ids, rows = [*range(6), "new"], FEATURES[[*range(6), 50] if learns else [*range(10, 16), 50]]
            context = context_of(policy, t + 1)
            means, bounds = twin.predict(x_of(policy, t + 1), ids, rows)
            assert np.allclose(policy.estimates(context, arms=ids, features=rows), means, rtol=1e-8, atol=1e-8)
            if not learns:
                found = policy.bounds(context, arms=ids, features=rows)
                assert np.allclose(found, bounds, rtol=1e-8, atol=1e-8)


@both_contexts
@pytest.mark.parametrize("gone", [[0], [6], [2, 4], [6, 5, 0]])
def test_dropping_ids_changes_no_other_prediction(context_dim, gone):
    policy = HybridCSLB(feature_dim=4, context_dim=context_dim, **GIVEN)
    offered(policy, 50)
    rest = [one for one in policy.known_arms if one not in gone]
    asked = {"arms": [*rest, "new"], "features": FEATURES[[*rest, 40]]}
    context, before = context_of(policy, 77), policy.known_arms
    estimates, bounds = policy.estimates(context, **asked), policy.bounds(context, **asked)
    known = policy.bounds(context, arms=gone)
    policy.remove_arms(gone)
    assert policy.known_arms == [one for one in before if one not in gone]
    assert np.allclose(policy.estimates(context, **asked), estimates, rtol=1e-9, atol=1e-9)
    assert np.allclose(policy.bounds(context, **asked), bounds, rtol=1e-9, atol=1e-9)
    assert np.array_equal(policy.estimates(context, arms=rest), policy.estimates(context, **asked)[:-1])
    again = policy.bounds(context, arms=gone, features=FEATURES[gone])
    assert np.abs(again - known).max() > 1e-3, "a dropped id is a new one"
    as_new = policy.bounds(context, arms=[f"new {one}" for one in gone], features=FEATURES[gone])
    assert np.array_equal(again, as_new)
    with pytest.raises(ValueError, match=r"features must be given for arms without a fit of their own, got None for"):
        policy.estimates(context, arms=gone)
    slots, n = sorted(policy._slots.values()), len(rest)
    assert slots == list(range(n))
    assert policy.state.starts[1] == n
    assert (policy.state.counts[n:] == 0).all() and (policy.state.counts[:n] > 0).all()
    offered(policy, 30, seed=5)
    assert np.isfinite(policy.bounds(context, **asked)).all()


@both_contexts
def test_a_refit_after_dropping_finds_the_same_fit_and_the_same_noise(context_dim):
    """With features of unit norm and a given ridge: units, centre, noise and predictions are as if all were kept."""
    policy = HybridCSLB(feature_dim=4, context_dim=context_dim, ridge=2.0, own_share=0.1)
    offered(policy, 60, features=UNIT)
    refit_now(policy.state)  # an own part keeps the units of the moment when it is dropped
    dropped = policy.copy()
    dropped.remove_arms([1, 3, 5])
    for one in (policy, dropped):
        refit_now(one.state)
    asked = {"arms": [0, 2, 4, 6, "new"], "features": UNIT[[0, 2, 4, 6, 40]]}
    context = context_of(policy, 77)
    if policy.state.coordinates[0, -1] == dropped.state.coordinates[0, -1]:  # without contexts a tie
        counted = slice(0, 4)  # an id that is new may have the noise that rewards scatter by, of arms that are kept
        bounds = [one.bounds(context, **asked)[counted] for one in (policy, dropped)]
        assert np.allclose(*bounds, rtol=0.1)
    assert np.allclose(policy.estimates(context, **asked), dropped.estimates(context, **asked), rtol=1e-8, atol=1e-8)
    assert dropped.learned["noise"] == pytest.approx(policy.learned["noise"], rel=1e-8)
    assert dropped.state.level["centre"] == pytest.approx(policy.state.level["centre"], rel=1e-8)


@pytest.mark.parametrize("max_arms", [2, 60])
def test_noise_is_learned_whatever_is_kept(max_arms):
    rng = np.random.default_rng(0)
    theta, size = rng.normal(size=4), rounds(1_000, 150)
    policy = HybridCSLB(feature_dim=4, max_arms=max_arms)
    for _ in range(size):
        one = int(rng.integers(0, 60))
        policy.update(one, float(FEATURES[one] @ theta + 0.5 * rng.normal()), features=FEATURES[one])
    assert policy.learned["noise"] == pytest.approx(0.5, rel=0.1 if JIT else 0.4)
    assert policy.learned["own_share"] < 0.2
    asked = [f"new {i}" for i in range(60)]
    assert np.abs(policy.estimates(arms=asked, features=FEATURES) - FEATURES @ theta).max() < (0.4 if JIT else 2.0)


def test_features_of_kept_ids_have_mean_square_one_after_a_refit():
    policy = HybridCSLB(feature_dim=4, max_arms=5)
    offered(policy, 40, features=37.0 * FEATURES)
    refit_now(policy.state)
    state = policy.state
    assert np.mean((state.coordinates[:5, :-1] ** 2).sum(axis=1)) == pytest.approx(1.0)
    assert np.allclose(state.coordinates[:5, :-1], policy.arms * state.level["unit"][0])


def in_other_units(size, **settings_):
    """What two policies choose, one of them with everything in other units."""
    rng = np.random.default_rng(3)
    one, other = (HybridCSLB(feature_dim=4, max_arms=6, **settings_) for _ in range(2))
    for t in range(size):
        ids = rng.choice(12, 5, replace=False)
        u, at = context_of(one, t), 60.0 * t if settings_["half_life"] == "1h" else None
        v = None if u is None else 0.5 * u
        arm = one.select(u, arms=ids, features=FEATURES[ids], at=at)
        assert arm in ids
        yield arm, other.select(v, arms=ids, features=16.0 * FEATURES[ids], at=at)
        reward = float(FEATURES[arm, 0] + rng.normal())
        one.update(arm, reward, context=u, features=FEATURES[arm], at=at)
        other.update(arm, 8.0 * reward - 3.0, context=v, features=16.0 * FEATURES[arm], at=at)
    assert one.known_arms == other.known_arms
    assert len(one.known_arms) <= 6


@both_contexts
@pytest.mark.parametrize(
    ("explore", "half_life"), [("randomised", None), ("randomised", "auto"), ("ucb", "1h"), ("ts", 40)]
)
def test_choices_do_not_depend_on_units(context_dim, explore, half_life):
    for arm, same_arm in in_other_units(rounds(60, 25), context_dim=context_dim, explore=explore, half_life=half_life):
        assert arm == same_arm


def test_both_copies_have_the_same_unit_of_features():
    policy = HybridCSLB(feature_dim=4, half_life="auto")
    offered(policy, 40, features=50.0 * FEATURES)
    main, fast = policy.state.main, policy.state.fast
    assert np.array_equal(main.coordinates[:7], fast.coordinates[:7])
    assert main.level["unit"] == pytest.approx(fast.level["unit"])


def test_what_the_fast_copy_predicts_does_not_depend_on_the_unit_of_features():
    policies = [HybridCSLB(feature_dim=4, half_life="auto", max_arms=4) for _ in range(2)]
    for policy, unit in zip(policies, (1.0, 64.0), strict=True):
        offered(policy, 80, features=unit * FEATURES)
    one, other = (policy.state.fast.own[:4] for policy in policies)
    assert np.allclose(one, other, rtol=1e-6)
    assert policies[0].state.watch["lead"] == pytest.approx(policies[1].state.watch["lead"])


def turning(policy, size, seed=0):
    """Mean rewards of the last tenth and best possible ones, in a world that turns at half time."""
    rng = np.random.default_rng(seed)
    theta, missed = rng.normal(size=4), []
    for t in range(size):
        ids = rng.choice(40, 10, replace=False)
        means = (1.0 if t < size // 2 else -1.0) * FEATURES @ theta
        arm = policy.select(arms=ids, features=FEATURES[ids])
        missed.append(means[ids].max() - means[arm])
        policy.update(arm, float(means[arm] + 0.3 * rng.normal()), features=FEATURES[arm])
    return np.array(missed)


@pytest.mark.skipif(not JIT, reason="thousands of rounds")
def test_a_restart_forgets_also_what_dropped_ids_had_taught():
    policy = HybridCSLB(feature_dim=4, half_life="auto", max_arms=10)
    missed = turning(policy, 3_000)
    assert missed[1_200:1_500].mean() < 0.1
    assert 1 <= policy.learned["restarts"] <= 6
    assert missed[-300:].mean() < 0.3


def test_where_nothing_changes_watching_makes_no_difference():
    one, other = (HybridCSLB(feature_dim=4, half_life=h, max_arms=10) for h in ("auto", None))
    rng = np.random.default_rng(0)
    for _ in range(rounds(300, 40)):
        ids = rng.choice(40, 10, replace=False)
        arm = one.select(arms=ids, features=FEATURES[ids])
        assert other.select(arms=ids, features=FEATURES[ids]) == arm
        reward = float(FEATURES[arm, 0] + 0.3 * rng.normal())
        for policy in (one, other):
            policy.update(arm, reward, features=FEATURES[arm])
    assert one.learned["restarts"] == 0


@pytest.mark.parametrize("max_arms", [2, 50])
def test_requests_and_times_are_one_weighted_regression(max_arms):
    """Weights that halve, also of what dropped ids had taught: compared at the time of a refit."""
    policy = HybridCSLB(feature_dim=4, half_life="1h", max_arms=max_arms, **GIVEN)
    times = np.sort(np.random.default_rng(5).uniform(0.0, 3 * HOUR, 30))
    twin, rng = Dense(policy, max_arms), np.random.default_rng(3)
    lives = []
    for t in range(30):
        one, reward = int(rng.integers(0, 5)), float(rng.normal())
        begun = twin.begin(one, UNIT[one])
        policy.update(one, reward, features=UNIT[one], at=float(times[t]))
        twin.record(one, begun, np.ones(1), reward)
        lives.append(begun[1])
    assert policy.known_arms == list(twin.known)
    if max_arms == 2:
        assert len(set(lives)) > 10
        return  # an own part that was dropped fades with its rows, and its ridge with them
    weights = 2.0 ** ((times - float(policy.state.level["faded"][0])) / HOUR)
    twin.events = [
        (math.sqrt(w) * x, f, life, math.sqrt(w) * y) for w, (x, f, life, y) in zip(weights, twin.events, strict=True)
    ]
    level = policy.state.level[0]
    F = np.array([twin.row(x, f, life) for x, f, life, _ in twin.events])
    y = np.array([event[3] - event[0][-1] * level["centre"] for event in twin.events])
    shared = policy.state.shared.size
    penalty = np.concatenate([np.full(shared, 2.0), np.full(F.shape[1] - shared, float(level["own_ridge"]))])
    theta = np.linalg.solve(F.T @ F + np.diag(penalty), F.T @ y)
    X = np.array([twin.row(np.ones(1), UNIT[one], twin.known[one][1]) for one in range(5)])
    assert np.allclose(policy.estimates(arms=range(5)), level["centre"] + X @ theta, rtol=1e-8, atol=1e-8)


def test_removed_ids_do_not_shift_questions_about_later():
    policy = HybridCSLB(feature_dim=4, context_dim=3, half_life="1h", **GIVEN)
    offered(policy, 40, times=np.zeros(40))
    asked = {"arms": [5, 6], "at": 2 * HOUR}
    before = policy.estimates(CONTEXTS[0], **asked)
    policy.remove_arms([0, 1])
    assert np.array_equal(policy.estimates(CONTEXTS[0], **asked), policy.copy().estimates(CONTEXTS[0], **asked))
    assert np.allclose(policy.estimates(CONTEXTS[0], **asked), before, rtol=0.2, atol=0.2)


# ------------------------------------------------------------------------------------------------------------------ ids
def test_the_id_whose_last_reward_is_the_oldest_is_dropped():
    policy = HybridCSLB(feature_dim=4, max_arms=3)
    for one in ("a", "b", "c", "a"):
        policy.update(one, 1.0, features=FEATURES[0])
    assert policy.known_arms == ["b", "c", "a"]
    policy.select(arms=["b"])  # questions change nothing
    policy.update("d", 1.0, features=FEATURES[1])
    assert policy.known_arms == ["c", "a", "d"]
    policy.update("c", 2.0)
    policy.update("b", 2.0, features=FEATURES[2])
    assert policy.known_arms == ["d", "c", "b"]
    assert policy.counts[[policy._slots[one] for one in ("d", "c", "b")]].tolist() == [1, 2, 1]
    with pytest.raises(
        ValueError, match=r"features must be given for arms without a fit of their own, got None for 'a'"
    ):
        policy.update("a", 1.0)


def test_texts_and_numbers_are_different_ids():
    policy = HybridCSLB(feature_dim=4)
    ids = [1, "1", -(2**63), 2**63 - 1, "", "é\u0000", "ü" * 300, np.int32(7), np.str_("x")]
    for i, one in enumerate(ids):
        policy.update(one, float(i), features=FEATURES[i])
    assert policy.known_arms == [1, "1", -(2**63), 2**63 - 1, "", "é\u0000", "ü" * 300, 7, "x"]
    assert [type(one) for one in policy.known_arms] == [int, str, int, int, str, str, str, int, str]
    assert policy.select(arms=["1"]) == "1"
    assert type(policy.select(arms=np.array([1]))) is int
    assert policy.select(arms=(one for one in [1]), features=FEATURES[:1]) == 1


def test_an_id_with_other_features_begins_anew():
    policy = HybridCSLB(feature_dim=4, context_dim=3, **GIVEN)
    offered(policy, 40)
    u, asked = CONTEXTS[9], {"arms": [0, 3], "features": FEATURES[[0, 3]]}
    other = {"arms": [0, 3], "features": FEATURES[[30, 3]]}
    new = {"arms": ["new", 3], "features": FEATURES[[30, 3]]}
    assert np.array_equal(policy.bounds(u, **other), policy.bounds(u, **new))
    assert np.array_equal(policy.estimates(u, arms=[0, 3]), policy.estimates(u, **asked))
    twin = policy.copy()
    twin.remove_arms([0])
    for one in (policy, twin):
        one.update(0, 1.5, context=u, features=FEATURES[30])
    assert np.allclose(policy.bounds(u, **other), twin.bounds(u, **other), rtol=1e-9)
    assert policy.known_arms == twin.known_arms
    assert policy.counts[policy._slots[0]] == 1


def test_one_fit_of_their_own_is_enough():
    policy = HybridCSLB(feature_dim=4, context_dim=3, max_arms=1)
    for t in range(40):
        u, ids = CONTEXTS[t], [t % 5, (t + 1) % 5]
        one = policy.select(u, arms=ids, features=FEATURES[ids])
        policy.update(one, float(t % 3), context=u, features=FEATURES[one])
        assert policy.known_arms == [one]
    policy.remove_arms(policy.known_arms)
    assert policy.known_arms == []
    assert np.isfinite(policy.bounds(CONTEXTS[0], arms=["x"], features=FEATURES[:1])).all()
    policy.update("x", 1.0, context=CONTEXTS[0], features=FEATURES[0])
    policy.remove_arms([])
    assert policy.known_arms == ["x"]


@pytest.mark.parametrize("explore", ["randomised", "ucb", "ts"])
def test_decisions_of_a_request_are_as_elsewhere(explore):
    policy = HybridCSLB(feature_dim=4, context_dim=3, explore=explore, seed=3)
    u, ids = CONTEXTS[0], ["a", 2, "c", 4, "e"]
    asked = {"arms": ids, "features": FEATURES[:5]}
    assert policy.select(u, **asked) in ids
    offered(policy, 30)
    before = memory(policy)
    for d in range(20):
        one = policy.select(u, **asked, decision=d)
        slate = policy.select(u, **asked, decision=d, slate=5)
        assert slate[0] == one and set(slate) == set(ids)
        shares = policy.probabilities(u, **asked, decision=d)
        assert shares.sum() == pytest.approx(1.0) and shares[ids.index(one)] > 0.0
    assert policy.select(u, **asked) == policy.select(u, **asked, decision=30)
    assert policy.select(u, **asked, pending=["a", "x", 5]) == policy.select(u, **asked, decision=33)
    assert policy.select_many(4, u, **asked) == [policy.select(u, **asked, decision=30 + i) for i in range(4)]
    assert policy.select_many(0, u, **asked) == []
    assert policy.select(u, **asked, cost=[9e9, 9e9, 0.0, 9e9, 9e9]) == "c"
    order = [3, 1, 0, 4, 2]
    shuffled = {"arms": [ids[i] for i in order], "features": FEATURES[order]}
    assert np.array_equal(policy.bounds(u, **shuffled), policy.bounds(u, **asked)[order])
    assert same(before, memory(policy))


def test_what_features_predict_is_learned_for_ids_never_seen():
    rng = np.random.default_rng(0)
    theta, policy = rng.normal(size=4), HybridCSLB(feature_dim=4, max_arms=20)
    found = []
    for t in range(rounds(600, 80)):
        rows = rng.normal(size=(8, 4))
        ids = [f"{t}/{i}" for i in range(8)]  # no id comes twice
        one = policy.select(arms=ids, features=rows)
        row = rows[ids.index(one)]
        policy.update(one, float(row @ theta + 0.3 * rng.normal()), features=row)
        found.append((rows @ theta).max() - row @ theta)
    assert np.mean(found[-40:]) < 0.3 * np.linalg.norm(theta)
    assert len(policy.known_arms) == 20


# -------------------------------------------------------------------------------------------------------------- batches
SETTINGS = {
    "contexts": {"context_dim": 3},
    "alone": {},
    "samples": {"explore": "ts"},
    "forgetting": {"context_dim": 3, "half_life": 30},
    "time": {"half_life": "1h"},
    "watched": {"context_dim": 3, "half_life": "auto"},
}


@pytest.mark.parametrize("shape", SETTINGS.values(), ids=SETTINGS)
def test_a_batch_of_ids_is_as_single_rewards(shape):
    """Texts and numbers, some of them more than once, more of them than may be kept, and one with other features."""
    one, other = (HybridCSLB(feature_dim=4, max_arms=4, **shape) for _ in range(2))
    rng = np.random.default_rng(0)
    for size in (25, 1, 0):
        numbers = rng.integers(0, 7, size)
        ids = [f"id {i}" if i % 2 else int(i) for i in numbers]
        rows, rewards = FEATURES[numbers + 10 * (np.arange(size) == 11)], rng.normal(size=size)
        times = 60.0 * rng.permutation(size) if shape.get("half_life") == "1h" else None
        for t, arm in enumerate(ids):
            at = None if times is None else float(times[t])
            one.update(arm, float(rewards[t]), context=context_of(one, t), features=rows[t], at=at)
        contexts = None if other.context_dim is None else CONTEXTS[:size]
        other.update_many(ids, rewards, contexts=contexts, features=rows if size else None, at=times)
        assert same(memory(one), memory(other))
    known = one.known_arms
    for arm in [*known, known[1]]:
        one.update(arm, 1.5, context=context_of(one, 7), at=None if times is None else 9e3)
    contexts = None if other.context_dim is None else [CONTEXTS[7]] * 5
    at = None if times is None else [9e3] * 5
    other.update_many((arm for arm in [*known, known[1]]), [1.5] * 5, contexts=contexts, at=at)
    assert same(memory(one), memory(other))


BATCHES = {
    "an id": ({"arms": [0, True, "new"]}, r"arms must be ids, .* got True"),
    "a text": ({"arms": "abc"}, r"arms must be a list of ids, .* got 'abc'"),
    "rewards": ({"rewards": [1.0, 2.0]}, r"rewards must"),
    "a reward": ({"rewards": [1.0, 2.0, np.nan]}, r"rewards"),
    "features": ({"features": FEATURES[:2]}, r"features must have one row per arm, 3, got 2"),
    "columns": ({"features": FEATURES[:3, :3]}, r"features must be .* 4 columns"),
    "NaN": ({"features": np.where(np.arange(3)[:, None] == 2, np.nan, FEATURES[:3])}, r"features must be finite"),
    "no features": ({"features": None}, r"features must be given .* for 'new'"),
    "contexts": ({"contexts": CONTEXTS[:2]}, r"contexts must have as many rows as arms, 3, got 2"),
    "no contexts": ({"contexts": None}, r"contexts must have one row of length 3 per arm, got None"),
    "times": ({"at": [1.0, 2.0]}, r"at must have one time per arm, 3, got 2"),
    "a time": ({"at": [1.0, 2.0, None]}, r"at must be a number of seconds"),
    "no times": ({"at": None}, r"at must be a number of seconds"),
}


@pytest.mark.parametrize(("wrong", "message"), BATCHES.values(), ids=BATCHES)
def test_a_batch_with_a_bad_entry_is_refused_as_a_whole(wrong, message):
    policy = HybridCSLB(feature_dim=4, context_dim=3, max_arms=2, half_life="1h")
    offered(policy, 5, ids=4, times=np.arange(5))
    known = policy.known_arms
    batch = {
        "arms": [*known, "new"],
        "rewards": [1.0, 2.0, 3.0],
        "contexts": CONTEXTS[:3],
        "features": FEATURES[:3],
        "at": [20.0, 5e3, 9e3],
    }
    before = memory(policy)
    with pytest.raises(ValueError, match=message):
        policy.update_many(**{**batch, **wrong})
    assert same(before, memory(policy))
    assert policy.known_arms == known
    policy.update_many(**batch)
    assert policy.known_arms == [known[1], "new"]


# -------------------------------------------------------------------------------------------------------- any sequences
OPERATIONS = st.one_of(
    st.tuples(st.just("update"), st.integers(0, 4), st.integers(0, 1), st.integers(-3, 3)),
    st.tuples(st.just("again"), st.integers(0, 4), st.just(0), st.integers(-3, 3)),
    st.tuples(st.just("remove"), st.integers(0, 4), st.just(0), st.just(0)),
    st.tuples(st.just("select"), st.integers(0, 4), st.integers(0, 1), st.just(0)),
)


@settings(max_examples=rounds(30, 8), deadline=None)
@given(
    operations=st.lists(OPERATIONS, max_size=25),
    max_arms=st.integers(1, 4),
    context_dim=st.sampled_from([None, 3]),
    explore=st.sampled_from(["randomised", "ucb", "ts"]),
)
def test_any_sequence_of_calls_is_one_regression(operations, max_arms, context_dim, explore):
    policy = HybridCSLB(feature_dim=4, context_dim=context_dim, max_arms=max_arms, explore=explore, **GIVEN)
    twin, rewarded = Dense(policy, max_arms), 0
    for t, (what, one, version, reward) in enumerate(operations):
        features, context = FEATURES[one + 20 * version], context_of(policy, t)
        if what == "select":
            ids = [one, "other"]
            assert policy.select(context, arms=ids, features=FEATURES[[one, 9]]) in ids
            continue
        unknown = one not in twin.known
        if what == "remove":
            if unknown:
                with pytest.raises(ValueError, match=r"ids must be arms with a fit of their own"):
                    policy.remove_arms([one])
            else:
                twin.end(one)
                policy.remove_arms([one])
        elif what == "again" and unknown:
            with pytest.raises(ValueError, match=r"features must be given for arms without a fit"):
                policy.update(one, 1.0, context=context)
        else:
            given_ = None if what == "again" else features
            begun = twin.begin(one, given_)
            policy.update(one, float(reward), context=context, features=given_)
            twin.record(one, begun, x_of(policy, t), float(reward))
            rewarded += 1
        assert policy.known_arms == list(twin.known)
        assert len(policy.known_arms) <= max_arms
    assert policy.state.level["samples"][0] == rewarded
    if not rewarded:
        return
    ids, rows = [0, 1, 2, 3, 4, "new"], FEATURES[[0, 1, 22, 3, 24, 9]]
    means, bounds = twin.predict(x_of(policy, 90), ids, rows)
    context = context_of(policy, 90)
    assert np.allclose(policy.estimates(context, arms=ids, features=rows), means, rtol=1e-7, atol=1e-7)
    if explore != "ucb":
        assert np.allclose(policy.bounds(context, arms=ids, features=rows), bounds, rtol=1e-7, atol=1e-7)
