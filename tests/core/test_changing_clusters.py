"""Arm sets that change: a policy grown arm by arm is the one built at once; ids, shares, removal, repartition."""

import math
import tracemalloc

import naive
import numpy as np
import pytest
from conftest import rounds

from sketchbandits import CSLB, MultiscaleCSLB, Partition
from sketchbandits.environments import correlated_arms, subspace_arms
from sketchbandits.policies.cslb import changing_clusters
from sketchbandits.policies.cslb.changing_clusters import Repartition
from sketchbandits.policies.cslb.coordinates import current_stats
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    FEW,
    LISTED,
    MANY,
    SLOT,
)
from sketchbandits.policies.multiscale import changing_scales
from sketchbandits.policies.multiscale.policy import SHARES, partition_share
from sketchbandits.policies.multiscale.randomised import CAUTION, lower_bound
from sketchbandits.policies.multiscale.state import (
    DIRECTION,
    LENGTH,
    RAY,
    SHOWN,
    THETA,
)
from sketchbandits.policies.rounds import LOST, MEAN, SUM, WIDTH2
from sketchbandits.snapshot import leaves

DELTA = 0.05
MAKE = {
    "cslb": lambda arms, l, **more: CSLB(arms, sketch_size=l, radius="logdet", ridge=0.7, delta=DELTA, **more),
    "cslb-shortlist": lambda arms, l: MAKE["cslb"](arms, l, scan="shortlist"),
    # A ridge is given: without one it follows the arms known at first, or all so far.
    "multiscale": lambda arms, l, **more: MultiscaleCSLB(arms, sketch_size=l, delta=DELTA, **{"ridge": 0.7, **more}),
    "multiscale-optimism": lambda arms, l: MAKE["multiscale"](arms, l, explore="optimism"),
    "multiscale-poor": lambda arms, l: MultiscaleCSLB(
        arms, sketch_size=l, ridge=0.7, delta=DELTA, budget=40, explore="optimism"
    ),
}
every_policy = pytest.mark.parametrize("make", MAKE)
both_classes = pytest.mark.parametrize("make", ["cslb", "multiscale"])


def odd_arms():
    """Zero arms, the first among them; duplicates; parallel arms of either sign; arms in the span of others."""
    arms = np.random.default_rng(3).normal(size=(31, 6))
    arms[0] = arms[5] = 0.0
    arms[7], arms[9], arms[12] = arms[6], -2.0 * arms[8], 0.3 * arms[8]
    arms[20:24] = 3.0 * arms[1:5]
    arms[24:28] = arms[1:5] + arms[2:6]
    return arms


def ray_and_more():
    generator = np.random.default_rng(11)
    ray, more = generator.normal(size=(30, 1)) * generator.normal(size=7), generator.normal(size=(10, 3))
    return np.vstack([ray, more @ generator.normal(size=(3, 7)), generator.normal(size=(3, 7))])


# name: arms, sketch size
SCENES = {
    "general": lambda: (correlated_arms(n_arms=41, dim=9, seed=1), 4),  # few arms in each of many clusters
    "subspaces": lambda: (subspace_arms(n_arms=60, dim=8, n_subspaces=2, rank=3, seed=2), 3),  # many arms in few
    "shuffled": lambda: (subspace_arms(n_arms=40, dim=8, n_subspaces=2, rank=3, shuffle=True, seed=2), 3),
    "odd": lambda: (odd_arms(), 2),
    "odd-alone": lambda: (odd_arms(), 1),
    "one-cluster": lambda: (np.random.default_rng(4).normal(size=(25, 6)), 10),  # whose rank and form change
    "many-on-a-ray-then-more": lambda: (ray_and_more(), 4),  # rank grows in a cluster of many arms
    "fewer-arms-than-dimensions": lambda: (
        np.random.default_rng(5).normal(size=(11, 3)) @ np.random.default_rng(6).normal(size=(3, 14)),
        2,
    ),
}
every_scene = pytest.mark.parametrize("scene", SCENES)


def slots(policy):
    return policy.state.place[SLOT, : policy.n_arms]


def memory(policy):
    """Everything a refused call might have changed."""
    parts = {name: part.tobytes() for name, part in leaves(policy.state) if not name.endswith(".work")}
    return parts, dict(policy.settings), policy.n_arms, policy.arms.tobytes(), policy.partition.labels.tobytes()


def log_dets(policy):
    clusters = policy.state.clusters[: policy.partition.n_clusters]
    return clusters["logdet"] + np.log(clusters["growth"])


def assert_same_partition(one, other):
    assert np.array_equal(one.labels, other.labels)
    assert np.array_equal(one.ranks, other.ranks)
    assert np.array_equal(one.bases, other.bases)  # to the last bit
    assert (one.sketch_size, one.tolerance) == (other.sketch_size, other.tolerance)


def assert_same_fits(one, other):
    """Partition, counts, means, widths and determinants; for multi-scale the rays as well."""
    assert_same_partition(one.partition, other.partition)
    assert np.array_equal(one.counts, other.counts)
    mine, theirs = (current_stats(policy.state)[:, slots(policy)] for policy in (one, other))
    scale = max(1.0, np.abs(theirs[MEAN]).max())
    assert np.allclose(mine[MEAN], theirs[MEAN], rtol=1e-9, atol=1e-9 * scale)
    assert np.allclose(mine[WIDTH2], theirs[WIDTH2], rtol=1e-9, atol=0)
    assert np.allclose(mine[SUM] + mine[LOST], theirs[SUM] + theirs[LOST], rtol=1e-12, atol=1e-12)
    assert np.allclose(log_dets(one), log_dets(other), rtol=1e-9, atol=1e-9)
    if isinstance(one, MultiscaleCSLB):
        assert np.array_equal(naive.lines(one.arms) < 0, mine[RAY] < 0)
        assert np.array_equal(same_groups(mine[RAY]), same_groups(theirs[RAY]))
        assert np.array_equal(same_groups(mine[RAY]), same_groups(naive.lines(one.arms)))
        for mean, other_mean in zip(ray_fits(one), ray_fits(other), strict=True):
            assert np.allclose(mean, other_mean, rtol=1e-9, atol=1e-9 * scale)


def same_groups(numbers):
    return numbers[:, None] == numbers[None, :]


def ray_fits(policy):
    """What every arm's ray knows of it: information, and the sum of rewards in the arm's own direction."""
    state, own = policy.state, policy.state.stats[:, slots(policy)]
    on_ray = own[RAY] >= 0
    rays = own[RAY, on_ray].astype(int)
    sign = np.sign(own[LENGTH, on_ray])
    assert np.allclose(np.abs(own[LENGTH, on_ray]), np.linalg.norm(policy.arms[on_ray], axis=1))
    return state.rays["information"][rays], sign * state.rays["reward"][rays]


def assert_plays_the_best(policy):
    """The choice may be played, and no arm that may be has a larger bound; or the rule of random choices allows it."""
    bounds, arm = np.where(policy.active, policy.bounds(), -np.inf), policy.select()
    assert policy.active[arm]
    if policy.settings.get("explore") != "randomised":
        assert bounds[arm] >= bounds.max() - 1e-9 * abs(bounds.max())
        return
    lower = lower_bound(policy.state, policy.state.place[SLOT, arm])
    assert bounds.max() - lower <= CAUTION * (bounds[arm] - lower) + 1e-9 * abs(bounds.max())


def assert_shares_within_delta(policy):
    """What all clusters, and all rays, may spend of delta."""
    clusters = policy.state.clusters[: policy.partition.n_clusters]
    multiscale, first = isinstance(policy, MultiscaleCSLB), policy.state.control["partitions"][0] == 1
    part = 0.1 * 0.9 * DELTA if multiscale and first else DELTA
    assert np.exp(-clusters["share"]).sum() <= part * (1 + 1e-12)
    if multiscale:
        space = policy.state.space[0]
        rays = policy.state.rays[: space["n_rays"]]
        taught = rays["information"] > 0.0
        assert space["untaught"] == (~taught).sum()
        part = SHARES["direction"] * partition_share(int(policy.state.control["partitions"][0])) * DELTA
        assert np.exp(-rays["share"][taught]).sum() + space["ray_left"] == pytest.approx(part)
        assert space["untaught"] * np.exp(-space["ray_share"]) < space["ray_left"], "nothing is left for later rays"
        return
    # And the radius is made of that share.
    noise = np.sqrt(log_dets(policy) + 2 * clusters["share"])
    assert np.allclose(clusters["beta"], noise + np.sqrt(0.7), rtol=1e-9)


def play(policy, generator, total, log=None, any_arm=0.4):
    """Rewards, some of them for arms that were not chosen; returns the arms."""
    chosen = []
    for _ in range(total):
        arm = policy.select()
        if generator.random() < any_arm:
            arm = int(generator.integers(policy.n_arms))
        chosen.append(arm)
        reward = float(generator.normal())
        policy.update(arm, reward)
        if log is not None:
            log.append((arm, reward))
    return chosen


def book(policy, log):
    for arm, reward in log:
        policy.update(arm, reward)
    return policy


# -------------------------------------------------------------------------------------------------------------- growth
@every_scene
@every_policy
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_grown_arm_by_arm_it_is_the_one_built_at_once(make, scene, seed):
    """Whatever it starts with, however arms come, and rewards between them."""
    X, l = SCENES[scene]()
    generator, log = np.random.default_rng([seed, 7]), []
    policy = MAKE[make](X[: [1, 5, len(X) // 2][seed]], l)
    while policy.n_arms < len(X):
        play(policy, generator, int(generator.integers(rounds(12, 5))), log)
        first, count = policy.n_arms, int(generator.integers(1, 5))
        ids = policy.add_arms(X[first : first + count])
        assert ids.dtype == np.int64 and ids.tolist() == list(range(first, policy.n_arms))
        assert_plays_the_best(policy)
        assert_shares_within_delta(policy)
    assert np.array_equal(policy.arms, X)
    play(policy, generator, 20, log)
    assert_plays_the_best(policy)
    assert_same_fits(policy, book(MAKE[make](X, l), log))


@both_classes
def test_the_scenes_have_clusters_of_few_and_of_many_arms_and_rank_grows(make):
    forms = set()
    for scene in ("general", "subspaces"):
        X, l = SCENES[scene]()
        policy = MAKE[make](X[:2], l)
        before = policy.partition
        policy.add_arms(X[2:])
        forms |= set(policy.state.clusters["form"][: policy.partition.n_clusters].tolist())
        assert policy.partition.ranks[0] > before.ranks[0]
    assert forms == {FEW, MANY}


@both_classes
def test_nothing_but_features_decides_where_an_arm_goes(make):
    X, l = SCENES["odd"]()
    partitions = []
    for seed in range(2):
        policy, generator = MAKE[make](X[:4], l), np.random.default_rng(seed)
        for x in X[4:]:
            policy.add_arms(x[None])
            play(policy, generator, 3)
        partitions.append(policy.partition)
    assert_same_partition(*partitions)


@both_classes
def test_what_comes_back_is_the_caller_s_and_what_goes_in_is_copied(make):
    X, l = SCENES["general"]()
    mine = X[20:].copy()
    policy = MAKE[make](X[:20], l)
    ids = policy.add_arms(mine)
    mine[:] = 7.0
    ids[:] = -1
    assert np.array_equal(policy.arms, X)
    assert not policy.arms.flags.writeable
    assert policy.add_arms(X[:2].tolist()).tolist() == [41, 42]  # lists will do, and duplicates


@both_classes
def test_shares_are_those_of_the_specification(make):
    """K clusters known at first: delta/(K + 1) each; the k-th later one delta/((K + 1) k (k + 1))."""
    X = np.random.default_rng(8).normal(size=(23, 5))
    policy = MAKE[make](X[:5], 2)
    part = DELTA if make == "cslb" else 0.1 * 0.9 * DELTA
    k0 = policy.partition.n_clusters
    policy.add_arms(X[5:6])  # fills the last cluster
    assert policy.partition.n_clusters == k0 == 3
    for x in X[6:]:
        policy.add_arms(x[None])
    later = np.arange(1, policy.partition.n_clusters - k0 + 1)
    expected = part / (k0 + 1) / np.concatenate([np.ones(k0), later * (later + 1.0)])
    assert later.size > 5
    assert np.allclose(np.exp(-policy.state.clusters["share"][: expected.size]), expected)


def test_rays_without_a_reward_share_what_the_others_have_left():
    X = np.random.default_rng(8).normal(size=(23, 5))
    policy, part = MAKE["multiscale"](X[:5], 2), 0.5 * 0.9 * DELTA

    def spent(arm):
        policy.update(arm, 0.5)
        return np.exp(-policy.state.rays["share"][int(policy.state.stats[RAY, policy.state.place[SLOT, arm]])])

    assert [spent(arm) for arm in (0, 1)] == pytest.approx([part / 6] * 2)
    policy.add_arms(X[5:9])
    left = part * 4 / 6
    # Seven without a reward, one share for those to come, and one for each of the four that came later.
    assert [spent(arm) for arm in (2, 8)] == pytest.approx([left / 12] * 2)
    policy.add_arms(X[9:10])
    assert spent(9) == pytest.approx(left * 10 / 12 / 12)
    assert spent(8) == pytest.approx(left / 12), "a share is settled by the first reward"
    assert_shares_within_delta(policy)


def test_without_growth_cslb_spends_delta_on_its_clusters_and_nothing_on_later_ones():
    X, l = SCENES["general"]()
    policy = MAKE["cslb"](X, l)
    assert np.exp(-policy.state.clusters["share"]).sum() == pytest.approx(DELTA)
    before = policy.bounds()
    policy.add_arms(X[:1])
    assert np.exp(-policy.state.clusters["share"]).sum() == pytest.approx(DELTA * 11 / 12)
    assert np.all(policy.bounds()[:41] >= before)


@both_classes
def test_a_longer_arm_than_any_before_widens_arm_norm(make):
    policy = MAKE[make](np.eye(5)[:3], 2)
    policy.add_arms(np.full((1, 5), 2.0))
    assert policy.settings["arm_norm"] == pytest.approx(np.sqrt(20.0))
    assert_plays_the_best(policy)
    policy.add_arms(np.full((1, 5), 0.1))
    assert policy.settings["arm_norm"] == pytest.approx(np.sqrt(20.0))


@pytest.mark.parametrize("make", ["cslb", "cslb-shortlist", "multiscale-poor"])
@every_scene
def test_saved_loaded_and_copied_after_growth_it_goes_on_bit_for_bit(make, scene, tmp_path):
    X, l = SCENES[scene]()
    generator = np.random.default_rng(1)
    policy = MAKE[make](X[:3], l)
    for first in range(3, len(X) - 4, 3):
        policy.add_arms(X[first : min(first + 3, len(X) - 4)])
        play(policy, generator, 3)
    policy.remove_arms([1, policy.n_arms - 1])
    policy.save(tmp_path / "policy.npz")
    loaded, copied = type(policy).load(tmp_path / "policy.npz"), policy.copy()
    before = memory(policy)
    assert before == memory(loaded) == memory(copied)
    chosen = []
    for one in (loaded, copied, policy):
        assert one is policy or memory(policy) == before  # what the others learn does not reach it
        seed = np.random.default_rng(2)
        arms = play(one, seed, 15)
        assert one.add_arms(X[-4:]).tolist() == list(range(len(X) - 4, len(X)))
        one.remove_arms([0])
        chosen.append(arms + play(one, seed, 15))
    assert chosen[0] == chosen[1] == chosen[2]
    assert memory(loaded) == memory(copied) == memory(policy)
    assert np.array_equal(loaded.arms, X) and np.array_equal(loaded.active, policy.active)


def count_layouts(monkeypatch):
    calls = []
    true = changing_clusters.with_slots
    monkeypatch.setattr(changing_clusters, "with_slots", lambda *given: calls.append(1) or true(*given))
    return calls


@both_classes
@pytest.mark.parametrize("scene", ["general position", "one subspace", "one ray"])
def test_adding_many_arms_moves_memory_a_few_times(make, scene, monkeypatch):
    """O(ln N) times, each O(N): not once for every arm."""
    generator, count = np.random.default_rng(9), rounds(1_000, 300)
    X = generator.normal(size=(count + 6, 9))
    if scene == "one subspace":
        X = X[:, :3] @ generator.normal(size=(3, 9))
    elif scene == "one ray":
        X = X[:, :1] * X[:1]
    together, apart = MAKE[make](X[:6], 4), MAKE[make](X[:6], 4)
    calls = count_layouts(monkeypatch)
    together.add_arms(X[6:])
    at_once = len(calls)
    for x in X[6:]:
        apart.add_arms(x[None])
    assert 0 < at_once == len(calls) - at_once
    assert at_once <= (70 if scene == "general position" else 12)
    assert_same_partition(together.partition, apart.partition)
    assert len(together.state.counts) <= 3 * len(X)  # and does not waste it
    assert_same_fits(together, MAKE[make](X, 4))


# ------------------------------------------------------------------------------------------------------------- removal
@every_policy
@every_scene
def test_removed_arms_are_never_played_and_go_on_teaching(make, scene):
    X, l = SCENES[scene]()
    generator = np.random.default_rng(3)
    policy, complete, log = MAKE[make](X, l), MAKE[make](X, l), []
    order = generator.permutation(len(X)).tolist()
    gone = []
    while len(gone) < len(X) - 1:
        count = min(int(generator.integers(1, 4)), len(X) - 1 - len(gone))
        gone, last = gone + order[len(gone) : len(gone) + count], order[len(gone)]
        policy.remove_arms(gone[-count:])
        assert_plays_the_best(policy)
        assert np.flatnonzero(~policy.active).tolist() == sorted(gone)
        play(policy, generator, rounds(6, 3), log)  # late rewards of removed arms among them
        assert not set(gone) & {policy.select()}
        policy.update(last, 2.0)
        log.append((last, 2.0))
        assert_plays_the_best(policy)
    assert policy.select() == order[-1]
    assert_same_fits(policy, book(complete, log))


@both_classes
def test_a_late_reward_of_a_removed_arm_moves_the_means_of_its_cluster(make):
    X, l = SCENES["subspaces"]()
    policy = MAKE[make](X, l)
    policy.remove_arms([0])
    mates, strangers = policy.partition.members(0)[1:], policy.partition.members(1)
    policy.update(0, -3.0)
    means = policy.state.stats[MEAN, slots(policy)]
    assert np.all(means[mates] != 0.0)
    assert np.all(means[strangers] == 0.0)


@both_classes
def test_ids_are_not_given_out_twice(make):
    X, l = SCENES["general"]()
    policy = MAKE[make](X[:10], l)
    policy.remove_arms([9, 3])
    policy.remove_arms([3])  # a second time changes nothing
    assert policy.add_arms(X[10:12]).tolist() == [10, 11]
    assert policy.active.tolist() == [i not in (3, 9) for i in range(12)]
    policy.remove_arms([])
    assert policy.active.sum() == 10
    assert policy.counts.shape == policy.bounds().shape == (12,)


# ------------------------------------------------------------------------------------------------------------- refusals
@every_policy
def test_refused_calls_change_nothing(make):
    X, l = SCENES["general"]()
    policy = MAKE[make](X[:30], l)
    policy.add_arms(X[30:33])
    play(policy, np.random.default_rng(4), 20)
    policy.remove_arms([4, 5])
    before = memory(policy)
    spoiled = [np.where(np.arange(9) == 3, bad, X[:2]) for bad in (np.nan, np.inf, 1e200)]
    for bad in (*spoiled, X[0], np.zeros((0, 9)), X[:2, :8], [["a"] * 9], np.ma.masked_equal(X[:2], X[0, 0])):
        with pytest.raises(ValueError, match="arms must be"):
            policy.add_arms(bad)
    for bad, name in [
        ([33], r"ids\[0\] must be a whole number from 0 to 32, got 33"),
        ([0, -1], r"ids\[1\] must be a whole number from 0 to 32, got -1"),
        ([0, True], r"ids\[1\] must be a whole number from 0 to 32, got True"),
        (np.array([True, False]), r"ids\[0\] must be a whole number"),
        ([1.5], r"ids\[0\] must be a whole number"),
        (["3"], r"ids\[0\] must be a whole number"),
        (3, "ids must be a 1-D array of whole numbers, got 3"),
        ([[1, 2]], "ids must be a 1-D array of whole numbers"),
        (range(33), "ids must leave at least one arm to play, got all 31 that are left"),
        ([i for i in range(33) if i not in (4, 5)], "ids must leave at least one arm to play, got all 31"),
    ]:
        with pytest.raises(ValueError, match=name):
            policy.remove_arms(bad)
    for bad, name in [
        (Partition.first_fit(policy.arms, sketch_size=l + 1), "sketch_size must be left out or the partition's"),
        (Partition.first_fit(X[:30], sketch_size=l), "partition must be one of arms of shape"),
        (Partition.first_fit(policy.arms[::-1], sketch_size=l), "partition must be one of these arms"),
        ("subspaces", "partition must be a Partition or None"),
    ]:
        with pytest.raises(ValueError, match=name):
            policy.repartition(bad, force=True)
    assert memory(policy) == before
    assert_plays_the_best(policy)


@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({}, "radius='paper', engine='coordinates'"),
        ({"radius": lambda n, logdet: 1.0}, "radius=<function"),
        ({"radius": "logdet", "engine": "sketch"}, "radius='logdet', engine='sketch'"),
    ],
)
def test_only_the_logdet_radius_lets_arms_come_and_go(options, given):
    X, l = SCENES["general"]()
    policy = CSLB(X, sketch_size=l, **options)
    before = memory(policy)
    calls = [lambda: policy.add_arms(X[:1]), lambda: policy.remove_arms([0]), lambda: policy.repartition(force=True)]
    for call in calls:
        with pytest.raises(ValueError, match=f"arms may come and go with .* only, got {given}"):
            call()
    assert memory(policy) == before
    assert policy.active.all()


# ---------------------------------------------------------------------------------------------------------- repartition
@both_classes
@pytest.mark.parametrize("grown", [False, True])
def test_repartition_finds_the_subspaces_and_keeps_every_reward(make, grown):
    X = subspace_arms(n_arms=80, dim=9, n_subspaces=3, rank=4, shuffle=True, seed=7)
    generator, log = np.random.default_rng(5), []
    policy = MAKE[make](X[: 15 if grown else 80], 4)
    play(policy, generator, 40, log)
    if grown:
        policy.add_arms(X[15:])
    play(policy, generator, 120, log)
    policy.remove_arms([0, 33])
    before = policy.counts, policy.active
    if grown:
        with pytest.raises(ValueError, match="force must be True where arms were added or freed after rewards"):
            policy.repartition()
    report = policy.repartition(force=grown)
    assert isinstance(report, Repartition)
    assert report.done and report.ratio < 1
    assert report.clusters_before > 3 == report.clusters_after == policy.partition.n_clusters
    assert np.array_equal(policy.counts, before[0]) and np.array_equal(policy.active, before[1])
    assert policy.state.control["partitions"][0] == 2
    assert_plays_the_best(policy)
    assert_shares_within_delta(policy)
    direct = type(policy)(
        X, partition=policy.partition, delta=DELTA, ridge=0.7, **({"radius": "logdet"} if make == "cslb" else {})
    )
    assert_same_fits(policy, book(direct, log))
    play(policy, generator, 30, log)
    if not grown:
        again = policy.repartition()
        assert not again.done and again.ratio >= 1  # the new part of delta is smaller: it does not pay
    policy.add_arms(X[:3])
    assert_plays_the_best(policy)


@both_classes
def test_repartition_that_does_not_pay_changes_nothing_unless_forced(make, tmp_path):
    X, l = SCENES["subspaces"]()  # in order: first-fit has found them
    generator, log = np.random.default_rng(6), []
    policy = MAKE[make](X, l)
    play(policy, generator, 60, log)
    before = memory(policy)
    report = policy.repartition()
    assert report.ratio > 1 and report.clusters_before == report.clusters_after == 2
    assert not report.done and memory(policy) == before
    spent = []
    for j in range(2, 6):
        assert policy.repartition(force=True).done
        assert policy.state.control["partitions"][0] == j
        assert_same_fits_up_to_basis(policy, book(MAKE[make](X, l), log))
        spent.append(np.exp(-policy.state.clusters["share"]).sum() * 3 / 2)  # one share of three is for later clusters
        play(policy, generator, 7, log)
    part = np.arange(2, 6)
    expected = DELTA / (part * (part + 1)) if make == "cslb" else 0.1 * 0.1 * DELTA / (part * (part - 1))
    assert np.allclose(spent, expected)
    policy.save(tmp_path / "policy.npz")
    loaded = type(policy).load(tmp_path / "policy.npz")
    assert play(loaded, np.random.default_rng(7), 20) == play(policy, np.random.default_rng(7), 20)
    assert memory(loaded) == memory(policy)


@both_classes
@pytest.mark.parametrize("loaded", [False, True])
def test_repartition_of_float32_arms_keeps_their_tolerance(make, loaded, tmp_path):
    """Built at 1e-6 and searched again at 1e-8, the rounding of float32 would split 4 clusters into 24."""
    X = subspace_arms(n_arms=48, dim=10, n_subspaces=4, rank=2, seed=1).astype(np.float32)
    policy = MAKE[make](X, 2)
    assert policy.partition.n_clusters == 4 and policy.partition.tolerance == 1e-6
    play(policy, np.random.default_rng(6), 30)
    if loaded:
        policy.save(tmp_path / "policy.npz")
        policy = type(policy).load(tmp_path / "policy.npz")
    report = policy.repartition(force=True)
    assert report.clusters_before == report.clusters_after == policy.partition.n_clusters == 4
    assert policy.partition.tolerance == 1e-6


def assert_same_fits_up_to_basis(one, other):
    """The same clusters, in any order, with any basis: the same means and widths."""
    assert np.array_equal(same_groups(one.partition.labels), same_groups(other.partition.labels))
    mine, theirs = (policy.state.stats[:, slots(policy)] for policy in (one, other))
    for row in (MEAN, WIDTH2):
        assert np.allclose(mine[row], theirs[row], rtol=1e-9, atol=1e-9)


def test_all_partitions_of_multiscale_together_spend_delta():
    total = sum(partition_share(j) for j in range(1, 20_000))
    assert 0.9999 < total <= 1.0
    assert sum(SHARES.values()) == pytest.approx(1.0, abs=1e-15)


def test_the_space_goes_on_over_a_repartition():
    X = subspace_arms(n_arms=50, dim=7, n_subspaces=3, rank=2, shuffle=True, seed=8)
    policy, generator = MAKE["multiscale"](X, 2), np.random.default_rng(8)
    play(policy, generator, 200)
    before = policy.scales()["space"]
    assert np.isfinite(before).any()
    version = int(policy.state.space["version"][0])
    assert policy.repartition(force=True).done
    after = policy.scales()["space"]
    known = np.isfinite(before)
    assert (after[known] == before[known]).mean() > 0.8  # some may have been asked for the choice that followed
    assert np.isfinite(after[known]).all()
    play(policy, generator, 100)
    assert policy.state.space["version"][0] > version
    assert_plays_the_best(policy)


# ---------------------------------------------------------------------------------------------------- the space's scale
def published_matches_a_prefix(policy, log, inside=None):
    """The published fit is the ridge fit of all rewards of arms ``inside`` (all), up to some round."""
    inside, state = np.ones(policy.n_arms, bool) if inside is None else inside, policy.state
    features = state.features[: policy.n_arms]
    R = state.factor[SHOWN, :-2]
    V = R.T @ R
    ridge = float(state.space["radius"]["ridge"][0])
    rows = np.array([features[arm] for arm, _ in log if inside[arm]])
    rewards = np.array([reward for arm, reward in log if inside[arm]])
    for n in range(len(rows) + 1):
        expected = ridge * np.eye(features.shape[1]) + rows[:n].T @ rows[:n]
        if np.allclose(V, expected, rtol=1e-9, atol=1e-9):
            assert np.allclose(V @ state.factor[SHOWN, THETA], rewards[:n] @ rows[:n], atol=1e-8)
            return n
    raise AssertionError("the published fit is that of no prefix")


@pytest.mark.parametrize("ridge", [None, 0.7])
@pytest.mark.parametrize("first", [1, 3, 9])
def test_the_space_grows_with_the_arms_and_its_fit_stays_one_of_all_rewards(first, ridge):
    """Arms that leave the span, beyond as many as there are dimensions; the ridge follows their effective rank."""
    generator, log = np.random.default_rng(9), []
    X = generator.normal(size=(31, 5)) / 3
    theta = generator.normal(size=5)
    theta /= np.linalg.norm(theta)
    policy = MAKE["multiscale"](X[:first], 2, ridge=ridge, noise=0.1)
    used = [float(policy.state.space["radius"]["ridge"][0])]
    while policy.n_arms < 31:
        for _ in range(15):
            arm = policy.select()
            log.append((arm, float(X[arm] @ theta + 0.1 * generator.normal())))
            policy.update(*log[-1])
        policy.add_arms(X[policy.n_arms : policy.n_arms + 2])
        used.append(float(policy.state.space["radius"]["ridge"][0]))
        assert policy.state.features.shape[1] == min(policy.n_arms, 5) == len(policy._basis)
        assert np.allclose(policy.state.features[: policy.n_arms] @ policy._basis, policy.arms, atol=1e-12)
        assert np.isfinite(policy.scales()["space"]).all(), "a new arm is bounded by what all others taught"
        published_matches_a_prefix(policy, log)
        assert np.all(policy.bounds() >= policy.arms @ theta)
    assert published_matches_a_prefix(policy, log) > 100
    doublings = np.log2(np.divide(used, used[0]))
    assert np.allclose(doublings, doublings.round()) and np.all(np.diff(doublings) >= 0)
    assert (doublings[-1] >= 1) == (ridge is None and first == 1)


def test_the_ridge_that_follows_the_arms_is_that_of_a_fit_with_all_of_them_up_to_a_factor_of_two():
    X, generator = np.random.default_rng(10).normal(size=(60, 8)), np.random.default_rng(11)
    grown, whole = MAKE["multiscale"](X[:2], 2, ridge=None), MAKE["multiscale"](X, 2, ridge=None)
    log, first = [], float(grown.state.space["radius"]["ridge"][0])
    while grown.n_arms < 60:
        play(grown, generator, 9, log)
        grown.add_arms(X[grown.n_arms : grown.n_arms + 3])
    mine, theirs = (float(policy.state.space["radius"]["ridge"][0]) for policy in (grown, whole))
    assert theirs / 2 <= mine <= theirs * 1.01
    # Raising it makes the fit of the same rewards with the new ridge; every ridge has its part of delta.
    published_matches_a_prefix(grown, log)
    space, most = grown.state.space[0], int(grown.state.space["most_ridges"][0])
    assert 1 < space["ridges"] <= most == 1 + math.floor(math.log2(8 * grown._unit / first))
    shares = [np.exp(-grown._space_share(j, most)) for j in range(1, most + 1)]
    assert sum(shares) == pytest.approx(SHARES["space"] * DELTA)
    assert np.isclose(space["radius"]["log_share"], grown._space_share(int(space["ridges"]), most))
    assert whole.state.space["most_ridges"][0] == 1, "the effective rank of these arms is nearly their dimension"
    assert np.isclose(whole.state.space["radius"]["log_share"][0], -np.log(SHARES["space"] * DELTA))


def test_above_the_most_dimensions_later_arms_stay_outside_and_the_fit_stays_valid(monkeypatch):
    monkeypatch.setattr(changing_scales, "MOST_DIMENSIONS", 4)
    generator, log = np.random.default_rng(10), []
    old = generator.normal(size=(9, 3)) @ generator.normal(size=(3, 12)) / 6
    new = generator.normal(size=(14, 12)) / 4
    policy = MAKE["multiscale"](old, 2, noise=0.0, theta_norm=2.0, ridge=None)
    theta = generator.normal(size=12)
    theta *= 2.0 / np.linalg.norm(theta)
    assert policy.state.features.shape[1] == 3
    for x in new:
        policy.add_arms(x[None])
        for _ in range(12):
            arm = policy.select()
            log.append((arm, float(policy.arms[arm] @ theta)))
            policy.update(*log[-1])
            assert np.all(policy.bounds() >= policy.arms @ theta - 1e-9)  # there is no noise
    assert policy.state.features.shape[1] == 4
    inside = np.arange(policy.n_arms) < 10
    assert policy.state.space["outside"][0] == (~inside).sum() == 13
    for arm in np.flatnonzero(inside).tolist() * 3:
        log.append((arm, float(policy.arms[arm] @ theta)))
        policy.update(*log[-1])
    published_matches_a_prefix(policy, log, inside)
    assert policy.state.space["version"][0] > 3
    assert np.isinf(policy.scales()["space"][10:]).all() and np.isfinite(policy.scales()["space"][:10]).all()
    assert np.all(policy.bounds() >= policy.arms @ theta - 1e-9)


def test_a_new_ray_has_its_own_bound_and_an_old_one_is_joined():
    policy = MAKE["multiscale"](np.eye(5)[:3], 2)
    for _ in range(30):
        policy.update(1, 0.9)
    ids = policy.add_arms([[0.0, -2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 0.0], [0.0] * 5])
    stats = policy.state.stats[:, slots(policy)]
    assert stats[RAY, ids[0]] == stats[RAY, 1] and stats[LENGTH, ids[0]] == -2.0
    assert stats[RAY, ids[1]] == 3 and stats[RAY, ids[2]] == -1
    assert policy.state.space["n_rays"][0] == 4
    assert stats[DIRECTION, ids[0]] < 0 < stats[DIRECTION, 1]  # it is known to be bad
    assert policy.bounds()[ids[2]] == 0.0


# ----------------------------------------------------------------------------------------------------------- shortlists
def test_with_shortlists_the_choices_are_those_of_a_full_look():
    """Two large clusters; arms come to either, so that lists of the other one are moved; and arms go."""
    generator = np.random.default_rng(0)
    spans = [np.linalg.qr(generator.normal(size=(8, 3)))[0] for _ in range(2)]
    n = rounds(600, 60)
    X = np.vstack([generator.normal(size=(n, 3)) @ span.T for span in spans])
    X /= np.linalg.norm(X, axis=1).max()
    theta = generator.normal(size=8) / 3
    full, short = (CSLB(X, sketch_size=3, radius="logdet", scan=scan) for scan in ("full", "shortlist"))
    assert (short.state.clusters["form"][:2] == LISTED).all()
    total = rounds(2_500, 150)
    for t in range(total):
        arm = full.select()
        assert short.select() == arm, f"round {t + 1}"
        arm = arm if t % 4 else int(generator.integers(full.n_arms))
        reward = float(full.arms[arm] @ theta + 0.3 * generator.normal())
        new = generator.normal(size=(2, 3)) @ spans[t % 2].T / 4
        for policy in (full, short):
            policy.update(arm, reward)
            if t > total // 2 and t % 29 == 7:
                policy.add_arms(new)
            if t % 37 == 9:
                policy.remove_arms([arm, (7 * t) % n])
        if t % 10 == 0:
            assert np.allclose(full.bounds(), short.bounds(), rtol=1e-9, atol=1e-9)
    assert full.n_arms > len(X) and not full.active.all()


def test_a_new_arm_meets_its_cluster_not_all_arms():
    generator, many = np.random.default_rng(0), 30_000
    arms = np.zeros((many + 10, 4))
    arms[:many, :2], arms[many:, 2:] = generator.normal(size=(many, 2)), generator.normal(size=(10, 2))
    policy = MultiscaleCSLB(arms, sketch_size=2, budget=0)
    assert np.bincount(policy.partition.labels).tolist() == [many, 10]
    policy.add_arms([[0.0, 0.0, 1.0, 2.0]])  # doubles the slots of its cluster
    tracemalloc.start()
    try:
        policy.add_arms([[0.0, 0.0, 3.0, 1.0]])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < many / 2, f"a mask of all arms alone takes {many} bytes, the call took {peak}"


# ------------------------------------------------------------------------------------- what an independent review found
def test_a_spare_cluster_is_never_chosen():
    """From 16 clusters on spare ones are opened; where rewards are costs, empty slots at 0 would win every draw."""
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(size=(41, 20)))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    means = X @ np.full(20, -1.0 / np.sqrt(20.0))
    policy = MultiscaleCSLB(X[:40], sketch_size=2, noise=0.05, seed=0)
    policy.play_rounds(means[:40], np.zeros(40), 0.05 * rng.normal(size=3000))
    policy.add_arms(X[40:])
    assert (policy.state.place[ARM_AT] < 0).any()
    for seed in range(20):
        policy.reseed(seed)
        assert 0 <= policy.select() < 41
        assert 0 <= policy.select(pending=[0]) < 41
    policy.play_rounds(means, np.zeros(41), 0.05 * rng.normal(size=5))
    assert policy.counts.sum() == 3005


@pytest.mark.parametrize("radius", ["mixture", "logdet"])
def test_longer_arms_added_later_do_not_change_the_ridge_that_a_radius_has_its_bias_from(radius):
    policy = MultiscaleCSLB(np.eye(3)[:1], noise=0.01, theta_norm=1000.0, radius=radius, budget=0, explore="optimism")
    policy.add_arms([[0.0, 100.0, 0.0]])
    (last,) = policy.add_arms([[0.0, 0.0, 1.0]])
    for _ in range(20):
        policy.update(int(last), 1000.0)  # no noise: every bound has to be at least the mean
    assert policy.bounds()[last] >= 1000.0 * (1.0 - 1e-12)


@pytest.mark.parametrize("cls", [CSLB, MultiscaleCSLB])
def test_freeing_arms_after_rewards_may_choose_the_clusters_too(cls):
    policy = cls(np.vstack([np.eye(6), np.eye(6)]), sketch_size=2, **({"radius": "logdet"} if cls is CSLB else {}))
    policy.update_many(np.arange(6), np.arange(6.0))
    policy.remove_arms([6, 9])
    assert policy.copy().repartition() is not None  # removing tells nothing: the arms are still counted
    policy.free_arms([6, 9])
    with pytest.raises(ValueError, match=r"force must be True where arms were added or freed after rewards"):
        policy.repartition()
    assert policy.repartition(force=True).done
    for bad in (1, "no", None):
        with pytest.raises(ValueError, match=r"force must be True or False, got"):
            policy.repartition(force=bad)
