"""How findings become a verdict; the theorem's bound, slopes of curves, and experiments as mappings."""

import math

import numpy as np
import pytest
from made_worlds import CLAIM, POINTS, T, verdict, world

from sketchbandits.lab import intervals
from sketchbandits.lab.experiments.study import NotPlayedError, Runs
from sketchbandits.lab.experiments.tasks import Outcome
from sketchbandits.lab.growth import slope_ratio
from sketchbandits.lab.paper.claims.regret import bound
from sketchbandits.lab.paper.setting import DATASETS
from sketchbandits.lab.verdict import Finding, Verdict, outcome_of


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
        ("holds", "holds", "holds"),
        ("holds holds", "holds", "holds"),
        ("fails fails", "fails", "fails"),
        ("undecided", "undecided", "undecided"),
        ("undecided undecided", "undecided", "undecided"),
        ("holds undecided holds", "undecided", "undecided (2 hold, 1 undecided)"),
        ("fails undecided", "fails", "fails (1 fail, 1 undecided)"),
        ("vacuous vacuous", "vacuous", "vacuous"),
        ("vacuous holds", "holds", "holds (1 hold, 1 vacuous)"),
        ("vacuous undecided", "undecided", "undecided (1 undecided, 1 vacuous)"),
        ("holds fails", "depends", "depends on place: holds for 0; fails for 1 (1 hold, 1 fail)"),
        ("vacuous fails", "depends", "depends on place: holds for 0; fails for 1 (1 fail, 1 vacuous)"),
        (
            "undecided fails holds vacuous undecided undecided",
            "depends",
            "depends on place: holds for 2, 3; fails for 1 (1 hold, 1 fail, 3 undecided, 1 vacuous)",
        ),
        ("holds fails holds fails", "depends", "depends on place: holds for 0, 2; fails for 1, 3 (2 hold, 2 fail)"),
        ("holds fails holds fails fails", "depends", "depends on place (2 hold, 3 fail)"),
    ],
)
def test_outcomes_of_cases_become_a_verdict(words, word, text):
    found = judged(*((outcome, {"place": i}) for i, outcome in enumerate(words.split())))
    assert (found.word, found.text) == (word, text)


def test_the_one_property_that_explains_it_is_named():
    cases = [
        (outcome, {"data set": number, "normalisation": normalize, "policy": "cslb"})
        for normalize, outcome in (("max", "holds"), ("unit", "fails"))
        for number in ("(1)", "(2)")
    ]
    assert judged(*cases).text == "depends on normalisation: holds for max; fails for unit (2 hold, 2 fail)"


def test_an_undecided_case_is_not_generalised_over():
    cases = [
        ("undecided", {"data set": "(1)", "normalisation": "max"}),
        ("holds", {"data set": "(2)", "normalisation": "max"}),
        ("fails", {"data set": "(1)", "normalisation": "unit"}),
        ("fails", {"data set": "(2)", "normalisation": "unit"}),
    ]
    where = "depends on data set and normalisation: holds for (2) max; fails for (1) unit, (2) unit"
    assert judged(*cases).text == f"{where} (1 hold, 2 fail, 1 undecided)"


def test_two_properties_are_named_where_one_is_not_enough():
    cases = [
        ("holds" if (a == "x") == (b == "p") else "fails", {"first": a, "idle": c, "second": b})
        for a in "xy"
        for b in "pq"
        for c in "mn"
    ]
    where = "depends on first and second: holds for x p, y q; fails for x q, y p"
    assert judged(*cases).text == f"{where} (4 hold, 4 fail)"


def test_cases_that_nothing_tells_apart():
    found = judged(("holds", {"a": 1}), ("fails", {"a": 1}))
    assert found.text == "depends on what was not varied here (1 hold, 1 fail)"


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
    assert found.text == expected
    figure = found.findings[0].figures["largest regret / bound, any round"]
    assert figure == pytest.approx(factor)


@pytest.mark.parametrize(("factor", "expected"), [(0.999, "vacuous"), (1.001, "holds")])
def test_a_bound_that_no_policy_could_exceed_is_vacuous(factor, expected):
    def edit(name, key, run, made):
        if name == "regret":
            made.largest_gap = factor * papers_bound(key[0], T, made.clusters) / T

    found = verdict("theorem-bound", edit)
    assert found.text == expected
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
    assert len(experiment) == len(list(experiment)) == 4 * 2 * 6
    assert experiment[1, "max", "oful"].regret.tolist() == [150.0] * 5
    with pytest.raises(NotPlayedError, match=r"1, max, linucb"):
        experiment[1, "max", "linucb"]


def test_an_experiment_can_be_asked_for_a_key():
    experiment = world()["regret"]
    assert (1, "max", "oful") in experiment
    assert (1, "max", "linucb") not in experiment
    assert experiment.get((1, "max", "linucb")) is None
