"""How findings become a verdict; the theorem's bound, slopes of curves, and experiments as mappings."""

import math
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest
from made_worlds import CLAIM, POINTS, T, verdict, world

from sketchbandits.lab import intervals
from sketchbandits.lab.experiments.study import NotPlayedError, Runs
from sketchbandits.lab.experiments.tasks import Outcome
from sketchbandits.lab.growth import slope_ratio
from sketchbandits.lab.intervals import LEVEL, interval, simultaneous
from sketchbandits.lab.paper.claims import CLAIMS
from sketchbandits.lab.paper.claims.regret import bound
from sketchbandits.lab.paper.reproduce import QUICK, PaperPlan
from sketchbandits.lab.paper.setting import DATASETS
from sketchbandits.lab.verdict import Finding, Verdict, judge, outcome_of
from sketchbandits.lab.verdict import judged as judged_claims


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 2_000)  # thousands of intervals, none of them close


# --- how findings become a verdict ---


def judged(*findings):
    """A verdict on findings written as ``(outcome, property=value, …)``."""
    return Verdict(CLAIM, [Finding(case, outcome, {}) for outcome, case in findings])


@pytest.mark.parametrize(
    ("words", "word", "text"),
    [
        ("holds", "holds", "holds (1 hold, 0 fail, 0 undecided; 1 of 1 decided)"),
        ("fails fails", "fails", "fails (0 hold, 2 fail, 0 undecided; 2 of 2 decided)"),
        ("undecided", "undecided", "undecided (0 hold, 0 fail, 1 undecided; 0 of 1 decided)"),
        ("holds undecided holds", "holds", "holds (2 hold, 0 fail, 1 undecided; 2 of 3 decided)"),
        ("fails undecided fails", "fails", "fails (0 hold, 2 fail, 1 undecided; 2 of 3 decided)"),
        ("holds undecided", "undecided", "undecided (1 hold, 0 fail, 1 undecided; 1 of 2 decided)"),
        ("fails undecided", "undecided", "undecided (0 hold, 1 fail, 1 undecided; 1 of 2 decided)"),
        ("vacuous vacuous", "vacuous", "vacuous (0 hold, 0 fail, 0 undecided, 2 vacuous; 0 of 2 decided)"),
        ("vacuous vacuous undecided", "vacuous", "vacuous (0 hold, 0 fail, 1 undecided, 2 vacuous; 0 of 3 decided)"),
        ("vacuous undecided", "undecided", "undecided (0 hold, 0 fail, 1 undecided, 1 vacuous; 0 of 2 decided)"),
        ("vacuous holds", "undecided", "undecided (1 hold, 0 fail, 0 undecided, 1 vacuous; 1 of 2 decided)"),
        ("vacuous fails", "undecided", "undecided (0 hold, 1 fail, 0 undecided, 1 vacuous; 1 of 2 decided)"),
        (
            "holds fails",
            "depends",
            "depends on place: holds for 0; fails for 1 (1 hold, 1 fail, 0 undecided; 2 of 2 decided)",
        ),
        (
            "undecided fails holds vacuous undecided undecided",
            "depends",
            "depends on place: holds for 2; fails for 1 (1 hold, 1 fail, 3 undecided, 1 vacuous; 2 of 6 decided)",
        ),
        ("holds fails holds fails fails", "depends", "depends on place (2 hold, 3 fail, 0 undecided; 5 of 5 decided)"),
    ],
)
def test_outcomes_of_cases_become_a_verdict(words, word, text):
    found = judged(*((outcome, {"place": i}) for i, outcome in enumerate(words.split())))
    assert (found.word, found.text) == (word, text)


def test_many_cases_follow_those_that_are_decided():
    assert judged(*((outcome, {}) for outcome in ["holds"] * 25 + ["undecided"])).word == "holds"
    assert judged(*((outcome, {}) for outcome in ["fails"] * 25 + ["undecided"])).word == "fails"
    for one in ("holds", "fails"):
        assert judged(*((outcome, {}) for outcome in [one] + ["undecided"] * 7)).word == "undecided"
    assert judged(*((outcome, {}) for outcome in ["holds"] * 25 + ["fails"])).word == "depends"


MIRROR = {"holds": "fails", "fails": "holds"}


def flipped(outcome):
    return MIRROR.get(outcome, outcome)


def unlike(word):
    """How many verdicts are not mirrored when every outcome is: for all outcomes of up to seven cases."""
    every = ("holds", "fails", "undecided", "vacuous")
    cases = [found for size in range(1, 8) for found in combinations_with_replacement(every, size)]
    return sum(word([flipped(outcome) for outcome in found]) != flipped(word(found)) for found in cases)


def rule_before(found):
    """The rule of the earlier version, one side of which needed a single case: the control of the test below."""
    if {"holds", "fails"} <= set(found) or {"vacuous", "fails"} <= set(found):
        return "depends"
    return next((word for word in ("fails", "undecided", "holds") if word in found), "vacuous")


def test_flipping_every_outcome_mirrors_the_verdict():
    assert unlike(lambda found: judged(*((outcome, {}) for outcome in found)).word) == 0
    assert unlike(rule_before) > 50


def test_flipping_every_outcome_mirrors_the_text():
    cases = [("holds", {"a": 1}), ("fails", {"a": 2}), ("undecided", {"a": 3}), ("holds", {"a": 4})]
    assert (
        judged(*cases).text == "depends on a: holds for 1, 4; fails for 2 (2 hold, 1 fail, 1 undecided; 3 of 4 decided)"
    )
    text = judged(*((flipped(outcome), case) for outcome, case in cases)).text
    assert text == "depends on a: holds for 2; fails for 1, 4 (1 hold, 2 fail, 1 undecided; 3 of 4 decided)"


# --- many cases ---


def noise_alone(values, *, judge_once=False):
    """A claim of which nothing is true or false: each row of ``values`` is a case whose mean is 0."""

    def rule(study, level):
        margins = [interval(row, LEVEL if judge_once else level) for row in values]
        sides = [outcome_of([margin.side(0.0)], good="above", bad="below") for margin in margins]
        return [
            Finding({"row": i}, side, {"x": m}, [m]) for i, (side, m) in enumerate(zip(sides, margins, strict=True))
        ]

    return judge(replace(CLAIM, judge=rule), {})


def test_of_sixteen_cases_of_noise_hardly_one_is_decided(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 500)
    monkeypatch.setattr(intervals, "FEWEST", 500)
    samples = np.random.default_rng(3).standard_normal((200, 16, 5))

    def decided(**options):
        found = [noise_alone(values, **options) for values in samples]
        return np.mean([any(finding.outcome != "undecided" for finding in each.findings) for each in found])

    assert decided() <= 0.1  # 0.05 is promised; its standard error is 0.015
    assert decided(judge_once=True) > 0.3  # the control: every case at 95 %


def test_the_level_of_a_case_is_written_down():
    found = noise_alone(np.random.default_rng(0).standard_normal((16, 5)))
    assert found.family == 16 and found.level == pytest.approx(1 - 0.05 / 16)
    entry = found.as_json()
    assert entry["intervals"] == 16 and {case["level"] for case in entry["evidence"]} == {found.level}
    assert noise_alone(np.array([[1.0, 2.0, 3.0]])).level == 0.95


def test_a_comparison_that_decides_several_cases_counts_once():
    margin = np.array([1.0, 2.0, 4.0])
    assert noise_alone(np.array([margin, margin, margin + 1.0])).family == 2


def test_what_is_counted_has_no_level():
    found = verdict("clusters-at-most")
    assert found.level is None and {case["level"] for case in found.as_json()["evidence"]} == {None}


def test_more_cases_make_an_interval_wider_and_never_narrower():
    values = np.random.default_rng(5).standard_normal(10)
    widths = [interval(values, simultaneous(count)) for count in (1, 2, 8, 64)]
    assert [each.mean for each in widths] == [values.mean()] * 4
    spans = [each.high - each.low for each in widths]
    assert spans == sorted(spans) and spans[-1] > 2 * spans[0]
    assert widths[0] == interval(values)


# --- a quick run ---


def test_a_quick_run_judges_nothing():
    found = judged_claims(CLAIMS, PaperPlan(**QUICK), {})  # it does not even look
    assert len(found) == len(CLAIMS)
    for each in found:
        assert (each.word, each.text, each.findings) == ("not judged", "not judged in a quick run", ())
        assert each.as_json()["evidence"] == [] and each.as_json()["verdict"] == "not judged in a quick run"


def test_a_run_of_the_same_length_that_is_not_called_quick_is_judged():
    plan = PaperPlan(**{**QUICK, "quick": False})
    assert {each.word for each in judged_claims(CLAIMS, plan, world())} == {"holds"}


# --- what tells cases apart ---


def test_the_one_property_that_explains_it_is_named():
    cases = [
        (outcome, {"data set": number, "normalisation": normalize, "policy": "cslb"})
        for normalize, outcome in (("max", "holds"), ("unit", "fails"))
        for number in ("(1)", "(2)")
    ]
    assert (
        judged(*cases).text
        == "depends on normalisation: holds for max; fails for unit (2 hold, 2 fail, 0 undecided; 4 of 4 decided)"
    )


def test_an_undecided_case_is_not_generalised_over():
    cases = [
        ("undecided", {"data set": "(1)", "normalisation": "max"}),
        ("holds", {"data set": "(2)", "normalisation": "max"}),
        ("fails", {"data set": "(1)", "normalisation": "unit"}),
        ("fails", {"data set": "(2)", "normalisation": "unit"}),
    ]
    where = "depends on data set and normalisation: holds for (2) max; fails for (1) unit, (2) unit"
    assert judged(*cases).text == f"{where} (1 hold, 2 fail, 1 undecided; 3 of 4 decided)"


def test_two_properties_are_named_where_one_is_not_enough():
    cases = [
        ("holds" if (a == "x") == (b == "p") else "fails", {"first": a, "idle": c, "second": b})
        for a in "xy"
        for b in "pq"
        for c in "mn"
    ]
    where = "depends on first and second: holds for x p, y q; fails for x q, y p"
    assert judged(*cases).text == f"{where} (4 hold, 4 fail, 0 undecided; 8 of 8 decided)"


def test_cases_that_nothing_tells_apart():
    found = judged(("holds", {"a": 1}), ("fails", {"a": 1}))
    assert found.text == "depends on what was not varied here (1 hold, 1 fail, 0 undecided; 2 of 2 decided)"


def test_no_case_is_not_judged():
    assert judged().word == "not judged"
    assert judged().text.startswith("not judged: ")


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        (["above", "above"], "holds"),
        (["above", "unclear"], "undecided"),
        (["unclear"], "undecided"),
        (["above", "below"], "fails"),
        (["unclear", "below"], "fails"),
    ],
)
def test_sides_of_rivals_become_an_outcome(sides, expected):
    assert outcome_of(sides, good="above", bad="below") == expected


# --- the theorem's bound ---


def papers_bound(number, t, clusters):
    """Theorem 1 with Eq. (2), written out: L = S = R = ridge = 1, delta = 0.01."""
    n_arms, _, l, _ = DATASETS[number]
    L = S = R = lam = 1.0
    beta = R * np.sqrt(l * np.log(1 + t * L**2 / (l * lam)) + 2 * np.log(n_arms / (l * 0.01))) + S * np.sqrt(lam)
    return 2 * beta * np.sqrt(2 * l * clusters * t * np.log(1 + t * L**2 / (lam * l)))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_bound_is_the_papers(number):
    for t in (1, 17, 1_000, 200_000, 10**9):
        for clusters in (1, 7, 40):
            assert bound(number, t, clusters) == pytest.approx(papers_bound(number, t, clusters), rel=1e-12)


@pytest.mark.parametrize(("factor", "expected"), [(0.999, "holds"), (1.001, "fails")])
def test_one_checkpoint_above_the_bound_is_enough(factor, expected):
    # Constant regret from the first checkpoint on: there the bound is smallest.
    def edit(name, key, run, made):
        if name == "regret" and key[2] == "cslb":
            made.final, made.power = 1.0, 0.0
            if run == 3:
                made.final = factor * papers_bound(key[0], POINTS[0], made.clusters)

    found = verdict("theorem-bound", edit)
    assert found.word == expected
    figure = found.findings[0].figures["largest regret / bound, any round"]
    assert figure == pytest.approx(factor)


@pytest.mark.parametrize(("factor", "expected"), [(0.999, "vacuous"), (1.001, "holds")])
def test_a_bound_that_no_policy_could_exceed_is_vacuous(factor, expected):
    def edit(name, key, run, made):
        if name == "regret":
            made.largest_gap = factor * papers_bound(key[0], T, made.clusters) / T

    found = verdict("theorem-bound", edit)
    assert found.word == expected
    assert found.findings[-1].figures["bound / (T x largest gap)"] == pytest.approx(1 / factor)


# --- curves ---


def curves(*functions, points=None):
    points = POINTS if points is None else points
    return Runs([Outcome(points, function(points.astype(float)), 0.002, 0.5, {"x": 3.0}) for function in functions])


def test_slopes_of_known_curves():
    linear, root, logarithm = slope_ratio(curves(lambda t: 3 * t, lambda t: 7 * np.sqrt(t), lambda t: 2 * np.log(t)))
    assert linear == pytest.approx(1.0, abs=1e-12)
    assert root == pytest.approx((1 - math.sqrt(0.75)) / (math.sqrt(0.5) - 0.5))
    assert root == pytest.approx(0.647, abs=5e-4)
    assert logarithm == pytest.approx(math.log(4 / 3) / math.log(2))
    assert logarithm == pytest.approx(0.415, abs=5e-4)


def test_slopes_of_curves_that_stand_still():
    still, late = slope_ratio(curves(lambda t: np.full(t.shape, 5.0), lambda t: np.where(t > 900, 1.0, 0.0)))
    assert still == 0.0
    assert late > 1e6


def test_regret_between_checkpoints_is_a_straight_line_from_zero():
    runs = curves(lambda t: t**2, lambda t: t, points=np.array([10, 20, 40]))
    for rounds, expected in ((0, [0, 0]), (5, [50, 5]), (10, [100, 10]), (25, [700, 25]), (40, [1600, 40])):
        assert runs.regret_at(rounds).tolist() == expected
    assert runs.regret.tolist() == [1600, 40]
    assert runs.curves.shape == (2, 3)
    assert runs.microseconds.tolist() == [50.0, 50.0]  # 2 ms for 40 rounds
    assert runs.warmup_seconds.tolist() == [0.5, 0.5]
    assert runs.fact("x").tolist() == [3.0, 3.0]
    assert runs.checkpoints.tolist() == [10, 20, 40]


# --- experiments ---


def test_an_experiment_is_a_mapping_and_says_what_was_not_played():
    experiment = world()["regret"]
    assert len(experiment) == len(list(experiment)) == 4 * 2 * 7
    assert experiment[1, "max", "oful"].regret.tolist() == [150.0] * 5
    with pytest.raises(NotPlayedError, match=r"1, max, linucb"):
        experiment[1, "max", "linucb"]


def test_an_experiment_can_be_asked_for_a_key():
    experiment = world()["regret"]
    assert (1, "max", "oful") in experiment
    assert (1, "max", "linucb") not in experiment
    assert experiment.get((1, "max", "linucb")) is None
