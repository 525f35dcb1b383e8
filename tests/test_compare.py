"""`sketchbandits.experiments`: the paper's data sets, the plan of a comparison, and what comes out of it."""

from pathlib import Path

import numpy as np
import pytest
import scipy

from sketchbandits import CBRAP, UCB1, Partition, Result, simulate
from sketchbandits.experiments.compare import (
    COMPILING,
    CONTENDERS,
    PLAYING,
    Comparison,
    Plan,
    combine,
    compare,
    write_together,
)
from sketchbandits.experiments.paper import DATASETS, environment

PLAN = Plan(dataset=1, policies=("cbrap", "ucb1"), rounds=300, runs=3, seed=7)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(PLAN)


def result(*names: str, checkpoints: tuple[int, ...] = (5, 10), start: float = 0.0) -> Result:
    regret = {name: np.array([[start + i, start + 2.0 * i]]) for i, name in enumerate(names, 1)}
    return Result(np.array(checkpoints), regret, {n: np.array([start]) for n in names}, dict.fromkeys(names, start))


@pytest.mark.parametrize(
    ("number", "shape", "sketch_size", "group_size"),
    [(1, (60, 50), 5, 1), (2, (100, 50), 10, 1), (3, (100, 50), 10, 2), (4, (200, 50), 5, 10)],
)
def test_the_papers_data_sets(number, shape, sketch_size, group_size):
    dataset = DATASETS[number]
    env = environment(dataset, seed=3)
    assert env.arms.shape == shape
    assert dataset.sketch_size == sketch_size
    assert np.linalg.norm(env.arms, axis=1).max() == pytest.approx(1.0)
    assert np.linalg.norm(env.theta) == pytest.approx(1.0)
    assert env.noise_scale == 1.0
    # Arms of a group lie on one ray, so the partition sees one arm in ``group_size``.
    n_clusters = Partition.first_fit(env.arms, sketch_size=sketch_size).n_clusters
    assert n_clusters == -(-shape[0] // (group_size * sketch_size))


def test_normalization_reaches_the_arms():
    unit = environment(DATASETS[1], normalize="unit", seed=3)
    np.testing.assert_allclose(np.linalg.norm(unit.arms, axis=1), 1.0)


def test_theta_is_not_an_arm():
    env = environment(DATASETS[1], normalize="unit", seed=3)
    assert env.means.max() < 0.99


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_has_the_papers_parameters(name):
    env = environment(DATASETS[2], seed=0)
    settings = CONTENDERS[name].build(env.arms, 10, 0).settings
    paper = {"ridge": 1.0, "noise": 1.0, "theta_norm": 1.0, "arm_norm": 1.0, "delta": 0.01, "sketch_size": 10}
    assert {key: settings[key] for key in paper if key in settings} == {k: v for k, v in paper.items() if k in settings}
    assert ("logdet" in name) == (settings.get("radius") == "logdet")


def test_every_contender_has_its_own_colour():
    assert len({contender.colour for contender in CONTENDERS.values()}) == len(CONTENDERS)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("dataset", 5),
        ("dataset", "one"),
        ("normalize", "l2"),
        ("policies", ("ucb1", "ucb")),
        ("policies", ()),
        ("policies", ("ucb1", "ucb1")),
        ("rounds", 0),
        ("rounds", 10**30),
        ("runs", 0),
        ("runs", 1.5),
        ("seed", -1),
    ],
)
def test_a_plan_refuses_what_is_not_allowed(field, value):
    with pytest.raises(ValueError, match=rf"^{field} must be .*got "):
        Plan(**{field: value})


def test_regrets_are_those_of_one_simulate_call_a_run(comparison):
    """All policies of a run meet the same arms, parameter and noise, though each plays in a call of its own."""
    children = np.random.SeedSequence(PLAN.seed).spawn(PLAN.runs)
    for run, child in enumerate(children):
        env_seed, policy_seed, noise_seed = child.generate_state(3, np.uint64).tolist()
        env = environment(DATASETS[1], seed=env_seed)
        policies = {"cbrap": CBRAP(env.arms, sketch_size=5, seed=policy_seed), "ucb1": UCB1(env.arms)}
        direct = simulate(env, policies, rounds=PLAN.rounds, seed=noise_seed)
        for name in policies:
            np.testing.assert_array_equal(comparison.runs[run].regret[name], direct.regret[name])


def test_runs_draw_new_arms_and_a_policy_ignores_its_rivals(comparison):
    regret = comparison.result.final_regret
    assert len(set(regret["ucb1"])) == PLAN.runs
    alone = compare(Plan(policies=("ucb1",), rounds=PLAN.rounds, runs=PLAN.runs, seed=PLAN.seed))
    np.testing.assert_array_equal(alone.result.final_regret["ucb1"], regret["ucb1"])


def test_summary_has_one_row_a_policy_and_run(comparison):
    summary = comparison.summary()
    assert summary.columns == [
        "dataset", "normalize", "policy", "run", "rounds", "regret", "seconds", "warmup_seconds",
    ]  # fmt: skip
    assert summary.select("policy", "run").rows() == [(n, run) for run in range(3) for n in ("cbrap", "ucb1")]
    for row in summary.iter_rows(named=True):
        played = comparison.runs[row["run"]]
        assert row["regret"] == played.final_regret[row["policy"]][0]
        assert row["seconds"] == played.seconds[row["policy"]][0] > 0
        assert row["warmup_seconds"] == played.warmup_seconds[row["policy"]] > 0
        assert (row["dataset"], row["normalize"], row["rounds"]) == (1, "max", 300)


def test_standings_are_sorted_and_carry_the_student_band(comparison):
    standings = comparison.standings()
    assert [s.regret for s in standings] == sorted(s.regret for s in standings)
    for standing in standings:
        final = comparison.result.final_regret[standing.policy]
        assert standing.regret == pytest.approx(final.mean())
        half_width = scipy.stats.t.ppf(0.975, len(final) - 1) * scipy.stats.sem(final)
        assert standing.half_width == pytest.approx(half_width)
        seconds = comparison.result.seconds[standing.policy]
        assert standing.microseconds == pytest.approx(1e6 * seconds.mean() / PLAN.rounds)


def test_one_run_has_no_band():
    single = compare(Plan(policies=("ucb1",), rounds=1, runs=1))
    assert np.isnan(single.standings()[0].half_width)
    assert set(single.files()) == {"summary.csv", "regret.png", "regret.svg"}


def test_files_are_the_same_for_the_same_numbers(comparison):
    again = Comparison(comparison.plan, comparison.runs)
    assert comparison.files() == again.files()


def test_progress_names_the_stage_and_moves_forward():
    seen = []
    compare(PLAN, lambda *step: seen.append(step))
    stages = [stage for stage, _, _ in seen]
    assert stages == [COMPILING] * 2 + [PLAYING] * 6
    assert [what for _, what, _ in seen][:3] == ["cbrap", "ucb1", "cbrap, run 1 of 3"]
    assert seen[0][2] == seen[2][2] == 0.0
    assert all(0.0 < share < 1.0 for _, _, share in seen[3:])


def test_combine_puts_policies_beside_and_runs_below_each_other():
    both = combine([result("a", "b"), result("a", "b", start=10.0), result("c", start=20.0)])
    assert both.policies == ["a", "b", "c"]
    np.testing.assert_array_equal(both.regret["a"], [[1.0, 2.0], [11.0, 12.0]])
    np.testing.assert_array_equal(both.regret["b"], [[2.0, 4.0], [12.0, 14.0]])
    np.testing.assert_array_equal(both.regret["c"], [[21.0, 22.0]])
    np.testing.assert_array_equal(both.seconds["a"], [0.0, 10.0])
    assert both.warmup_seconds == {"a": 5.0, "b": 5.0, "c": 20.0}


def test_combine_refuses_other_checkpoints():
    with pytest.raises(ValueError, match="checkpoints"):
        combine([result("a"), result("a", checkpoints=(5, 11))])


def test_files_are_written_whole_or_not_at_all(tmp_path: Path):
    write_together(tmp_path, {"one": b"old", "two": b"old"})

    with pytest.raises(TypeError):  # the second file cannot be written, the first could
        write_together(tmp_path, {"one": b"new", "two": None})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"one": b"old", "two": b"old"}
