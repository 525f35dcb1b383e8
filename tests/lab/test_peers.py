"""Peers are played by the same rules, a missing one is named with its reason, and none outlives its time."""

import ast
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from suite.peers import compare, venvs
from suite.peers.drivers import protocol

MEANS = np.array([0.1, 0.7, 0.4])


def problem(rounds=11):
    arms = np.arange(6.0).reshape(3, 2)
    return protocol.Problem(arms, MEANS, np.linspace(-1.0, 1.0, rounds), seed=5)


class Clock:
    """Time passes only where a test says so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(protocol, "time", SimpleNamespace(perf_counter=lambda: self.now))


class Scripted:
    """Plays 2, 0, 1, 2, 0, 1, ... and keeps the rewards that it gets."""

    def __init__(self, clock=None):
        self.clock, self.rewards = clock, []

    def pass_time(self, seconds):
        if self.clock is not None:
            self.clock.now += seconds

    def select(self):
        self.pass_time(1.0)
        return (2, 0, 1)[len(self.rewards) % 3]

    def prepare(self, arm, reward):
        self.pass_time(100.0)
        self.prepared = (arm, reward)

    def update(self, arm, reward):
        assert self.prepared == (arm, reward)
        self.pass_time(2.0)
        self.rewards.append((arm, reward))


def test_play_books_rewards_and_regret():
    game, player = problem(), Scripted()
    played = protocol.play(player, game, seconds=60.0)
    arms = [(2, 0, 1)[t % 3] for t in range(11)]
    assert player.rewards == [
        (arm, pytest.approx(MEANS[arm] + noise)) for arm, noise in zip(arms, game.noise, strict=True)
    ]
    regret = np.cumsum(0.7 - MEANS[arms])
    assert played["rounds"] == 11
    assert played["regret"] == pytest.approx(regret[-1])
    assert [t for t, _ in played["regret_at"]] == [1, 2, 4, 8, 11]
    assert [value for _, value in played["regret_at"]] == pytest.approx(regret[[0, 1, 3, 7, 10]])


def test_a_power_of_two_is_not_kept_twice():
    assert [t for t, _ in protocol.play(Scripted(), problem(8), 60.0)["regret_at"]] == [1, 2, 4, 8]


@pytest.mark.parametrize(("limit", "rounds"), [(7.0, 3), (9.0, 3), (9.5, 4), (1e9, 11)])
def test_the_clock_runs_in_select_and_update_only(monkeypatch, limit, rounds):
    played = protocol.play(Scripted(Clock(monkeypatch)), problem(), seconds=limit)
    assert (played["rounds"], played["seconds"]) == (rounds, 3.0 * rounds)


def test_measure_plays_a_fresh_player_after_a_rehearsal(monkeypatch):
    clock, made = Clock(monkeypatch), []

    def make(game):
        clock.now += 4.0
        made.append(Scripted(clock))
        return made[-1]

    record = protocol.measure(protocol.Variant("v", "words", False, make), problem(), 1e9)
    assert [len(player.rewards) for player in made] == [protocol.REHEARSAL, 11]
    assert (record["rounds"], record["seconds"], record["warmup_seconds"]) == (11, 33.0, 4.0)
    assert (record["name"], record["model"], record["comparable"]) == ("v", "words", False)


def test_a_variant_that_fails_says_why():
    def make(game):
        raise TypeError("no such option")

    record = protocol.measure(protocol.Variant("v", "words", True, make), problem(), 1.0)
    assert record["failed"] == "TypeError: no such option"
    assert "rounds" not in record


def test_a_problem_survives_its_file(tmp_path):
    game = problem()
    game.save(tmp_path / "game.npz")
    found = protocol.Problem.load(tmp_path / "game.npz")
    assert found.seed == 5
    for name in ("arms", "means", "noise"):
        assert np.array_equal(getattr(found, name), getattr(game, name))


def test_every_peer_has_a_driver_that_stands_alone():
    scripts = {path.name.removesuffix("_driver.py"): path for path in compare.DRIVERS.glob("*_driver.py")}
    assert scripts.keys() == venvs.PEERS.keys()
    for name, path in [*scripts.items(), ("protocol", Path(protocol.__file__))]:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        others = {module.split(".")[0] for module in imported} - sys.stdlib_module_names - {"numpy"}
        assert others == (set() if name == "protocol" else {name, "protocol"})


class Commands:
    """In place of processes: makes the environment's Python, and ends a step as wanted."""

    def __init__(self, **endings):
        self.endings, self.steps = endings, []

    def __call__(self, command, log, *, seconds):
        step = "venv" if "venv" in command else "pip" if "pip" in command else "import"
        self.steps.append(step)
        self.command = command
        if step == "venv":
            python = Path(command[-1]) / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.touch()
        status, said = self.endings.get(step, (0, "fine"))
        with log.open("a") as file:
            file.write(f"{step}: {said}\n" if status == 0 else f"{said}\n")
        return status


PEER = {"peer": venvs.Peer(("peer>=1",), "peer.part")}
posix = pytest.mark.skipif(os.name == "nt", reason="the stub makes an environment as POSIX lays it out")


@posix
def test_an_environment_is_made_once(tmp_path):
    commands = Commands()
    python = venvs.Venvs(tmp_path, PEER, commands).python("peer")
    assert python == tmp_path / "peer" / "bin" / "python"
    assert commands.steps == ["venv", "pip", "import"]
    assert "import: fine" in (tmp_path / "peer.log").read_text()
    again = Commands()
    assert venvs.Venvs(tmp_path, PEER, again).python("peer") == python
    assert again.steps == []
    other = Commands()
    venvs.Venvs(tmp_path, {"peer": venvs.Peer(("peer>=2",), "peer.part")}, other).python("peer")
    assert other.steps == ["venv", "pip", "import"]


@posix
@pytest.mark.parametrize(
    ("endings", "reason"),
    [
        ({"pip": (1, "ERROR: nothing found for peer>=1\nmore text")}, "pip install: ERROR: nothing found for peer>=1"),
        ({"import": (1, "Traceback\n  File\nImportError: no part\n")}, "import peer.part: ImportError: no part"),
        ({"pip": (None, "still building")}, f"pip install: not done after {venvs.INSTALL_SECONDS:.0f} s"),
    ],
)
def test_a_failed_installation_is_remembered_for_the_run(tmp_path, endings, reason):
    commands = Commands(**endings)
    environments = venvs.Venvs(tmp_path, PEER, commands)
    for _ in range(2):
        with pytest.raises(venvs.NotInstalledError) as caught:
            environments.python("peer")
        assert str(caught.value) == reason
    assert commands.steps.count("venv") == 1
    next_run = Commands()
    venvs.Venvs(tmp_path, PEER, next_run).python("peer")
    assert next_run.steps == ["venv", "pip", "import"]


def test_only_names_are_installed(tmp_path):
    commands = Commands(pip=(1, "ERROR: stop here"))
    with pytest.raises(venvs.NotInstalledError):
        venvs.Venvs(tmp_path, PEER, commands).python("peer")
    assert commands.command[1:4] == ["-m", "pip", "install"]
    assert [part for part in commands.command[4:] if not part.startswith("--")] == ["peer>=1"]


@pytest.mark.process
def test_a_peer_is_held_to_one_thread_and_does_not_see_us(monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    script = "import os; print([os.environ.get(n) for n in ('PYTHONPATH', 'OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS')])"
    assert venvs.run([sys.executable, "-c", script], tmp_path / "log", seconds=30) == 0
    assert venvs.last_line(tmp_path / "log") == "[None, '1', '1']"


SLEEPER = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]


def started(log):
    """The process that wrote its number into the log."""
    for _ in range(500):
        if log.exists() and log.read_text().strip():
            return int(log.read_text())
        time.sleep(0.02)
    raise AssertionError("the process did not start")


@pytest.mark.process
@pytest.mark.parametrize(
    "ending", [KeyboardInterrupt(), subprocess.TimeoutExpired("python", 60)], ids=["ctrl-c", "time"]
)
def test_whatever_ends_the_wait_the_process_is_killed(monkeypatch, tmp_path, ending):
    log, wait = tmp_path / "log", subprocess.Popen.wait

    def interrupted(process, timeout=None):
        if timeout is None:
            return wait(process)
        started(log)
        raise ending

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    if isinstance(ending, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            venvs.run(SLEEPER, log, seconds=60)
    else:
        assert venvs.run(SLEEPER, log, seconds=60) is None
    with pytest.raises(ProcessLookupError):
        os.kill(started(log), 0)


STUB = """
import sys
sys.path.insert(0, {drivers!r})
from protocol import Variant, main

class Always:
    def __init__(self, arm): self.arm = arm
    def select(self): return self.arm
    def update(self, arm, reward): pass

main("numpy", [
    Variant("best", "knows", True, lambda game: Always(int(game.means.argmax()))),
    Variant("first", "does not care", False, lambda game: Always(0)),
    Variant("broken", "breaks", True, lambda game: 1 / 0),
])
"""


class Environments:
    """One peer that runs in this very Python, one that cannot be had."""

    peers = ("stub", "gone")

    def python(self, name):
        if name == "gone":
            raise venvs.NotInstalledError("no wheel")
        return Path(sys.executable)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drivers")
    (folder / "stub_driver.py").write_text(STUB.format(drivers=str(compare.DRIVERS)))
    shown = []
    result = compare.compare(
        "tiny",
        n_arms=23,
        dim=7,
        sketch_size=3,
        rounds=100,
        seconds=20.0,
        seeds=[4],
        folder=folder,
        watch=lambda what, share: shown.append((what, share)),
        environments=Environments(),
        drivers=folder,
    )
    return json.loads(json.dumps(result)), shown


def row_of(result, variant):
    return next(row for row in result["rows"] if row.get("variant") == variant)


def test_compare_lists_what_is_missing_and_what_failed(compared):
    result, shown = compared
    assert {"peer": "gone", "installed": False, "reason": "no wheel"} in result["rows"]
    assert row_of(result, "broken")["failed"] == "ZeroDivisionError: division by zero"
    assert "rounds_per_second" not in row_of(result, "broken")
    assert shown[-1] == ("tiny", 1.0)
    assert [share for _, share in shown] == sorted(share for _, share in shown)


def test_all_meet_the_same_game(compared):
    result, _ = compared
    env, game = compare._draw(23, 7, 100, seed=4)
    best, first = row_of(result, "best"), row_of(result, "first")
    assert (best["rounds"], best["regret"]) == (100, 0.0)
    assert first["regret"] == pytest.approx(100 * env.gaps[0])
    loop, called = row_of(result, "CS-LB, compiled loop"), row_of(result, "CS-LB, select and update")
    assert [t for t, _ in loop["regret_at"]] == [1, 2, 4, 8, 16, 32, 64, 100]
    assert np.array(loop["regret_at"]) == pytest.approx(np.array(called["regret_at"]))
    assert loop["regret"] > 0
    yardstick = protocol.play(compare.NumpyOFUL(game.arms), game, 20.0)
    assert row_of(result, "NumPy OFUL")["regret"] == pytest.approx(yardstick["regret"])
    assert best["yardstick_regret"] == pytest.approx(yardstick["regret"])
    assert (best["shared_round"], best["common_round"], best["regret_at_common_round"]) == (100, 100, 0.0)
    assert "shared_round" not in first and "common_round" not in first


def test_a_rate_is_divided_by_those_of_its_neighbours(compared):
    result, _ = compared
    rates = row_of(result, "NumPy OFUL")["rates"]
    assert len(rates) == 4  # before, between and after: the loop, the calls, the stub
    names = ("CS-LB, compiled loop", "CS-LB, select and update", "best")
    for place, row in enumerate(row_of(result, name) for name in names):
        assert row["rounds_per_second"] == pytest.approx(row["rounds"] / row["seconds"])
        neighbours = statistics.fmean(rates[place : place + 2])
        assert row["times_yardstick"] == pytest.approx(row["rounds_per_second"] / neighbours)
    assert row_of(result, "first")["times_yardstick"] == pytest.approx(
        row_of(result, "first")["rounds_per_second"] / statistics.fmean(rates[2:])
    )


@pytest.mark.parametrize(
    ("ending", "reason"),
    [("import time; time.sleep(60)", "timed out after 3 s"), ("raise ValueError('out of luck')", "out of luck")],
)
def test_a_driver_that_ends_badly_keeps_what_it_has_played(monkeypatch, tmp_path, ending, reason):
    script = tmp_path / "bad_driver.py"
    script.write_text(f"import sys\nopen(sys.argv[2], 'w').write('{{\"name\": \"done\"}}\\n')\n{ending}\n")
    monkeypatch.setattr(compare.Table, "patience", 3.0)
    env, game = compare._draw(5, 3, 10, seed=1)
    table = compare.Table(1, env, game, 1.0, tmp_path)
    done, failed = compare._driven(table, tmp_path / "1.npz", "bad", [sys.executable, str(script)])
    assert done == {"name": "done"}
    assert failed["name"] == "bad" and failed["failed"].endswith(reason)
