"""A bad value is one line that names the flag; an error of the library itself keeps its traceback."""

import pytest
from command_line import run

from sketchbandits.cli import experiment, flags, inspect, terminal
from sketchbandits.lab.experiments.scenes import ArmsChangedError
from sketchbandits.lab.paper.reproduce import PaperPlan

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


@pytest.mark.parametrize("message", ["cannot convert float NaN to integer", "reward must be a number, got nan"])
def test_an_internal_error_while_inspecting_keeps_its_traceback(monkeypatch, tmp_path, message):
    def begun(arms, *, progress, **options):
        progress(0.1, "the spectrum")
        raise ValueError(message)

    (tmp_path / "arms.csv").write_text("a,b\n1,2\n3,4\n")
    monkeypatch.setattr(inspect, "advise", begun)
    with pytest.raises(ValueError, match=message):
        run("inspect", tmp_path / "arms.csv")


def test_arms_that_do_not_fit_into_memory_are_one_line(monkeypatch, tmp_path):
    (tmp_path / "arms.csv").write_text("a,b\n1,2\n3,4\n")
    monkeypatch.setattr(inspect, "advise", failing(MemoryError("no 40 GB")))
    line = "arms and policies must fit into memory: no 40 GB\n"
    assert run("inspect", tmp_path / "arms.csv") == (2, "", line)


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
        ("policies must be some of oful, got 'x'", "--policy must be some of oful, got 'x'"),
        ("STATE must be a folder, got 'x'", "STATE must be a folder, got 'x'"),
        ("bandit 'a' must keep its rules, got others", "bandit 'a' must keep its rules, got others"),
    ],
)
def test_a_refusal_names_the_flag_or_the_argument(capsys, message, line):
    with pytest.raises(SystemExit) as end, flags.bad_values_refused(arms="ARMS", policies="--policy"):
        raise ValueError(message)
    assert end.value.code == terminal.BAD_INPUT
    assert capsys.readouterr().err == f"{line}\n"


def test_an_interrupt_during_the_checks_is_one_line(monkeypatch):
    monkeypatch.setattr(PaperPlan, "check", failing(KeyboardInterrupt()))
    assert run("reproduce") == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("serve", "--policy", "greedy"), "--policy must be some of cslb, "),
        (("serve", "--policy", "ucb1:noise=-1", "--arms", "arms.csv", "--port", "0"), "noise must be a number > 0"),
        (("keys", "revoke", "nobody"), "ID must be one of"),
        (("keys", "create", "shop", "--state", "arms.csv/deep"), "--state must be a folder that can be written to"),
        (("log", "postgresql://127.0.0.1:1/none"), "STATE must be a PostgreSQL server that answers"),
        (("replay", "nothing"), "STATE must be the folder or log of a service, got 'nothing'"),
        (("replay", "arms.csv", "--policy", "greedy"), "--policy must be some of cslb, "),
    ],
)
def test_the_commands_of_the_service_name_what_was_given(tmp_path, arguments, line):
    (tmp_path / "arms.csv").write_text("a,b\n1,2\n3,4\n")
    refused = run(*arguments, cwd=tmp_path)
    assert refused.returncode in (1, 2) and refused.stdout == ""
    assert refused.stderr.startswith(line) and refused.stderr.count("\n") == 1


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
    refused = run("reproduce", flag, value, cwd=tmp_path)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"{flag} must ") and allowed in line
    assert repr(value.split(",")[-1]) in line or f"got {value}" in line or repr(value) in line
    assert refused.stdout == "" and not any(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [("reproduce", "--horizon"), ("simulate", "--rounds"), ("comparison",)])
def test_unknown_flags_and_commands_are_refused_in_one_line(tmp_path, arguments):
    refused = run(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert arguments[-1] in line
