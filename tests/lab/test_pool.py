"""Many runs: the same numbers in any number of processes, nothing played twice, no process left behind."""

import dataclasses
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import rounds

from sketchbandits.lab.experiments import pool
from sketchbandits.lab.experiments.pool import PLAYING, PREPARING, TIMING, play_all, usable_cores
from sketchbandits.lab.experiments.run_journal import RunJournal
from sketchbandits.lab.experiments.scenes import FileScene, Model, Scene, file_digest
from sketchbandits.lab.experiments.tasks import Task
from sketchbandits.policies.registry import PolicySpec, parse_policies

N, D, L = 13, 6, 4
SCENE = Scene("tiny", Model(L), "correlated", (("n_arms", N), ("dim", D), ("group_size", 1)))
T = rounds(2_000, 60)
PROC = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")


@pytest.fixture
def journal(tmp_path):
    return RunJournal(tmp_path / "runs.jsonl")


@pytest.fixture
def played(monkeypatch):
    """Every play of this process: (task, rounds of a rehearsal or None, number of other processes)."""
    calls, play = [], Task.play

    def recorded(self, *arguments, rounds=None):
        calls.append((self, rounds, len(multiprocessing.active_children())))
        return play(self, *arguments, rounds=rounds)

    monkeypatch.setattr(Task, "play", recorded)
    return calls


def in_full(calls):
    return [task for task, short, _ in calls if short is None]


def tasks_of(text, runs=2, length=T, **fields):
    return [Task(SCENE, policy, length, run, 3, **fields) for policy in parse_policies(text) for run in range(runs)]


def quiet(stage, what, share):
    pass


def same(one, two):
    """Bit-for-bit identical in all but the times."""
    return set(one) == set(two) and all(
        one[task].regret.tobytes() == two[task].regret.tobytes()
        and np.array_equal(one[task].checkpoints, two[task].checkpoints)
        and one[task].facts == two[task].facts
        for task in one
    )


def no_children(seconds=5.0):
    """Whether the workers end soon; those that do not are ended, or this process would wait for them."""
    end = time.monotonic() + seconds
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.02)
    left = multiprocessing.active_children()
    for child in left:
        child.kill()
    return not left


# --- the same numbers ---


@pytest.mark.process
def test_processes_do_not_change_the_numbers_and_timed_runs_are_played_alone(journal, tmp_path, played, monkeypatch):
    monkeypatch.setattr(pool, "INTERVAL", 0.01)
    untimed = tasks_of("cslb,lints,soful:exploration=ts,ucb1", runs=2)
    timed = tasks_of("ucb1,cslb", length=T // 2, timed=True)
    timed.sort(key=lambda task: task.run)
    alone = play_all([*untimed, *timed], RunJournal(tmp_path / "alone.jsonl"), jobs=1, watch=quiet)
    assert set(in_full(played)[: len(untimed)]) == set(untimed)
    assert in_full(played)[len(untimed) :] == timed
    assert {others for _, _, others in played} == {0}
    played.clear()
    seen, interrupted = [], set()

    def watch(stage, what, share):
        seen.append((stage, what, share, len(multiprocessing.active_children())))
        for child in multiprocessing.active_children():
            if child.pid not in interrupted:
                interrupted.add(child.pid)
                os.kill(child.pid, signal.SIGINT)  # Ctrl-C reaches them too, and is not for them

    together = play_all([*timed, *untimed], journal, jobs=2, watch=watch)
    assert same(alone, together)
    assert same(RunJournal(journal.path).read([*untimed, *timed]), alone)
    assert in_full(played) == timed  # the others in other processes
    assert {others for _, _, others in played} == {0}
    assert max(others for stage, _, _, others in seen if stage == PLAYING) == 2 == len(interrupted)
    assert {others for stage, _, _, others in seen if stage != PLAYING} == {0}
    assert [stage for i, (stage, *_) in enumerate(seen) if i == 0 or stage != seen[i - 1][0]] == [
        PREPARING,
        PLAYING,
        TIMING,
    ]
    shares = [share for stage, _, share, _ in seen if stage in (PLAYING, TIMING)]
    assert shares[0] == 0.0 and max(shares) <= 1.0
    assert (np.diff(shares) >= -1e-9).all()
    direct = {task: dataclasses.replace(task).play() for task in untimed}
    assert same(direct, {task: alone[task] for task in untimed})


# --- nothing twice ---


def test_finished_runs_are_not_played_again(journal, played):
    tasks = [*tasks_of("ucb1,lints"), *tasks_of("ucb1", timed=True)]
    first = play_all(tasks, journal, jobs=1, watch=quiet)
    assert sorted(map(hash, in_full(played))) == sorted(map(hash, tasks))
    assert [task.policy.name for task, short, _ in played if short] == ["ucb1", "lints"]  # one rehearsal each
    before = journal.path.read_bytes(), journal.path.stat().st_mtime_ns
    played.clear()
    for jobs in (1, 2):
        again = play_all(tasks[::-1], journal, jobs=jobs, watch=quiet)
        assert same(again, first)
        assert all(again[task].seconds == first[task].seconds for task in tasks)
    assert played == []
    assert (journal.path.read_bytes(), journal.path.stat().st_mtime_ns) == before


def test_only_what_is_missing_is_played(journal, played):
    tasks = tasks_of("ucb1,lints", runs=3)
    some = play_all(tasks[1:4], journal, jobs=1, watch=quiet)
    size = journal.path.stat().st_size
    played.clear()
    seen = []
    every = play_all(tasks, journal, jobs=1, watch=lambda *call: seen.append(call))
    assert set(in_full(played)) == {tasks[0], tasks[4], tasks[5]}
    assert same({task: every[task] for task in some}, some)
    assert journal.path.stat().st_size > size
    assert len(journal.path.read_text().splitlines()) == 6
    assert next(what for stage, what, _ in seen if stage == PLAYING) == "3 of 6 runs"


def test_a_task_named_twice_is_played_once(journal, played):
    tasks = tasks_of("ucb1")
    outcomes = play_all([*tasks, *map(dataclasses.replace, tasks)], journal, jobs=1, watch=quiet)
    assert len(in_full(played)) == len(outcomes) == 2


def test_no_tasks_no_outcomes(journal):
    assert play_all([], journal, jobs=2, watch=quiet) == {}
    assert not journal.path.exists()


# --- order and progress ---


def test_the_longest_runs_start_first(journal, played):
    lengths = [100, rounds(400_000, 1_600), rounds(40_000, 400)]
    tasks = [Task(SCENE, PolicySpec("oful"), length, 0, 3) for length in lengths]
    play_all(tasks, journal, jobs=1, watch=quiet)
    assert [task.rounds for task in in_full(played)] == sorted(lengths, reverse=True)


def test_progress_goes_from_nothing_to_all_and_counts_runs(journal, monkeypatch):
    monkeypatch.setattr(pool, "INTERVAL", -1.0)  # at every checkpoint
    tasks = [*tasks_of("cslb,ucb1", runs=3), *tasks_of("ucb1", timed=True)]
    seen = []
    play_all(tasks, journal, jobs=1, watch=lambda *call: seen.append(call))
    stages = [stage for stage, _, _ in seen]
    assert stages == sorted(stages, key=[PREPARING, PLAYING, TIMING].index)
    preparing = [(what, share) for stage, what, share in seen if stage == PREPARING]
    assert preparing == [("CS-LB", 0.0), ("UCB1", 0.5)]
    shares = [share for stage, _, share in seen if stage != PREPARING]
    assert shares[0] == 0.0 and shares[-1] == pytest.approx(1.0, abs=1e-9)
    assert (np.diff(shares) >= -1e-12).all()
    counts = [re.fullmatch(r"(\d+) of 8 runs", what)[1] for stage, what, _ in seen if stage != PREPARING]
    assert list(dict.fromkeys(counts)) == list("01234567")
    first_timed = next(what for stage, what, _ in seen if stage == TIMING)
    assert first_timed == "6 of 8 runs"
    # Within a run the share grows with its rounds.
    second = [share for count, share in zip(counts, shares, strict=True) if count == "1"]
    points = tasks[0].play().checkpoints
    assert np.allclose(np.diff(second), (second[-1] - second[0]) * np.diff(points) / (T - points[0]), atol=1e-9)


def test_an_outcome_is_on_the_disk_before_the_next_run_starts(journal, monkeypatch):
    lines, play = [], Task.play

    def recorded(self, *arguments, rounds=None):
        if rounds is None:
            lines.append(len(journal.read(tasks)))
        return play(self, *arguments, rounds=rounds)

    tasks = [*tasks_of("ucb1", runs=3), *tasks_of("ucb1", timed=True)]
    monkeypatch.setattr(Task, "play", recorded)
    play_all(tasks, journal, jobs=1, watch=quiet)
    assert lines == [0, 1, 2, 3, 4]


def test_cores_are_counted():
    assert 1 <= usable_cores() <= os.cpu_count()


# --- errors and interruptions ---

LONG = rounds(100_000, 800)


@pytest.mark.process
def test_an_error_in_a_worker_arrives_and_leaves_what_was_finished(journal, tmp_path):
    path = tmp_path / "arms.npy"
    np.save(path, np.random.default_rng(0).standard_normal((N, D)))
    scene = FileScene("gone", Model(L), str(path), file_digest(str(path)))
    scene.draw(0)  # this process remembers the arms
    path.unlink()  # its workers will not
    good = tasks_of("oful", runs=4, length=LONG)
    bad = Task(scene, PolicySpec("ucb1"), 100, 0, 3)
    with pytest.raises(FileNotFoundError):
        play_all([bad, *good], journal, jobs=2, watch=quiet)
    assert no_children()
    found = journal.read([bad, *good])
    assert bad not in found and len(found) >= 2  # the two that were played first
    for task, outcome in found.items():
        assert np.array_equal(outcome.regret, task.play().regret)


@pytest.mark.process
def test_an_error_in_this_process_leaves_what_was_finished(journal, monkeypatch):
    def refused(self, task, outcome, append=RunJournal.append):
        if len(self.read(tasks)) == 2:
            raise OSError(28, "No space left on device")
        append(self, task, outcome)

    tasks = tasks_of("ucb1", runs=5, length=LONG)
    monkeypatch.setattr(RunJournal, "append", refused)
    with pytest.raises(OSError, match="No space left"):
        play_all(tasks, journal, jobs=2, watch=quiet)
    assert no_children()
    assert len(journal.read(tasks)) == 2


@pytest.mark.process
def test_workers_are_stopped_in_the_middle_of_long_runs(journal):
    workers = []

    def interrupt(stage, what, share):  # in a thread, where a failing assertion would end nothing
        if stage == PLAYING and share > 0.0:
            workers.append(len(multiprocessing.active_children()))
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        play_all(tasks_of("oful", length=10**9), journal, jobs=2, watch=interrupt)
    assert workers[0] == 2
    assert no_children(3.0)
    assert not journal.path.exists()


@pytest.mark.process
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupted_experiment_goes_on_where_it_stopped(journal, tmp_path, played, monkeypatch, jobs):
    monkeypatch.setattr(pool, "INTERVAL", 0.01)
    tasks = [*tasks_of("oful,ucb1", runs=3, length=LONG), *tasks_of("ucb1", timed=True)]

    def interrupt(stage, what, share):
        if stage == PLAYING and not what.startswith("0 of"):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        play_all(tasks, journal, jobs=jobs, watch=interrupt)
    assert no_children()
    kept = journal.read(tasks)
    assert 1 <= len(kept) < 6
    size = journal.path.stat().st_size
    played.clear()
    finished = play_all(tasks, journal, jobs=jobs, watch=quiet)
    assert set(in_full(played)) == (set(tasks) - set(kept) if jobs == 1 else set(tasks[6:]))
    assert all(finished[task].seconds == outcome.seconds for task, outcome in kept.items())
    assert journal.path.stat().st_size > size
    assert len(journal.path.read_text().splitlines()) == len(tasks)
    assert same(finished, {task: dataclasses.replace(task).play() for task in tasks})


SCRIPT = """
import multiprocessing, os, signal, sys, time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from sketchbandits.lab.experiments import pool
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.lab.experiments.run_journal import RunJournal
from sketchbandits.lab.experiments.tasks import Task
from sketchbandits.lab.experiments.scenes import Model, Scene

def watch(stage, what, share):
    if stage == pool.PLAYING and share > 0.0:
        children = multiprocessing.active_children()
        print(*(child.pid for child in children), flush=True)
        if sys.argv[2] == "kill one":
            os.kill(children[0].pid, signal.SIGKILL)

if __name__ == "__main__":
    scene = Scene("tiny", Model(4), "correlated", (("n_arms", 13), ("dim", 6), ("group_size", 1)))
    tasks = [Task(scene, PolicySpec("oful"), 1_000_000_000, run, 3) for run in range(4)]
    try:
        pool.play_all(tasks, RunJournal(Path(sys.argv[1])), jobs=2, watch=watch)
    except BrokenProcessPool:
        print("broken", len(multiprocessing.active_children()), flush=True)
"""


@pytest.fixture
def start(tmp_path):
    """Start the script above in a session of its own; whatever is left of it is ended afterwards."""
    started = []

    def start(mode):
        script = tmp_path / "script.py"
        script.write_text(SCRIPT)
        command = [sys.executable, str(script), str(tmp_path / "runs.jsonl"), mode]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        for pid in session_of(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.stdout.close()
        process.wait()


def session_of(leader):
    """Live processes of a session, zombies aside."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader and fields[0] != "Z":
            pids.append(int(entry.name))
    return pids


def ends(leader, seconds):
    end = time.monotonic() + seconds
    while session_of(leader) and time.monotonic() < end:
        time.sleep(0.05)
    return not session_of(leader)


@pytest.mark.process
@PROC
def test_workers_end_when_their_parent_is_killed(start):
    process = start("wait")
    workers = [int(pid) for pid in process.stdout.readline().split()]
    assert len(workers) == 2
    assert set(workers) < set(session_of(process.pid))
    process.kill()
    process.wait()
    assert ends(process.pid, 5.0)


@pytest.mark.process
@PROC
def test_a_worker_that_is_killed_is_an_error_and_ends_the_others(start):
    process = start("kill one")
    assert len(process.stdout.readline().split()) == 2
    assert ends(process.pid, 10.0)
    assert process.stdout.read().split()[-2:] == ["broken", "0"]
