"""Verdicts on made-up runs: every claim where it must hold, where it must fail, and where nothing can be said."""

import json
import math

import numpy as np
import pytest
from made_worlds import (
    AROUND,
    CASES,
    CLAIM,
    IDS,
    KEYS,
    OFUL,
    RIGHT,
    T,
    all_times,
    arms_all,
    blocks_of,
    gains_equal,
    gains_small,
    growth_of,
    is_cslb,
    on,
    one_run,
    outcomes,
    scaled,
    searching,
    sizes_unclear,
    sizes_wrong,
    slopes,
    verdict,
    world,
)

from sketchbandits.lab import intervals
from sketchbandits.lab.intervals import Interval
from sketchbandits.lab.paper.claims import CLAIMS, judge
from sketchbandits.lab.verdict import Finding, Verdict


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 2_000)  # thousands of intervals, none of them close


def test_the_experiments_hold_all_that_these_worlds_need():
    assert set(KEYS) == set(RIGHT)


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_holds_where_the_paper_is_right(claim):
    found = verdict(claim)
    assert found.text == f"holds ({CASES[claim]} hold, 0 fail, 0 undecided; {CASES[claim]} of {CASES[claim]} decided)"
    assert outcomes(found) == {"holds"}


@pytest.mark.parametrize("claim", IDS)
def test_a_little_noise_does_not_change_it(claim):
    rng = np.random.default_rng(0)

    def noisy(name, key, run, made):
        made.final *= 1 + 0.01 * rng.standard_normal()
        made.microseconds *= 1 + 0.01 * rng.standard_normal()

    assert verdict(claim, noisy).word == "holds"


# --- worlds in which it is wrong, and in which nobody can say ---


WRONG = {
    "lowest-regret": on("regret", scaled("final", 90.0), policy=OFUL),
    "beats-sketches": on("regret", scaled("final", 10.0), policy="cbscfd"),
    "sketches-do-not-converge": slopes(("soful", "cbscfd"), 0.5),
    "cslb-sublinear": slopes(("cslb",), 1.0),
    "linear-beats-ucb1": on("regret", scaled("final", 10.0), policy="ucb1"),
    "largest-gains-where-clustered": gains_small,
    "theorem-bound": on("regret", scaled("final", 1e6), policy="cslb"),
    "clusters-at-most": on("regret", scaled("clusters", 41), policy="cslb"),
    "ucb1-grows-with-arms": arms_all(lambda policy: 0.5 if policy == "ucb1" else 1.0),
    "l-sqrt-k-predicts": sizes_wrong,
    "faster-than-oful": on("time", scaled("microseconds", 0.05), policy=OFUL),
    "slightly-faster-than-sketches": all_times(lambda key, run: 0.1 if is_cslb(key) else 1.0),
    "ucb1-fastest": on("time", scaled("microseconds", 20.0), policy="ucb1"),
    "search-saves-time": searching(0.25),
    "warmup-negligible": on("time", scaled("warmup", 1.0)),
    "round-cost": growth_of(1.5, 3.0, 0.5),
    "dbslinucb-falls-back": blocks_of(1.0, 2.0),
}

UNCLEAR = {
    "lowest-regret": on("regret", scaled("final", 100.0), policy=OFUL, spread=True),
    "beats-sketches": on(
        "regret", lambda made, factor: setattr(made, "final", 300.0 * factor**2), policy="cslb", spread=True
    ),
    "sketches-do-not-converge": slopes(("soful", "cbscfd"), 0.75, spread=True),
    "cslb-sublinear": slopes(("cslb",), 0.75, spread=True),
    "linear-beats-ucb1": on("regret", scaled("final", 120.0), policy="ucb1", spread=True),
    "largest-gains-where-clustered": gains_equal,
    "ucb1-grows-with-arms": arms_all(lambda policy: 0.75, spread=True),
    "l-sqrt-k-predicts": sizes_unclear,
    "faster-than-oful": all_times(
        lambda key, run: AROUND[run] * {"cslb": 10 / 0.6}.get(key[2], 10 / 3) if is_cslb(key) else 1.0
    ),
    "slightly-faster-than-sketches": all_times(lambda key, run: AROUND[run] if is_cslb(key) else 1.0),
    "ucb1-fastest": on("time", scaled("microseconds", 0.6), policy="ucb1", spread=True),
    "search-saves-time": searching(0.5, spread=True),
    "warmup-negligible": lambda name, key, run, made: setattr(
        made, "warmup", 1e-8 * made.microseconds * T * AROUND[run]
    ),
    "round-cost": growth_of(1.2, 2.4, 0.1, spread=0.02),
    "dbslinucb-falls-back": blocks_of(1.5, 1.5, spread=0.1),
}


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_fails_where_the_paper_is_wrong(claim):
    found = verdict(claim, WRONG[claim])
    assert found.word == "fails"
    assert outcomes(found) == {"fails"}


@pytest.mark.parametrize("claim", UNCLEAR)
def test_nothing_is_claimed_where_intervals_lie_on_both_sides(claim):
    found = verdict(claim, UNCLEAR[claim])
    assert outcomes(found) <= {"undecided", "holds"} and "undecided" in outcomes(found)
    assert found.word == "undecided"


def test_what_is_counted_and_not_estimated_is_always_decided():
    assert set(IDS) - set(UNCLEAR) == {"theorem-bound", "clusters-at-most"}


# --- what it depends on ---


def test_a_claim_that_holds_under_one_normalisation_depends_on_it():
    def edit(name, key, run, made):
        if name == "regret" and key[1] == "unit" and key[2] in OFUL:
            made.final = 50.0

    expected = "depends on normalisation: holds for max; fails for unit (4 hold, 4 fail, 0 undecided; 8 of 8 decided)"
    assert verdict("lowest-regret", edit).text == expected


def test_a_claim_that_holds_on_one_data_set_depends_on_it():
    edit = on("regret", scaled("final", 50.0), policy=OFUL, place=2)
    expected = "depends on data set: holds for (1); fails for (2) (4 hold, 4 fail, 0 undecided; 8 of 8 decided)"
    assert verdict("lowest-regret", edit).text == expected


def test_a_claim_that_holds_in_one_form_depends_on_it():
    edit = on("time", scaled("microseconds", 11.0), policy="cslb:engine=sketch")
    expected = "depends on form: holds for cheaper forms; fails for as printed (16 hold, 16 fail, 0 undecided; "
    assert verdict("faster-than-oful", edit).text == f"{expected}32 of 32 decided)"


def test_a_claim_that_holds_under_one_reading_of_oful_depends_on_it():
    # With the log-det radius OFUL beats UCB1 everywhere, with the closed one nowhere.
    edit = on("regret", scaled("final", 2_000.0), policy=OFUL[0])
    found = verdict("linear-beats-ucb1", edit)
    counted = "(8 hold, 4 fail, 0 undecided; 12 of 12 decided)"
    assert found.text == f"depends on OFUL's radius: holds for logdet, -; fails for closed {counted}"
    edit = on("regret", scaled("final", 50.0), policy=OFUL[1])
    assert verdict("lowest-regret", edit).phrase(short=True).startswith("depends on OFUL's radius (4 hold, 4 fail")


def test_one_reading_of_oful_is_judged_alone():
    for kept, radius in zip(OFUL, ("closed", "logdet"), strict=True):
        left_out = {"regret": lambda key, kept=kept: key[2] in OFUL and key[2] != kept}
        found = verdict("lowest-regret", left_out=lambda name, key, out=left_out: name in out and out[name](key))
        assert {finding.case["OFUL's radius"] for finding in found.findings} == {radius}
        assert found.text == "holds (4 hold, 0 fail, 0 undecided; 4 of 4 decided)"


def test_only_the_longer_run_tells_whether_regret_is_sublinear():
    assert verdict("cslb-sublinear", on("long", scaled("power", 1.0))).word == "fails"
    found = verdict("cslb-sublinear", on("regret", scaled("power", 1.0), policy="cslb"))
    assert found.word == "holds"
    assert found.findings[0].figures["at T = 1,000"].mean == pytest.approx(1.0)


# --- what was not played ---


def without(policies=(), datasets=()):
    def left_out(name, key):
        if name in ("regret", "time"):
            return key[0] in datasets or key[2].split(":")[0] in policies
        return name == "long" and key[0] in datasets

    return left_out


@pytest.mark.parametrize(
    ("left_out", "lost"),
    [
        (
            without(policies=("oful",)),
            {
                "lowest-regret": "(1, max, oful)",
                "sketches-do-not-converge": "(1, max, oful)",
                "linear-beats-ucb1": "(3, max, oful)",
                "faster-than-oful": "(1, max, oful)",
                "ucb1-fastest": "(3, max, oful)",
            },
        ),
        (without(policies=("ucb1",)), {"linear-beats-ucb1": "(3, max, ucb1)", "ucb1-fastest": "(3, max, ucb1)"}),
        (
            without(policies=("cbscfd",)),
            {
                "lowest-regret": "(1, max, cbscfd)",
                "beats-sketches": "(1, max, cbscfd)",
                "sketches-do-not-converge": "(1, max, cbscfd)",
                "largest-gains-where-clustered": "(1, max, cbscfd)",
                "slightly-faster-than-sketches": "(1, max, cbscfd:shrink=every-round)",
                "ucb1-fastest": "(3, max, cbscfd:shrink=every-round)",
            },
        ),
        (without(datasets=(4,)), {"largest-gains-where-clustered": "data set 4"}),
        (
            without(datasets=(3, 4)),
            {
                "largest-gains-where-clustered": "data set 4",
                "linear-beats-ucb1": "data set 3 or 4",
                "ucb1-fastest": "data set 3 or 4",
            },
        ),
        (
            without(datasets=(1, 2)),
            {
                "lowest-regret": "data set 1 or 2",
                "sketches-do-not-converge": "data set 1 or 2",
                "slightly-faster-than-sketches": "data set 1 or 2",
                "largest-gains-where-clustered": "(1, max, soful)",
            },
        ),
    ],
)
def test_what_was_not_played_is_said_and_the_rest_is_judged(left_out, lost):
    study = world(left_out=left_out)
    for claim in CLAIMS:
        found = judge(claim, study)
        if claim.id in lost:
            assert found.word == "not judged" and not found.findings
            assert found.text.startswith("not judged: ") and found.text.endswith(f"{lost[claim.id]} was not played")
        else:
            assert found.word == "holds"


def test_one_data_set_is_judged_alone():
    found = verdict("lowest-regret", left_out=without(datasets=(2, 3, 4)))
    assert found.word == "holds"
    assert {finding.case["data set"] for finding in found.findings} == {"(1)"}


# --- what is written down ---


def test_claims_are_told_apart_and_declared():
    assert len(set(IDS)) == len(IDS) == len(CASES) == 17
    assert len({claim.statement for claim in CLAIMS}) == len(IDS)
    for claim in CLAIMS:
        assert claim.id == claim.id.lower() and " " not in claim.id
        assert claim.statement.endswith(".") and claim.rule.endswith(".")


THRESHOLDS = {
    "lowest-regret": ["above 0", "below 0", "95 %"],
    "beats-sketches": ["As lowest-regret"],
    "sketches-do-not-converge": ["above 0.8", "95 %", "Undecided instead where OFUL"],
    "cslb-sublinear": ["below 0.8", "as in sketches-do-not-converge", "ten times as many rounds"],
    "linear-beats-ucb1": ["above 0", "95 %"],
    "largest-gains-where-clustered": ["above 1", "95 %"],
    "theorem-bound": ["above the bound", "T x largest gap"],
    "clusters-at-most": ["every run", "larger"],
    "ucb1-grows-with-arms": ["above 0.75", "20, 40, 80, 160", "95 %", "above 50% of uniform play's"],
    "l-sqrt-k-predicts": ["below 1 and l sqrt(K) < d", "95 %"],
    "faster-than-oful": ["below 1", "95 %"],
    "slightly-faster-than-sketches": ["between 0.5 and 1", "95 %"],
    "ucb1-fastest": ["below 1", "95 %"],
    "search-saves-time": ["more than half"],
    "warmup-negligible": ["below 1%", "95 %"],
    "round-cost": ["below 1.2 in d", "below 2.4 in l", "within 0.1 of 0", "95 %"],
    "dbslinucb-falls-back": ["d = 50, 100, 200", "above 1.5", "rank 10", "95 %"],
}


@pytest.mark.parametrize("claim", CLAIMS, ids=IDS)
def test_a_rule_says_where_its_line_is(claim):
    for words in THRESHOLDS[claim.id]:
        assert words in claim.rule


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_verdicts_are_valid_json_without_nan(runs):
    study = world(runs=runs)
    for claim in CLAIMS:
        found = judge(claim, study)
        text = json.dumps(found.as_json(), allow_nan=False)
        entry = json.loads(text)
        assert (entry["id"], entry["statement"], entry["rule"]) == (claim.id, claim.statement, claim.rule)
        assert entry["verdict"] == found.text
        assert len(entry["evidence"]) == CASES[claim.id]
        assert {evidence["outcome"] for evidence in entry["evidence"]} == outcomes(found)
        assert outcomes(found) == ({"undecided"} if runs == 1 and claim.id in UNCLEAR else {"holds"})


def test_evidence_holds_cases_and_intervals():
    (evidence, *_) = verdict("lowest-regret").as_json()["evidence"]
    assert evidence == {
        "data set": "(1)", "normalisation": "max", "OFUL's radius": "closed", "outcome": "holds",
        "level": pytest.approx(1 - 0.05 / 3), "cslb": 100.0,
        "oful minus cslb": [50.0] * 3, "soful minus cslb": [200.0] * 3, "cbscfd minus cslb": [300.0] * 3,
    }  # fmt: skip
    figures = {"a": Interval(1.0, math.nan, math.nan), "b": 2, "c": "three"}
    (evidence,) = Verdict(CLAIM, [Finding({"place": 1}, "undecided", figures)]).as_json()["evidence"]
    assert evidence == {"place": 1, "outcome": "undecided", "level": None, "a": [1.0, None, None], "b": 2, "c": "three"}


def test_figures_of_the_warm_up():
    # Half a millisecond before rounds of 0.6 and 3 microseconds.
    found = verdict("warmup-negligible", on("time", scaled("warmup", 5e-4)))
    by_form = {finding.case["form"]: finding.figures for finding in found.findings}
    for form, microseconds in (("as printed", 3.0), ("cheaper forms", 0.6)):
        for rounds in (10, 1_000):
            share = 5e-4 / (5e-4 + 1e-6 * microseconds * rounds)
            assert by_form[form][f"share of all time at T = {rounds:,}"].mean == pytest.approx(share)
        rounds = by_form[form]["T from which it is below 1 %"]
        assert 5e-4 / (5e-4 + 1e-6 * microseconds * rounds) == pytest.approx(0.01, rel=1e-3)


def test_figures_of_the_clusters():
    found = verdict("clusters-at-most", one_run("regret", "clusters", 2, lambda key: key[0] == 1))
    figures = [finding.figures for finding in found.findings]
    assert figures[0] == {"K": "2 to 12", "ceil(N / l)": 12, "strictly below, as printed": False}
    assert figures[-1] == {"K": "40 to 40", "ceil(N / l)": 40, "strictly below, as printed": False}
    below = verdict("clusters-at-most", on("regret", scaled("clusters", 9)))
    assert {finding.figures["strictly below, as printed"] for finding in below.findings} == {True}
