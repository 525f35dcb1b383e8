"""The command line, run as users run it: files, table, refusals, Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import matplotlib.colors
import matplotlib.image
import numpy as np
import polars
import pytest

from sketchbandits import CBRAP, UCB1, __version__, simulate
from sketchbandits.experiments.compare import CONTENDERS
from sketchbandits.experiments.paper import DATASETS, environment

FILES = {"summary.csv", "regret.png", "regret.svg"}
ENV = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
SMALL = ("--policies", "cbrap,ucb1", "--rounds", "300", "--runs", "2", "--seed", "7", "--dataset", "3")


def command(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    full = [sys.executable, "-m", "sketchbandits", *arguments]
    return subprocess.run(full, cwd=cwd, env=ENV, capture_output=True, text=True, encoding="utf-8", timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compare")


@pytest.fixture(scope="module")
def done(folder: Path) -> subprocess.CompletedProcess[str]:
    finished = command("compare", *SMALL, "--out", "deep/out", cwd=folder)
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.fixture(scope="module")
def summary(done: subprocess.CompletedProcess[str], folder: Path) -> polars.DataFrame:
    return polars.read_csv(folder / "deep/out/summary.csv")


def test_exactly_the_three_files_are_left(done, folder):
    assert {path.name for path in (folder / "deep/out").iterdir()} == FILES


def test_summary_holds_what_simulate_gives_for_these_seeds(summary):
    assert summary.columns == [
        "dataset", "normalize", "policy", "run", "rounds", "regret", "seconds", "warmup_seconds",
    ]  # fmt: skip
    rows = {(row["policy"], row["run"]): row for row in summary.iter_rows(named=True)}
    assert len(rows) == len(summary) == 4
    for run, child in enumerate(np.random.SeedSequence(7).spawn(2)):
        env_seed, policy_seed, noise_seed = child.generate_state(3, np.uint64).tolist()
        env = environment(DATASETS[3], normalize="max", seed=env_seed)
        policies = {"cbrap": CBRAP(env.arms, sketch_size=10, seed=policy_seed), "ucb1": UCB1(env.arms)}
        direct = simulate(env, policies, rounds=300, seed=noise_seed)
        for name in policies:
            row = rows[name, run]
            assert row["regret"] == direct.final_regret[name][0]
            assert (row["dataset"], row["normalize"], row["rounds"]) == (3, "max", 300)
            assert row["seconds"] > 0 and row["warmup_seconds"] > 0


def test_the_same_seed_gives_the_same_regrets_and_the_same_figure(summary, folder):
    assert command("compare", *SMALL, "--out", "again", cwd=folder).returncode == 0
    assert polars.read_csv(folder / "again/summary.csv")["regret"].equals(summary["regret"])
    for figure in ("regret.png", "regret.svg"):
        assert (folder / "again" / figure).read_bytes() == (folder / "deep/out" / figure).read_bytes()


def test_the_figures_show_the_curves_in_their_own_colours(done, folder):
    image = matplotlib.image.imread(folder / "deep/out/regret.png")[..., :3]
    assert image.shape[0] > 400 and image.shape[1] > 800
    pixels = (image.reshape(-1, 3) * 255).round().astype(int)
    for name, contender in CONTENDERS.items():
        colour = (np.array(matplotlib.colors.to_rgb(contender.colour)) * 255).round().astype(int)
        drawn = (pixels == colour).all(axis=1).sum()
        assert drawn > 300 if name in ("cbrap", "ucb1") else drawn == 0
    root = ElementTree.parse(folder / "deep/out/regret.svg").getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 100


def test_the_table_fits_80_columns_and_repeats_the_summary(done, summary):
    lines = done.stdout.splitlines()
    assert lines[0] == "data set 3 (N = 100, d = 50, l = 10, groups of 2), max norm"
    assert all(len(line) <= 80 for line in lines)
    means = dict(summary.group_by("policy").agg(polars.col("regret").mean()).iter_rows())
    shown = [line.split()[:2] for line in lines if line.split()[:1] in (["cbrap"], ["ucb1"])]
    assert shown == [[name, f"{means[name]:,.1f}"] for name in sorted(means, key=means.__getitem__)]
    for heading in ("regret", "± 95 %", "µs/round", "warm-up ms"):
        assert heading in done.stdout
    assert lines[-2] == f"Wrote summary.csv, regret.png, regret.svg to deep{os.sep}out{os.sep}"
    assert "200,000 rounds" in lines[-1]


def test_compilation_is_announced(done):
    assert done.stderr.splitlines() == ["compiling kernels, once ...", "playing ..."]


@pytest.mark.parametrize(
    ("flag", "value", "allowed"),
    [
        ("--dataset", "5", "from 1 to 4"),
        ("--rounds", "many", "a whole number from 1"),
        ("--runs", "-1", "a whole number from 1"),
        ("--normalize", "l2", "'max', 'unit'"),
        ("--policies", "cs-lb,greedy", "'cs-lb', 'cs-lb-logdet', 'oful'"),
        ("--out", "", "a folder"),
    ],
)
def test_bad_values_are_refused_in_one_line(tmp_path, flag, value, allowed):
    refused = command("compare", flag, value, cwd=tmp_path)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"{flag} must be ") and allowed in line
    assert repr(value.split(",")[-1]) in line or f"got {value}" in line
    assert refused.stdout == "" and not any(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("compare", "--horizon"), ("compare", "--rounds"), ("comparison",)])
def test_unknown_flags_and_commands_are_refused_in_one_line(tmp_path, arguments):
    refused = command(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert arguments[-1] in line


def test_a_folder_that_cannot_be_made_is_refused_before_the_first_round(tmp_path):
    (tmp_path / "file").write_text("in the way")
    refused = command("compare", *SMALL, "--out", "file/out", cwd=tmp_path)
    assert refused.returncode == 1
    (line,) = refused.stderr.splitlines()
    assert line.startswith("--out must be a folder") and repr(os.path.join("file", "out")) in line
    assert "Not a directory" in line


def test_a_disk_error_at_the_end_is_one_line_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "summary.csv" / "inside").mkdir(parents=True)  # a file cannot replace it
    refused = command("compare", *SMALL, "--out", ".", cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith("--out must be a folder that can be written to, got '.': ")
    assert "Traceback" not in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["summary.csv"]


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A comparison that would take minutes, in the middle of its rounds."""
    (tmp_path / "summary.csv").write_text("an older result")
    # A shell that starts pytest in the background has children ignore SIGINT: undo that.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from sketchbandits.cli import main; main()"
    arguments = ["compare", "--policies", "ucb1", "--rounds", "1000000000", "--out", str(tmp_path)]
    full = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(full, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "playing" not in (line := process.stderr.readline()):
            assert line, "ended before the first round"
        time.sleep(0.5)
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to another process")
def test_ctrl_c_is_one_line_and_leaves_no_partial_file(endless, tmp_path):
    endless.send_signal(signal.SIGINT)
    stdout, stderr = endless.communicate(timeout=60)
    assert endless.returncode == 130
    assert stdout == "" and stderr.splitlines() == ["interrupted: no file was left half-written"]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"summary.csv": "an older result"}


def test_version_and_help():
    assert command("--version").stdout == f"sketchbandits {__version__}\n"
    shown = command("compare", "--help")
    assert shown.returncode == 0 and all(len(line) <= 80 for line in shown.stdout.splitlines())
    for flag in ("--dataset", "--rounds", "--runs", "--normalize", "--seed", "--out", "--policies"):
        assert flag in shown.stdout
    bare = command()
    assert bare.returncode == 2 and "compare" in bare.stdout + bare.stderr


def test_help_does_not_load_plots_and_tables():
    code = "import sys, sketchbandits.cli; print(*{'matplotlib', 'polars'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == ""
