"""Play tasks in processes, each outcome in the journal as soon as it is there, so that a run can be continued."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import joblib

from sketchbandits.lab.experiments import pool
from sketchbandits.lab.journal import Journal
from sketchbandits.progress import Watch
from suite.practice.game import Task, play, try_out
from suite.practice.stamps import commit, digest

TRYING, PLAYING = "trying out", "playing"
PATIENCE, PEER_PATIENCE = 10.0, 2.5  # seconds that a trial may take; few take that long
Outcome = dict[str, Any]


class Kept:
    """The outcomes in a journal that this code has played."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.by_key = {entry["key"]: entry for entry in journal if "failed" not in entry}
        self.failed: dict[str, Outcome] = {}

    def get(self, task: Task, kind: str = PLAYING) -> Outcome | None:
        """The outcome of a task; None where this code has not played it."""
        key = key_of(task, kind)
        return self.by_key.get(key) or self.failed.get(key)

    def put(self, task: Task, outcome: Outcome, kind: str = PLAYING) -> None:
        """Keep an outcome; one that failed is written down, but tried again by the next run."""
        key = key_of(task, kind)
        about = {"kind": kind, "commit": commit(), "digest": digest(task.policy, task.films)}
        self.journal.append({"key": key} | task.identity | about | outcome)
        (self.failed if "failed" in outcome else self.by_key)[key] = outcome

    def stale(self, tasks: Sequence[Task]) -> int:
        """How many of the tasks the journal has only from other code."""
        missing = {_name(task.identity) for task in tasks if self.get(task) is None}
        fields = Task("", "", None, 0).identity
        runs = [entry for entry in self.journal if entry.get("kind") == PLAYING]
        return len(missing & {_name({name: entry.get(name) for name in fields}) for entry in runs})


def key_of(task: Task, kind: str = PLAYING) -> str:
    """A hash of what names a run and of the code that plays it."""
    what = task.identity | {"kind": kind, "digest": digest(task.policy, task.films)}
    if kind == TRYING:
        what |= {"seed": None, "scale": None}
    return hashlib.sha256(_name(what).encode()).hexdigest()[:24]


def _name(what: Mapping[str, Any]) -> str:
    return json.dumps(what, sort_keys=True)


def try_all(tasks: Sequence[Task], kept: Kept, *, jobs: int, watch: Watch) -> dict[tuple[str, str], Outcome]:
    """The expected seconds of a run, by world and policy, from the journal where it has them."""
    missing = {(task.world, task.policy): task for task in tasks if kept.get(task, TRYING) is None}
    work = {task: partial(try_out, task, PEER_PATIENCE if task.python else PATIENCE) for task in missing.values()}
    _carry_out(TRYING, work, dict.fromkeys(work, 1.0), kept, jobs, watch)
    return {(task.world, task.policy): kept.get(task, TRYING) or {} for task in tasks}


def play_all(tasks: Sequence[Task], expected: Mapping[Task, float], kept: Kept, *, jobs: int, watch: Watch) -> None:
    """Play what the journal does not have; worlds that take longest first, the runs of one seed next to each other."""
    missing = [task for task in tasks if kept.get(task) is None]
    longest: dict[tuple[str, bool], float] = {}
    for task in missing:
        group = (task.world, task.python is not None)
        longest[group] = max(longest.get(group, 0.0), expected[task])
    missing.sort(key=lambda task: (-longest[task.world, task.python is not None], task.world, task.seed))
    _carry_out(PLAYING, {task: partial(play, task) for task in missing}, expected, kept, jobs, watch)


def _carry_out(
    stage: str,
    work: Mapping[Task, Callable[[], Outcome]],
    expected: Mapping[Task, float],
    kept: Kept,
    jobs: int,
    watch: Watch,
) -> None:
    tasks, done = list(work), 0.0
    total = sum(expected[task] for task in tasks) or 1.0
    if not tasks:
        return
    watch(stage, f"{len(tasks)} runs", 0.0)

    def finish(number: int, task: Task, outcome: Outcome) -> None:
        nonlocal done
        kept.put(task, outcome, stage)
        done += expected[task]
        watch(stage, f"{number} of {len(tasks)}, {task.world}", min(done / total, 1.0))

    if jobs == 1:
        for number, task in enumerate(tasks, start=1):
            finish(number, task, work[task]())
        return
    # The workers of the lab: they ignore Ctrl-C, which is for this process, and end with it.
    with pool._workers(min(jobs, len(tasks))) as parallel:
        with pool._interrupts_ignored():
            outcomes = parallel(joblib.delayed(_numbered)(place, work[task]) for place, task in enumerate(tasks))
        with pool._closed(outcomes):
            for number, (place, outcome) in enumerate(outcomes, start=1):
                finish(number, tasks[place], outcome)


def _numbered(place: int, work: Callable[[], Outcome]) -> tuple[int, Outcome]:
    return place, work()
