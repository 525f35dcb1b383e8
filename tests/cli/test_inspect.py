"""`sketchbandits inspect`, run as users run it: files, names of columns, refusals, Ctrl-C."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import matplotlib.image
import numpy as np
import polars
import pytest
from command_line import Finished, files_in, run, start

from sketchbandits import advise
from sketchbandits.lab.advice import timing

MODEL = {"rounds": 30_000, "noise": 0.5, "theta_norm": 2.0, "ridge": 2.0, "delta": 0.05}
FLAGS = [word for name, value in MODEL.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    rng = np.random.default_rng(3)
    values = rng.normal(size=(31, 5)) / 4
    values[:, 2], values[9], values[11] = 0.25, values[4], 0.0
    values[9, 2] = values[4, 2]
    table = polars.DataFrame(values, schema=["a", "b", "c", "d", "e"])
    named = table.with_columns(polars.Series("item", [f"no {i}" for i in range(31)]))
    named.write_csv(folder / "items.csv")
    named.write_parquet(folder / "items.parquet")
    np.save(folder / "items.npy", values)
    values[6, 3] = np.nan
    np.save(folder / "holes.npy", values)
    table.with_columns(polars.Series("d", [1.0] * 30 + [float("inf")])).write_csv(folder / "infinite.csv")
    return folder


@pytest.fixture(scope="module")
def done(folder: Path) -> Finished:
    finished = run(
        "inspect", "items.csv", "--id-column", "item", *FLAGS, "--budget-us", "25", "--out", "deep/out", cwd=folder
    )
    assert finished.returncode == 0, finished.stderr
    return finished


@pytest.fixture
def inspect(folder, monkeypatch):
    """The command in this process, on a made-up clock."""
    monkeypatch.setattr(timing, "round_microseconds", lambda policy, means, noise: 3.0)
    return lambda *arguments: run("inspect", *arguments, cwd=folder)


def arms_of(folder):
    return np.load(folder / "items.npy")


@pytest.mark.process
def test_the_report_is_that_of_advise_up_to_the_clock(done, folder):
    names = [f"no {i}" for i in range(31)]
    advice = advise(arms_of(folder), **MODEL, budget_us=25.0, features=list("abcde"), ids=names)
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines)
    facts = advice.text().split("\nAfter")[0]
    assert done.stdout.startswith(facts)
    assert "(arms 'no 4', 'no 9' are the same)" in " ".join(done.stdout.split())
    assert "! 1 arm is zero ('no 11')" in done.stdout
    assert any(line.startswith("Play ") for line in lines)
    assert lines[-1] == os.path.join("deep", "out")


@pytest.mark.process
def test_the_files_hold_the_report_its_numbers_and_a_figure(done, folder):
    out = folder / "deep/out"
    assert files_in(out) == {"advice.txt", "advice.json", "advice.png"}
    assert done.stdout.startswith((out / "advice.txt").read_text())
    numbers = json.loads((out / "advice.json").read_text())
    assert numbers["arms"]["n_arms"] == 31 and numbers["arms"]["distinct"] == 30 and numbers["arms"]["zero"] == 1
    assert numbers["model"]["rounds"] == 30_000 and numbers["budget_us"] == 25.0
    assert numbers["recommendation"] in " ".join(done.stdout.split())
    assert all(row["score"] == row["sketch_size"] ** 2 * row["clusters"] for row in numbers["clusters"][:1])
    timed = [row for row in numbers["candidates"] if row["microseconds"] is not None]
    assert len(timed) == 13 and all(row["microseconds"] > 0 and row["memory"] > 0 for row in timed)
    image = matplotlib.image.imread(out / "advice.png")
    assert image.shape[1] > 800 and image[..., :3].std() > 0.01


def test_every_kind_of_file_gives_the_same_facts(inspect, folder):
    expected = None
    for name in ("items.npy", "items.csv", "items.parquet"):
        columns = () if name.endswith("npy") else ("--features", "e,a,b,c,d")
        code, stdout, stderr = inspect(name, *columns, *FLAGS, "--sketch-sizes", "1,2")
        assert code == 0, stderr
        facts = stdout.split("\n\n")[0]
        expected = expected or facts
        assert facts == expected
        clusters = stdout.split("Clusters")[1].split("After")[0].splitlines()
        assert [line.split()[0].strip("*") for line in clusters[2:4]] == ["1", "2"]
        assert "Wrote" not in stdout
    assert not (folder / "results").exists()


@pytest.mark.process
def test_progress_says_what_is_done(done):
    assert all(line.startswith("inspecting: ") for line in done.stderr.splitlines())
    assert "clusters of rank" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("missing.npy",), 1, "'missing.npy' must be a file that can be read: No such file"),
        (("items.txt",), 2, "ARMS must be a file that ends in .npy, .csv or .parquet, got 'items.txt'"),
        (("holes.npy",), 2, "ARMS must be finite numbers, got nan in column '3', row 7 (rows are counted from 1"),
        (("infinite.csv",), 2, "ARMS must be finite numbers, got inf in column 'd', row 31 (rows are counted from 1"),
        (("items.csv",), 2, "ARMS must be columns of numbers, got 'no 0' in column 'item', row 1"),
        (("items.csv", "--id-column", "name"), 2, "--id-column must be one of the columns"),
        (("items.csv", "--features", "a,z"), 2, "--features must be among the columns"),
        (("items.npy", "--rounds", "0"), 2, "--rounds must be a whole number >= 1, got 0"),
        (("items.npy", "--rounds", "many"), 2, "--rounds must be a whole number >= 1, got 'many'"),
        (("items.npy", "--budget-us", "-2"), 2, "--budget-us must be a number > 0"),
        (("items.npy", "--delta", "1"), 2, "--delta must be a number strictly between 0 and 1"),
        (("items.npy", "--sketch-sizes", "2,x"), 2, "--sketch-sizes must be a whole number >= 1, got 'x'"),
        (("items.npy", "--seed", "-1"), 2, "--seed must be"),
        ((), 2, "Missing argument 'ARMS'"),
    ],
)
def test_refusals_are_one_line(inspect, folder, arguments, code, message):
    before = files_in(folder)
    found, stdout, stderr = inspect(*arguments, "--out", "never")
    assert found == code
    (line,) = stderr.splitlines()
    assert line.startswith(message)
    assert files_in(folder) == before and stdout == ""


def test_a_folder_that_cannot_be_made_still_leaves_the_report_on_the_screen(inspect):
    code, stdout, stderr = inspect("items.npy", "--sketch-sizes", "2", "--out", "items.npy/out")
    assert code == 1
    assert stderr.splitlines()[-1].startswith("--out must be a folder that can be written to")
    assert "Play " in stdout


@pytest.mark.process
@pytest.mark.skipif(sys.platform == "win32", reason="process groups")
def test_ctrl_c_ends_with_one_line(tmp_path):
    np.save(tmp_path / "many.npy", np.random.default_rng(0).normal(size=(120_000, 40)).astype(np.float32))
    with start("inspect", str(tmp_path / "many.npy"), "--out", str(tmp_path / "out")) as process:
        line = process.stderr.readline()  # it has begun
        assert line.startswith("inspecting: ")
        time.sleep(0.2)
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert stdout == "" and "Traceback" not in stderr
    assert stderr.splitlines()[-1] == "interrupted: nothing was written"
    assert not (tmp_path / "out").exists()
