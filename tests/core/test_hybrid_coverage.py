"""``HybridCSLB(explore="theory")``: its bounds hold for all arms and contexts at all times, and what it refuses.

docs/math/hybrid.md has the proof. Played many times against worlds that meet the assumptions, by choosers that see all
that a chooser may see; every check is of all arms and *all* contexts at once, after every reward. The same checks must
fail where an assumption is broken: noise or norms larger than was said, rewards that arrive because of their value.
"""

import math
from typing import NamedTuple

import naive
import numpy as np
import pytest
from conftest import rounds

from sketchbandits import HybridCSLB
from sketchbandits.policies.hybrid import refit
from sketchbandits.policies.hybrid.choice import predict, unit_of
from sketchbandits.policies.hybrid.rounds import refit_now

DELTA = 0.25
N, DIM, CONTEXT = 6, 4, 3
SHAPES = {
    "contexts": {"context_dim": CONTEXT},
    "contexts, clusters": {"context_dim": CONTEXT, "sketch_size": 2},
    "alone": {},
    "alone, clusters": {"sketch_size": 2},
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
TIGHT = {"noise": 1.0, "theta_norm": 0.1, "own_norm": 0.1, "ridge": 1.0, "own_share": 0.5}  # nearly all radius is noise


def at_most(probability, runs):
    """How many of so many runs may fail, but for one chance in 10,000."""
    chances = [math.comb(runs, i) * probability**i * (1.0 - probability) ** (runs - i) for i in range(runs + 1)]
    return int(np.searchsorted(np.cumsum(chances), 1.0 - 1e-4))


def of_length(length, values):
    return length * values / np.linalg.norm(values)


class World(NamedTuple):
    """What the policy does not know: every arm's coefficients, and how noisy rewards are."""

    shared: np.ndarray  # (p, DIM)
    own: np.ndarray  # (n, p)
    noise: float

    @classmethod
    def of(cls, rng, shape, theta_norm, own_norm, noise=1.0, n=N):
        """Norms that are just what is allowed."""
        p = shape.get("context_dim", 1)
        return cls(
            of_length(theta_norm, rng.normal(size=(p, DIM))), of_length(own_norm, rng.normal(size=(n, p))), noise
        )

    def coefficients(self, policy):
        return policy.arms @ self.shared.T + self.own[: policy.n_arms]


def features(rng, n=N):
    """Arms in two planes, of length about 1, so that ``sketch_size=2`` makes two clusters of them."""
    planes = np.eye(DIM).reshape(2, 2, DIM)
    return np.concatenate([rng.normal(size=(n // 2, 2)) @ plane for plane in planes]) / math.sqrt(2.0)


def spread_of(policy, world):
    """Every arm's coefficients less the truth, and their covariance over R^2, in the directions of contexts."""
    p = world.own.shape[1]
    return policy.state.own[:, :p] - world.coefficients(policy), policy.state.spread[:, :p, :p]


def shares(policy, world):
    """Per arm, the largest share of its bound's width that the error has in any context: above 1 the bound fails."""
    gap, spread = spread_of(policy, world)
    largest = np.sqrt(np.einsum("ni,ni->n", gap, np.linalg.solve(spread, gap[..., None])[..., 0]))
    return largest / [unit_of(policy.state, arm) for arm in range(policy.n_arms)]


def shown_share(policy, world, context):
    """The same in one context, from what the policy shows."""
    u = np.ones(1) if context is None else context
    estimates = policy.estimates(context)
    return (np.abs(world.coefficients(policy) @ u - estimates) / (policy.bounds(context) - estimates)).max()


# ------------------------------------------------------------------------------------------------------------- choosers
def some_context(policy, rng):
    return None if policy.context_dim is None else of_length(1.0, rng.normal(size=policy.context_dim))


def by_its_bounds(policy, world, last, rng):
    context = some_context(policy, rng)
    return policy.select(context), context


def the_narrowest(policy, world, last, rng):
    """The arm that is known best: others stay unknown."""
    context = some_context(policy, rng)
    return int((policy.bounds(context) - policy.estimates(context)).argmin()), context


def by_luck(policy, world, last, rng):
    """Stay with an arm as long as its noise is positive, in the same context: stop where the estimate is too high."""
    if last is not None and last[2] > 0.0:
        return last[:2]
    return int(rng.integers(policy.n_arms)), some_context(policy, rng)


def against_the_truth(policy, world, last, rng):
    """Leave the worst error as it is: another arm, in a context across its worst direction."""
    by_arm = shares(policy, world)
    context = some_context(policy, rng)
    if context is not None:
        gap, spread = spread_of(policy, world)
        worst = of_length(1.0, np.linalg.solve(spread[by_arm.argmax()], gap[by_arm.argmax()]) + 1e-12)
        context = of_length(1.0, context - (context @ worst) * worst)
    return int(by_arm.argmin()), context


CHOOSERS = [by_its_bounds, the_narrowest, by_luck, against_the_truth]


def play(policy, world, rng, total, choose=by_its_bounds):
    """The largest share of a bound that the error ever had, in any context."""
    worst, last = shares(policy, world).max(), None
    for t in range(total):
        arm, context = choose(policy, world, last, rng)
        u, eta = (np.ones(1) if context is None else context), world.noise * rng.normal()
        policy.update(arm, float(world.coefficients(policy)[arm] @ u + eta), context=context)
        last = (arm, context, eta)
        share = shares(policy, world).max()
        if t % 16 == 0:
            assert max(shown_share(policy, world, some_context(policy, rng)) for _ in range(3)) <= share * (1 + 1e-9)
        worst = max(worst, share)
    return worst


def misses(shape, told, runs, total, truth=None, choose=by_its_bounds):
    """How many runs had a bound that failed; ``truth`` is what the policy is told unless it says otherwise."""
    real, missed = told | (truth or {}), 0
    for run in range(runs):
        rng = np.random.default_rng([run, 21])
        world = World.of(rng, shape, real["theta_norm"], real["own_norm"], real["noise"])
        policy = HybridCSLB(features(rng), explore="theory", delta=DELTA, **told, **shape)
        policy.state.level["due"] = 2**62  # refits take most of the time, and change nothing: see the dense fit below
        missed += play(policy, world, rng, total, choose) > 1.0
    return missed


# ------------------------------------------------------------------------------------------------------------- coverage
@every_shape
@pytest.mark.parametrize("choose", CHOOSERS, ids=lambda choose: choose.__name__)
def test_bounds_cover_whoever_chooses(shape, choose):
    runs, total = rounds(30, 6), rounds(50, 25)
    assert misses(shape, TIGHT, runs, total, choose=choose) <= at_most(DELTA, runs)


@every_shape
def test_bounds_fail_if_there_is_more_noise_than_was_said(shape):
    """The control: the same check on the same worlds."""
    runs = rounds(12, 6)
    assert misses(shape, TIGHT | {"noise": 0.25}, runs, 60, truth={"noise": 1.0}) > 0.8 * runs


@every_shape
def test_bounds_fail_without_their_price_for_dimensions(shape):
    """Half the noise, at which the radius would be that of some two dimensions instead of p (r + n)."""
    runs = rounds(12, 6)
    assert misses(shape, TIGHT | {"noise": 0.5}, runs, 60, truth={"noise": 1.0}) > DELTA * runs


@every_shape
@pytest.mark.parametrize("own_norm", [0.0, 3.0])
def test_bounds_cover_with_ridges_that_follow_from_the_norms(shape, own_norm):
    runs, told = rounds(12, 6), {"noise": 1.0, "theta_norm": 3.0, "own_norm": own_norm}
    assert misses(shape, told, runs, 40) <= at_most(DELTA, runs)


@every_shape
def test_bounds_fail_if_arms_differ_more_than_was_said(shape):
    runs, told = rounds(12, 6), {"noise": 0.3, "theta_norm": 1.0, "own_norm": 0.0}
    assert misses(shape, told, runs, 40, truth={"own_norm": 5.0}) > 0.8 * runs
    assert misses(shape, told | {"own_norm": 5.0}, runs, 40) <= at_most(DELTA, runs)


@every_shape
def test_bounds_fail_if_the_shared_norm_is_larger_than_was_said(shape):
    """Before there are many rewards: later they overrule the norm."""
    runs, told = rounds(12, 6), {"noise": 0.3, "theta_norm": 0.1, "own_norm": 0.1}
    assert misses(shape, told, runs, 5, truth={"theta_norm": 5.0}) > 0.8 * runs
    assert misses(shape, told | {"theta_norm": 5.0}, runs, 5) <= at_most(DELTA, runs)


# ------------------------------------------------------------------------------------ late rewards, arms that are added
@pytest.mark.parametrize("late", ["whatever they are", "because of what they are"])
def test_late_rewards_may_come_in_any_order_that_does_not_depend_on_them(late):
    """One of two decisions is answered, any of those that wait; in the control those with luck are, and no others."""
    shape, runs, missed = SHAPES["alone"], rounds(20, 6), 0
    for run in range(runs):
        rng = np.random.default_rng([run, 22])
        world, waiting = World.of(rng, shape, 0.1, 0.1), []
        policy = HybridCSLB(features(rng), explore="theory", delta=DELTA, **TIGHT, **shape)
        worst = 0.0
        for _ in range(rounds(300, 200)):
            arm, eta = policy.select(available=[0, 1]), rng.normal()
            waiting.append((arm, float(world.coefficients(policy)[arm, 0] + eta)))
            if rng.random() < 0.5 if late == "whatever they are" else eta > 0.0:
                place = int(rng.integers(len(waiting))) if late == "whatever they are" else -1
                policy.update(*waiting.pop(place))
                worst = max(worst, shares(policy, world).max())
        missed += worst > 1.0
    if late == "whatever they are":
        assert missed <= at_most(DELTA, runs)
    else:
        assert missed > 0.8 * runs


@every_shape
@pytest.mark.parametrize("noise", [1.0, 0.25])
def test_arms_may_be_added_because_of_rewards(shape, noise):
    """New arms next to the one that looks best, out of the span of those before; the control has more noise."""
    runs, missed = rounds(12, 6), 0
    for run in range(runs):
        rng = np.random.default_rng([run, 23])
        world, arms = World.of(rng, shape, 0.1, 0.1, n=N + 6), features(rng)
        arms = np.concatenate([arms[:2], arms[-1:]]) if "sketch_size" in shape else arms[:3]
        policy = HybridCSLB(arms, explore="theory", delta=DELTA, **TIGHT | {"noise": noise}, **shape)
        worst = 0.0
        for _ in range(8):
            worst = max(worst, play(policy, world, rng, 8, by_luck))
            if policy.n_arms < N + 6:
                best = policy.arms[policy.estimates(some_context(policy, rng)).argmax()]
                policy.add_arms(of_length(1.0, best + 0.5 * rng.normal(size=DIM))[None])
        policy.remove_arms([0])
        worst = max(worst, play(policy, world, rng, 8))
        missed += worst > 1.0
        assert ("sketch_size" in shape) == (len(policy.state.shared) > 1)
    if noise == 1.0:
        assert missed <= at_most(DELTA, runs)
    else:
        assert missed > 0.8 * runs


# ----------------------------------------------------------------------------------------------- the radius, the regret
def dense_radius(policy, twin, k):
    """The radius of a cluster, from the determinant of its whole design."""
    F, penalty = twin.design()
    rows = F[policy.state.cluster[twin.arms] == k]
    logdet = np.linalg.slogdet(rows.T @ rows + np.diag(penalty))[1] - np.log(penalty).sum()
    clusters = len(policy.state.shared)
    delta = DELTA / ((k + 2) * (k + 3)) if clusters > 1 else DELTA / 2
    given = policy.settings
    bias = twin.ridge * given["theta_norm"] ** 2 + twin.own_ridge * given["own_norm"] ** 2
    return math.sqrt(given["noise"] ** 2 * (2.0 * math.log(1.0 / delta) + logdet) + bias)


def agree(policy, twin, context):
    """Radii, widths, estimates and bounds are those of the dense regression."""
    x = np.ones(1) if context is None else np.append(context, 1.0)
    means, widths = twin.predict(x * policy.state.scale, 0.0)
    radii = np.array([dense_radius(policy, twin, k) for k in policy.state.cluster.tolist()])
    found = np.empty((2, policy.n_arms))
    predict(policy.state, x, *found)
    assert np.allclose(found[1], widths, rtol=1e-9, atol=0)
    assert np.allclose([unit_of(policy.state, arm) for arm in range(policy.n_arms)], radii, rtol=1e-9, atol=0)
    assert np.allclose(policy.estimates(context), means, rtol=1e-9, atol=1e-9 * np.abs(means).max())
    assert np.allclose(policy.bounds(context), means + radii * widths, rtol=1e-9, atol=1e-9)


@every_shape
@pytest.mark.parametrize("own_norm", [0.0, 0.7])
@pytest.mark.parametrize("prior", [{}, {"ridge": 2.0, "own_share": 0.3}], ids=["from norms", "given"])
def test_radii_and_widths_are_those_of_the_dense_fit(shape, own_norm, prior):
    rng, told = np.random.default_rng(4), {"noise": 0.5, "theta_norm": 2.0, "own_norm": own_norm}
    arms = rng.normal(size=(N, DIM))
    policy = HybridCSLB(arms, explore="theory", delta=DELTA, **told, **prior, **shape)
    level = policy.state.level[0]
    ridge, own_ridge = float(level["ridge"]), float(level["own_ridge"])
    assert ridge == (2.0 if prior else (0.5 / 2.0) ** 2)
    assert own_ridge == pytest.approx(2.0 * 0.7 / 0.3 if prior else (0.5 / 0.7) ** 2 if own_norm else 1e8)
    twin = naive.Hybrid(policy.state.coordinates, policy.state.cluster, ridge, own_ridge)
    for t in range(40):
        arm, context, reward = int(rng.integers(N)), some_context(policy, rng), float(rng.normal())
        x = np.ones(1) if context is None else np.append(context, 1.0)
        twin.record(arm, x * policy.state.scale, reward)
        policy.update(arm, reward, context=context)
        if t in (0, 7, 39):
            agree(policy, twin, some_context(policy, rng))
    refit.refit(policy.state)
    agree(policy, twin, some_context(policy, rng))
    policy.add_arms(rng.normal(size=(2, DIM)))
    twin.z, twin.cluster = policy.state.coordinates, policy.state.cluster
    agree(policy, twin, some_context(policy, rng))


@every_shape
def test_coordinates_keep_lengths_and_nothing_is_scaled_or_centred(shape):
    """The norms that are given are those of the user's own coefficients, whatever the units."""
    rng = np.random.default_rng(5)
    arms = 40.0 * rng.normal(size=(N, DIM))
    policy = HybridCSLB(arms, explore="theory", **TIGHT, **shape)
    for t in range(30):
        policy.update(t % N, 100.0 + rng.normal(), context=some_context(policy, rng))
    state = policy.state
    for k in range(len(state.shared)):
        own = state.cluster == k
        assert np.allclose(state.coordinates[own] @ state.coordinates[own].T, arms[own] @ arms[own].T, rtol=1e-9)
    assert state.level["centre"][0] == 0.0
    assert state.scale.tolist() == ([1.0] * CONTEXT + [0.0] if "context_dim" in shape else [1.0])


@every_shape
def test_logdet_is_the_sum_of_what_widths_promise_and_bounds_regret(shape):
    """``sum ln(1 + w^2)`` over the rewards of a cluster is its logdet, and regret at most what follows from it."""
    for run in range(rounds(6, 2)):
        rng = np.random.default_rng([run, 24])
        world = World.of(rng, shape, 1.0, 0.5, noise=0.3)
        told = {"noise": 0.3, "theta_norm": 1.0, "own_norm": 0.5}
        policy = HybridCSLB(features(rng), explore="theory", delta=DELTA, **told, **shape)
        k = len(policy.state.shared)
        regret, covered, largest, logs, counts = 0.0, True, 0.0, np.zeros(k), np.zeros(k)
        for _ in range(rounds(150, 40)):
            context = some_context(policy, rng)
            u = np.ones(1) if context is None else context
            arm, found, values = policy.select(context), np.empty((2, N)), world.coefficients(policy) @ u
            predict(policy.state, np.ones(1) if context is None else np.append(context, 1.0), *found)
            largest = max(largest, found[1, arm] ** 2)
            logs[policy.state.cluster[arm]] += math.log1p(found[1, arm] ** 2)
            regret += values.max() - values[arm]
            policy.update(arm, float(values[arm] + 0.3 * rng.normal()), context=context)
            covered &= bool(shares(policy, world).max() <= 1.0)
        refit_now(policy.state)
        assert np.allclose(policy.state.logdet, logs, rtol=1e-9)
        counts = np.bincount(policy.state.cluster, weights=policy.counts, minlength=k)
        radii = np.array([unit_of(policy.state, int(np.flatnonzero(policy.state.cluster == c)[0])) for c in range(k)])
        limit = 2.0 * np.sqrt(counts.sum() * largest / math.log1p(largest) * (radii**2 * logs).sum())
        assert not covered or regret <= limit
        assert policy.state.logdet.sum() > 1.0


def test_the_arm_with_the_largest_bound_is_chosen():
    rng = np.random.default_rng(6)
    policy = HybridCSLB(features(rng), context_dim=CONTEXT, explore="theory", **TIGHT)
    for t in range(40):
        u = some_context(policy, rng)
        arm, bounds = policy.select(u), policy.bounds(u)
        assert bounds[arm] >= bounds.max() * (1 - 1e-10)
        assert policy.probabilities(u)[arm] == 1.0
        assert policy.select(u, available=[1, 4], decision=9) == (1 if bounds[1] >= bounds[4] else 4)
        policy.update(t % N, float(rng.normal()), context=u)


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"noise": None}, r'noise must be given for explore="theory", got None'),
        ({"theta_norm": None}, r'theta_norm must be given for explore="theory", got None'),
        ({"own_norm": None}, r'own_norm must be given for explore="theory", got None'),
        ({"half_life": 100}, r'half_life must be None for explore="theory", which has no guarantee then, got 100'),
        ({"half_life": "auto"}, r'half_life must be None for explore="theory".*, got \'auto\''),
        ({"half_life": "6h"}, r'half_life must be None for explore="theory".*, got \'6h\''),
        ({"arms": None, "feature_dim": 3}, r'feature_dim must be None for explore="theory".*, got 3'),
        ({"delta": 0.0}, r"delta must be a number strictly between 0 and 1, got 0.0"),
        ({"delta": 1.0}, r"delta must be a number strictly between 0 and 1, got 1.0"),
        ({"delta": -0.1}, r"delta must be a number strictly between 0 and 1, got -0.1"),
        ({"delta": math.nan}, r"delta must be a number strictly between 0 and 1, got nan"),
        ({"noise": 0.0}, r"noise must be a number > 0"),
        ({"theta_norm": 0.0}, r"theta_norm must be a number > 0"),
        ({"theta_norm": math.inf}, r"theta_norm must be a number > 0"),
        ({"own_norm": -1.0}, r"own_norm must be a number >= 0"),
        ({"own_norm": "small"}, r"own_norm must be a number >= 0"),
        ({"explore": "ucb", "delta": None, "own_norm": None}, r'theta_norm must be None unless explore="theory"'),
        ({"explore": "ts", "delta": None, "theta_norm": None}, r'own_norm must be None unless explore="theory"'),
        ({"explore": "randomised"}, r'delta must be None unless explore="theory", got 0.1'),
    ],
)
def test_what_has_no_guarantee_is_refused(given, message):
    told = {"arms": np.eye(3), "explore": "theory", "delta": 0.1, "noise": 1.0, "theta_norm": 1.0, "own_norm": 0.5}
    HybridCSLB(**told)
    with pytest.raises(ValueError, match=message):
        HybridCSLB(**{**told, **given})
