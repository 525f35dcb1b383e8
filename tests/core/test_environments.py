"""Linear, labelled and replayed environments: each promise of their docstrings, and each refusal."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchbandits import environments
from sketchbandits.environments import (
    LabelledEnvironment,
    LinearEnvironment,
    ReplayEnvironment,
    correlated_arms,
    truncated_gaussian,
    uniform_parameter,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- the linear environment ----------------------------------------------------------------------------------------


def test_a_linear_environment_knows_its_means_gaps_and_best_arm() -> None:
    env = LinearEnvironment([[1, 0, 2], [0, 3, 0], [1, 1, 1], [0, 3, 0]], [0.5, 1.0, -0.25], noise=0.2)
    assert (env.n_arms, env.dim, env.noise_scale, env.contextual) == (4, 3, 0.2, False)
    np.testing.assert_allclose(env.means, [0.0, 3.0, 1.25, 3.0])
    np.testing.assert_allclose(env.gaps, [3.0, 0.0, 1.75, 0.0])
    assert env.best_arm == 1
    assert isinstance(env.best_arm, int)


@settings(deadline=None, derandomize=True, max_examples=50)
@given(n_arms=st.integers(1, 30), dim=st.integers(1, 12), seed=st.integers(0, 2**32))
def test_gaps_are_never_negative_and_vanish_at_the_best_arm(n_arms: int, dim: int, seed: int) -> None:
    draw = rng(seed)
    env = LinearEnvironment(draw.standard_normal((n_arms, dim)), draw.standard_normal(dim))
    assert env.gaps.min() == env.gaps[env.best_arm] == 0.0
    np.testing.assert_allclose(env.means + env.gaps, env.means[env.best_arm])


def test_a_linear_environment_keeps_read_only_copies() -> None:
    arms, theta = correlated_arms(n_arms=8, dim=5, seed=0), uniform_parameter(5, seed=0)
    env = LinearEnvironment(arms, theta)
    kept = env.arms.copy(), env.theta.copy()
    arms[:], theta[:] = 7.0, 7.0
    np.testing.assert_array_equal(env.arms, kept[0])
    np.testing.assert_array_equal(env.theta, kept[1])
    for array in (env.arms, env.theta, env.means, env.gaps):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0


def test_rewards_are_the_mean_plus_the_environments_noise() -> None:
    env = LinearEnvironment(correlated_arms(n_arms=8, dim=5, seed=0), uniform_parameter(5, seed=0), noise=0.3)
    np.testing.assert_array_equal(env.draw_noise(rng(3), 50), truncated_gaussian(rng(3), 50, scale=0.3))
    one_by_one, at_once = rng(4), env.draw_noise(rng(4), 6)
    rewards = [env.reward(arm, one_by_one) for arm in (0, 7, 7, 2, 5, 0)]
    np.testing.assert_array_equal(rewards, env.means[[0, 7, 7, 2, 5, 0]] + at_once)
    assert all(type(reward) is float for reward in rewards)
    assert LinearEnvironment(env.arms, env.theta, noise=0.0).reward(2, rng()) == env.means[2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LinearEnvironment([1.0, 2.0], [1.0]), r"arms must be .* 2-D .* got shape \(2,\)"),
        (lambda: LinearEnvironment(np.zeros((0, 2)), [1.0, 2.0]), r"arms must be a non-empty .* got shape \(0, 2\)"),
        (lambda: LinearEnvironment([[1.0, np.nan]], [1.0, 2.0]), r"arms must be finite, got nan at \[0, 1\]"),
        (lambda: LinearEnvironment([[1.0, 2.0]], [1.0]), r"theta must be .* length 2, got shape \(1,\)"),
        (lambda: LinearEnvironment([[1.0, 2.0]], [1.0, np.inf]), r"theta must be finite, got inf"),
        (lambda: LinearEnvironment([[1.0, 2.0]], [1.0, 2.0], noise=-1), r"noise must be a number >= 0 .* got -1"),
        (lambda: LinearEnvironment([[1.0, 2.0]], [1.0, 2.0]).reward(1, rng()), r"arm must be .* 0 to 0, got 1"),
        (lambda: LinearEnvironment([[1.0, 2.0]], [1.0, 2.0]).reward(-1, rng()), r"arm must be .* 0 to 0, got -1"),
        (lambda: LinearEnvironment([[1.0, 2.0]], [1.0, 2.0]).reward(0, 3), r"generator must be"),  # type: ignore[arg-type]
    ],
)
def test_linear_environments_refuse(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


# --- labelled data -------------------------------------------------------------------------------------------------

FEATURES = np.array([[3.0, 4.0, 0.0], [0.0, 0.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [5.0, 0.0, 0.0]])
LABELS = ["b", "a", "a", "b", "b"]


def test_digits_offer_one_instance_of_every_class_and_pay_for_the_target() -> None:
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    env = LabelledEnvironment(digits.data, digits.target, target=3)
    assert (env.n_arms, env.dim, env.target, env.contextual) == (10, 64, 3, True)
    unit = digits.data / np.linalg.norm(digits.data, axis=1, keepdims=True)
    classes_of: dict[bytes, set[int]] = {}
    for row, label in zip(unit, digits.target, strict=True):
        classes_of.setdefault(row.tobytes(), set()).add(int(label))
    generator = rng(1)
    for _ in range(300):
        contexts, expected = env.contexts(generator)
        assert contexts.shape == (10, 64)
        assert sorted(expected) == [0.0] * 9 + [1.0]
        labels = [classes_of[context.tobytes()] for context in contexts]  # a stranger to the data is a KeyError
        assert set().union(*labels) == set(range(10))
        assert [3 in label for label in labels] == (expected == 1.0).tolist()


def test_the_position_of_the_target_is_uniform() -> None:
    env = LabelledEnvironment(np.arange(1.0, 31.0).reshape(15, 2), np.arange(15) % 5)
    generator = rng(2)
    counts = np.bincount([env.contexts(generator)[1].argmax() for _ in range(3000)], minlength=5)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_instances_are_drawn_uniformly_from_their_class() -> None:
    labels = np.array([0, 1, 1, 0, 1, 1, 1])
    env = LabelledEnvironment(np.arange(1.0, 8.0)[:, None], labels, target=1, normalize=False)
    generator = rng(3)
    drawn = [env.contexts(generator)[0].ravel() for _ in range(3000)]
    counts = np.bincount(np.concatenate(drawn).astype(int), minlength=8)[1:]
    assert (counts[labels == 0].sum(), counts[labels == 1].sum()) == (3000, 3000)
    assert scipy.stats.chisquare(counts[labels == 0]).pvalue > 1e-3
    assert scipy.stats.chisquare(counts[labels == 1]).pvalue > 1e-3


def test_the_default_target_is_the_first_label_and_instances_are_scaled_to_unit_norm() -> None:
    env = LabelledEnvironment(FEATURES, LABELS)
    assert env.classes == ("a", "b")
    assert env.target == "a"
    generator = rng(4)
    seen = set()
    for _ in range(60):
        contexts, expected = env.contexts(generator)
        assert contexts[expected == 1.0][0].tolist() in ([0.0, 0.0, 1.0], [0.0, 0.0, 0.0])
        seen |= set(map(tuple, contexts.tolist()))
    np.testing.assert_allclose(sorted(seen), sorted([(0.6, 0.8, 0), (0, 0, 1), (0, 0, 0), (3**-0.5,) * 3, (1, 0, 0)]))


def test_contexts_follow_the_generator_and_alias_nothing() -> None:
    features, labels = FEATURES.copy(), np.array(LABELS)
    env, twin = (
        LabelledEnvironment(features, labels, normalize=False),
        LabelledEnvironment(FEATURES, LABELS, normalize=False),
    )
    features[:], labels[:] = 9.0, "b"
    one, other, stranger = rng(5), rng(5), rng(6)
    same = []
    for _ in range(20):
        contexts, expected = env.contexts(one)
        for array, again in zip((contexts, expected), twin.contexts(other), strict=True):
            np.testing.assert_array_equal(array, again)
        same.append(np.array_equal(contexts, env.contexts(stranger)[0]))
        contexts[:], expected[:] = -1.0, -1.0
    assert not all(same)


def test_labels_leave_no_noise() -> None:
    env, generator = LabelledEnvironment(FEATURES, LABELS), rng(0)
    np.testing.assert_array_equal(env.draw_noise(generator, (2, 3)), np.zeros((2, 3)))
    assert generator.random() == rng(0).random()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": [[1.0, np.nan]] * 5}, r"features must be finite, got nan"),
        ({"features": [1.0] * 5}, r"features must be .* 2-D .* got shape \(5,\)"),
        ({"labels": LABELS[:4]}, r"labels must be a 1-D array of 5 labels.* got shape \(4,\)"),
        ({"labels": [LABELS] * 5}, r"labels must be .* got shape \(5, 5\)"),
        ({"labels": [1] * 5}, r"labels must be .* at least 2 distinct values, got only .*1"),
        ({"labels": [0.0, 1.0, np.nan, 0.0, 1.0]}, r"labels must be .* got NaN"),
        ({"labels": np.array(["a", "b", None, "a", "b"], dtype=object)}, r"labels must be .* cannot be sorted"),
        ({"labels": [[1], [2, 3], [1], [1], [1]]}, r"labels must be"),
        ({"target": "c"}, r"target must be one of the labels \('a', 'b'\), got 'c'"),
        ({"target": np.array(["a", "b"])}, r"target must be one of the labels"),
        ({"normalize": "unit"}, r"normalize must be True or False, got 'unit'"),
    ],
)
def test_labelled_environments_refuse(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LabelledEnvironment(**{"features": FEATURES, "labels": LABELS, **options})


def test_a_seed_in_place_of_a_generator_is_refused() -> None:
    env = LabelledEnvironment(FEATURES, LABELS)
    with pytest.raises(ValueError, match=r"generator must be a numpy\.random\.Generator, got 0"):
        env.contexts(0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"generator must be a numpy\.random\.Generator, got None"):
        env.draw_noise(None, 3)  # type: ignore[arg-type]


# --- replay --------------------------------------------------------------------------------------------------------


LOG = (np.array([2, 0, 1, 0, 2, 0, 1, 2]), np.array([1.0, 0.5, 0.25, 0.0, 0.5, 0.25, 0.25, 0.0]))


def environment() -> ReplayEnvironment:
    return ReplayEnvironment(np.arange(15.0).reshape(3, 5), *LOG)


def test_means_and_gaps_are_those_of_the_log():
    env = environment()
    np.testing.assert_allclose(env.means, [0.25, 0.25, 0.5])
    np.testing.assert_allclose(env.gaps, [0.25, 0.25, 0.0])
    assert (env.n_arms, env.dim, env.best_arm, env.contextual) == (3, 5, 2, False)
    assert env.n_logged.tolist() == [3, 2, 3]


def test_a_pull_draws_the_arms_own_rewards_evenly():
    env, generator = environment(), np.random.default_rng(1)
    for arm in range(3):
        values, counts = np.unique([env.reward(arm, generator) for _ in range(3_000)], return_counts=True)
        own, expected = np.unique(LOG[1][LOG[0] == arm], return_counts=True)
        np.testing.assert_array_equal(values, own)
        np.testing.assert_allclose(counts / 3_000, expected / expected.sum(), atol=0.03)


def test_equal_generators_mean_equal_luck_whatever_the_arm():
    env = environment()
    first, second = np.random.default_rng(3), np.random.default_rng(3)
    for t in range(50):
        high, low = env.reward(2, first), env.reward(0, second)
        assert (high, low) in {(0.0, 0.0), (0.5, 0.25), (1.0, 0.5)}, t
    assert first.random() == second.random()


def test_noise_is_a_deviation_of_the_log():
    env = environment()
    deviations = LOG[1] - env.means[LOG[0]]
    noise = env.draw_noise(np.random.default_rng(0), 8_000)
    values, counts = np.unique(noise.round(12), return_counts=True)
    expected, weights = np.unique(deviations.round(12), return_counts=True)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_allclose(counts / 8_000, weights / 8, atol=0.02)
    assert noise.mean() == pytest.approx(0.0, abs=0.01)
    chunked = np.random.default_rng(0)
    parts = [env.draw_noise(chunked, size) for size in (3, 0, 5_000, 2_997)]
    np.testing.assert_array_equal(np.concatenate(parts), noise)


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (([0, 1, 2], [1.0, 2.0]), r"logged_arms must be 2 whole numbers from 0 to 2, .* got shape \(3,\)"),
        (([0.0, 1.0], [1.0, 2.0]), r"logged_arms must be 2 whole numbers .* of float64"),
        (([0, 3], [1.0, 2.0]), r"logged_arms must be 2 whole numbers from 0 to 2, .* got 3"),
        (([0, -1], [1.0, 2.0]), r"logged_arms must be .* got -1"),
        (([0, 2], [1.0, 2.0]), r"logged_arms must have every arm from 0 to 2, got none of 1"),
        (([0, 1], [1.0, np.nan]), r"logged_rewards must be finite, got nan"),
        (([], []), r"logged_rewards must be a 1-D array of numbers, got shape \(0,\)"),
    ],
)
def test_a_log_that_cannot_be_replayed_is_refused(log, message):
    with pytest.raises(ValueError, match=message):
        ReplayEnvironment(np.ones((3, 5)), *log)


def test_a_replay_refuses():
    env = environment()
    with pytest.raises(ValueError, match="arm must be a whole number from 0 to 2, got 3"):
        env.reward(3, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"generator must be a numpy\.random\.Generator, got 0"):
        env.reward(1, 0)
    with pytest.raises(ValueError, match="generator must be"):
        env.draw_noise(None, 3)
    with pytest.raises(ValueError, match="read-only"):
        env.means[0] = 1.0


def test_every_exported_name_exists_and_is_documented() -> None:
    assert sorted(environments.__all__) == environments.__all__
    assert all(getattr(environments, name).__doc__ for name in environments.__all__)
