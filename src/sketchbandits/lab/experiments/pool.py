"""Many runs: in parallel processes where only regret counts, alone and one after another where time does.

Finished runs go to the journal immediately, so that an interrupted experiment continues where it stopped.
"""

import contextlib
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from joblib.externals import loky

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.experiments.run_journal import RunJournal
from sketchbandits.lab.experiments.tasks import Outcome, Task
from sketchbandits.progress import Watch

PREPARING, PLAYING, TIMING = "preparing, kernels compile once", "playing", "timing one by one"
WRITING = "writing"
REHEARSAL = 256  # rounds
INTERVAL = 0.2  # seconds between two reports of progress


def usable_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def play_all(tasks: Sequence[Task], journal: RunJournal, *, jobs: int, watch: Watch) -> dict[Task, Outcome]:
    """The outcome of every task, from the journal where it is there already."""
    outcomes = journal.read(tasks)
    missing = [task for task in dict.fromkeys(tasks) if task not in outcomes]
    expected = _rehearse(missing, watch)
    timed = [task for task in missing if task.timed]
    # The longest first: a long run that starts last would keep one process busy alone.
    untimed = sorted((task for task in missing if not task.timed), key=lambda task: -expected[task])
    jobs = max(1, min(jobs, len(untimed)))
    meter = _Meter(expected, jobs, len(outcomes), watch)

    def finish(task: Task, outcome: Outcome) -> None:
        journal.append(task, outcome)
        outcomes[task] = outcome
        meter.finished += 1

    if jobs == 1:
        _one_by_one(PLAYING, untimed, meter, finish)
    else:
        _in_parallel(untimed, jobs, meter, finish)
    _one_by_one(TIMING, timed, meter, finish)
    return outcomes


class _Meter:
    """How far all runs are: their number in words, expected seconds on the wall as a share."""

    def __init__(self, expected: Mapping[Task, float], jobs: int, finished: int, watch: Watch) -> None:
        self.weights = {task: seconds / (1 if task.timed else jobs) for task, seconds in expected.items()}
        self.total, self.runs = sum(self.weights.values()), finished + len(expected)
        self.finished, self.watch = finished, watch
        self.before, self.shown = 0.0, -1.0  # seconds of the stages before, and when progress was last reported

    def show(self, stage: str, seconds: float, *, now: bool = False) -> None:
        """So many expected seconds of this stage are done."""
        if now or time.monotonic() - self.shown > INTERVAL:
            self.shown = time.monotonic()
            share = min((self.before + seconds) / self.total, 1.0) if self.total else 1.0
            self.watch(stage, f"{self.finished} of {self.runs} runs", share)


def _rehearse(tasks: Sequence[Task], watch: Watch) -> dict[Task, float]:
    """Build every policy once, which compiles or loads its kernels; returns the seconds that each task should take."""
    pairs: dict[Any, list[Task]] = {}
    for task in tasks:
        pairs.setdefault((task.scene, task.policy), []).append(task)
    expected = {}
    for i, alike in enumerate(pairs.values()):
        watch(PREPARING, alike[0].policy.label, i / len(pairs))
        rounds = min(REHEARSAL, max(1, alike[0].rounds // 20))
        started = time.perf_counter()
        played = alike[0].play(rounds=rounds)
        around = max(0.0, time.perf_counter() - started - played.seconds)
        for task in alike:
            # What surrounds the rounds counts too, less where it may have been a compilation.
            expected[task] = played.seconds / rounds * task.rounds + min(around, 0.02)
    return expected


def _one_by_one(stage: str, tasks: Sequence[Task], meter: _Meter, finish: Callable[[Task, Outcome], None]) -> None:
    if tasks:
        meter.show(stage, 0.0, now=True)
    for task in tasks:
        played = 0

        def advance(rounds: int, task: Task = task) -> None:
            nonlocal played
            played += rounds
            meter.show(stage, meter.weights[task] * played / task.rounds)

        finish(task, task.play(advance))
        meter.before += meter.weights[task]


def _in_parallel(tasks: Sequence[Task], jobs: int, meter: _Meter, finish: Callable[[Task, Outcome], None]) -> None:
    meter.show(PLAYING, 0.0, now=True)
    weights = np.array([meter.weights[task] for task in tasks])
    with (
        tempfile.TemporaryDirectory(prefix="sketchbandits-", ignore_cleanup_errors=True) as folder,
        _workers(jobs) as parallel,
    ):
        # Each worker writes here the share of its task that is done; joblib hands a memory map on by its file.
        shares = np.memmap(Path(folder) / "shares", dtype=np.float64, mode="w+", shape=len(tasks))
        with _interrupts_ignored():  # workers inherit it: Ctrl-C is for this process, which then stops them
            played = parallel(joblib.delayed(_work)(task, place, shares) for place, task in enumerate(tasks))
        with _closed(played), _repeated(lambda: meter.show(PLAYING, float(shares @ weights))):
            for place, outcome in played:
                finish(tasks[place], outcome)
    meter.before += float(weights.sum())


def _work(task: Task, place: int, shares: Floats) -> tuple[int, Outcome]:
    def advance(rounds: int) -> None:
        shares[place] += rounds / task.rounds

    return place, task.play(advance)


@contextlib.contextmanager
def _workers(jobs: int) -> Iterator[joblib.Parallel]:
    """Processes that yield outcomes as they finish; they end with the block, not after joblib's idle time."""
    started = {"initializer": _begin, "initargs": (os.getpid(),)}
    try:
        # Tasks are long: one at a time each, so that every outcome reaches the journal as soon as it is there.
        yield joblib.Parallel(jobs, backend="loky", return_as="generator_unordered", batch_size=1, **started)
    finally:
        loky.get_reusable_executor().shutdown(wait=True, kill_workers=True)


@contextlib.contextmanager
def _closed(outcomes: Generator[tuple[int, Outcome], None, None]) -> Iterator[None]:
    """Give up what is still being played when the block ends early."""
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # joblib warns of work that is given up, which is on purpose here
            outcomes.close()


@contextlib.contextmanager
def _repeated(show: Callable[[], None]) -> Iterator[None]:
    """Show progress every `INTERVAL` seconds from a thread, while this one waits for outcomes."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(INTERVAL):
            show()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _begin(parent: int) -> None:
    """What a worker does first: joblib's workers would outlive a parent that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # not inherited everywhere
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(INTERVAL)
    os._exit(1)
