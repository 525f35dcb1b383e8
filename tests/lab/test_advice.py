"""Advice: facts about constructed arms, every warning, bounds against written-out formulas, recommendations."""

import json
import math

import numpy as np
import polars
import pytest
from conftest import JIT

from sketchbandits import MultiscaleCSLB, Partition, advise
from sketchbandits.confidence import closed_information, theorem_bound
from sketchbandits.environments import correlated_arms, subspace_arms
from sketchbandits.lab.advice import bounds, clusters, timing
from sketchbandits.lab.advice.candidates import DEFAULT_BUDGET, multiscale
from sketchbandits.lab.advice.groups import copies, nearby
from sketchbandits.lab.advice.recommend import SAME, TIE, best_of, recommend
from sketchbandits.lab.advice.report import advice_files
from sketchbandits.lab.advice.spectrum import spectrum

CALL, OPERATION = 2.5, 1e-3  # microseconds of the made-up clock
RNG = np.random.default_rng(7)
GENERAL = RNG.normal(size=(23, 6)) / 3


def made_up(policy, means, noise):
    """A clock that is the same every time: the calls, then arms and features, and the budget of operations."""
    budget = policy.settings.get("budget", 0)
    return CALL + OPERATION * (
        budget + policy.n_arms * policy.dim * (2 if type(policy).__name__ == "LinTS" else 1) / 10
    )


@pytest.fixture(autouse=True)
def clock(request, monkeypatch):
    if "real_clock" not in request.fixturenames:
        monkeypatch.setattr(timing, "round_microseconds", made_up)


@pytest.fixture
def real_clock():
    """Requested by a test that measures."""


def ask(arms, **options):
    return advise(arms, **{"rounds": 5_000, "progress": False, **options})


def finalist(advice, policy):
    return next(found for found in advice.finalists if found.name == policy)


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
    assert list(by_size) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 16]  # and the default of the class
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


def test_multiscale_is_the_least_of_its_scales_and_a_stale_space_costs():
    advice = ask(GENERAL, sketch_sizes=[2])
    case, (row,) = advice.case, advice.clusters
    fresh, stale, never = (bounds.space(case, interval) for interval in (1.0, 100.0, math.inf))
    assert fresh < stale < never == math.inf
    assert bounds.multiscale(case, row, 1.0) == min(bounds.directions(case), bounds.clusters(case, row), fresh)
    own = case.scale(1)
    beta2 = closed_information(5_000.0, 1.0, own.rate) + 2 * np.log(24 / (0.9 * 0.9 * 0.01)) + own.ridge
    widths = np.sqrt(2 * 5_000 * closed_information(5_000.0, 23.0, own.rate))
    assert bounds.directions(case) == pytest.approx(2 * np.sqrt(beta2) * widths)


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


# ---- candidates, times and recommendations


def test_every_policy_is_a_candidate_at_every_size_and_timed_at_one():
    advice = ask(GENERAL, sketch_sizes=[2, 6])
    found = {(p.policy, p.sketch_size) for p in advice.candidates}
    sized = ("CSLB", "MultiscaleCSLB", "SOFUL", "CBSCFD", "DBSLinUCB", "CBRAP")
    plain = ("UCB1", "OFUL", "LinTS", "LinUCB")
    assert found == {(p, None) for p in plain} | {(p, size) for p in sized for size in (2, 6)}
    for p in (*advice.candidates, *advice.finalists):
        assert (p.bound is None) == (p.guarantee == "none") == (p.policy in ("LinUCB", "CBRAP"))
        assert p.vacuous == (p.bound is not None and p.bound >= advice.case.trivial)
        estimated = p.policy in ("SOFUL", "CBSCFD") and p.sketch_size == 2
        assert (p.guarantee == "estimate") == estimated and (p.guarantee == "expected") == (p.policy == "UCB1")
    names = [p.name for p in advice.finalists]
    assert sorted(names) == sorted(set(names)) == sorted({p.name for p in advice.candidates})
    assert all(p.microseconds is None and not p.fits for p in advice.candidates)
    assert all(p.microseconds >= CALL and p.memory >= GENERAL.nbytes and p.fits for p in advice.finalists)
    assert finalist(advice, "LinTS").microseconds > finalist(advice, "OFUL").microseconds


def test_what_is_recommended_can_be_built_as_it_is_written():
    import sketchbandits

    arms = subspace_arms(n_arms=60, dim=11, n_subspaces=3, rank=3, shuffle=True, seed=1)
    advice = ask(arms, sketch_sizes=[3], budget_us=30.0)
    scope = {**vars(sketchbandits), "arms": arms}
    calls = {p.call for p in (*advice.candidates, *advice.finalists)}
    assert any("partition=Partition.subspaces(arms, 3)" in call for call in calls)
    for call in sorted(calls):
        policy = eval(call, scope)
        policy.update(policy.select(), 0.5)
    assert advice.choice.call in advice.sentence


def test_the_defaults_are_those_of_the_class():
    policy = MultiscaleCSLB(np.random.default_rng(1).normal(size=(40, 3)))
    assert policy.settings["budget"] == DEFAULT_BUDGET == 2048
    # One cluster holds arms of rank 3: the sketch size makes no difference, and is left to the class.
    advice = ask(policy.arms / 5)
    own = finalist(advice, "MultiscaleCSLB")
    assert own.call == "MultiscaleCSLB(arms)" and own.sketch_size == policy.settings["sketch_size"] == 16
    assert advice.budget == DEFAULT_BUDGET


def test_another_size_than_the_default_is_advised_only_where_the_bound_is_smaller():
    arms = np.random.default_rng(1).normal(size=(60, 20)) / 5
    group = [p for p in ask(arms).candidates if p.policy == "MultiscaleCSLB"]
    default = next(p for p in group if p.is_default)
    least = min(p.bound for p in group)
    for factor, expected in ((1.0, True), (SAME, True), (1.01 * SAME, False)):
        changed = [p._replace(bound=factor * least) if p.is_default else p for p in group]
        assert best_of(changed).is_default == expected
    assert not best_of([p for p in group if p != default]).is_default


def test_a_budget_that_leaves_too_little_time_makes_the_budget_of_operations_smaller():
    arms = np.random.default_rng(1).normal(size=(300, 8)) / 5
    calls = CALL + OPERATION * 240
    assert ask(arms, sketch_sizes=[1]).budget == DEFAULT_BUDGET
    short = ask(arms, sketch_sizes=[1], budget_us=calls + 1.05)
    assert short.budget == 1_000 and finalist(short, "MultiscaleCSLB").fits  # two digits of 1,050
    assert dict(finalist(short, "MultiscaleCSLB").options)["budget"] == 1_000
    none = ask(arms, sketch_sizes=[1], budget_us=calls)
    assert none.budget == 0 and finalist(none, "MultiscaleCSLB").fits


def test_time_that_is_left_is_used_only_where_the_bound_becomes_smaller():
    clustered = subspace_arms(n_arms=60, dim=11, n_subspaces=3, rank=3, shuffle=True, seed=1)
    few = ask(clustered, sketch_sizes=[3], budget_us=1e3)  # the bound of three clusters is less than the space's
    assert few.budget == DEFAULT_BUDGET and "budget" not in dict(finalist(few, "MultiscaleCSLB").options)
    general = np.random.default_rng(1).normal(size=(300, 8)) / 5
    many = ask(general, sketch_sizes=[1], budget_us=1e3)
    assert many.budget == 4 * 300 * 8**2  # a refresh in every round: more has no use
    best, row = finalist(many, "MultiscaleCSLB"), many.clusters[0]
    assert best.bound == multiscale(many.case, row, many.budget).bound < multiscale(many.case, row).bound / SAME


def test_a_budget_that_nothing_fits_names_the_fastest():
    advice = ask(GENERAL, budget_us=0.5)
    assert not any(p.fits for p in advice.finalists)
    assert advice.choice.microseconds == min(p.microseconds for p in advice.finalists if p.guarantee != "none")
    assert "though none fits 0.5 us" in advice.sentence
    assert advice.warnings[-1].startswith("No policy with a guarantee fits 0.5 us per round: the fastest takes ")


def test_a_smaller_sketch_is_taken_where_only_that_fits(monkeypatch):
    advice = ask(np.eye(32), rounds=10**6)
    monkeypatch.setattr(timing, "round_microseconds", lambda policy, *_: float(policy.settings["sketch_size"]))
    candidates = [p for p in advice.candidates if p.name == "SOFUL"]
    watch = timing.Stopwatch(np.eye(32), advice.case, np.random.default_rng(0))
    best = best_of(candidates)
    assert best.sketch_size == 32 and timing._timed(candidates, watch, None).sketch_size == 32
    assert timing._timed(candidates, watch, 9.0).sketch_size == 8
    assert timing._timed(candidates, watch, 0.5) == watch.timed(best, 0.5)


def test_few_arms_and_little_time_are_for_ucb1_or_multiscale():
    advice = ask(np.random.default_rng(1).normal(size=(5, 9)) / 5, budget_us=3.0, rounds=100_000)
    assert advice.choice.policy in ("UCB1", "MultiscaleCSLB") and advice.choice.microseconds <= 3.0


def test_many_arms_of_low_rank_are_for_multiscale_or_oful():
    arms = np.random.default_rng(1).normal(size=(500, 3)) @ np.random.default_rng(2).normal(size=(3, 12)) / 10
    for budget_us in (None, 10.0, 100.0):
        advice = ask(arms, rounds=200_000, budget_us=budget_us, sketch_sizes=[1, 2, 3])
        assert advice.choice.policy in ("MultiscaleCSLB", "OFUL")
        assert advice.sketch_size == 3
        assert advice.choice.bound < 0.5 * finalist(advice, "UCB1").bound


def test_an_estimate_is_never_recommended_and_ties_go_to_multiscale():
    advice = ask(GENERAL)
    known = [p._replace(bound=10.0) for p in advice.finalists if p.bound is not None]
    lucky = [p._replace(bound=0.1 if p.guarantee == "estimate" else 10.0) for p in known]
    assert recommend(lucky).policy == "MultiscaleCSLB"
    ahead = [p._replace(bound=p.bound / (1.1 * TIE) if p.policy == "UCB1" else p.bound) for p in known]
    assert recommend(ahead).policy == "UCB1"


def test_too_many_arms_are_timed_on_a_sample(monkeypatch):
    arms = np.random.default_rng(0).normal(size=(200, 5))
    everything = ask(arms, sketch_sizes=[2])
    assert all(p.sampled == 0 for p in everything.finalists)
    monkeypatch.setattr(timing, "MOST_ENTRIES", 500)
    advice = ask(arms, sketch_sizes=[2])
    assert all(p.sampled == 100 for p in advice.finalists)
    assert "Times and memory marked ~ are extrapolated from 100 arms drawn at random." in advice.notes
    # The made-up time is c + a N: between constant and linear, as the extrapolation is.
    exact, found = (finalist(each, "OFUL") for each in (everything, advice))
    assert f"~{found.microseconds:.3g}" in advice.text()
    assert 0.9 * exact.microseconds < found.microseconds <= exact.microseconds
    assert found.memory == pytest.approx(exact.memory, rel=0.1)


@pytest.mark.parametrize(("half", "whole", "expected"), [(3, 3, 3), (5, 4, 4), (2, 4, 40), (1, 4, 40)])
def test_growth_from_a_sample_is_between_none_and_linear(half, whole, expected):
    assert timing._grown(half, whole, 100, 1_000) == pytest.approx(expected)


@pytest.mark.skipif(not JIT, reason="it times compiled kernels")
def test_rounds_are_timed_by_the_clock_and_slow_ones_are_cut_short(monkeypatch, real_clock):
    class Slow:
        calls = 0

        def select(self):
            self.calls += 1
            for _ in range(2_000):
                pass
            return 0

        def update(self, arm, reward):
            assert (arm, reward) == (0, 0.5)

    noise = np.zeros(40 + timing.ROUNDS)
    slow = Slow()
    assert 5.0 < timing.round_microseconds(slow, np.array([0.5]), noise) < 5_000.0
    assert slow.calls == len(noise)
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    slow = Slow()
    assert timing.round_microseconds(slow, np.array([0.5]), noise) > 5.0
    assert slow.calls == 2 * timing.CHUNK  # one chunk of warm-up and one that is timed


@pytest.mark.skipif(not JIT, reason="it times compiled kernels")
def test_measured_times_are_plausible(real_clock):
    advice = ask(np.random.default_rng(1).normal(size=(2_000, 20)) / 5, sketch_sizes=[4])
    times = {p.name: p.microseconds for p in advice.finalists}
    assert all(0.3 < value < 1e5 for value in times.values())
    assert times["UCB1"] < times["DBSLinUCB"] and times["CSLB"] < times["SOFUL"]


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


# ---- odd arms, refusals, forms


ODD = (np.zeros((3, 2)), np.ones((1, 4)), np.ones((7, 1)), np.eye(2), np.full((9, 3), 1e-90))


@pytest.mark.parametrize("arms", ODD)
def test_odd_arms_are_advised_upon(arms):
    advice = ask(arms, budget_us=20.0)
    assert advice.choice.bound >= 0 and np.isfinite(advice.choice.bound)
    assert advice.text() and json.dumps(advice.as_json(), allow_nan=False)
    advice.plot()


def test_one_arm_is_nothing_to_choose_from():
    assert "There is one arm: nothing is to be chosen." in ask(np.ones((1, 4))).warnings


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arms": [[1.0, np.nan]]}, r"arms must be finite, got nan at \[0, 1\]"),
        ({"arms": [[1.0], [np.inf]]}, r"arms must be finite, got inf at \[1, 0\]"),
        ({"arms": []}, "arms must be a non-empty 2-D array"),
        ({"arms": [["a"]]}, "arms must be"),
        ({"rounds": 0}, "rounds must be a whole number >= 1, got 0"),
        ({"rounds": 2.5}, "rounds must be a whole number"),
        ({"budget_us": 0}, "budget_us must be a number > 0"),
        ({"noise": -1}, "noise must be a number > 0"),
        ({"theta_norm": 0}, "theta_norm must be a number > 0"),
        ({"ridge": math.nan}, "ridge must be a number > 0"),
        ({"delta": 1.0}, "delta must be a number strictly between 0 and 1, got 1.0"),
        ({"sketch_sizes": []}, "sketch_sizes must be a sequence of one or more whole numbers"),
        ({"sketch_sizes": "3"}, "sketch_sizes must be a sequence"),
        ({"sketch_sizes": [2, 0]}, "sketch_sizes must be a whole number >= 1, got 0"),
        ({"features": ["a"]}, "features must be a sequence of 6 names, got 1"),
        ({"ids": "abc"}, "ids must be a sequence of 23 names, got 'abc'"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_bad_values_are_refused(options, message):
    options = {"arms": GENERAL, **options}
    with pytest.raises(ValueError, match=message):
        ask(options.pop("arms"), **options)


def test_advice_is_the_same_every_time_up_to_the_clock_and_leaves_the_arms_alone():
    arms = GENERAL.copy()
    first, second = (ask(arms, budget_us=9.0, seed=3) for _ in range(2))
    assert first.text() == second.text() and first.as_json() == second.as_json()
    assert (arms == GENERAL).all()
    assert advice_files(first) == advice_files(second)


def test_float32_arms_have_their_own_tolerance():
    arms = np.repeat(GENERAL, 2, axis=0).astype(np.float32)
    arms[1::2] *= np.float32(0.3)  # parallel up to the rounding of float32
    advice = ask(arms, sketch_sizes=[1, 2])
    assert advice.facts.tolerance == 1e-6 and advice.facts.n_rays == 23
    assert advice.clusters[0].clusters == Partition.first_fit(arms, sketch_size=1).n_clusters


def test_the_text_fits_80_columns_and_holds_everything():
    arms = np.random.default_rng(0).normal(size=(40, 7)) * 300
    for options in ({}, {"budget_us": 3.2}, {"budget_us": 1e-3}, {"rounds": 10**9, "noise": 1e4}):
        advice = ask(arms, **options)
        text = advice.text()
        assert max(map(len, text.splitlines())) <= 80
        flat = " ".join(text.split())
        for sentence in (advice.sentence, *advice.warnings, *advice.notes):
            assert " ".join(sentence.split()) in flat
        for policy in ("UCB1", "OFUL, rare", "CSLB, log-det", "MultiscaleCSLB", "CBRAP"):
            assert policy in text
        assert str(advice) == text and advice.sentence in repr(advice)
        assert "\n" not in advice.sentence and advice.sentence.count(". ") == 0


def test_the_frame_has_a_row_for_each_candidate_and_times_for_the_finalists():
    advice = ask(GENERAL, sketch_sizes=[2, 3])
    frame = advice.frame()
    assert isinstance(frame, polars.DataFrame) and frame.height == len(advice.candidates)
    columns = ["policy", "call", "sketch_size", "bound", "guarantee", "vacuous", "microseconds", "memory"]
    assert frame.columns == [*columns, "sampled", "fits"]
    assert frame["bound"].to_list() == [p.bound for p in advice.candidates]
    assert frame["microseconds"].count() == len(advice.finalists)


def test_progress_goes_from_nothing_to_the_end():
    shown = []
    ask(GENERAL, progress=lambda share, what: shown.append((share, what)))
    shares = [share for share, _ in shown]
    assert shares == sorted(shares) and shares[0] == 0.0 and 0.9 < shares[-1] <= 1.0
    assert {"the spectrum", "clusters of rank 2", "timing OFUL, rare"} <= {what for _, what in shown}


def test_the_figure_names_every_policy_once_and_shows_the_budget():
    advice = ask(GENERAL, budget_us=6.0)
    figure = advice.plot()
    (ax,) = figure.axes
    texts = [text.get_text() for text in ax.texts]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    for name in ("UCB1", "OFUL", "OFUL, rare", "MultiscaleCSLB, l="):
        assert sum(text == name or (name.endswith("=") and text.startswith(name)) for text in texts) == 1, name
    assert "budget: 6 us" in texts and "trivial: 2 S L T" in texts
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert advice.plot(ax) is figure
