"""The compiled round: which kernels serve a policy's state, and the one step and one loop that run them.

A policy's memory is one ``NamedTuple`` of arrays, ``policy.state``. Three kernels act on it, registered per state type
with `register`; the first two are called by the names `absorb` and `choose` from any compiled code:

- ``absorb(state, arm, reward)`` records a reward in the statistics;
- ``choose(state)`` writes the next arm into ``state.choice[0]``;
- ``refit(state)`` recomputes the statistics from what was recorded, where the other two have found that this is due. It
  is rare and large, so it is no part of the compiled round: the loop stops, Python refits, and the loop goes on.

The first two return DONE, or AFTER where a refit is due and then a choice. The state remembers that it waits for both;
``settled(state)`` ends that once they are done. BEFORE says that nothing was recorded, because the state still waited:
an interrupt had come in between.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import inlined_kernel, kernel
from sketchbandits.kernels.linalg import Floats, Ints

# Rows of a state's ``stats`` array, one column per arm.
MEAN, WIDTH2, SUM, LOST = range(4)

# What a step does: choose only; record a reward and choose; record it only; renew what Python has changed, without a
# choice. What a loop does: learn from every logged
# event; from those whose arm is the policy's own choice; or play the policy's own choices in a simulated environment.
CHOOSE, UPDATE, RECORD, RENEW, LOG, MATCHES, PLAY = range(7)

DONE, AFTER, BEFORE = range(3)

EVENT = np.dtype([("arm", np.int64), ("reward", np.float64), ("choice", np.int64)])
NO_EVENTS, NO_PAYOFFS, NO_NOISE = np.zeros(0, EVENT), np.zeros((2, 0)), np.zeros(0)


class Kernels(NamedTuple):
    """What compiled code does with one type of state."""

    absorb: Any  # none where ``step`` and ``loop`` are the state's own
    choose: Any
    refit: Callable[..., None]
    settled: Callable[..., None]
    step: Callable[..., int]  # as `general_step`
    loop: Callable[..., int]  # as `general_loop`


_KERNELS: dict[type, Kernels] = {}


def nothing(state: Any) -> None:
    """The refit of a state that needs none."""


def register(
    state: type,
    *,
    absorb: Callable[..., int] | None = None,
    choose: Callable[..., int] | None = None,
    refit: Callable[..., None] = nothing,
    settled: Callable[..., None] = nothing,
    step: Callable[..., int] | None = None,
    loop: Callable[..., int] | None = None,
) -> None:
    """Say which kernels serve a state type; ``step`` and ``loop`` replace the general ones where those cost time."""
    _KERNELS[state] = Kernels(absorb, choose, refit, settled, step or general_step, loop or general_loop)


def take_step(state: Any, arm: int, reward: float, mode: int) -> None:
    """Choose, record a reward, or both, as ``mode`` says, with the refits that this takes."""
    kernels = _KERNELS[type(state)]
    while (code := kernels.step(state, arm, reward, mode)) != DONE:
        _settle(state, kernels, choose=mode != RECORD)
        if code == AFTER:
            return


def _settle(state: Any, kernels: Kernels, *, choose: bool = True) -> None:
    """Refit, and make the choice that was left open; an interrupt at any point leaves a state that waits for both."""
    kernels.refit(state)
    if choose:
        kernels.step(state, 0, 0.0, CHOOSE)
    kernels.settled(state)


def renew_choice(state: Any) -> None:
    """Choose the next arm from the statistics as they are."""
    take_step(state, 0, 0.0, CHOOSE)


def replay(state: Any, arms: Ints, rewards: Floats, *, matches: bool) -> Ints:
    """Learn from logged events in order, or only from those whose arm ``matches`` the choice; all choices."""
    events = np.zeros(arms.size, EVENT)
    events["arm"], events["reward"] = arms, rewards
    _run(state, events, NO_PAYOFFS, NO_NOISE, MATCHES if matches else LOG)
    return np.ascontiguousarray(events["choice"])


def play(state: Any, means: Floats, gaps: Floats, noise: Floats) -> float:
    """Play ``noise.size`` rounds: arm i pays ``means[i] + noise``, and its regret is ``gaps[i]``. The total regret."""
    return _run(state, NO_EVENTS, np.stack([means, gaps]), noise, PLAY)


def _run(state: Any, events: NDArray[Any], payoffs: Floats, noise: Floats, mode: int) -> float:
    kernels, total, start = _KERNELS[type(state)], np.zeros(1), 0
    while (start := kernels.loop(state, events, payoffs, noise, total, mode, start)) >= 0:
        _settle(state, kernels)
    return float(total[0])


def prepare(state: Any) -> None:
    """Compile, or load from the cache, every kernel that rounds of this state need; ``state`` is used up."""
    kernels = _KERNELS[type(state)]
    kernels.step(state, 0, 0.0, CHOOSE)
    kernels.loop(state, NO_EVENTS, NO_PAYOFFS, NO_NOISE, np.zeros(1), PLAY, 0)
    kernels.refit(state)


def absorb(state: Any, arm: int, reward: float) -> int:
    """Record a reward; in compiled code the call resolves to the kernel of the state's type."""
    return _KERNELS[type(state)].absorb(state, arm, reward)


def choose(state: Any) -> int:
    """Choose the next arm; in compiled code the call resolves to the kernel of the state's type."""
    return _KERNELS[type(state)].choose(state)


# Numba caches across processes what is reached by name or by type, never a kernel passed as an argument. The functions
# themselves are handed over, not their compiled forms: that saves compiling, linking and optimising them a second time.
@overload(absorb, strict=False)
def _absorb_of_type(state, arm, reward):  # type: ignore[no-untyped-def]
    kernels = _KERNELS.get(getattr(state, "instance_class", type(None)))
    return None if kernels is None else kernels.absorb.py_func


@overload(choose, strict=False)
def _choose_of_type(state):  # type: ignore[no-untyped-def]
    kernels = _KERNELS.get(getattr(state, "instance_class", type(None)))
    return None if kernels is None else kernels.choose.py_func


@kernel
def general_step(state: Any, arm: int, reward: float, mode: int) -> int:
    """Record a reward, choose the next arm, or both."""
    if mode != CHOOSE:
        code = absorb(state, arm, reward)
        if code != DONE or mode == RECORD:
            return code
    return choose(state)


@inlined_kernel
def next_event(
    choice: int, events: NDArray[Any], payoffs: Floats, noise: Floats, total: Floats, mode: int, t: int
) -> tuple[int, float]:
    """The arm and reward of round t, or arm -1 where the round teaches nothing; keeps the choice or its regret.

    In a simulated round arm i pays ``payoffs[0, i] + noise[t]`` and has the regret ``payoffs[1, i]``.
    """
    if mode == PLAY:
        total[0] += payoffs[1, choice]
        return choice, payoffs[0, choice] + noise[t]
    event = events[t]
    event["choice"] = choice
    if mode == MATCHES and choice != event["arm"]:
        return -1, 0.0
    return event["arm"], event["reward"]


@kernel
def general_loop(
    state: Any, events: NDArray[Any], payoffs: Floats, noise: Floats, total: Floats, mode: int, start: int
) -> int:
    """Run rounds from ``start`` on; -1 when all are done, or where to go on after a refit."""
    for t in range(start, noise.size if mode == PLAY else events.size):
        arm, reward = next_event(state.choice[0], events, payoffs, noise, total, mode, t)
        if arm < 0:
            continue
        code = absorb(state, arm, reward)
        if code == BEFORE:
            return t
        if code == AFTER or choose(state) != DONE:
            return t + 1
    return -1
