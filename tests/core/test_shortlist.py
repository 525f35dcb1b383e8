"""Huge clusters and many clusters: shortlists and the tournament choose exactly what a full look chooses."""

import naive
import numpy as np
import pytest
from conftest import JIT, rounds
from hypothesis import given
from hypothesis import strategies as st
from test_properties import SEED, examples

from sketchbandits import CSLB
from sketchbandits.environments import LinearEnvironment
from sketchbandits.policies.cslb import shortlist as lists
from sketchbandits.policies.cslb.layout import CLUSTER_RECORD, CONTROL_RECORD, LISTED
from sketchbandits.policies.cslb.tournament import (
    fill_tree,
    first_capped_cluster,
    first_cluster,
    n_leaves,
    put_sentinel,
)


def cluster(n, r, kind, seed=0):
    """Arms of one cluster of rank r in a few more dimensions."""
    rng = np.random.default_rng([n, r, seed])
    arms = rng.normal(size=(n, r)) @ np.linalg.qr(rng.normal(size=(r + 3, r)))[0].T
    if kind == "unit norms":
        arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    elif kind == "duplicates":
        arms = arms[rng.integers(n // 10 + 1, size=n)]
    elif kind == "parallel":
        arms = arms[rng.integers(5, size=n)] * rng.uniform(0.1, 1.0, size=(n, 1))
    elif kind == "very unequal norms":
        arms *= 10.0 ** rng.uniform(-4, 0, size=(n, 1))
    return arms / np.linalg.norm(arms, axis=1).max()


def pair(arms, l, **options):
    return [CSLB(arms, sketch_size=l, scan=scan, **options) for scan in ("full", "shortlist")]


KINDS = ("unit norms", "max norm", "duplicates", "parallel", "very unequal norms")


@pytest.mark.parametrize("radius", ["paper", "logdet"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "r", "ridge"), [(300, 3, 0.7), (700, 6, 2.0)])
def test_every_choice_is_that_of_a_full_look(n, r, ridge, kind, radius):
    arms = cluster(n, r, kind)
    theta = np.random.default_rng(1).normal(size=arms.shape[1])
    env = LinearEnvironment(arms, theta / np.linalg.norm(theta), noise=0.5)
    full, short = pair(arms, r, ridge=ridge, noise=0.5, radius=radius)
    assert short.state.clusters["form"][0] == LISTED
    for value in env.draw_noise(np.random.default_rng(2), rounds(3_000, 40)):
        arm = full.select()
        assert short.select() == arm
        for policy in (full, short):
            policy.update(arm, float(env.means[arm] + value))
    assert short.bounds() == pytest.approx(full.bounds(), rel=1e-9)


@pytest.mark.skipif(not JIT, reason="plain Python is too slow for as many rounds")
@pytest.mark.parametrize("radius", ["paper", "logdet"])
def test_several_clusters_over_many_rounds_and_refits(radius):
    arms = np.vstack([cluster(400, 4, kind, seed) for seed, kind in enumerate(KINDS[:3])])
    arms = np.random.default_rng(3).permutation(arms)
    theta = np.random.default_rng(4).normal(size=arms.shape[1])
    env = LinearEnvironment(arms, theta / np.linalg.norm(theta), noise=0.3)
    noise = env.draw_noise(np.random.default_rng(5), 60_000)
    full, short = pair(arms, 4, noise=0.3, radius=radius)
    for first in range(0, noise.size, 7_000):
        part = noise[first : first + 7_000]
        assert full.play_rounds(env.means, env.gaps, part) == short.play_rounds(env.means, env.gaps, part)
        assert full.counts.tolist() == short.counts.tolist()
    assert short.bounds() == pytest.approx(full.bounds(), rel=1e-9)


@pytest.mark.parametrize("radius", ["paper", "logdet"])
def test_rewards_for_any_arm_in_any_order(radius):
    """Arms that are on no list are pulled, in bursts, far from what the policy would choose."""
    arms = cluster(260, 4, "unit norms")
    rng = np.random.default_rng(6)
    full, short = pair(arms, 4, radius=radius)
    for _ in range(rounds(300, 12)):
        burst = rng.integers(len(arms), size=rng.integers(1, 9))
        for policy in (full, short):
            policy.update_many(burst, arms[burst, 0] + 0.1)
        assert short.select() == full.select()
        assert np.argmax(short.bounds()) == np.argmax(full.bounds())


@pytest.mark.parametrize("radius", ["paper", "logdet"])
def test_shortlists_choose_as_the_naive_twin(radius):
    arms = cluster(90, 3, "max norm")
    theta = np.random.default_rng(7).normal(size=arms.shape[1])
    means = arms @ theta / np.linalg.norm(theta)
    policy = CSLB(arms, sketch_size=3, ridge=1.3, noise=0.4, radius=radius, scan="shortlist")
    twin = naive.CSLB(arms, sketch_size=3, ridge=1.3, noise=0.4, radius=radius)
    for value in np.random.default_rng(8).normal(size=rounds(250, 40)):
        arm = policy.select()
        assert arm == twin.select()
        policy.update(arm, means[arm] + 0.4 * value)
        twin.update(arm, means[arm] + 0.4 * value)
    assert policy.bounds() == pytest.approx(twin.bounds(), rel=1e-9)


@pytest.mark.skipif(not JIT, reason="it takes thousands of rounds until lists last")
def test_in_the_long_run_few_rounds_look_at_all_arms():
    arms = cluster(6_000, 4, "unit norms")
    theta = np.random.default_rng(9).normal(size=arms.shape[1])
    env = LinearEnvironment(arms, theta / np.linalg.norm(theta), noise=0.5)
    policy = CSLB(arms, sketch_size=4, noise=0.5)
    assert policy.state.clusters["form"][0] == LISTED  # from 4,096 arms on, without being asked
    policy.play_rounds(env.means, env.gaps, env.draw_noise(np.random.default_rng(10), 20_000))
    looks = 0
    for value in env.draw_noise(np.random.default_rng(11), 2_000):
        arm = policy.select()
        policy.update(arm, float(env.means[arm] + value))
        looks += policy.state.clusters["pulls"][0] == 0
    assert looks < 40  # a full look every round would be 2,000


def test_bounds_leave_shortlists_alone():
    arms = cluster(300, 3, "unit norms")
    policy = CSLB(arms, sketch_size=3, scan="shortlist")
    for arm in range(20):
        policy.update(arm, 0.5)
    before = [array.copy() for array in policy.state]
    first = policy.bounds()
    assert np.array_equal(first, policy.bounds())
    assert all(np.array_equal(a, b) for a, b in zip(before, policy.state, strict=True))


def test_a_radius_function_and_shortlists():
    arms = cluster(200, 3, "max norm")
    full, short = pair(arms, 3, radius=lambda n, logdet: 0.3 + 0.1 * np.sqrt(n))
    for _ in range(rounds(400, 30)):
        arm = full.select()
        assert short.select() == arm
        for policy in (full, short):
            policy.update(arm, float(arms[arm, 0]))


@examples(50)
@given(st.integers(1, 3000), st.integers(1, 500), SEED, st.booleans())
def test_cut_keeps_at_most_so_many_unless_they_tie(n, most, seed, rounded):
    keys = np.random.default_rng(seed).normal(size=n)
    keys = np.round(keys, 1) if rounded else keys
    value = lists.cut(keys, most)
    reached = int((keys >= value).sum())
    assert reached >= 1
    if reached > most:  # the sample's largest: nothing stricter is known
        assert value == max(keys[i * n // min(n, 1024)] for i in range(min(n, 1024)))
    elif n <= 1024 and most >= 5 and not rounded:
        assert reached >= min(n, most) // 3


def test_scan_is_checked():
    with pytest.raises(ValueError, match="scan must be one of 'auto', 'full', 'shortlist', got 'lazy'"):
        CSLB(np.eye(3), sketch_size=1, scan="lazy")


# ------------------------------------------------------------------------------------------------------- the tournament
@examples(40)
@given(st.integers(65, 300), st.booleans(), SEED)
def test_the_tournament_finds_what_a_scan_finds(k, capped, seed):
    rng = np.random.default_rng(seed)
    clusters, control, none = np.zeros(k, CLUSTER_RECORD), *np.zeros((2, 1), CONTROL_RECORD)
    clusters["sentinel"] = clusters["uncapped"] = np.inf
    control["leaves"] = n_leaves(k)
    fits = np.zeros(4 * n_leaves(k))
    fill_tree(control, clusters, fits)
    find = first_capped_cluster if capped else first_cluster
    for _ in range(rounds(600, 40)):
        c = find(control[0], clusters, fits)
        assert c == find(none[0], clusters, fits)
        uncapped = float(rng.choice([0.5, 1.0, 1.0 + 1e-12, 2.0, rng.normal()]))
        c = int(rng.choice([c, rng.integers(k)]))
        put_sentinel(control[0], clusters[c], c, fits, min(uncapped, 1.0), uncapped)


@pytest.mark.skipif(not JIT, reason="plain Python is slow over so many clusters")
@pytest.mark.parametrize("radius", ["paper", "logdet"])
def test_many_clusters_choose_as_the_naive_twin(radius):
    arms = np.random.default_rng(12).normal(size=(210, 9))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    policy, twin = CSLB(arms, sketch_size=2, radius=radius), naive.CSLB(arms, sketch_size=2, radius=radius)
    assert policy.partition.n_clusters > 64 and policy.state.control["leaves"][0] > 64
    for value in np.random.default_rng(13).normal(size=400):
        arm = policy.select()
        assert arm == twin.select()
        policy.update(arm, arms[arm, 0] + value)
        twin.update(arm, arms[arm, 0] + value)


@pytest.mark.parametrize("radius", ["paper", "logdet"])
@pytest.mark.parametrize("l", [2, 4])
def test_the_compiled_loop_leaves_the_state_of_single_updates(l, radius):
    arms = np.random.default_rng(14).normal(size=(150, 6))
    env = LinearEnvironment(arms / np.linalg.norm(arms, axis=1).max(), np.full(6, 0.4), noise=0.5)
    noise = env.draw_noise(np.random.default_rng(15), rounds(500, 30))
    inside, single = (CSLB(env.arms, sketch_size=l, radius=radius) for _ in range(2))
    inside.play_rounds(env.means, env.gaps, noise)
    for value in noise:
        arm = single.select()
        single.update(arm, float(env.means[arm] + value))
    for name, mine, other in zip(inside.state._fields, inside.state, single.state, strict=True):
        kept = slice(int(inside.state.control["work"][0])) if name == "fits" else slice(None)  # then scratch space
        assert np.array_equal(mine[kept], other[kept]), name
