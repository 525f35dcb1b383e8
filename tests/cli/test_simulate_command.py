"""`sketchbandits simulate`: the user's own arms or generated ones; what it refuses, and full disks."""

import os
import resource
import sys
from pathlib import Path

import numpy as np
import polars
import pytest
from command_line import files_in, run, run_in_child

from sketchbandits import CSLB, UCB1, simulate
from sketchbandits.environments import LinearEnvironment, isotropic_parameter

COLUMNS = ["dataset", "normalize", "policy", "run", "rounds", "regret", "timed_rounds", "seconds", "warmup_seconds"]
OWN = ("--policies", "cslb:sketch_size=3,radius=logdet,ucb1", "--rounds", "300", "--runs", "2", "--seed", "5")


def seeds(seed: int, run: int) -> list[int]:
    return np.random.SeedSequence(seed).spawn(run + 1)[run].generate_state(3, np.uint64).tolist()


@pytest.fixture(scope="module")
def arms_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arms")
    values = np.random.default_rng(3).normal(size=(17, 6)) / 4
    table = polars.DataFrame(values, schema=[f"f{i}" for i in range(6)])
    named = table.with_columns(polars.Series("item", [f"item {i}" for i in range(17)]))
    named.write_csv(folder / "items.csv")
    named.write_parquet(folder / "items.parquet")
    np.save(folder / "items.npy", values)
    np.save(folder / "theta.npy", np.full(6, 0.2))
    return folder


@pytest.mark.process
def test_simulate_plays_the_same_from_every_kind_of_file(arms_file, tmp_path):
    regrets = []
    for name in ("items.npy", "items.csv", "items.parquet"):
        ids = () if name.endswith("npy") else ("--id-column", "item")
        out = tmp_path / name
        done = run("simulate", "--arms", str(arms_file / name), *ids, *OWN, "--jobs", "1", "--out", str(out))
        assert done.returncode == 0, done.stderr
        summary = polars.read_csv(out / "summary.csv")
        assert summary.columns == COLUMNS and set(summary["dataset"]) == {name}
        regrets.append(summary["regret"].to_list())
        figures = {os.path.join("figures", f"{each}.{kind}") for each in ("regret", "time") for kind in ("png", "svg")}
        tables = {"summary.csv", "curves.parquet", "claims.json", "report.html", "runs.jsonl"}
        assert files_in(out) == figures | tables
    assert regrets[0] == regrets[1] == regrets[2]
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[:-1])  # the last one is a path
    assert regrets[0] == pytest.approx(own_regrets(arms_file, lambda seed: isotropic_parameter(6, seed=seed)))


def own_regrets(arms_file: Path, theta) -> list[float]:
    """What `simulate` gives from Python, in the order of the summary: policy, then run."""
    arms, found = np.load(arms_file / "items.npy"), {}
    for number in range(2):
        env_seed, _, noise_seed = seeds(5, number)
        env = LinearEnvironment(arms, theta(env_seed))
        policies = {"cslb": CSLB(arms, sketch_size=3, radius="logdet"), "ucb1": UCB1(arms)}
        for name, regret in simulate(env, policies, rounds=300, seed=noise_seed).final_regret.items():
            found[name, number] = float(regret[0])
    return [found[name, number] for name in ("cslb", "ucb1") for number in range(2)]


@pytest.mark.process
def test_simulate_takes_a_known_parameter_and_a_changed_one_is_not_mixed_up(arms_file, tmp_path):
    arguments = ("simulate", "--arms", str(arms_file / "items.npy"), *OWN, "--jobs", "1", "--out", str(tmp_path))
    for _ in range(2):
        assert run(*arguments).returncode == 0
        drawn = polars.read_csv(tmp_path / "summary.csv")["regret"].to_list()
        known = run(*arguments, "--theta", str(arms_file / "theta.npy"))
        assert known.returncode == 0, known.stderr
        given = polars.read_csv(tmp_path / "summary.csv")["regret"].to_list()
        assert given == pytest.approx(own_regrets(arms_file, lambda seed: np.full(6, 0.2)))
        assert given != drawn


@pytest.mark.process
def test_a_changed_file_is_played_again(tmp_path):
    arms = np.random.default_rng(4).normal(size=(9, 4)) / 4
    regrets = []
    for factor in (1.0, 0.5, 1.0):
        np.save(tmp_path / "arms.npy", factor * arms)
        done = run(
            "simulate", "--arms", "arms.npy", "--policies", "ucb1", "--rounds", "200", "--runs", "1", cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        regrets.append(polars.read_csv(tmp_path / "results/simulate/summary.csv")["regret"][0])
    assert regrets[0] == regrets[2] != regrets[1]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--arms", "missing.npy"), 1, "'missing.npy' must be a file that can be read: No such file"),
        (("--arms", "items.txt"), 2, "--arms must be a file that ends in .npy, .csv or .parquet"),
        (("--arms", "items.csv"), 2, "--arms must"),  # the id column is text
        (("--arms", "items.csv", "--id-column", "name"), 2, "--id-column must"),
        (("--arms", "items.csv", "--features", "f0,f9"), 2, "--features must"),
        (("--arms", "items.npy", "--theta", "items.npy"), 2, "--theta must be a .npy file with a vector of length 6"),
        (("--arms", "items.npy", "--n-arms", "4"), 2, "--n-arms must be left out where --arms is given"),
        (("--theta", "theta.npy"), 2, "--theta must come with --arms"),
        (("--generator", "gaussian"), 2, "--generator must be one of 'correlated', 'heavy-tailed', 'subspaces'"),
        (("--generator", "subspaces", "--group-size", "3"), 2, "--group-size must come with the generator correlated"),
        (("--dim", "0"), 2, "--dim must be a whole number >= 1, got 0"),
        (("--sketch-size", "x"), 2, "--sketch-size must be a whole number >= 1, got 'x'"),
        (("--delta", "2"), 2, "--delta must be a number strictly between 0 and 1, got 2"),
        (("--noise", "nan"), 2, "--noise must be a number"),
    ],
)
def test_simulate_refuses_in_one_line(arms_file, arguments, code, message):
    before = files_in(arms_file)
    refused = run("simulate", *arguments, "--out", "never", cwd=arms_file)
    assert refused.returncode == code
    (line,) = refused.stderr.splitlines()
    assert line.startswith(message)
    assert files_in(arms_file) == before and refused.stdout == ""


@pytest.mark.process
@pytest.mark.parametrize("generator", ["correlated", "heavy-tailed", "subspaces"])
def test_simulate_plays_generated_arms(generator, tmp_path):
    done = run(
        "simulate", "--generator", generator, "--n-arms", "24", "--dim", "7", "--policies", "ucb1,linucb", "--rounds",
        "120", "--runs", "2", "--jobs", "1", "--out", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = polars.read_csv(tmp_path / "summary.csv")
    assert summary["policy"].to_list() == ["ucb1", "ucb1", "linucb", "linucb"]
    assert set(summary["dataset"]) == {generator} and summary["regret"].min() > 0


def test_a_folder_that_cannot_be_made_is_refused_before_the_first_round(tmp_path):
    (tmp_path / "file").write_text("in the way")
    refused = run("simulate", "--out", "file/out", cwd=tmp_path)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("--out must be a folder") and repr(os.path.join("file", "out")) in line
    assert "Not a directory" in line


SHORT = ("--policies", "ucb1", "--rounds", "200", "--runs", "2", "--jobs", "1")


@pytest.mark.process
def test_a_disk_error_at_the_end_is_one_line_and_leaves_nothing_half_written(tmp_path):
    (tmp_path / "summary.csv" / "inside").mkdir(parents=True)  # a file cannot replace it
    refused = run("simulate", *SHORT, "--out", ".", cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("--out must be a folder that can be written to, got '.': ")
    assert "Traceback" not in refused.stderr
    assert not any(path.name.startswith(".unfinished") for path in tmp_path.iterdir())


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_a_full_disk_is_one_line_and_the_runs_before_it_are_kept(tmp_path):
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))

    refused = run_in_child("simulate", *SHORT, "--out", ".", cwd=tmp_path, preexec_fn=small_files)
    assert refused.returncode == 1, refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("--out must be a folder that can be written to, got '.': ")
    assert "Traceback" not in refused.stderr
    assert run("simulate", *SHORT, "--out", ".", cwd=tmp_path).returncode == 0
