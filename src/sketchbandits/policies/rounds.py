"""The compiled round: which kernels serve a policy's state, and the loops that run them.

A policy's memory is one ``NamedTuple`` of arrays, ``policy.state``. Two kernels act on it, registered per state type
with `register` and called by the names `absorb` and `choose` from any compiled loop:

- ``absorb(state, arm, reward)`` records a reward in the statistics;
- ``choose(state)`` writes the next arm into ``state.choice[0]``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from numba.extending import overload

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints

# Rows of a state's ``stats`` array, one column per arm.
MEAN, WIDTH2, SUM, LOST = range(4)


class Kernels(NamedTuple):
    """What compiled code does with one type of state."""

    absorb: Callable[..., None]  # (state, arm, reward)
    choose: Callable[..., None]  # (state)
    step: Callable[..., None]  # (state, arm, reward): both
    steps: Callable[..., None]  # (state, arms, rewards, matches, choices): `general_steps`
    play: Callable[..., float]  # (state, means, gaps, noise): `general_play`


_KERNELS: dict[type, Kernels] = {}


def register(
    state: type,
    *,
    absorb: Callable[..., None],
    choose: Callable[..., None],
    step: Callable[..., None] | None = None,
    steps: Callable[..., None] | None = None,
    play: Callable[..., float] | None = None,
) -> None:
    """Say which kernels serve a state type; the optional ones replace the general ones where those cost time."""
    _KERNELS[state] = Kernels(absorb, choose, step or general_step, steps or general_steps, play or general_play)


def kernels_of(state: Any) -> Kernels:
    """The kernels that were registered for the type of ``state``."""
    return _KERNELS[type(state)]


def absorb(state: Any, arm: int, reward: float) -> None:
    """Record a reward; in compiled code the call resolves to the kernel of the state's type."""
    kernels_of(state).absorb(state, arm, reward)


def choose(state: Any) -> None:
    """Choose the next arm; in compiled code the call resolves to the kernel of the state's type."""
    kernels_of(state).choose(state)


# Numba caches across processes what is reached by name or by type, never a kernel passed as an argument.
@overload(absorb, strict=False)
def _absorb_of_type(state, arm, reward):  # type: ignore[no-untyped-def]
    if (state_type := getattr(state, "instance_class", None)) in _KERNELS:
        compiled = _KERNELS[state_type].absorb
        return lambda state, arm, reward: compiled(state, arm, reward)
    return None


@overload(choose, strict=False)
def _choose_of_type(state):  # type: ignore[no-untyped-def]
    if (state_type := getattr(state, "instance_class", None)) in _KERNELS:
        compiled = _KERNELS[state_type].choose
        return lambda state: compiled(state)
    return None


@kernel
def general_play(state: Any, means: Floats, gaps: Floats, noise: Floats) -> float:
    """Play ``noise.size`` rounds: arm i pays ``means[i] + noise``, and its regret is ``gaps[i]``."""
    regret = 0.0
    for t in range(noise.size):
        arm = state.choice[0]
        regret += gaps[arm]
        absorb(state, arm, means[arm] + noise[t])
        choose(state)
    return regret


@kernel
def general_step(state: Any, arm: int, reward: float) -> None:
    """Record a reward and choose the next arm."""
    absorb(state, arm, reward)
    choose(state)


@kernel
def general_steps(state: Any, arms: Ints, rewards: Floats, matches: bool, choices: Ints) -> None:
    """`general_step` for every reward in order; ``choices`` receives the choice that stood before each.

    With ``matches`` the reward of an arm that was not the choice is skipped.
    """
    for t in range(arms.size):
        choices[t] = state.choice[0]
        if not matches or choices[t] == arms[t]:
            absorb(state, arms[t], rewards[t])
            choose(state)
