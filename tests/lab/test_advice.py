"""Advice: candidates, their times, recommendations, refusals and forms."""

import json
import math

import numpy as np
import polars
import pytest
from conftest import JIT
from made_clock import CALL, GENERAL, OPERATION, ask, finalist, made_up

from sketchbandits import HybridCSLB, MultiscaleCSLB, Partition, snapshot
from sketchbandits.environments import subspace_arms
from sketchbandits.lab.advice import timing
from sketchbandits.lab.advice.candidates import default_budget, multiscale
from sketchbandits.lab.advice.files import advice_files
from sketchbandits.lab.advice.hybrid import shape_for
from sketchbandits.lab.advice.recommend import TIE, best_of, recommend
from sketchbandits.policies.multiscale.randomised import CAUTION


@pytest.fixture(autouse=True)
def clock(request, monkeypatch):
    if "real_clock" not in request.fixturenames:
        monkeypatch.setattr(timing, "round_microseconds", made_up)


@pytest.fixture
def real_clock():
    """Requested by a test that measures."""


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
    for shape in ((40, 3), (300, 8), (9, 30)):
        policy = MultiscaleCSLB(np.random.default_rng(1).normal(size=shape) / 5)
        advice = ask(policy.arms)
        own, form = (finalist(advice, name) for name in ("MultiscaleCSLB", "MultiscaleCSLB, optimism"))
        default = next(p for p in advice.candidates if p.is_default)
        assert default.sketch_size == policy.settings["sketch_size"]
        assert default_budget(advice.case) == policy.state.space["budget"]
        assert advice.budget == "auto" and "budget" not in dict(own.options)
        assert own.bound == pytest.approx(CAUTION * form.bound) and own.sketch_size == form.sketch_size
        assert dict(form.options) == {**dict(own.options), "explore": "optimism"}


def test_a_policy_that_does_not_draw_has_one_form(monkeypatch):
    arms = np.random.default_rng(1).normal(size=(200, 8)) / 5
    assert ask(arms).case.draws and MultiscaleCSLB(arms).settings["explore"] == "randomised"
    for module in ("lab.advice.bounds", "policies.multiscale.policy"):
        monkeypatch.setattr(f"sketchbandits.{module}.MOST_ARMS_TO_DRAW", 199)
    monkeypatch.setattr(timing, "MOST_ENTRIES", 800)
    built, make = [], MultiscaleCSLB.__init__
    monkeypatch.setattr(MultiscaleCSLB, "__init__", lambda self, *a, **k: (make(self, *a, **k), built.append(self))[0])
    advice = ask(arms)
    assert not advice.case.draws
    assert [p.name for p in advice.finalists if p.policy == "MultiscaleCSLB"] == ["MultiscaleCSLB"]
    assert finalist(advice, "MultiscaleCSLB").bound < advice.case.trivial * CAUTION
    # Those that are built on fewer arms, for their times, play by the rule of all.
    assert {p.settings["explore"] for p in built if p.n_arms == 100} == {"optimism"}
    assert "explore" not in advice.sentence and "20 times" not in advice.sentence


def test_what_is_recommended_has_the_model_that_its_bound_is_for():
    model = {"ridge": 3.0, "noise": 0.25, "theta_norm": 2.0, "delta": 0.05}
    advice = ask(GENERAL, sketch_sizes=[2], **model)
    for p in advice.finalists:
        settings, ours = p.build(GENERAL).settings, p.policy == "MultiscaleCSLB"
        for name in model.keys() & settings.keys():
            assert settings[name] == (None if ours and name == "ridge" else model[name]), p.call
    assert advice.choice.call.endswith("noise=0.25, theta_norm=2.0, delta=0.05)")
    assert all("ridge" not in p.call and "noise" not in p.call for p in ask(GENERAL, sketch_sizes=[2]).candidates)


def test_another_size_than_the_default_is_advised_only_where_the_bound_is_smaller():
    arms = np.random.default_rng(1).normal(size=(60, 20)) / 5
    group = [p for p in ask(arms).candidates if p.name == "MultiscaleCSLB"]
    default = next(p for p in group if p.is_default)
    least = min(p.bound for p in group)
    for factor, expected in ((1.0, True), (TIE, True), (1.01 * TIE, False)):
        changed = [p._replace(bound=factor * least) if p.is_default else p for p in group]
        assert best_of(changed).is_default == expected
    assert not best_of([p for p in group if p != default]).is_default


def test_a_budget_that_leaves_too_little_time_makes_the_budget_of_operations_smaller():
    arms = np.random.default_rng(1).normal(size=(300, 8)) / 5
    calls = CALL + OPERATION * 240
    assert ask(arms, sketch_sizes=[1]).budget == "auto"
    short = ask(arms, sketch_sizes=[1], budget_us=calls + 1.05)
    assert short.budget == 1_000 and finalist(short, "MultiscaleCSLB").fits  # two digits of 1,050
    assert dict(finalist(short, "MultiscaleCSLB").options)["budget"] == 1_000
    none = ask(arms, sketch_sizes=[1], budget_us=calls)
    assert none.budget == 0 and finalist(none, "MultiscaleCSLB").fits


def test_time_that_is_left_is_used_only_where_the_bound_becomes_smaller():
    clustered = subspace_arms(n_arms=60, dim=11, n_subspaces=3, rank=3, shuffle=True, seed=1)
    few = ask(clustered, sketch_sizes=[3], budget_us=1e3)  # the bound of three clusters is less than the space's
    assert few.budget == "auto" and "budget" not in dict(finalist(few, "MultiscaleCSLB").options)
    general = np.random.default_rng(1).normal(size=(1_000, 4)) / 5
    many = ask(general, sketch_sizes=[1], budget_us=1e4)
    # A row, a publication, and every arm's bound with one sentinel per ray: more has no use.
    assert many.budget == 4.5 * 4**2 + 1_000 * (4**2 + 1 + 1_000)
    best, row = finalist(many, "MultiscaleCSLB"), many.clusters[0]
    assert best.bound == multiscale(many.case, row, many.budget).bound < multiscale(many.case, row).bound / 2


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
    table = advice.clusters
    assert best.sketch_size == 32 and timing._timed(candidates, table, watch, None).sketch_size == 32
    assert timing._timed(candidates, table, watch, 9.0).sketch_size == 8
    assert timing._timed(candidates, table, watch, 0.5) == watch.timed(best, 0.5)
    ours = [p for p in advice.candidates if p.name == "MultiscaleCSLB" and p.sketch_size != 16]
    assert timing._timed(ours, table, watch, 9.0).sketch_size <= 9


@pytest.mark.parametrize(("of_auto", "of_less", "expected"), [(1.9, 1.9, "auto"), (4.0, 1.9, 500), (4.0, 4.0, 0)])
def test_less_of_the_space_is_tried_before_none_of_it(monkeypatch, of_auto, of_less, expected):
    arms = np.random.default_rng(1).normal(size=(300, 8)) / 5
    advice = ask(arms, sketch_sizes=[4])
    group = [p for p in advice.candidates if p.name == "MultiscaleCSLB"]
    watch = timing.Stopwatch(arms, advice.case, np.random.default_rng(0))

    def clock(policy, *_):  # a budget that is not 0 takes longer than in proportion
        budget = policy.settings["budget"]
        return of_auto if budget == "auto" else 0.0 if budget == 0 else of_less if budget < 900 else 2.1

    monkeypatch.setattr(timing, "round_microseconds", clock)
    assert default_budget(advice.case) == 2048
    found = timing._timed(group, advice.clusters, watch, 2.0)
    assert found.fits and dict(found.options).get("budget", "auto") == expected


def test_few_arms_and_little_time_are_for_ucb1_or_multiscale():
    advice = ask(np.random.default_rng(1).normal(size=(5, 9)) / 5, budget_us=3.0, rounds=100_000)
    assert advice.choice.policy in ("UCB1", "MultiscaleCSLB") and advice.choice.microseconds <= 3.0


def test_many_arms_of_low_rank_are_for_multiscale_or_oful():
    arms = np.random.default_rng(1).normal(size=(500, 3)) @ np.random.default_rng(2).normal(size=(3, 12)) / 10
    for budget_us in (None, 10.0, 100.0):
        advice = ask(arms, rounds=200_000, budget_us=budget_us, sketch_sizes=[1, 2, 3])
        assert advice.choice.policy in ("MultiscaleCSLB", "OFUL")
        assert advice.sketch_size == 3
        assert finalist(advice, "MultiscaleCSLB, optimism").bound < 0.5 * finalist(advice, "UCB1").bound


def test_an_estimate_is_never_recommended_and_ties_go_to_multiscale():
    advice = ask(GENERAL)
    known = [p._replace(bound=10.0) for p in advice.finalists if p.bound is not None]
    lucky = [p._replace(bound=0.1 if p.guarantee == "estimate" else 10.0) for p in known]
    assert recommend(lucky).name == "MultiscaleCSLB"
    ahead = [p._replace(bound=p.bound / (1.1 * TIE) if p.policy == "UCB1" else p.bound) for p in known]
    assert recommend(ahead).policy == "UCB1"


def test_the_hybrid_policy_has_a_paragraph_of_its_own():
    advice = ask(GENERAL)
    hybrid = advice.hybrid
    assert hybrid.timed.microseconds >= CALL and hybrid.timed.memory >= GENERAL.nbytes and advice.choice != hybrid.timed
    assert all(p.policy != "HybridCSLB" for p in (*advice.candidates, *advice.finalists))
    for each in hybrid.memory:
        policy = HybridCSLB(GENERAL, context_dim=each.context_dim)
        held = sum(array.nbytes for _, array in snapshot.leaves(policy.state))
        assert each.fits and 0.6 * held < each.bytes < 1.4 * held
    said = " ".join(advice.text().split())
    assert hybrid.sentences in said and "which learns the noise and guarantees nothing" in said
    assert "MiB without contexts, " in said and "MiB with context_dim=50." in said
    assert advice.as_json()["hybrid"]["memory"][1] == {"context_dim": 5, "bytes": hybrid.memory[1].bytes, "fits": True}


def test_memory_that_the_machine_does_not_have_is_said(monkeypatch):
    monkeypatch.setattr("os.sysconf", lambda name: 300)  # of both: the size of a page and their number
    memory = ask(GENERAL).hybrid
    assert [each.fits for each in memory.memory] == [True, True, False, False]
    assert "MiB with context_dim=20 (more than this machine has), " in memory.sentences
    assert "A smaller sketch_size, or shorter contexts, need less." in memory.sentences


def test_arms_that_would_be_clusters_take_as_much_memory_as_those_at_most():
    arms = np.random.default_rng(3).normal(size=(90, 30))
    table = ask(arms, sketch_sizes=[2, 30]).clusters
    assert shape_for(90, 30, None, table)[:4] == (90, 1, 31, 1)
    n, k, r, p = shape_for(90, 30, 50, table)[:4]  # sketch_size 9
    state = HybridCSLB(arms, context_dim=50).state
    assert (n, k, r, p) == (90, 10, 10, 51) and state.shared.shape == (k, p, 9)  # a constant is spanned already


def test_the_default_is_recommended_for_the_bound_of_optimism():
    advice = ask(GENERAL, rounds=100_000)
    own, form = (finalist(advice, name) for name in ("MultiscaleCSLB", "MultiscaleCSLB, optimism"))
    others = [p._replace(bound=1.01 * form.bound) for p in advice.finalists if p.policy == "UCB1"]
    assert advice.choice == own == recommend([*others, own, form])
    assert recommend([*others, own._replace(fits=False), form]) == form
    assert recommend([*others, own, form._replace(fits=False)]) == others[0]
    said = (
        f"({form.bound:,.0f} after 100,000 rounds with explore='optimism', {CAUTION:g} times that with random choices"
    )
    assert said in advice.sentence
    assert own.vacuous and not form.vacuous
    assert f"which is no less than the trivial {advice.case.trivial:,.0f})" in advice.sentence


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
        for policy in ("UCB1", "OFUL, rare", "CSLB, log-det", "MultiscaleCSLB, optimism", "CBRAP"):
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
    assert {"the spectrum", "clusters of rank 2", "timing OFUL, rare, kernels compile once"} <= {
        what for _, what in shown
    }


def test_the_figure_names_every_policy_once_and_shows_the_budget():
    advice = ask(GENERAL, budget_us=6.0)
    figure = advice.plot()
    (ax,) = figure.axes
    texts = [text.get_text() for text in ax.texts]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    for name in ("UCB1", "OFUL", "OFUL, rare", "MultiscaleCSLB, l=", "MultiscaleCSLB, optimism, l="):
        assert sum(text == name or (name.endswith("=") and text.startswith(name)) for text in texts) == 1, name
    assert "budget: 6 us" in texts and "trivial: 2 S L T" in texts
    boxes = [text.get_window_extent() for text in ax.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert advice.plot(ax) is figure
