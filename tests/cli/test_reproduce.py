"""`sketchbandits reproduce`, run as users run it: files, tables, Ctrl-C and resuming."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import matplotlib.image
import numpy as np
import polars
import pytest
from command_line import Finished, files_in, run, run_in_child, start

from sketchbandits import CSLB, OFUL, SOFUL, UCB1, simulate
from sketchbandits.lab.experiments.tasks import Outcome
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.claims import CLAIMS
from sketchbandits.lab.paper.reproduce import TIMED_RUNS, PaperPlan
from sketchbandits.lab.report.result_files import summary as summary_of
from sketchbandits.policies.registry import parse_policies

pytestmark = pytest.mark.process

COLUMNS = ["dataset", "normalize", "policy", "run", "rounds", "regret", "timed_rounds", "seconds", "warmup_seconds"]
FIGURES = ("regret-1-2", "time-1-2", "regret-3-4", "time-3-4", "arms", "sizes", "growth")
ROUNDS = 400
TINY = ("--rounds", str(ROUNDS), "--runs", "2", "--datasets", "1,4", "--normalize", "max", "--seed", "7")
TWINS = ("cslb:engine=sketch", "soful:shrink=every-round", "cbscfd:shrink=every-round")


def seeds(seed: int, run: int) -> list[int]:
    return np.random.SeedSequence(seed).spawn(run + 1)[run].generate_state(3, np.uint64).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def done(folder: Path) -> Finished:
    finished = run_in_child("reproduce", *TINY, "--jobs", "2", "--out", "deep/out", cwd=folder)
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.fixture(scope="module")
def summary(done: Finished, folder: Path) -> polars.DataFrame:
    return polars.read_csv(folder / "deep/out/summary.csv")


def test_the_files_are_those_that_are_promised(done, folder):
    figures = {os.path.join("figures", f"{name}.{kind}") for name in FIGURES for kind in ("png", "svg")}
    tables = {"summary.csv", "curves.parquet", "claims.json", "sweeps.csv", "report.html", "runs.jsonl"}
    assert files_in(folder / "deep/out") == figures | tables


def test_summary_holds_what_simulate_gives_for_these_seeds(summary):
    assert summary.columns == COLUMNS
    assert set(summary["policy"]) == {*paper.SHOWN, *TWINS}
    rows = {(row["dataset"], row["policy"], row["run"]): row for row in summary.iter_rows(named=True)}
    assert len(rows) == len(summary) == 2 * (len(paper.SHOWN) + len(TWINS)) * 2
    for dataset, number in ((1, 0), (1, 1), (4, 1)):
        env_seed, _, noise_seed = seeds(7, number)
        arms, env = paper.dataset(dataset).draw(env_seed)
        size = paper.DATASETS[dataset][2]
        policies = {"cslb": CSLB(arms, sketch_size=size), "soful": SOFUL(arms, sketch_size=size)}
        policies |= {"oful": OFUL(arms, arm_norm=1.0), "ucb1": UCB1(arms)}
        direct = simulate(env, policies, rounds=ROUNDS, seed=noise_seed)
        for name in policies:
            row = rows[dataset, name, number]
            assert row["regret"] == pytest.approx(direct.final_regret[name][0], rel=1e-9)
            assert (row["normalize"], row["rounds"]) == ("max", ROUNDS)
            assert row["seconds"] > 0 and row["warmup_seconds"] > 0 and 0 < row["timed_rounds"] <= ROUNDS
    for twin in TWINS:
        assert rows[1, twin, 0]["rounds"] == rows[1, twin, 0]["timed_rounds"] < ROUNDS


def test_curves_end_where_the_summary_says(summary, folder):
    curves = polars.read_parquet(folder / "deep/out/curves.parquet")
    assert curves.columns == ["dataset", "normalize", "policy", "run", "round", "regret"]
    keys = ["dataset", "normalize", "policy", "run"]
    ends = curves.filter(polars.col("round") == ROUNDS).with_columns(polars.col("dataset").cast(int))
    both = summary.join(ends, on=keys, suffix="_of_curve")
    assert len(both) == len(ends) == 2 * len(paper.SHOWN) * 2
    assert both["regret"].equals(both["regret_of_curve"].alias("regret"))
    grown = curves.group_by(keys).agg(polars.col("regret").sort_by("round").diff().drop_nulls().min())
    assert grown["regret"].min() >= 0.0  # cumulative regret never falls


def test_every_claim_is_judged_with_its_rule_and_its_figures(done, folder):
    claims = json.loads((folder / "deep/out/claims.json").read_text())
    assert [claim["id"] for claim in claims] == [claim.id for claim in CLAIMS]
    for claim, declared in zip(claims, CLAIMS, strict=True):
        assert claim["statement"] == declared.statement and claim["rule"] == declared.rule
        assert claim["verdict"].split()[0].rstrip(":") in ("holds", "fails", "depends", "undecided", "vacuous", "not")
        assert claim["evidence"] or claim["verdict"].startswith("not judged")
    by_id = {claim["id"]: claim for claim in claims}
    assert by_id["clusters-at-most"]["verdict"].startswith("holds (2 hold")
    assert {row["K"] for row in by_id["clusters-at-most"]["evidence"]} == {"12 to 12", "4 to 4"}
    # Data sets (2) and (3) were not played.
    assert by_id["largest-gains-where-clustered"]["verdict"].startswith("not judged: ")
    assert {row["data set"] for row in by_id["linear-beats-ucb1"]["evidence"]} == {"(4)"}


def test_sweeps_hold_what_was_varied(done, folder):
    sweeps = polars.read_csv(folder / "deep/out/sweeps.csv")
    assert set(sweeps["experiment"]) == {"long", "arms", "sizes", "blocks", "growth", "search"}
    arms = sweeps.filter(polars.col("experiment") == "arms")
    assert set(arms["n_arms"]) == {20, 40, 80, 160} and set(arms["policy"]) == {
        "ucb1",
        "cslb",
        "oful",
        "oful:radius=logdet",
    }
    long = sweeps.filter(polars.col("experiment") == "long")
    assert set(long["rounds"]) == {10 * ROUNDS} and set(long["clusters"]) == {12, 4}


def test_figures_and_report_are_whole(done, folder):
    for name in FIGURES:
        image = matplotlib.image.imread(folder / f"deep/out/figures/{name}.png")
        assert image.shape[0] > 300 and image.shape[1] > 600 and image[..., :3].std() > 0.01, name
        root = ElementTree.parse(folder / f"deep/out/figures/{name}.svg").getroot()
        assert root.tag.endswith("svg") and len(list(root.iter())) > 100
    page = (folder / "deep/out/report.html").read_text(encoding="utf-8")
    assert page.count("<img") == len(FIGURES) and "http://" not in page.split("<body")[0]
    for claim in CLAIMS:
        assert claim.id in page


def test_the_tables_fit_80_columns_and_repeat_the_summary(done, summary):
    lines = done.stdout.splitlines()
    assert lines[0] == f"{ROUNDS} rounds, 2 runs, seed 7"
    assert all(len(line) <= 80 for line in lines)
    mean = summary.filter((polars.col("dataset") == 1) & (polars.col("policy") == "cslb"))["regret"].mean()
    assert any(line.split()[:3] == ["(1)", "max", f"{mean:,.0f}"] for line in lines)
    for claim in CLAIMS:
        assert any(line.lstrip().startswith(claim.id) for line in lines)
    assert "200,000 rounds" in done.stdout
    assert lines[-1] == os.path.join("deep", "out", "report.html")


def test_progress_says_the_stage_and_the_runs(done):
    stages = [line.split(":")[0] for line in done.stderr.splitlines()]
    assert list(dict.fromkeys(stages)) == [
        "preparing, kernels compile once", "playing", "timing one by one", "writing",
    ]  # fmt: skip
    assert "playing: 0 of " in done.stderr


def test_nothing_is_played_again_where_all_is_finished(summary, folder):
    """Also after the loss of every file but the journal."""
    journal = folder / "deep/out/runs.jsonl"
    before = journal.read_bytes()
    (folder / "deep/out/summary.csv").unlink()
    again = run("reproduce", *TINY, "--out", "deep/out", cwd=folder)
    assert again.returncode == 0 and again.stderr.splitlines() == ["writing: figures, tables, report (100%) ..."]
    assert journal.read_bytes() == before
    assert polars.read_csv(folder / "deep/out/summary.csv").equals(summary)


def wait_for_lines(journal: Path, lines: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not journal.exists() or journal.read_bytes().count(b"\n") < lines:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_no_process(group: int) -> None:
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a worker is still there")


@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_ctrl_c_keeps_finished_runs_and_the_next_call_continues_in_one_process(summary, folder, tmp_path):
    (tmp_path / "summary.csv").write_text("an older result")
    with start("reproduce", *TINY, "--jobs", "2", "--out", str(tmp_path)) as process:
        wait_for_lines(tmp_path / "runs.jsonl", 3, process)
        os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to every process of the group
        stdout, stderr = process.communicate(timeout=60)
        assert process.returncode == 130
        assert stdout == "" and "Traceback" not in stderr
        assert stderr.splitlines()[-1].startswith("interrupted: finished runs are kept, the same command")
        wait_for_no_process(process.pid)
    assert files_in(tmp_path) == {"summary.csv", "runs.jsonl"}
    assert (tmp_path / "summary.csv").read_text() == "an older result"
    finished = (tmp_path / "runs.jsonl").read_bytes().count(b"\n")
    again = run("reproduce", *TINY, "--jobs", "1", "--out", tmp_path)
    assert again.returncode == 0 and f": {finished} of " in again.stderr
    assert polars.read_csv(tmp_path / "summary.csv")["regret"].equals(summary["regret"])
    sweeps = [polars.read_csv(out / "sweeps.csv")["regret"] for out in (tmp_path, folder / "deep/out")]
    assert sweeps[0].equals(sweeps[1])


def test_a_quick_run_prints_and_writes_no_verdicts(tmp_path):
    short = ("--rounds", "100", "--runs", "2", "--datasets", "3", "--policies", "cslb,ucb1", "--jobs", "1")
    done = run("reproduce", "--quick", *short, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    for claim in CLAIMS:
        assert [claim.id, *["not", "judged", "in", "a", "quick", "run"]] in lines
    assert "it judges no claim" in done.stdout and "the paper's claims need" not in done.stdout
    claims = json.loads((tmp_path / "claims.json").read_text())
    assert {claim["verdict"] for claim in claims} == {"not judged in a quick run"}
    assert not any(claim["evidence"] for claim in claims)
    assert "it judges no claim" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_only_the_first_runs_are_timed():
    plan = PaperPlan(rounds=100, datasets=(1,), normalize=("max",))
    assert plan.runs > TIMED_RUNS
    for groups in plan.experiments.values():
        assert {len(group) for group in groups.values()} == {
            TIMED_RUNS if group[0].timed else plan.runs for group in groups.values()
        }
    study = plan.study({task: invented(task) for task in plan.tasks()})
    rows = summary_of(study)
    assert len(rows) == plan.runs * len(plan.policies) + TIMED_RUNS * len(TWINS)
    timed = rows.filter(polars.col("seconds").is_not_null())
    assert timed["run"].max() == TIMED_RUNS - 1 and rows["run"].max() == plan.runs - 1
    assert timed["warmup_seconds"].null_count() == timed["timed_rounds"].null_count() == 0


def invented(task):
    return Outcome(np.array([task.rounds]), np.array([1.0]), 1e-3, 1e-3, {"clusters": 4, "sketch_rank": 10})


def test_all_policies_can_be_played(tmp_path):
    done = run(
        "reproduce", "--policies", "all", "--rounds", "100", "--runs", "1", "--datasets", "3", "--normalize", "unit",
        "--jobs", "1", "--out", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    played = set(polars.read_csv(tmp_path / "summary.csv")["policy"])
    assert {"dbslinucb", "lints", "cbrap", "linucb"} < played and len(played) == 14
    claims = {claim["id"]: claim["verdict"] for claim in json.loads((tmp_path / "claims.json").read_text())}
    assert claims["lowest-regret"].startswith("not judged")
    assert "NaN" not in (tmp_path / "claims.json").read_text()  # one run has no interval
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[:-1])  # the last one is a path


@pytest.mark.parametrize("policies", ["cslb,ucb1", "cslb:radius=logdet,oful:radius=logdet"])
def test_other_policies_can_be_named(policies):
    plan = PaperPlan(policies=parse_policies(policies))
    plan.check()
    assert {str(task.policy) for task in plan.tasks()} >= set(policies.split(","))
