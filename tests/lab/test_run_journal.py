"""The journal of finished runs: what is read back, what is skipped, what a crash leaves."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
from made_tasks import TASK, T, equal, made_up

from sketchbandits.lab.experiments.run_journal import RunJournal
from sketchbandits.policies.registry import PolicySpec

# --- the journal ---


@pytest.fixture
def journal(tmp_path):
    return RunJournal(tmp_path / "runs.jsonl")


TASKS = [dataclasses.replace(TASK, run=run) for run in range(4)]


def test_what_is_written_is_read_to_the_last_bit(journal):
    assert journal.read(TASKS) == {}
    played = {task: task.play() for task in (TASKS[1], dataclasses.replace(TASKS[2], timed=True))}
    for task, outcome in played.items():
        journal.append(task, outcome)
    found = RunJournal(journal.path).read([*TASKS, *played])
    assert list(found) == list(played)
    assert all(equal(found[task], played[task]) for task in played)


def test_counts_are_read_as_whole_numbers(journal):
    # As floats they would make another sweeps.csv of a run that was interrupted: 4.0 instead of 4.
    journal.append(TASK, made_up(TASK))
    facts = journal.read([TASK])[TASK].facts
    assert repr(facts) == repr(made_up(TASK).facts) == "{'largest_gap': 0.30000000000000004, 'clusters': 4}"


def test_a_line_is_one_json_object_with_names_for_people(journal):
    task = dataclasses.replace(TASK, policy=PolicySpec.parse("cslb:ridge=2"), timed=True)
    journal.append(task, made_up(task))
    (line,) = journal.path.read_text().splitlines()
    entry = json.loads(line)
    assert {name: entry[name] for name in ("key", "scene", "policy", "run", "timed")} == {
        "key": task.key, "scene": "tiny", "policy": "cslb:ridge=2", "run": 2, "timed": True,
    }  # fmt: skip
    assert entry["regret"] == [0.1, 1 / 3, 12345.678901234567]
    assert entry["checkpoints"] == [1, T // 2, T]


def test_other_tasks_are_ignored(journal):
    for task in TASKS[:3]:
        journal.append(task, made_up(task))
    assert set(journal.read(TASKS[1:])) == set(TASKS[1:3])
    assert journal.read([dataclasses.replace(TASK, seed=99)]) == {}


def test_duplicates_count_once(journal):
    for _ in range(3):
        journal.append(TASK, made_up(TASK))
    found = journal.read([TASK, TASK])
    assert list(found) == [TASK] and equal(found[TASK], made_up(TASK))


def good_line(task=TASK):
    entry = {"key": task.key, "scene": "tiny", "policy": "cslb", "run": task.run, "timed": False, "seconds": 0.5}
    entry |= {"warmup_seconds": 0.25, "facts": {"clusters": 4}, "checkpoints": [1, T], "regret": [0.5, 2.5]}
    return entry


ODD = {
    "empty": b"",
    "blank": b"   ",
    "no json": b"what is this",
    "not utf-8": b"\xff\xfe\x00\x80",
    "zeros, as a crash of the machine leaves them": b"\0" * 500,
    "a number": b"17",
    "null": b"null",
    "a word": b'"key"',
    "a list": b"[1, 2, 3]",
    "no fields": b"{}",
    "deep": b"[" * 100_000,
    "two objects": json.dumps(good_line()).encode() * 2,
}
CHANGES = {
    "no regret": {"regret": None},
    "nan": {"regret": [0.5, float("nan")]},
    "infinite": {"regret": [0.5, float("inf")]},
    "a number too large": {"regret": [0.5, 10**400]},
    "null in regret": {"regret": [0.5, None]},
    "words": {"regret": ["a", "b"]},
    "regret too short": {"regret": [2.5]},
    "regret too long": {"regret": [0.5, 1.0, 2.5]},
    "both empty": {"regret": [], "checkpoints": []},
    "regret is one number": {"regret": 2.5},
    "both are one number": {"regret": 2.5, "checkpoints": T},
    "both nested": {"regret": [[2.5]], "checkpoints": [[T]]},
    "both nested and long": {"regret": [[0.5, 2.5]] * 2, "checkpoints": [[1, T]] * 2},
    "ragged": {"regret": [[0.5], [1.0, 2.5]]},
    "a shorter run": {"checkpoints": [1, T - 1]},
    "a longer run": {"checkpoints": [1, T + 1]},
    "checkpoints too large": {"checkpoints": [1, 10**30]},
    "checkpoints infinite": {"checkpoints": [1, float("inf")]},
    "no checkpoints": {"checkpoints": None},
    "no key": {"key": None},
    "a list as key": {"key": []},
    "seconds are a word": {"seconds": "fast"},
    "no seconds": {"seconds": None},
    "seconds are nan": {"seconds": float("nan")},
    "warm-up is a word": {"warmup_seconds": "fast"},
    "facts are a list": {"facts": [1]},
}  # fmt: skip


def odd_lines():
    yield from ODD.items()
    for name, change in CHANGES.items():
        yield name, json.dumps({**good_line(), **change}).encode()
    for field in ("key", "seconds", "warmup_seconds", "facts", "checkpoints", "regret"):
        yield f"{field} left out", json.dumps({k: v for k, v in good_line().items() if k != field}).encode()


@pytest.mark.parametrize("line", [pytest.param(line, id=name) for name, line in odd_lines()])
def test_a_line_that_is_no_outcome_is_passed_over(journal, line):
    journal.append(TASKS[0], made_up(TASKS[0]))
    with open(journal.path, "ab") as file:
        file.write(line + b"\n")
    journal.append(TASKS[1], made_up(TASKS[1]))
    found = journal.read([*TASKS[:2], TASK])
    assert set(found) == set(TASKS[:2])
    assert all(equal(found[task], made_up(task)) for task in found)


def test_the_line_that_the_odd_ones_are_made_of_is_read(journal):
    journal.path.write_text(json.dumps(good_line()) + "\n")
    outcome = journal.read([TASK])[TASK]
    assert outcome.regret.tolist() == [0.5, 2.5] and outcome.checkpoints.tolist() == [1, T]
    assert (outcome.seconds, outcome.warmup_seconds, outcome.facts) == (0.5, 0.25, {"clusters": 4})


def test_a_line_cut_anywhere_never_lies_and_the_next_survives(journal, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # a thousand times
    first, last, after = TASKS[:3]
    journal.append(first, made_up(first))
    start = journal.path.stat().st_size
    journal.append(last, made_up(last))
    whole = journal.path.read_bytes()
    for end in range(start, len(whole) + 1):
        journal.path.write_bytes(whole[:end])
        found = journal.read(TASKS)
        assert set(found) == ({first, last} if end >= len(whole) - 1 else {first})
        assert all(equal(found[task], made_up(task)) for task in found)
        journal.append(after, made_up(after))
        again = journal.read(TASKS)
        assert set(again) == {*found, after}
        assert all(equal(again[task], made_up(task)) for task in again)


def test_the_disk_is_reached_before_append_returns(journal, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    journal.append(TASK, made_up(TASK))
    assert synced == [journal.path.stat().st_size] and synced[0] > 0


def test_an_empty_file_is_a_journal(journal):
    journal.path.touch()
    assert journal.read(TASKS) == {}
    journal.append(TASK, made_up(TASK))
    assert equal(journal.read([TASK])[TASK], made_up(TASK))
    assert not journal.path.read_bytes().startswith(b"\n")


def test_a_file_that_cannot_be_written_is_an_os_error(tmp_path):
    with pytest.raises(IsADirectoryError):
        RunJournal(tmp_path).append(TASK, made_up(TASK))
    with pytest.raises(IsADirectoryError):
        RunJournal(tmp_path).read([TASK])
    with pytest.raises(FileNotFoundError):
        RunJournal(tmp_path / "nowhere" / "runs.jsonl").append(TASK, made_up(TASK))
    if Path("/dev/full").exists():
        with pytest.raises(OSError, match="No space left"):
            RunJournal(Path("/dev/full")).append(TASK, made_up(TASK))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_an_os_error(journal):
    journal.append(TASK, made_up(TASK))
    before = journal.path.read_bytes()
    journal.path.chmod(0o444)
    with pytest.raises(PermissionError):
        journal.append(TASKS[0], made_up(TASKS[0]))
    assert journal.path.read_bytes() == before
