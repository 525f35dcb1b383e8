"""How everything here is measured, so that a busy machine blurs a comparison but does not tilt it.

Contenders of a comparison take turns, in alternating order (A B C, C B A, ...), each time from a fresh policy and on
the same seeded noise, without the garbage collector; kernels are compiled before the clock runs. Medians are reported
with minima: where the two disagree, something else was running. Rounds are played with one BLAS
thread and timed in processor time, which other work on the machine disturbs least; a warm-up and what it is compared
with use all threads and the time on the wall.

Only public names of the library are used, so that another version can be measured by the same code (`--against`).
"""

import contextlib
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from numpy.typing import NDArray

from sketchbandits.environments import LinearEnvironment

CHUNK = 16_384  # rounds between two chances for Ctrl-C
Floats = NDArray[Any]
Contender = Callable[[], float]  # plays its rounds once; microseconds per round
Samples = dict[str, list[float]]
Name = TypeVar("Name")
Sample = TypeVar("Sample")


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """The garbage collector runs before, not meanwhile."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def interleaved(contenders: Mapping[Name, Callable[[], Sample]], repetitions: int) -> dict[Name, list[Sample]]:
    """Every contender's samples, taken in turns so that a busy moment of the machine meets all alike."""
    samples: dict[Name, list[Sample]] = {name: [] for name in contenders}
    with no_collector():
        for turn in range(repetitions):
            for name in list(contenders)[:: 1 if turn % 2 == 0 else -1]:
                samples[name].append(contenders[name]())
    return samples


def play(policy: Any, env: LinearEnvironment, noise: Floats) -> None:
    """All rounds inside compiled kernels; Ctrl-C is heard now and then."""
    for first in range(0, noise.size, CHUNK):
        policy.play_rounds(env.means, env.gaps, noise[first : first + CHUNK])


def compiled(policy: Any, env: LinearEnvironment, noise: Floats) -> Contender:
    """How long the compiled loop takes, each time from the same state."""
    policy.copy().play_rounds(env.means, env.gaps, noise[:1])  # compiled, or loaded, before the clock runs

    def run() -> float:
        twin = policy.copy()
        started = time.thread_time()
        play(twin, env, noise)
        return (time.thread_time() - started) / noise.size * 1e6

    return run


def through_api(make: Callable[[], Any], env: LinearEnvironment, noise: Floats) -> Contender:
    """``select`` and ``update``, as a caller in Python does."""
    means, values = env.means.tolist(), noise.tolist()

    def run() -> float:
        policy = make()
        policy.update(0, 0.0)  # the first call loads kernels
        started = time.thread_time()
        for value in values:
            arm = policy.select()
            policy.update(arm, means[arm] + value)
        return (time.thread_time() - started) / noise.size * 1e6

    return run


def mean_of(parts: Sequence[Contender]) -> Contender:
    """The mean over several contenders, as one."""
    return lambda: statistics.fmean(part() for part in parts)


def seconds(action: Callable[[], Any]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
