"""What advice finds about constructed arms: groups, spectrum, clusters, bounds by their formulas, every warning."""

import math

import numpy as np
import pytest
from conftest import JIT
from made_clock import GENERAL, RNG, ask, made_up

from sketchbandits import MultiscaleCSLB, Partition, simulate
from sketchbandits.confidence import theorem_bound
from sketchbandits.environments import LinearEnvironment, correlated_arms, subspace_arms
from sketchbandits.lab.advice import bounds, clusters, timing
from sketchbandits.lab.advice.groups import copies, nearby
from sketchbandits.lab.advice.spectrum import spectrum


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    monkeypatch.setattr(timing, "round_microseconds", made_up)


# ---- groups


def pairs(labels):
    return {(i, j) for i in range(len(labels)) for j in range(i) if labels[i] == labels[j]}


def test_copies_are_those_that_are_equal_and_no_others():
    arms = RNG.normal(size=(40, 5))
    arms[[3, 30]] = arms[11]
    arms[5] = arms[6] * (1 + 1e-15)
    arms[7], arms[8] = 0.0, -0.0
    equal = {(i, j) for i in range(40) for j in range(i) if (arms[i] == arms[j]).all()}
    assert pairs(copies(arms)) == equal == {(11, 3), (30, 3), (30, 11), (8, 7)}


def test_rows_within_the_tolerance_are_joined_and_rows_beyond_it_are_not():
    arms = RNG.normal(size=(50, 12))
    step = RNG.normal(size=12)
    step /= np.linalg.norm(step)
    arms[1], arms[2] = arms[0] + 0.9e-4 * step, arms[0] + 1.8e-4 * step  # a chain of two steps
    arms[20] = arms[40] + 1e-2 * step
    assert pairs(nearby(arms, 1e-4)) == {(1, 0), (2, 0), (2, 1)}


def test_rays_ignore_sign_and_length_and_leave_zero_arms_out():
    arms = RNG.normal(size=(30, 4))
    arms[4], arms[9], arms[12] = -3 * arms[2], 1e-6 * arms[2], 0.0
    arms[13] = 0.0
    labels = nearby(arms, 1e-8, rays=True)
    assert labels[12] == labels[13] == -1
    labels[[12, 13]] = [-1, -2]
    assert pairs(labels) == {(4, 2), (9, 2), (9, 4)}


@pytest.mark.parametrize("n", [1, 2, 3_000])
def test_all_arms_on_one_ray_need_no_more_memory_than_many(n):
    arms = np.outer(RNG.uniform(1, 2, n), RNG.normal(size=3))
    assert len(set(nearby(arms, 1e-8, rays=True))) == 1


def test_groups_that_lie_between_each_other_are_told_apart():
    # Two groups whose members alternate along every single direction.
    base = np.zeros((20, 2))
    base[:, 0] = 1e-9 * np.arange(20)
    base[::2, 1] = 1.0
    labels = nearby(base, 1e-6)
    assert len(set(labels)) == 2 and labels[0] != labels[1]


# ---- the spectrum


def test_the_spectrum_is_that_of_an_svd():
    arms = RNG.normal(size=(5_000, 7)) @ np.diag([1, 1, 0.5, 0.1, 1e-3, 1e-6, 0]) + 0.0
    found = spectrum(arms, 1e-8, np.random.default_rng(0), lambda share: None)
    assert found.values == pytest.approx(np.linalg.svd(arms, compute_uv=False), rel=1e-9, abs=1e-9)
    assert found.rank == 6 and found.rows == 5_000
    energy = found.values**2 / (found.values**2).sum()
    for share in (0.5, 0.9, 0.99):
        assert energy[: found.dims_for(share)].sum() >= share > energy[: found.dims_for(share) - 1].sum()
    assert found.tail(3) == pytest.approx(energy[3:].sum())


def test_what_a_sketch_shrinks_is_the_least_over_its_split():
    found = spectrum(GENERAL, 1e-8, np.random.default_rng(0), lambda share: None)
    lam = found.values**2 / len(GENERAL)
    for size in (1, 3, 5):
        assert found.shrunk(size) == pytest.approx(min(lam[k:].sum() / (size - k) for k in range(size)))
    assert found.shrunk(6) == found.shrunk(9) == 0.0


def test_many_dimensions_are_sampled_and_said_to_be(monkeypatch):
    monkeypatch.setattr("sketchbandits.lab.advice.spectrum.MOST_WORK", 1.0)
    monkeypatch.setattr("sketchbandits.lab.advice.spectrum.FEWEST_ROWS", 12)
    advice = ask(GENERAL, sketch_sizes=[2])
    assert advice.facts.spectrum.rows == 12
    assert "The spectrum is that of 12 arms, drawn at random." in advice.notes


# ---- clusters


def test_clusters_of_shuffled_subspaces():
    arms = subspace_arms(n_arms=60, dim=11, n_subspaces=3, rank=3, shuffle=True, seed=1)
    advice = ask(arms)
    by_size = {row.sketch_size: row for row in advice.clusters}
    assert list(by_size) == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for size, row in by_size.items():
        assert row.clusters == Partition.first_fit(arms, sketch_size=size).n_clusters
        assert row.score == size**2 * min(row.clusters, row.subspaces or row.clusters)
    assert (by_size[1].clusters, by_size[9].clusters) == (60, 1)
    three = by_size[3]
    assert (three.subspaces, three.score, three.largest) == (3, 27, 20)
    assert (three.total_rank, three.deficiency) == (9, 0)
    assert three.clusters > 6
    assert advice.sketch_size == 3
    assert any("hides their subspaces: for l=3 first-fit makes" in words for words in advice.warnings)


def test_clusters_in_general_position():
    rows = {row.sketch_size: row for row in ask(GENERAL).clusters}
    for size in (2, 4, 5):
        count = math.ceil(23 / size)
        assert (rows[size].clusters, rows[size].deficiency) == (count, size * count - 23)


def test_groups_of_parallel_arms():
    arms = correlated_arms(n_arms=40, dim=9, group_size=8, seed=3)
    advice = ask(arms)
    assert advice.facts.n_rays == advice.facts.rank == 5
    one = advice.clusters[0]
    assert (one.sketch_size, one.clusters, one.largest) == (1, 5, 8)
    assert advice.sketch_size == 1
    assert "  rays      5, the largest of 8 arms" in advice.text().splitlines()


def test_too_many_arms_are_sampled_and_the_estimate_is_near(monkeypatch):
    monkeypatch.setattr(clusters, "MOST_WORK", 2e6 if JIT else 3e5)
    rng = np.random.default_rng(3)
    few = np.repeat(rng.normal(size=(50, 6)), 20 if JIT else 8, axis=0)
    general = rng.normal(size=(1_000 if JIT else 400, 6))
    for arms, expected in ((few, 50), (general, len(general))):
        first, second = ask(arms, sketch_sizes=[1, 2]).clusters
        assert first.sampled == 0 and first.clusters == expected  # rays are never sampled
        assert 0 < second.sampled < len(arms)
        assert second.clusters == expected // 2
        assert 0 <= second.deficiency <= 2
    advice = ask(general, sketch_sizes=[2])
    assert any(note.startswith("Clusters marked ~ are estimates") for note in advice.notes)
    assert f"~{second.clusters:,}" in advice.text()


@pytest.mark.parametrize("rank", [1, 2, 13, 100, 3_000])
def test_sizes_go_up_to_the_rank(rank):
    sizes = clusters.sizes_to_try(rank)
    assert sizes[-1] == rank and sizes[0] == 1 and list(sizes) == sorted(set(sizes))
    assert len(sizes) <= 40 and {2**k for k in range(12) if 2**k <= rank} <= set(sizes)


# ---- bounds


def case_of(arms, **options):
    return ask(arms, **options).case


def test_the_bound_of_oful_is_its_formula():
    case = case_of(GENERAL, ridge=3.0, noise=0.5, theta_norm=2.0, delta=0.1)
    L = np.linalg.norm(GENERAL, axis=1).max()
    information = 6 * np.log(1 + 5_000 * L**2 / (6 * 3.0))
    beta = 0.5 * np.sqrt(information + 2 * np.log(10)) + np.sqrt(3.0) * 2.0
    assert bounds.oful(case) == pytest.approx(2 * beta * np.sqrt(2 * 5_000 * information))
    assert bounds.rarely_switching(case, 1.0) == pytest.approx(np.sqrt(2) * bounds.oful(case))
    assert case.trivial == pytest.approx(2 * 2.0 * L * 5_000)


def test_the_bound_of_cslb_is_the_papers_theorem():
    advice = ask(GENERAL, ridge=4.0, sketch_sizes=[3])
    case, (row,) = advice.case, advice.clusters
    L = case.arm_norm
    beta = np.sqrt(3 * np.log(1 + 5_000 * L**2 / (3 * 4.0)) + 2 * np.log(8 / 0.01)) + 2.0
    expected = theorem_bound(5_000, sketch_size=3, n_clusters=8, radius=beta, arm_norm=L, ridge=4.0)
    assert bounds.cslb_paper(case, row) == pytest.approx(expected)
    assert bounds.cslb_logdet(case, row) < expected


def test_a_small_ridge_pays_in_the_potential():
    small, large = case_of(GENERAL, ridge=0.01), case_of(GENERAL, ridge=10.0)
    q = small.arm_norm**2 / 0.01
    assert small.potential == pytest.approx(q / np.log1p(q)) and large.potential == 2.0
    # The elliptical potential itself, on one arm pulled again and again.
    widths = [small.arm_norm**2 / (0.01 + k * small.arm_norm**2) for k in range(50)]
    assert sum(widths) <= small.potential * np.log1p(50 * q)
    assert sum(widths) > 0.5 * small.potential * np.log1p(50 * q)


def naive_rays(arms, T, S, R, delta):
    """The bound of rays, integrated numerically: sum over rays of ``integral of min(S, h)^2``, by Cauchy-Schwarz."""
    L, n = np.linalg.norm(arms, axis=1).max(), len(arms)
    I = np.linspace(0, T / n * L**2, 400_001)[1:]
    rho, c = 3 * L**2, np.log((n + 1) / (0.5 * 0.9 * delta))
    h = R * np.sqrt((I + rho) * (np.log(1 + T * L**2 / rho) + 2 * c)) / I
    return 2 * np.sqrt(T * n * (S**2 * L**2 + (np.minimum(S, h) ** 2).mean() * I[-1]))


@pytest.mark.parametrize("model", [{}, {"noise": 0.25, "theta_norm": 3.0, "delta": 0.1}, {"theta_norm": 1e-3}])
def test_the_bound_of_rays_is_near_the_integral_that_it_bounds(model):
    for rounds in (5_000, 10**6):
        case = case_of(GENERAL, rounds=rounds, **model)
        given = {"noise": 1.0, "theta_norm": 1.0, "delta": 0.01, **model}
        exact = naive_rays(GENERAL, rounds, given["theta_norm"], given["noise"], given["delta"])
        found = bounds.directions(case)
        assert exact <= found and (found < 1.25 * exact or found > case.trivial)


def test_what_a_ray_can_cost_is_bounded_whatever_is_played():
    rng = np.random.default_rng(4)
    S, R = 1.5, 0.7
    for _ in range(30):
        lengths = rng.uniform(0.02, 1.0, rng.integers(1, 6)) ** rng.uniform(0.1, 2.0)
        arms = np.outer(lengths, np.ones(1))
        case = case_of(arms, rounds=400, noise=R, theta_norm=S)
        played = (
            lengths[rng.integers(0, len(lengths), 400)] if rng.uniform() < 0.7 else np.sort(lengths).repeat(400)[:400]
        )
        rho, c, I, cost = 3 * lengths[0] ** 2, np.log(2 / (0.5 * 0.9 * 0.01)), 0.0, 0.0
        for s in played:
            h = R * np.sqrt((I + rho) * (np.log(1 + I / rho) + 2 * c)) / I if I else np.inf
            cost += 2 * s * min(S, h)
            I += s**2
        assert cost <= bounds.directions(case)


def test_the_bounds_of_clusters_and_of_the_space_follow_from_what_the_policy_keeps():
    arms = np.random.default_rng(3).normal(size=(40, 5)) @ np.diag([1, 1, 1, 0.02, 0.005]) / 3
    model = {"noise": 0.5, "theta_norm": 2.0, "delta": 0.05}
    advice = ask(arms, sketch_sizes=[2, 4], **model)
    case, T, L = advice.case, 5_000, np.linalg.norm(arms, axis=1).max()
    for row in advice.clusters:
        for budget in ("auto", 0):
            parts = Partition.first_fit(arms, sketch_size=row.sketch_size)
            policy = MultiscaleCSLB(arms, partition=parts, budget=budget, **model)
            ridge = float(policy.state.control["radius"]["ridge"][0])
            K, total = parts.n_clusters, int(parts.ranks.sum())
            information = row.sketch_size * np.log(1 + T * L**2 / (row.sketch_size * ridge))
            beta2 = 0.25 * (information + 2 * np.log((K + 1) / (0.1 * 0.9 * 0.05))) + ridge * 4
            potential = T * total * np.log(1 + T * L**2 / (total * ridge))
            factor = max(2, L**2 / ridge / np.log1p(L**2 / ridge))
            assert bounds.clusters(case, row, budget == "auto") == pytest.approx(
                2 * np.sqrt(beta2 * factor * potential)
            )
            assert row.fewest == K
            assert policy.state.clusters["share"] == pytest.approx(np.log((K + 1) / (0.1 * 0.9 * 0.05)))
    policy = MultiscaleCSLB(arms, **model)
    space = policy.state.space[0]
    assert case.space_dims == policy.state.features.shape[1] == 5
    ridge, news = float(space["radius"]["ridge"]), float(space["least_news"])
    information = 5 * np.log(1 + T * L**2 / (5 * ridge))
    part = 0.75 if space["most_ridges"] > 1 else 1.0
    beta2 = 0.25 * (information + 2 * np.log(1 / (part * 0.4 * 0.05))) + ridge * 4
    assert space["radius"]["log_share"] == pytest.approx(np.log(1 / (part * 0.4 * 0.05)))
    factor = max(2, L**2 / ridge / np.log1p(L**2 / ridge))
    assert bounds.space(case) == pytest.approx(2 * np.sqrt(np.exp(news) * beta2 * factor * T * information))


def test_multiscale_is_the_least_of_its_scales_and_the_space_counts_where_it_is_never_short():
    arms = np.random.default_rng(1).normal(size=(400, 4)) / 3
    advice = ask(arms, sketch_sizes=[2])
    case, (row,) = advice.case, advice.clusters
    enough = bounds.enough_operations(case, row)
    assert enough == 4.5 * 16 + 400 * (16 + row.largest + row.fewest)
    rays, parts, space = bounds.directions(case), bounds.clusters(case, row), bounds.space(case)
    assert space < min(rays, parts)
    ties = 2e-9 * case.arm_norm * 5_000
    assert bounds.multiscale(case, row, enough) == pytest.approx(space + ties, rel=1e-12)
    assert bounds.multiscale(case, row, enough - 1) == pytest.approx(min(rays, parts) + ties, rel=1e-12)


def test_a_space_that_is_never_short_is_up_to_date_in_every_round():
    arms = np.random.default_rng(1).normal(size=(150, 3)) / 3
    case, (row,) = (advice := ask(arms, sketch_sizes=[2])).case, advice.clusters
    enough = bounds.enough_operations(case, row)
    policy = MultiscaleCSLB(arms, sketch_size=2, budget=enough, explore="optimism")
    rng = np.random.default_rng(0)
    for _ in range(600):
        arm = policy.select()
        state, space = policy.state, policy.state.space[0]
        assert state.waiting["stamp"][arm] == space["version"] and space["at"] == space["in_batch"]
        assert space["news"] < space["least_news"]
        policy.update(arm, float(arms[arm] @ [0.5, -0.5, 0.5] + rng.normal()))
    assert policy.state.space["version"][0] > 10


def test_there_is_no_space_without_directions_or_with_too_many(monkeypatch):
    assert case_of(np.zeros((3, 2)), sketch_sizes=[1]).space_dims == 0
    monkeypatch.setattr(bounds, "MOST_DIMENSIONS", 5)
    case = case_of(GENERAL)
    assert case.space_dims == 0 and bounds.space(case) == math.inf and case.effective_rank() == 6.0


def test_bounds_of_multiscale_grow_with_rounds_noise_norms_and_certainty():
    steps = {
        "rounds": (100, 5_000, 10**6),
        "noise": (0.1, 1.0, 5.0),
        "theta_norm": (0.2, 1.0, 7.0),
        "delta": (0.3, 0.01),
    }
    for name, values in steps.items():
        found = []
        for value in values:
            advice = ask(GENERAL, sketch_sizes=[3], **{name: value})
            case, (row,) = advice.case, advice.clusters
            found.append([bounds.directions(case), bounds.clusters(case, row), bounds.space(case)])
        assert (np.diff(found, axis=0) > 0).all(), name
    few, many = (case_of(np.random.default_rng(2).normal(size=(n, 6)) / 3) for n in (20, 80))
    assert bounds.directions(few) < bounds.directions(many)
    stretched = GENERAL * np.where(np.arange(23) % 2, 1.0, 0.1)[:, None]
    stretched[1::2][:11] = 10 * stretched[::2][:11]  # pairs on one ray, one ten times as long
    assert case_of(stretched).ray_spread == pytest.approx(np.log(10)) and case_of(GENERAL).ray_spread == 0.0


@pytest.mark.parametrize("explore", ["optimism", "randomised"])
@pytest.mark.parametrize("seed", range(3))
def test_regret_stays_below_its_bound(explore, seed):
    rng = np.random.default_rng(seed)
    arms = rng.normal(size=(12, 3))
    arms /= np.linalg.norm(arms, axis=1)[:, None]
    theta = rng.normal(size=3)
    env = LinearEnvironment(arms, theta / np.linalg.norm(theta), noise=0.1)
    advice = ask(arms, rounds=3_000, noise=0.1)
    found = next(p for p in advice.finalists if p.name == "MultiscaleCSLB, optimism")
    policies = {"it": MultiscaleCSLB(arms, **{**dict(found.options), "explore": explore})}
    regret = simulate(env, policies, rounds=3_000, runs=3, seed=seed, progress=False).final_regret["it"]
    assert found.bound < 0.5 * advice.case.trivial  # it says something
    assert 0.0 < np.max(regret) < found.bound


def test_ucb1_and_lints_follow_their_theorems():
    case = case_of(GENERAL, noise=2.0)
    expected = 4 * np.sqrt(32 * 23 * 5_000 * np.log(5_000)) + (1 + np.pi**2 / 3) * 2 * case.arm_norm * 23
    assert bounds.ucb1(case) == pytest.approx(expected)
    assert bounds.lints(case) > 4 / bounds.OPTIMISTIC * bounds.oful(case) / 2


def test_sketches_that_hold_the_rank_lose_nothing_and_others_do():
    case = case_of(GENERAL)
    assert bounds.soful(case, 6) == bounds.cbscfd(case, 6) == bounds.dyadic(case, 6)
    assert bounds.soful(case, 6) == pytest.approx(bounds.oful(case))  # d = rank: the same radius
    assert bounds.soful(case, 2) > bounds.cbscfd(case, 2) > bounds.oful(case)
    assert bounds.soful(case, 2) > bounds.soful(case, 4)


# ---- warnings


def arms_with(change):
    arms = np.random.default_rng(5).normal(size=(19, 4)) / 3
    return change(arms)


def with_rows(arms, **rows):
    for name, value in rows.items():
        arms[int(name[1:])] = value
    return arms


def with_column(arms, values):
    return np.column_stack([arms, values])


WARNINGS = {
    "1 arm is zero (7)": lambda a: with_rows(a, r7=0.0),
    "1 arm repeats another exactly (arms 2, 5 are the same)": lambda a: with_rows(a, r5=a[2]),
    "2 arms repeat others exactly": lambda a: with_rows(a, r5=a[2], r6=a[2]),
    "1 arm differs from another by less than 1e-06": lambda a: with_rows(a, r5=a[2] + 1e-9),
    "Norms are wildly different, from": lambda a: with_rows(a, r5=1e-4 * a[5]),
    "is large compared with the ridge, 1:": lambda a: 10 * a,
    "is small compared with the ridge, 1:": lambda a: a / 100,
    "Column 4 is zero": lambda a: with_column(a, np.zeros(19)),
    "Column 4 is constant": lambda a: with_column(a, np.full(19, 0.5)),
    "Column 4 is almost constant": lambda a: with_column(a, 1 + 1e-3 * a[:, 0] * a[:, 1]),
    "Columns have sizes from": lambda a: with_column(a, 1e-5 * a[:, 0] * a[:, 1]),
    "There are more features, 30, than arms, 19": lambda a: np.random.default_rng(2).normal(size=(19, 30)) / 9,
    "The features depend on each other: 5 columns span 4 dimensions": lambda a: with_column(a, a[:, 0] + a[:, 1]),
    "The arms are nearly of low rank: 99 % of the energy is in 1 of 4": lambda a: a @ np.diag([3, 0.1, 0.1, 0.1]),
}


@pytest.mark.parametrize("words", WARNINGS)
def test_every_warning_is_raised_by_its_cause(words):
    found = ask(arms_with(WARNINGS[words]), sketch_sizes=[2]).warnings
    assert any(words in sentence for sentence in found), found
    assert all(sentence[0].isupper() or sentence[0].isdigit() for sentence in found)
    assert all(sentence.endswith(".") for sentence in found)


def test_ordinary_arms_bring_no_warning():
    assert ask(arms_with(lambda a: a), rounds=10**7).warnings == []


def test_warnings_about_the_horizon():
    assert any("fewer rounds, 20, than directions, 23" in words for words in ask(GENERAL, rounds=20).warnings)
    assert any("every bound is vacuous" in words for words in ask(GENERAL, rounds=20).warnings)
    assert "no less than the trivial" in ask(GENERAL, rounds=20).sentence


def test_names_of_arms_and_columns_are_used():
    arms = with_column(with_rows(arms_with(lambda a: a), r7=0.0), np.zeros(19))
    advice = ask(arms, features=list("abcde"), ids=[f"item {i}" for i in range(19)], sketch_sizes=[2])
    assert "1 arm is zero ('item 7'): nothing can be learned from that." in advice.warnings
    assert any(words.startswith("Column 'e' is zero") for words in advice.warnings)
