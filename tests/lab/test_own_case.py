"""A user's own case: scenes from flags, plans that refuse what is not allowed, claims on any policies."""

import json

import numpy as np
import pytest
from conftest import rounds

from sketchbandits.lab.experiments.pool import play_all
from sketchbandits.lab.experiments.run_journal import RunJournal
from sketchbandits.lab.experiments.scenes import Model
from sketchbandits.lab.experiments.tasks import Outcome, Task
from sketchbandits.lab.intervals import interval, ratio
from sketchbandits.lab.own_case import OwnPlan, claims, file_scene, generated_scene
from sketchbandits.lab.paper.claims import judge
from sketchbandits.lab.paper.reproduce import AS_PRINTED, PaperPlan
from sketchbandits.policies.registry import PolicySpec, parse_policies

N, D, L = 13, 6, 4
MODEL = Model(L)
T = rounds(3_000, 120)


@pytest.fixture(scope="module")
def scene():
    return generated_scene(MODEL, "correlated", {"n_arms": N, "dim": D}, "max")


@pytest.fixture
def arms(tmp_path):
    path = tmp_path / "my arms.npy"
    np.save(path, np.random.default_rng(0).standard_normal((N, D)))
    return str(path)


# --- plans ---


def plan_of(scene, text="cslb,oful,ucb1:exploration=1", **fields):
    return OwnPlan(**{"scene": scene, "policies": parse_policies(text), "rounds": T, "runs": 3, **fields})


def test_a_plan_has_two_experiments_with_the_same_keys(scene):
    plan = plan_of(scene, seed=5)
    names = ["cslb", "oful", "ucb1:exploration=1"]
    keys = [("correlated", "max", name) for name in names]
    assert {name: list(groups) for name, groups in plan.experiments.items()} == {"regret": keys, "time": keys}
    for key, policy in zip(keys, plan.policies, strict=True):
        assert plan.experiments["regret"][key] == tuple(Task(scene, policy, T, run, 5, False) for run in range(3))
        timed = tuple(Task(scene, policy, plan.timed_rounds, run, 5, True) for run in range(3))
        assert plan.experiments["time"][key] == timed


def test_timed_runs_come_last_and_meet_every_policy_in_turn(scene):
    tasks = plan_of(scene).tasks()
    assert [task.timed for task in tasks] == [False] * 9 + [True] * 9
    kinds = ("cslb", "oful", "ucb1")
    assert [(task.run, task.policy.name) for task in tasks[9:]] == [(run, kind) for run in range(3) for kind in kinds]


@pytest.mark.parametrize(("length", "timed"), [(100, 100), (999, 999), (5_000, 1_000), (8_000, 1_000), (80_000, 5_000)])
def test_a_timed_run_is_an_eighth(scene, length, timed):
    assert plan_of(scene, rounds=length).timed_rounds == timed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rounds": 99}, "rounds must be a whole number from 100 to 1000000000, got 99"),
        ({"rounds": 10**9 + 1}, "rounds must be a whole number from 100 to 1000000000, got 1000000001"),
        ({"rounds": "many"}, "rounds must be a whole number from 100 to 1000000000, got 'many'"),
        ({"rounds": 1e3}, "rounds must be a whole number from 100 to 1000000000, got 1000.0"),
        ({"runs": 0}, "runs must be a whole number from 1 to 1000, got 0"),
        ({"runs": 1_001}, "runs must be a whole number from 1 to 1000, got 1001"),
        ({"runs": True}, "runs must be a whole number from 1 to 1000, got True"),
        ({"seed": -1}, "seed must be a whole number >= 0, got -1"),
        ({"seed": None}, "seed must be a whole number >= 0, got None"),
        ({"policies": ()}, "policies must name at least one, got none"),
    ],
)
def test_bad_fields_of_a_plan_are_named(scene, change, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        plan_of(scene, **change)
    with pytest.raises(ValueError, match=f"^{message}$"):
        PaperPlan(**change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"datasets": (5,)}, "datasets must be a whole number from 1 to 4, got 5"),
        ({"datasets": ()}, "datasets must be a whole number from 1 to 4, got 0"),
        ({"datasets": (1, 2, 1)}, "datasets must be named once each, got '1,2,1'"),
        ({"normalize": ("l2",)}, "normalize must be one of 'max', 'unit', got 'l2'"),
        ({"normalize": ()}, "normalize must be one of 'max', 'unit', got ''"),
        ({"normalize": ("max", "max")}, "normalize must be named once each, got 'max,max'"),
    ],
)
def test_bad_fields_of_the_papers_plan_are_named(change, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        PaperPlan(**change)


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("cslb:sketch_size=0", "sketch_size must be a whole number >= 1, got 0"),
        ("oful,cslb:radius=closed", "radius must be one of 'paper', 'logdet'"),
        ("oful:delta=2", "delta must be a number strictly between 0 and 1, got 2"),
        ("oful:arm_norm=0.5", "arm_norm must be at least the largest arm norm 1, got 0.5"),
        ("ucb1,soful:shrink=never", "shrink must be one of"),
        ("dbslinucb:compensated=1", "compensated must be True or False, got 1"),
    ],
)
def test_options_that_a_policy_refuses_are_refused_before_the_first_round(scene, text, option):
    bad = text.split(",")[-1]
    with pytest.raises(ValueError, match=f"^policies must have options that are allowed, got '{bad}': {option}"):
        plan_of(scene, text).check()
    with pytest.raises(ValueError, match=f"^policies must have options that are allowed, got '{bad}': {option}"):
        PaperPlan(policies=parse_policies(text)).check()


def test_what_is_allowed_passes_the_check(scene, arms):
    plan_of(scene, "all").check()
    plan_of(file_scene(MODEL, arms, None, None, None, "none"), "all").check()
    PaperPlan().check()


def test_the_papers_plan_times_the_slow_forms_on_shorter_runs():
    plan = PaperPlan(
        rounds=16_000, runs=2, datasets=(3,), normalize=("unit",), policies=parse_policies("cslb,ucb1,soful")
    )
    times = {key: group[0].rounds for key, group in plan.experiments["time"].items()}
    assert times == {
        (3, "unit", "cslb"): 16_000,
        (3, "unit", str(AS_PRINTED["cslb"])): 200,
        (3, "unit", "ucb1"): 16_000,
        (3, "unit", "soful"): 1_000,
        (3, "unit", str(AS_PRINTED["soful"])): 200,
    }
    for name, groups in plan.experiments.items():
        alone = name in ("time", "blocks", "growth", "search")
        assert all(task.timed is alone for group in groups.values() for task in group)
        assert all([task.run for task in group] == [0, 1] for group in groups.values())
    assert {group[0].rounds for group in plan.experiments["long"].values()} == {160_000}
    scene = plan.experiments["regret"][3, "unit", "cslb"][1].scene
    assert dict(scene.options) == {"n_arms": 100, "dim": 50, "group_size": 2}
    assert (scene.model.sketch_size, scene.normalize, scene.parameter) == (10, "unit", "uniform")


# --- claims ---


def made_up(power, final, microseconds, length=1_000):
    """A run whose regret grows with a power of the round."""
    points = np.arange(10, length + 1, 10)
    return Outcome(points, final * (points / length) ** power, 1e-6 * microseconds * length, 0.0, {})


def study_of(plan, values):
    """``values[policy]`` are (power, finals, microseconds), the last two one number a run."""
    outcomes = {}
    for groups in plan.experiments.values():
        for key, group in groups.items():
            power, finals, times = values[key[-1]]
            for task, final, time in zip(group, finals, times, strict=True):
                outcomes[task] = made_up(power, final, time)
    return plan.study(outcomes)


def findings_of(plan, values, name):
    (claim,) = (claim for claim in claims(plan) if claim.id == name)
    return judge(claim, study_of(plan, values))


FAST, SLOW = (1.0, 1.1, 1.2), (2.0, 2.1, 2.2)


def test_the_first_policy_is_judged_against_every_rival(scene):
    plan = plan_of(scene)
    values = {
        "cslb": (0.5, (100.0, 110.0, 120.0), SLOW),
        "oful": (0.5, (150.0, 161.0, 170.0), FAST),  # more regret, less time
        "ucb1:exploration=1": (1.0, (90.0, 110.0, 130.0), (1.9, 2.1, 2.3)),  # neither
    }
    regret = findings_of(plan, values, "less-regret")
    assert [(finding.case, finding.outcome) for finding in regret.findings] == [
        ({"rival": "oful"}, "holds"),
        ({"rival": "ucb1:exploration=1"}, "undecided"),
    ]
    assert regret.findings[0].figures["oful minus cslb"] == interval([50.0, 51.0, 50.0], regret.level)
    assert regret.text == "undecided (1 hold, 0 fail, 1 undecided; 1 of 2 decided)"
    time = findings_of(plan, values, "less-time")
    assert [finding.outcome for finding in time.findings] == ["fails", "undecided"]
    assert time.findings[0].figures["cslb / oful"] == pytest.approx(ratio(SLOW, FAST, time.level))
    assert time.text == "undecided (0 hold, 1 fail, 1 undecided; 1 of 2 decided)"
    sublinear = findings_of(plan, values, "sublinear")
    assert [(finding.case["policy"], finding.outcome) for finding in sublinear.findings] == [
        ("cslb", "holds"), ("oful", "holds"), ("ucb1:exploration=1", "fails"),
    ]  # fmt: skip
    assert sublinear.text == (
        "depends on policy: holds for cslb, oful; fails for ucb1:exploration=1 "
        "(2 hold, 1 fail, 0 undecided; 3 of 3 decided)"
    )


def test_the_order_of_the_policies_says_who_is_judged(scene):
    values = {"cslb": (0.5, (100.0, 110.0, 120.0), SLOW), "oful": (0.5, (150.0, 161.0, 170.0), FAST)}
    for text, regret, time in (("cslb,oful", "holds", "fails"), ("oful,cslb", "fails", "holds")):
        plan = plan_of(scene, text)
        assert findings_of(plan, values, "less-regret").word == regret
        assert findings_of(plan, values, "less-time").word == time
        assert all(claim.statement.startswith(plan.policies[0].label) for claim in claims(plan)[:2])


def test_a_policy_alone_is_judged_alone(scene):
    plan = plan_of(scene, "cslb")
    assert [claim.id for claim in claims(plan)] == ["sublinear"]
    assert findings_of(plan, {"cslb": (0.5, (1.0, 2.0, 3.0), FAST)}, "sublinear").word == "holds"


@pytest.mark.parametrize(("power", "outcome"), [(0.5, "holds"), (0.69, "holds"), (0.77, "fails"), (1.0, "fails")])
def test_sublinear_is_a_late_slope_below_eight_tenths(scene, power, outcome):
    # Late over middle slope of t^a is (1 - 0.75^a) / (0.5^a - 0.25^a): 0.79 for a = 0.72, 0.81 for a = 0.75.
    plan = plan_of(scene, "cslb")
    assert findings_of(plan, {"cslb": (power, (1.0, 2.0, 3.0), FAST)}, "sublinear").word == outcome


def test_one_run_decides_nothing_and_is_valid_json(scene):
    plan = plan_of(scene, runs=1)
    values = {
        key: (0.5, (final,), (2.0,)) for key, final in (("cslb", 1.0), ("oful", 9.0), ("ucb1:exploration=1", 9.0))
    }
    for claim in claims(plan):
        verdict = judge(claim, study_of(plan, values))
        assert verdict.word == "undecided"
        assert "NaN" not in json.dumps(verdict.as_json(), allow_nan=False)


def test_rules_are_declared_with_their_thresholds(scene):
    declared = {claim.id: claim.rule for claim in claims(plan_of(scene))}
    assert list(declared) == ["less-regret", "less-time", "sublinear"]
    for name, words in (("less-regret", "above 0"), ("less-time", "below 1"), ("sublinear", "below 0.8")):
        assert words in declared[name]


def test_real_plays_are_judged_by_the_same_rules(scene, tmp_path):
    plan = plan_of(scene, "ucb1:exploration=50,ucb1:exploration=0.05,linucb:alpha=0.2", seed=1, runs=6)
    plan.check()
    outcomes = play_all(plan.tasks(), RunJournal(tmp_path / "runs.jsonl"), jobs=1, watch=lambda *call: None)
    study = plan.study(outcomes)
    assert set(outcomes) == set(plan.tasks()) and len(outcomes) == 36
    place = ("correlated", "max")
    regret = {str(policy): study["regret"][*place, str(policy)].regret for policy in plan.policies}
    assert all(values.shape == (6,) and (values >= 0).all() for values in regret.values())
    verdicts = {claim.id: judge(claim, study) for claim in claims(plan)}
    less, first = verdicts["less-regret"], str(plan.policies[0])
    for finding, rival in zip(less.findings, plan.policies[1:], strict=True):
        margin = interval(regret[str(rival)] - regret[first], less.level)
        assert finding.figures == {f"{rival} minus {first}": margin}
        expected = "holds" if margin.low > 0 else "fails" if margin.high < 0 else "undecided"
        assert finding.outcome == expected
    assert less.word == "fails"  # so much exploration never pays
    times = {str(policy): study["time"][*place, str(policy)].microseconds for policy in plan.policies}
    for finding, rival in zip(verdicts["less-time"].findings, plan.policies[1:], strict=True):
        assert finding.figures == {
            f"{first} / {rival}": ratio(times[first], times[str(rival)], verdicts["less-time"].level)
        }
    for verdict in verdicts.values():
        json.dumps(verdict.as_json(), allow_nan=False)


def test_a_policy_that_was_not_played_is_said(scene):
    plan = plan_of(scene, "cslb,oful")
    study = study_of(plan_of(scene, "cslb"), {"cslb": (0.5, (1.0, 2.0, 3.0), FAST)})
    verdict = judge(claims(plan)[0], study)
    assert verdict.word == "not judged"
    assert "oful" in verdict.text and "was not played" in verdict.text


def test_a_policy_is_found_by_its_text(scene):
    plan = plan_of(scene, "cslb:ridge=2,delta=0.5")
    assert plan.policies == (PolicySpec("cslb", (("delta", 0.5), ("ridge", 2))),)
    assert list(plan.experiments["regret"]) == [("correlated", "max", "cslb:delta=0.5,ridge=2")]
