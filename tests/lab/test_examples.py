"""The example scripts run as a user runs them: a table, one line for what is wrong, one line for Ctrl-C."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rating_files import random_events, write_grouplens, write_recbole

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples"
ENV = {**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "200"}


def example(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    full = [sys.executable, str(EXAMPLES / name), *arguments]
    return subprocess.run(full, capture_output=True, text=True, check=False, env=ENV, timeout=600)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Enough later ratings for a few films to be arms."""
    return write_grouplens(tmp_path, random_events(n_users=150, n_items=17, n=2_400))


def rows(stdout: str) -> dict[str, list[str]]:
    """The cells of every policy's line, by its name."""
    lines = stdout.rpartition("─")[2].splitlines()
    return {line[:15].strip(): line[15:].split() for line in lines if line.strip()}


def test_movielens_shows_every_policy_and_repeats_itself(folder):
    first, again = (example("movielens.py", str(folder), "--rounds", "70", "--runs", "2", "--seed", "3") for _ in "ab")
    assert first.returncode == 0, first.stderr
    assert first.stdout == again.stdout
    assert max(map(len, first.stdout.splitlines())) <= 80
    head = " ".join(first.stdout.split())
    assert "Rounds: 70. Runs: 2." in head and "films, 10 features. A random film pays 0." in head
    found = rows(first.stdout)
    assert {"UCB1", "OFUL log-det", "LinTS theory", "LinTS v=R", "CS-LB log-det"} <= set(found)
    regrets = [float(cells[1]) for cells in found.values()]
    assert regrets == sorted(regrets)
    assert all(0.0 <= float(cells[0]) <= 1.0 for cells in found.values())


def test_digits_shows_every_policy():
    done = example("digits.py", "--rounds", "12", "--runs", "1", "--target", "7")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Find the 7 among 10 digits. Rounds: 12. Runs: 1." in done.stdout
    found = rows(done.stdout)
    assert {"OFUL log-det", "LinUCB", "LinTS v=R", "SOFUL l=20", "CBSCFD l=20"} <= set(found)
    for cells in found.values():
        assert float(cells[0]) == pytest.approx(1 - int(cells[1]) / 12, abs=1e-4)


def test_what_is_wrong_is_one_line(tmp_path):
    absent = example("movielens.py", str(tmp_path / "absent"))
    assert absent.returncode == 2
    assert absent.stdout == "" and len(absent.stderr.splitlines()) == 1
    assert absent.stderr.startswith("folder must hold u.data") and "no such folder" in absent.stderr
    few = example("movielens.py", str(write_recbole(tmp_path)))
    assert few.returncode == 2 and few.stderr.startswith("the later ratings must hold 20 of at least one film")
    refused = example("digits.py", "--rounds", "0")
    assert refused.returncode == 2 and "must be a whole number >= 1, got '0'" in refused.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_is_one_line(folder):
    command = [sys.executable, str(EXAMPLES / "movielens.py"), str(folder), "--rounds", "100000000"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=ENV, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("Ratings(2,400 ratings")  # now it plays
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=600)
    assert process.returncode == 130
    assert stderr == "interrupted: no table, an unfinished comparison would not be one\n"
