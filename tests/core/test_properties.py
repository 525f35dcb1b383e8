"""Invariants on arbitrary input: partitions, sketch error bounds, the lemmas under the radii, symmetries of policies.

Hypothesis picks shapes, kinds of rows, scales and a seed; NumPy fills in the numbers. Always N != d != l.
"""

import math

import naive
import numpy as np
import pytest
from conftest import rounds
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from sketchbandits import CBSCFD, CSLB, OFUL, SOFUL, UCB1, DBSLinUCB, LinTS, LinUCB, Partition
from sketchbandits.confidence import closed_information
from sketchbandits.kernels.counter import normals, philox
from sketchbandits.policies.cslb.layout import SLOT
from sketchbandits.policies.rounds import WIDTH2
from sketchbandits.sketches import DyadicBlocks, FrequentDirections, SpectralCompensation
from sketchbandits.sketches.queries import information, inverse_norms

SEED = st.integers(0, 2**32 - 1)
LINEAR = ["oful", "oful-logdet", "linucb", "lints", "soful", "soful-every-round", "cbscfd", "dbslinucb"]
EXACT = ["oful", "oful-logdet", "linucb", "lints", "cslb", "cslb-logdet", "cslb-sketch", "ucb1"]


def examples(full):
    return settings(
        deadline=None,
        max_examples=rounds(full, max(8, full // 6)),
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow],
    )


def unit(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


# ----------------------------------------------------------------------------------------------------------- partition
KINDS = ["fresh", "duplicate", "zero", "parallel", "combination", "sparse"]


@st.composite
def arm_sets(draw):
    """Arms in a random mix of relations, each at a scale of its own from 1e-12 to 1e12; and a sketch size."""
    d, n, l = draw(st.integers(1, 7)), draw(st.integers(1, 26)), draw(st.integers(1, 9))
    assume(n != d and d != l and n != l)
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=n, max_size=n))
    rng = np.random.default_rng(draw(SEED))
    # Scales are powers of ten for a mix of relations: the relation, not the scale, must decide.
    arms = np.zeros((n, d))
    for i, kind in enumerate(kinds):
        earlier = unit(arms[:i])[rng.integers(max(i, 1), size=min(i, 2))]
        if kind == "fresh" or (i == 0 and kind != "zero"):
            arms[i] = rng.normal(size=d)
        elif kind == "sparse":
            arms[i, rng.integers(d, size=2)] = [1.0, -2.0]
        elif kind == "duplicate" and i:
            arms[i] = arms[rng.integers(i)]
            continue
        elif kind == "parallel" and i:
            arms[i] = earlier[0] * -3.7
        elif kind == "combination" and i:
            arms[i] = rng.integers(1, 4, size=len(earlier)) @ earlier
        arms[i] *= 10.0 ** rng.uniform(-12, 12)
    return arms, l


@examples(60)
@given(arm_sets(), st.booleans())
def test_partition_invariants(given_arms, single):
    arms, l = given_arms
    if single:
        arms = arms.astype(np.float32)
    n, d = arms.shape
    tol = 1e-6 if single else 1e-8
    part = Partition.first_fit(arms, sketch_size=l)
    assert part.tolerance == tol and part.sketch_size == l
    assert part.labels.tolist() == naive.first_fit(arms, l, tol).tolist()
    assert part.n_clusters == len(part.ranks) == part.labels.max() + 1 <= math.ceil(n / l)
    assert all(part.ranks[:-1] == l) and part.ranks[-1] <= min(l, d)
    assert part.bases.dtype == np.float64 and len(part.bases) == part.ranks.sum()
    for c in range(part.n_clusters):
        members, basis, own = part.members(c), part.basis(c), arms[part.labels == c].astype(float)
        assert members.tolist() == np.flatnonzero(part.labels == c).tolist()
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-12)
        # Scale-free rank: n unit vectors within tol of a span of l have sigma_{l+1} <= tol sqrt(n).
        sigma = np.linalg.svd(unit(own), compute_uv=False)
        assert np.all(sigma[l:] <= 1.01 * tol * math.sqrt(len(own)))
        assert len(basis) == part.ranks[c] == len(naive.span(own, tol))
        norms = np.linalg.norm(own, axis=1, keepdims=True)
        coordinates = part.coordinates(arms, c)
        assert coordinates.shape == (len(members), part.ranks[c])
        assert np.all(np.linalg.norm(own - coordinates @ basis, axis=1, keepdims=True) <= 1.01 * tol * norms)
        assert np.all(np.linalg.norm(own - own @ basis.T @ basis, axis=1, keepdims=True) <= 1.01 * tol * norms)


@examples(40)
@given(arm_sets(), st.data())
def test_partition_ignores_scales_and_signs(given_arms, data):
    arms, l = given_arms
    exponents = data.draw(st.lists(st.integers(-40, 40), min_size=len(arms), max_size=len(arms)))
    factors = np.array([(-1.0) ** e * 1.7**e for e in exponents])
    labels = Partition.first_fit(arms, sketch_size=l).labels
    assert Partition.first_fit(arms * factors[:, None], sketch_size=l).labels.tolist() == labels.tolist()


@examples(30)
@given(arm_sets())
def test_partition_is_deterministic_and_leaves_its_input_alone(given_arms):
    arms, l = given_arms
    before = arms.copy()
    part, again = (Partition.first_fit(arms, sketch_size=l) for _ in range(2))
    assert np.array_equal(arms, before) and arms.flags.writeable
    for mine, other in zip(
        (part.labels, part.ranks, part.bases), (again.labels, again.ranks, again.bases), strict=True
    ):
        assert np.array_equal(mine, other) and not np.shares_memory(mine, other)
        assert not np.shares_memory(mine, arms)
        assert not mine.flags.writeable
    bases = part.bases.copy()
    arms[:] = 7.0
    assert np.array_equal(part.bases, bases)
    for c in range(part.n_clusters):
        assert not part.basis(c).flags.writeable
    frozen = before.copy()
    frozen.setflags(write=False)
    assert Partition.first_fit(frozen, sketch_size=l).labels.tolist() == part.labels.tolist()


@examples(60)
@given(
    st.integers(1, 5),
    st.integers(1, 4),
    st.sampled_from([np.float64, np.float32]),
    st.floats(-12, 12),
    SEED,
)
def test_partition_decides_nearly_dependent_arms_by_the_residual(l, extra, dtype, exponent, seed):
    """A full cluster, then an arm off its span by 0.1 tol (in) and by 10 tol (out), at any scale."""
    d, rng = l + 1 + extra, np.random.default_rng(seed)
    tol = 1e-8 if dtype == np.float64 else 1e-6
    start = rng.normal(size=(l, d)).astype(dtype).astype(float)
    assume(np.linalg.cond(unit(start)) < 1e3)
    complement = np.linalg.qr(start.T, mode="complete")[0][:, l:]
    inside = unit(rng.normal(size=(1, l)) @ unit(start))
    outside = unit(rng.normal(size=(1, d - l)) @ complement.T)
    for share, label in ((0.1, 0), (10.0, 1)):
        near = 10.0**exponent * (inside + share * tol * outside)
        arms = np.vstack([start, near]).astype(dtype)
        labels = Partition.first_fit(arms, sketch_size=l).labels.tolist()
        assert labels == [0] * l + [label] == naive.first_fit(arms, l, tol).tolist()


@examples(30)
@given(st.integers(2, 6), st.floats(-6.5, -1), SEED)
def test_partition_bases_stay_orthonormal_for_nearly_dependent_arms(l, exponent, seed):
    """One direction and small deviations from it: a single Gram-Schmidt pass would lose half the digits."""
    rng, d = np.random.default_rng(seed), l + 2
    arms = rng.normal(size=(1, d)) + 10.0**exponent * rng.normal(size=(l + 1, d))
    part = Partition.first_fit(arms, sketch_size=l)
    assert part.labels.tolist() == [0] * l + [1] == naive.first_fit(arms, l).tolist()
    np.testing.assert_allclose(part.basis(0) @ part.basis(0).T, np.eye(l), atol=1e-12)


@pytest.mark.parametrize(("n", "d", "l"), [(5, 3, 1), (4, 9, 6), (12, 7, 20), (1, 3, 2), (13, 4, 3)])
def test_partition_in_general_position(n, d, l):
    arms = np.random.default_rng(n).normal(size=(n, d))
    part = Partition.first_fit(arms, sketch_size=l)
    expected = [0] * n if l >= d else [i // l for i in range(n)]
    assert part.labels.tolist() == expected


# ------------------------------------------------------------------------------------------------------------ sketches
@st.composite
def matrices(draw, extreme=False, least_size=1):
    """Rows with a flat or a steep spectrum, some of them zero or repeated, and a sketch size."""
    d, n, l = draw(st.integers(2, 9)), draw(st.integers(1, 60)), draw(st.integers(least_size, 6))
    assume(n != d and d != l and n != l)
    rng = np.random.default_rng(draw(SEED))
    X = rng.normal(size=(n, d)) * np.geomspace(1, draw(st.sampled_from([1.0, 0.3, 0.01])), d)
    if draw(st.booleans()):
        X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    if draw(st.booleans()):
        X[rng.random(n) < 0.3] = X[0]
    if draw(st.booleans()):
        X[rng.random(n) < 0.2] = 0.0
    if extreme:
        X = unit(X) * 10.0 ** rng.uniform(-6, 6, size=(n, 1))
    return X, l


def gram(rows):
    return rows.T @ rows


def assert_between(low, matrix, high, scale):
    """low I <= matrix <= high I up to rounding at ``scale``."""
    values = np.linalg.eigvalsh(matrix)
    assert values[0] >= low - 1e-12 * scale
    assert values[-1] <= high + 1e-12 * scale


@examples(60)
@given(matrices(least_size=2), st.sampled_from(["buffered", "every-round"]))
def test_frequent_directions_bounds(given_rows, shrink):
    X, l = given_rows
    d = X.shape[1]
    sketch, twin = FrequentDirections(d, sketch_size=l, shrink=shrink), naive.FrequentDirections(d, l, shrink)
    for t, x in enumerate(X, start=1):
        sketch.update(x)
        twin.update(x)
        mass = max((X[:t] ** 2).sum(), 1e-300)
        assert_between(0.0, gram(X[:t]) - gram(sketch.matrix), sketch.shrunk_mass, mass)
        assert len(sketch.matrix) == len(twin.matrix) < (2 * l if shrink == "buffered" else l)
        assert sketch.shrunk_mass == pytest.approx(twin.shrunk_mass, rel=1e-9, abs=1e-12 * mass)
        np.testing.assert_allclose(gram(sketch.matrix), gram(twin.matrix), atol=1e-11 * mass)
    keep = l if shrink == "buffered" else l - 1
    tails = np.cumsum(np.linalg.svd(X, compute_uv=False)[::-1] ** 2)[::-1]
    for k in range(keep + 1):
        tail = tails[k] if k < len(tails) else 0.0
        assert sketch.shrunk_mass <= tail / (keep + 1 - k) + 1e-12 * mass
    assert sketch.alpha == sketch.ridge == 1.0


@examples(40)
@given(matrices(least_size=2), st.sampled_from(["buffered", "every-round"]), st.booleans(), st.data())
def test_sketches_are_lossless_up_to_their_rank(given_rows, shrink, compensated, data):
    X, l = given_rows
    n, d = X.shape
    keep = l if shrink == "buffered" else l - 1
    rank = min(data.draw(st.integers(1, keep)), d)
    rng = np.random.default_rng(n)
    X = X @ gram(np.linalg.qr(rng.normal(size=(d, rank)))[0].T)
    sketch = (SpectralCompensation if compensated else FrequentDirections)(d, sketch_size=l, shrink=shrink, ridge=0.3)
    for x in X:
        sketch.update(x)
    assert sketch.shrunk_mass == 0.0 and sketch.alpha == 0.3
    np.testing.assert_allclose(gram(sketch.matrix), gram(X), atol=1e-12 * max((X**2).sum(), 1e-300))


@examples(60)
@given(matrices(least_size=2), st.sampled_from(["buffered", "every-round"]), st.floats(-3, 3))
def test_spectral_compensation_grows_and_brackets_the_data(given_rows, shrink, exponent):
    X, l = given_rows
    d, ridge_ = X.shape[1], 10.0**exponent
    sketch = SpectralCompensation(d, sketch_size=l, ridge=ridge_, shrink=shrink)
    twin = naive.FrequentDirections(d, l, shrink)
    last = ridge_ * np.eye(d)
    for t, x in enumerate(X, start=1):
        sketch.update(x)
        twin.update(x)
        V, mass = gram(sketch.matrix) + sketch.alpha * np.eye(d), ridge_ + (X[:t] ** 2).sum()
        assert_between(0.0, V - last, np.inf, mass)
        assert_between(ridge_, V - gram(X[:t]), sketch.alpha, mass)
        assert sketch.alpha == pytest.approx(ridge_ + twin.shrunk_mass, rel=1e-9)
        np.testing.assert_allclose(gram(sketch.matrix), gram(twin.matrix), atol=1e-11 * mass)
        last = V


@examples(60)
@given(matrices(), st.floats(-2, 3), st.booleans())
def test_dyadic_blocks_lose_at_most_the_error(given_rows, exponent, compensated):
    X, l = given_rows
    d, error = X.shape[1], 10.0**exponent
    sketch = DyadicBlocks(d, sketch_size=l, error=error, ridge=0.4, compensated=compensated)
    twin = naive.DyadicBlocks(d, l, error)
    for t, x in enumerate(X, start=1):
        sketch.update(x)
        twin.update(x)
        mass = max((X[:t] ** 2).sum(), 1e-300)
        assert sketch.shrunk_mass <= error * (1 + 1e-12)
        assert_between(0.0, gram(X[:t]) - gram(sketch.matrix), sketch.shrunk_mass, mass)
        assert sketch.n_blocks == len(twin.blocks)
        assert len(sketch.matrix) == len(twin.matrix)
        assert sketch.shrunk_mass == pytest.approx(twin.shrunk_mass, rel=1e-9, abs=1e-12 * mass)
        np.testing.assert_allclose(gram(sketch.matrix), gram(twin.matrix), atol=1e-11 * mass)
    assert sketch.alpha == pytest.approx(0.4 + compensated * sketch.shrunk_mass, rel=1e-14)


def every_sketch(d, l, ridge_):
    yield FrequentDirections(d, sketch_size=l, ridge=ridge_)
    yield FrequentDirections(d, sketch_size=l + 1, ridge=ridge_, shrink="every-round")
    yield SpectralCompensation(d, sketch_size=l, ridge=ridge_)
    yield SpectralCompensation(d, sketch_size=l + 1, ridge=ridge_, shrink="every-round")
    yield DyadicBlocks(d, sketch_size=l, ridge=ridge_, error=3.0)
    yield DyadicBlocks(d, sketch_size=l, ridge=ridge_, error=3.0, compensated=True)


@examples(40)
@given(matrices(), st.floats(-2, 2), SEED)
def test_inverse_norms_equal_the_explicit_inverse(given_rows, exponent, seed):
    X, l = given_rows
    d, ridge_ = X.shape[1], 10.0**exponent
    queries = np.vstack([np.random.default_rng(seed).normal(size=(4, d)), X[:3], np.zeros((1, d))])
    for sketch in every_sketch(d, l, ridge_):
        for x in X:
            sketch.update(x)
        V = gram(sketch.matrix) + sketch.alpha * np.eye(d)
        expected = naive.norms_under(queries, np.linalg.inv(V))
        np.testing.assert_allclose(sketch.inverse_norms(queries), expected, rtol=1e-8)
        lengths = np.linalg.norm(queries, axis=1)
        assert np.all(sketch.inverse_norms(queries) <= lengths / math.sqrt(sketch.alpha) * (1 + 1e-12))


@examples(30)
@given(matrices(extreme=True), st.floats(-8, 8))
def test_sketches_survive_extreme_scales(given_rows, exponent):
    """Rows of norm 1e-6 to 1e6 side by side, ridge 1e-8 to 1e8: against 80 digits, no NaN, no width of 0."""
    X, l = given_rows
    d, ridge_ = X.shape[1], 10.0**exponent
    queries = np.vstack([unit(np.random.default_rng(l).normal(size=(3, d))), X[:2]])
    for sketch in every_sketch(d, l, ridge_):
        for x in X:
            sketch.update(x)
        rows = sketch.matrix
        assert np.isfinite(rows).all() and np.isfinite(sketch.alpha) and np.isfinite(information(sketch.state))
        norms = sketch.inverse_norms(queries)
        counts = [1] * len(rows) + [0] * len(queries)
        sharp = naive.sharp_widths(np.vstack([rows, queries]), counts, sketch.alpha)[len(rows) :]
        assert np.all(norms[np.any(queries, axis=1)] > 0)
        dust = (naive.ROUNDOFF * np.linalg.norm(rows)) ** 2  # singular values below 1e-12 of the largest count as zero
        np.testing.assert_allclose(norms, sharp, rtol=1e-6 + dust / sketch.alpha)


@examples(30)
@given(matrices(), SEED)
def test_zero_rows_change_nothing_in_a_sketch(given_rows, seed):
    X, l = given_rows
    d, rng = X.shape[1], np.random.default_rng(seed)
    for plain, padded in zip(every_sketch(d, l, 0.5), every_sketch(d, l, 0.5), strict=True):
        for x in X:
            while rng.random() < 0.3:
                padded.update(np.zeros(d))
            plain.update(x)
            padded.update(x)
        assert np.array_equal(plain.matrix, padded.matrix)
        assert plain.shrunk_mass == padded.shrunk_mass and plain.alpha == padded.alpha
        assert np.array_equal(plain.inverse_norms(X), padded.inverse_norms(X))


# -------------------------------------------------------------------------------------------------------------- lemmas
@st.composite
def bandits(draw, least=2):
    """Arms (N, d), a sketch size, and pulls with rewards."""
    d, n, l = draw(st.integers(2, 6)), draw(st.integers(least, 14)), draw(st.integers(2, 7))
    assume(n != d and d != l and n != l)
    rng = np.random.default_rng(draw(SEED))
    arms = rng.normal(size=(n, d)) * 10.0 ** draw(st.floats(-1, 1))
    pulls = draw(st.integers(1, 60))
    return arms, l, list(zip(rng.integers(n, size=pulls).tolist(), rng.normal(size=pulls).tolist(), strict=True))


def build(name, arms, l, ridge_=0.8):
    made = {
        "oful": lambda: OFUL(arms, ridge=ridge_),
        "oful-logdet": lambda: OFUL(arms, ridge=ridge_, radius="logdet"),
        "linucb": lambda: LinUCB(arms, ridge=ridge_, alpha=0.7),
        "lints": lambda: LinTS(arms, ridge=ridge_, seed=1),
        "soful": lambda: SOFUL(arms, ridge=ridge_, sketch_size=l),
        "soful-every-round": lambda: SOFUL(arms, ridge=ridge_, sketch_size=l, shrink="every-round", radius="logdet"),
        "cbscfd": lambda: CBSCFD(arms, ridge=ridge_, sketch_size=l, radius="logdet"),
        "dbslinucb": lambda: DBSLinUCB(arms, ridge=ridge_, sketch_size=l, error=2.0),
        "cslb": lambda: CSLB(arms, ridge=ridge_, sketch_size=l),
        "cslb-logdet": lambda: CSLB(arms, ridge=ridge_, sketch_size=l, radius="logdet"),
        "cslb-sketch": lambda: CSLB(arms, ridge=ridge_, sketch_size=l, engine="sketch", radius="logdet"),
        "ucb1": lambda: UCB1(arms),
    }
    return made[name]()


def book(policy, pulls):
    for arm, reward in pulls:
        policy.update(arm, reward)
    return policy


def squared_widths(policy):
    """||x||^2_{V^-1} of every arm; for UCB1 1/n."""
    values = policy.state.stats[WIDTH2]
    if isinstance(policy, UCB1):
        return values**2
    return values[policy.state.place[SLOT]] if isinstance(policy, CSLB) else values.copy()


@examples(60)
@given(bandits(), st.floats(-3, 3))
def test_elliptical_potential(given_bandit, exponent):
    """sum min(1, ||x||^2_{V^-1}) <= 2 ln det(V/ridge) = 2 sum ln(1 + ||x||^2_{V^-1}), V before the pull."""
    arms, _, pulls = given_bandit
    policy, ridge_ = LinUCB(arms, ridge=10.0**exponent), 10.0**exponent
    potential = grown = 0.0
    for arm, reward in pulls:
        width2 = squared_widths(policy)[arm]
        potential += min(1.0, width2)
        grown += math.log1p(width2)
        policy.update(arm, reward)
        logdet = policy.state.level["logdet"][0]
        assert potential <= 2 * logdet * (1 + 1e-10)
        assert grown == pytest.approx(logdet, rel=1e-8)
    X = arms[[arm for arm, _ in pulls]]
    exact = np.linalg.slogdet(np.eye(len(X)) + X @ X.T / ridge_)[1]
    assert logdet == pytest.approx(exact, rel=1e-8)


@examples(60)
@given(bandits(least=5), st.floats(-3, 3))
def test_sketch_trace_inequality(given_bandit, exponent):
    """det V_C <= (ridge + t L^2/l)^l ridge^(d-l) for every cluster, in logarithms, with the cluster's own count too."""
    arms, l, pulls = given_bandit
    ridge_, L = 10.0**exponent, np.linalg.norm(arms, axis=1).max()
    policy = CSLB(arms, sketch_size=l, ridge=ridge_, radius="logdet")
    labels = policy.partition.labels
    for t, (arm, reward) in enumerate(pulls, start=1):
        policy.update(arm, reward)
        logdets = policy.state.clusters["logdet"] + np.log(policy.state.clusters["growth"])
        assert np.all(logdets <= closed_information(t, l, L**2 / ridge_) + 1e-10)
    for c in range(policy.partition.n_clusters):
        X = arms[[arm for arm, _ in pulls if labels[arm] == c]]
        V = ridge_ * np.eye(arms.shape[1]) + gram(X)
        logdet = np.linalg.slogdet(V)[1] - arms.shape[1] * math.log(ridge_)
        assert logdets[c] == pytest.approx(logdet, rel=1e-8, abs=1e-10)
        assert logdet <= closed_information(len(X), l, L**2 / ridge_) + 1e-10


@examples(60)
@given(matrices(), st.floats(-2, 2))
def test_sketched_information_covers_the_exact_determinant(given_rows, exponent):
    """ln det(V/ridge) <= q + d ln(1 + rho/ridge), measured q <= closed q with min(d, rows held)."""
    X, l = given_rows
    d, ridge_ = X.shape[1], 10.0**exponent
    L = np.linalg.norm(X, axis=1).max()
    for sketch in every_sketch(d, l, ridge_):
        for t, x in enumerate(X, start=1):
            sketch.update(x)
            if t % 7 and t < len(X):
                continue
            q, excess = information(sketch.state), 1 + sketch.shrunk_mass / ridge_
            rows = sketch.matrix
            explicit = np.linalg.slogdet(np.eye(d) + gram(rows) / (ridge_ * excess))[1]
            assert q == pytest.approx(explicit, rel=1e-8, abs=1e-10)
            exact = np.linalg.slogdet(np.eye(d) + gram(X[:t]) / ridge_)[1]
            assert exact <= q + d * math.log(excess) + 1e-9
            assert q <= closed_information(t, min(d, len(rows)), L**2 / ridge_) + 1e-9


# ------------------------------------------------------------------------------------------------------------ policies
@pytest.mark.parametrize("name", [*LINEAR, "ucb1"])
@examples(30)
@given(bandits(), st.randoms(use_true_random=False))
def test_permuting_arms_permutes_bounds(name, given_bandit, random):
    arms, l, pulls = given_bandit
    order = random.sample(range(len(arms)), len(arms))
    place = np.argsort(order)
    policy = book(build(name, arms, l), pulls)
    permuted = book(build(name, arms[order], l), [(int(place[arm]), reward) for arm, reward in pulls])
    np.testing.assert_allclose(permuted.bounds(), policy.bounds()[order], rtol=1e-8, atol=1e-8)
    assert permuted.counts.tolist() == policy.counts[order].tolist()


@pytest.mark.parametrize("name", ["cslb", "cslb-logdet", "cslb-sketch"])
@examples(30)
@given(st.integers(2, 3), st.integers(2, 4), st.integers(0, 3), SEED, st.randoms(use_true_random=False))
def test_permuting_arms_inside_clusters_permutes_bounds(name, l, k, more, seed, random):
    """Blocks of l + more arms, each block in a subspace of its own: the partition is the blocks in any inner order."""
    d, size, rng = l + 2, l + more, np.random.default_rng(seed)
    assume(k * size != d)
    arms = np.vstack([rng.normal(size=(size, l)) @ rng.normal(size=(l, d)) for _ in range(k)])
    order = [c * size + i for c in range(k) for i in random.sample(range(size), size)]
    place = np.argsort(order)
    pulls = list(zip(rng.integers(len(arms), size=40).tolist(), rng.normal(size=40).tolist(), strict=True))
    policy = book(build(name, arms, l), pulls)
    permuted = book(build(name, arms[order], l), [(int(place[arm]), reward) for arm, reward in pulls])
    assert policy.partition.labels.tolist() == permuted.partition.labels.tolist() == np.repeat(range(k), size).tolist()
    np.testing.assert_allclose(permuted.bounds(), policy.bounds()[order], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", EXACT)
@examples(30)
@given(bandits(), st.randoms(use_true_random=False))
def test_order_of_rewards_does_not_matter(name, given_bandit, random):
    arms, l, pulls = given_bandit
    policy = book(build(name, arms, l), pulls)
    shuffled = book(build(name, arms, l), random.sample(pulls, len(pulls)))
    np.testing.assert_allclose(shuffled.bounds(), policy.bounds(), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(squared_widths(shuffled), squared_widths(policy), rtol=1e-8)


@pytest.mark.parametrize("name", EXACT)
@examples(30)
@given(bandits(), st.floats(-4, 4))
def test_widths_never_grow_and_stay_positive(name, given_bandit, exponent):
    arms, l, pulls = given_bandit
    arms = np.vstack([arms, np.zeros((1, arms.shape[1]))])
    policy = build(name, arms, l, ridge_=10.0**exponent)
    last = squared_widths(policy)
    for arm, reward in [*pulls, (len(arms) - 1, 3.0)]:
        policy.update(arm, reward)
        now = squared_widths(policy)
        assert np.all(now <= last * (1 + 1e-9))
        if name == "ucb1":
            assert np.all(now[policy.counts > 0] > 0)
        else:
            assert np.all(now[:-1] > 0) and np.isfinite(now).all() and now[-1] == 0
            assert np.isfinite(policy.bounds()).all() and policy.bounds()[-1] == 0
        last = now


@pytest.mark.parametrize("name", ["soful", "soful-every-round", "cbscfd", "dbslinucb"])
@examples(30)
@given(bandits(), st.floats(-4, 4))
def test_sketched_widths_are_those_of_the_sketch(name, given_bandit, exponent):
    """Positive for all but the zero arm, never above ||x||/sqrt(ridge), and what the explicit inverse says."""
    arms, l, pulls = given_bandit
    arms = np.vstack([arms, np.zeros((1, arms.shape[1]))])
    ridge_ = 10.0**exponent
    policy = build(name, arms, l, ridge_=ridge_)
    for arm, reward in [*pulls, (len(arms) - 1, 3.0)]:
        policy.update(arm, reward)
        now = squared_widths(policy)
        assert np.all(now[:-1] > 0) and now[-1] == 0 and np.isfinite(policy.bounds()).all()
        assert np.all(now <= (arms**2).sum(axis=1) / ridge_ * (1 + 1e-9))
    twin = {
        "soful": lambda: naive.SOFUL(arms, ridge=ridge_, sketch_size=l),
        "soful-every-round": lambda: naive.SOFUL(arms, ridge=ridge_, sketch_size=l, shrink="every-round"),
        "cbscfd": lambda: naive.CBSCFD(arms, ridge=ridge_, sketch_size=l),
        "dbslinucb": lambda: naive.DBSLinUCB(arms, ridge=ridge_, sketch_size=l, eps=2.0),
    }[name]()
    book(twin, [*pulls, (len(arms) - 1, 3.0)])
    np.testing.assert_allclose(np.sqrt(now), twin.widths(), rtol=1e-6, atol=1e-9 / math.sqrt(ridge_))


def assert_widths_follow_the_sketch(name, span, rtol):
    """Arms of norm 10^-span to 10^span side by side have the widths that the sketch gives for the same vectors."""
    for seed in range(rounds(300, 40)):
        rng = np.random.default_rng(seed)
        d, n, l = 5, int(rng.integers(6, 12)), int(rng.integers(2, 5))
        arms = unit(rng.normal(size=(n, d))) * 10.0 ** rng.uniform(-span, span, size=(n, 1))
        policy = build(name, arms, l, ridge_=10.0 ** rng.uniform(-span, span))
        book(policy, [(arm, 0.0) for arm in rng.integers(n, size=30).tolist()])
        expected = inverse_norms(policy.state.sketch, arms)
        np.testing.assert_allclose(np.sqrt(squared_widths(policy)), expected, rtol=rtol, err_msg=f"seed {seed}")


@pytest.mark.parametrize("name", ["soful", "soful-every-round", "cbscfd", "dbslinucb"])
def test_sketched_widths_beside_arms_of_other_scales(name):
    assert_widths_follow_the_sketch(name, span=1.5, rtol=1e-6)


@pytest.mark.parametrize("name", ["soful", "cbscfd", "dbslinucb"])
def test_sketched_widths_beside_arms_of_far_other_scales(name):
    """Nothing is lost (8 pulls, room for more), so the widths are the exact ones."""
    arms = [[11.0, 9.5, 11.0, 37.0, 23.0], [-36e3, 37e3, -21e3, -95e3, 140e3], [1100.0, -57.0, -190.0, -200.0, -30.0]]
    arms += [[4100.0, -190e3, 120e3, -60e3, 70e3], [5.7e-6, 1.7e-6, 6.6e-6, -3e-6, 5.9e-6], [140, 110, -500, 150, 390]]
    pulls = [4, 3, 3, 3, 5, 2, 0, 1]
    policy = book(build(name, np.array(arms), 8, ridge_=300.0), [(arm, 0.0) for arm in pulls])
    expected = naive.sharp_widths(arms, np.bincount(pulls), 300.0)
    np.testing.assert_allclose(np.sqrt(squared_widths(policy)), expected, rtol=1e-6)
    assert_widths_follow_the_sketch(name, span=6, rtol=1e-5)


# ------------------------------------------------------------------------------------------------------ random numbers
WORD = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1]))


@examples(60)
@given(WORD, WORD, WORD, WORD)
def test_philox_equals_numpy(low, high, block, round_):
    key, out = np.array([low, high], np.uint64), np.zeros(4, np.uint64)
    philox(key, np.uint64(block), np.uint64(round_), out)
    # NumPy steps its 256-bit counter before it draws.
    before = (block + (round_ << 64) - 1) % 2**256
    words = [(before >> (64 * k)) % 2**64 for k in range(4)]
    reference = np.random.Philox(counter=np.array(words, np.uint64), key=key)
    assert out.tolist() == reference.random_raw(4).tolist()


@examples(30)
@given(WORD, WORD, st.integers(0, 10**9), st.integers(1, 30), st.integers(1, 30))
def test_normals_depend_on_key_round_and_position_only(low, high, round_, short, long):
    key = np.array([low, high], np.uint64)
    one, two, other = np.full(short, np.nan), np.zeros(max(short, long)), np.zeros(short)
    normals(key, round_, one)
    normals(key, round_, two)
    normals(key, round_ + 1, other)
    assert np.array_equal(one, two[:short])
    assert np.isfinite(two).all()
    assert not np.any(one == other)
    assert key.tolist() == [low, high]


@pytest.mark.parametrize("along", ["position", "round", "key"])
def test_normals_are_standard_normal(along):
    """Moments, Kolmogorov-Smirnov and lag correlations, for draws that differ in position, in round or in key."""
    n = rounds(40_000, 4_000)
    draws, pair = np.empty(n), np.empty(2)
    if along == "position":
        normals(np.array([5, 6], np.uint64), 3, draws)
    else:
        for i in range(0, n, 2):
            key = np.array([5, i if along == "key" else 6], np.uint64)
            normals(key, i if along == "round" else 3, pair)
            draws[i : i + 2] = pair
    error = 5 / math.sqrt(n)  # five standard errors, times the spread of the moment
    assert abs(draws.mean()) < error
    assert abs((draws**2).mean() - 1) < error * math.sqrt(2)
    assert abs((draws**3).mean()) < error * math.sqrt(15)
    assert abs((draws**4).mean() - 3) < error * math.sqrt(96)
    assert stats.kstest(draws, "norm").pvalue > 1e-4
    for lag in range(1, 9):
        assert abs((draws[lag:] * draws[:-lag]).mean()) < error
        assert abs(((draws[lag:] ** 2 - 1) * (draws[:-lag] ** 2 - 1)).mean()) < 2 * error
