"""A bad value is one line that names the flag; an error of the library itself keeps its traceback."""

import pytest
from command_line import run

from sketchbandits.cli import experiment, flags, inspect, terminal
from sketchbandits.lab.scenes import ArmsChangedError

SHORT = ("simulate", "--policies", "ucb1", "--rounds", "100", "--runs", "1", "--jobs", "1")


def failing(error):
    def fail(*arguments, **options):
        raise error

    return fail


@pytest.mark.parametrize(
    "message", ["operands could not be broadcast together", "reward must be a number, got nan", "must be odd"]
)
def test_an_internal_error_while_playing_keeps_its_traceback(monkeypatch, tmp_path, message):
    monkeypatch.setattr(experiment, "play_all", failing(ValueError(message)))
    with pytest.raises(ValueError, match=message):
        run(*SHORT, "--out", tmp_path)


def test_an_internal_error_while_inspecting_keeps_its_traceback(monkeypatch, tmp_path):
    (tmp_path / "arms.csv").write_text("a,b\n1,2\n3,4\n")
    monkeypatch.setattr(inspect, "advise", failing(ValueError("cannot convert float NaN to integer")))
    with pytest.raises(ValueError, match="cannot convert"):
        run("inspect", tmp_path / "arms.csv")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ArmsChangedError("arms must not change while they are played, got another"), 2, "--arms must not change"),
        (MemoryError(), 1, "arms and policies must fit into memory: they do not"),
        (KeyboardInterrupt(), 130, "interrupted: finished runs are kept, the same command continues from there"),
    ],
)
def test_what_else_can_happen_while_playing_is_one_line(monkeypatch, tmp_path, error, code, line):
    monkeypatch.setattr(experiment, "play_all", failing(error))
    done = run(*SHORT, "--out", tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("theta_norm must be a number > 0, got 0", "--theta-norm must be a number > 0, got 0"),
        ("arms must be finite numbers, got nan", "ARMS must be finite numbers, got nan"),
        ("STATE must be a folder, got 'x'", "STATE must be a folder, got 'x'"),
        ("bandit 'a' must keep its rules, got others", "bandit 'a' must keep its rules, got others"),
    ],
)
def test_a_refusal_names_the_flag_or_the_argument(capsys, message, line):
    with pytest.raises(SystemExit) as end, flags.bad_values_refused(argument="arms"):
        raise ValueError(message)
    assert end.value.code == terminal.BAD_INPUT
    assert capsys.readouterr().err == f"{line}\n"
