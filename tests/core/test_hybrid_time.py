"""Hybrid CS-LB: half-lives that are times."""

import datetime
import itertools
import math

import numpy as np
import pytest
from hybrid_tools import (
    ARMS,
    CONTEXTS,
    HOUR,
    SHAPES,
    context_of,
    dense_fit,
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
from sketchbandits.policies.hybrid.half_life import half_life_of

GIVEN = {"noise": 0.5, "ridge": 2.0, "own_share": 0.1}
UTC = datetime.UTC


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("15m", 900.0), ("6h", 6 * HOUR), ("7d", 168 * HOUR), ("2w", 336 * HOUR), (" 1.5 h ", 1.5 * HOUR)],
)
def test_times_are_in_seconds(text, seconds):
    assert half_life_of(text) == (seconds, True, False)
    assert HybridCSLB(3, half_life=text).state.level["half_life"] == seconds


@pytest.mark.parametrize(
    "value",
    ["", "6", "h", "-6h", "0h", "6 hours", "1e3s", "nan h", "six", "6h 3m", "Auto", 0, -5, 1.5, True, [1], b"6h"],
)
def test_other_half_lives_are_refused(value):
    with pytest.raises(ValueError, match=r"half_life must be None, a whole number of rewards >= 1, a time such as"):
        HybridCSLB(3, half_life=value)


def timed(**more):
    return HybridCSLB(ARMS, **{"half_life": "1h", **GIVEN, **more})


def step_of(policy, at):
    """The time of the fit that answers a question about ``at``: steps of a 20th of a half-life from the last refit."""
    faded = float(policy.state.level["faded"][0])
    return faded + max(0, int((at - faded) / HOUR * 20)) * HOUR / 20


def expected(policy, now, chosen, rewards, times, context):
    """Estimates and bounds of the dense regression with weights that halve, centred as it says itself."""
    state = policy.state
    rows, weights = rows_of(policy, len(chosen)), 2.0 ** (-(now - np.asarray(times)) / HOUR)
    twin, _, _ = dense_fit(state, rows, chosen, rewards, weights)
    F, penalty = twin.design()
    F, root = np.column_stack([F, np.ones(len(F))]), np.sqrt(weights)
    F, target = root[:, None] * F, root * rewards
    theta = np.linalg.solve(F.T @ F + np.diag(np.append(penalty, 0.0)), F.T @ target)
    inverse = np.linalg.inv(F[:, :-1].T @ F[:, :-1] + np.diag(penalty))
    u = row_of(context) * state.scale
    X = np.array([twin.features(arm, u) for arm in range(9)])
    means = X @ theta[:-1] + theta[-1]
    return means, means + 2.0 * 0.5 * np.sqrt(np.einsum("nd,de,ne->n", X, inverse, X))


TIMES = {
    "in order": np.sort(np.random.default_rng(7).uniform(0.0, 8 * HOUR, 60)),
    "out of order": np.random.default_rng(7).uniform(0.0, 8 * HOUR, 60),
    "all at once": np.full(60, 1.7e9),
    "latest first": np.linspace(8 * HOUR, 0.0, 60),
    "before 1970": -np.random.default_rng(8).uniform(0.0, 50 * HOUR, 60),
}


@every_shape
@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
def test_the_fit_at_a_time_is_the_dense_one_with_weights_that_halve(shape, times):
    policy = timed(**shape)
    chosen, rewards = played(policy, 60, times=times)
    context = context_of(policy, 70)
    for later in (0.06, 0.5, 9.0):
        at = float(times.max() + later * HOUR)
        later_policy = policy.copy()
        means, bounds = policy.estimates(context, at=at), policy.bounds(context, at=at)
        now = step_of(policy, at)
        assert at - HOUR / 20 <= now + 1e-3 <= at + 2e-3
        later_policy.state = later_policy._at(at)  # for its constants, which may be learned anew
        wanted, above = expected(later_policy, now, chosen, rewards, times, context)
        assert np.allclose(means, wanted, rtol=1e-8, atol=1e-8)
        assert np.allclose(bounds, above, rtol=1e-8, atol=1e-8)
    assert (policy.counts == np.bincount(chosen, minlength=9)).all()


@every_shape
def test_between_refits_the_fit_is_that_of_a_20th_of_a_half_life_ago(shape):
    """Weights relative to one another are exact at all times; against the ridge they lag by at most 3.5 %."""
    policy = timed(**shape)
    times = np.sort(np.random.default_rng(7).uniform(0.0, 8 * HOUR, 60))
    chosen, rewards = played(policy, 60, times=times)
    state, faded = policy.state, float(policy.state.level["faded"][0])
    assert times[-1] - HOUR / 20 < faded <= times[-1]
    context = context_of(policy, 70)
    weights = 2.0 ** ((times - faded) / HOUR)
    means, covariance = dense_prediction(state, row_of(context), rows_of(policy, 60), chosen, rewards, weights)
    assert np.allclose(policy.estimates(context), means, rtol=1e-9, atol=1e-9)
    assert np.allclose(policy.bounds(context), means + 2.0 * 0.5 * np.sqrt(np.diag(covariance)), rtol=1e-9, atol=1e-9)
    assert np.array_equal(policy.estimates(context, at=float(times[-1])), policy.estimates(context))
    assert np.array_equal(policy.estimates(context, at=faded + 0.049 * HOUR), policy.estimates(context))
    assert np.array_equal(
        policy.estimates(context, at=faded + 0.11 * HOUR), policy.estimates(context, at=faded + 0.149 * HOUR)
    )


@every_shape
def test_the_order_in_which_rewards_arrive_does_not_matter(shape):
    rng = np.random.default_rng(5)
    chosen, rewards, times = rng.integers(0, 9, 50), rng.normal(size=50), rng.uniform(0.0, 5 * HOUR, 50)
    found = []
    for order in (np.arange(50), np.argsort(times), rng.permutation(50)):
        policy = timed(**shape)
        for t in order.tolist():
            policy.update(int(chosen[t]), float(rewards[t]), context=context_of(policy, t), at=float(times[t]))
        policy.add_arms(ARMS[:1])  # refits, at the latest time
        assert policy.state.level["faded"][0] == times.max()
        found.append((policy.estimates(context_of(policy, 3)), policy.bounds(context_of(policy, 3))))
    for estimates, bounds in found[1:]:
        assert np.allclose(estimates, found[0][0], rtol=1e-9, atol=1e-9)
        assert np.allclose(bounds, found[0][1], rtol=1e-9, atol=1e-9)


def test_times_may_be_shifted_and_half_lives_scaled():
    """Only differences of times count, in half-lives."""
    times = np.sort(np.random.default_rng(7).integers(0, 100_000, 60))
    policies = [HybridCSLB(ARMS, half_life=text) for text in ("512s", "512s", "1024s")]
    for policy, shift, factor in zip(policies, (0, 2**24, 0), (1, 1, 2), strict=True):
        played(policy, 60, times=factor * times + shift)
    assert np.array_equal(policies[0].estimates(), policies[1].estimates())
    assert np.array_equal(policies[0].bounds(), policies[2].bounds())


def test_a_moment_may_be_a_datetime_of_any_zone():
    one, other = timed(context_dim=3), timed(context_dim=3)
    start = datetime.datetime(2024, 2, 28, 23, 0, tzinfo=UTC)
    zone = datetime.timezone(datetime.timedelta(hours=-7))
    for t in range(30):
        moment = start + datetime.timedelta(minutes=7 * t)
        one.update(t % 9, float(t % 4), context=CONTEXTS[t], at=moment.timestamp())
        other.update(t % 9, float(t % 4), context=CONTEXTS[t], at=moment.astimezone(zone))
    assert same(memory(one), memory(other))
    later = start + datetime.timedelta(days=1)
    for name in ("select", "estimates", "bounds", "probabilities"):
        assert np.array_equal(
            getattr(one, name)(CONTEXTS[3], at=later.timestamp()), getattr(other, name)(CONTEXTS[3], at=later)
        )


@pytest.mark.parametrize("explore", ["randomised", "ucb", "ts"])
def test_questions_about_later_change_nothing_and_are_less_certain(explore):
    policy = timed(context_dim=3, explore=explore)
    played(policy, 60, times=np.linspace(0.0, 2 * HOUR, 60))
    before, widths = memory(policy), policy.bounds(CONTEXTS[0]) - policy.estimates(CONTEXTS[0])
    for at in (2.1 * HOUR, 3 * HOUR, 5 * HOUR, 20 * HOUR):
        wider = policy.bounds(CONTEXTS[0], at=at) - policy.estimates(CONTEXTS[0], at=at)
        assert (wider >= widths * (1.0 - 1e-9)).all()
        assert wider.sum() > widths.sum()
        widths = wider
        arm = policy.select(CONTEXTS[0], at=at, decision=3)
        assert policy.probabilities(CONTEXTS[0], at=at, decision=3)[arm] > 0.0
        assert policy.select(CONTEXTS[0], at=at, slate=3, decision=3)[0] == arm
        assert policy.select_many(2, CONTEXTS[0], at=at).shape == (2,)
    assert same(before, memory(policy))
    for at in (-1e9, 0.0, 2 * HOUR):  # nothing is known about the past but what is known now
        assert np.array_equal(policy.estimates(CONTEXTS[0], at=at), policy.estimates(CONTEXTS[0]))


def test_a_question_about_later_is_answered_as_after_a_reward_that_weighs_nothing():
    policy = timed(context_dim=3)
    played(policy, 60, times=np.linspace(0.0, 2 * HOUR, 60))
    at = float(policy.state.level["faded"][0]) + 2 * HOUR
    later = policy.estimates(CONTEXTS[0], at=at)
    policy.update(0, 5.0, context=CONTEXTS[1], at=at)
    policy.update(3, 5.0, context=CONTEXTS[1], at=at)
    assert np.abs(policy.estimates(CONTEXTS[0], at=at) - later).max() > 1e-3


def test_very_late_rewards_count_for_nothing():
    policy = timed(context_dim=3)
    played(policy, 30, times=np.linspace(0.0, HOUR, 30))
    before = policy.estimates(CONTEXTS[0])
    policy.update(4, 1e3, context=CONTEXTS[2], at=-1e12)
    assert policy.counts.sum() == 31
    assert np.allclose(policy.estimates(CONTEXTS[0]), before, atol=1e-12)


@every_shape
def test_batches_with_times_are_as_single_rewards(shape):
    one, other = timed(**shape), timed(**shape)
    times = np.random.default_rng(7).uniform(0.0, 8 * HOUR, 60)
    chosen, rewards = played(one, 60, times=times)
    contexts = None if one.context_dim is None else CONTEXTS[:60]
    other.update_many(chosen, rewards, contexts=contexts, at=times)
    assert same(memory(one), memory(other))
    moments = [datetime.datetime.fromtimestamp(float(at), UTC) for at in np.round(times)]
    other.update_many(chosen, rewards, contexts=contexts, at=moments)
    other.update_many([], [], contexts=None if contexts is None else contexts[:0], at=[])
    assert other.counts.sum() == 120


CALLS = {
    "update": lambda p, at: p.update(0, 1.0, context=CONTEXTS[0], at=at),
    "update_many": lambda p, at: p.update_many([0, 1], [1.0, 2.0], contexts=CONTEXTS[:2], at=[0.0, at]),
    "select": lambda p, at: p.select(CONTEXTS[0], at=at),
    "select_many": lambda p, at: p.select_many(2, CONTEXTS[0], at=at),
    "estimates": lambda p, at: p.estimates(CONTEXTS[0], at=at),
    "bounds": lambda p, at: p.bounds(CONTEXTS[0], at=at),
    "probabilities": lambda p, at: p.probabilities(CONTEXTS[0], at=at),
}
every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@every_call
@pytest.mark.parametrize(
    "at", [math.nan, math.inf, -math.inf, "6h", "2024-01-01", True, [1.0, 2.0], datetime.datetime(2024, 1, 1), 1e101]
)
def test_moments_that_are_none_are_refused(call, at):
    policy = timed(context_dim=3)
    played(policy, 3, times=np.arange(3))
    before = memory(policy)
    with pytest.raises(ValueError, match=r"at must be a number of seconds or a datetime with a time zone"):
        call(policy, at)
    assert same(before, memory(policy))


@every_call
@pytest.mark.parametrize("half_life", [None, 40, "auto"])
def test_moments_are_refused_where_half_lives_are_no_time(call, half_life):
    policy = HybridCSLB(ARMS, context_dim=3, half_life=half_life)
    played(policy, 3)
    before = memory(policy)
    for at in (0.0, datetime.datetime(2024, 1, 1, tzinfo=UTC)):
        with pytest.raises(ValueError, match=r'at must be None unless half_life is a time such as "6h", got'):
            call(policy, at)
    assert same(before, memory(policy))


def test_rewards_without_their_moment_are_refused():
    for shape in SHAPES.values():
        policy = timed(**shape)
        played(policy, 12, times=np.arange(12))
        before, contexts = memory(policy), None if policy.context_dim is None else CONTEXTS[:2]
        for call in (
            lambda p=policy: p.update(0, 1.0, context=context_of(p, 0)),
            lambda p=policy, c=contexts: p.update_many([0, 1], [1.0, 2.0], contexts=c),
            lambda p=policy, c=contexts: p.update_many([0, 1], [1.0, 2.0], contexts=c, at=[1.0, None]),
        ):
            with pytest.raises(ValueError, match=r"at must be a number of seconds or a datetime with a time zone"):
                call()
        with pytest.raises(ValueError, match=r"at must have one time per arm, 2, got 3"):
            policy.update_many([0, 1], [1.0, 2.0], contexts=contexts, at=[1.0, 2.0, 3.0])
        with pytest.raises(ValueError, match=r"half_life must not be a time"):
            policy.play_user_rounds(CONTEXTS[:2], np.ones((2, 9)), None)
        assert same(before, memory(policy))


@pytest.mark.parametrize(("nth", "at"), [(0, 11.0), (1, 11.0), (0, 5 * HOUR), (1, 5 * HOUR), (2, 5 * HOUR)])
def test_an_interrupt_in_a_refit_at_a_time_leaves_a_usable_state(monkeypatch, nth, at):
    policy, other = timed(context_dim=3), timed(context_dim=3)
    for one in (policy, other):
        played(one, 7, times=np.arange(7.0))
    calls, whole = [], refit.shared_fits

    def interrupted(*given):
        calls.append(1)
        if len(calls) > nth:
            raise KeyboardInterrupt
        return whole(*given)

    monkeypatch.setattr(refit, "shared_fits", interrupted)
    try:
        policy.update(2, 1.0, context=CONTEXTS[0], at=at)
    except KeyboardInterrupt:
        assert np.isfinite(policy.bounds(CONTEXTS[0])).all()
    monkeypatch.undo()
    assert policy.counts.sum() in (7, 8)
    if policy.counts.sum() == 7:
        policy.update(2, 1.0, context=CONTEXTS[0], at=at)
    other.update(2, 1.0, context=CONTEXTS[0], at=at)
    for one in (policy, other):
        one.update(3, 0.5, context=CONTEXTS[1], at=at + 1.0)
        one.add_arms(ARMS[:1])
    assert policy.counts.sum() == 9
    assert np.allclose(policy.estimates(CONTEXTS[5]), other.estimates(CONTEXTS[5]), rtol=1e-9)


def test_an_interrupted_question_about_later_can_be_asked_again(monkeypatch):
    policy = timed(context_dim=3)
    played(policy, 20, times=np.arange(20.0))
    before = memory(policy)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(refit, "shared_fits", interrupted)
    with pytest.raises(KeyboardInterrupt):
        policy.select(CONTEXTS[0], at=9 * HOUR)
    monkeypatch.undo()
    assert same(before, memory(policy))
    twin = policy.copy()
    assert np.array_equal(policy.bounds(CONTEXTS[0], at=9 * HOUR), twin.bounds(CONTEXTS[0], at=9 * HOUR))


def test_arms_added_before_the_first_reward_of_a_time_are_as_those_known_from_the_start():
    policy, whole = timed(), timed()
    policy = HybridCSLB(ARMS[:5], half_life="1h", **GIVEN)
    policy.add_arms(ARMS[5:])
    played(policy, 30, times=np.arange(30.0))
    played(whole, 30, times=np.arange(30.0))
    assert np.allclose(policy.estimates(), whole.estimates())


def test_arms_added_are_there_in_questions_about_later():
    policy = timed(context_dim=3)
    played(policy, 30, times=np.zeros(30))
    assert policy.estimates(CONTEXTS[0], at=2 * HOUR).size == 9
    policy.add_arms(ARMS[:2])
    assert policy.estimates(CONTEXTS[0], at=2 * HOUR).size == 11
    assert np.array_equal(policy.bounds(CONTEXTS[0], at=2 * HOUR), policy.copy().bounds(CONTEXTS[0], at=2 * HOUR))


def test_another_seed_is_another_seed_in_questions_about_later():
    policy = HybridCSLB(ARMS, half_life="1h", explore="ts")
    played(policy, 20, times=np.arange(20.0))
    policy.select(at=4 * HOUR)
    policy.reseed(77)
    twin = policy.copy()
    for d in range(20):
        assert policy.select(at=4 * HOUR, decision=d) == twin.select(at=4 * HOUR, decision=d)


IDLE = [5, 100, 390, 400, 520, 664, 10**9]  # half-lives


@pytest.mark.parametrize("context_dim", [None, 3])
@pytest.mark.parametrize("idle", IDLE)
def test_a_long_pause_leaves_a_policy_that_goes_on(idle, context_dim):
    """Whatever was recorded fades to nothing; no number of half-lives may raise."""
    policy = HybridCSLB(ARMS, half_life="1h", context_dim=context_dim)
    played(policy, 30, times=np.linspace(0.0, 2 * HOUR, 30))
    context, at = context_of(policy, 5), (2 + idle) * HOUR
    bounds, estimates = policy.bounds(context, at=at), policy.estimates(context, at=at)
    assert np.isfinite(bounds).all() and np.isfinite(estimates).all()
    assert 0 <= policy.select(context, at=at) < 9
    for t in range(6):
        policy.update(t % 9, float(t % 3), context=context_of(policy, t), at=at + t * HOUR / 19)
    assert np.isfinite(policy.bounds(context)).all()
    assert policy.learned["noise"] > 0.0


def test_a_pause_never_makes_arms_look_certain():
    policy = HybridCSLB(ARMS, half_life="1h")
    played(policy, 30, times=np.linspace(0.0, 2 * HOUR, 30))
    widths = [policy.bounds(at=idle * HOUR) - policy.estimates(at=idle * HOUR) for idle in (2, 100, 600, 700)]
    for one, other in itertools.pairwise(widths):
        assert (other > 0.9 * one).all()
