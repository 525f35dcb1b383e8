"""Long runs do not drift, and no ridge or arm scale breaks a width: fast policies against extended precision."""

import mpmath
import naive
import numpy as np
import pytest
from conftest import JIT, rounds

from sketchbandits import CBSCFD, CSLB, OFUL, SOFUL, DBSLinUCB, LinTS, MultiscaleCSLB
from sketchbandits.environments import LinearEnvironment, correlated_arms, uniform_parameter
from sketchbandits.policies.cslb.layout import SLOT
from sketchbandits.policies.multiscale.state import (
    LENGTH,
    RAY,
    SHOWN,
    TARGET,
    THETA,
)
from sketchbandits.policies.rounds import MEAN, WIDTH2

CLUSTERING = (CSLB, MultiscaleCSLB)


def pull(policy, arm, rewards):
    """Record many rewards of one arm."""
    for part in np.array_split(rewards, max(1, rewards.size // 1_000_000)):
        policy.update_many(np.full(part.size, arm), part)


def statistics(policy):
    """Means and widths of every arm, in arm order."""
    stats = policy.state.stats
    if isinstance(policy, CLUSTERING):
        stats = stats[:, policy.state.place[SLOT]]
    return stats[MEAN], np.sqrt(stats[WIDTH2])


def sums(policy):
    total = policy.state.stats[2] + policy.state.stats[3]
    return total[policy.state.place[SLOT]] if isinstance(policy, CLUSTERING) else total


def sharp(policy, ridge, digits=80):
    """The same in extended precision, from counts and sums alone; a cluster of CS-LB sees its own arms only."""
    arms, counts, totals = policy.arms, policy.counts, sums(policy)
    groups = [np.arange(len(arms))]
    if isinstance(policy, CLUSTERING):
        groups = [policy.partition.members(c) for c in range(policy.partition.n_clusters)]
    means, widths = np.zeros(len(arms)), np.zeros(len(arms))
    for group in groups:
        means[group] = naive.sharp_means(arms[group], counts[group], totals[group], ridge, digits)
        widths[group] = naive.sharp_widths(arms[group], counts[group], ridge, digits)
    return means, widths


# The tests marked slow are of the whole length; the default run takes a tenth of it.
LENGTHS = [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)]


@pytest.mark.parametrize("total", LENGTHS)
@pytest.mark.parametrize(("ridge", "radius"), [(1e-3, "paper"), (1.0, "paper"), (1.0, "logdet"), (1e3, "paper")])
def test_long_runs_of_cslb_do_not_drift(ridge, radius, total):
    # Small d keeps the extended-precision twin affordable; a round does not depend on d.
    arms = correlated_arms(n_arms=21, dim=8, seed=1)
    env = LinearEnvironment(arms, uniform_parameter(8, seed=1))
    policy = CSLB(arms, sketch_size=3, ridge=ridge, radius=radius)
    generator = np.random.default_rng(2)
    for _ in range(10):
        policy.play_rounds(env.means, env.gaps, env.draw_noise(generator, rounds(total // 10, 30)))
    means, widths = statistics(policy)
    sharp_means, sharp_widths = sharp(policy, ridge)
    assert policy.counts.sum() == rounds(total, 300)
    assert np.allclose(widths, sharp_widths, rtol=1e-9, atol=0)
    assert np.abs(means - sharp_means).max() <= 1e-9 * np.abs(sharp_means).max()


@pytest.mark.parametrize("ridge", [1e-3, 1.0, 1e3])
def test_a_million_rounds_of_multiscale_do_not_drift(ridge):
    """Clusters, rays and the published fit of the space, each against extended precision."""
    arms = correlated_arms(n_arms=21, dim=8, seed=1)
    env = LinearEnvironment(arms, uniform_parameter(8, seed=1))
    policy = MultiscaleCSLB(arms, sketch_size=3, ridge=ridge)
    noise = env.draw_noise(np.random.default_rng(2), rounds(1_000_000, 300))
    policy.play_rounds(env.means, env.gaps, noise)
    means, widths = statistics(policy)
    sharp_means, sharp_widths = sharp(policy, ridge)
    assert np.allclose(widths, sharp_widths, rtol=1e-9, atol=0)
    assert np.abs(means - sharp_means).max() <= 1e-9 * np.abs(sharp_means).max()
    state, own = policy.state, policy.state.stats[:, policy.state.place[SLOT]]
    rays = own[RAY].astype(int)
    information, reward = state.rays["information"] + state.rays["information_lost"], state.rays["reward"]
    assert np.allclose(information[rays], policy.counts * own[LENGTH] ** 2, rtol=1e-12)
    assert np.allclose((reward + state.rays["reward_lost"])[rays], sums(policy) * own[LENGTH], rtol=1e-12, atol=1e-9)
    # The space's fit is of a prefix of the rewards: its factor must be that of its own right side, digit for digit.
    R = state.factor[SHOWN, :-2]
    V = R.T @ R
    assert np.allclose(V @ state.factor[SHOWN, THETA], R.T @ state.factor[SHOWN, TARGET], rtol=1e-9)
    assert np.allclose(state.space["logdet_shown"][0], np.linalg.slogdet(V / ridge)[1], rtol=1e-9)
    assert np.trace(V) <= (1 + 1e-12) * (8 * ridge + (policy.counts * (arms**2).sum(axis=1)).sum())


RIDGES = [1e-8, 1e-4, 1.0, 1e4, 1e8]
SCALES = [1e-6, 1.0, 1e6]


def few(arms, **options):
    return CSLB(arms, sketch_size=3, arm_norm=1e13, **options)


def many(arms, **options):
    return CSLB(arms, sketch_size=2, arm_norm=1e13, radius="logdet", **options)


def multiscale(arms, **options):
    return MultiscaleCSLB(arms, sketch_size=3, arm_norm=1e13, **options)


def norm_of_theta(scale):
    """A ``theta_norm`` that rewards near 1 do not contradict, with arms of this scale."""
    return max(1.0, 1.0 / scale)


@pytest.mark.parametrize("make", [few, many, multiscale, OFUL, LinTS], ids=lambda make: make.__name__)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("ridge", RIDGES)
def test_one_arm_pulled_many_times(make, ridge, scale):
    pull_one_arm(make, ridge, scale, total=rounds(30_000, 300))


@pytest.mark.parametrize("total", LENGTHS)
@pytest.mark.parametrize("make", [few, many], ids=lambda make: make.__name__)
@pytest.mark.parametrize("scale", [SCALES[0], SCALES[-1]])
@pytest.mark.parametrize("ridge", [RIDGES[0], RIDGES[-1]])
def test_one_arm_pulled_millions_of_times_where_rounding_is_worst(make, ridge, scale, total):
    pull_one_arm(make, ridge, scale, total=rounds(total, 300))


def pull_one_arm(make, ridge, scale, total):
    """One arm among nine gets nearly all pulls; means and widths of all stay exact."""
    generator = np.random.default_rng(3)
    arms = generator.normal(size=(9, 5)) * scale
    if make is many:  # powers of two keep parallel arms exactly parallel, which extended precision would notice
        arms = np.concatenate([arms[:3] * factor for factor in (1.0, 0.5, 2.0, 0.25)])
    policy = make(arms, ridge=ridge, theta_norm=norm_of_theta(scale))
    for arm in (4, 1):
        policy.update(arm, 0.3)
    pull(policy, 4, np.full(total, 0.7))
    policy.update(7, -0.2)
    means, widths = statistics(policy)
    sharp_means, sharp_widths = sharp(policy, ridge)
    assert np.isfinite(policy.bounds()).all()
    assert (widths > 0).all()
    assert np.allclose(widths, sharp_widths, rtol=1e-5, atol=0)
    assert np.abs(means - sharp_means).max() <= 1e-5 * np.abs(sharp_means).max()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("ridge", RIDGES)
def test_the_literal_engine_at_every_ridge_and_scale(ridge, scale):
    generator = np.random.default_rng(3)
    arms = generator.normal(size=(9, 5)) * scale
    policy = CSLB(arms, sketch_size=3, ridge=ridge, theta_norm=norm_of_theta(scale), engine="sketch")
    for arm in (4, 1):
        policy.update(arm, 0.3)
    pull(policy, 4, np.full(rounds(12_000, 100), 0.7))
    policy.update(7, -0.2)
    means, widths = statistics(policy)
    sharp_means, sharp_widths = sharp(policy, ridge)
    assert (widths > 0).all()
    assert np.allclose(widths, sharp_widths, rtol=1e-5, atol=0)
    assert np.abs(means - sharp_means).max() <= 1e-5 * np.abs(sharp_means).max()


@pytest.mark.parametrize("make", [SOFUL, CBSCFD, DBSLinUCB], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("ridge", RIDGES)
def test_lossless_sketches_at_every_ridge_and_scale(make, ridge, scale):
    generator = np.random.default_rng(3)
    arms = generator.normal(size=(9, 5)) * scale
    policy = make(arms, sketch_size=5, ridge=ridge, theta_norm=norm_of_theta(scale))
    for arm in (4, 1):
        policy.update(arm, 0.3)
    pull(policy, 4, np.full(rounds(20_000, 100), 0.7))
    policy.update(7, -0.2)
    means, widths = statistics(policy)
    sharp_means, sharp_widths = sharp(policy, ridge)
    assert np.isfinite(policy.bounds()).all()
    assert (widths > 0).all()
    assert np.allclose(widths, sharp_widths, rtol=1e-5, atol=0)
    assert np.abs(means - sharp_means).max() <= 1e-5 * np.abs(sharp_means).max()


@pytest.mark.parametrize("make", [SOFUL, CBSCFD, DBSLinUCB, OFUL], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("ridge", RIDGES)
def test_contextual_forms_at_every_ridge_and_scale(make, ridge, scale):
    generator = np.random.default_rng(3)
    contexts = generator.normal(size=(9, 5)) * scale
    options = {} if make is OFUL else {"sketch_size": 5}
    policy = make.contextual(dim=5, ridge=ridge, theta_norm=norm_of_theta(scale), radius="logdet", **options)
    counts = np.array([0, 3, 0, 0, rounds(2_000, 60), 0, 0, 1, 0])
    for arm in np.repeat(np.arange(9), counts):
        policy.update(contexts[arm], 0.5)
    estimate = policy._theta(policy.state.target) if make is OFUL else policy.state.theta
    beta = (policy.bounds(contexts) - contexts @ estimate) / naive.sharp_widths(contexts, counts, ridge)
    assert np.isfinite(beta).all()
    assert np.allclose(beta, beta[0], rtol=1e-4)  # the widths are right up to one common factor, the radius


@pytest.mark.parametrize("shrink", ["buffered", "every-round"])
@pytest.mark.parametrize("make", [SOFUL, CBSCFD], ids=lambda cls: cls.__name__)
@pytest.mark.parametrize(("scale", "ridge"), [(1.0, 1.0), (1e6, 1.0), (1e6, 1e-8), (1e9, 1.0), (1e-6, 1e-8)])
def test_means_of_a_sketch_that_loses_mass_are_those_of_its_own_matrix(make, shrink, scale, ridge):
    generator = np.random.default_rng(1)
    arms = generator.normal(size=(13, 8)) * scale
    policy = make(arms, sketch_size=3, ridge=ridge, shrink=shrink)
    sums = np.zeros(13)
    for _ in range(rounds(300, 60)):
        arm, reward = int(generator.integers(13)), float(generator.normal())
        policy.update(arm, reward)
        sums[arm] += reward
    assert policy.shrunk_mass > 0
    rows, alpha = policy.state.sketch.rows[: policy.state.sketch.size[0]], float(policy.state.sketch.level[1])
    with mpmath.workdps(60):
        S, X = mpmath.matrix(rows.tolist()), mpmath.matrix(arms.tolist())
        theta = mpmath.lu_solve(S.T * S + alpha * mpmath.eye(8), X.T * mpmath.matrix(sums.tolist()))
        exact = np.array([float(value) for value in X * theta])
    assert np.abs(statistics(policy)[0] - exact).max() <= 1e-9 * np.abs(exact).max()


def clustered(arms, **options):
    return CSLB(arms, sketch_size=2, **options)


@pytest.mark.parametrize("make", [OFUL, LinTS, clustered], ids=lambda make: make.__name__)
@pytest.mark.parametrize(("large", "small", "ridge"), [(1e8, 1e-4, 1e-12), (1e12, 1.0, 1.0), (1e6, 1e-6, 1e-8)])
def test_data_of_a_large_arm_never_make_the_bound_of_a_small_one_invalid(make, large, small, ridge):
    arms = np.array([[large, 0.0], [0.0, small]])
    policy = make(arms, ridge=ridge, theta_norm=1.0 / small, noise=0.01)
    policy.update(1, 0.5)
    pull(policy, 0, np.full(rounds(20_000, 200), 3.0))
    assert policy.bounds()[1] >= 0.5


@pytest.mark.parametrize(("scale", "ridge"), [(1e6, 1e-8), (1e12, 1.0), (1.0, 1e-8)])
def test_contextual_means_in_directions_never_seen(scale, ridge):
    contexts = np.random.default_rng(3).normal(size=(4, 3)) * scale
    policy, counts = OFUL.contextual(dim=3, ridge=ridge, radius="logdet"), np.array([rounds(5_000, 200), 1, 0, 0])
    for arm in np.repeat(np.arange(4), counts):
        policy.update(contexts[arm], 0.5)
    exact = naive.sharp_means(contexts, counts, 0.5 * counts, ridge)
    errors = np.abs(contexts @ policy._theta(policy.state.target) - exact)
    # A mean in a direction never seen is known to the width at best: with large arms and a small ridge, hardly at all.
    assert (errors <= 1e-9 * (np.abs(exact).max() + naive.sharp_widths(contexts, counts, ridge))).all()


def test_sums_of_rewards_are_exact():
    policy = CSLB(np.eye(3)[:2], sketch_size=2, noise=1e12)
    rewards = np.full(rounds(1_000_000, 1_000), 0.1)
    rewards[0] = 1e12
    pull(policy, 0, rewards)
    policy.update(0, -1e12)
    exact = 0.1 * (rewards.size - 1)
    assert abs(sums(policy)[0] - exact) <= 1e-12 * exact


@pytest.mark.skipif(not JIT, reason="the naive recursion is compiled for speed only")
def test_the_plain_recursion_would_fail_here():
    """The control: without whitening and refits the same recursion loses all digits after one pull."""
    arms = np.random.default_rng(3).normal(size=(3, 3)) * 1e6
    inverse, width2 = np.eye(3) / 1e-8, (arms**2).sum(axis=1) / 1e-8
    for _ in range(50):
        u = inverse @ arms[0]
        g, growth = arms @ u, 1 + arms[0] @ u
        inverse -= np.outer(u, u) / growth
        width2 = np.maximum(width2 - g**2 / growth, 0.0)
    sharp_width = naive.sharp_widths(arms, np.array([50, 0, 0]), 1e-8)[0]
    assert not np.isclose(np.sqrt(width2[0]), sharp_width, rtol=0.5)
