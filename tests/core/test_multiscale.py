"""Multi-scale CS-LB: against its slow twin, coverage of every scale and of all together, radii, and the budget.

Coverage is tested as in `test_statistics`: the ellipsoids, not the arms; and on the same data controls must fail.
"""

import itertools
import math
import time

import naive
import numpy as np
import pytest
from conftest import JIT, rounds
from hypothesis import given
from hypothesis import strategies as st
from test_properties import examples

from sketchbandits import MultiscaleCSLB, Partition
from sketchbandits.confidence import ellipsoid_radius, mixture_radius
from sketchbandits.environments import LinearEnvironment, correlated_arms, subspace_arms, uniform_parameter
from sketchbandits.policies.cslb.layout import SLOT
from sketchbandits.policies.multiscale.space import look
from sketchbandits.policies.multiscale.state import BOUND, SHOWN, THETA
from sketchbandits.snapshot import leaves


def memory(policy):
    return {name: part.tobytes() for name, part in leaves(policy.state) if not name.endswith(".work")}


# ------------------------------------------------------------------------------------------------------------ the twin
def with_odd_arms(first_is_zero=False):
    """A zero arm, a duplicate, an arm of opposite direction, arms of several lengths."""
    arms = correlated_arms(n_arms=29, dim=5, seed=5)
    arms[3], arms[7], arms[11] = 0.0, arms[6], -2.0 * arms[6]
    if first_is_zero:
        arms[0] = 0.0
    return arms / np.linalg.norm(arms, axis=1).max()


def low_rank_arms(n, d, rank, noise):
    """Arms off a random plane by ``noise`` of their norm; the largest norm is 1."""
    rng = np.random.default_rng(3)
    arms = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, d))
    arms += noise * np.linalg.norm(arms, axis=1, keepdims=True) * rng.normal(size=(n, d)) / math.sqrt(d)
    return arms / np.linalg.norm(arms, axis=1).max()


ARMS = {
    "max": lambda: correlated_arms(n_arms=23, dim=7, normalize="max", seed=3),
    "max-groups": lambda: correlated_arms(n_arms=23, dim=7, group_size=4, normalize="max", seed=3),
    "unit": lambda: correlated_arms(n_arms=23, dim=7, normalize="unit", seed=3),
    "unit-groups": lambda: correlated_arms(n_arms=23, dim=7, group_size=4, normalize="unit", seed=3),
    "odd": with_odd_arms,
    "zero-first": lambda: with_odd_arms(first_is_zero=True),
    "low-rank": lambda: subspace_arms(n_arms=12, dim=17, n_subspaces=2, rank=3, shuffle=True, seed=2),  # N < d
    "independent": lambda: correlated_arms(n_arms=6, dim=9, seed=1),  # independent, yet far from orthogonal
    "near-low-rank": lambda: low_rank_arms(n=19, d=11, rank=2, noise=0.01),
}
OPTIONS = {
    "default": {},
    "optimism": {"explore": "optimism"},
    "logdet": {"ridge": 0.6, "radius": "logdet", "budget": 60, "explore": "optimism"},
    "logdet-randomised": {"radius": "logdet", "budget": 1_000},
    "poor": {"ridge": 0.6, "budget": 5, "explore": "optimism"},
    "none": {"budget": 0, "radius": "logdet"},
    "none-optimism": {"budget": 0, "explore": "optimism"},
}
COMMON = {"sketch_size": 3, "noise": 0.7, "theta_norm": 1.3, "delta": 0.05}


def assert_same_scales(fast, slow):
    for name, theirs in slow.scales().items():
        mine, known = fast.scales()[name], np.isfinite(theirs)
        assert np.array_equal(known, np.isfinite(mine)), name
        assert np.allclose(mine[known], theirs[known], rtol=1e-9, atol=1e-9), name


def play_both(X, options, total):
    """Policy and twin on the same rewards, every third of them for another arm than the one chosen."""
    fast, slow = MultiscaleCSLB(X, **options), naive.NaiveMultiscale(X, **options)
    means, generator = X @ uniform_parameter(X.shape[1], seed=4), np.random.default_rng(9)
    for t in range(total):
        assert fast.select() == slow.select(), f"round {t + 1}"
        arm = fast.select() if t % 3 else int(generator.integers(len(X)))
        reward = float(means[arm] + 0.7 * generator.normal())
        fast.update(arm, reward)
        slow.update(arm, reward)
        if t % 100 == 0:
            assert_same_scales(fast, slow)
    assert_same_scales(fast, slow)
    assert np.allclose(fast.bounds(), slow.bounds(), rtol=1e-9, atol=1e-9)
    assert fast.state.space["bank"][0] == slow.bank
    assert fast.state.space["version"][0] == slow.version
    return slow


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("arms", ARMS)
def test_same_arm_as_the_twin_in_every_round(arms, options):
    X = ARMS[arms]()
    total = rounds(100, 60)
    slow = play_both(X, {**COMMON, **OPTIONS[options]}, total)
    one_publication = (1.5 + 0.5 * len(X) * slow.draws) * slow.D**2
    assert slow.spent <= slow.budget * total + one_publication
    assert (slow.D > 0) == (not options.startswith("none"))
    assert (slow.version > 0) == (slow.D > 0 and options != "poor") or options == "poor"


@pytest.mark.parametrize("normalize", ["max", "unit"])
def test_same_arm_as_the_twin_in_thousands_of_rounds(normalize):
    X = correlated_arms(n_arms=13, dim=5, group_size=2, normalize=normalize, seed=6)
    slow = play_both(X, {**COMMON, "sketch_size": 2, "budget": 100}, rounds(2_000, 150))
    assert slow.version >= rounds(100, 10)


def test_as_many_clusters_as_need_a_tree():
    X = np.random.default_rng(12).normal(size=(140, 6))
    slow = play_both(X / np.linalg.norm(X, axis=1, keepdims=True), {**COMMON, "sketch_size": 2}, rounds(40, 12))
    assert slow.K > 64


@pytest.mark.parametrize("radius", ["mixture", "logdet"])
@pytest.mark.parametrize("budget", [0, 100, 2048])
def test_the_compiled_loop_equals_single_updates(radius, budget):
    arms = correlated_arms(n_arms=60, dim=11, group_size=4, seed=5)
    env = LinearEnvironment(arms, uniform_parameter(11, seed=5))
    noise = env.draw_noise(np.random.default_rng(5), rounds(4_000, 60))
    own, single = (MultiscaleCSLB(arms, sketch_size=3, radius=radius, budget=budget) for _ in range(2))
    regret = own.play_rounds(env.means, env.gaps, noise)
    expected = 0.0
    for value in noise.tolist():
        arm = single.select()
        expected += env.gaps[arm]
        single.update(arm, float(env.means[arm]) + value)
    assert regret == expected and memory(own) == memory(single)


def test_a_partition_made_beforehand_is_used():
    arms = subspace_arms(n_arms=41, dim=9, n_subspaces=3, rank=3, shuffle=True, seed=1)
    partition = Partition.subspaces(arms, 3)
    policy = MultiscaleCSLB(arms, partition=partition)
    assert policy.partition is partition and policy.settings["sketch_size"] == 3
    assert policy.partition.n_clusters == 3 < MultiscaleCSLB(arms, sketch_size=3).partition.n_clusters


def test_parallel_arms_learn_from_each_other_at_once():
    """With l = 1 a cluster is a ray; with l > 1 an arm far away on the same ray is bounded by the ray's own data."""
    arms = np.vstack([np.eye(4)[:3], [[-0.5, 0, 0, 0], [0.3, 0.3, 0.3, 0.1]]])
    policy = MultiscaleCSLB(arms, sketch_size=3, theta_norm=2.0)
    before = policy.scales()["direction"]
    for _ in range(40):
        policy.update(0, -1.0)
    after = policy.scales()["direction"]
    assert after[0] < before[0] and after[3] < before[3]
    assert after[0] < 0 < after[3] < 1.0  # arm 3 is -1/2 of arm 0
    assert np.array_equal(after[[1, 2, 4]], before[[1, 2, 4]])


# ------------------------------------------------------------------------------------------------------------ coverage
RIDGE, SMALL, DELTA = 1.0, 0.1, 0.25
TIGHT = {"ridge": RIDGE, "noise": 1.0, "theta_norm": SMALL, "delta": DELTA}


def unit_rows(seed, n, d):
    rows = np.random.default_rng(seed).normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def sums_so_far(values):
    return np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])


def errors(X, theta, eta):
    """``||theta_hat - theta||_V`` after each row of ``X``, for every noise sequence (column of ``eta``)."""
    V = RIDGE * np.eye(X.shape[1]) + sums_so_far(X[:, :, None] * X[:, None, :])
    gaps = sums_so_far(eta[:, :, None] * X[:, None, :]) - RIDGE * theta
    root = np.linalg.inv(np.linalg.cholesky(V)).swapaxes(1, 2)
    return np.linalg.norm(gaps @ root, axis=2)


def log_dets(X):
    return np.linalg.slogdet(np.eye(X.shape[1]) + sums_so_far(X[:, :, None] * X[:, None, :]) / RIDGE)[1]


def halved(beta):
    """A mixture radius with the noise scale halved."""
    return np.sqrt((beta**2 - RIDGE * SMALL**2) / 4 + RIDGE * SMALL**2)


def recovered(bounds, means, widths):
    """beta = (bound - mean)/width, the same for every arm of a fit: the bounds are that ellipsoid's."""
    beta = (bounds - means) / widths
    assert np.allclose(beta, beta[0], rtol=1e-7)
    return beta[0]


def published(policy):
    """The space's fit that bounds are from: V, theta and its radius."""
    state, arms = policy.state, policy.arms
    R, theta = state.factor[SHOWN, :-2], state.factor[SHOWN, THETA]
    V, beta = R.T @ R, float(state.space["beta"][0])
    looks = np.array([look(state.features, state.factor, arm) for arm in range(policy.n_arms)])
    assert np.allclose(looks[:, 0], arms @ theta)
    assert np.allclose(looks[:, 1], naive.norms_under(arms, np.linalg.inv(V)))
    assert np.all(policy.scales()["space"] <= looks @ [1.0, beta] + 1e-12) or policy.settings["explore"] == "optimism"
    return V, theta.copy(), beta


class Stream:
    """A policy fed with arms drawn beforehand and rewards 0: V and beta do not depend on rewards.

    ``fits`` has per scale a list of (rows that a fit saw, theta in its coordinates, when in ``rows`` time it was as it
    was at each round, beta at each round).
    """

    def __init__(self, arms, total, seed=0, **options):
        self.arms, self.total = arms, total
        self.policy = MultiscaleCSLB(arms, **{**TIGHT, **options})
        self.picks = np.random.default_rng(seed).integers(len(arms), size=total)
        self.labels, self.rays = self.policy.partition.labels, naive.lines(arms)
        self.prefix, self.bounds, self.space = [], [], []
        for t in range(total + 1):
            self.look()
            if t < total:
                self.policy.update(int(self.picks[t]), 0.0)

    def look(self):
        scales = self.policy.scales()
        self.bounds.append((scales["direction"], scales["cluster"]))
        if self.policy.state.features.shape[1]:
            V, theta, beta = published(self.policy)
            assert not theta.any()
            self.prefix.append(round(np.trace(V) - RIDGE * V.shape[0]))  # arms of norm 1: how many rows it has seen
            self.space.append(beta)

    def cluster_fits(self):
        return [self.fit(self.labels == c, self.arms, scale=1) for c in range(self.labels.max() + 1)]

    def rays_of(self):
        """Per ray: the lengths of the rows that it saw, when, and the half-width for its unit vector after each."""
        for ray in range(self.rays.max() + 1):
            own = np.flatnonzero(self.rays == ray)
            lengths = self.arms @ (self.arms[own[0]] / np.linalg.norm(self.arms[own[0]]))
            hits = np.flatnonzero(np.isin(self.picks, own))
            widths = np.array([self.bounds[t + 1][0][own[0]] / abs(lengths[own[0]]) for t in hits])
            yield lengths[self.picks[hits]], hits, widths

    def fit(self, own, features, scale):
        """Rows of a group of arms in some features, and its beta after each of them."""
        hits = np.flatnonzero(own[self.picks])
        rows, beta = features[self.picks[hits]], []
        for k, t in enumerate([0, *(hits + 1)]):
            V = RIDGE * np.eye(rows.shape[1]) + rows[:k].T @ rows[:k]
            widths = naive.norms_under(features[own], np.linalg.inv(V))
            beta.append(recovered(self.bounds[t][scale][own], 0.0, widths))
        return rows, hits, np.array(beta)


def missed(X, theta, eta, radii):
    """Which noise sequences have theta outside at some time, for each radius (one value a row seen)."""
    error = errors(X, theta, eta)
    return np.array([(error > radius[:, None]).any(axis=0) for radius in radii])


RUNS = 1000


def at_most(rate):
    """What a share of `RUNS` with this expectation stays below, up to three standard deviations."""
    return rate + 3 * math.sqrt(rate / RUNS)


def ray_misses(stream, eta, deltas):
    """Which noise sequences leave the interval of some ray, as it is and with each of some other half-widths."""
    misses = np.zeros((1 + len(deltas), eta.shape[1]), bool)
    for s, hits, widths in stream.rays_of():
        information, error = np.cumsum(s**2)[:, None], np.abs(np.cumsum(s[:, None] * eta[hits], axis=0))
        for k, other in enumerate([lambda w, i: w, *deltas]):
            misses[k] |= (error > information * other(widths[:, None], information)).any(axis=0)
    return misses


def without(term):
    """An interval's half-width with a term left out under its root, `RIDGE` being its free parameter."""
    return lambda w, i: np.sqrt(np.maximum(w**2 - (i + RIDGE) * term(i) / i**2, 0.0))


def test_intervals_of_directions_cover():
    arms = unit_rows(1, 30, 4)
    arms = np.vstack([arms, -arms[:7] * np.linspace(0.3, 0.9, 7)[:, None]])  # 37 arms on 30 rays
    stream = Stream(arms, 6_000, sketch_size=3, budget=0)
    eta = np.random.default_rng(2).normal(size=(stream.total, RUNS))
    controls = [lambda w, i: w / 2, without(lambda i: np.log1p(i / RIDGE)), without(lambda i: 2 * math.log(31))]
    share, share_halved, share_flat, share_undivided = ray_misses(stream, eta, controls).mean(axis=1)
    assert share <= at_most(0.45 * DELTA)
    assert share_halved > 3 * DELTA
    assert share_flat > 2 * 0.45 * DELTA
    assert share_undivided > 3 * DELTA


def test_ellipsoids_of_clusters_and_of_the_space_cover_and_so_does_everything_together():
    arms = unit_rows(3, 24, 17)
    stream = Stream(arms, 300, sketch_size=12, budget=20_000)
    eta = np.random.default_rng(4).normal(size=(stream.total, RUNS))
    theta = np.full(17, SMALL / math.sqrt(17))
    together = np.zeros((2, RUNS), bool)
    for rows, hits, beta in stream.cluster_fits():
        flat = np.sqrt(beta**2 - log_dets(rows))
        misses = missed(rows, theta, eta[hits], [beta, halved(beta), flat])
        together |= misses[:2]
        share, share_halved, share_flat = misses.mean(axis=1)
        assert share <= at_most(0.09 * DELTA)
        assert share_halved > 2 * DELTA
        assert share_flat > 2 * DELTA
    together |= ray_misses(stream, eta, [lambda w, i: w / 2])
    prefix, beta = np.array(stream.prefix), np.array(stream.space)
    assert np.unique(prefix).size > 20 and prefix.max() > stream.total - 30
    rows = arms[stream.picks]
    error = errors(rows, theta, eta)[prefix]
    flat = np.sqrt(beta**2 - log_dets(rows)[prefix])
    misses = np.array([(error > radius[:, None]).any(axis=0) for radius in (beta, halved(beta), flat)])
    share, share_halved, share_flat = misses.mean(axis=1)
    assert share <= at_most(0.36 * DELTA)
    assert share_halved > 2 * DELTA
    assert share_flat > 2 * DELTA
    together |= misses[:2]
    assert together[0].mean() <= DELTA
    assert together[1].mean() > 3 * DELTA


@pytest.mark.parametrize("radius", ["mixture", "logdet"])
def test_all_scales_cover_with_data_that_the_policy_collects(radius):
    """And wherever they do, every arm's bound is at least its value, the best arm's above all."""
    arms = np.vstack([unit_rows(5, 8, 5), unit_rows(5, 8, 5)[:1] * -0.5])
    theta = np.full(5, SMALL / math.sqrt(5))
    runs, total = (12, 35) if JIT else (8, 30)
    missed_any, missed_halved = 0, 0
    for run in range(runs):
        rng = np.random.default_rng([run, 12])
        policy = MultiscaleCSLB(arms, sketch_size=3, radius=radius, budget=2_000, **TIGHT)
        log, groups, outside, outside_halved = [], list(groups_of(policy)), False, False
        for _ in range(total):
            error, beta, half = gaps_of_all(policy, groups, log, theta)
            holds = error <= beta
            outside |= not holds.all()
            outside_halved |= bool((error > half).any())
            if holds.all() and not outside:
                assert np.all(policy.bounds() >= arms @ theta - 1e-12)
            arm = policy.select()
            log.append((arm, float(arms[arm] @ theta + rng.normal())))
            policy.update(*log[-1])
        missed_any += outside
        missed_halved += outside_halved
        assert policy.state.space["version"][0] > 5
    assert missed_any <= DELTA * runs
    assert missed_halved > 3 * DELTA * runs


def groups_of(policy):
    """Every ray and every cluster: its scale, its arms, a basis of its span."""
    for name, labels in (("direction", naive.lines(policy.arms)), ("cluster", policy.partition.labels)):
        for group in range(labels.max() + 1):
            yield name, labels == group, naive.span(policy.arms[labels == group])


def gaps_of_all(policy, groups, log, theta):
    """The error, its limit, and that for half the noise, of every ray, every cluster and the published fit."""
    arms, scales, found = policy.arms, policy.scales(), []
    played, rewards = np.array([arm for arm, _ in log], int), np.array([reward for _, reward in log])
    for name, own, basis in groups:
        hits, Z = own[played], arms @ basis.T
        rows = Z[played[hits]]
        if name == "direction" and policy.settings["radius"] == "mixture":
            first, information = Z[own][0, 0], (rows**2).sum()
            if information:
                mean = rows[:, 0] @ rewards[hits] / information
                width = (scales[name][own][0] - first * mean) / abs(first)
                found.append((abs(mean - basis[0] @ theta), width, width / 2))
            continue
        V = RIDGE * np.eye(len(basis)) + rows.T @ rows
        estimate = np.linalg.solve(V, rows.T @ rewards[hits])
        beta = recovered(scales[name][own], Z[own] @ estimate, naive.norms_under(Z[own], np.linalg.inv(V)))
        found.append((naive.ellipsoid_error(estimate, basis @ theta, V), beta, halved(beta)))
    V, estimate, beta = published(policy)
    rows = arms[played]
    prefixes = RIDGE * np.eye(arms.shape[1]) + sums_so_far(rows[:, :, None] * rows[:, None, :])
    n = int(np.abs(prefixes - V).max(axis=(1, 2)).argmin())
    assert np.allclose(prefixes[n], V, atol=1e-9)  # a prefix of all rewards, none left out
    assert np.allclose(V @ estimate, rewards[:n] @ rows[:n], atol=1e-9)
    found.append((naive.ellipsoid_error(estimate, theta, V), beta, halved(beta)))
    return np.array(found).T


# --------------------------------------------------------------------------------------------------------------- radii
SIZES = st.just(0.0) | st.floats(1e-100, 1e50)


@examples(200)
@given(information=st.floats(0.0, 1e6), noise=SIZES, bias=SIZES, log_share=st.floats(0.0, 1e4))
def test_the_mixture_radius_is_never_above_the_ellipsoid_s(information, noise, bias, log_share):
    mixture = mixture_radius(information, noise, bias, log_share)
    ellipsoid = ellipsoid_radius(information, noise, bias, log_share)
    assert 0.0 <= mixture <= ellipsoid * (1 + 1e-12)
    assert math.isfinite(mixture)
    assert mixture >= bias * (1 - 1e-12) and mixture >= ellipsoid / math.sqrt(2) * (1 - 1e-12)


def test_bounds_with_the_mixture_radius_are_never_above_those_with_the_classical_one():
    arms, generator = correlated_arms(n_arms=17, dim=6, group_size=2, seed=7), np.random.default_rng(7)
    policies = [MultiscaleCSLB(arms, sketch_size=3, ridge=0.8, radius=radius) for radius in ("mixture", "logdet")]
    for arm in generator.integers(17, size=rounds(300, 60)).tolist():
        reward = float(generator.normal())
        for policy in policies:
            policy.update(arm, reward)
        mixture, classical = (policy.scales() for policy in policies)
        assert np.all(mixture["cluster"] <= classical["cluster"])


@pytest.mark.parametrize("radius", ["mixture", "logdet"])
@pytest.mark.parametrize("noise", [0.0, 1e-100, 1.0, 1e100])
@pytest.mark.parametrize("ridge", [None, 1e-100, 1e-8, 1e8, 1e100])
def test_bounds_are_finite_whatever_the_scales(ridge, noise, radius):
    base = np.random.default_rng(0).normal(size=(9, 4))
    for theta_norm, size in [(1e-100, 1.0), (1.0, 1e-90), (1.0, 1e6), (1e100, 1.0), (1e-100, 1e90)]:
        policy = MultiscaleCSLB(
            base * size, sketch_size=2, ridge=ridge, noise=noise, theta_norm=theta_norm, radius=radius, budget=500
        )
        for _ in range(rounds(12, 4)):
            arm = policy.select()
            policy.update(arm, float(min(theta_norm, 1.0) * policy.arms[arm].sum()))
            assert np.isfinite(policy.bounds()).all()


def test_without_noise_bounds_close_in_on_the_values():
    arms = correlated_arms(n_arms=13, dim=5, seed=8)
    theta = uniform_parameter(5, seed=8)
    policy = MultiscaleCSLB(arms, sketch_size=2, noise=0.0)
    for _ in range(rounds(400, 100)):
        arm = policy.select()
        policy.update(arm, float(arms[arm] @ theta))
        assert np.all(policy.bounds() >= arms @ theta - 1e-9)
    best = int(np.argmax(arms @ theta))
    assert policy.select() == best
    assert policy.bounds()[best] == pytest.approx(arms[best] @ theta, rel=1e-3)


# -------------------------------------------------------------------------------------------------------------- budget
def scene(seed=0, n=37, d=11):
    arms = correlated_arms(n_arms=n, dim=d, group_size=2, normalize="unit", seed=seed)
    return LinearEnvironment(arms, uniform_parameter(d, seed=seed))


def feed(policy, env, total, seed=1):
    chosen = []
    for value in env.draw_noise(np.random.default_rng(seed), total).tolist():
        chosen.append(policy.select())
        policy.update(chosen[-1], float(env.means[chosen[-1]]) + value)
    return chosen


@pytest.mark.parametrize("explore", ["optimism", "randomised"])
@pytest.mark.parametrize("budget", [7, 150, 1_000])
def test_the_budget_is_kept_at_every_round(budget, explore):
    """Counted by the twin, operation by operation; the policy's bank agrees with it."""
    env = scene()
    options = {**COMMON, "budget": budget, "explore": explore}
    fast, slow = MultiscaleCSLB(env.arms, **options), naive.NaiveMultiscale(env.arms, **options)
    for n, value in enumerate(env.draw_noise(np.random.default_rng(1), 250).tolist(), start=1):
        arm = fast.select()
        for policy in (fast, slow):
            policy.update(arm, float(env.means[arm]) + value)
        assert slow.spent <= budget * n + (1.5 + 0.5 * 37 * (explore == "randomised")) * 11**2
        assert fast.state.space["bank"][0] == slow.bank <= 16 * budget + 8 * 11**2
    if budget < 1_000 and explore == "optimism":
        assert slow.spent > 0.5 * budget * n  # and it is used


def test_in_the_long_run_the_space_costs_next_to_nothing():
    env = scene()
    policy = MultiscaleCSLB(env.arms, sketch_size=3)
    versions = []
    for part in range(2):
        policy.play_rounds(env.means, env.gaps, env.draw_noise(np.random.default_rng(part), rounds(20_000, 1_500)))
        versions.append(int(policy.state.space["version"][0]))
    assert 0 < versions[1] - versions[0] < versions[0] / 2


def test_no_budget_no_space():
    env = scene()
    policy = MultiscaleCSLB(env.arms, sketch_size=3, budget=0)
    feed(policy, env, rounds(300, 60))
    assert np.all(np.isinf(policy.scales()["space"]))
    assert policy.state.features.shape[1] == 0 and policy.state.space["version"][0] == 0


def test_more_budget_means_tighter_bounds():
    env = scene()
    policies = [MultiscaleCSLB(env.arms, sketch_size=3, theta_norm=3.0, budget=b) for b in (0, 100, 5_000)]
    generator = np.random.default_rng(3)
    for arm in generator.integers(37, size=rounds(400, 150)).tolist():
        reward = float(env.means[arm] + generator.normal())
        for policy in policies:
            policy.update(arm, reward)
    none, some, plenty = (policy.bounds().max() for policy in policies)
    assert plenty < some <= none


def test_the_clock_does_not_matter(monkeypatch):
    """The same rewards leave the same bits, however long they take and however they are handed in."""
    env, total = scene(), rounds(240, 60)
    quick, slow, batch = (MultiscaleCSLB(env.arms, sketch_size=3, budget=150) for _ in range(3))
    chosen = feed(quick, env, total)
    hours = itertools.count(step=3600.0)
    for clock in ("perf_counter", "monotonic", "time"):
        monkeypatch.setattr(time, clock, lambda: next(hours))
    assert feed(slow, env, total) == chosen
    rewards = env.means[chosen] + env.draw_noise(np.random.default_rng(1), total)
    for first, last in ((0, 1), (1, 50), (50, total)):
        batch.update_many(chosen[first:last], rewards[first:last])
    assert memory(quick) == memory(slow) == memory(batch)


def test_saved_in_the_middle_of_a_batch_it_goes_on_bit_for_bit(tmp_path):
    env = scene()
    policy = MultiscaleCSLB(env.arms, sketch_size=3, budget=60)
    met = 0
    for part in range(rounds(60, 25)):
        feed(policy, env, 7, seed=part)
        space = policy.state.space[0]
        if not (0 < space["at"] < space["in_batch"] and space["in_queue"] > 0):
            continue
        met += 1
        policy.save(tmp_path / "policy.npz")
        loaded, copied = MultiscaleCSLB.load(tmp_path / "policy.npz"), policy.copy()
        chosen = feed(policy, env, 40, seed=99)
        assert feed(loaded, env, 40, seed=99) == feed(copied, env, 40, seed=99) == chosen
        assert memory(loaded) == memory(copied) == memory(policy)
        assert loaded.settings == policy.settings
    assert met >= 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1}, "budget must be a whole number >= 0 or 'auto', got -1"),
        ({"budget": 1.5}, "budget must be a whole number >= 0 or 'auto', got 1.5"),
        ({"radius": lambda n, logdet: 1.0}, "radius must be one of 'mixture', 'logdet', got <function"),
        ({"budget": "much"}, "budget must be a whole number >= 0 or 'auto', got 'much'"),
        ({"explore": "ucb"}, "explore must be one of 'randomised', 'optimism', got 'ucb'"),
        ({"radius": "paper"}, "radius must be one of 'mixture', 'logdet'"),
        ({"horizon": 0}, "horizon must be a whole number >= 1, got 0"),
        ({"sketch_size": 0}, "sketch_size must be a whole number >= 1, got 0"),
        ({"partition": "first-fit"}, "partition must be a Partition or None, got 'first-fit'"),
        ({"ridge": 0.0}, "ridge must be a number > 0"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        MultiscaleCSLB(np.eye(4)[:3], **options)


def test_bounds_are_renewed_where_a_refit_and_a_new_fit_of_the_space_meet():
    """Both may be due after one reward: with large S and little noise that happens within some hundred rounds."""
    rng = np.random.default_rng(1)
    X = unit_rows(1, 30, 4)
    theta = 1000.0 * unit_rows(2, 1, 4)[0]
    policy = MultiscaleCSLB(X, noise=1.0, theta_norm=1000.0, explore="randomised", seed=2)
    for _ in range(600):
        arm = policy.select()
        policy.update(arm, float(X[arm] @ theta + rng.normal()))
        in_use = policy.state.stats[BOUND, policy.state.place[SLOT, :30]]
        assert np.allclose(in_use, policy.bounds(), rtol=1e-9)


@pytest.mark.parametrize("radius", ["closed", None, lambda n, logdet: 1.0])
def test_only_its_own_radii_are_allowed(radius):
    with pytest.raises(ValueError, match=r"radius must be one of 'mixture', 'logdet', got"):
        MultiscaleCSLB(np.eye(3), radius=radius)
