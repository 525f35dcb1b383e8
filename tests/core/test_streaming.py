"""MultiscaleCSLB on contexts that arrive each round: clusters are found, bounds hold, memory stays bounded."""

import re
import subprocess
import sys
from pathlib import Path

import naive
import numpy as np
import pytest
from conftest import JIT, rounds

from sketchbandits import MultiscaleCSLB, simulate
from sketchbandits.confidence import radius_value
from sketchbandits.environments import LabelledEnvironment
from sketchbandits.policies.streaming.clusters import OWN, VIEW
from sketchbandits.policies.streaming.policy import division
from sketchbandits.snapshot import leaves


class Union:
    """Contexts of unit norm in a union of random subspaces, shuffled, each a little off its own."""

    contextual = True

    def __init__(self, dim, subspaces, rank, *, offered=5, off=0.0, noise=0.1, seed=0):
        generator = np.random.default_rng(seed)
        self.dim, self.n_arms, self.off, self.noise = dim, offered, off, noise
        self.bases = [np.linalg.qr(generator.normal(size=(dim, rank)))[0].T for _ in range(subspaces)]
        theta = generator.normal(size=dim)
        self.theta = theta / np.linalg.norm(theta)

    def draw(self, generator, n):
        rows = np.empty((n, self.dim))
        for i, k in enumerate(generator.integers(len(self.bases), size=n)):
            basis, outside = self.bases[k], generator.normal(size=self.dim)
            outside -= basis.T @ (basis @ outside)
            inside = generator.normal(size=len(basis)) @ basis
            rows[i] = inside / np.linalg.norm(inside) + self.off * outside / np.linalg.norm(outside)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    def contexts(self, generator):
        rows = self.draw(generator, self.n_arms)
        return rows, rows @ self.theta

    def draw_noise(self, generator, size):
        return self.noise * generator.uniform(-1, 1, size=size)


def play(policy, env, n, seed=1):
    generator, chosen = np.random.default_rng(seed), []
    for _ in range(n):
        contexts, means = env.contexts(generator)
        chosen.append(policy.select(contexts))
        policy.update(contexts[chosen[-1]], float(means[chosen[-1]] + env.draw_noise(generator, 1)[0]))
    return chosen


def size_of(policy):
    return sum(part.nbytes for _, part in leaves(policy.state))


def same_state(a, b):
    pairs = list(zip(leaves(a.state), leaves(b.state), strict=True))
    return all(np.array_equal(x, y) for (_, x), (_, y) in pairs)


# ------------------------------------------------------------------------------------------------------------- clusters
def test_every_subspace_of_a_shuffled_stream_is_found_where_first_fit_finds_none():
    env = Union(60, 7, 5)
    policy, contexts = MultiscaleCSLB.contextual(dim=60, sketch_size=8), env.draw(np.random.default_rng(2), 150)
    policy.update_many(contexts, np.zeros(150))
    assert policy.ranks.tolist() == [5] * 7
    fresh = env.draw(np.random.default_rng(3), 40)
    assert np.isfinite(policy.scales(fresh)["cluster"]).all()
    labels = naive.first_fit(np.vstack([contexts, fresh]), 8)
    assert len(set(labels)) >= 150 / 8 and not set(labels[150:]) & set(labels[:100])  # none of them is met again


def test_more_subspaces_than_fit_the_pool_are_found_one_after_the_other():
    env = Union(12, 6, 3)  # 18 dimensions in 12: the pool is full before all are in it
    policy = MultiscaleCSLB.contextual(dim=12, sketch_size=4)
    policy.update_many(env.draw(np.random.default_rng(2), 1_000), np.zeros(1_000))
    assert policy.ranks.tolist() == [3] * 6


def test_contexts_in_general_position_open_no_cluster_and_rest_the_search():
    policy, generator = MultiscaleCSLB.contextual(dim=9, sketch_size=4), np.random.default_rng(0)
    policy.update_many(generator.normal(size=(400, 9)), np.zeros(400))
    assert policy.n_clusters == 0
    assert policy.state.meter["in_space"][0] == 400
    assert 5 <= policy.state.pool.control["fruitless"][0] <= 10  # it lets ever more contexts pass, else 40


def test_parallel_contexts_are_no_span():
    policy = MultiscaleCSLB.contextual(dim=9, sketch_size=4)
    policy.update_many(np.outer(np.arange(1.0, 30.0), np.arange(9.0)), np.zeros(29))
    assert policy.n_clusters == 0 and policy.state.pool.control["size"][0] == 1


def test_a_zero_context_teaches_nothing():
    policy = MultiscaleCSLB.contextual(dim=6)
    policy.update(np.zeros(6), 3.0)
    assert policy.bounds(np.zeros((1, 6))) == 0.0
    assert policy.state.meter["rewards"][0] == 1 and policy.state.meter["in_space"][0] == 0


def test_clusters_do_not_depend_on_rewards():
    env, generator = Union(20, 4, 3), np.random.default_rng(4)
    contexts = env.draw(generator, 200)
    one, other = (MultiscaleCSLB.contextual(dim=20, sketch_size=5, noise=1e6) for _ in range(2))
    one.update_many(contexts, np.zeros(200))
    other.update_many(contexts, generator.normal(size=200) * 1e6)
    assert one.n_clusters == 4
    for name in ("ranks", "bases", "probes"):
        assert np.array_equal(getattr(one.state.clusters, name), getattr(other.state.clusters, name))
    assert all(map(np.array_equal, one.state.pool, other.state.pool))
    assert one.state.meter["in_space"][0] == other.state.meter["in_space"][0]


@pytest.mark.parametrize(("off", "tolerance"), [(1e-3, 2e-2), (1e-9, 1e-6)])
def test_near_subspaces_are_found_with_a_tolerance(off, tolerance):
    env = Union(40, 5, 4, off=off)
    policy = MultiscaleCSLB.contextual(dim=40, sketch_size=6, tolerance=tolerance)
    contexts = env.draw(np.random.default_rng(2), rounds(400, 200))
    policy.update_many(contexts, np.zeros(len(contexts)))
    assert 5 <= policy.n_clusters <= 10
    assert np.isfinite(policy.scales(env.draw(np.random.default_rng(3), 100))["cluster"]).mean() > 0.9
    exact = MultiscaleCSLB.contextual(dim=40, sketch_size=6)
    exact.update_many(contexts, np.zeros(len(contexts)))
    assert exact.n_clusters == 0 or off < 1e-8


def test_the_budget_pays_for_rewards_in_the_space():
    env, recorded = Union(15, 3, 3), []
    for budget in (0, 500, 10**6):
        policy = MultiscaleCSLB.contextual(dim=15, sketch_size=5, budget=budget, noise=0.1)
        play(policy, env, 200)
        recorded.append(policy.state.meter["in_space"][0])
    assert recorded[0] < 60 and recorded[2] == 200
    assert recorded[1] == pytest.approx(recorded[0] + 200 * 500 / (7 * 15**2), rel=0.2)  # a row and a view: 7 d^2


# -------------------------------------------------------------------------------------------------------------- oracles
CASES = {
    "spans": (Union(13, 4, 3), {"sketch_size": 4, "budget": 700}),
    "no budget": (Union(13, 4, 3, seed=3), {"sketch_size": 4, "budget": 0}),
    "more than fit": (Union(11, 6, 3), {"sketch_size": 4, "budget": 10**5}),
    "isotropic": (Union(7, 1, 6), {"sketch_size": 4, "budget": 700}),
    "coarse": (Union(13, 4, 3, off=0.01), {"sketch_size": 4, "budget": 700, "tolerance": 0.1}),
    "no space": (Union(13, 4, 3), {"sketch_size": 4, "budget": 700, "memory": 3_000}),
    "few clusters": (Union(13, 4, 3), {"sketch_size": 3, "budget": 700, "memory": 4_200}),
}


def slow_estimate(slow, x):
    """The mean of the narrowest interval: of the clusters that hold x (own fit or view), else of the space."""
    found = []
    for cluster in slow.clusters:
        if cluster.holds(x, slow.tol):
            view, cluster.view = cluster.view, None
            own, part = cluster.bound(x, slow.R, slow.S), cluster.inside(x)
            cluster.view = view
            mean = part @ np.linalg.solve(cluster.V, cluster.b)
            found.append((own - mean, mean))
            if view is not None:
                V, theta, beta = view
                width = beta * np.sqrt(part @ np.linalg.inv(V) @ part) + slow.S * np.linalg.norm(x - part)
                found.append((width, part @ theta))
    if found:
        return min(found)[1]
    return float(x @ slow.space_set()[1]) if slow.space else 0.0


@pytest.mark.parametrize("name", CASES)
def test_the_same_choices_as_the_obvious_twin(name):
    env, options = CASES[name]
    common = {"noise": 0.2, "theta_norm": 1.3, "delta": 0.05}
    fast = MultiscaleCSLB.contextual(dim=env.dim, **options, **common)
    plan = division(env.dim, min(options["sketch_size"], env.dim), fast.settings["memory"])
    assert plan.space == (name != "no space")
    slow = naive.StreamingMultiscale(
        env.dim,
        l=options["sketch_size"],
        most=(plan.pool, plan.clusters),
        budget=options["budget"],
        tolerance=options.get("tolerance", 0.0),
        space=plan.space,
        **common,
    )
    n = rounds(400, 150)
    assert play(fast, env, n) == play(slow, env, n)
    assert [len(c.basis) for c in slow.clusters] == fast.ranks.tolist()
    contexts = env.draw(np.random.default_rng(8), 20)
    capped = np.minimum([slow.uncapped(x) for x in contexts], 1.3 * np.linalg.norm(contexts, axis=1))
    np.testing.assert_allclose(fast.bounds(contexts), capped, rtol=1e-7)
    expected = np.minimum([slow_estimate(slow, x) for x in contexts], capped)
    np.testing.assert_allclose(fast.estimates(contexts), expected, rtol=1e-7, atol=1e-9)
    assert (fast.n_clusters > 0) == (name != "isotropic")


def test_bounds_are_the_least_of_the_scales_and_select_takes_the_largest():
    env = Union(15, 3, 3)
    policy = MultiscaleCSLB.contextual(dim=15, sketch_size=5, noise=0.05)
    play(policy, env, rounds(300, 100))
    contexts = 0.1 * env.draw(np.random.default_rng(9), 30)
    scales, bounds = policy.scales(contexts), policy.bounds(contexts)
    assert list(scales) == ["prior", "cluster", "space"]
    assert np.array_equal(bounds, np.min(list(scales.values()), axis=0))
    assert bounds[policy.select(contexts)] == pytest.approx(bounds.max(), rel=1e-8)
    assert {min(scales, key=lambda name: scales[name][i]) for i in range(30)} >= {"cluster"}


# ------------------------------------------------------------------------------------------------------------- coverage
R, S, DELTA = 1.0, 0.1, 0.25


def ellipsoids(policy, theta):
    """``error/radius`` of every confidence set in use, and of the same with its noise's part halved; by kind."""
    clusters, space, found = policy.state.clusters, policy.state.space, {"own": [], "view": [], "space": []}
    for k in range(policy.n_clusters):
        r, level = clusters.ranks[k], clusters.level[k]
        truth = clusters.bases[k, :r] @ theta
        factor = clusters.factor[k, :, :r, :r]
        error = np.linalg.norm(factor[OWN] @ (clusters.theta[k, OWN, :r] - truth))
        found["own"].append((error, level["reach"], np.sqrt(level["ridge"]) * S))
        error = np.linalg.norm(np.linalg.solve(factor[VIEW].T, clusters.theta[k, VIEW, :r] - truth))
        found["view"].append((error, level["view_radius"], 0.0))
    error = np.linalg.norm(space.factor @ (space.theta - theta))
    found["space"].append((error, radius_value(space.radius[0], 0.0, policy.state.meter["logdet"][0]), 0.0))
    return found


def test_every_ellipsoid_covers_in_enough_runs_and_halved_ones_do_not():
    env = Union(8, 2, 2, offered=3)
    theta, n, runs = S * env.theta, rounds(150, 60), rounds(40, 15)
    missed = {kind: np.zeros((runs, 2), bool) for kind in ("own", "view", "space")}
    for run in range(runs):
        generator = np.random.default_rng([run, 7])
        policy = MultiscaleCSLB.contextual(
            dim=8, sketch_size=3, noise=R, theta_norm=S, delta=DELTA, ridge=1.0, budget=2_000
        )
        for _ in range(n):
            contexts = env.draw(generator, 3)
            x = contexts[policy.select(contexts)]
            policy.update(x, float(x @ theta + generator.normal()))
            for kind, sets in ellipsoids(policy, theta).items():
                for error, radius, bias in sets:
                    missed[kind][run] |= error > radius, error > bias + (radius - bias) / 2
    level = policy.state.clusters.level[:2]
    betas = np.sqrt(R**2 * (level["logdet"] + 2 * level["share"]) + level["ridge"] * S**2)
    np.testing.assert_allclose(level["reach"], betas, rtol=1e-6)
    np.testing.assert_allclose(np.exp(-level["share"]), [0.9 * DELTA / 2, 0.9 * DELTA / 6])
    share = np.mean(np.any([found[:, 0] for found in missed.values()], axis=0))
    assert share <= DELTA
    assert min(found[:, 1].mean() for found in missed.values()) > 0.5  # the controls


def test_bounds_hold_with_adversarial_residuals_and_fail_without_the_two_terms():
    generator = np.random.default_rng(0)
    theta = np.array([0.0, 0.1, 0.2, 0.97, 0.0, 0.0, 0.0])
    policy = MultiscaleCSLB.contextual(
        dim=7, sketch_size=2, tolerance=0.05, noise=0.01, memory=1_700, arm_norm=1.1
    )  # too little for the space's scale, which needs no such terms

    def draw():
        x = np.zeros(7)
        angle = generator.uniform(0, np.pi)
        x[1:3] = np.cos(angle), np.sin(angle)
        x[3] = 0.02 * (1 if x[1] > 0 else -1)  # off the plane, always to the side that misleads the fit most
        return x

    violated = 0
    for t in range(300):
        policy.update(x := draw(), float(x @ theta + 0.01 * generator.uniform(-1, 1)))
        x = draw() * (1, 1, 1, -1, 1, 1, 1) if t % 2 else draw()
        scales, clusters = policy.scales(x[None]), policy.state.clusters
        assert x @ theta <= scales["cluster"][0]
        if np.isfinite(scales["cluster"][0]):
            level, z = clusters.level[0], clusters.bases[0] @ x
            reach = level["reach"] - np.sqrt(level["leak"])
            width = np.linalg.norm(np.linalg.solve(clusters.factor[0, OWN].T, z))
            violated += x @ theta > z @ clusters.theta[0, OWN] + reach * width
    assert policy.n_clusters == 1 and clusters.level["leak"][0] > 0
    assert violated > 50  # the control


# --------------------------------------------------------------------------------------------------------------- memory
@pytest.mark.parametrize(("memory", "planes", "clusters"), [(7_000, 8, 3), (30_000, 50, 12), (200_000, 50, 24)])
def test_memory_stays_below_the_limit(memory, planes, clusters):
    env, generator = Union(24, planes, 2), np.random.default_rng(0)
    policy = MultiscaleCSLB.contextual(dim=24, sketch_size=3, memory=memory)
    first = size_of(policy)
    for _ in range(rounds(8, 1)):
        policy.update_many(env.draw(generator, 500), np.zeros(500))
        assert first <= size_of(policy) <= memory
    # It is used up; for the last, by a cluster a dimension.
    assert policy.n_clusters == clusters or (not JIT and 0 < policy.n_clusters < clusters)


def test_memory_is_divided_as_documented():
    for dim, size in ((5, 2), (30, 4), (300, 16), (784, 16)):
        for memory in (10**5, 10**6, 2**26):
            try:
                plan = division(dim, size, memory)
            except ValueError:
                continue
            assert plan.clusters >= 1 and size <= plan.pool <= dim
            assert not plan.space or 16 * dim**2 <= memory
            assert plan.space or 20 * dim**2 > memory
            assert not plan.space or plan.clusters <= dim


def test_when_memory_is_used_up_later_contexts_have_the_space_or_the_prior_only():
    env, generator = Union(40, 8, 2, noise=0.01), np.random.default_rng(3)
    for memory, said in ((30_000, "space"), (12_000, "prior")):
        policy = MultiscaleCSLB.contextual(dim=40, sketch_size=3, memory=memory, noise=0.01)
        play(policy, env, 300)
        assert 0 < policy.n_clusters == policy.state.clusters.size["most"][0] < 8
        scales = policy.scales(env.draw(generator, 200))
        outside = np.isinf(scales["cluster"])
        assert 0 < outside.sum() < 200
        assert np.isfinite(scales["space"][outside]).all() == (said == "space")


def test_growth_inside_a_batch_is_that_of_single_updates_and_saved_states_go_on(tmp_path):
    env = Union(40, 9, 3, offered=4)  # nine clusters and 27 pooled vectors outgrow the first room
    single = MultiscaleCSLB.contextual(dim=40, sketch_size=4, noise=0.1)
    batch = single.copy()
    contexts = env.draw(np.random.default_rng(6), 160)
    rewards = contexts @ env.theta
    for x, reward in zip(contexts, rewards.tolist(), strict=True):
        single.update(x, reward)
    batch.update_many(contexts, rewards)
    assert single.n_clusters == 9 and single.state.clusters.ranks.size > 8
    assert same_state(single, batch)
    single.save(tmp_path / "policy.npz")
    loaded = type(single).load(tmp_path / "policy.npz")
    assert play(loaded, env, 60) == play(single, env, 60)
    assert same_state(loaded, single)
    assert play(batch.copy(), env, 60) == play(batch, env, 60)


# ---------------------------------------------------------------------------------------------------------- parameters
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dim": 0}, "dim must be a whole number >= 1, got 0"),
        ({"sketch_size": 1}, "sketch_size must be a whole number >= 2, got 1"),
        ({"memory": 100}, "memory must be at least 5800 bytes for dim=10 and sketch_size=10 (one cluster; from "),
        ({"memory": 1e6}, "memory must be a whole number >= 1, got 1000000.0"),
        ({"tolerance": 1.0}, "tolerance must be a number >= 0 and < 1, got 1.0"),
        ({"tolerance": -0.1}, "tolerance must be a number >= 0"),
        ({"ridge": 0.0}, "ridge must be a number > 0"),
        ({"radius": "closed"}, "radius must be one of 'mixture', 'logdet'"),
        ({"radius": lambda n, logdet: 1.0}, "radius must be one of 'mixture', 'logdet', got <function"),
        ({"budget": -1}, "budget must be a whole number >= 0, got -1"),
        ({"horizon": 0}, "horizon must be a whole number >= 1, got 0"),
        ({"seed": "x"}, "seed must be"),
    ],
)
def test_bad_parameters_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        MultiscaleCSLB.contextual(**{"dim": 10, **options})


def test_a_coarse_tolerance_over_a_long_horizon_is_warned_of():
    with pytest.warns(UserWarning, match=r"tolerance=0.1 may cost S L eps T = 1e\+03"):
        MultiscaleCSLB.contextual(dim=10, tolerance=0.1, horizon=10_000)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_few_dimensions(dim):
    policy, generator = MultiscaleCSLB.contextual(dim=dim, noise=0.5), np.random.default_rng(1)
    for _ in range(50):
        contexts = generator.normal(size=(4, dim))
        policy.update(contexts[policy.select(contexts)], 0.5)
    assert np.isfinite(policy.bounds(contexts)).all()
    assert policy.state.pool.control["most"][0] <= dim


@pytest.mark.parametrize("scale", [1e-8, 1e6])
@pytest.mark.parametrize("ridge", [None, 1e-8])
def test_contexts_of_any_scale(scale, ridge):
    env = Union(13, 3, 3)
    policy = MultiscaleCSLB.contextual(dim=13, sketch_size=4, ridge=ridge, theta_norm=1.0 / scale, arm_norm=scale)
    contexts = scale * env.draw(np.random.default_rng(2), 200)
    policy.update_many(contexts, contexts @ env.theta / scale)
    assert policy.n_clusters == 3
    bounds = policy.bounds(contexts)
    assert np.isfinite(bounds).all() and (contexts @ env.theta / scale <= bounds + 1e-9).all()


# ----------------------------------------------------------------------------------------------------------- simulation
def test_it_learns_a_stream_of_subspaces_and_labelled_data():
    env, n = Union(30, 4, 3, offered=6, noise=0.1), rounds(800, 200)
    result = simulate(env, {"multiscale": MultiscaleCSLB.contextual(dim=30, noise=0.1)}, rounds=n, seed=0)
    curve = result.regret["multiscale"][0]
    half = np.searchsorted(result.checkpoints, n // 2)
    assert curve[-1] - curve[half] < 0.3 * curve[half]
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=200)
    features = np.eye(9)[labels] + 0.3 * generator.normal(size=(200, 9))
    labelled = LabelledEnvironment(features, labels, target=1)
    policy = MultiscaleCSLB.contextual(dim=9, noise=0.2, theta_norm=2.0)
    result = simulate(labelled, {"multiscale": policy}, rounds=rounds(400, 150), seed=0)
    assert result.final_regret["multiscale"][0] < 0.3 * result.rounds * 2 / 3
    assert policy.state.meter["rewards"][0] == 0  # a copy has played
    assert policy.state.radius["noise"] == 0.2 and policy.state.radius["theta_norm"] == 2.0


@pytest.mark.process
@pytest.mark.skipif(not JIT, reason="it measures compiled rounds")
def test_the_benchmark_shows_every_case():
    script = Path(__file__).parents[2] / "benchmarks" / "streaming.py"
    done = subprocess.run([sys.executable, str(script), "--quick"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("multi-scale") == done.stdout.count("SOFUL, l=16") == 9
