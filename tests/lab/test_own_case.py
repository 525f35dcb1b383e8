"""A user's own case: scenes from flags, plans that refuse what is not allowed, claims on any policies."""

import dataclasses
import io
import json
import os

import numpy as np
import polars
import pytest
from conftest import rounds

from sketchbandits.lab.experiments.pool import play_all
from sketchbandits.lab.experiments.run_journal import RunJournal
from sketchbandits.lab.experiments.scenes import GENERATORS, Model, file_digest
from sketchbandits.lab.experiments.tasks import Outcome, Task
from sketchbandits.lab.intervals import interval, ratio
from sketchbandits.lab.own_case import GENERATOR_OPTIONS, OwnPlan, claims, file_scene, generated_scene
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


@pytest.fixture
def theta(tmp_path):
    """Write a parameter and give its path."""

    def write(values):
        path = tmp_path / "theta.npy"
        if isinstance(values, bytes):
            path.write_bytes(values)
        else:
            np.save(path, values, allow_pickle=True)
        return str(path)

    return write


# --- generated arms ---


def test_every_generator_has_its_options():
    assert set(GENERATOR_OPTIONS) == set(GENERATORS)


@pytest.mark.parametrize(
    ("generator", "given", "parameter"),
    [
        ("correlated", {"dim": 7, "group_size": 3}, "uniform"),
        ("heavy-tailed", {"n_arms": 20, "decay": 0.25}, "isotropic"),
        ("subspaces", {"rank": 2, "n_subspaces": 3}, "isotropic"),
    ],
)
def test_options_that_are_not_given_have_defaults(generator, given, parameter):
    scene = generated_scene(MODEL, generator, given, "unit")
    assert dict(scene.options) == {**GENERATOR_OPTIONS[generator], **given}
    assert (scene.name, scene.generator, scene.normalize) == (generator, generator, "unit")
    assert (scene.model, scene.parameter) == (MODEL, parameter)
    drawn = scene.draw(0)
    assert drawn.arms.shape == tuple(dict(scene.options)[name] for name in ("n_arms", "dim"))
    expected = GENERATORS[generator](**dict(scene.options), normalize="unit", seed=0)
    assert np.array_equal(drawn.arms, expected)


def test_the_defaults_are_the_papers_first_data_set():
    scene = generated_scene(MODEL, "correlated", {}, "max")
    assert dict(scene.options) == {"n_arms": 60, "dim": 50, "group_size": 1}


@pytest.mark.parametrize(
    ("generator", "options", "normalize", "message"),
    [
        ("gaussian", {}, "max", "generator must be one of 'correlated', 'heavy-tailed', 'subspaces', got 'gaussian'"),
        ("correlated", {}, "none", "normalize must be one of 'max', 'unit', got 'none'"),
        ("correlated", {"rank": 3}, "max", "rank must come with the generator subspaces, got 3 with correlated"),
        ("subspaces", {"decay": 0.5}, "max", "decay must come with the generator heavy-tailed, got 0.5 with subspaces"),
        ("correlated", {"n_arms": 0}, "max", "n_arms must be a whole number >= 1, got 0"),
        ("correlated", {"dim": "many"}, "max", "dim must be a whole number >= 1, got 'many'"),
        ("heavy-tailed", {"decay": -1.0}, "max", "decay must be a number >= 0"),
        ("subspaces", {"rank": 50}, "max", "rank must be a whole number from 1 to 49, got 50"),
        ("subspaces", {"n_subspaces": 20}, "max", "n_arms must be a whole number >= 80, got 60"),
    ],
)
def test_what_a_generator_refuses_is_refused_at_once(generator, options, normalize, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        generated_scene(MODEL, generator, options, normalize)


# --- arms of a file ---


def test_a_file_becomes_a_scene(arms, theta, monkeypatch):
    known = np.linspace(-0.3, 0.4, D)
    monkeypatch.chdir(os.path.dirname(arms))
    scene = file_scene(MODEL, "my arms.npy", None, None, theta(known), "unit")
    assert (scene.name, scene.path, scene.digest) == ("my arms.npy", arms, file_digest(arms))
    assert scene.theta == tuple(known.tolist())
    assert (scene.normalize, scene.parameter, scene.model) == ("unit", "isotropic", MODEL)
    assert np.allclose(np.linalg.norm(scene.draw(3).arms, axis=1), 1.0)
    assert np.array_equal(scene.draw(3).env.theta, known)


def test_columns_are_chosen(tmp_path, theta):
    path = str(tmp_path / "arms.parquet")
    polars.DataFrame({"id": ["x", "y"], "a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0]}).write_parquet(path)
    scene = file_scene(MODEL, path, "id", ("c", "a"), theta(np.array([0.5, 0.25])), "none")
    assert (scene.id_column, scene.features) == ("id", ("c", "a"))
    assert scene.draw(0).arms.tolist() == [[5.0, 1.0], [6.0, 2.0]]
    assert scene.draw(0).env.means.tolist() == [2.75, 3.5]
    with pytest.raises(ValueError, match=r"theta must be .* a vector of length 2, as the arms have"):
        file_scene(MODEL, path, "id", ("c", "a"), theta(np.array([0.5, 0.25, 0.1])), "none")
    with pytest.raises(ValueError, match=r"features must be among .*, got 'd'"):
        file_scene(MODEL, path, "id", ("c", "d"), None, "none")


def test_a_parameter_of_integers_and_of_full_length_is_taken(arms, theta):
    scene = file_scene(
        dataclasses.replace(MODEL, theta_norm=2.0), arms, None, None, theta(np.eye(D, dtype=int)[2] * 2), "none"
    )
    assert scene.theta == (0.0, 0.0, 2.0, 0.0, 0.0, 0.0)


def npy(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def npz(values):
    file = io.BytesIO()
    np.savez(file, values)
    return file.getvalue()


GOOD = npy(np.full(D, 0.1))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(np.full(D + 1, 0.1), id="too long"),
        pytest.param(np.full(D - 1, 0.1), id="too short"),
        pytest.param(np.full((1, D), 0.1), id="a matrix"),
        pytest.param(np.array(0.1), id="one number"),
        pytest.param(np.array([0.1] * (D - 1) + [np.nan]), id="nan"),
        pytest.param(np.array(["0.1"] * D), id="words"),
        pytest.param(np.array([0.1] * D, dtype=object), id="pickled"),
        pytest.param(npz(np.full(D, 0.1)), id="an archive"),
        pytest.param(b"", id="empty"),
        pytest.param(b"0.1,0.1,0.1,0.1,0.1,0.1\n", id="text"),
        pytest.param(GOOD[:-1], id="cut in the data"),
        pytest.param(GOOD[:60], id="cut in the head"),
        pytest.param(GOOD.replace(b"}", b"{"), id="a head that does not parse"),
        pytest.param(
            GOOD.replace(b"(6,), }" + b" " * 14, b"(999999999999999,), }"), id="a head that promises too much"
        ),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused(arms, theta, values):
    path = theta(values)
    with pytest.raises(
        ValueError, match=r"^theta must be a .npy file with a vector of length 6, as the arms have, got '.*theta.npy'"
    ) as caught:
        file_scene(MODEL, arms, None, None, path, "none")
    assert type(caught.value) is ValueError


def test_a_parameter_longer_than_promised_is_refused(arms, theta):
    path = theta(np.full(D, 0.5))  # of norm 1.22
    with pytest.raises(ValueError, match=r"^theta must have a norm of at most --theta-norm 1, got 1.22474$"):
        file_scene(MODEL, arms, None, None, path, "none")
    assert file_scene(Model(L, theta_norm=1.23), arms, None, None, path, "none").theta == (0.5,) * D


def test_files_that_are_not_there_are_os_errors(arms, tmp_path):
    with pytest.raises(FileNotFoundError):
        file_scene(MODEL, str(tmp_path / "none.npy"), None, None, None, "none")
    with pytest.raises(FileNotFoundError):
        file_scene(MODEL, arms, None, None, str(tmp_path / "none.npy"), "none")


def test_bad_scaling_of_a_file_is_refused(arms):
    with pytest.raises(ValueError, match="normalize must be one of 'none', 'max', 'unit', got 'l2'"):
        file_scene(MODEL, arms, None, None, None, "l2")


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


def test_the_papers_plan_times_the_slow_twins_on_shorter_runs():
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
    assert regret.findings[0].figures["oful minus cslb"] == interval([50.0, 51.0, 50.0])
    assert regret.text == "undecided (1 hold, 1 undecided)"
    time = findings_of(plan, values, "less-time")
    assert [finding.outcome for finding in time.findings] == ["fails", "undecided"]
    assert time.findings[0].figures["cslb / oful"] == pytest.approx(ratio(SLOW, FAST))
    assert time.word == "fails"
    sublinear = findings_of(plan, values, "sublinear")
    assert [(finding.case["policy"], finding.outcome) for finding in sublinear.findings] == [
        ("cslb", "holds"), ("oful", "holds"), ("ucb1:exploration=1", "fails"),
    ]  # fmt: skip
    assert sublinear.text == "depends on policy: holds for cslb, oful; fails for ucb1:exploration=1 (2 hold, 1 fail)"


def test_the_order_of_the_policies_says_who_is_judged(scene):
    values = {"cslb": (0.5, (100.0, 110.0, 120.0), SLOW), "oful": (0.5, (150.0, 161.0, 170.0), FAST)}
    for text, regret, time in (("cslb,oful", "holds", "fails"), ("oful,cslb", "fails", "holds")):
        plan = plan_of(scene, text)
        assert findings_of(plan, values, "less-regret").text == regret
        assert findings_of(plan, values, "less-time").text == time
        assert all(claim.statement.startswith(plan.policies[0].label) for claim in claims(plan)[:2])


def test_a_policy_alone_is_judged_alone(scene):
    plan = plan_of(scene, "cslb")
    assert [claim.id for claim in claims(plan)] == ["sublinear"]
    assert findings_of(plan, {"cslb": (0.5, (1.0, 2.0, 3.0), FAST)}, "sublinear").text == "holds"


@pytest.mark.parametrize(("power", "outcome"), [(0.5, "holds"), (0.69, "holds"), (0.77, "fails"), (1.0, "fails")])
def test_sublinear_is_a_late_slope_below_eight_tenths(scene, power, outcome):
    # Late over middle slope of t^a is (1 - 0.75^a) / (0.5^a - 0.25^a): 0.79 for a = 0.72, 0.81 for a = 0.75.
    plan = plan_of(scene, "cslb")
    assert findings_of(plan, {"cslb": (power, (1.0, 2.0, 3.0), FAST)}, "sublinear").text == outcome


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
    plan = plan_of(scene, "ucb1:exploration=50,ucb1:exploration=0.05,linucb:alpha=0.2", seed=1)
    plan.check()
    outcomes = play_all(plan.tasks(), RunJournal(tmp_path / "runs.jsonl"), jobs=1, watch=lambda *call: None)
    study = plan.study(outcomes)
    assert set(outcomes) == set(plan.tasks()) and len(outcomes) == 18
    place = ("correlated", "max")
    regret = {str(policy): study["regret"][*place, str(policy)].regret for policy in plan.policies}
    assert all(values.shape == (3,) and (values >= 0).all() for values in regret.values())
    verdicts = {claim.id: judge(claim, study) for claim in claims(plan)}
    less, first = verdicts["less-regret"], str(plan.policies[0])
    for finding, rival in zip(less.findings, plan.policies[1:], strict=True):
        margin = interval(regret[str(rival)] - regret[first])
        assert finding.figures == {f"{rival} minus {first}": margin}
        expected = "holds" if margin.low > 0 else "fails" if margin.high < 0 else "undecided"
        assert finding.outcome == expected
    assert less.word == "fails"  # so much exploration never pays
    times = {str(policy): study["time"][*place, str(policy)].microseconds for policy in plan.policies}
    for finding, rival in zip(verdicts["less-time"].findings, plan.policies[1:], strict=True):
        assert finding.figures == {f"{first} / {rival}": ratio(times[first], times[str(rival)])}
    for verdict in verdicts.values():
        json.dumps(verdict.as_json(), allow_nan=False)


def test_a_policy_that_was_not_played_is_said(scene):
    plan = plan_of(scene, "cslb,oful")
    study = study_of(plan_of(scene, "cslb"), {"cslb": (0.5, (1.0, 2.0, 3.0), FAST)})
    verdict = judge(claims(plan)[0], study)
    assert verdict.word == "not judged"
    assert "oful" in verdict.text and "was not played" in verdict.text


def test_a_contender_is_found_by_its_text(scene):
    plan = plan_of(scene, "cslb:ridge=2,delta=0.5")
    assert plan.policies == (PolicySpec("cslb", (("delta", 0.5), ("ridge", 2))),)
    assert list(plan.experiments["regret"]) == [("correlated", "max", "cslb:delta=0.5,ridge=2")]
