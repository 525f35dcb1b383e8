"""Coverage: the ellipsoid ||theta_hat - theta*||_V <= beta holds at every round, in at least 1 - delta of seeded runs.

Arm-wise coverage passes even for broken radii, so the ellipsoid itself is tested. theta_hat and V come from the data
(for sketched policies from the rows that the sketch holds), beta from the policy's own `bounds`. Every coverage test
has controls that must fail on the same data: the radius with its noise term halved, without its dimension term, without
its price for what a sketch has lost. A small ||theta*|| makes the radii tight, so that controls fail by a wide margin.
"""

import inspect
import itertools
import math
from typing import NamedTuple

import naive
import numpy as np
import pytest
from catalogue import public_policies
from conftest import rounds

from sketchbandits import CBRAP, CBSCFD, CSLB, OFUL, SOFUL, UCB1, DBSLinUCB, HybridCSLB, LinTS, LinUCB, MultiscaleCSLB
from sketchbandits.kernels.counter import normals
from sketchbandits.policies.fits.sketched import draw_direction
from sketchbandits.sketches.base import ALPHA, ROWS, SHRUNK

RIDGE, NOISE, THETA_NORM, DELTA = 1.0, 1.0, 0.1, 0.25
COMMON = {"ridge": RIDGE, "noise": NOISE, "theta_norm": THETA_NORM, "delta": DELTA}


def unit_rows(seed, n, scales):
    rows = np.random.default_rng(seed).normal(size=(n, len(scales))) * scales
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


PLAIN = unit_rows(1, 5, [1.0, 1.0, 1.0])  # for exact policies: N = 5, d = 3
CLUSTERED = unit_rows(2, 8, np.ones(5))  # for CS-LB with l = 2: K = 4 clusters
SPREAD = unit_rows(9, 24, np.ones(17))  # for multi-scale CS-LB with l = 12: K = 2, high rank, a small share each
TAILED = unit_rows(3, 7, [1.0, 1.0, 0.15, 0.15])  # for sketches of size 2 and 3: a light tail, so that they lose little


CLUSTERING = (CSLB, MultiscaleCSLB)  # one ellipsoid per cluster; the other scales are in test_multiscale


class Case(NamedTuple):
    """A policy that claims a guarantee; ``kind`` says what its sketch does with lost mass ("exact": there is none)."""

    name: str
    kind: str
    arms: np.ndarray
    make: type
    options: dict

    def policy(self, seed=0, **changed):
        return self.make(self.arms, **{**COMMON, **self.options, **changed}, seed=seed)

    @property
    def share(self):
        """ln(1/delta') of one ellipsoid: CS-LB's clusters share delta; those of multi-scale CS-LB a part of it."""
        if self.make not in CLUSTERING:
            return math.log(1 / DELTA)
        k = math.ceil(len(self.arms) / self.options["sketch_size"])
        return math.log(k / DELTA if self.make is CSLB else (k + 1) / (0.09 * 0.9 * DELTA))

    def radius(self, bias, noise):
        """A radius from its two parts: the sum, or for a mixture the root of the squares' sum."""
        return np.sqrt(bias**2 + noise**2) if self.options.get("radius") == "mixture" else bias + noise

    def noise_part(self, bias, radius):
        """What `radius` makes this radius of."""
        return np.sqrt(radius**2 - bias**2) if self.options.get("radius") == "mixture" else radius - bias


def cases():
    for radius in ("closed", "logdet"):
        yield Case(f"oful-{radius}", "exact", PLAIN, OFUL, {"radius": radius})
        yield Case(f"lints-{radius}", "exact", PLAIN, LinTS, {"radius": radius})
    yield Case("oful-mixture", "exact", PLAIN, OFUL, {"radius": "mixture"})
    yield Case("oful-rare", "exact", PLAIN, OFUL, {"switching": 0.5})
    for radius, engine in itertools.product(("paper", "logdet"), ("coordinates", "sketch")):
        yield Case(
            f"cslb-{radius}-{engine}",
            "exact",
            CLUSTERED,
            CSLB,
            {"sketch_size": 2, "radius": radius, "engine": engine},
        )
    for radius, budget in (("mixture", 500), ("logdet", 0)):
        options = {"sketch_size": 12, "radius": radius, "budget": budget}
        yield Case(f"multiscale-{radius}", "exact", SPREAD, MultiscaleCSLB, options)
    for radius, (shrink, size) in itertools.product(("closed", "logdet"), (("buffered", 2), ("every-round", 3))):
        options = {"sketch_size": size, "radius": radius, "shrink": shrink}
        yield Case(f"soful-{radius}-{shrink}", "dropped", TAILED, SOFUL, options)
        yield Case(f"cbscfd-{radius}-{shrink}", "kept", TAILED, CBSCFD, options)
    yield Case("soful-ts", "dropped", TAILED, SOFUL, {"sketch_size": 2, "exploration": "ts"})
    for radius, compensated in itertools.product(("closed", "logdet"), (False, True)):
        options = {"sketch_size": 2, "error": 20.0, "radius": radius, "compensated": compensated}
        kind = "kept" if compensated else "dropped"
        yield Case(f"dbslinucb-{radius}-{kind}", kind, TAILED, DBSLinUCB, options)


CASES = {case.name: case for case in cases()}
every_case = pytest.mark.parametrize("name", CASES)


# ------------------------------------------------------------------------------------------------------------- records
class Record(NamedTuple):
    """What a policy believed before each of T rounds and after the last: one ellipsoid, or one per cluster (E)."""

    X: np.ndarray  # (T, E, d): the row played, zero for the clusters that were not
    rewards: np.ndarray  # (T,)
    V: np.ndarray  # (T + 1, E, d, d)
    beta: np.ndarray  # (T + 1, E)
    lost: np.ndarray  # (T + 1,): what the sketch has shrunk

    @property
    def data(self):
        """X'X of every ellipsoid at every time."""
        return sums_so_far(self.X[..., :, None] * self.X[..., None, :])


def sums_so_far(values):
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])


def record(policy, arms, length, *, reward, arm=None):
    """Play ``length`` rounds: ``arm(t)`` (the policy's choice by default) pays ``reward(arm)``."""
    bounds, lost, V, own = [], [], [], []
    picks, rewards = np.zeros(length, int), np.zeros(length)
    sketch = getattr(policy.state, "sketch", None)
    for t in range(length + 1):
        bounds.append(policy.scales()["cluster"] if isinstance(policy, MultiscaleCSLB) else policy.bounds())
        if isinstance(policy, CSLB):
            own.append(policy.state.clusters["beta"].copy())
        if sketch is not None:
            rows = sketch.rows[: sketch.size[ROWS]]
            V.append(rows.T @ rows + sketch.level[ALPHA] * np.eye(arms.shape[1]))
            lost.append(sketch.level[SHRUNK])
        if t < length:
            picks[t] = policy.select() if arm is None else arm(t)
            rewards[t] = reward(picks[t])
            policy.update(int(picks[t]), float(rewards[t]))
    labels = policy.partition.labels if isinstance(policy, CLUSTERING) else np.zeros(len(arms), int)
    X = arms[picks][:, None, :] * (labels[picks][:, None] == np.arange(labels.max() + 1))[:, :, None]
    done = Record(X, rewards, np.empty(0), np.empty(0), np.array(lost) if lost else np.zeros(length + 1))
    V = np.array(V)[:, None] if V else policy.settings["ridge"] * np.eye(arms.shape[1]) + done.data
    done = done._replace(V=V)
    return done._replace(beta=recovered_radius(policy, arms, labels, done, np.array(bounds), np.array(own)))


def estimates(done):
    targets = sums_so_far(done.rewards[:, None, None] * done.X)
    return np.linalg.solve(done.V, targets[..., None])[..., 0]


def recovered_radius(policy, arms, labels, done, bounds, own):
    """beta = (bound - mean)/width, the same for every arm of an ellipsoid: the bounds are that ellipsoid's."""
    means = np.einsum("tnd,nd->tn", estimates(done)[:, labels], arms)
    widths = np.sqrt(np.einsum("ni,tnij,nj->tn", arms, np.linalg.inv(done.V)[:, labels], arms))
    if isinstance(policy, CSLB) and policy.settings["radius"] != "paper":
        # Every bound is capped at S ||x||, which hides beta: it is read from the state, and gives these very bounds.
        cap = policy.settings["theta_norm"] * np.linalg.norm(arms, axis=1)
        np.testing.assert_allclose(bounds, np.minimum(cap, means + own[:, labels] * widths), rtol=1e-7, atol=1e-9)
        return own
    beta = (bounds - means) / widths
    firsts = [np.flatnonzero(labels == c)[0] for c in range(labels.max() + 1)]
    np.testing.assert_allclose(beta, beta[:, firsts][:, labels], rtol=1e-7)
    return beta[:, firsts]


def errors(done, theta):
    """||theta_hat - theta||_V, (T + 1, E)."""
    gap = estimates(done) - theta
    return np.sqrt(np.einsum("tei,teij,tej->te", gap, done.V, gap))


# ------------------------------------------------------------------------------------------------------- broken radii
def bias(kind, done, theta_norm=THETA_NORM, ridge=RIDGE):
    """The radius without noise."""
    excess = 1 + done.lost[:, None] / ridge
    power = {"exact": 0.0, "kept": 0.5, "dropped": 1.0}[kind]
    return theta_norm * math.sqrt(ridge) * excess**power


def halved(case, done):
    """The noise term halved."""
    own = bias(case.kind, done)
    return case.radius(own, case.noise_part(own, done.beta) / 2)


def without_dimension(case, done):
    """The noise term of one direction that was known beforehand."""
    excess = 1 + done.lost[:, None] / RIDGE
    factor = np.sqrt(excess) if case.kind == "dropped" else 1.0
    return case.radius(bias(case.kind, done), NOISE * math.sqrt(2 * case.share) * factor)


def without_loss(case, done):
    """Frequent Directions as though it had lost nothing, but for the logarithm."""
    own = bias(case.kind, done)
    return own + (done.beta - own) / np.sqrt(1 + done.lost[:, None] / RIDGE)


# ------------------------------------------------------------------------------------------------------------ coverage
# One case for each radius formula; the fixed streams below go through all cases, and so do the slow tests.
ONE_PER_RADIUS = {"oful-closed", "oful-logdet", "cslb-paper-coordinates", "multiscale-mixture"}
ONE_PER_RADIUS |= {"soful-closed-buffered", "soful-logdet-every-round", "cbscfd-closed-buffered"}
ONE_PER_RADIUS |= {"cbscfd-logdet-every-round", "dbslinucb-closed-dropped", "dbslinucb-logdet-kept"}


@pytest.mark.parametrize(
    "name", [name if name in ONE_PER_RADIUS else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_ellipsoid_covers_with_data_collected_by_the_policy(name):
    case = CASES[name]
    runs, length = rounds(60, 20), rounds(200, 120)
    theta = np.full(case.arms.shape[1], THETA_NORM / math.sqrt(case.arms.shape[1]))
    missed, missed_halved, missed_flat = 0, 0, 0
    for run in range(runs):
        rng = np.random.default_rng([run, 11])
        policy = case.policy(seed=run)
        done = record(policy, case.arms, length, reward=lambda arm, rng=rng: case.arms[arm] @ theta + rng.normal())
        error = errors(done, theta)
        missed += np.any(error > done.beta)
        missed_halved += np.any(error > halved(case, done))
        missed_flat += np.any(error > without_dimension(case, done))
        assert (done.lost[-1] > 0) == (case.kind != "exact")
    assert missed <= DELTA * runs
    assert missed_halved > 2 * DELTA * runs
    assert missed_flat > DELTA * runs


def stream(policy, arms, length, seed=0):
    """Arms drawn beforehand, no rewards: V, beta and losses do not depend on rewards, so one record serves all runs."""
    picks = np.random.default_rng(seed).integers(len(arms), size=length)
    return record(policy, arms, length, reward=lambda arm: 0.0, arm=lambda t: picks[t])


def missed_share(done, theta, radii, runs=2000, noise=NOISE, seed=0):
    """The share of noise sequences for which some ellipsoid misses theta at some round, for each of several radii."""
    eta = noise * np.random.default_rng(seed).normal(size=(len(done.X), runs, 1))
    missed = np.zeros((len(radii), runs), bool)
    for e in range(done.X.shape[1]):
        drift = (done.data[:, e] - done.V[:, e]) @ theta  # V (theta_hat - theta), but for the noise
        gaps = sums_so_far(eta * done.X[:, e, None, :]) + drift[:, None, :]
        root = np.linalg.inv(np.linalg.cholesky(done.V[:, e])).swapaxes(1, 2)  # root root' = V^-1
        error = np.linalg.norm(gaps @ root, axis=2)
        for i, radius in enumerate(radii):
            missed[i] |= (error > np.broadcast_to(radius, done.beta.shape)[:, [e]]).any(axis=0)
    return missed.mean(axis=1)


@every_case
def test_ellipsoid_covers_on_a_fixed_stream(name):
    """Thousands of noise sequences: sharp enough to see that the radius is not far from the least one that covers."""
    case = CASES[name]
    done = stream(case.policy(), case.arms, 200)
    theta = np.full(case.arms.shape[1], THETA_NORM / math.sqrt(case.arms.shape[1]))
    radii = [done.beta, halved(case, done), without_dimension(case, done)]
    share, share_halved, share_flat = missed_share(done, theta, radii)
    assert share <= DELTA
    assert share_halved > 2 * DELTA
    assert share_flat > DELTA


class Rows:
    """A contextual policy behind the face of one on fixed arms."""

    def __init__(self, policy, arms):
        self.policy, self.arms, self.settings = policy, arms, policy.settings

    @property
    def state(self):
        return self.policy.state

    def bounds(self):
        return self.policy.bounds(self.arms)

    def select(self):
        return self.policy.select(self.arms)

    def update(self, arm, reward):
        self.policy.update(self.arms[arm], reward)


CONTEXTUAL = ["oful-closed", "oful-logdet", "lints-closed", "soful-ts", "soful-logdet-every-round"]
CONTEXTUAL += ["cbscfd-closed-buffered", "cbscfd-logdet-every-round", "dbslinucb-closed-dropped"]
CONTEXTUAL += ["dbslinucb-logdet-kept"]


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_contextual_ellipsoid_covers_on_a_fixed_stream(name):
    case = CASES[name]
    policy = case.make.contextual(dim=case.arms.shape[1], **COMMON, **case.options, seed=0)
    done = stream(Rows(policy, case.arms), case.arms, 200)
    theta = np.full(case.arms.shape[1], THETA_NORM / math.sqrt(case.arms.shape[1]))
    share, share_halved = missed_share(done, theta, [done.beta, halved(case, done)])
    assert share <= DELTA
    assert share_halved > 2 * DELTA


# ------------------------------------------------------------------------------------------- the price of what is lost
@pytest.mark.parametrize("radius", ["closed", "logdet"])
def test_dropped_mass_must_widen_the_noise_term(radius):
    """Noise in a direction that Frequent Directions has shrunk away is divided by the ridge alone."""
    case = Case("", "dropped", PLAIN, SOFUL, {"sketch_size": 2, "radius": radius, "shrink": "every-round"})
    done = stream(case.policy(), case.arms, 200)
    theta = np.array([0.0, THETA_NORM, 0.0])
    share, share_without = missed_share(done, theta, [done.beta, without_loss(case, done)])
    assert done.lost[-1] > 20
    assert share <= DELTA
    assert share_without > 2 * DELTA


@pytest.mark.parametrize("compensated", [False, True])
def test_dyadic_blocks_must_count_the_rows_of_all_blocks(compensated):
    """With the first block's size in the dimension term the ellipsoid fails."""
    arms = unit_rows(4, 17, np.ones(13))
    case = Case("", "", arms, DBSLinUCB, {"sketch_size": 1, "error": 0.5, "compensated": compensated})
    done = stream(case.policy(), arms, 200)
    assert done.lost[-1] == 0  # the loss is not what is at stake here
    n = np.arange(len(done.beta))[:, None]
    first_block = NOISE * np.sqrt(np.log(1 + n / RIDGE) + 2 * case.share) + THETA_NORM * math.sqrt(RIDGE)
    assert np.all(first_block <= done.beta * (1 + 1e-12))
    share, share_first = missed_share(done, np.full(13, THETA_NORM / math.sqrt(13)), [done.beta, first_block])
    assert share <= DELTA
    assert share_first > 2 * DELTA


@every_case
def test_bias_term_without_noise(name):
    """Without noise coverage is certain, for any theta of the allowed norm, and the bias that forgets losses fails."""
    case = CASES[name]
    arms = np.hstack([case.arms, np.zeros((len(case.arms), 1))])  # one direction that no arm sees
    ridge, theta_norm = 0.05, 2.0
    policy = case._replace(arms=arms).policy(noise=0.0, ridge=ridge, theta_norm=theta_norm)
    done = stream(policy, arms, 200)
    loss = done.data - done.V  # theta_hat - theta = V^-1 loss theta
    worst = theta_norm * np.sqrt(np.linalg.eigvalsh(loss @ np.linalg.solve(done.V, loss)).max(axis=-1))
    assert np.all(worst <= done.beta * (1 + 1e-9))
    if case.kind != "dropped":
        np.testing.assert_allclose(worst, done.beta, rtol=1e-9)  # attained in the unseen direction, at every round
    if case.kind != "exact":
        assert worst.max() > 1.5 * theta_norm * math.sqrt(ridge)


# ------------------------------------------------------------------------------------------------------ Thompson draws
def linear_map(inputs, outputs):
    """The matrix M with outputs = inputs M, which must exist: then the covariance of standard normal inputs is M'M."""
    M = np.linalg.lstsq(inputs, outputs, rcond=None)[0]
    np.testing.assert_allclose(inputs @ M, outputs, atol=1e-9 * np.abs(outputs).max())
    return M


def assert_white(draws):
    """Standard normal and independent columns: 2000 rows have a covariance within 0.16 of the identity (5 sigma)."""
    spread = 5 * math.sqrt(2 / len(draws))
    assert np.abs(draws.mean(axis=0)).max() < spread
    np.testing.assert_allclose(draws.T @ draws / len(draws), np.eye(draws.shape[1]), atol=spread)


def train(policy, arms, twin, length=40):
    rng = np.random.default_rng(5)
    for arm, reward in zip(rng.integers(len(arms), size=length), rng.normal(size=length), strict=True):
        policy.update(int(arm), float(reward))
        twin.update(arm, reward)


KEYS = rounds(2000, 400)


@pytest.mark.parametrize("radius", ["closed", "logdet"])
@pytest.mark.parametrize("mode", [{}, {"horizon": 500}, {"scale": 0.4}])
def test_lints_draws_have_covariance_v2_inverse(mode, radius):
    arms = unit_rows(6, 9, np.ones(4)) * 0.8
    common = {"ridge": 0.6, "delta": 0.1, "radius": radius}
    policy = LinTS(arms, **common, **mode)
    twin = naive.LinTS(arms, **common, horizon=mode.get("horizon"))
    train(policy, arms, twin)
    eta, scores = np.zeros((KEYS, 4)), np.zeros((KEYS, 9))
    for key in range(KEYS):
        policy.reseed(key)
        normals(policy.state.key, 40, eta[key])
        scores[key] = policy.state.work[8:17]
        assert policy.select() == naive.tied_argmax(scores[key])
    draws = scores - twin.means()
    v = mode.get("scale") or twin.scale_value()
    M = linear_map(eta, draws)
    np.testing.assert_allclose(M.T @ M, v**2 * arms @ twin.covariance() @ arms.T, atol=1e-9 * v**2)
    deviations = np.linalg.lstsq(arms, draws.T, rcond=None)[0].T
    assert_white(deviations @ np.linalg.cholesky(twin.V()) / v)


@pytest.mark.parametrize(("shrink", "length"), [("buffered", 40), ("buffered", 43), ("every-round", 41)])
def test_soful_draws_have_covariance_exactly_inverse(shrink, length):
    arms = unit_rows(7, 11, np.geomspace(1, 0.3, 6))
    common = {"sketch_size": 3, "shrink": shrink, "ridge": 0.6}
    policy = SOFUL(arms, **common, delta=0.1, exploration="ts")
    twin = naive.SOFUL(arms, **common, delta=0.1 / ((length + 1) * (length + 2)))
    train(policy, arms, twin, length)
    assert policy.shrunk_mass > 0.5
    held = len(twin.sketch.matrix)
    z, draws, scores = np.zeros((KEYS, 6 + held)), np.zeros((KEYS, 6)), np.zeros((KEYS, 11))
    for key in range(KEYS):
        policy.reseed(key)
        normals(policy.state.key, length, z[key])
        draw_direction(policy.state, draws[key])
        scores[key] = policy.state.work[-11:]
        assert policy.select() == naive.tied_argmax(scores[key])
    M = linear_map(z, draws)
    np.testing.assert_allclose(M.T @ M, np.linalg.inv(twin.V()), atol=1e-9)
    np.testing.assert_allclose(scores, twin.means() + twin.radius_value() * draws @ arms.T, atol=1e-8)
    assert_white(draws @ np.linalg.cholesky(twin.V()))


def test_contextual_draws_have_the_same_covariance():
    arms = unit_rows(8, 9, np.ones(4))
    exact, sketched = (
        LinTS.contextual(dim=4, scale=0.5),
        SOFUL.contextual(dim=4, sketch_size=2, exploration="ts", scale=0.5),
    )
    twins = naive.LinTS(arms), naive.SOFUL(arms, sketch_size=2)
    for policy, twin in zip((exact, sketched), twins, strict=True):
        train(Rows(policy, arms), arms, twin)
        held = 4 if policy is exact else 4 + len(twin.sketch.matrix)
        z, scores = np.zeros((60, held)), np.zeros((60, 9))
        for key in range(60):
            policy.reseed(key)
            normals(policy.state.key, 40, z[key])
            scores[key] = policy._scores(arms)
        M = linear_map(z, scores - twin.means())
        np.testing.assert_allclose(M.T @ M, 0.25 * arms @ np.linalg.inv(twin.V()) @ arms.T, atol=1e-9)


# -------------------------------------------------------------------------------------------------------------- claims
def guarantee(policy):
    """What the docstring of a policy's file says it guarantees."""
    text = inspect.getmodule(policy).__doc__
    assert "**Guarantee** " in text, f"{policy.__name__} does not say what it guarantees"
    return text.split("**Guarantee** ")[1].split("**")[0]


@pytest.mark.parametrize("policy", [UCB1, LinUCB, CBRAP])
def test_policies_without_a_guarantee_say_so(policy):
    assert guarantee(policy).startswith("none")


def test_every_policy_that_claims_coverage_is_tested_for_it():
    claims = {policy for policy in public_policies() if not guarantee(policy).startswith("none")}
    elsewhere = {HybridCSLB}  # test_hybrid_coverage.py
    assert claims - elsewhere == {case.make for case in CASES.values()}, "add the policy to cases()"
    for policy in claims - elsewhere:
        assert "covers" in guarantee(policy) and "probability ``1 - delta``" in guarantee(policy).replace("\n", " ")
