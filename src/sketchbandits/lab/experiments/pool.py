"""Many runs: in parallel processes where only regret counts, alone and one after another where time does.

Finished runs go to the journal at once, so that an interrupted experiment goes on where it stopped.
"""

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

import numpy as np

from sketchbandits.lab.experiments.run_journal import RunJournal
from sketchbandits.lab.experiments.tasks import Outcome, Task

PREPARING, PLAYING, TIMING = "preparing, kernels compile once", "playing", "timing one by one"
WRITING = "writing"
REHEARSAL = 256  # rounds
LOOK = 0.2  # seconds between two looks at the workers

# Called with the stage, what is being done, and the share of the stage that is done.
Watch = Callable[[str, str, float], None]


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
        self.before, self.looked = 0.0, -1.0  # seconds of the stages before, and when `watch` was last called

    def show(self, stage: str, seconds: float, *, now: bool = False) -> None:
        """So many expected seconds of this stage are done."""
        if now or time.monotonic() - self.looked > LOOK:
            self.looked = time.monotonic()
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
    with _workers(jobs, len(tasks)) as (pool, shares):
        with _interrupts_ignored():  # workers inherit it: Ctrl-C is for this process, which then stops them
            running: dict[Future[Outcome], Task] = {
                pool.submit(_work, task, place): task for place, task in enumerate(tasks)
            }
        while running:
            ready, _ = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
            # One that failed comes last: it must not keep the others out of the journal.
            for future in sorted(ready, key=lambda future: future.exception() is not None):
                finish(running.pop(future), future.result())
            meter.show(PLAYING, float(np.frombuffer(shares) @ weights))
    meter.before += float(weights.sum())


@contextlib.contextmanager
def _workers(jobs: int, tasks: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """Processes, and an array into which they write the share of each task that is done.

    They end at once on an error, and when this process is gone: each listens to a pipe whose other end is held here and
    nowhere else. Neither the pipe nor the array has a lock that a killed process could keep.
    """
    context = multiprocessing.get_context("spawn")  # a fork of a process that has threads may lock up
    shares = context.RawArray("d", tasks)
    listener, life = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(shares, listener))
    try:
        yield pool, shares
        pool.shutdown()
    finally:
        life.close()
        listener.close()
        pool.shutdown(cancel_futures=True)


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


_shares: Any = None  # in a worker: the shared array


def _begin(shares: Any, listener: multiprocessing.connection.Connection) -> None:
    """A worker's first act: keep the shared array, and end when the parent lets go of the pipe."""
    global _shares
    _shares = shares
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # not inherited everywhere
    threading.Thread(target=_end_with_parent, args=(listener,), daemon=True).start()


def _end_with_parent(listener: multiprocessing.connection.Connection) -> None:
    multiprocessing.connection.wait([listener])  # nothing is ever sent: it returns when the pipe is closed
    os._exit(1)


def _work(task: Task, place: int) -> Outcome:
    def advance(rounds: int) -> None:
        _shares[place] += rounds / task.rounds

    return task.play(advance)
