"""Freeing removed arms: what is kept notices nothing, memory is given back, no part of delta is given out twice."""

import naive
import numpy as np
import pytest
from conftest import rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchbandits import CSLB, OFUL, UCB1, LinUCB, MultiscaleCSLB
from sketchbandits.environments import correlated_arms, subspace_arms
from sketchbandits.policies import changing_arms
from sketchbandits.policies.cslb import changing_clusters
from sketchbandits.policies.cslb.layout import LISTED, SLOT
from sketchbandits.policies.multiscale.changing_scales import auto_budget
from sketchbandits.policies.multiscale.state import RAY, SHOWN, THETA
from sketchbandits.policies.remainder import remainder_of
from sketchbandits.policies.rounds import WIDTH2
from sketchbandits.snapshot import leaves

DELTA = 0.05
MAKE = {
    "ucb1": lambda arms, l=3: UCB1(arms),
    "oful": lambda arms, l=3: OFUL(arms, arm_norm=1.0),
    "oful-logdet": lambda arms, l=3: OFUL(arms, radius="logdet", ridge=0.4),
    "oful-rare": lambda arms, l=3: OFUL(arms, switching=0.5, arm_norm=1.0),
    "oful-capped": lambda arms, l=3: OFUL(arms, radius="mixture", ridge=2.0, cap=True, theta_norm=0.5),
    "oful-function": lambda arms, l=3: OFUL(arms, radius=lambda n, logdet: 1.0 + 0.1 * logdet + 0.01 * n),
    "linucb": lambda arms, l=3: LinUCB(arms, alpha=0.7),
    "cslb": lambda arms, l=3: CSLB(arms, sketch_size=l, radius="logdet", ridge=0.7, delta=DELTA),
    "cslb-shortlist": lambda arms, l=3: CSLB(arms, sketch_size=l, radius="logdet", scan="shortlist"),
    # So large a budget that the space's fit never waits for it: smaller clusters take less of one.
    "multiscale": lambda arms, l=3: MultiscaleCSLB(arms, sketch_size=l, delta=DELTA, budget=10**6),
    "multiscale-no-space": lambda arms, l=3: MultiscaleCSLB(arms, sketch_size=l, ridge=0.7, budget=0),
}
every_policy = pytest.mark.parametrize("make", MAKE)
CLUSTERED = ["cslb", "multiscale"]
both_classes = pytest.mark.parametrize("make", CLUSTERED)
N, D = 44, 7


def odd_arms():
    """Two subspaces of rank 3, a zero arm, parallel and equal arms."""
    arms = subspace_arms(n_arms=N, dim=D, n_subspaces=2, rank=3, seed=2)
    arms[5], arms[9], arms[30], arms[11] = 0.5 * arms[6], -arms[8], arms[31], 0.0
    return arms / np.linalg.norm(arms, axis=1).max()


def general_arms():
    """A cluster for every three arms."""
    return correlated_arms(n_arms=N, dim=D, seed=1)


SCENES = {"odd": odd_arms, "general": general_arms}
every_scene = pytest.mark.parametrize("scene", SCENES)


class Pair:
    """A policy whose arms are freed and its twin that forgets nothing; arms are named by their ids in the twin."""

    def __init__(self, make, arms, l=3, seed=0):
        self.policy, self.twin = MAKE[make](arms, l), MAKE[make](arms, l)
        self.generator = np.random.default_rng([seed, 11])
        self.theta = self.generator.normal(size=arms.shape[1]) / 3
        self.names = np.arange(len(arms))  # per arm of the policy, -1 for internal ones

    @property
    def real(self):
        return np.flatnonzero(self.names >= 0)

    def number(self, names):
        return [int(np.flatnonzero(self.names == name)[0]) for name in names]

    def learn(self, total, any_arm=0.5):
        for _ in range(total):
            name = self.twin.select()
            if self.generator.random() < any_arm:
                name = int(self.generator.choice(self.names[self.real]))
            reward = float(self.twin.arms[name] @ self.theta + 0.3 * self.generator.normal())
            self.twin.update(name, reward)
            self.policy.update(*self.number([name]), reward)

    def remove(self, names):
        self.twin.remove_arms(names)
        self.policy.remove_arms(self.number(names))

    def free(self, names):
        kept = self.policy.free_arms(self.number(names))
        assert kept.dtype == np.int64 and kept.shape == (self.policy.n_arms,)
        assert not names or np.all(kept[: self.policy.n_arms - np.sum(kept < 0)] >= 0)
        self.names = np.where(kept >= 0, self.names[kept], -1)

    def add(self, arms):
        first = self.twin.n_arms
        self.twin.add_arms(arms)
        ids = self.policy.add_arms(arms)
        self.names = np.concatenate([self.names, np.arange(first, self.twin.n_arms)])
        assert ids.tolist() == self.number(range(first, self.twin.n_arms))

    def assert_same(self):
        policy, twin, own = self.policy, self.twin, self.real
        assert policy.n_arms == self.names.size
        assert np.array_equal(policy.arms[own], twin.arms[self.names[own]])
        assert np.array_equal(policy.active[own], twin.active[self.names[own]])
        assert not policy.active[self.names < 0].any()
        assert np.array_equal(policy.counts[own], twin.counts[self.names[own]])
        for mine, theirs in ((policy.bounds(), twin.bounds()), (policy.estimates(), twin.estimates())):
            np.testing.assert_allclose(mine[own], theirs[self.names[own]], rtol=1e-9, atol=1e-11)
        self.assert_same_choice(policy.select(), twin.select())

    def assert_same_choice(self, mine, theirs):
        bounds = self.twin.bounds()[[self.names[mine], theirs]]
        assert self.names[mine] == theirs or abs(bounds[0] - bounds[1]) <= 2e-9 * abs(bounds[1])


def memory(policy):
    """Everything that a refused call might have changed."""
    parts = {name: part.tobytes() for name, part in leaves(policy.state) if not name.endswith(".work")}
    extra = {name: np.array(part).tobytes() for name, part in policy._extra().items()}
    return parts, extra, repr(policy.settings), policy.n_arms, policy.arms.tobytes()


def n_bytes(policy):
    return policy.arms.nbytes + sum(part.nbytes for _, part in leaves(policy.state))


# -------------------------------------------------------------------------------------------------------------- oracles
@every_scene
@every_policy
def test_kept_arms_notice_nothing_now_and_later(make, scene):
    pair = Pair(make, SCENES[scene]())
    pair.learn(120)
    gone = pair.generator.permutation(N)[:20].tolist()
    pair.remove(gone)
    pair.learn(10)  # late rewards of removed arms among them
    pair.free(gone[:12])
    pair.assert_same()
    pair.learn(rounds(100, 30))
    pair.assert_same()
    pair.free(gone[12:])
    pair.assert_same()
    pair.learn(rounds(200, 40))
    pair.assert_same()
    if make != "ucb1" and scene == "odd":  # no cluster has gone
        assert pair.policy.counts.sum() == pair.twin.counts.sum()


@every_scene
@every_policy
def test_pending_decisions_are_as_without_freeing(make, scene):
    pair = Pair(make, SCENES[scene](), seed=1)
    pair.learn(150)
    gone = pair.generator.permutation(N)[:20].tolist()
    pair.remove(gone)
    pair.free(gone[::2])
    playing = np.flatnonzero(pair.twin.active)
    waiting = pair.generator.choice(playing, 6).tolist()
    mine = pair.policy.select_many(12, pending=pair.number(waiting), available=pair.number(playing[3:]))
    theirs = pair.twin.select_many(12, pending=waiting, available=playing[3:])
    assert pair.names[mine].tolist() == theirs.tolist()


@every_policy
def test_the_slow_twin_with_all_arms_agrees(make):
    """`naive` knows nothing of freeing: its bounds are those of explicit matrices of all rewards."""
    X, common = odd_arms(), {"ridge": 0.7, "delta": DELTA}
    slow = {
        "ucb1": lambda: naive.UCB1(X),
        "oful": lambda: naive.OFUL(X, arm_norm=1.0),
        "oful-logdet": lambda: naive.OFUL(X, radius="logdet", ridge=0.4),
        "oful-capped": lambda: naive.OFUL(X, radius="mixture", ridge=2.0, cap=True, theta_norm=0.5),
        "linucb": lambda: naive.LinUCB(X, alpha=0.7),
        "cslb": lambda: naive.CSLB(X, sketch_size=3, radius="logdet", **common),
        "multiscale-no-space": lambda: naive.NaiveMultiscale(X, sketch_size=3, ridge=0.7, budget=0),
    }
    if make not in slow:
        pytest.skip("a variant of one that has a slow twin")
    fast, twin, generator = MAKE[make](X), slow[make](), np.random.default_rng(4)
    names = np.arange(N)
    for step in range(4):
        for _ in range(30):
            arm, reward = int(generator.choice(np.flatnonzero(names >= 0))), float(generator.normal())
            fast.update(arm, reward)
            twin.update(int(names[arm]), reward)
        gone = generator.permutation(np.flatnonzero(names >= 0))[: 4 + step]
        fast.remove_arms(gone)
        kept = fast.free_arms(gone)
        names = np.where(kept >= 0, names[kept], -1)
        own = names >= 0
        np.testing.assert_allclose(fast.bounds()[own], twin.bounds()[names[own]], rtol=1e-9, atol=1e-9)


def test_the_space_learns_what_freed_arms_had_left_in_its_queue_and_batch():
    """With a small budget both are never empty; every published fit is that of all rewards up to some round."""
    X, log = np.random.default_rng(9).normal(size=(40, 5)) / 3, []
    policy, generator, names = MultiscaleCSLB(X, sketch_size=2, budget=45), np.random.default_rng(9), np.arange(40)
    published, left, several = set(), [], 0
    for _ in range(8):
        for _ in range(40):
            arm = int(generator.choice(np.flatnonzero(names >= 0)))
            log.append((int(names[arm]), float(generator.normal())))
            policy.update(arm, log[-1][1])
            published.add(prefix_of_the_published_fit(policy, X, log))
        gone = generator.permutation(np.flatnonzero(names >= 0))[:4]
        space = policy.state.space[0]
        waiting, batch = policy.state.waiting["queued"][gone], policy.state.waiting["batch"]
        left.append((waiting.any(), np.isin(gone, batch[space["at"] : space["in_batch"]]).any()))
        policy.remove_arms(gone)
        kept = policy.free_arms(gone)
        names = np.where(kept >= 0, names[kept], -1)
        several = max(several, int((kept < 0).sum()))
    assert np.any(left, axis=0).all(), "nothing was freed that had rewards left in the queue, or in the batch"
    assert len(published) > 4 and max(published) > 250
    assert several <= 2 * len(policy.partition.ranks) + 2 * 5


def prefix_of_the_published_fit(policy, X, log):
    """How many rewards the published fit is made of."""
    R, theta = policy.state.factor[SHOWN, :-2], policy.state.factor[SHOWN, THETA]
    V, rows = R.T @ R, X[[arm for arm, _ in log]]
    rewards, ridge = np.array([reward for _, reward in log]), float(policy.state.space["radius"]["ridge"][0])
    grams = np.concatenate([np.zeros((1, 5, 5)), np.cumsum(rows[:, :, None] * rows[:, None, :], axis=0)])
    n = int(np.argmin(np.abs(grams + ridge * np.eye(5) - V).max(axis=(1, 2))))
    np.testing.assert_allclose(V, grams[n] + ridge * np.eye(5), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(V @ theta, rewards[:n] @ rows[:n], rtol=1e-8, atol=1e-8)
    return n


def test_a_remainder_has_the_sums_of_the_arms_that_it_stands_for():
    generator = np.random.default_rng(0)
    for n, r, scale in ((9, 4, 1.0), (2, 4, 1e6), (30, 3, 1e-6), (5, 1, 1.0), (1, 6, 2.0)):
        Z, counts, sums = generator.normal(size=(r, n)) * scale, generator.integers(0, 9, n), generator.normal(size=n)
        counts[0], sums[counts == 0] = 1, 0.0
        rest = remainder_of(Z, counts, sums)
        assert rest.counts.sum() == counts.sum() and rest.counts.min() >= 1 and rest.counts.size <= min(n, r)
        np.testing.assert_allclose(
            (rest.columns * rest.counts) @ rest.columns.T, (Z * counts) @ Z.T, atol=1e-9 * scale**2
        )
        np.testing.assert_allclose(rest.columns @ rest.sums, Z @ sums, rtol=1e-9, atol=1e-12 * scale)


def test_arms_without_rewards_leave_nothing_and_zero_arms_leave_their_number_of_rewards():
    Z = np.random.default_rng(0).normal(size=(3, 4))
    assert remainder_of(Z, np.zeros(4, np.int64), np.zeros(4)).counts.size == 0
    rest = remainder_of(0.0 * Z, np.array([2, 0, 1, 0]), np.array([1.0, 0.0, 0.5, 0.0]))
    assert rest.counts.tolist() == [3] and rest.columns.tolist() == [[0.0]] * 3
    policy = OFUL(np.eye(3), arm_norm=1.0)
    policy.remove_arms([1])
    assert policy.free_arms([1]).tolist() == [0, 2]


# ------------------------------------------------------------------------------------------------------------- memory
@every_policy
def test_memory_stays_where_arms_come_and_go(make):
    """2,000 arms through a policy of 50; what is kept of all of them is at most a rank per cluster."""
    generator, total = np.random.default_rng(3), rounds(2_000, 200)
    policy = MAKE[make](generator.normal(size=(50, 6)) / 6, 4)
    for _ in range(60):
        policy.update(policy.select(), float(generator.normal()))
    start, most, names = n_bytes(policy), 0, 50
    for first in range(0, total, 25):
        names += policy.add_arms(generator.normal(size=(25, 6)) / 6).size
        policy.remove_arms(generator.choice(np.flatnonzero(policy.active), 25, replace=False))
        for _ in range(5):
            policy.update(policy.select(), float(generator.normal()))
        if first % 50:
            policy.free_arms(np.flatnonzero(~policy.active))
            most = max(most, n_bytes(policy))
            assert policy.active.sum() == 50
    assert names > 200
    assert most <= 2 * start, f"{start} bytes became {most}"
    if isinstance(policy, OFUL | LinUCB):
        assert policy.n_arms <= 50 + 6


@every_policy
def test_repeated_calls_merge_what_they_carry(make):
    pair = Pair(make, odd_arms(), seed=5)
    pair.learn(100)
    for name in range(0, 40, 2):
        pair.remove([name])
        pair.learn(4)
        pair.free([name])
        pair.assert_same()
    internal = int((pair.names < 0).sum())
    bound = {UCB1: 0, OFUL: D, LinUCB: D, CSLB: 3 * 2, MultiscaleCSLB: 3 * 2 + 2 * D}[type(pair.policy)]
    assert internal <= bound + 1  # and one for zero arms
    assert pair.policy._remainders.tolist() == np.flatnonzero(pair.names < 0).tolist()


# --------------------------------------------------------------------------------------------------------- properties
steps = st.lists(st.tuples(st.sampled_from("aruf"), st.integers(0, 10**6)), min_size=1, max_size=14)


@pytest.mark.parametrize("make", ["ucb1", "oful", "linucb", "cslb", "multiscale"])
@settings(max_examples=rounds(25, 4), deadline=None, derandomize=True)
@given(steps=steps)
def test_any_sequence_of_changes_is_as_without_freeing(make, steps):
    """One cluster of full rank, which never goes: there later arms too are as without freeing."""
    pair = Pair(make, np.random.default_rng(6).normal(size=(9, 4)) / 8, l=4)
    for step, seed in steps:
        generator = np.random.default_rng(seed)
        if step == "a":
            pair.add(generator.normal(size=(1 + seed % 3, 4)) / 8)
        elif step == "u":
            pair.learn(1 + seed % 7)
        active = np.flatnonzero(pair.twin.active)
        if step == "r" and active.size > 1:
            pair.remove(generator.permutation(active)[: 1 + seed % (active.size - 1)].tolist())
        if step == "f":
            closed = pair.names[pair.real][~pair.policy.active[pair.real]]
            pair.free(generator.permutation(closed)[: seed % (closed.size + 1)].tolist())
    pair.learn(5)
    pair.assert_same()


@both_classes
@settings(max_examples=rounds(20, 3), deadline=None, derandomize=True)
@given(steps=steps)
def test_parts_of_delta_are_given_out_once(make, steps):
    """In clusters of two arms, most of which go: what all that ever opened may spend, and what is played."""
    policy, generator = MAKE[make](np.random.default_rng(7).normal(size=(7, 5)) / 9, 2), np.random.default_rng(8)
    parts = {"cluster": {}, "ray": {}}
    for step, seed in [*steps, ("a", 5), ("u", 3)]:
        chosen = np.random.default_rng(seed)
        active = np.flatnonzero(policy.active)
        if step == "a":
            policy.add_arms(chosen.normal(size=(1 + seed % 3, 5)) / 9)
        elif step == "r" and active.size > 1:
            policy.remove_arms(chosen.permutation(active)[: 1 + seed % (active.size - 1)])
        elif step == "f":
            before = policy.bounds()
            kept = policy.free_arms(np.flatnonzero(~policy.active))
            real = kept >= 0
            np.testing.assert_allclose(policy.bounds()[real], before[kept[real]], rtol=1e-9, atol=1e-12)
        elif step == "u":
            for _ in range(1 + seed % 5):
                policy.update(policy.select(), float(generator.normal()))
        assert policy.active[policy.select()]
        keep_parts(policy, parts)
    assert len(parts["cluster"]) >= policy.partition.n_clusters
    assert sum(parts["cluster"].values()) <= (0.9 * 0.1 if make == "multiscale" else 1.0) * DELTA * (1 + 1e-9)
    left = float(policy.state.space["ray_left"][0]) if make == "multiscale" else 0.0
    assert left + sum(parts["ray"].values()) <= 0.9 * 0.5 * DELTA * (1 + 1e-9)


def keep_parts(policy, parts):
    """Every cluster and ray that is there with its part of delta, under what tells it from all that ever were."""
    if policy.state.control["first_clusters"][0] == 0:
        return  # `CSLB` before it grows
    for c, share in enumerate(policy.state.clusters["share"][: policy.partition.n_clusters].tolist()):
        parts["cluster"][policy.partition.basis(c)[0].tobytes()] = np.exp(-share)
    if isinstance(policy, MultiscaleCSLB):
        rays = policy.state.stats[RAY, policy.state.place[SLOT, : policy.n_arms]].astype(int)
        for arm in np.flatnonzero((rays >= 0) & (policy.counts > 0)):  # no two arms are parallel
            parts["ray"][policy.arms[arm].tobytes()] = np.exp(-policy.state.rays["share"][rays[arm]])


@both_classes
def test_clusters_and_rays_go_with_their_arms_and_later_ones_have_later_parts(make):
    X = np.random.default_rng(8).normal(size=(23, 5)) / 9
    policy, twin = MAKE[make](X[:8], 2), MAKE[make](X[:8], 2)
    for arm in range(8):
        for one in (policy, twin):
            one.update(arm, 0.5)
    assert policy.partition.n_clusters == 4
    policy.remove_arms([2, 3, 4, 5])
    kept = policy.free_arms([2, 3, 4, 5])
    assert kept[kept >= 0].tolist() == [0, 1, 6, 7]
    assert policy.partition.n_clusters == 2
    policy.add_arms(X[8:])
    twin.add_arms(X[8:])
    shares, all_shares = (one.state.clusters["share"][: one.partition.n_clusters] for one in (policy, twin))
    assert np.allclose(shares, np.delete(all_shares, [1, 2]))
    if make == "multiscale":
        for one, arm in ((policy, 18), (twin, 22)):  # the same one
            one.update(arm, 0.5)
        rays, all_rays = (one.state.rays["share"][: one.state.space["n_rays"][0]] for one in (policy, twin))
        assert np.allclose(rays, np.delete(all_rays, [2, 3, 4, 5]))
        assert policy.state.space["ray_left"] == pytest.approx(twin.state.space["ray_left"])


@both_classes
def test_the_first_cluster_stays_without_arms(make, tmp_path):
    X = general_arms()
    policy = MAKE[make](X)
    first = policy.partition.members(0)
    policy.remove_arms(first)
    policy.free_arms(first)  # no rewards: nothing is left of them
    assert policy.partition.members(0).size == 0 and policy.n_arms == N - first.size
    policy.save(tmp_path / "policy.npz")
    policy = type(policy).load(tmp_path / "policy.npz")
    for _ in range(20):
        policy.update(policy.select(), 0.3)
    ids = policy.add_arms(X[first])
    assert policy.partition.labels[ids].tolist() == [0] * first.size
    assert policy.active[policy.select()]


def test_a_ray_keeps_what_freed_arms_on_it_taught():
    policy = MultiscaleCSLB(np.vstack([np.eye(5)[:3], 0.5 * np.eye(5)[1:2]]), sketch_size=2)
    policy.update_many([1] * 30, [-0.9] * 30)
    policy.remove_arms([1, 2])
    before = policy.scales()["direction"][3]
    kept = policy.free_arms([1, 2])
    assert kept[kept >= 0].tolist() == [0, 3]
    assert policy.scales()["direction"][1] == before < 0
    assert policy.state.space["n_rays"][0] == 2
    ids = policy.add_arms([[0.0, -0.7, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    rays = policy.state.stats[RAY, policy.state.place[SLOT, : policy.n_arms]]
    assert rays[ids[0]] == rays[1] and rays[ids[1]] == 2  # the freed arm's ray is not found again


# ------------------------------------------------------------------------------------------------- refusals and files
@every_policy
def test_refused_calls_change_nothing(make):
    pair = Pair(make, odd_arms())
    pair.learn(30)
    pair.remove([4, 5, 8])
    pair.free([5])
    policy = pair.policy
    before = memory(policy)
    for bad, word in [
        ([0], "ids must be those of removed arms, got 0, which may still be played"),
        ([4, 6], "ids must be those of removed arms, got 6"),
        ([policy.n_arms], rf"ids\[0\] must be a whole number from 0 to {policy.n_arms - 1}"),
        ([-1], r"ids\[0\] must be a whole number"),
        ([0.5], r"ids\[0\] must be a whole number"),
        (4, "ids must be a 1-D array of whole numbers, got 4"),
    ]:
        with pytest.raises(ValueError, match=word):
            policy.free_arms(bad)
    nothing = policy.free_arms([])
    assert nothing.tolist() == [-1 if i in policy._remainders else i for i in range(policy.n_arms)]
    assert memory(policy) == before


@pytest.mark.parametrize("options", [{}, {"engine": "sketch", "radius": "logdet"}])
def test_only_the_logdet_radius_lets_arms_be_freed(options):
    with pytest.raises(ValueError, match="arms may come and go with"):
        CSLB(odd_arms(), sketch_size=3, **options).free_arms([])


@both_classes
def test_repartition_needs_the_rewards_of_all_arms(make):
    pair = Pair(make, odd_arms())
    pair.remove([3])
    pair.free([3])
    assert pair.policy.repartition(force=True).done  # that one had none
    pair.learn(20)
    pair.policy.update(*pair.number([4]), 1.0)
    pair.remove([4])
    pair.free([4])
    before = memory(pair.policy)
    with pytest.raises(ValueError, match=r"repartition needs the rewards of every arm .*, got a policy that has"):
        pair.policy.repartition(force=True)
    assert memory(pair.policy) == before


@every_policy
def test_saved_loaded_and_copied_it_goes_on_bit_for_bit(make, tmp_path):
    pair = Pair(make, odd_arms(), seed=7)
    pair.learn(60)
    pair.remove([2, 3, 5, 30, 33])
    pair.free([2, 5, 33])
    policy = pair.policy
    policy.save(tmp_path / "policy.npz")
    given = {"radius": policy.settings["radius"]} if callable(policy.settings.get("radius")) else {}
    ones = [policy, type(policy).load(tmp_path / "policy.npz", **given), policy.copy()]
    assert memory(ones[0])[:2] == memory(ones[1])[:2] == memory(ones[2])[:2]
    for one in ones:
        generator = np.random.default_rng(2)
        for step in range(3):
            for _ in range(10):
                one.update(one.select(), float(generator.normal()))
            if step == 1:
                one.add_arms(odd_arms()[:2])
                one.free_arms(np.flatnonzero(~one.active)[:2])
    assert memory(ones[0])[:2] == memory(ones[1])[:2] == memory(ones[2])[:2]


@pytest.mark.parametrize("make", ["oful", "cslb"])
def test_a_file_with_internal_arms_that_are_none_is_refused(make, tmp_path):
    pair = Pair(make, odd_arms())
    pair.learn(80)
    pair.remove([1, 2])
    pair.free([1, 2])
    pair.policy._remainders = pair.policy._remainders + 1_000
    pair.policy.save(tmp_path / "policy.npz")
    with pytest.raises(ValueError, match="path must hold remainders from 0 to"):
        type(pair.policy).load(tmp_path / "policy.npz")


@every_policy
def test_an_interrupt_leaves_everything_as_it_was(make, monkeypatch):
    pair = Pair(make, odd_arms())
    pair.learn(30)
    pair.remove([1, 2])

    def interrupted(*given):
        raise KeyboardInterrupt

    before = memory(pair.policy)
    with monkeypatch.context() as patch:
        patch.setattr(changing_arms.ChangingArms, "_renumber", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pair.policy.free_arms([1])
        patch.undo()
        patch.setattr(changing_clusters, "take_step", interrupted)
        if make in CLUSTERED:
            with pytest.raises(KeyboardInterrupt):
                pair.policy.free_arms([1])
    assert memory(pair.policy) == before
    pair.free([1])
    pair.assert_same()


@every_policy
def test_a_choice_that_an_interrupt_has_left_on_a_removed_arm_is_made_again(make):
    pair = Pair(make, odd_arms())
    pair.learn(30)
    chosen = pair.policy.select()
    pair.remove([pair.names[chosen]])
    choice = pair.policy.state.choice
    choice[0] = chosen
    pair.free([chosen])
    pair.assert_same()


def test_a_cluster_may_lose_its_shortlists():
    X = np.random.default_rng(0).normal(size=(60, 3)) @ np.random.default_rng(1).normal(size=(3, 6)) / 9
    pair = Pair("cslb-shortlist", X)
    pair.learn(rounds(300, 40))
    assert (pair.policy.state.clusters["form"] == LISTED).all()
    pair.remove(range(2, 50))
    pair.free(range(2, 50))
    pair.learn(50)
    pair.assert_same()
    pair.remove(range(50, 60))
    pair.free(range(50, 60))
    assert not (pair.policy.state.clusters["form"] == LISTED).any()
    pair.learn(20)
    pair.assert_same()
    assert pair.policy.state.stats[WIDTH2].min() >= 0.0


# ---------------------------------------------------------------------------------------------- how long an arm may be
def test_a_new_arm_may_be_longer_than_arm_norm_by_rounding():
    """Unit arms in float32: half of them are longer than 1."""
    X = np.random.default_rng(0).normal(size=(300, 7)).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    policy = OFUL(0.5 * X[:9], arm_norm=1.0)
    policy.add_arms(X)
    longest = np.linalg.norm(X.astype(np.float64), axis=1).max()
    assert 1.0 + 1e-9 < policy.settings["arm_norm"] == longest  # the radius holds for the arms that there are
    twin = OFUL(np.vstack([0.5 * X[:9], X]), arm_norm=longest)
    for one in (policy, twin):
        one.update_many(range(40), np.linspace(0, 1, 40))
    np.testing.assert_allclose(policy.bounds(), twin.bounds(), rtol=1e-12)


def test_a_refused_norm_is_shown_with_the_digits_that_differ():
    policy = OFUL(np.eye(3), arm_norm=1.0)
    with pytest.raises(ValueError, match=r"up to arm_norm = 1 with radius='closed', got 1\.00001$"):
        policy.add_arms([[1.00001, 0.0, 0.0]])
    with pytest.raises(ValueError, match=r"at least the largest arm norm 1\.0000001, got 1\.0$"):
        OFUL(1.0000001 * np.eye(3), arm_norm=1.0)
    assert policy.settings["arm_norm"] == 1.0 and policy.n_arms == 3


def test_the_ridge_and_the_budget_follow_the_arms_that_are_left():
    rng = np.random.default_rng(0)
    flat = rng.normal(size=(600, 2)) @ rng.normal(size=(2, 24))
    policy = MultiscaleCSLB(flat / np.linalg.norm(flat, axis=1, keepdims=True))
    before = float(policy.state.space["radius"]["ridge"][0])
    policy.remove_arms(np.arange(10, 600))
    policy.free_arms(np.arange(10, 600))
    assert policy.state.space["budget"][0] == auto_budget(policy.n_arms, policy.state.features.shape[1])
    full = rng.normal(size=(300, 24))
    policy.add_arms(full / np.linalg.norm(full, axis=1, keepdims=True))
    fresh = float(MultiscaleCSLB(policy.arms).state.space["radius"]["ridge"][0])
    assert before < fresh / 4.0
    assert fresh / 2.0 < float(policy.state.space["radius"]["ridge"][0]) <= fresh
