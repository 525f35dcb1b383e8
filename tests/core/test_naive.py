"""The twins against hand-computed cases and proved inequalities: a wrong twin makes every oracle test worthless."""

import math

import naive
import numpy as np
import pytest


def gaussian(seed, n, d):
    return np.random.default_rng(seed).normal(size=(n, d))


def play(policy, theta, rounds, seed=0):
    rng = np.random.default_rng(seed)
    picks = []
    for _ in range(rounds):
        arm = policy.select()
        policy.update(arm, policy.arms[arm] @ theta + policy.R * rng.normal())
        picks.append(arm)
    return picks


def test_ties():
    assert naive.tied_argmax([1.0, 1.0 + 1e-10, 0.5]) == 0
    assert naive.tied_argmax([1.0, 1.0 + 1e-8, 0.5]) == 1
    assert naive.tied_argmax([-1.0 - 1e-10, -1.0]) == 0
    assert naive.tied_argmax([1e300, math.inf, math.inf]) == 1
    assert naive.tied_argmax([0.0, 1e-300]) == 1
    assert naive.ordered_argmax([1.0, 1.0, 1.0, 0.9], [2.0, 3.0, 3.0 + 1e-12, 9.0]) == 1


@pytest.mark.parametrize(("n", "d", "size"), [(23, 7, 3), (30, 6, 5), (4, 9, 6), (101, 12, 10)])
def test_first_fit_in_general_position(n, d, size):
    assert naive.first_fit(gaussian(1, n, d), size).tolist() == [i // size for i in range(n)]


def test_span_is_orthonormal_for_nearly_dependent_rows():
    start, noise = gaussian(16, 1, 9), gaussian(17, 5, 9)
    basis = naive.span(start + 1e-7 * noise)
    assert len(basis) == 5
    assert basis @ basis.T == pytest.approx(np.eye(5), abs=1e-14)


def test_first_fit_on_dependent_arms():
    e = np.eye(4)
    arms = np.array([e[0], e[1], e[2], e[0] + e[1], e[3], e[2] - e[3], 0 * e[0], e[0] + e[2]])
    assert naive.first_fit(arms, 2).tolist() == [0, 0, 1, 0, 1, 1, 0, 2]
    assert naive.first_fit(np.vstack([0 * e[0], arms]), 2).tolist() == [0, 0, 0, 1, 0, 1, 1, 0, 2]
    assert naive.first_fit([e[0], e[0] + 1e-9 * e[1], e[0] + 1e-7 * e[1]], 1).tolist() == [0, 0, 1]
    rng = np.random.default_rng(2)
    arms = rng.integers(-1, 2, size=(60, 5)).astype(float)
    labels = naive.first_fit(arms, 3)
    assert labels.max() + 1 < math.ceil(60 / 3)
    ranks = [np.linalg.matrix_rank(arms[labels == c]) for c in range(labels.max() + 1)]
    assert ranks[:-1] == [3] * (len(ranks) - 1) and ranks[-1] <= 3


def test_ucb1_by_hand():
    policy = naive.UCB1([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]], c=2.0, noise=0.5)
    assert policy.bounds().tolist() == [math.inf, math.inf]
    assert policy.select() == 0
    policy.update(0, 1.0)
    assert policy.select() == 1
    policy.update(1, 0.4)
    assert policy.bounds() == pytest.approx(
        [1.0 + 0.5 * math.sqrt(2 * math.log(3)), 0.4 + 0.5 * math.sqrt(2 * math.log(3))]
    )
    assert policy.select() == 0
    policy.update(0, 0.0)  # mean 1/2 over two pulls, round 4
    log4 = math.log(4)
    assert policy.bounds() == pytest.approx([0.5 + 0.5 * math.sqrt(log4), 0.4 + 0.5 * math.sqrt(2 * log4)])
    assert policy.select() == 1


def test_cslb_paper_by_hand():
    """The third choice rests on a stale sentinel: with today's radius the other arm would be played."""
    policy = naive.CSLB([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]], sketch_size=1, ridge=2.0, delta=0.1)

    def beta(t):
        return math.sqrt(math.log(1 + t / 2) + 2 * math.log(2 / 0.1)) + math.sqrt(2)

    assert policy.radius_value() == pytest.approx(beta(1))
    assert policy.select() == 0
    policy.update(0, 0.0)  # V = 3 along the arm
    assert policy.sentinels == pytest.approx([beta(2) / math.sqrt(3), math.inf])
    assert policy.select() == 1
    policy.update(1, 8.76)  # V = 9/4, theta = 8.76 / 2 / (9/4), mean 8.76 / 9, width 1/3
    assert policy.sentinels == pytest.approx([beta(2) / math.sqrt(3), 8.76 / 9 + beta(3) / 3])
    assert policy.bounds() == pytest.approx([beta(3) / math.sqrt(3), 8.76 / 9 + beta(3) / 3])
    assert np.argmax(policy.bounds()) == 0
    assert policy.select() == 1


def test_cslb_paper_with_fewer_arms_than_the_sketch():
    arms = np.vstack([np.eye(3)[:2], 2 * np.eye(3)[:1]])  # N = 3, rank 2
    policy = naive.CSLB(arms, sketch_size=1000, ridge=2.0, delta=0.1)
    assert policy.radius_value() == pytest.approx(
        math.sqrt(2 * math.log(1 + 4 / 4) + 2 * math.log(1.5 / 0.1)) + math.sqrt(2)
    )


def test_cslb_logdet_by_hand():
    """Both unit arms are capped at S = 1 throughout, so the less known one goes first."""
    arms = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.3]]
    policy = naive.CSLB(arms, sketch_size=2, radius="logdet", ridge=2.0, delta=0.1)
    start = math.sqrt(2 * math.log(2 / 0.1)) + math.sqrt(2)
    assert policy.K == 2
    assert policy.cluster_radius(0) == pytest.approx(start)
    assert policy.sentinels == pytest.approx([1.0, 0.3])
    assert policy.select() == 0
    policy.update(0, 0.0)
    beta = math.sqrt(math.log(1.5) + 2 * math.log(2 / 0.1)) + math.sqrt(2)
    assert policy.cluster_bounds(0)[1] == pytest.approx([beta / math.sqrt(3), beta / math.sqrt(2)])
    assert policy.bounds() == pytest.approx([1.0, 1.0, 0.3])
    assert policy.select() == 1
    policy.update(1, 5.0)  # uncapped 5/3 + beta' / sqrt 3, against arm 0's beta' / sqrt 3
    assert policy.select() == 1
    with pytest.raises(ValueError, match="logdet"):
        policy.radius_value()


def test_cslb_logdet_orders_capped_clusters_by_their_uncapped_bound():
    policy = naive.CSLB([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], sketch_size=1, radius="logdet")
    assert policy.select() == 0
    policy.update(0, 0.0)
    assert policy.sentinels.tolist() == [1.0, 1.0]
    assert policy.select() == 1


def test_cslb_of_full_rank_is_oful_in_logdet():
    """l = d: one cluster, and OFUL's log-det bound, capped."""
    arms, theta = gaussian(3, 9, 4), np.array([0.5, -0.5, 0.5, 0.5])
    cluster = naive.CSLB(arms, sketch_size=4, radius="logdet", ridge=0.7, theta_norm=1.5)
    oful = naive.OFUL(arms, radius="logdet", ridge=0.7, theta_norm=1.5)
    for arm in play(cluster, theta, 40):
        oful.update(arm, arms[arm] @ theta)
        cluster.b[0] = oful.b
    assert cluster.K == 1
    assert cluster.bounds() == pytest.approx(np.minimum(1.5 * cluster.norms, oful.bounds()))


def test_oful_radii_and_widths():
    arms, theta = gaussian(4, 8, 5), np.full(5, 0.4)
    closed, measured = naive.OFUL(arms, ridge=0.3), naive.OFUL(arms, ridge=0.3, radius="logdet")
    assert closed.radius_value() == measured.radius_value()
    for arm in play(closed, theta, 60):
        measured.update(arm, 0.0)
        assert closed.radius_value() > measured.radius_value()
    X = np.array([arms[0], arms[1], arms[1]])
    policy = naive.OFUL(arms, ridge=0.3)
    for arm, reward in [(1, 2.0), (0, -1.0), (1, 1.0)]:
        policy.update(arm, reward)
    stacked = np.vstack([X, math.sqrt(0.3) * np.eye(5)])
    theta_hat = np.linalg.lstsq(stacked, np.r_[-1.0, 2.0, 1.0, np.zeros(5)], rcond=None)[0]
    assert policy.means() == pytest.approx(arms @ theta_hat)
    assert policy.widths() == pytest.approx(np.linalg.norm(np.linalg.pinv(stacked).T @ arms.T, axis=0))


def test_oful_switches_rarely():
    arms, theta = gaussian(5, 30, 4) / 2, np.full(4, 0.5)
    policy, rng = naive.OFUL(arms, radius="logdet", switching=0.6), np.random.default_rng(0)
    last, choice, switches = 0.0, int(np.argmax(policy.bounds())), 0
    for _ in range(300):
        assert policy.select() == choice
        policy.update(choice, arms[choice] @ theta + rng.normal())
        now = math.log(np.linalg.det(policy.V()))
        if now >= last + math.log(1.6):
            last, choice, switches = now, int(np.argmax(policy.bounds())), switches + 1
    assert 3 < switches <= now / math.log(1.6)
    assert policy.select() == choice


def test_linucb_and_cbrap():
    arms, M = gaussian(6, 7, 5), gaussian(7, 3, 5)
    policy, projected = naive.LinUCB(arms, alpha=2.0, ridge=0.5), naive.CBRAP(arms, projection=M, alpha=2.0, ridge=0.5)
    assert policy.bounds() == pytest.approx(2.0 * np.linalg.norm(arms, axis=1) / math.sqrt(0.5))
    projected.update(3, 1.5)
    z = M @ arms[3]
    assert projected.means()[3] == pytest.approx(1.5 * z @ z / (z @ z + 0.5))
    assert projected.widths()[3] == pytest.approx(math.sqrt(z @ z / (z @ z + 0.5)))
    assert len(projected.theta()) == 3


def test_lints_draws_have_the_covariance():
    policy = naive.LinTS(gaussian(8, 6, 4), ridge=0.5, horizon=100)
    for arm in [0, 1, 1, 5]:
        policy.update(arm, 1.0)
    deviations = policy.sample(np.eye(4), v=3.0) - policy.theta()
    assert deviations.T @ deviations == pytest.approx(9.0 * policy.covariance())
    assert policy.covariance() @ policy.V() == pytest.approx(np.eye(4), abs=1e-12)
    assert policy.scale_value() == pytest.approx(naive.OFUL.radius_at(policy, 0.01 / 400))
    policy.horizon = None
    assert policy.scale_value() == pytest.approx(naive.OFUL.radius_at(policy, 0.01 / 30))  # t = 5
    assert policy.select(np.zeros(4)) == int(np.argmax(policy.means()))


@pytest.mark.parametrize("shrink", ["buffered", "every-round"])
@pytest.mark.parametrize("m", [2, 3, 5])
def test_frequent_directions_error(shrink, m):
    X = gaussian(9, 80, 8) * np.geomspace(1, 0.05, 8)
    sketch = naive.FrequentDirections(8, m, shrink)
    for i, x in enumerate(X, start=1):
        sketch.update(x)
        error = np.linalg.eigvalsh(X[:i].T @ X[:i] - sketch.matrix.T @ sketch.matrix)
        assert error.min() >= -1e-10 and error.max() <= sketch.shrunk_mass + 1e-10
        assert len(sketch.matrix) < (2 * m if shrink == "buffered" else m)
    assert sketch.shrunk_mass > 0.01
    assert sketch.shrunk_mass * (m + 1 if shrink == "buffered" else m) <= (X**2).sum()


def test_frequent_directions_by_hand():
    sketch = naive.FrequentDirections(3, 1)
    sketch.update(np.array([0.0, 2.0, 0.0]))
    assert sketch.shrunk_mass == 0 and len(sketch.matrix) == 1
    sketch.update(np.array([1.0, 0.0, 0.0]))
    assert sketch.shrunk_mass == pytest.approx(1.0)
    assert np.abs(sketch.matrix) == pytest.approx(np.array([[0.0, math.sqrt(3), 0.0]]), abs=1e-12)
    sketch.update(np.zeros(3))
    assert len(sketch.matrix) == 1
    sketch = naive.FrequentDirections(3, 2)
    sketch.update(np.zeros(3))
    assert len(sketch.matrix) == 0


@pytest.mark.parametrize(("shrink", "rank"), [("buffered", 3), ("every-round", 2)])
def test_frequent_directions_is_lossless_up_to_its_rank(shrink, rank):
    X = gaussian(10, 50, rank) @ gaussian(11, rank, 7)
    sketch = naive.FrequentDirections(7, 3, shrink)
    for x in X:
        sketch.update(x)
    assert sketch.shrunk_mass == 0.0
    assert sketch.matrix.T @ sketch.matrix == pytest.approx(X.T @ X)


@pytest.mark.parametrize("Policy", [naive.SOFUL, naive.CBSCFD, naive.DBSLinUCB])
@pytest.mark.parametrize("radius", ["closed", "logdet"])
def test_sketch_of_full_size_is_oful(Policy, radius):
    arms, theta = gaussian(12, 9, 4), np.full(4, 0.5)
    policy, oful = Policy(arms, sketch_size=5, radius=radius, ridge=0.6), naive.OFUL(arms, radius=radius, ridge=0.6)
    rng = np.random.default_rng(0)
    for n in range(1, 41):
        arm = policy.select()
        for each in (policy, oful):
            each.update(arm, arms[arm] @ theta + rng.normal())
        oful.b = policy.b.copy()
        if radius == "logdet" or len(policy.sketch.matrix) >= 4:  # fewer rows: a smaller closed radius than OFUL's
            assert policy.bounds() == pytest.approx(oful.bounds()), n
    assert policy.sketch.shrunk_mass == 0.0


@pytest.mark.parametrize("compensated", [False, True])
def test_sketched_radii_cover_the_exact_data(compensated):
    """The derivation's steps: q + d ln(1 + rho/lam) >= ln det of the exact V / lam, closed >= measured."""
    arms, lam = gaussian(13, 11, 6), 0.8
    Policy = naive.CBSCFD if compensated else naive.SOFUL
    closed, measured = (Policy(arms, sketch_size=2, radius=r, ridge=lam) for r in ("closed", "logdet"))
    exact = naive.OFUL(arms, ridge=lam)
    for arm in np.random.default_rng(1).integers(11, size=40):
        for each in (closed, measured, exact):
            each.update(arm, 1.0)
        rho = measured.sketch.shrunk_mass
        assert measured.q() + 6 * math.log(1 + rho / lam) >= exact.logdet() - 1e-9
        assert closed.q() >= measured.q()
    assert rho > 1
    rows = measured.sketch.matrix
    assert measured.q() == pytest.approx(math.log(np.linalg.det(np.eye(6) + rows.T @ rows / (lam + rho))))
    noise = math.sqrt(closed.q() + 2 * math.log(100) + 6 * math.log(1 + rho / lam))
    expected = noise + math.sqrt(lam + rho)
    if not compensated:
        expected = noise * math.sqrt((lam + rho) / lam) + (lam + rho) / math.sqrt(lam)
    assert closed.radius_value() == pytest.approx(expected)
    gap = np.linalg.eigvalsh(closed.V() - exact.V())
    assert (gap.min() >= -1e-9) if compensated else (gap.max() <= 1e-9)


@pytest.mark.parametrize("eps", [0.5, 4.0, 20.0])
def test_dyadic_blocks_lose_at_most_eps(eps):
    X = gaussian(14, 300, 12) * np.geomspace(0.5, 0.05, 12)
    blocks, single = naive.DyadicBlocks(12, 2, eps), naive.FrequentDirections(12, 2)
    for i, x in enumerate(X, start=1):
        blocks.update(x)
        single.update(x)
        S = blocks.matrix
        error = np.linalg.eigvalsh(X[:i].T @ X[:i] - S.T @ S)
        assert error.min() >= -1e-10 and error.max() <= blocks.shrunk_mass + 1e-10
        assert blocks.shrunk_mass <= eps
    assert len(blocks.blocks) > 1
    if eps > 0.5:
        assert blocks.shrunk_mass > 0  # some block was lossy
    assert single.shrunk_mass > blocks.shrunk_mass


def test_dyadic_blocks_close_by_hand():
    """l_0 = 1, eps = 2: the mass limit is 1."""
    e, blocks = np.eye(3), naive.DyadicBlocks(3, 1, eps=2.0)
    for x in [2 * e[0], 3 * e[0], 0 * e[0]]:  # over the limit, but of rank 1: lossless
        blocks.update(x)
    assert len(blocks.blocks) == 1 and blocks.shrunk_mass == 0.0
    blocks.update(0.1 * e[1])  # rank 2 > 1 and over the limit: close, l_1 = 2
    assert len(blocks.blocks) == 2
    for x in [0.1 * e[2], 0.1 * e[0], 0.1 * e[1]]:  # rank 3 > 2, mass under the limit: lossy, stays
        blocks.update(x)
    assert len(blocks.blocks) == 2 and blocks.shrunk_mass == pytest.approx(0.01)
    blocks.update(e[0])  # with this row over the limit: close, l_2 = 4 > d
    assert len(blocks.blocks) == 3
    for i in range(20):
        blocks.update((i + 1) * e[i % 3])
    assert len(blocks.blocks) == 3 and blocks.shrunk_mass == pytest.approx(0.01)
    policy = naive.DBSLinUCB(np.eye(3), sketch_size=1, compensated=True)
    policy.sketch, policy.n = blocks, 27
    assert policy.q() == pytest.approx(3 * math.log(1 + 27 / 3))
    assert policy.V() == pytest.approx(blocks.matrix.T @ blocks.matrix + 1.01 * np.eye(3))


def test_sharp_oracles_on_one_repeated_arm():
    """width^2 = s / (ridge + n s), mean = sum y * s / (ridge + n s), s = ||x||^2: 10^12 against a ridge of 10^-8."""
    x = 1e6 * np.array([0.6, 0.8, 0.0])
    s = float(x @ x)
    rows, counts = [x.tolist(), [0.0, 0.0, 3.0], (2 * x).tolist()], [1000, 0, 0]
    widths = naive.sharp_widths(rows, counts, 1e-8)
    expected = math.sqrt(s / (1e-8 + 1000 * s))
    assert widths == pytest.approx([expected, 3.0 / 1e-4, 2 * expected], rel=1e-14)
    means = naive.sharp_means(rows, counts, [250.0, 0.0, 0.0], 1e-8)
    assert means == pytest.approx([0.25, 0.0, 0.5], rel=1e-14)


def test_sharp_oracles_agree_with_the_explicit_inverse():
    arms, counts, sums = gaussian(15, 6, 4), [3, 0, 2, 1, 0, 5], [1.0, 0.0, -2.0, 0.5, 0.0, 4.0]
    policy = naive.LinUCB(arms, ridge=0.4)
    for arm, (count, total) in enumerate(zip(counts, sums, strict=True)):
        for _ in range(count):
            policy.update(arm, total / count)
    assert naive.sharp_widths(arms, counts, 0.4) == pytest.approx(policy.widths())
    assert naive.sharp_means(arms, counts, sums, 0.4) == pytest.approx(policy.means())


def test_ellipsoid_error():
    assert naive.ellipsoid_error([1.0, 2.0], [0.0, 0.0], np.diag([2.0, 3.0])) == pytest.approx(math.sqrt(14.0))
