"""Late rewards and batches: the laws of delay, the loop against a slow twin, what is refused."""

import re

import numpy as np
import pytest
from conftest import rounds

from sketchbandits import CSLB, OFUL, UCB1, LinTS, simulate
from sketchbandits.environments import LabelledEnvironment, LinearEnvironment, correlated_arms, uniform_parameter
from sketchbandits.environments.delays import fixed_delay, geometric_delay, heavy_tailed_delay

T = rounds(600, 120)


@pytest.fixture
def env():
    return LinearEnvironment(correlated_arms(n_arms=17, dim=6, seed=0), uniform_parameter(6, seed=0))


class Mine:
    """A user's own policy: no base class, nothing about pending."""

    def __init__(self, policy):
        self.policy, self.recorded = policy, []

    def select(self):
        return self.policy.select()

    def update(self, arm, reward):
        self.policy.update(arm, reward)
        self.recorded.append((arm, reward))


def test_delays_follow_their_laws():
    generator = np.random.default_rng(0)
    assert fixed_delay(7).draw(generator, 4).tolist() == [7] * 4
    n = 200_000
    geometric = geometric_delay(20.0).draw(generator, n)
    assert geometric.dtype == np.int64 and geometric.min() == 0
    assert geometric.mean() == pytest.approx(20.0, rel=0.02)
    assert (geometric >= 50).mean() == pytest.approx((20 / 21) ** 50, rel=0.03)
    heavy = heavy_tailed_delay(20.0, tail=3.0).draw(generator, n)
    assert heavy.mean() == pytest.approx(19.5, rel=0.03)
    assert (heavy >= 100).mean() == pytest.approx((1 + 100 / 40) ** -3.0, rel=0.05)
    assert heavy_tailed_delay(1e12, tail=1.0001).draw(generator, 1000).min() >= 0
    assert repr(geometric_delay(3)) == "Delay(name='geometric, mean 3')"


@pytest.mark.parametrize("delay", [fixed_delay(3), geometric_delay(9.0), heavy_tailed_delay(9.0)])
def test_delays_drawn_in_pieces_are_those_drawn_together(delay):
    one, other = np.random.default_rng(1), np.random.default_rng(1)
    whole = delay.draw(one, 50)
    assert np.array_equal(whole, np.concatenate([delay.draw(other, k) for k in (1, 0, 30, 19)]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fixed_delay(-1), "rounds must be a whole number >= 0, got -1"),
        (lambda: geometric_delay(0.0), "mean must be a number > 0 and <= 1e+100, got 0.0"),
        (lambda: heavy_tailed_delay(5.0, tail=1.0), "tail must be a number > 1 and <= 1e+100, got 1.0"),
        (lambda: fixed_delay(1).draw(0, 5), "generator must be a numpy.random.Generator, got 0"),
    ],
)
def test_bad_laws_are_refused(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        make()


def slow_loop(env, policy, delays, noise, batch, passed):
    """The definition: before each batch, record what has arrived, oldest arrival first; then choose the whole batch."""
    waiting, regret = [], 0.0  # (due, decision, arm, reward)
    for start in range(0, len(noise), batch):
        for late in sorted(late for late in waiting if late[0] <= start):
            policy.update(late[2], late[3])
            waiting.remove(late)
        pending = [arm for _, _, arm, _ in sorted(waiting, key=lambda late: late[1])]
        chosen = policy.select_many(batch, pending=pending) if passed else [policy.select()] * batch
        for t, arm in zip(range(start, min(start + batch, len(noise))), chosen, strict=False):
            regret += env.gaps[arm]
            waiting.append((t + 1 + delays[t], t, int(arm), float(env.means[arm] + noise[t])))
    return regret


@pytest.mark.parametrize("passed", [True, False])
@pytest.mark.parametrize("batch", [1, 7])
@pytest.mark.parametrize("delay", [None, fixed_delay(13), heavy_tailed_delay(20.0)])
def test_the_loop_is_the_slow_one(env, delay, batch, passed):
    policies = {"cs-lb": CSLB(env.arms, sketch_size=2, radius="logdet"), "ucb1": UCB1(env.arms)}
    counts = {}
    result = simulate(
        env, policies, rounds=T, seed=3, delay=delay, batch=batch, pending=passed, checkpoints=range(10, T, 37),
        after=lambda name, run, policy: counts.update({name: policy.counts}),
    )  # fmt: skip
    noise_seed, _, _, delay_seed = np.random.SeedSequence(3).spawn(1)[0].spawn(4)
    noise = env.draw_noise(np.random.default_rng(noise_seed), T)
    delays = np.zeros(T, int) if delay is None else delay.draw(np.random.default_rng(delay_seed), T)
    for name, policy in policies.items():
        slow = policy.copy()
        assert result.final_regret[name][0] == pytest.approx(slow_loop(env, slow, delays, noise, batch, passed))
        if delay is not None or batch > 1:  # outstanding rewards are dropped
            assert np.array_equal(counts[name], slow.counts)
            assert counts[name].sum() < T
        else:
            assert counts[name].sum() == T


@pytest.mark.parametrize("passed", [True, False])
def test_without_delay_nothing_changes(env, passed):
    policies = {"oful": OFUL(env.arms), "lints": LinTS(env.arms, seed=1)}
    plain = simulate(env, policies, rounds=T, runs=2, seed=4)
    late = simulate(env, policies, rounds=T, runs=2, seed=4, delay=fixed_delay(0), pending=passed)
    for name in policies:
        assert np.allclose(plain.regret[name], late.regret[name], rtol=1e-12)


def test_every_policy_meets_the_same_delays_and_runs_differ(env):
    policies = {"a": UCB1(env.arms), "b": UCB1(env.arms)}
    result = simulate(env, policies, rounds=T, runs=3, seed=4, delay=geometric_delay(15.0))
    assert np.array_equal(result.regret["a"], result.regret["b"])
    assert len(set(result.final_regret["a"])) == 3
    assert (result.seconds["a"] > 0).all()


def test_a_batch_with_pending_decisions_visits_every_arm_and_one_without_only_one(env):
    passed, without = (
        simulate(env, {"a": UCB1(env.arms)}, rounds=17, seed=1, batch=17, pending=pending).final_regret["a"][0]
        for pending in (True, False)
    )
    assert passed == pytest.approx(env.gaps.sum())
    assert without == pytest.approx(17 * env.gaps[0])


def test_a_users_own_policy_plays_naively_with_late_rewards(env):
    policies = {"library": OFUL(env.arms), "mine": Mine(OFUL(env.arms))}
    seen = {}
    result = simulate(
        env, policies, rounds=T, seed=2, delay=fixed_delay(30), batch=4, pending=False,
        after=lambda name, run, policy: seen.update({name: policy}),
    )  # fmt: skip
    assert np.allclose(result.regret["library"], result.regret["mine"], rtol=1e-12)
    assert len(seen["mine"].recorded) == seen["library"].counts.sum() == T - 34  # 4 of the last batch, 30 before it
    with pytest.raises(ValueError, match=r"policies\['mine'\] must have select_many, or pending must not be True"):
        simulate(env, policies, rounds=20, delay=fixed_delay(30), pending=True)


class Spreading(OFUL):
    """A policy that wants its pending decisions."""

    pending_by_default = True


class Repeating(OFUL):
    """A policy that does not."""

    pending_by_default = False


def test_each_policy_says_whether_it_is_passed_pending_decisions(env):
    policies = {"spreading": Spreading(env.arms), "repeating": Repeating(env.arms), "mine": Mine(Repeating(env.arms))}
    late = {"rounds": T, "seed": 2, "delay": fixed_delay(30), "batch": 4}
    default = simulate(env, policies, **late)
    without = simulate(env, policies, **late, pending=False)
    passed = simulate(env, {name: policies[name] for name in ("spreading", "repeating")}, **late, pending=True)
    assert np.array_equal(default.regret["spreading"], passed.regret["spreading"])
    assert np.array_equal(default.regret["repeating"], without.regret["repeating"])
    assert np.array_equal(default.regret["mine"], without.regret["mine"])
    assert not np.array_equal(without.regret["spreading"], passed.regret["spreading"])  # it matters here


def test_contexts_take_late_rewards_but_not_pending_decisions():
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3
    env = LabelledEnvironment(np.eye(7)[labels] + 0.1 * generator.normal(size=(60, 7)), labels)
    policies = {"oful": OFUL.contextual(dim=7, noise=0.1)}
    n = rounds(200, 60)
    plain = simulate(env, policies, rounds=n, seed=1)
    undelayed = simulate(env, policies, rounds=n, seed=1, delay=fixed_delay(0), pending=False)
    late = simulate(env, policies, rounds=n, seed=1, delay=fixed_delay(40), batch=3)
    assert np.array_equal(plain.regret["oful"], undelayed.regret["oful"])
    assert late.final_regret["oful"][0] > plain.final_regret["oful"][0]
    refusal = "pending must be False or None in a contextual environment with delay or batch, got True"
    for forced in (True, np.True_):
        with pytest.raises(ValueError, match=refusal):
            simulate(env, policies, rounds=9, batch=3, pending=forced)


class Strange:
    def __init__(self, values):
        self.values = values

    def draw(self, generator, size):
        return np.resize(self.values, size)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"delay": 5}, "delay must be None or have draw(generator, size), got 5"),
        ({"delay": Strange([1, -1])}, "delay must draw 20 whole numbers >= 0, got array"),
        ({"delay": Strange([1.5])}, "delay must draw 20 whole numbers >= 0, got array"),
        ({"batch": 0}, "batch must be a whole number >= 1, got 0"),
        ({"pending": 1}, "pending must be True, False or None, got 1"),
    ],
)
def test_bad_arguments_are_named(env, change, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        simulate(env, {"a": UCB1(env.arms)}, rounds=20, checkpoints=[20], **change)


def test_a_wrong_choice_is_reported(env):
    lost = Mine(None)
    lost.select = lambda: 99
    with pytest.raises(ValueError, match="selected arm 99, must be from 0 to 16"):
        simulate(env, {"a": lost}, rounds=5, batch=2, pending=False)
