"""The command line, run as users run it: files, tables, refusals, Ctrl-C and resuming."""

import json
import os
import resource
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

from sketchbandits import CSLB, OFUL, SOFUL, UCB1, __version__, simulate
from sketchbandits.environments import LinearEnvironment, isotropic_parameter
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.claims import CLAIMS

# Commands run compiled even where the tests do not: they leave the same, and plain Python would take minutes.
ENV = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "NUMBA_DISABLE_JIT": "0"}
COLUMNS = ["dataset", "normalize", "policy", "run", "rounds", "regret", "timed_rounds", "seconds", "warmup_seconds"]
FIGURES = ("regret-1-2", "time-1-2", "regret-3-4", "time-3-4", "arms", "sizes", "growth")
ROUNDS = 400
TINY = ("--rounds", str(ROUNDS), "--runs", "2", "--datasets", "1,4", "--normalize", "max", "--seed", "7")
TWINS = ("cslb:engine=sketch", "soful:shrink=every-round", "cbscfd:shrink=every-round")
OWN = ("--policies", "cslb:sketch_size=3,radius=logdet,ucb1", "--rounds", "300", "--runs", "2", "--seed", "5")


def command(*arguments: str, cwd: Path | None = None, **options) -> subprocess.CompletedProcess[str]:
    full = [sys.executable, "-m", "sketchbandits", *arguments]
    return subprocess.run(
        full, cwd=cwd, env=ENV, capture_output=True, text=True, encoding="utf-8", timeout=300, **options
    )


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def seeds(seed: int, run: int) -> list[int]:
    return np.random.SeedSequence(seed).spawn(run + 1)[run].generate_state(3, np.uint64).tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reproduce")


@pytest.fixture(scope="module")
def done(folder: Path) -> subprocess.CompletedProcess[str]:
    finished = command("reproduce", *TINY, "--jobs", "2", "--out", "deep/out", cwd=folder)
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.fixture(scope="module")
def summary(done: subprocess.CompletedProcess[str], folder: Path) -> polars.DataFrame:
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
    for dataset, run in ((1, 0), (1, 1), (4, 1)):
        env_seed, _, noise_seed = seeds(7, run)
        arms, env = paper.dataset(dataset).draw(env_seed)
        size = paper.DATASETS[dataset][2]
        policies = {"cslb": CSLB(arms, sketch_size=size), "soful": SOFUL(arms, sketch_size=size)}
        policies |= {"oful": OFUL(arms, arm_norm=1.0), "ucb1": UCB1(arms)}
        direct = simulate(env, policies, rounds=ROUNDS, seed=noise_seed)
        for name in policies:
            row = rows[dataset, name, run]
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
    assert by_id["clusters-at-most"]["verdict"] == "holds"
    assert {row["K"] for row in by_id["clusters-at-most"]["evidence"]} == {"12 to 12", "4 to 4"}
    # Data sets (2) and (3) were not played.
    assert by_id["largest-gains-where-clustered"]["verdict"].startswith("not judged: ")
    assert {row["data set"] for row in by_id["linear-beats-ucb1"]["evidence"]} == {"(4)"}


def test_sweeps_hold_what_was_varied(done, folder):
    sweeps = polars.read_csv(folder / "deep/out/sweeps.csv")
    assert set(sweeps["experiment"]) == {"long", "arms", "sizes", "blocks", "growth", "search"}
    arms = sweeps.filter(polars.col("experiment") == "arms")
    assert set(arms["n_arms"]) == {20, 40, 80, 160} and set(arms["policy"]) == {"ucb1", "cslb", "oful"}
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


def test_one_process_gives_the_same_regrets(summary, folder):
    alone = command("reproduce", *TINY, "--jobs", "1", "--out", "alone", cwd=folder)
    assert alone.returncode == 0, alone.stderr
    assert polars.read_csv(folder / "alone/summary.csv")["regret"].equals(summary["regret"])
    sweeps = [polars.read_csv(folder / out / "sweeps.csv")["regret"] for out in ("alone", "deep/out")]
    assert sweeps[0].equals(sweeps[1])


def test_nothing_is_played_again_where_all_is_finished(summary, folder):
    """Also after the loss of every file but the journal."""
    journal = folder / "deep/out/runs.jsonl"
    before = journal.read_bytes()
    (folder / "deep/out/summary.csv").unlink()
    again = command("reproduce", *TINY, "--out", "deep/out", cwd=folder)
    assert again.returncode == 0 and again.stderr.splitlines() == ["writing: figures, tables, report (100%) ..."]
    assert journal.read_bytes() == before
    assert polars.read_csv(folder / "deep/out/summary.csv").equals(summary)


def start(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process group of its own, as a shell starts it; SIGINT is heard even if pytest ignores it."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from sketchbandits.cli.main import main; main()"
    full = [sys.executable, "-c", code, *arguments]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(full, env=ENV, text=True, start_new_session=True, **streams)


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
def test_ctrl_c_keeps_finished_runs_and_the_next_call_goes_on(summary, tmp_path):
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
    again = command("reproduce", *TINY, "--jobs", "2", "--out", str(tmp_path))
    assert again.returncode == 0 and f": {finished} of " in again.stderr
    assert polars.read_csv(tmp_path / "summary.csv")["regret"].equals(summary["regret"])


@pytest.mark.parametrize("policies", ["cslb,ucb1", "all", "cslb:radius=logdet,oful:radius=logdet"])
def test_other_policies_can_be_named(policies, tmp_path):
    done = command(
        "reproduce", "--policies", policies, "--rounds", "100", "--runs", "1", "--datasets", "3", "--normalize", "unit",
        "--jobs", "1", "--out", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    played = set(polars.read_csv(tmp_path / "summary.csv")["policy"])
    if policies == "all":
        assert {"dbslinucb", "lints", "cbrap", "linucb"} < played and len(played) == 13
    else:
        assert set(policies.split(",")) < played
    claims = {claim["id"]: claim["verdict"] for claim in json.loads((tmp_path / "claims.json").read_text())}
    assert claims["lowest-regret"].startswith("not judged")
    assert "NaN" not in (tmp_path / "claims.json").read_text()  # one run has no interval
    assert all(len(line) <= 80 for line in done.stdout.splitlines()[:-1])  # the last one is a path


@pytest.mark.parametrize(
    ("flag", "value", "allowed"),
    [
        ("--datasets", "5", "from 1 to 4"),
        ("--datasets", "1,1", "once each"),
        ("--rounds", "many", "a whole number from 100"),
        ("--rounds", "99", "a whole number from 100"),
        ("--runs", "-1", "a whole number from 1"),
        ("--normalize", "l2", "'max', 'unit'"),
        ("--policies", "cslb,greedy", "cslb, oful, soful"),
        ("--policies", "cslb:size=3", "sketch_size"),
        ("--policies", "cslb:sketch_size=0", "sketch_size must be a whole number >= 1, got 0"),
        ("--jobs", "0", "a whole number from 1"),
        ("--seed", "-3", "a whole number >= 0"),
        ("--out", "", "a folder"),
    ],
)
def test_bad_values_are_refused_in_one_line(tmp_path, flag, value, allowed):
    refused = command("reproduce", flag, value, cwd=tmp_path)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"{flag} must ") and allowed in line
    assert repr(value.split(",")[-1]) in line or f"got {value}" in line or repr(value) in line
    assert refused.stdout == "" and not any(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("reproduce", "--horizon"), ("simulate", "--rounds"), ("comparison",)])
def test_unknown_flags_and_commands_are_refused_in_one_line(tmp_path, arguments):
    refused = command(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert arguments[-1] in line


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


def test_simulate_plays_the_same_from_every_kind_of_file(arms_file, tmp_path):
    regrets = []
    for name in ("items.npy", "items.csv", "items.parquet"):
        ids = () if name.endswith("npy") else ("--id-column", "item")
        out = tmp_path / name
        done = command("simulate", "--arms", str(arms_file / name), *ids, *OWN, "--jobs", "1", "--out", str(out))
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
    for run in range(2):
        env_seed, _, noise_seed = seeds(5, run)
        env = LinearEnvironment(arms, theta(env_seed))
        policies = {"cslb": CSLB(arms, sketch_size=3, radius="logdet"), "ucb1": UCB1(arms)}
        for name, regret in simulate(env, policies, rounds=300, seed=noise_seed).final_regret.items():
            found[name, run] = float(regret[0])
    return [found[name, run] for name in ("cslb", "ucb1") for run in range(2)]


def test_simulate_takes_a_known_parameter_and_a_changed_one_is_not_mixed_up(arms_file, tmp_path):
    arguments = ("simulate", "--arms", str(arms_file / "items.npy"), *OWN, "--jobs", "1", "--out", str(tmp_path))
    for _ in range(2):
        assert command(*arguments).returncode == 0
        drawn = polars.read_csv(tmp_path / "summary.csv")["regret"].to_list()
        known = command(*arguments, "--theta", str(arms_file / "theta.npy"))
        assert known.returncode == 0, known.stderr
        given = polars.read_csv(tmp_path / "summary.csv")["regret"].to_list()
        assert given == pytest.approx(own_regrets(arms_file, lambda seed: np.full(6, 0.2)))
        assert given != drawn


def test_a_changed_file_is_played_again(tmp_path):
    arms = np.random.default_rng(4).normal(size=(9, 4)) / 4
    regrets = []
    for factor in (1.0, 0.5, 1.0):
        np.save(tmp_path / "arms.npy", factor * arms)
        done = command(
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
    refused = command("simulate", *arguments, "--out", "never", cwd=arms_file)
    assert refused.returncode == code
    (line,) = refused.stderr.splitlines()
    assert line.startswith(message)
    assert files_in(arms_file) == before and refused.stdout == ""


@pytest.mark.parametrize("generator", ["correlated", "heavy-tailed", "subspaces"])
def test_simulate_plays_generated_arms(generator, tmp_path):
    done = command(
        "simulate", "--generator", generator, "--n-arms", "24", "--dim", "7", "--policies", "ucb1,linucb", "--rounds",
        "120", "--runs", "2", "--jobs", "1", "--out", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = polars.read_csv(tmp_path / "summary.csv")
    assert summary["policy"].to_list() == ["ucb1", "ucb1", "linucb", "linucb"]
    assert set(summary["dataset"]) == {generator} and summary["regret"].min() > 0


def test_a_folder_that_cannot_be_made_is_refused_before_the_first_round(tmp_path):
    (tmp_path / "file").write_text("in the way")
    refused = command("simulate", "--out", "file/out", cwd=tmp_path)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("--out must be a folder") and repr(os.path.join("file", "out")) in line
    assert "Not a directory" in line


SHORT = ("--policies", "ucb1", "--rounds", "200", "--runs", "2", "--jobs", "1")


def test_a_disk_error_at_the_end_is_one_line_and_leaves_nothing_half_written(tmp_path):
    (tmp_path / "summary.csv" / "inside").mkdir(parents=True)  # a file cannot replace it
    refused = command("simulate", *SHORT, "--out", ".", cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("--out must be a folder that can be written to, got '.': ")
    assert "Traceback" not in refused.stderr
    assert not any(path.name.startswith(".unfinished") for path in tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="no limits")
def test_a_full_disk_is_one_line_and_the_runs_before_it_are_kept(tmp_path):
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))

    refused = command("simulate", *SHORT, "--out", ".", cwd=tmp_path, preexec_fn=small_files)
    assert refused.returncode == 1, refused.stderr
    assert refused.stderr.splitlines()[-1].startswith("--out must be a folder that can be written to, got '.': ")
    assert "Traceback" not in refused.stderr
    assert command("simulate", *SHORT, "--out", ".", cwd=tmp_path).returncode == 0


def test_version_and_help():
    assert command("--version").stdout == f"sketchbandits {__version__}\n"
    for name, flags in {
        "reproduce": ("rounds", "runs", "datasets", "policies", "normalize", "seed", "jobs", "out", "quick"),
        "simulate": ("arms", "id-column", "features", "theta", "generator", "n-arms", "policies", "sketch-size"),
    }.items():
        shown = command(name, "--help")
        assert shown.returncode == 0 and all(len(line) <= 80 for line in shown.stdout.splitlines())
        assert all(f"--{flag}" in shown.stdout for flag in flags)
    bare = command()
    assert bare.returncode == 2 and "reproduce" in bare.stdout + bare.stderr


def test_help_does_not_load_plots_and_tables():
    code = "import sys, sketchbandits.cli.main; print(*{'matplotlib', 'polars'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == ""
