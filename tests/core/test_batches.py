"""Batches of rewards: messages, all or nothing, replays against a slow twin, contexts."""

import re

import numpy as np
import pytest
from catalogue import CONTEXTUAL, POLICIES, half_radius
from conftest import rounds

from sketchbandits import CBSCFD, CSLB, OFUL, SOFUL, UCB1, LinTS
from sketchbandits.snapshot import leaves

N, D = 9, 5
ARMS = np.random.default_rng(0).normal(size=(N, D)) / 4
WITH_FUNCTION = {
    "cslb": lambda radius: CSLB(ARMS, sketch_size=2, radius=radius),
    "oful": lambda radius: OFUL(ARMS, radius=radius),
    "soful": lambda radius: SOFUL(ARMS, sketch_size=2, radius=radius, seed=0),
}


def memory(policy):
    return {name: part.tobytes() for name, part in leaves(policy.state) if not name.endswith(".work")}


def uniform_log(size, seed=1):
    """Arms drawn uniformly at random, with noisy rewards; the parameter has norm 1."""
    generator = np.random.default_rng(seed)
    arms, theta = generator.integers(0, N, size), generator.normal(size=D)
    return arms, ARMS[arms] @ theta / np.linalg.norm(theta) + 0.3 * generator.normal(size=size)


def slow_replay(policy, arms, rewards, learn):
    """Li, Chu, Langford and Wang's replay, literally; returns choices and the rewards that were kept."""
    choices, kept = [], []
    for arm, reward in zip(arms.tolist(), rewards.tolist(), strict=True):
        choices.append(policy.select())
        if learn == "matches" and choices[-1] != arm:
            continue
        policy.update(arm, reward)
        kept.append(reward)
    return choices, kept


BAD = [
    ([0, 1, N], [1, 1, 1], f"arms[2] must be a whole number from 0 to {N - 1}, got {N}"),
    ([0, -1, -2], [1, 1, 1], f"arms[1] must be a whole number from 0 to {N - 1}, got -1"),
    ([0, 1, 2.0], [1, 1, 1], f"arms[2] must be a whole number from 0 to {N - 1}, got 2.0"),
    (np.array([0.0, 1.0]), [1, 1], f"arms[0] must be a whole number from 0 to {N - 1}, got 0.0"),
    ([0, True], [1, 1], f"arms[1] must be a whole number from 0 to {N - 1}, got True"),
    (np.array([True, False]), [1, 1], f"arms[0] must be a whole number from 0 to {N - 1}, got True"),
    (["3", "4"], [1, 1], f"arms[0] must be a whole number from 0 to {N - 1}, got '3'"),
    ([1, None], [1, 1], f"arms[1] must be a whole number from 0 to {N - 1}, got None"),
    ([1, 2**70], [1, 1], f"arms[1] must be a whole number from 0 to {N - 1}, got {2**70}"),
    (np.array([1, 2**63], np.uint64), [1, 1], f"arms[1] must be a whole number from 0 to {N - 1}, got {2**63}"),
    (np.array([1, 2], "m8[ns]"), [1, 1], "arms must be a 1-D array of whole numbers, got an array of timedelta64[ns]"),
    ([[0, 1], [2]], [1, 1], "arms must be a 1-D array of whole numbers, got a ragged sequence"),
    ([[0, 1]], [1, 1], "arms must be a 1-D array of whole numbers, got shape (1, 2)"),
    (3, [1], "arms must be a 1-D array of whole numbers, got 3"),
    ([0, 1], [1.0, np.nan], "rewards[1] must be a number >= -1e+100 and <= 1e+100, got nan"),
    ([0, 1], np.array([np.inf, 1.0]), "rewards[0] must be a number >= -1e+100 and <= 1e+100, got inf"),
    ([0, 1], [0.0, -1e101], "rewards[1] must be a number >= -1e+100 and <= 1e+100, got -1e+101"),
    ([0, 1], [1.0, "2"], "rewards[1] must be a number >= -1e+100 and <= 1e+100, got '2'"),
    ([0, 1], [1.0, 2.0 + 1j], "rewards[1] must be a number >= -1e+100 and <= 1e+100, got (2+1j)"),
    ([0, 1], np.array([1, 2], "M8[s]"), "rewards must be a 1-D array of numbers, got an array of datetime64[s]"),
    ([0, 1], 0.5, "rewards must be a 1-D array of numbers, got 0.5"),
    ([0, 1], [0.5], "rewards must have as many entries as arms, 2, got 1"),
    ([], [0.5], "rewards must have as many entries as arms, 0, got 1"),
]


@pytest.mark.parametrize(("arms", "rewards", "message"), BAD)
def test_a_bad_batch_is_refused_by_argument_position_value_and_what_is_allowed(arms, rewards, message):
    policy = UCB1(ARMS)
    policy.update(3, 0.5)
    before = memory(policy)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        policy.update_many(arms, rewards)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        policy.play((arms, rewards), learn="matches")
    assert memory(policy) == before


@pytest.mark.parametrize("batch", [None, 5, [0], ([0], [1.0], [2])])
def test_a_batch_to_play_is_a_pair(batch):
    with pytest.raises(ValueError, match=r"^batch must be a pair \(arms, rewards\), got a "):
        UCB1(ARMS).play(batch)


def test_learn_is_one_of_two_words():
    with pytest.raises(ValueError, match="learn must be one of 'all', 'matches', got True"):
        UCB1(ARMS).play(([0], [1.0]), learn=True)


@pytest.mark.parametrize(
    ("arms", "rewards"),
    [
        ([0, 7, 3], [1.0, -2.0, 0.5]),
        ((0, 7, 3), (1, -2, 0.5)),
        ([0, np.int8(7), 3], [1, np.float32(-2), 0.5]),
        (np.array([0, 7, 3], np.uint8), np.array([1, -2, 0.5], np.float16)),
        (np.array([0, 9, 7, 9, 3, 9])[::2], np.array([1, -2, 0.5], np.longdouble)),
        (np.array([0, 7, 3], object), np.array([1, -2, 0.5], object)),
    ],
)
def test_every_kind_of_sequence_is_recorded_alike(arms, rewards):
    single, batch = UCB1(ARMS), UCB1(ARMS)
    for arm, reward in ((0, 1.0), (7, -2.0), (3, 0.5)):
        single.update(arm, reward)
    batch.update_many(arms, rewards)
    assert memory(batch) == memory(single)


def test_the_callers_arrays_are_neither_changed_nor_kept():
    arms, rewards = uniform_log(50)
    mine = arms.copy(), rewards.copy()
    policy = OFUL(ARMS)
    choices = policy.play((arms, rewards))
    policy.update_many(arms, rewards)
    assert np.array_equal(arms, mine[0]) and np.array_equal(rewards, mine[1])
    before = memory(policy)
    arms[:], rewards[:], choices[:] = 0, 7.0, 0
    assert memory(policy) == before


@pytest.mark.parametrize("make", [POLICIES["cslb"], POLICIES["lints"], WITH_FUNCTION["oful"]])
def test_an_empty_batch_changes_nothing(make):
    policy = make(half_radius if make is WITH_FUNCTION["oful"] else ARMS)
    policy.update(2, 0.5)
    before = memory(policy)
    policy.update_many([], [])
    policy.update_many(np.zeros(0, np.int64), np.zeros(0))
    choices = policy.play(([], []))
    assert memory(policy) == before
    assert choices.shape == (0,) and choices.dtype == np.int64


@pytest.mark.parametrize("learn", ["all", "matches"])
@pytest.mark.parametrize("name", ["cslb", "cslb-logdet", "cslb-sketch", "oful-rare", "lints", "soful-ts", "ucb1"])
def test_a_replay_follows_the_slow_one(name, learn):
    arms, rewards = uniform_log(rounds(2_000, 120))
    slow, fast = POLICIES[name](ARMS), POLICIES[name](ARMS)
    expected, kept = slow_replay(slow, arms, rewards, learn)
    choices = fast.play((arms, rewards), learn=learn)
    assert choices.tolist() == expected
    assert memory(fast) == memory(slow)
    own = choices == arms if learn == "matches" else np.ones(arms.size, bool)
    assert rewards[own].tolist() == kept
    assert fast.counts.sum() == own.sum()
    if learn == "matches":
        assert 0 < own.sum() < arms.size


def test_the_replay_of_a_uniform_log_is_unbiased_and_that_of_a_filtered_log_is_not():
    """A policy that always plays one arm earns that arm's mean; where the log hides its bad rounds, it seems better."""
    generator = np.random.default_rng(2)
    arms = generator.integers(0, N, 60_000 if rounds(1, 0) else 4_000)
    rewards = arms / N + generator.normal(size=arms.size)

    class Fixed(UCB1):
        def select(self):
            return 4

    def estimate(shown):
        choices = Fixed(ARMS).play((arms[shown], rewards[shown]), learn="matches")
        return rewards[shown][choices == arms[shown]].mean()

    error = 5 / np.sqrt(arms.size / N)
    assert abs(estimate(np.ones(arms.size, bool)) - 4 / N) < error
    assert abs(estimate((arms != 4) | (rewards > 0.0)) - 4 / N) > error


@pytest.mark.parametrize("name", WITH_FUNCTION)
def test_a_radius_function_is_asked_after_every_reward_of_a_batch(name):
    arms, rewards = uniform_log(60)
    for learn in ("all", "matches"):
        slow, fast = WITH_FUNCTION[name](half_radius), WITH_FUNCTION[name](half_radius)
        expected, _ = slow_replay(slow, arms, rewards, learn)
        assert fast.play((arms, rewards), learn=learn).tolist() == expected
        assert memory(fast) == memory(slow)
    single, batch = WITH_FUNCTION[name](half_radius), WITH_FUNCTION[name](half_radius)
    slow_replay(single, arms, rewards, "all")
    batch.update_many(arms, rewards)
    assert memory(batch) == memory(single)


@pytest.mark.parametrize("name", WITH_FUNCTION)
def test_a_radius_function_that_fails_in_a_batch_leaves_all_of_it_unrecorded(name):
    def fragile(n, logdet):
        return float("nan") if n >= 6 else 1.0

    policy = WITH_FUNCTION[name](fragile)
    policy.update_many([0, 0], [1.0, 0.5])
    before, bounds = memory(policy), policy.bounds()
    for call in (policy.update_many, lambda *batch: policy.play(batch)):
        with pytest.raises(ValueError, match=r"the value of radius\(6, "):
            call([0] * 5, [1.0] * 5)
        assert memory(policy) == before
        assert np.array_equal(policy.bounds(), bounds)
    policy.update_many([0] * 3, [1.0] * 3)
    assert policy.counts[0] == 5


class Counting(UCB1):
    """Books on its own terms: half of each reward, and it counts them; it refuses the number 13."""

    def __init__(self, arms):
        super().__init__(arms)
        self.recorded = 0

    def update(self, arm, reward):
        self.recorded += 1
        if reward == 13.0:
            raise RuntimeError("unlucky")
        super().update(arm, reward / 2)


def test_a_subclass_that_overrides_update_is_not_bypassed_and_rolled_back():
    arms, rewards = uniform_log(40)
    batch, replay, halved = Counting(ARMS), Counting(ARMS), UCB1(ARMS)
    batch.update_many(arms, rewards)
    replay.play((arms, rewards))
    halved.update_many(arms, rewards / 2)
    assert batch.recorded == replay.recorded == 40
    assert memory(batch) == memory(replay) == memory(halved)
    for call in (batch.update_many, lambda *log: batch.play(log)):
        with pytest.raises(RuntimeError, match="unlucky"):
            call([1, 2, 3], [1.0, 13.0, 1.0])
        assert batch.recorded == 40 and memory(batch) == memory(halved)


def test_a_subclass_that_overrides_select_replays_its_own_choices():
    class Stubborn(OFUL):
        def select(self):
            return 3

    arms, rewards = uniform_log(80)
    policy = Stubborn(ARMS)
    assert set(policy.play((arms, rewards), learn="matches")) == {3}
    assert policy.counts.sum() == policy.counts[3] == (arms == 3).sum()


CONTEXTS = np.random.default_rng(3).normal(size=(7, D)) / 4


def spoiled(value):
    return np.where(np.arange(7)[:, None] == 4, value, CONTEXTS)


@pytest.mark.parametrize(
    ("contexts", "rewards", "message"),
    [
        (
            spoiled(np.nan),
            np.ones(7),
            "contexts[4] must be finite, got nan at [0]",
        ),
        (
            spoiled(1e200),
            np.ones(7),
            "contexts[4] must be vectors that are zero",
        ),
        (9 * np.eye(D)[[0, 1]] * [[0.1], [1]], [1, 1], "contexts must have norm <= arm_norm = 1, got 9 at [1]"),
        ([[0.1] * D, [0.1] * (D + 1)], [1, 1], f"contexts[1] must be a 1-D array of numbers of length {D}, got shape"),
        (CONTEXTS[0], [1.0], f"contexts must be a non-empty 2-D array of numbers with {D} columns, got shape ({D},)"),
        (np.zeros((0, D + 1)), [], f"contexts must be a non-empty 2-D array of numbers with {D} columns, got shape (0"),
        (None, [1.0], f"contexts must be a non-empty 2-D array of numbers with {D} columns, got None of type NoneType"),
        (CONTEXTS, [1, 1, 1, np.inf, 1, 1, 1], "rewards[3] must be a number >= -1e+100 and <= 1e+100, got inf"),
        (CONTEXTS, np.ones(6), "rewards must have as many entries as contexts, 7, got 6"),
    ],
)
def test_a_bad_batch_of_contexts_is_refused_and_changes_nothing(contexts, rewards, message):
    policy = OFUL.contextual(dim=D)
    policy.update(CONTEXTS[0], 0.5)
    before = memory(policy)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        policy.update_many(contexts, rewards)
    assert memory(policy) == before


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_empty_batches_of_contexts_change_nothing(name):
    policy = CONTEXTUAL[name](D)
    policy.update(CONTEXTS[0], 0.5)
    before = memory(policy)
    for empty in ([], (), np.zeros(0), np.zeros((0, D))):
        policy.update_many(empty, [])
    assert memory(policy) == before


@pytest.mark.parametrize("make", [OFUL.contextual, lambda **options: CBSCFD.contextual(sketch_size=2, **options)])
def test_a_radius_function_on_contexts_is_asked_each_time_and_rolls_back(make):
    def fragile(n, logdet):
        return float("nan") if n >= 5 else 1.0 + n

    single, batch = (make(dim=D, radius=fragile, seed=0) for _ in range(2))
    for context in CONTEXTS[:4]:
        single.update(context, 0.5)
    batch.update_many(CONTEXTS[:4], np.full(4, 0.5))
    assert memory(single) == memory(batch)
    shorter = make(dim=D, radius=fragile)
    shorter.update(CONTEXTS[0], 0.5)
    before = memory(shorter)
    with pytest.raises(ValueError, match=r"the value of radius\(5, "):
        shorter.update_many(CONTEXTS, np.ones(7))
    assert memory(shorter) == before


def test_a_contextual_subclass_that_overrides_update_is_not_bypassed():
    policy = OFUL.contextual(dim=D, seed=0)

    class Halving(type(policy)):
        def update(self, context, reward):
            if reward == 13.0:
                raise RuntimeError("unlucky")
            super().update(context, reward / 2)

    policy.__class__, twin = Halving, OFUL.contextual(dim=D, seed=0)
    policy.update_many(CONTEXTS, np.arange(7.0))
    twin.update_many(CONTEXTS, np.arange(7.0) / 2)
    assert memory(policy) == memory(twin)
    with pytest.raises(RuntimeError, match="unlucky"):
        policy.update_many(CONTEXTS[:2], [1.0, 13.0])
    assert memory(policy) == memory(twin)


def test_thompson_draws_of_a_replay_are_those_of_the_loop():
    arms, rewards = uniform_log(rounds(500, 100), seed=5)
    loop, replay, other = LinTS(ARMS, seed=4), LinTS(ARMS, seed=4), LinTS(ARMS, seed=5)
    expected, _ = slow_replay(loop, arms, rewards, "matches")
    assert replay.play((arms, rewards), learn="matches").tolist() == expected
    assert other.play((arms, rewards), learn="matches").tolist() != expected


def test_masked_entries_are_refused():
    policy = UCB1(np.eye(3))
    masked = np.ma.array([0.5, 0.7], mask=[False, True])
    with pytest.raises(ValueError, match="rewards must be a 1-D array of numbers without masked entries"):
        policy.update_many([0, 1], masked)
    assert policy.counts.tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"arms must be .* without masked entries"):
        UCB1(np.ma.array(np.eye(2), mask=np.eye(2)))
