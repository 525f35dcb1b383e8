"""Fast policies against their slow, obvious twins in `naive.py`: same arms, same bounds, `ridge != 1`, `N != d`."""

import naive
import numpy as np
import pytest
from conftest import rounds

from sketchbandits import (
    CBRAP,
    CBSCFD,
    CSLB,
    OFUL,
    SOFUL,
    UCB1,
    DBSLinUCB,
    LinTS,
    LinUCB,
    MultiscaleCSLB,
    Partition,
)
from sketchbandits.environments import (
    LinearEnvironment,
    correlated_arms,
    heavy_tailed_arms,
    subspace_arms,
    uniform_parameter,
)

COMMON = {"ridge": 0.6, "noise": 0.7, "theta_norm": 1.3, "delta": 0.05}
N, D = 23, 11
PAPER = {1: (60, 50, 5, 1), 2: (100, 50, 10, 1), 3: (100, 50, 10, 2), 4: (200, 50, 5, 10)}


def sketched(cls, twin, **options):
    return lambda X: (cls(X, **options, **COMMON), twin(X, **options, **COMMON))


def dyadic(radius, compensated):
    def make(X):
        fast = DBSLinUCB(X, sketch_size=2, error=3.7, compensated=compensated, radius=radius, **COMMON)
        slow = naive.DBSLinUCB(X, sketch_size=2, eps=3.7, compensated=compensated, radius=radius, **COMMON)
        return fast, slow

    return make


def projected(X):
    fast = CBRAP(X, sketch_size=5, alpha=0.7, ridge=0.6, seed=3)
    return fast, naive.CBRAP(X, projection=fast.projection, alpha=0.7, **COMMON)


def fair_oful(X):
    options = {**COMMON, "radius": "mixture", "ridge": None, "cap": True}
    return OFUL(X, **options), naive.OFUL(X, **options)


PAIRS = {
    "ucb1": lambda X: (UCB1(X, noise=0.7), naive.UCB1(X, **COMMON)),
    "ucb1-wide": lambda X: (UCB1(X, noise=0.7, exploration=8.0), naive.UCB1(X, c=8.0, **COMMON)),
    "oful": sketched(OFUL, naive.OFUL),
    "oful-logdet": sketched(OFUL, naive.OFUL, radius="logdet"),
    "oful-rare": sketched(OFUL, naive.OFUL, switching=0.6),
    "oful-rare-logdet": sketched(OFUL, naive.OFUL, switching=0.35, radius="logdet"),
    "oful-mixture": sketched(OFUL, naive.OFUL, radius="mixture"),
    "oful-capped": sketched(OFUL, naive.OFUL, radius="logdet", cap=True),
    "oful-fair": fair_oful,
    "linucb": lambda X: (LinUCB(X, alpha=0.8, ridge=0.6), naive.LinUCB(X, alpha=0.8, **COMMON)),
    "cbrap": projected,
    "cslb": sketched(CSLB, naive.CSLB, sketch_size=4),
    "cslb-logdet": sketched(CSLB, naive.CSLB, sketch_size=4, radius="logdet"),
    "cslb-one": sketched(CSLB, naive.CSLB, sketch_size=1),
    "cslb-larger-than-rank": sketched(CSLB, naive.CSLB, sketch_size=17),
    "cslb-larger-than-arms": sketched(CSLB, naive.CSLB, sketch_size=1000),
    "multiscale": sketched(MultiscaleCSLB, naive.NaiveMultiscale, sketch_size=4, budget=400),
    "multiscale-logdet": sketched(MultiscaleCSLB, naive.NaiveMultiscale, sketch_size=4, radius="logdet"),
    "multiscale-larger-than-arms": sketched(MultiscaleCSLB, naive.NaiveMultiscale, sketch_size=1000),
    "dbs": dyadic("closed", False),
    "dbs-compensated": dyadic("closed", True),
    "dbs-logdet": dyadic("logdet", False),
    "dbs-logdet-compensated": dyadic("logdet", True),
}
for cls, twin in ((SOFUL, naive.SOFUL), (CBSCFD, naive.CBSCFD)):
    for radius in ("closed", "logdet"):
        for shrink in ("buffered", "every-round"):
            name = f"{cls.__name__.lower()}-{radius}-{shrink}"
            PAIRS[name] = sketched(cls, twin, sketch_size=4, radius=radius, shrink=shrink)

ARMS = {
    "general": lambda: correlated_arms(n_arms=N, dim=D, seed=4),
    "low-rank": lambda: subspace_arms(n_arms=N, dim=D, n_subspaces=2, rank=3, shuffle=True, seed=4),
}


def assert_same(fast, slow, tolerance=1e-9):
    mine, theirs = fast.bounds(), slow.bounds()
    known = np.isfinite(theirs)
    assert np.array_equal(known, np.isfinite(mine))
    assert np.allclose(mine[known], theirs[known], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("name", PAIRS)
def test_same_choices_and_bounds_as_the_twin(name, arms):
    X = ARMS[arms]()
    fast, slow = PAIRS[name](X)
    means, generator = X @ uniform_parameter(D, seed=4), np.random.default_rng(9)
    for t in range(rounds(400, 120)):
        assert fast.select() == slow.select(), f"round {t + 1}"
        # Every third reward is for another arm than the one chosen: late and out of order.
        arm = fast.select() if t % 3 else int(generator.integers(N))
        reward = float(means[arm] + 0.7 * generator.normal())
        fast.update(arm, reward)
        slow.update(arm, reward)
        if t % 10 == 0:
            assert_same(fast, slow)
    assert_same(fast, slow)


def learned(fast, slow, X):
    means, generator = X @ uniform_parameter(D, seed=4), np.random.default_rng(9)
    for _ in range(90):
        arm = int(generator.integers(N - 3))  # three arms have no rewards
        reward = float(means[arm] + 0.7 * generator.normal())
        fast.update(arm, reward)
        slow.update(arm, reward)
    return fast, slow


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("name", [name for name in PAIRS if not name.startswith("multiscale")])
def test_estimates_are_the_means_of_the_twin(name, arms):
    X = ARMS[arms]()
    fast, slow = learned(*PAIRS[name](X), X)
    np.testing.assert_allclose(fast.estimates(), np.minimum(slow.means(), slow.bounds()), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("arms", ARMS)
@pytest.mark.parametrize("radius", ["mixture", "logdet"])
def test_multiscale_estimates_are_those_of_the_narrower_scale(radius, arms):
    X = ARMS[arms]()
    options = {"sketch_size": 4, "radius": radius, "budget": 0, **COMMON}
    fast, slow = learned(MultiscaleCSLB(X, **options), naive.NaiveMultiscale(X, **options), X)
    for _ in range(300):  # of one arm, whose own mean is then known best
        fast.update(0, 0.5)
        slow.update(0, 0.5)
    means, widths = np.stack([slow.direction(), slow.cluster()], axis=1)
    expected = np.where(widths[0] <= widths[1], *means)
    np.testing.assert_allclose(fast.estimates(), np.minimum(expected, slow.bounds()), rtol=1e-9, atol=1e-9)
    assert (widths[0] < widths[1]).any() and (widths[1] < widths[0]).any(), "both scales must have their turn"


def test_multiscale_estimates_with_the_space_are_means_of_one_of_the_scales():
    X = ARMS["general"]()
    policy = MultiscaleCSLB(X, sketch_size=2, **COMMON)
    learned(policy, UCB1(X), X)
    scales, bounds = policy.scales(), policy.bounds()
    assert np.isfinite(scales["space"]).any()
    assert (policy.estimates() <= bounds).all() and np.unique(policy.estimates()).size > 2


@pytest.mark.parametrize("normalize", ["max", "unit"])
@pytest.mark.parametrize("dataset", PAPER)
def test_cslb_and_its_twins_choose_the_same_arm_in_every_round(dataset, normalize):
    l = PAPER[dataset][2]
    seed = 10 * dataset + (normalize == "unit")
    env = paper_environment(dataset, normalize, seed)
    noise = env.draw_noise(np.random.default_rng(seed), rounds(20_000, 150))
    coordinates, sketch = CSLB(env.arms, sketch_size=l), CSLB(env.arms, sketch_size=l, engine="sketch")
    literal = naive.CSLB(env.arms, sketch_size=l)
    for t, value in enumerate(noise):
        arm = coordinates.select()
        assert arm == sketch.select() == literal.select(), f"round {t + 1}"
        reward = float(env.means[arm] + value)
        for policy in (coordinates, sketch, literal):
            policy.update(arm, reward)


@pytest.mark.parametrize("radius", ["paper", "logdet"])
@pytest.mark.parametrize("dataset", PAPER)
def test_both_engines_agree_for_many_seeds(dataset, radius):
    l = PAPER[dataset][2]
    for seed, normalize in [(101, "max"), (102, "unit"), (103, "max")]:
        env = paper_environment(dataset, normalize, seed)
        policies = [CSLB(env.arms, sketch_size=l, radius=radius, engine=e) for e in ("coordinates", "sketch")]
        noise = env.draw_noise(np.random.default_rng(seed), rounds(20_000, 60))
        regrets = [policy.play_rounds(env.means, env.gaps, noise) for policy in policies]
        assert regrets[0] == regrets[1]
        assert np.array_equal(policies[0].counts, policies[1].counts)
        assert np.allclose(policies[0].bounds(), policies[1].bounds(), rtol=1e-9)


def paper_environment(dataset, normalize, seed):
    n, d, _, group = PAPER[dataset]
    arms = correlated_arms(n_arms=n, dim=d, group_size=group, normalize=normalize, seed=seed)
    return LinearEnvironment(arms, uniform_parameter(d, seed=seed))


@pytest.mark.parametrize("make", [CSLB], ids=["cslb"])
@pytest.mark.parametrize("radius", ["paper", "logdet"])
def test_the_compiled_loop_equals_single_updates(make, radius):
    env = paper_environment(4, "max", 5)
    noise = env.draw_noise(np.random.default_rng(5), rounds(5_000, 100))
    inside, single = (make(env.arms, sketch_size=5, radius=radius) for _ in range(2))
    regret = 0.0
    for value in noise.tolist():
        arm = single.select()
        regret += env.gaps[arm]
        single.update(arm, float(env.means[arm]) + value)
    assert inside.play_rounds(env.means, env.gaps, noise) == regret
    assert np.array_equal(inside.bounds(), single.bounds())


def test_update_and_play_book_the_same():
    env = paper_environment(1, "max", 6)
    noise = env.draw_noise(np.random.default_rng(6), rounds(3_000, 60))
    for make in (
        lambda X: CSLB(X, sketch_size=5),
        lambda X: MultiscaleCSLB(X, sketch_size=5, budget=300),
        OFUL,
        lambda X: SOFUL(X, sketch_size=5),
        lambda X: LinTS(X, seed=1),
        UCB1,
    ):
        inside, outside = make(env.arms), make(env.arms)
        inside.play_rounds(env.means, env.gaps, noise)
        for value in noise.tolist():
            arm = outside.select()
            outside.update(arm, float(env.means[arm]) + value)
        assert np.array_equal(inside.bounds(), outside.bounds())


@pytest.mark.parametrize("shape", ["full-rank", "low-rank"])
@pytest.mark.parametrize("make", [SOFUL, CBSCFD, DBSLinUCB], ids=lambda c: c.__name__)
def test_a_sketch_as_large_as_the_rank_chooses_as_oful(make, shape):
    rank = 7 if shape == "full-rank" else 3
    X = (
        correlated_arms(n_arms=31, dim=7, seed=8)
        if shape == "full-rank"
        else subspace_arms(n_arms=31, dim=13, n_subspaces=1, rank=3, seed=8)
    )
    dim = X.shape[1]
    twin = naive.OFUL(X, **COMMON)

    def oful_radius(n, logdet):
        information = dim * np.log(1 + n * twin.L**2 / (0.6 * dim))
        return float(0.7 * np.sqrt(information + 2 * np.log(1 / 0.05)) + np.sqrt(0.6) * 1.3)

    exact = OFUL(X, **COMMON)
    sketch = make(X, sketch_size=rank, radius=oful_radius, **COMMON)
    env = LinearEnvironment(X, uniform_parameter(dim, seed=8), noise=0.7)
    for value in env.draw_noise(np.random.default_rng(8), rounds(4_000, 150)).tolist():
        arm = exact.select()
        assert arm == sketch.select()
        reward = float(env.means[arm]) + value
        exact.update(arm, reward)
        sketch.update(arm, reward)
    assert sketch.shrunk_mass < 1e-9
    assert np.allclose(exact.bounds(), sketch.bounds(), rtol=1e-9)


@pytest.mark.parametrize("compensated", [False, True])
def test_dyadic_blocks_keep_their_word(compensated):
    arms = heavy_tailed_arms(n_arms=61, dim=24, seed=3)
    env = LinearEnvironment(arms, uniform_parameter(24, seed=3))
    for error in (0.3, 2.0, 50.0):
        policy = DBSLinUCB(arms, sketch_size=3, error=error, compensated=compensated)
        for _ in range(5):
            policy.play_rounds(env.means, env.gaps, env.draw_noise(np.random.default_rng(3), rounds(2_000, 100)))
            assert policy.shrunk_mass <= error
    assert policy.n_blocks >= 1


@pytest.mark.parametrize("switching", [None, 0.6])
def test_oful_with_large_arm_sets_and_refits_follows_the_twin(switching):
    X = np.random.default_rng(2).normal(size=(37, 6)) * 30.0
    fast, slow = (cls(X, ridge=0.01, theta_norm=2.5, switching=switching) for cls in (OFUL, naive.OFUL))
    generator = np.random.default_rng(3)
    for _ in range(rounds(300, 80)):
        arm = fast.select()
        assert arm == slow.select()
        reward = float(X[arm].sum() + generator.normal())
        fast.update(arm, reward)
        slow.update(arm, reward)
    assert_same(fast, slow, 1e-7)
    assert fast.state.level["logdet"][0] > 40  # steps beyond the limit were refitted, not applied


def test_lints_scale_and_bounds_follow_the_twin():
    X = ARMS["general"]()
    for options in ({}, {"horizon": 900}, {"radius": "logdet"}):
        fast, slow = LinTS(X, seed=1, **options, **COMMON), naive.LinTS(X, **options, **COMMON)
        generator = np.random.default_rng(5)
        for arm in generator.integers(0, N, 60):
            reward = float(generator.normal())
            fast.update(int(arm), reward)
            slow.update(int(arm), reward)
        assert_same(fast, slow)
        # The same draw with a free scale is the theory's when that scale is the theory's.
        free = LinTS(X, seed=1, scale=slow.scale_value(), **COMMON)
        free.state.key[:] = fast.state.key
        for arm, count, total in zip(range(N), fast.counts, fast.state.stats[2] + fast.state.stats[3], strict=True):
            for _ in range(count):
                free.update(arm, total / count)
        assert free.select() == fast.select()


CONTEXTUAL = {
    "oful": (lambda: OFUL.contextual(dim=D, **COMMON), lambda X: OFUL(X, **COMMON)),
    "oful-logdet": (
        lambda: OFUL.contextual(dim=D, radius="logdet", **COMMON),
        lambda X: OFUL(X, radius="logdet", **COMMON),
    ),
    "linucb": (lambda: LinUCB.contextual(dim=D, alpha=0.4, ridge=0.6), lambda X: LinUCB(X, alpha=0.4, ridge=0.6)),
    "cbrap": (
        lambda: CBRAP.contextual(dim=D, sketch_size=4, alpha=0.4, ridge=0.6, seed=7),
        lambda X: CBRAP(X, sketch_size=4, alpha=0.4, ridge=0.6, seed=7),
    ),
    "soful": (
        lambda: SOFUL.contextual(dim=D, sketch_size=4, **COMMON),
        lambda X: SOFUL(X, sketch_size=4, arm_norm=1.0, **COMMON),
    ),
    "cbscfd": (
        lambda: CBSCFD.contextual(dim=D, sketch_size=4, radius="logdet", **COMMON),
        lambda X: CBSCFD(X, sketch_size=4, radius="logdet", **COMMON),
    ),
    "dbslinucb": (
        lambda: DBSLinUCB.contextual(dim=D, sketch_size=2, error=0.9, **COMMON),
        lambda X: DBSLinUCB(X, sketch_size=2, error=0.9, arm_norm=1.0, **COMMON),
    ),
    "soful-ts": (
        lambda: SOFUL.contextual(dim=D, sketch_size=4, exploration="ts", seed=2, **COMMON),
        lambda X: SOFUL(X, sketch_size=4, exploration="ts", seed=2, arm_norm=1.0, **COMMON),
    ),
}


@pytest.mark.parametrize("name", CONTEXTUAL)
def test_the_contextual_form_on_constant_contexts_is_the_fixed_one(name):
    X = ARMS["general"]()
    contextual, fixed = (make for make in CONTEXTUAL[name])
    contextual, fixed = contextual(), fixed(X)
    generator = np.random.default_rng(5)
    for _ in range(rounds(250, 60)):
        arm = fixed.select()
        assert contextual.select(X) == arm
        reward = float(generator.normal())
        fixed.update(arm, reward)
        contextual.update(X[arm], reward)
    assert np.allclose(contextual.bounds(X), fixed.bounds(), rtol=1e-9)


def test_contexts_beyond_arm_norm_are_refused_only_where_the_radius_needs_it():
    closed, logdet = OFUL.contextual(dim=3), OFUL.contextual(dim=3, radius="logdet")
    long = 2.0 * np.eye(3)
    with pytest.raises(ValueError, match="contexts must have norm <= arm_norm = 1, got 2"):
        closed.select(long)
    with pytest.raises(ValueError, match="context must have norm <= arm_norm = 1, got 2"):
        closed.update(long[0], 1.0)
    assert logdet.select(long) == 0


def test_partition_of_the_paper_sets():
    sizes = {}
    for dataset, (n, d, l, group) in PAPER.items():
        arms = correlated_arms(n_arms=n, dim=d, group_size=group, seed=1)
        partition = Partition.first_fit(arms, sketch_size=l)
        assert np.array_equal(partition.labels, naive.first_fit(arms, l))
        sizes[dataset] = partition.n_clusters
    # ceil(N/l) in general position; groups of parallel arms count once.
    assert sizes == {1: 12, 2: 10, 3: 5, 4: 4}
