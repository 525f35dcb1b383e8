"""`diagnostics` and its warnings: ``noise`` and ``theta_norm`` that are too small are reported, right ones never."""

import copy
import pickle
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import naive
import numpy as np
import pytest
from catalogue import CONTEXTUAL, POLICIES
from conftest import rounds
from sklearn.datasets import load_digits

from sketchbandits import CBSCFD, CSLB, OFUL, SOFUL, UCB1, AssumptionWarning, DBSLinUCB, LinTS, LinUCB, MultiscaleCSLB
from sketchbandits.environments import LabelledEnvironment
from sketchbandits.policies import assumptions, contextual
from sketchbandits.policies.assumptions import Evidence, least_noise, rounded_up

N, D, SIZE = 20, 4, 3
MAKE = {
    "cslb": lambda arms, **given: CSLB(arms, sketch_size=SIZE, **given),
    "cslb-logdet": lambda arms, **given: CSLB(arms, sketch_size=SIZE, radius="logdet", **given),
    "cslb-sketch": lambda arms, **given: CSLB(arms, sketch_size=SIZE, engine="sketch", **given),
    "multiscale": MultiscaleCSLB,
    "oful": OFUL,
    "oful-rare": lambda arms, **given: OFUL(arms, switching=0.5, **given),
    "lints": LinTS,
    "soful": lambda arms, **given: SOFUL(arms, sketch_size=SIZE, **given),
    "cbscfd": lambda arms, **given: CBSCFD(arms, sketch_size=SIZE, **given),
    "dbslinucb": lambda arms, **given: DBSLinUCB(arms, sketch_size=SIZE, **given),
}
FORMS = {
    "oful": OFUL.contextual,
    "lints": LinTS.contextual,
    "soful": lambda **given: SOFUL.contextual(sketch_size=2 * D, **given),
    "cbscfd": lambda **given: CBSCFD.contextual(sketch_size=2 * D, **given),
    "dbslinucb": lambda **given: DBSLinUCB.contextual(sketch_size=2 * D, error=1e-3, **given),
    "multiscale": MultiscaleCSLB.contextual,
}


def game(seed=0, norm=1.0):
    generator = np.random.default_rng(seed)
    arms, theta = generator.normal(size=(N, D)), generator.normal(size=D)
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    return arms, arms @ theta * (norm / np.linalg.norm(theta)), generator


def play(policy, means, generator, rounds=1_500, noise=1.0):
    policy.play_rounds(means, means.max() - means, noise * generator.normal(size=rounds))
    return policy


def warned(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(w.category is AssumptionWarning and w.filename == __file__ for w in caught)
    return [str(w.message).split(": ")[1].split("=")[0] for w in caught]  # after the policy's name


@pytest.mark.parametrize("name", [*MAKE, "ucb1"])
def test_too_small_a_noise_is_reported_once_with_a_value_that_fits(name):
    arms, means, generator = game()
    make = {**MAKE, "ucb1": UCB1}[name]
    policy = make(arms, noise=0.3)
    assert warned(lambda: play(policy, means, generator)) == ["noise"]
    assert warned(lambda: play(policy, means, generator, rounds=5_000)) == []
    (violation,) = policy.diagnostics().violated
    assert (violation.parameter, violation.given) == ("noise", 0.3)
    assert 0.9 < violation.seen < 1.1 < violation.suggestion < 1.5
    assert warned(lambda: play(make(arms, noise=violation.suggestion), means, generator)) == []


@pytest.mark.parametrize("name", MAKE)
def test_too_small_a_theta_norm_is_reported_with_a_value_that_fits(name):
    arms, means, generator = game(norm=8.0)
    policy = MAKE[name](arms)
    assert warned(lambda: play(policy, means, generator)) == ["theta_norm"]
    (violation,) = policy.diagnostics().violated
    # Capped at 1, multi-scale CS-LB has no reason to look for the arms that show how much more there is: its
    # suggestion fits the rewards so far, and the next run may show more.
    assert (1.0 if name == "multiscale" else 5.0) < violation.seen < 8.0 and 4.0 < violation.suggestion < 14.0
    assert policy._norm(1.25, violation.suggestion, most=1e9).least <= violation.suggestion
    for _ in range(2 if name == "multiscale" else 1):
        suggestion = violation.suggestion
        policy = MAKE[name](arms, theta_norm=suggestion)
        more = warned(lambda policy=policy: play(policy, means, generator))
        if more:
            (violation,) = policy.diagnostics().violated
    assert more == [] and 5.0 < suggestion < 14.0


@pytest.mark.parametrize("name", [*MAKE, "ucb1"])
def test_right_values_never_warn(name):
    for seed in range(4):
        arms, means, generator = game(seed)
        policy = play({**MAKE, "ucb1": UCB1}[name](arms), means, generator)
        found = policy.diagnostics()
        assert not found.violated and found.least_noise < 1.0 and 0.8 < found.noise_seen < 1.2


def test_of_many_runs_none_with_the_right_noise_looks_violated_and_all_with_half_of_it_do():
    squares = np.random.default_rng(5).normal(size=(2_000, 1_024)).cumsum(axis=1) * 0.0
    squares += (np.random.default_rng(6).normal(size=squares.shape) ** 2).cumsum(axis=1)
    most = [
        max(least_noise(Evidence(n, row[n - 1], n, n, 1.0)) for n in (32, 40, 64, 128, 300, 512, 1_024))
        for row in squares
    ]
    assert max(most) < 1.0
    assert min(most) > 0.5  # a control: the same runs contradict a noise of a half


# ---------------------------------------------------------------------------------------------------- how often it errs
REWARDS = {  # each 0.5-sub-Gaussian around its mean, and no less
    "gaussian": lambda generator, mean: mean + 0.5 * generator.normal(),
    "uniform": lambda generator, mean: mean + generator.uniform(-0.5, 0.5),
    "bernoulli": lambda generator, mean: float(generator.random() < mean),
}
PLAYED = {
    **{name: MAKE[name] for name in ("cslb", "multiscale", "oful", "lints")},
    "ucb1": lambda arms, theta_norm, **given: UCB1(arms, **given),
    "oful-contexts": lambda arms, **given: OFUL.contextual(dim=D, **given),
    "multiscale-contexts": lambda arms, **given: MultiscaleCSLB.contextual(dim=D, **given),
}


def reported(name, kind, seed, *, noise=0.5, theta_norm=1.0):
    """What a policy reports that plays by its own choices; theta* has norm 1 and one arm has its direction."""
    generator = np.random.default_rng([seed, 7])
    arms, theta = np.abs(generator.normal(size=(12, D))), np.abs(generator.normal(size=D))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    arms[3] = theta = theta / np.linalg.norm(theta)
    policy, means = PLAYED[name](arms, noise=noise, theta_norm=theta_norm), arms @ theta

    def learn():
        for _ in range(rounds(300, 100)):
            if name.endswith("contexts"):
                arm = policy.select(arms)
                policy.update(arms[arm], REWARDS[kind](generator, means[arm]))
            else:
                arm = policy.select()
                policy.update(arm, REWARDS[kind](generator, means[arm]))

    return warned(learn)


@pytest.mark.parametrize("kind", REWARDS)
@pytest.mark.parametrize("name", PLAYED)
def test_right_parameters_are_reported_less_often_than_claimed(name, kind, monkeypatch):
    """Far too seldom to count at one in a million: so with a level that many runs can contradict."""
    runs, level = rounds(60, 5), 0.2
    assert [reported(name, kind, seed) for seed in range(runs // 5)] == [[]] * (runs // 5)
    for module in (assumptions, contextual):
        monkeypatch.setattr(module, "ALPHA", level)
    found = [parameter for seed in range(runs) for parameter in reported(name, kind, seed)]
    for parameter in ("noise", "theta_norm"):
        assert found.count(parameter) <= level * runs


@pytest.mark.parametrize("name", PLAYED)
def test_the_same_runs_contradict_wrong_parameters(name):
    """The control: a test that reports nothing would pass the one above."""
    runs = rounds(20, 2)
    assert [reported(name, "gaussian", seed, noise=0.2) for seed in range(runs)] == [["noise"]] * runs
    if name != "ucb1":
        found = [reported(name, "bernoulli", seed, theta_norm=0.2) for seed in range(runs)]
        # Capped at 0.2, multi-scale CS-LB may play many arms a few times each, which says less.
        assert found.count(["theta_norm"]) >= (runs / 2 if name == "multiscale" else runs)


@pytest.mark.parametrize("name", FORMS)
def test_a_contextual_form_reports_both(name):
    def learn(norm, **given):
        policy, generator = FORMS[name](dim=D, **given), np.random.default_rng(3)
        rows = generator.normal(size=(1_200, D))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        theta = np.full(D, norm / np.sqrt(D))
        found = warned(lambda: policy.update_many(rows, rows @ theta + generator.normal(size=len(rows))))
        return policy, found

    assert learn(1.0)[1] == []
    policy, found = learn(1.0, noise=0.3)
    assert found == ["noise"] and 1.0 < policy.diagnostics().violated[0].suggestion < 1.5
    policy, found = learn(8.0)
    assert found == ["theta_norm"] and 8.0 < policy.diagnostics().violated[0].suggestion < 13.0


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("n", [100, 400, 2_000])
def test_a_large_parameter_does_not_pass_for_noise(name, n):
    """The fit's own ridge would leave much of it over: of multi-scale's, 30 here, enough to report the noise."""
    dim, generator = 30, np.random.default_rng(3)
    sketch = {"sketch_size": 2 * dim} if name in ("soful", "cbscfd", "dbslinucb") else {}
    make = getattr({**FORMS, "soful": SOFUL, "cbscfd": CBSCFD, "dbslinucb": DBSLinUCB}[name], "contextual", FORMS[name])
    policy = make(dim=dim, **sketch)
    rows, theta = generator.normal(size=(n, dim)), generator.normal(size=dim)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rewards = rows @ theta * (30.0 / np.linalg.norm(theta)) + generator.normal(size=n)
    assert set(warned(lambda: policy.update_many(rows, rewards))) <= {"theta_norm"}
    found = policy.diagnostics()
    assert 0.8 < found.noise_seen < 1.3 and found.least_noise < 1.0
    assert n == 100 or [violation.parameter for violation in found.violated] == ["theta_norm"]


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("ridge", [1e-8, 1.0, 1e6])
def test_what_a_fit_leaves_over_is_that_of_least_squares_whatever_its_ridge(ridge, offset):
    generator = np.random.default_rng(1)
    rows = np.column_stack([generator.normal(size=(400, D)), np.ones(400)])
    rewards = rows @ np.arange(D + 1.0) + offset + generator.normal(size=400)
    policy = OFUL.contextual(dim=D + 1, ridge=ridge, radius="logdet", noise=1e3, theta_norm=1.0)
    policy.assumption_warnings = False
    policy.update_many(rows, rewards)
    left = rewards - rows @ np.linalg.lstsq(rows, rewards)[0]
    least = np.sqrt((left**2).sum() / (400 - D - 1))
    # What is kept of the ridge can only make it less: nothing is claimed where the digits are gone.
    assert policy.diagnostics().noise_seen <= least * (1 + 1e-3)
    assert offset or policy.diagnostics().noise_seen > 0.99 * least


def test_digits_whose_rewards_no_parameter_of_norm_one_explains_are_reported():
    digits = load_digits()
    env = LabelledEnvironment(digits.data, digits.target, target=3)
    policy, generator = OFUL.contextual(dim=64, noise=0.3, ridge=0.1), np.random.default_rng(0)
    rounds = [env.contexts(generator) for _ in range(400)]
    contexts, rewards = (np.concatenate(parts) for parts in zip(*rounds, strict=True))
    assert warned(lambda: policy.update_many(contexts, rewards)) == ["theta_norm"]
    assert policy.diagnostics().least_theta_norm > 1.0


@pytest.mark.parametrize("name", sorted(set(POLICIES) - {"hybrid", "hybrid-clusters"}))  # these learn the noise
@pytest.mark.parametrize("offset", [0.0, 1e9])
@pytest.mark.filterwarnings("ignore::sketchbandits.AssumptionWarning")
def test_the_scatter_is_that_of_the_slow_twin(name, offset, tmp_path):
    arms, means, generator = game(1)
    policy, slow = POLICIES[name](arms), naive.Scatter(N)
    for _ in range(3):
        played = generator.integers(N, size=60)
        rewards = offset + means[played] + generator.normal(size=played.size)
        policy.update_many(played, rewards)
        slow.record(played.tolist(), rewards.tolist())
        policy.save(tmp_path / "state.npz")
        policy = type(policy).load(tmp_path / "state.npz").copy()
    found = policy.diagnostics()
    assert (found.rewards, found.freedom) == (180, slow.freedom)
    np.testing.assert_allclose(found.noise_seen**2, slow.variance, rtol=1e-5 if offset else 1e-9)


@pytest.mark.parametrize("name", [*POLICIES, *(f"contextual-{name}" for name in CONTEXTUAL)])
def test_diagnostics_work_before_any_reward_and_change_nothing(name):
    contextual = name.removeprefix("contextual-")
    policy = CONTEXTUAL[contextual](D) if name.startswith("contextual") else POLICIES[name](game()[0])
    found = policy.diagnostics()
    assert (found.rewards, found.freedom, found.noise_seen, found.violated) == (0, 0, None, ())


@pytest.mark.parametrize("name", ["cslb-logdet", "multiscale", "oful", "ucb1"])
def test_arms_that_come_and_go_take_nothing_with_them(name):
    arms, means, generator = game()
    policy = play({**MAKE, "ucb1": UCB1}[name](arms), means, generator)
    before = policy.diagnostics()
    policy.add_arms(arms[:2][:, ::-1])
    policy.remove_arms([3, 5])
    policy.free_arms([3, 5])
    after = policy.diagnostics()
    assert (after.freedom, after.noise_seen) == (before.freedom, before.noise_seen)
    assert after.rewards == before.rewards or name == "ucb1"  # which keeps nothing of a freed arm
    if name in ("cslb-logdet", "multiscale"):
        moved = MAKE[name](arms)
        play(moved, means, generator)
        seen = moved.diagnostics().noise_seen
        moved.repartition(force=True)
        assert moved.diagnostics().noise_seen == seen


def test_a_warning_that_is_an_error_leaves_the_reward_recorded_and_comes_once():
    policy = UCB1(np.eye(2), noise=0.01)
    policy.update_many([0, 1] * 15, [0.0, 1.0, 1.0, 0.0] * 7 + [0.0, 1.0])
    policy.update(0, 1.0)
    with pytest.raises(AssumptionWarning, match=r"noise=0\.01 looks too small.*noise=0\.\d+ would fit"):
        policy.update(1, 1.0)
    assert policy.counts.sum() == 32
    policy.update_many([0, 1] * 100, [0.0, 1.0] * 100)


def test_a_copy_repeats_nothing_and_a_loaded_policy_may(tmp_path):
    arms, means, generator = game()
    policy = OFUL(arms, noise=0.3)
    fresh = policy.copy()
    assert warned(lambda: play(policy, means, generator)) == ["noise"]
    policy.save(tmp_path / "state.npz")
    loaded = OFUL.load(tmp_path / "state.npz")
    for twin in (policy.copy(), copy.deepcopy(policy), pickle.loads(pickle.dumps(policy))):
        assert warned(lambda twin=twin: play(twin, means, generator, rounds=5_000)) == []
    for other in (fresh, loaded):  # what another has reported is not known to them
        assert warned(lambda other=other: play(other, means, generator, rounds=5_000)) == ["noise"]


@pytest.mark.parametrize("session", [1, 10])
@pytest.mark.parametrize("name", ["oful", "multiscale-contexts"])
def test_a_policy_that_is_loaded_for_a_few_rewards_at_a_time_is_checked_too(name, session, tmp_path):
    arms, means, generator = game()
    policy, found = PLAYED[name](arms, noise=0.1, theta_norm=1.0), []
    for first in range(0, 140, session):
        policy.save(tmp_path / "state.npz")
        policy = type(policy).load(tmp_path / "state.npz")
        played = np.arange(first, first + session) % N
        given = arms[played] if name.endswith("contexts") else played
        rewards = means[played] + generator.normal(size=session)
        if warned(lambda policy=policy, given=given, rewards=rewards: policy.update_many(given, rewards)):
            found.append(first + session)
    # The doublings; at 32 too little is known, and at 40 of arms of which 20 rewards are the first.
    assert [n for n in found if n > 40] == ([64, 128] if session == 1 else [70, 130])


def test_threads_report_once():
    policy, start = OFUL.contextual(dim=D, noise=0.1), threading.Barrier(4)

    def learn(seed):
        generator = np.random.default_rng(seed)
        start.wait()
        for x in generator.normal(size=(300, D)):
            policy.update(x / np.linalg.norm(x), generator.normal())

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(learn, range(4)))
    assert [w.category for w in caught] == [AssumptionWarning]


def test_reading_checks_nothing():
    arms, _, generator = game()
    policy = OFUL(arms, noise=0.3)
    policy.update_many(generator.integers(N, size=31), generator.normal(size=31))
    before = {name: repr(value) for name, value in vars(policy).items() if name not in ("_lock", "_kept_bounds")}
    for read in (policy.select, policy.bounds, policy.estimates, policy.diagnostics, lambda: policy.select_many(3)):
        assert warned(read) == []
    after = {name: repr(value) for name, value in vars(policy).items() if name not in ("_lock", "_kept_bounds")}
    assert before == after


def test_a_watch_that_restarts_knows_no_earlier_scatter():
    arms, means, generator = game()
    policy = play(OFUL(arms), means, generator)
    policy.restart_watch()
    assert policy.diagnostics().freedom == 0
    play(policy, means, generator, rounds=400)
    assert policy.diagnostics().freedom <= 400 and 0.8 < policy.diagnostics().noise_seen < 1.2


def test_a_function_in_place_of_the_radius_and_a_constant_rest_on_no_parameter():
    arms, _, generator = game(norm=8.0)
    for policy in (OFUL(arms, noise=0.1, radius=lambda n, logdet: 1.0), LinUCB(arms)):
        assert warned(lambda policy=policy: policy.update_many([0, 1] * 50, generator.normal(size=100))) == []
        found = policy.diagnostics()
        assert found.noise is None and found.theta_norm is None and 0.5 < found.noise_seen < 1.5


def test_without_noise_rounding_is_no_scatter():
    policy = OFUL(np.eye(3), noise=0.0, theta_norm=1e6)
    policy.update_many([0, 1, 2] * 100, [0.1, 1e5 / 3, 7.7] * 100)
    assert policy.diagnostics().violated == ()


@pytest.mark.parametrize(("value", "expected"), [(1.0, 1.0), (1.01, 1.1), (0.0123, 0.013), (123.4, 130.0), (0.0, 0.0)])
def test_suggestions_have_two_digits(value, expected):
    assert rounded_up(value) == expected


@pytest.mark.parametrize("cls", [CSLB, MultiscaleCSLB])
def test_freeing_losers_does_not_contradict_a_right_theta_norm(cls):
    """A cluster whose arms are all freed takes its rewards along: those of the others are the lucky ones."""
    rng, theta = np.random.default_rng(3), np.ones(5) / np.sqrt(5.0)

    def drawn(count):
        rows = np.abs(rng.normal(size=(count, 5)))
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    policy = cls(drawn(20), sketch_size=1, **({"radius": "logdet"} if cls is CSLB else {}))
    for _ in range(12):
        ids = policy.add_arms(drawn(40))
        rewards = policy.arms[ids] @ theta + rng.normal(size=(2, ids.size))
        for some in rewards:
            policy.update_many(ids, some)  # a warning would be an error here
        losers = ids[rewards.sum(axis=0) < np.quantile(rewards.sum(axis=0), 0.75)]
        policy.remove_arms(losers)
        policy.free_arms(losers)
    assert not policy.diagnostics().violated


def test_the_check_bears_the_largest_ratio_of_noise_and_norm():
    policy = OFUL(np.eye(2), noise=1e100, theta_norm=1e-100)
    for t in range(70):
        policy.update(t % 2, float(t))
    assert not policy.diagnostics().violated
