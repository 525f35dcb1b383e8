"""Choosing among available arms, and while rewards are outstanding: twins, purity, validity, bursts, refusals."""

import re
from concurrent.futures import ThreadPoolExecutor

import naive
import numpy as np
import pytest
from catalogue import POLICIES
from conftest import rounds

from sketchbandits import CBRAP, CBSCFD, CSLB, OFUL, SOFUL, UCB1, DBSLinUCB, LinTS, LinUCB, MultiscaleCSLB
from sketchbandits.environments import correlated_arms, subspace_arms, uniform_parameter
from sketchbandits.policies.pending import rule as ahead
from sketchbandits.snapshot import leaves

N, D = 23, 11
COMMON = {"ridge": 0.6, "noise": 0.7, "theta_norm": 1.3, "delta": 0.05}
ARMS = {
    "general": correlated_arms(n_arms=N, dim=D, seed=4),
    "unit": correlated_arms(n_arms=N, dim=D, normalize="unit", seed=5),
    "low-rank": subspace_arms(n_arms=N, dim=D, n_subspaces=2, rank=3, shuffle=True, seed=4),
}
TWINS = {
    "cslb-logdet": (CSLB, naive.CSLB, {"sketch_size": 4, "radius": "logdet"}, {}),
    "cslb-sketch-logdet": (CSLB, naive.CSLB, {"sketch_size": 4, "radius": "logdet"}, {"engine": "sketch"}),
    "cslb-shortlist": (CSLB, naive.CSLB, {"sketch_size": 6, "radius": "logdet"}, {"scan": "shortlist"}),
    "cslb": (CSLB, naive.CSLB, {"sketch_size": 3}, {}),
    "oful": (OFUL, naive.OFUL, {}, {}),
    "oful-logdet": (OFUL, naive.OFUL, {"radius": "logdet"}, {}),
    "oful-rare": (OFUL, naive.OFUL, {"switching": 0.6}, {}),
    "oful-capped": (OFUL, naive.OFUL, {"radius": "mixture", "cap": True}, {}),
}


DRAWING = {name for name in POLICIES if name.startswith("lints") or name.endswith(("-ts", "-no-space"))} | {"hybrid"}


def taught(make, X, count=60, seed=1):
    """A policy that has seen ``count`` rewards, most of them of its own choices."""
    policy, generator = make(X), np.random.default_rng(seed)
    means = X @ uniform_parameter(X.shape[1], seed=4)
    for t in range(count):
        arm = policy.select() if t % 3 else int(generator.integers(len(X)))
        policy.update(arm, float(means[arm] + 0.7 * generator.normal()))
    return policy


def memory(policy):
    return {name: part.tobytes() for name, part in leaves(policy.state)}


def run_with_late_rewards(fast, slow, expected, X, steps):
    """Random arrivals, random availability: every choice is compared."""
    means, generator = X @ uniform_parameter(D, seed=4), np.random.default_rng(9)
    waiting = []
    for t in range(steps):
        allowed = generator.random(N) < 0.7 if t % 4 == 0 else np.ones(N, bool)
        allowed[generator.integers(N)] = True
        arm = fast.select(available=allowed, pending=waiting)
        standing = not waiting and allowed[slow.select()]
        assert arm == (slow.select() if standing else expected(slow, waiting, allowed)), f"step {t}, {waiting}"
        waiting.append(arm)
        while waiting and generator.random() < (0.2 if t % 60 < 30 else 0.8):
            late = waiting.pop(int(generator.integers(len(waiting))))
            reward = float(means[late] + 0.7 * generator.normal())
            fast.update(late, reward)
            slow.update(late, reward)


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("name", TWINS)
def test_same_choices_as_the_twin_with_explicit_inverses(name, arms):
    cls, twin, both, own = TWINS[name]
    X = ARMS[arms]
    fast, slow = cls(X, **both, **own, **COMMON), twin(X, **both, **COMMON)
    run_with_late_rewards(fast, slow, naive.pending_select, X, rounds(300, 90))


def test_ucb1_counts_pending_pulls():
    X = ARMS["general"]
    run_with_late_rewards(UCB1(X, noise=0.7), naive.UCB1(X, noise=0.7), naive.pending_ucb1, X, rounds(300, 90))


@pytest.mark.parametrize("name", POLICIES)
def test_many_are_as_many_single_choices_and_change_nothing(name):
    X = ARMS["general"]
    for policy in (POLICIES[name](X), taught(POLICIES[name], X)):
        before, standing = memory(policy), policy.select()
        allowed = np.arange(N) % 5 != 2
        for start, available in (([], None), ([3, 3, 7], None), ([3, 3, 7], allowed), ([], allowed)):
            many = policy.select_many(12, available=available, pending=start)
            assert many.dtype == np.int64 and many.shape == (12,)
            waiting = list(start)
            for arm in many.tolist():
                fresh = policy.copy()  # knows nothing of earlier calls
                assert policy.select(available=available, pending=waiting) == arm
                assert fresh.select(available=available, pending=np.array(waiting, np.int32)) == arm
                waiting.append(arm)
            if available is not None:
                assert allowed[many].all()
        assert policy.select_many(0).size == 0
        assert policy.select() == policy.select(pending=[]) == policy.select_many(1)[0] == standing
        assert memory(policy) == before


@pytest.mark.parametrize("name", POLICIES)
def test_what_is_remembered_ends_with_the_next_reward(name, tmp_path):
    X = ARMS["general"]
    policy = taught(POLICIES[name], X)
    waiting = policy.select_many(20).tolist()
    for t in range(6):
        policy.update(waiting.pop(t), 0.3 * t)
        assert np.array_equal(policy.select_many(4, pending=waiting), policy.copy().select_many(4, pending=waiting))
    policy.update_many(waiting[:3], [0.1, 0.2, 0.3])
    policy.save(tmp_path / "state.npz")
    loaded = type(policy).load(tmp_path / "state.npz")
    assert np.array_equal(policy.select_many(9, pending=waiting[3:]), loaded.select_many(9, pending=waiting[3:]))


@pytest.mark.parametrize("name", POLICIES)
def test_available_arms_are_chosen_among_as_though_there_were_no_others(name):
    X = ARMS["general"]
    policy, generator = taught(POLICIES[name], X), np.random.default_rng(3)
    bounds, paper = policy.bounds(), name.startswith("cslb") and policy.settings["radius"] == "paper"
    for _ in range(30):
        mask = generator.random(N) < 0.6
        mask[generator.integers(N)] = True
        arm = policy.select(available=mask)
        assert type(arm) is int and mask[arm]
        assert arm == policy.select(available=np.flatnonzero(mask)) == policy.select(available=mask.tolist())
        # Taking away an arm that was not chosen changes nothing.
        other = int(generator.choice(np.flatnonzero(mask)))
        if other != arm:
            assert policy.select(available=mask & (np.arange(N) != other)) == arm
        if mask[policy.select()]:
            assert arm == policy.select()
        elif name not in DRAWING:
            assert bounds[arm] >= naive.TIE * -abs(bounds[arm]) + bounds[mask].max() or paper


@pytest.mark.parametrize("name", sorted(set(POLICIES) - DRAWING - {"ucb1", "ucb1-wide", "hybrid-clusters"}))
def test_no_bound_falls_below_that_from_observed_rewards(name):
    generator, reached = np.random.default_rng(8), []
    for X in ARMS.values():
        for count in (0, 25, 80):
            policy = taught(POLICIES[name], X, count)
            pending, picks = policy._pending_bounds(), np.empty(1, np.int64)
            slots = pending.place[ahead.SLOT_OF, :N]
            arms, ratios = generator.integers(0, N, 40), pending.level[ahead.RATIO]
            observed, widths = policy.bounds(), pending.stats[ahead.WIDTH2].copy()
            for i in range(0, 40, 8):
                ahead.decide(pending, arms[i : i + 8], np.ones(N, np.bool_), picks)
                ahead.fill(pending.model, pending)
                bounds = pending.stats[ahead.CAPPED, slots]
                assert (bounds >= observed - 1e-9 * (1 + np.abs(observed))).all()
                assert (pending.stats[ahead.WIDTH2] <= widths).all()
                assert ratios[:-1].max() <= ratios[-1] <= ahead.LIMIT
                assert pending.place[ahead.PULLS].sum() == i + 8
            reached.append(ratios[-1])
    assert max(reached) > 1.5


@pytest.mark.parametrize("name", ["cslb-logdet", "cslb-shortlist", "oful-logdet", "linucb"])
def test_what_is_known_or_pending_only_grows_whichever_reward_comes_first(name):
    """The step of the guarantee: no discounted width is larger after a decision, or after a reward's arrival."""
    X, generator = ARMS["general"], np.random.default_rng(2)
    policy, waiting, last = taught(POLICIES[name], X, 30), [], np.full(N, np.inf)
    for _ in range(rounds(120, 40)):
        if waiting and generator.random() < 0.5:
            policy.update(waiting.pop(int(generator.integers(len(waiting)))), float(generator.normal()))
        else:
            waiting.append(policy.select(pending=waiting))
        policy.select(pending=waiting)
        widths = policy._kept_bounds.pending.stats[ahead.WIDTH2]
        assert (widths <= last * (1 + 1e-9)).all()
        last = widths.copy()


DATASET_1 = correlated_arms(n_arms=60, dim=50, seed=1)
BURSTS = {
    "cslb-logdet": lambda X: CSLB(X, sketch_size=5, radius="logdet"),
    "cslb": lambda X: CSLB(X, sketch_size=5),
    "oful": OFUL,
    "linucb": LinUCB,
    "ucb1": UCB1,
    "soful": lambda X: SOFUL(X, sketch_size=5),
    "cbscfd": lambda X: CBSCFD(X, sketch_size=5),
    "dbslinucb": lambda X: DBSLinUCB(X, sketch_size=5),
    "cbrap": lambda X: CBRAP(X, sketch_size=5, seed=0),
    "multiscale": lambda X: MultiscaleCSLB(X, sketch_size=5),
}


@pytest.mark.parametrize("name", BURSTS)
def test_a_cold_burst_reaches_every_arm(name):
    picks = BURSTS[name](DATASET_1).select_many(rounds(1000, 200))
    assert len(set(picks.tolist())) == 60
    if name == "ucb1":
        assert sorted(picks[:60].tolist()) == list(range(60))


def test_a_burst_is_wider_than_one_arm_and_narrower_than_all_once_much_is_known():
    X = ARMS["general"]
    policy = LinUCB(X, ridge=0.6)
    means = X @ uniform_parameter(D, seed=4)
    policy.update_many(np.arange(3000) % N, np.tile(means, 131)[:3000])
    assert len(set(policy.select_many(40).tolist())) == 1  # the width of 40 pulls is nothing beside 3000
    policy = taught(lambda arms: LinUCB(arms, ridge=0.6), X, 100)
    assert 1 < len(set(policy.select_many(40).tolist())) < N


@pytest.mark.parametrize(
    "make", [lambda: LinTS(DATASET_1, seed=3), lambda: SOFUL(DATASET_1, sketch_size=5, exploration="ts", seed=3)]
)
def test_sampling_policies_draw_afresh_for_every_pending_decision(make):
    policy = make()
    picks = policy.select_many(30)
    assert picks[0] == policy.select()
    assert len(set(picks.tolist())) > 5
    # Which arms are pending does not matter, how many are does; and another reward makes other draws.
    assert policy.select(pending=[0] * 7) == policy.select(pending=picks[:7]) == picks[7]
    policy.update(0, 0.0)
    assert policy.select_many(30).tolist() != picks.tolist()


def test_draws_of_different_rounds_and_indices_never_share_a_counter():
    counters = {ahead.draw_round(float(recorded), index) for recorded in range(50) for index in range(50)}
    assert len(counters) == 2500
    assert ahead.draw_round(17.0, 0) == 17


def test_threads_that_read_together_choose_alike():
    policy = taught(POLICIES["cslb-logdet"], ARMS["general"])
    expected = policy.copy().select_many(60).tolist()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: policy.select(pending=expected[:k]), [*range(60)] * 3))
    assert found == expected * 3


def test_removed_arms_are_never_chosen():
    class Fading(OFUL):
        gone = ()

        @property
        def active(self):
            return ~np.isin(np.arange(self.n_arms), self.gone)

    policy = Fading(ARMS["general"])
    policy.gone = policy.select_many(9)[1:]
    assert not np.isin(policy.select_many(200), policy.gone).any()
    with pytest.raises(ValueError, match="available must hold at least one arm that may be played"):
        policy.select(available=policy.gone[:2])


def test_arms_that_come_and_go_take_part():
    X = ARMS["general"]
    policy = CSLB(X[:17], sketch_size=4, radius="logdet")
    policy.select(pending=[1, 2])
    ids = policy.add_arms(X[17:])
    burst = policy.select_many(200, pending=[1, 2])
    assert set(range(N)) == set(burst.tolist())
    policy.remove_arms([ids[0], 3])
    later = policy.select_many(200, pending=[1, 2, 3])
    assert set(range(N)) - {3, int(ids[0])} == set(later.tolist())
    with pytest.raises(ValueError, match="available must hold at least one arm that may be played"):
        policy.select(available=[3])


BAD = [
    ({"available": []}, "available must hold at least one arm that may be played, got []"),
    ({"available": np.zeros(N, bool)}, "available must hold at least one arm that may be played, got array"),
    ({"available": [True] * 5}, f"available must be arm ids or a mask of {N} entries, got a mask of 5"),
    ({"available": [0, N]}, f"available[1] must be a whole number from 0 to {N - 1}, got {N}"),
    ({"available": [0, True]}, f"available[1] must be a whole number from 0 to {N - 1}, got True"),
    ({"available": [[0, 1]]}, "available must be a 1-D array of arm ids or a mask, got shape (1, 2)"),
    ({"available": 3}, "available must be a 1-D array of arm ids or a mask, got 3"),
    ({"pending": [0, -1]}, f"pending[1] must be a whole number from 0 to {N - 1}, got -1"),
    ({"pending": [0.0]}, f"pending[0] must be a whole number from 0 to {N - 1}, got 0.0"),
    ({"pending": np.ones(N, bool)}, f"pending[0] must be a whole number from 0 to {N - 1}, got True"),
    ({"pending": 4}, "pending must be a 1-D array of whole numbers, got 4"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_arguments_are_refused_by_name_and_change_nothing(arguments, message):
    policy = UCB1(ARMS["general"])
    policy.update(3, 0.5)
    before = memory(policy)
    for call in (policy.select, lambda **given: policy.select_many(2, **given)):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
            call(**arguments)
    for count in (-1, 1.5, True, None):
        with pytest.raises(ValueError, match="count must be a whole number >= 0"):
            policy.select_many(count)
    assert memory(policy) == before


@pytest.mark.filterwarnings("ignore::sketchbandits.AssumptionWarning")  # they contradict the noise on purpose
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("rewards", [(0.0, 25.0), (1.0, 5.0)], ids=str)
def test_rewards_beyond_what_the_noise_allows_leave_a_choice(seed, rewards):
    """Lower bounds may then lie above every capped upper bound: no arm is plausible, and one must be played."""
    rng = np.random.default_rng(seed)
    arms = rng.normal(size=(20, 4))
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    policy, waiting = MultiscaleCSLB(arms, sketch_size=5), []
    for _ in range(rounds(300, 120)):
        chosen = policy.select_many(3, pending=waiting).tolist()
        assert all(0 <= arm < 20 for arm in chosen)
        waiting += chosen
        recorded = [waiting.pop(-3), waiting.pop(-2)]
        policy.update_many(recorded, rng.choice(rewards, 2))


@pytest.mark.parametrize("budget", ["auto", 50])
def test_asking_has_no_side_effect_on_later_questions(budget):
    """Bounds of older fits are brought up to date as they lead: what was looked at before must not matter."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(20, 3))
        theta = rng.normal(size=3) / 2.0
        policy = MultiscaleCSLB(X, explore="optimism", noise=0.1, budget=budget)
        arms = rng.integers(0, 20, 40)
        policy.update_many(arms, X[arms] @ theta + 0.1 * rng.normal(size=40))
        asked, waiting = policy.copy(), [0, 1, 2]
        asked.select(available=rng.permutation(20)[:5], pending=waiting)
        expected = policy.copy().select_many(60, pending=waiting)
        assert np.array_equal(asked.select_many(60, pending=waiting), expected)
        single = []
        for _ in range(60):
            single.append(policy.copy().select(pending=waiting + single))
        assert np.array_equal(single, expected)
        first = policy.select()
        policy.remove_arms([first])
        asked.remove_arms([first])
        assert np.array_equal(asked.select_many(30, pending=waiting), policy.select_many(30, pending=waiting))
