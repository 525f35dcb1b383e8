"""Approximate membership: arms a little off a span share its cluster, and two more terms keep their bounds valid.

With arms ``eps_x`` off the span, ``ucb(x) = z.theta + beta ||z||_A + S eps_x + S ||z||_A sqrt(sum_j n_j eps_j^2)``.
"""

import warnings

import naive
import numpy as np
import pytest
from conftest import rounds

from sketchbandits import CSLB, MultiscaleCSLB, Partition
from sketchbandits.environments import subspace_arms
from sketchbandits.policies.cslb.layout import LISTED, OFF_SPAN, OFFSET, SLOT
from sketchbandits.policies.rounds import WIDTH2
from sketchbandits.snapshot import leaves

MAKE = {
    "cslb": lambda arms, l, **more: CSLB(arms, sketch_size=l, radius="logdet", **more),
    "multiscale": lambda arms, l, **more: MultiscaleCSLB(arms, sketch_size=l, explore="optimism", **more),
    "multiscale-alone": lambda arms, l, **more: MAKE["multiscale"](arms, l, budget=0, **more),
}
both_classes = pytest.mark.parametrize("make", ["cslb", "multiscale"])
every_policy = pytest.mark.parametrize("make", MAKE)


def off_span(policy):
    return policy.state.stats[OFF_SPAN, policy.state.place[SLOT, : policy.n_arms]]


def near_low_rank(shuffle=False):
    return subspace_arms(n_arms=60, dim=12, n_subspaces=2, rank=3, noise=1e-3, shuffle=shuffle, seed=1)


# ------------------------------------------------------------------------------------------------------ shared clusters
@every_policy
def test_arms_near_a_subspace_share_a_cluster(make):
    X = near_low_rank()
    policy = MAKE[make](X, 3, tolerance=0.05)
    assert policy.partition.n_clusters == 2
    assert MAKE[make](X, 3).partition.n_clusters == 20
    assert 0.0 < off_span(policy).max() < 0.05
    assert np.array_equal(policy.bounds(), np.linalg.norm(X, axis=1))  # the prior's, before the first reward


@both_classes
def test_subspaces_of_shuffled_arms_are_found_with_a_tolerance(make):
    X = near_low_rank(shuffle=True)
    policy = MAKE[make](X, 3, tolerance=0.05)
    for arm in range(20):
        policy.update(arm, 0.1)
    report = policy.repartition(force=True)
    assert report.clusters_after == 2 < report.clusters_before
    assert policy.settings["tolerance"] == policy.partition.tolerance == 0.05
    assert policy.counts.sum() == 20
    expected = np.bincount(policy.partition.labels, policy.counts * off_span(policy) ** 2)
    assert np.allclose(policy.state.clusters["leak"][:2], expected)


@every_policy
def test_bounds_are_the_formula_s(make):
    X, generator = near_low_rank(), np.random.default_rng(2)
    l, ridge, R, S, delta = 3, 0.6, 0.5, 2.0, 0.1
    policy = MAKE[make](X, l, tolerance=0.05, ridge=ridge, noise=R, theta_norm=S, delta=delta)
    labels, played, rewards = policy.partition.labels, [], []
    for _ in range(rounds(150, 60)):
        arm = policy.select() if generator.random() < 0.5 else int(generator.integers(60))
        played.append(arm)
        rewards.append(float(R * generator.normal()))
        policy.update(arm, rewards[-1])
    played, rewards = np.array(played), np.array(rewards)
    for c in range(2):
        Q, own = policy.partition.basis(c), np.flatnonzero(labels == c)
        hits = labels[played] == c
        Z, off = X @ Q.T, np.linalg.norm(X - X @ Q.T @ Q, axis=1)
        A = np.linalg.inv(ridge * np.eye(3) + Z[played[hits]].T @ Z[played[hits]])
        share = 2 / delta if make == "cslb" else 3 / (0.1 * 0.9 * delta)
        information = R**2 * (-naive.logdet(A * ridge) + 2 * np.log(share))
        beta = np.sqrt(information) + np.sqrt(ridge) * S if make == "cslb" else np.sqrt(information + ridge * S**2)
        beta += S * np.sqrt((off[played[hits]] ** 2).sum())
        bound = Z[own] @ A @ Z[played[hits]].T @ rewards[hits] + beta * naive.norms_under(Z[own], A) + S * off[own]
        if make == "cslb":
            assert np.allclose(policy.bounds()[own], np.minimum(bound, S * np.linalg.norm(X[own], axis=1)), rtol=1e-9)
        else:
            assert np.allclose(policy.scales()["cluster"][own], bound, rtol=1e-9)
    active = policy.bounds()
    assert active[policy.select()] >= active.max() * (1 - 1e-9)


# ------------------------------------------------------------------------------------------------ adversarial residuals
EPS, S = 0.1, 1.0


def adversary():
    """A plane, and arms off it by ``EPS`` in a direction that theta* has: what they pay says nothing of the plane."""
    arms = np.zeros((7, 5))
    arms[0, 0] = arms[1, 1] = 1.0  # the plane: worth 0
    arms[2, 0], arms[2, 2] = 1.0, -EPS  # worth -S eps
    arms[3, 0], arms[3, 2] = 1.0, EPS  # worth S eps, with the same part in the plane
    arms[4, 1], arms[4, 2] = 1.0, -EPS
    arms[5, :2], arms[5, 2] = 0.7, EPS
    arms[6, :2] = 0.5
    theta = np.array([0.0, 0.0, S, 0.0, 0.0])
    return arms, theta


def without_terms(policy, rows=(OFFSET, OFF_SPAN), leak=True):
    """The same policy as though every arm were in its cluster's span."""
    control = policy.copy()
    control.state.stats[list(rows)] = 0.0
    if leak:
        control.state.clusters["leak"] = 0.0
    control._renew_all()
    return control


def pull(policy, theta, arms, noise=0.0, seed=0):
    generator = np.random.default_rng(seed)
    rewards = policy.arms[arms] @ theta + noise * generator.normal(size=len(arms))
    policy.update_many(arms, rewards)


@every_policy
def test_bounds_hold_with_adversarial_residuals_and_fail_without_the_terms(make):
    arms, theta = adversary()
    policy = MAKE[make](arms, 2, tolerance=0.15, noise=0.01)
    assert policy.partition.n_clusters == 1
    truth = arms @ theta
    for _ in range(10):
        pull(policy, theta, [2] * rounds(1_000, 200), noise=0.01)
        assert np.all(policy.bounds() >= truth)
    fails = truth - without_terms(policy).bounds()
    assert fails[0] > 0.6 * S * EPS  # pulled down by what arm 2 paid: the leak
    assert fails[3] > 1.4 * S * EPS  # and its own residual is worth as much
    # Either term alone is not enough.
    only_own = without_terms(policy, rows=())
    only_leak = without_terms(policy, leak=False)
    assert (truth - only_own.bounds())[3] > 0.6 * S * EPS
    assert (truth - only_leak.bounds())[3] > 0.6 * S * EPS
    # And with them the bound is not far from the truth.
    assert np.all((policy.bounds() - truth)[[0, 2, 3]] < 2.5 * S * EPS)


@both_classes
@pytest.mark.parametrize("seed", range(4))
def test_bounds_hold_for_any_residuals_without_noise(make, seed):
    """Theta* lies in the residuals alone, of norm S exactly; no noise, so that a bound may never fail."""
    generator = np.random.default_rng([seed, 3])
    inside = generator.normal(size=(37, 3)) @ np.eye(9)[:3]
    inside /= np.linalg.norm(inside, axis=1).max()
    arms = np.vstack([np.eye(9)[:3], inside])  # the plane first: it is the basis
    theta = np.concatenate([np.zeros(3), generator.normal(size=6)])
    theta *= S / np.linalg.norm(theta)
    lengths = np.linalg.norm(inside, axis=1)
    arms[3:] += (generator.choice([-0.1, 0.1], size=37) * lengths)[:, None] * theta / S
    policy = MAKE[make](arms, 3, tolerance=0.12, noise=0.0, ridge=1e-4)
    assert policy.partition.n_clusters == 1
    truth = arms @ theta
    for _ in range(rounds(60, 20)):
        arm = policy.select() if generator.random() < 0.5 else int(generator.integers(40))
        pull(policy, theta, [arm])
        assert np.all(policy.bounds() >= truth - 1e-9)
    worst = int(np.argmin(truth))
    pull(policy, theta, [worst] * rounds(500, 100))
    assert np.all(policy.bounds() >= truth - 1e-9)
    assert (truth - without_terms(policy).bounds()).max() > 0.03


@both_classes
def test_arms_that_come_later_and_a_repartition_keep_the_terms(make):
    arms, theta = adversary()
    policy = MAKE[make](arms[:3], 2, tolerance=0.15, noise=0.01)
    pull(policy, theta, [2] * 500, noise=0.01)
    policy.add_arms(arms[3:])
    whole = MAKE[make](arms, 2, tolerance=0.15, noise=0.01)
    pull(whole, theta, [2] * 500, noise=0.01)
    truth = arms @ theta
    for part in range(3):
        assert np.array_equal(policy.partition.labels, whole.partition.labels)
        assert np.allclose(off_span(policy), off_span(whole), atol=1e-15)
        assert np.allclose(off_span(policy), [0, 0, EPS, EPS, EPS, EPS, 0])
        assert np.allclose(policy.state.clusters["leak"][0], whole.state.clusters["leak"][0], rtol=1e-9)
        assert np.all(policy.bounds() >= truth)
        for one in (policy, whole):
            pull(one, theta, np.tile([2, 4], 300), noise=0.01, seed=part)
    leak = policy.state.clusters["leak"][0]
    fails = truth - without_terms(policy).bounds()
    assert fails[3] > 1.4 * S * EPS
    policy.repartition(whole.partition, force=True)
    assert policy.state.clusters["leak"][0] == pytest.approx(leak)
    assert np.all(policy.bounds() >= truth)
    assert (truth - without_terms(policy).bounds())[3] > 1.4 * S * EPS


@both_classes
def test_growth_with_a_tolerance_makes_the_partition_of_one_built_at_once(make):
    X = near_low_rank()
    policy, generator = MAKE[make](X[:2], 3, tolerance=0.05), np.random.default_rng(4)
    theta = generator.normal(size=12)
    theta /= np.linalg.norm(theta)
    for first in range(2, 60, 2):
        policy.add_arms(X[first : first + 2])
        pull(policy, theta, generator.integers(policy.n_arms, size=5))
        bounds = policy.bounds()
        assert bounds[policy.select()] >= bounds.max() * (1 - 1e-9)
        assert np.array_equal(policy.state.stats[OFFSET, policy.state.place[SLOT, : policy.n_arms]], off_span(policy))
    whole = MAKE[make](X, 3, tolerance=0.05)
    assert np.array_equal(policy.partition.labels, whole.partition.labels)
    assert np.array_equal(policy.partition.bases, whole.partition.bases)
    assert np.all(off_span(policy) >= off_span(whole) - 1e-12)  # as of the span at the time
    assert np.allclose(
        policy.state.clusters["leak"][:2], np.bincount(policy.partition.labels, policy.counts * off_span(policy) ** 2)
    )


def test_the_space_and_the_rays_need_no_tolerance():
    """Two arms that differ only off the span are on two rays, and the space tells them apart."""
    arms, theta = adversary()
    policy = MultiscaleCSLB(arms, sketch_size=2, tolerance=0.15, noise=0.01)
    pull(policy, theta, np.tile(np.arange(7), rounds(400, 60)), noise=0.01)
    scales, truth = policy.scales(), arms @ theta
    assert abs(scales["direction"][2] - truth[2]) < 0.02 < abs(scales["cluster"][2] - truth[2])
    assert abs(scales["direction"][3] - truth[3]) < 0.02
    assert policy.select() in (3, 5)


def test_shortlists_are_not_used_where_arms_are_off_their_spans():
    X = near_low_rank()
    full, short = (MAKE["cslb"](X, 3, scan=scan) for scan in ("full", "shortlist"))
    coarse = Partition.first_fit(X, sketch_size=3, tolerance=0.05)
    built = CSLB(X, partition=coarse, radius="logdet", scan="shortlist")
    generator = np.random.default_rng(5)
    for policy in (full, short):
        assert policy.repartition(coarse, force=True).done
        assert policy.settings["tolerance"] == 0.05
    for policy in (full, short, built):
        assert not (policy.state.clusters["form"] == LISTED).any()
        assert (policy.state.stats[OFFSET] > 0).any()
    for _ in range(rounds(300, 60)):
        arm = full.select()
        assert short.select() == arm
        reward = float(generator.normal())
        for policy in (full, short):
            policy.update(arm, reward)


# ------------------------------------------------------------------------------------------------------------- warnings
def caught(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = call()
    return result, found


@every_policy
def test_one_warning_where_the_tolerance_makes_the_bound_vacuous(make, tmp_path):
    X = near_low_rank()  # L = 1
    policy, found = caught(lambda: MAKE[make](X, 3, tolerance=0.05, horizon=10_000))
    assert len(found) == 1 and found[0].category is UserWarning
    message = str(found[0].message)
    assert "tolerance=0.05 may cost S L eps T = 500" in message and "sqrt(T) = 100" in message

    def live():
        policy.add_arms(X[:3])
        policy.repartition(force=True)
        policy.save(tmp_path / "policy.npz")
        return type(policy).load(tmp_path / "policy.npz"), policy.copy()

    assert caught(live)[1] == []


@every_policy
@pytest.mark.parametrize(
    "options",
    [
        {"tolerance": 0.05},  # no horizon
        {"tolerance": 0.05, "horizon": 399},  # 20 > 19.95
        {"tolerance": 0.05, "horizon": 10_000, "theta_norm": 0.19},  # S counts
        {"horizon": 10**9},  # no tolerance
        {"tolerance": 1e-7, "horizon": 10**9},  # rounding
    ],
)
def test_no_warning_otherwise(make, options):
    assert caught(lambda: MAKE[make](near_low_rank(), 3, **options))[1] == []


@both_classes
def test_the_warning_counts_the_arm_norm_and_points_at_the_caller(make):
    X = near_low_rank()
    options = {"tolerance": 0.05, "horizon": 399}
    cls, more = (CSLB, {"radius": "logdet"}) if make == "cslb" else (MultiscaleCSLB, {})
    found = caught(lambda: cls(X * 3.0, sketch_size=3, **options, **more))[1]
    assert len(found) == 1 and found[0].filename == __file__
    assert len(caught(lambda: cls(X, sketch_size=3, arm_norm=2.0, **options, **more))[1]) == 1


# ------------------------------------------------------------------------------------------------------------- refusals
@both_classes
@pytest.mark.parametrize("bad", [1.0, 1.5, -0.1, np.nan, np.inf, "0.1", True, None, 1e-14])
def test_a_tolerance_that_is_none_is_refused(make, bad):
    with pytest.raises(ValueError, match="tolerance must be"):
        MAKE[make](near_low_rank(), 3, tolerance=bad)


@pytest.mark.parametrize(
    "options",
    [{}, {"radius": "paper"}, {"radius": lambda n, logdet: 1.0}, {"radius": "logdet", "engine": "sketch"}],
)
def test_a_tolerance_needs_the_radius_and_the_engine_that_know_of_it(options):
    X, message = near_low_rank(), "tolerance must be 0 unless radius='logdet' and engine='coordinates', got 0.05"
    with pytest.raises(ValueError, match=message):
        CSLB(X, sketch_size=3, tolerance=0.05, **options)
    with pytest.raises(ValueError, match=message):
        CSLB(X, partition=Partition.first_fit(X, sketch_size=3, tolerance=0.05), **options)


@both_classes
def test_a_partition_brings_its_own_tolerance(make):
    X = near_low_rank()
    coarse, fine = (Partition.first_fit(X, sketch_size=3, tolerance=eps) for eps in (0.05, None))
    assert MAKE[make](X, 3, partition=coarse).settings["tolerance"] == 0.05
    assert MAKE[make](X, 3, partition=fine).settings["tolerance"] == 0.0
    for partition in (coarse, fine):
        with pytest.raises(ValueError, match="tolerance must be left out or the partition's"):
            MAKE[make](X, 3, partition=partition, tolerance=0.07)
    with pytest.raises(ValueError, match=r"partition must be one of these arms, within 0\.05"):
        MAKE[make](X[::-1], 3, partition=coarse)


@both_classes
def test_saved_and_loaded_with_a_tolerance(make, tmp_path):
    X, generator = near_low_rank(), np.random.default_rng(6)
    policy = MAKE[make](X[:40], 3, tolerance=0.05)
    pull(policy, np.full(12, 0.2), generator.integers(40, size=60))
    policy.add_arms(X[40:50])
    policy.save(tmp_path / "policy.npz")
    loaded = type(policy).load(tmp_path / "policy.npz")
    for one in (policy, loaded):
        one.add_arms(X[50:])
        pull(one, np.full(12, 0.2), np.arange(60))
    for (name, mine), (_, theirs) in zip(leaves(policy.state), leaves(loaded.state), strict=True):
        assert name.endswith(".work") or np.array_equal(mine, theirs), name
    assert np.all(policy.state.stats[WIDTH2] >= 0)


# ------------------------------------------------------------------------------------ differences that are too small
@pytest.mark.parametrize("make", ["cslb", "multiscale"])
@pytest.mark.parametrize("also", [0, 1])  # with a further arm the two share a plane, in which they are parallel
def test_arms_that_differ_by_rounding_only_but_not_in_worth_are_reported(make, also):
    arms = np.array([[1.7e9, 0.0], [1.7e9, 1.0], [0.0, 3.0]])[: 2 + also]
    if make == "cslb" and also:
        return  # the plane holds all three, and CS-LB knows no rays
    with pytest.warns(UserWarning, match=r"arms: some that differ .* theta_norm \* 1 = 1, with noise=0\.1"):
        MAKE[make](arms, 2 if also else 1, noise=0.1)
    MAKE[make](arms, 2 if also else 1, noise=1e4)  # there it does not matter
    MAKE[make](np.array([[1.7e9, 0.0], [1.7e9, 1e-8]]), 1, noise=0.1)  # nor here: it is a rounding error


def test_such_arms_are_reported_when_they_are_added():
    policy = MultiscaleCSLB(np.array([[1.7e9, 0.0], [0.0, 1.0]]), sketch_size=2, noise=0.1)
    with pytest.warns(UserWarning, match=r"arms: some that differ"):
        policy.add_arms([[1.7e9, 1.0]])
