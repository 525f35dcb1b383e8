"""What every policy on a fixed arm set shares: checked input, explicit state, snapshots; and the compiled step.

A policy's memory is one ``NamedTuple`` of arrays, ``policy.state``. Two kernels act on it, registered per state type
with `register` and called by the names `absorb` and `choose` from any compiled loop:

- ``absorb(state, arm, reward)`` books a reward into the statistics;
- ``choose(state)`` writes the next arm into ``state.choice[0]``.

`Policy.update` runs both, so that `Policy.select` only reads the choice and has no side effect; `update_many` and
`play` run both for every reward of a batch, inside one compiled call. One thread may write; others may read only while
it does not.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, NamedTuple, Self, cast

import numpy as np
from numba.extending import overload
from numpy.typing import ArrayLike, NDArray

from sketchbandits import confidence, snapshot, validate
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.pending.rule import ARM_AT, Mask, Outlook, Recollection, decide

Radius = str | Callable[[int, float], float]

# Rows of a state's ``stats`` array, one column an arm.
MEAN, WIDTH2, SUM, LOST = range(4)

_KERNELS: dict[type, tuple[Callable[..., None], Callable[..., None]]] = {}
_STEPS: dict[type, Callable[..., None]] = {}
_LOOPS: dict[type, Callable[..., float]] = {}
_BATCHES: dict[type, Callable[..., None]] = {}


def register(
    state: type,
    *,
    absorb: Callable[..., None],
    choose: Callable[..., None],
    step: Callable[..., None] | None = None,
    play: Callable[..., float] | None = None,
    steps: Callable[..., None] | None = None,
) -> None:
    """Say which kernels serve a state type; the optional ones replace the general ones where those cost time."""
    _KERNELS[state] = (absorb, choose)
    _STEPS[state] = step or general_step
    _LOOPS[state] = play or general_play
    _BATCHES[state] = steps or general_steps


def absorb(state: Any, arm: int, reward: float) -> None:
    """Book a reward; in compiled code the call resolves to the kernel of the state's type."""
    _KERNELS[type(state)][0](state, arm, reward)


def choose(state: Any) -> None:
    """Choose the next arm; in compiled code the call resolves to the kernel of the state's type."""
    _KERNELS[type(state)][1](state)


# Numba caches across processes what is reached by name or by type, never a kernel passed as an argument.
@overload(absorb, strict=False)
def _absorb_of_type(state, arm, reward):  # type: ignore[no-untyped-def]
    if (state_type := getattr(state, "instance_class", None)) in _KERNELS:
        compiled = _KERNELS[state_type][0]
        return lambda state, arm, reward: compiled(state, arm, reward)
    return None


@overload(choose, strict=False)
def _choose_of_type(state):  # type: ignore[no-untyped-def]
    if (state_type := getattr(state, "instance_class", None)) in _KERNELS:
        compiled = _KERNELS[state_type][1]
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
    """Book a reward and choose the next arm."""
    absorb(state, arm, reward)
    choose(state)


@kernel
def general_steps(state: Any, arms: Ints, rewards: Floats, matches: bool, choices: Ints) -> None:
    """`general_step` for every reward in order; ``choices`` receives the choice that stood before each.

    With ``matches`` the reward of an arm that was not the choice is passed over.
    """
    for t in range(arms.size):
        choices[t] = state.choice[0]
        if not matches or choices[t] == arms[t]:
            absorb(state, arms[t], rewards[t])
            choose(state)


def checked_arms(arms: ArrayLike, n_arms: int, name: str = "arms") -> Ints:
    """A batch's arms as a fresh int64 array: kernels are compiled for one kind of array, whatever the caller has."""
    array = _entries(name, arms, "whole numbers")
    if array.dtype.kind in "iu":
        result = np.array(array, dtype=np.int64)
        if result.view(np.uint64).max(initial=0) < n_arms:  # there a negative number is a huge one
            return result
    entries = enumerate(array.tolist())
    return np.array([validate.whole(f"{name}[{i}]", v, least=0, most=n_arms - 1) for i, v in entries], np.int64)


def checked_mask(available: ArrayLike, n_arms: int) -> Mask:
    """A mask, or ids of arms, as a fresh mask."""
    array = _entries("available", available, "arm ids or a mask")
    if array.dtype.kind != "b":
        mask = np.zeros(n_arms, np.bool_)
        mask[checked_arms(available, n_arms, "available")] = True
        return mask
    if array.size != n_arms:
        raise ValueError(f"available must be arm ids or a mask of {n_arms} entries, got a mask of {array.size}")
    return np.array(array, np.bool_)


def checked_rewards(rewards: ArrayLike, size: int, beside: str) -> Floats:
    """A batch's rewards as a fresh float64 array, one for each of ``size`` arms or contexts (``beside``)."""
    array = _entries("rewards", rewards, "numbers")
    if array.size != size:
        raise ValueError(f"rewards must have as many entries as {beside}, {size}, got {array.size}")
    if array.dtype.kind in "iuf" and array.itemsize <= 8:
        result = np.array(array, dtype=np.float64)
        if np.abs(result).max(initial=0.0) <= validate.LARGEST:
            return result
    return np.array([validate.number(f"rewards[{i}]", v) for i, v in enumerate(array.tolist())], np.float64)


def _entries(name: str, value: ArrayLike, kind: str) -> NDArray[Any]:
    """A 1-D array; entries of several types stay what they are, where NumPy would make True a 1 and 2 a 2.0."""
    several = isinstance(value, list | tuple) and len(set(map(type, value))) > 1
    try:
        array = np.asarray(value, dtype=object if several else None)
    except ValueError:
        raise ValueError(f"{name} must be a 1-D array of {kind}, got a ragged sequence") from None
    if array.ndim != 1:
        given = f"shape {array.shape}" if array.ndim else repr(value)
        raise ValueError(f"{name} must be a 1-D array of {kind}, got {given}")
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must be a 1-D array of {kind} without masked entries, got a masked array")
    if array.dtype.kind in "mM":
        raise ValueError(f"{name} must be a 1-D array of {kind}, got an array of {array.dtype}")
    return array


@contextmanager
def all_or_nothing(policy: Any) -> Iterator[None]:
    """Whatever fails inside, a user's function or an interrupt, leaves the policy as it was."""
    before = policy.copy()
    try:
        yield
    except BaseException:
        policy.__dict__ = before.__dict__
        raise


class Shared(NamedTuple):
    """The checked parameters that every linear policy has."""

    ridge: float
    noise: float
    theta_norm: float
    arm_norm: float
    delta: float


def check_shared(
    ridge: float, noise: float, theta_norm: float, arm_norm: float | None, delta: float, arms: Floats | None
) -> Shared:
    """Check the common parameters; ``arm_norm=None`` means the largest norm among ``arms`` (1 without arms)."""
    largest = float(np.linalg.norm(arms, axis=1).max()) if arms is not None else 0.0
    bound = (largest or 1.0) if arm_norm is None else validate.positive("arm_norm", arm_norm)
    if bound < largest * (1 - 1e-9):
        raise ValueError(f"arm_norm must be at least the largest arm norm {largest:g}, got {arm_norm!r}")
    return Shared(
        validate.positive("ridge", ridge),
        validate.number("noise", noise, least=0.0),
        validate.positive("theta_norm", theta_norm),
        bound,
        validate.probability("delta", delta),
    )


def radius_array(radius: Radius, shared: Shared, *, dim: int, log_share: float, value: float = 0.0) -> Floats:
    """A radius as kernels take it: one by name (``"closed"``, ``"logdet"``, ``"mixture"``), or a function's value."""
    array = constant_radius(value, shared.ridge)
    if isinstance(radius, str):
        array[confidence.KIND] = {
            "closed": confidence.CLOSED,
            "logdet": confidence.LOGDET,
            "mixture": confidence.MIXTURE,
        }[radius]
    array[confidence.NOISE] = shared.noise
    array[confidence.THETA_NORM] = shared.theta_norm
    array[confidence.BIAS] = math.sqrt(shared.ridge) * shared.theta_norm
    array[confidence.RATE] = shared.arm_norm**2 / shared.ridge
    array[confidence.LOG_SHARE] = log_share
    array[confidence.DIM] = dim
    return array


def constant_radius(value: float, ridge: float) -> Floats:
    """A radius that never changes."""
    array = np.zeros(9)
    array[confidence.KIND], array[confidence.RIDGE], array[confidence.VALUE] = confidence.FIXED, ridge, value
    return array


def check_radius(radius: Radius, names: tuple[str, ...] = ("closed", "logdet")) -> Radius:
    """A known name, or any function of (samples, ln det)."""
    if callable(radius):
        return radius
    allowed = ", ".join(map(repr, names))
    if not isinstance(radius, str) or radius not in names:
        raise ValueError(f"radius must be one of {allowed}, or a function (n, logdet) -> beta, got {radius!r}")
    return radius


def called_radius(radius: Callable[[int, float], float], n: float, logdet: float) -> float:
    """What a user's radius function says, checked."""
    return validate.number(f"the value of radius({int(n)}, {logdet:g})", radius(int(n), logdet), least=0.0)


def _pair(batch: Any) -> tuple[Any, Any]:
    try:
        arms, rewards = batch
    except (TypeError, ValueError):
        raise ValueError(f"batch must be a pair (arms, rewards), got a {type(batch).__name__}") from None
    return arms, rewards


class Policy:
    """A policy on a fixed arm set: `select`, `update`, `update_many`, `play`, `bounds`, `save`, `load`, `copy`.

    Subclasses check their parameters, fill ``self.settings`` with all of them, build ``self.state`` inside
    ``with self._warm_up():`` and implement `bounds` and `_outlook`. Thread use: one writer.
    """

    state: Any
    settings: dict[str, Any]
    warmup_seconds: float = 0.0
    _remembered: Recollection | None = None  # of the last choice among pending decisions; no part of the state

    def __init__(self, arms: ArrayLike) -> None:
        self.arms = validate.matrix("arms", arms)
        self.arms.setflags(write=False)
        self.n_arms, self.dim = self.arms.shape

    @contextmanager
    def _warm_up(self) -> Iterator[None]:
        """Time the construction of the state, then let the first choice be made."""
        started = time.perf_counter()
        yield
        self.warmup_seconds = time.perf_counter() - started
        self._refresh_radius()
        choose(self.state)

    def select(self, *, available: ArrayLike | None = None, pending: ArrayLike | None = None) -> int:
        """The arm to play next: an index into ``arms``. No side effect; repeats until the next `update`.

        ``available``: the arms to choose from, a mask or ids. ``pending``: the arms of all decisions whose rewards are
        outstanding, oldest first, repeats included; see `policies.pending` for the rule and its guarantee.
        """
        if available is None and pending is None:
            return cast(int, self.state.choice.item(0))
        return self.select_many(1, available=available, pending=pending).item(0)

    def select_many(
        self, count: int, *, available: ArrayLike | None = None, pending: ArrayLike | None = None
    ) -> NDArray[np.int64]:
        """``count`` arms to play before any of their rewards is known, repeats allowed. No side effect.

        They are those of ``count`` calls of `select`, each with the picks so far at the end of ``pending``.
        """
        count = validate.whole("count", count, least=0)
        allowed = self._allowed(available)
        waiting = checked_arms(() if pending is None else pending, self.n_arms, "pending")
        choice = self.state.choice[:1]
        if count == 0 or waiting.size or not allowed[choice[0]]:
            return self._picks(count, allowed, waiting)
        return np.concatenate([choice, self._picks(count - 1, allowed, choice.copy())])

    @property
    def active(self) -> Mask:
        """Which arms may be played: all, unless the policy lets arms be removed."""
        return np.ones(self.n_arms, np.bool_)

    def _allowed(self, available: ArrayLike | None) -> Mask:
        """The arms that may be chosen now."""
        mask = self.active
        if available is not None:
            mask = mask & checked_mask(available, self.n_arms)
        if not mask.any():
            raise ValueError(f"available must hold at least one arm that may be played, got {available!r}")
        return mask

    def _picks(self, count: int, allowed: Mask, waiting: Ints) -> Ints:
        """Choose while the rewards of the arms ``waiting`` are outstanding."""
        picks = np.empty(count, np.int64)
        if count == 0:
            return picks
        # Taken out while it is changed: another thread that reads builds its own.
        remembered: Recollection | None = self.__dict__.pop("_remembered", None)
        if remembered is None or not remembered.knows(self.state, self.n_arms, waiting):
            booked = int(self.state.counts.sum())
            remembered = Recollection(self.state, self.n_arms, booked, waiting[:0], self._outlook())
        arm_at = remembered.outlook.place[ARM_AT]
        among = allowed[arm_at] & (arm_at >= 0)
        decide(remembered.outlook, waiting[remembered.waiting.size :], among, picks)
        self._remembered = remembered._replace(waiting=np.concatenate([waiting, picks[:-1]]))
        return picks

    def _outlook(self) -> Outlook:
        """What the policy says of its arms, ready for pending pulls: see `policies.pending`."""
        raise NotImplementedError

    def update(self, arm: int, reward: float) -> None:
        """Book ``reward`` for ``arm``: any arm, at any time, in any order.

        Late rewards keep every guarantee as long as *whether and when* a reward arrives does not depend on its value;
        book missing feedback as its value (often 0) after a time limit, for all decisions alike.
        """
        if type(arm) is not int or not 0 <= arm < self.n_arms:
            arm = validate.whole("arm", arm, least=0, most=self.n_arms - 1)
        if type(reward) is not float or not -validate.LARGEST <= reward <= validate.LARGEST:
            reward = validate.number("reward", reward)
        if self._radius_is_function:
            self._update_with_function(arm, reward)
        else:
            _STEPS[type(self.state)](self.state, arm, reward)

    def _update_with_function(self, arm: int, reward: float) -> None:
        with all_or_nothing(self):
            self._step_with_function(arm, reward)

    def _step_with_function(self, arm: int, reward: float) -> None:
        absorb(self.state, arm, reward)
        self._refresh_radius()
        choose(self.state)

    def update_many(self, arms: ArrayLike, rewards: ArrayLike) -> None:
        """Book ``rewards[t]`` for ``arms[t]``, in order: bit for bit as calls of `update`, in one compiled call.

        All is checked before anything is booked: a call that fails has changed nothing. An empty batch is allowed.
        """
        checked, numbers = self._checked_batch(arms, rewards)
        if self._updates_compiled:
            self._run_batch(checked, numbers, matches=False)
            return
        with all_or_nothing(self):
            for arm, reward in zip(checked.tolist(), numbers.tolist(), strict=True):
                self._book(arm, reward)

    def play(self, batch: tuple[ArrayLike, ArrayLike], *, book: str = "all") -> NDArray[np.int64]:
        """Replay a log ``(arms, rewards)``; returns the arm that the policy would have played before each event.

        ``book="all"`` learns from every event. ``book="matches"`` learns only where the log's arm is the policy's own,
        and passes over the rest: with ``own = choices == arms``, ``rewards[own].mean()`` estimates what the policy
        would have earned in ``own.sum()`` rounds of its own. Unbiased only where the log's arms were drawn uniformly at
        random, whatever had happened before (Li, Chu, Langford and Wang, WSDM 2011). Checked as `update_many` is.
        """
        matches = validate.option("book", book, ("all", "matches")) == "matches"
        arms, rewards = self._checked_batch(*_pair(batch))
        if self.runs_compiled:
            return self._run_batch(arms, rewards, matches=matches)
        choices = np.empty_like(arms)
        with all_or_nothing(self):
            for t, (arm, reward) in enumerate(zip(arms.tolist(), rewards.tolist(), strict=True)):
                choices[t] = self.select()
                if not matches or choices[t] == arm:
                    self._book(arm, reward)
        return choices

    def _checked_batch(self, arms: ArrayLike, rewards: ArrayLike) -> tuple[Ints, Floats]:
        checked = checked_arms(arms, self.n_arms)
        return checked, checked_rewards(rewards, checked.size, "arms")

    def _run_batch(self, arms: Ints, rewards: Floats, *, matches: bool) -> Ints:
        choices = np.empty_like(arms)
        _BATCHES[type(self.state)](self.state, arms, rewards, matches, choices)
        return choices

    def _book(self, arm: int, reward: float) -> None:
        """One checked reward of a batch that cannot run compiled; the batch itself is all or nothing."""
        own = type(self).update is Policy.update
        (self._step_with_function if own else self.update)(arm, reward)

    def bounds(self) -> Floats:
        """The current upper confidence bound of every arm, from the rewards booked so far. No side effect."""
        raise NotImplementedError

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many rewards were booked for each arm."""
        return cast(Ints, self.state.counts).copy()

    def play_rounds(self, means: Floats, gaps: Floats, noise: Floats) -> float:
        """Play ``noise.size`` rounds inside one compiled kernel, see `general_play`; returns their regret."""
        return _LOOPS[type(self.state)](self.state, means, gaps, noise)

    @property
    def runs_compiled(self) -> bool:
        """Whether `absorb` and `choose` are all there is to `update`: no user's function, no overriding subclass."""
        return type(self).select is Policy.select and self._updates_compiled

    @property
    def _updates_compiled(self) -> bool:
        return type(self).update is Policy.update and not self._radius_is_function

    @property
    def _radius_is_function(self) -> bool:
        return callable(self.settings.get("radius"))

    def _refresh_radius(self) -> None:
        """Where ``radius`` is a user's function, ask it and put its answer into the state."""

    def copy(self) -> Self:
        """An independent policy in the same state."""
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.settings = dict(self.settings)
        twin.state = snapshot.copy_state(self.state)
        twin._remembered = None
        return twin

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to ``path`` (NumPy's ``.npz``, no pickle), atomically."""
        extra = {"arms": self.arms, **self._extra()}
        snapshot.write(path, type(self).__name__, self.settings, self.state, extra)

    @classmethod
    def load(cls, path: str | PathLike[str], *, radius: Callable[[int, float], float] | None = None) -> Self:
        """Read a policy that `save` wrote; it continues bit for bit. A function ``radius`` must be handed in again."""
        settings, state, extra = snapshot.read(path, cls.__name__, cls._state_type, radius)
        policy = object.__new__(cls)
        Policy.__init__(policy, extra.pop("arms"))
        policy.settings = settings
        policy.state = state
        policy._restore(extra)
        return policy

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        """The state that a policy with these settings has."""
        raise NotImplementedError

    def _extra(self) -> dict[str, NDArray[Any]]:
        """Arrays that a subclass keeps beside ``arms`` and ``state``."""
        return {}

    def _restore(self, extra: dict[str, NDArray[Any]]) -> None:
        """Take back what `_extra` gave."""

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.settings.items())
        return f"{type(self).__name__}({self.n_arms} arms of dimension {self.dim}, {shown})"
