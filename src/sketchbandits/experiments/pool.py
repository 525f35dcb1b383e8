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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

from sketchbandits.experiments.runs import Journal, Outcome, Task

PREPARING, PLAYING, TIMING = "preparing (kernels compile once)", "playing", "timing, one run at a time"
REHEARSAL = 256  # rounds
LOOK = 0.2  # seconds between two looks at the workers

# Called with the stage, what is being done, and the share of the stage that is done.
Watch = Callable[[str, str, float], None]


def usable_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def play_all(tasks: Sequence[Task], journal: Journal, *, jobs: int, watch: Watch) -> dict[Task, Outcome]:
    """The outcome of every task, from the journal where it is there already."""
    outcomes = journal.read(tasks)
    missing = [task for task in dict.fromkeys(tasks) if task not in outcomes]
    expected = _rehearse(missing, watch)
    timed = [task for task in missing if task.timed]
    # The longest first: a long run that starts last would keep one process busy alone.
    untimed = sorted((task for task in missing if not task.timed), key=lambda task: -expected[task])

    def finish(task: Task, outcome: Outcome) -> None:
        journal.append(task, outcome)
        outcomes[task] = outcome

    stage = _Stage(PLAYING, untimed, expected, watch)
    if jobs == 1:
        _one_by_one(untimed, stage, finish)
    else:
        _in_parallel(untimed, min(jobs, len(untimed)), stage, finish)
    _one_by_one(timed, _Stage(TIMING, timed, expected, watch), finish)
    return outcomes


class _Stage:
    """How far a list of tasks is: runs in words, expected seconds as a share."""

    def __init__(self, name: str, tasks: Sequence[Task], expected: dict[Task, float], watch: Watch) -> None:
        self.name, self.runs, self.watch = name, len(tasks), watch
        self.expected, self.total = expected, sum(expected[task] for task in tasks)
        self.finished, self.looked = 0, -1.0

    def show(self, seconds: float, *, now: bool = False) -> None:
        """So many expected seconds are done."""
        if now or time.monotonic() - self.looked > LOOK:
            self.looked = time.monotonic()
            share = min(seconds / self.total, 1.0) if self.total else 1.0
            self.watch(self.name, f"{self.finished} of {self.runs} runs", share)


def _rehearse(tasks: Sequence[Task], watch: Watch) -> dict[Task, float]:
    """Build every policy once, which compiles or loads its kernels; returns the seconds that each task should take."""
    pairs: dict[Any, list[Task]] = {}
    for task in tasks:
        pairs.setdefault((task.scene, task.contender), []).append(task)
    expected = {}
    for i, alike in enumerate(pairs.values()):
        watch(PREPARING, alike[0].contender.label, i / len(pairs))
        rounds = min(REHEARSAL, max(1, alike[0].rounds // 20))
        started = time.perf_counter()
        played = alike[0].play(rounds=rounds)
        around = max(0.0, time.perf_counter() - started - played.seconds)
        for task in alike:
            # What surrounds the rounds counts too, less where it may have been a compilation.
            expected[task] = played.seconds / rounds * task.rounds + min(around, 0.02)
    return expected


def _one_by_one(tasks: Sequence[Task], stage: _Stage, finish: Callable[[Task, Outcome], None]) -> None:
    done = 0.0
    for task in tasks:
        weight, played = stage.expected[task], 0

        def advance(rounds: int, task: Task = task, weight: float = weight, before: float = done) -> None:
            nonlocal played
            played += rounds
            stage.show(before + weight * played / task.rounds)

        stage.show(done, now=done == 0.0)
        finish(task, task.play(advance))
        stage.finished += 1
        done += weight


def _in_parallel(tasks: Sequence[Task], jobs: int, stage: _Stage, finish: Callable[[Task, Outcome], None]) -> None:
    if not tasks:
        return
    stage.show(0.0, now=True)
    with _workers(jobs) as (pool, done):
        with _interrupts_ignored():  # workers inherit it: Ctrl-C is for this process, which then stops them
            running: dict[Future[Outcome], Task] = {
                pool.submit(_work, task, stage.expected[task]): task for task in tasks
            }
        while running:
            ready, _ = wait(running, timeout=LOOK, return_when=FIRST_COMPLETED)
            for future in ready:
                finish(running.pop(future), future.result())
                stage.finished += 1
            stage.show(done.value)


@contextlib.contextmanager
def _workers(jobs: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """Processes, and a number that counts the expected seconds they have done; they end at once on an error."""
    context = multiprocessing.get_context("spawn")  # a fork of a process that has threads may lock up
    done, stop = context.Value("d", 0.0), context.Event()
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(done, stop))
    try:
        yield pool, done
    except BaseException:
        stop.set()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


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


_done: Any = None  # in a worker: the shared count


def _begin(done: Any, stop: Any) -> None:
    """A worker's first act: keep the shared count, and end when told to or when the parent is gone."""
    global _done
    _done = done
    threading.Thread(target=_end_with_parent, args=(stop,), daemon=True).start()


def _end_with_parent(stop: Any) -> None:
    parent = multiprocessing.parent_process()
    while not stop.wait(0.1):
        if parent is not None and multiprocessing.connection.wait([parent.sentinel], timeout=0):
            break
    os._exit(1)


def _work(task: Task, weight: float) -> Outcome:
    def advance(rounds: int) -> None:
        with _done.get_lock():
            _done.value += weight * rounds / task.rounds

    return task.play(advance)
