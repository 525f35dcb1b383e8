"""What multi-scale CS-LB promises where its arms, its ridge, its partition or its choices depend on rewards.

Each has a control that must fail: half the noise or less, a partition that was made to fit the rewards, random choices
without the rule that keeps their guarantee.
"""

import math

import naive
import numpy as np
import pytest
from conftest import rounds
from test_multiscale import DELTA, TIGHT, at_most, groups_of, halved, recovered, unit_rows

from sketchbandits import MultiscaleCSLB, Partition
from sketchbandits.environments import subspace_arms
from sketchbandits.policies.cslb.layout import SLOT
from sketchbandits.policies.multiscale.randomised import CAUTION, lower_bound
from sketchbandits.policies.multiscale.state import SHOWN, THETA


def published_error(policy, theta):
    """How far the space's published fit is from ``theta``, and its radius."""
    state = policy.state
    R = state.factor[SHOWN, :-2]
    gap = state.factor[SHOWN, THETA] - policy._basis @ theta
    return float(np.linalg.norm(R @ gap)), float(state.space["beta"][0])


def cluster_errors(policy, log, theta):
    """Per cluster: how far its fit is from ``theta``, and its radius."""
    played, rewards = np.array([arm for arm, _ in log], int), np.array([reward for _, reward in log])
    bounds = policy.scales()["cluster"]
    for name, own, basis in groups_of(policy):
        if name == "cluster":
            hits, Z = own[played], policy.arms @ basis.T
            rows = Z[played[hits]]
            V = TIGHT["ridge"] * np.eye(len(basis)) + rows.T @ rows
            estimate = np.linalg.solve(V, rows.T @ rewards[hits])
            beta = recovered(bounds[own], Z[own] @ estimate, naive.norms_under(Z[own], np.linalg.inv(V)))
            yield naive.ellipsoid_error(estimate, basis @ theta, V), beta


def ray_errors(policy, log, theta):
    """Per ray with rewards: how far the mean of its first arm is from the truth, and the half-width."""
    played, rewards = np.array([arm for arm, _ in log], int), np.array([reward for _, reward in log])
    bounds = policy.scales()["direction"]
    for name, own, basis in groups_of(policy):
        if name == "direction" and own[played].any():
            lengths = policy.arms @ basis[0]
            hits, first = own[played], np.flatnonzero(own)[0]
            mean = float(lengths[played[hits]] @ rewards[hits] / (lengths[played[hits]] ** 2).sum())
            yield abs(mean - basis[0] @ theta), (bounds[first] - lengths[first] * mean) / abs(lengths[first])


def next_arms(policy, generator):
    """Two arms near the one that looks best, which leave the span of all others as long as they can."""
    near = policy.arms[int(policy.estimates().argmax())] + 0.4 * generator.normal(size=(2, policy.dim))
    return near / np.linalg.norm(near, axis=1, keepdims=True)


def test_bounds_cover_while_arms_are_added_because_of_rewards():
    runs, total, d = rounds(40, 12), 60, 6
    theta = np.full(d, TIGHT["theta_norm"] / math.sqrt(d))
    missed = np.zeros((2, runs), bool)
    for run in range(runs):
        generator = np.random.default_rng([run, 14])
        policy = MultiscaleCSLB(unit_rows(run, 2, d), sketch_size=3, budget=5_000, seed=run, **TIGHT)
        log = []
        for t in range(total):
            if t % 4 == 3 and policy.n_arms < 20:
                policy.add_arms(next_arms(policy, generator))
            arm = policy.select()
            log.append((arm, float(policy.arms[arm] @ theta + generator.normal())))
            policy.update(*log[-1])
            found = np.array([published_error(policy, theta), *cluster_errors(policy, log, theta)])
            rays = np.array(list(ray_errors(policy, log, theta)))
            missed[0, run] |= (found[:, 0] > found[:, 1]).any() or (rays[:, 0] > rays[:, 1]).any()
            missed[1, run] |= (found[:, 0] > halved(found[:, 1])).any() or (rays[:, 0] > rays[:, 1] / 2).any()
        assert policy.n_arms == 20 and policy.state.features.shape[1] == d
    assert missed[0].sum() <= DELTA * runs
    assert missed[1].sum() > 2 * DELTA * runs


# ----------------------------------------------------------------------------------------- ridges that follow the arms
def test_the_space_covers_with_every_ridge_that_it_comes_to():
    """One noise sequence, every ridge: each has its own share of delta, and all of their sets hold together."""
    runs, total, d = rounds(300, 60), 200, 6
    theta = np.full(d, TIGHT["theta_norm"] / math.sqrt(d))
    missed, ridges = np.zeros((2, runs), bool), set()
    for run in range(runs):
        generator = np.random.default_rng([run, 15])
        common = {"noise": 1.0, "theta_norm": 1.0, "delta": DELTA, "budget": 10_000}
        policy = MultiscaleCSLB(unit_rows(run, 1, d), sketch_size=3, seed=run, **common)
        for t in range(total):
            if t % 10 == 9 and policy.n_arms < 12:
                policy.add_arms(next_arms(policy, generator))
            arm = policy.select()
            policy.update(arm, float(policy.arms[arm] @ theta + generator.normal()))
            error, beta = published_error(policy, theta)
            radius = policy.state.space[0]["radius"]
            ridges.add(float(radius["ridge"]))
            bias = float(radius["bias"])
            missed[0, run] |= error > beta
            missed[1, run] |= error > math.sqrt((beta**2 - bias**2) / 16 + bias**2)  # with a quarter of the noise
        assert policy.state.space["ridges"][0] > 1
    assert len(ridges) > 2
    assert missed[0].mean() <= at_most(0.36 * DELTA)
    assert missed[1].mean() > 2 * DELTA


# --------------------------------------------------------------------------------------------------- another partition
def split_by_rewards(partition, arms, residuals):
    """Each cluster in two: arms whose rewards speak for a larger parameter, and for a smaller one."""
    labels = 2 * partition.labels + (residuals * arms.sum(axis=1) > 0)
    bases = [naive.span(arms[labels == c]) for c in range(labels.max() + 1)]
    ranks = np.array([len(basis) for basis in bases])
    return Partition.from_arrays(labels, ranks, np.vstack(bases), partition.sketch_size, partition.tolerance)


@pytest.mark.parametrize("chosen", ["by features", "by rewards"])
def test_another_partition_covers_if_only_features_choose_it(chosen):
    runs, n, d = rounds(60, 10), 600, 10
    theta = np.full(d, TIGHT["theta_norm"] / math.sqrt(d))
    missed = 0
    for run in range(runs):
        arms = subspace_arms(n_arms=n, dim=d, n_subspaces=4, rank=3, normalize="unit", shuffle=True, seed=run)
        policy = MultiscaleCSLB(arms, sketch_size=3, **TIGHT)
        before, eta = policy.partition.n_clusters, np.random.default_rng([run, 16]).normal(size=(2, n))
        log = [(arm, float(arms[arm] @ theta + noise)) for noises in eta for arm, noise in enumerate(noises)]
        policy.update_many(*map(np.array, zip(*log, strict=True)))
        found = Partition.subspaces(arms, 3)
        if chosen == "by features":
            assert policy.repartition().done
        else:
            policy.repartition(split_by_rewards(found, arms, eta.sum(axis=0)), force=True)
        assert found.n_clusters == 4 < before
        assert policy.partition.n_clusters == (4 if chosen == "by features" else 8)
        missed += any(error > beta for error, beta in cluster_errors(policy, log, theta))
    if chosen == "by features":
        assert missed <= DELTA * runs
    else:
        assert missed > 3 * DELTA * runs


# ------------------------------------------------------------------------------------------------------ random choices
def test_random_choices_cost_no_more_than_their_rule_allows():
    """The gap of a drawn arm is at most CAUTION times the width of its own interval, among available arms too."""
    runs, total = rounds(20, 6), rounds(400, 80)
    arms = unit_rows(17, 12, 4) * np.linspace(0.2, 1.0, 12)[:, None]
    theta = np.array([0.7, -0.5, 0.4, 0.3])
    means = arms @ theta
    kept = broken = 0
    for run in range(runs):
        generator = np.random.default_rng([run, 17])
        policy = MultiscaleCSLB(arms, sketch_size=2, seed=run)
        for _ in range(total):
            among = generator.choice(12, size=5, replace=False)
            for arm, best in ((policy.select(), means.max()), (policy.select(available=among), means[among].max())):
                width = policy.bounds()[arm] - lower(policy)[arm]
                kept += best - means[arm] <= CAUTION * width
                broken += best - means[arm] > CAUTION * width
            arm = policy.select()
            policy.update(arm, float(means[arm] + generator.normal()))
    assert broken == 0 and kept == 2 * runs * total


def lower(policy):
    """Every arm's largest lower bound."""
    return np.array([lower_bound(policy.state, slot) for slot in policy.state.place[SLOT, : policy.n_arms]])


def test_random_choices_do_not_lock_in_on_an_arm_that_is_known_well():
    """An arm that is known to pay nothing gives way to one that was unlucky once; without the rule it does not."""
    arms = np.eye(3)[:2]
    policies = [MultiscaleCSLB(arms, sketch_size=1, theta_norm=3.0, seed=0) for _ in range(2)]
    policies[1].state.space["caution"] = np.inf
    shares = []
    for policy in policies:
        policy.update_many(np.zeros(200_000, int), np.zeros(200_000))
        policy.update_many(np.ones(2, int), np.full(2, -2.0))
        assert policy.bounds()[1] > policy.bounds()[0]
        picks = []
        for seed in range(50):
            policy.reseed(seed)
            picks.append(policy.select())
        shares.append(np.mean(picks))
    assert shares[0] == 1.0
    assert shares[1] < 0.5
