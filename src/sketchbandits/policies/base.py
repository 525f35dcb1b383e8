"""What every policy on a fixed arm set shares: checked input, explicit state, snapshots.

A policy's memory is one ``NamedTuple`` of arrays, ``policy.state``, on which the kernels of `policies.rounds` act.
`Policy.update` records a reward and makes the next choice, so that `Policy.select` only reads the choice and has no
side effect; `update_many` and `play` do both for every reward of a batch, inside one compiled call. Calls from several
threads wait for each other (`policies.guard`).
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import snapshot, validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies import rounds
from sketchbandits.policies.assumptions import Evidence, Norm, norm_of_arms, norm_of_fit
from sketchbandits.policies.guard import all_or_nothing, exclusive
from sketchbandits.policies.inputs import checked_arms, checked_mask, checked_pair, checked_rewards
from sketchbandits.policies.pending.rule import ARM_AT, KeptBounds, Mask, PendingBounds, decide
from sketchbandits.policies.rounds import LOST, RECORD, SUM, UPDATE, take_step
from sketchbandits.policies.watch import Watched


class Policy(Watched):
    """A policy on a fixed arm set: `select`, `update`, `bounds`, `estimates`, batches, `save`, `load`, `copy`.

    Subclasses check their parameters, fill ``self.settings`` with all of them, build ``self.state`` inside
    ``with self._warm_up():`` and implement `bounds`, `estimates`, `_pending_bounds` and `_state_type`; the fields of
    the state's type say what a saved file must hold (`sketchbandits.snapshot`). Its kernels let `scatter.note` see each
    reward, in the record that `_seen` names.

    A ``noise`` or ``theta_norm`` that its rewards contradict is reported once, as an `AssumptionWarning`; `diagnostics`
    says at any time what was given, what was seen and what would fit.
    """

    #: Whether `simulate` and the service pass pending decisions to the policy unless asked otherwise: True
    #: where regret under delays was measured to be lower with them (docs/delays.md).
    pending_by_default: bool = False
    state: Any
    settings: dict[str, Any]
    warmup_seconds: float = 0.0
    _kept_bounds: KeptBounds | None = None  # of the last choice among pending decisions; no part of the state

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
        rounds.renew_choice(self.state)

    def select(self, *, available: ArrayLike | None = None, pending: ArrayLike | None = None) -> int:
        """The arm to play next: an index into ``arms``. No side effect; repeats until the next `update`.

        ``available``: the arms to choose from, a mask or ids. ``pending``: the arms of all decisions whose rewards are
        outstanding, oldest first, repeats included; see `policies.pending` for the rule and its guarantee.
        """
        if available is None and pending is None:
            return cast(int, self.state.choice.item(0))
        return self.select_many(1, available=available, pending=pending).item(0)

    @exclusive
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
        kept: KeptBounds | None = self.__dict__.pop("_kept_bounds", None)
        if kept is None or not kept.knows(self.state, self.n_arms, waiting):
            rewards = int(self.state.counts.sum())
            kept = KeptBounds(self.state, self.n_arms, rewards, waiting[:0], self._pending_bounds())
        arm_at = kept.pending.place[ARM_AT]
        among = allowed[arm_at] & (arm_at >= 0)
        decide(kept.pending, waiting[kept.waiting.size :], among, picks)
        self._kept_bounds = kept._replace(waiting=np.concatenate([waiting, picks[:-1]]))
        return picks

    def _pending_bounds(self) -> PendingBounds:
        """What the policy says of its arms, ready for pending pulls: see `policies.pending`."""
        raise NotImplementedError

    def update(self, arm: int, reward: float) -> None:
        """Record ``reward`` for ``arm``: any arm, at any time, in any order.

        Late rewards keep every guarantee as long as *whether and when* a reward arrives does not depend on its value;
        record missing feedback as its value (often 0) after a time limit, for all decisions alike.
        """
        if type(arm) is not int or not 0 <= arm < self.n_arms:
            arm = validate.whole("arm", arm, least=0, most=self.n_arms - 1)
        if type(reward) is not float or not -validate.LARGEST <= reward <= validate.LARGEST:
            reward = validate.reward("reward", reward)
        if callable(self.settings.get("radius")):  # in line: this runs for every reward
            self._update_with_function(arm, reward)
            return
        with self._lock:
            take_step(self.state, arm, reward, UPDATE)
        self._until_check -= 1  # `_watch` in line
        if self._until_check <= 0:
            self._check_assumptions()

    @exclusive
    def _update_with_function(self, arm: int, reward: float) -> None:
        with all_or_nothing(self):
            self._step_with_function(arm, reward)
        self._watch(1)

    def _step_with_function(self, arm: int, reward: float) -> None:
        take_step(self.state, arm, reward, RECORD)
        self._refresh_radius()
        rounds.renew_choice(self.state)

    @exclusive
    def update_many(self, arms: ArrayLike, rewards: ArrayLike) -> None:
        """Record ``rewards[t]`` for ``arms[t]``, in order: bit-for-bit identical to calls of `update`, compiled.

        All is checked before anything is recorded: a refused call has changed nothing. An interrupt (Ctrl-C) may leave
        the first part of a batch recorded. An empty batch is allowed.
        """
        checked, numbers = self._checked_batch(arms, rewards)
        if self._updates_compiled:
            self._run_batch(checked, numbers, matches=False)
            return
        with all_or_nothing(self):
            for arm, reward in zip(checked.tolist(), numbers.tolist(), strict=True):
                self._learn(arm, reward)
        self._watch(checked.size)

    @exclusive
    def play(self, batch: tuple[ArrayLike, ArrayLike], *, learn: str = "all") -> NDArray[np.int64]:
        """Replay a log ``(arms, rewards)``; returns the arm that the policy would have played before each event.

        ``learn="all"`` learns from every event. ``learn="matches"`` learns only from events whose arm is the policy's
        own choice and skips the others: with ``own = choices == arms``, ``rewards[own].mean()`` estimates what the
        policy would have earned in ``own.sum()`` rounds of its own. The estimate is unbiased only where the log's arms
        were drawn uniformly at random, whatever had happened before (Li, Chu, Langford and Wang, WSDM 2011). The input
        is checked as in `update_many`.
        """
        matches = validate.option("learn", learn, ("all", "matches")) == "matches"
        arms, rewards = self._checked_batch(*checked_pair(batch))
        if self.runs_compiled:
            return self._run_batch(arms, rewards, matches=matches)
        choices = np.empty_like(arms)
        with all_or_nothing(self):
            for t, (arm, reward) in enumerate(zip(arms.tolist(), rewards.tolist(), strict=True)):
                choices[t] = self.select()
                if not matches or choices[t] == arm:
                    self._learn(arm, reward)
        self._watch(arms.size)
        return choices

    def _checked_batch(self, arms: ArrayLike, rewards: ArrayLike) -> tuple[Ints, Floats]:
        checked = checked_arms(arms, self.n_arms)
        return checked, checked_rewards(rewards, checked.size, "arms")

    def _run_batch(self, arms: Ints, rewards: Floats, *, matches: bool) -> Ints:
        choices = rounds.replay(self.state, arms, rewards, matches=matches)
        self._watch(arms.size)
        return choices

    def _learn(self, arm: int, reward: float) -> None:
        """One checked reward of a batch that cannot run compiled; the batch itself is all or nothing."""
        own = type(self).update is Policy.update
        (self._step_with_function if own else self.update)(arm, reward)

    def bounds(self) -> Floats:
        """The current upper confidence bound of every arm, from the rewards recorded so far. No side effect."""
        raise NotImplementedError

    def estimates(self) -> Floats:
        """The estimated mean reward of every arm, from the rewards recorded so far. No side effect.

        It is 0 for an arm of which nothing is known yet, and never above `bounds`. Prefer it to `bounds` where arms are
        shown to people: a bound is large for good arms and for unknown ones.
        """
        raise NotImplementedError

    @property
    @exclusive
    def counts(self) -> NDArray[np.int64]:
        """How many rewards were recorded for each arm."""
        return cast(Ints, self.state.counts).copy()

    @exclusive
    def play_rounds(self, means: Floats, gaps: Floats, noise: Floats) -> float:
        """Play ``noise.size`` rounds inside one compiled kernel, see `rounds.play`; returns their regret.

        Without rounds nothing is played, and everything that rounds need is compiled.
        """
        if not noise.size:
            rounds.prepare(snapshot.copy_state(self.state))
        regret = rounds.play(self.state, means, gaps, noise)
        self._watch(noise.size)
        return regret

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

    @property
    def _seen(self) -> NDArray[Any] | None:
        seen: NDArray[Any] | None = getattr(self.state, "seen", None)
        return seen

    def _sums(self) -> Floats:
        """Every arm's sum of rewards."""
        sums: Floats = self.state.stats[SUM] + self.state.stats[LOST]
        return sums

    @property
    def _observed(self) -> NDArray[np.bool_]:
        """Arms whose counts and sums are those of their own rewards."""
        return self.counts > 0

    def _evidence(self) -> Evidence:
        counts, own = self.counts, self._observed
        size = float(np.abs(self._sums()[own] / counts[own]).max(initial=0.0))
        if self._seen is None:
            return Evidence(int(counts.sum()), 0.0, 0, 0.0, size)
        seen = self._seen[0]
        terms = float(seen["freedom"] + seen["firsts"])
        return Evidence(int(counts.sum()), float(seen["squares"]), int(seen["freedom"]), terms, size)

    def _norm(self, noise: float, theta_norm: float, *, most: float) -> Norm | None:
        counts, sums, own = self.counts, self._sums(), self._observed
        by_arms = norm_of_arms(np.linalg.norm(self.arms, axis=1), np.where(own, counts, 0), sums, noise)
        taught = np.flatnonzero(counts)
        small, large = sorted((taught.size, self.dim))
        if small * small * (large + 10.0 * small) > most:
            return by_arms
        by_fit = norm_of_fit(self.arms[taught], counts[taught], sums[taught], noise, theta_norm)
        return Norm(max(by_arms.least, by_fit.least), max(by_arms.shown if by_arms.least > 0 else 0.0, by_fit.shown))

    def _known_means(self) -> int:
        return int((self.counts > 0).sum())

    def _refresh_radius(self) -> None:
        """Where ``radius`` is a user's function, ask it and put its answer into the state."""

    @exclusive
    def copy(self) -> Self:
        """An independent policy in the same state."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__getstate__())
        twin.settings = dict(self.settings)
        twin.state = snapshot.copy_state(self.state)
        twin._kept_bounds = None
        return twin

    @exclusive
    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to ``path`` (NumPy's ``.npz``, no pickle), atomically."""
        extra = {"arms": self.arms, **self._extra()}
        snapshot.write(path, type(self).__name__, self.settings, self.state, extra)

    @classmethod
    def load(cls, path: str | PathLike[str], *, radius: Callable[[int, float], float] | None = None) -> Self:
        """Read a policy that `save` wrote; it continues bit for bit. A function ``radius`` must be passed again.

        The types, shapes and indices of everything in the file are checked before any of it is used.
        """
        return cls._from_saved(snapshot.with_radius(snapshot.read(path, cls.__name__), radius))

    @classmethod
    def _from_saved(cls, saved: snapshot.Saved) -> Self:
        saved = snapshot.converted(snapshot.of_kind(saved, cls.__name__), cls._converted)
        policy = cls.__new__(cls)
        Policy.__init__(policy, snapshot.take(saved, "arms"))
        policy.settings = saved.settings
        sizes = policy._sizes()
        policy.state = snapshot.take_state(saved, cls._state_type(policy.settings), sizes)
        policy._restore(saved, sizes)
        policy._check_indices(saved)
        return policy

    @classmethod
    def _converted(cls, saved: snapshot.Saved) -> snapshot.Saved:
        """What an older format holds, in today's layout; here nothing has changed since format 1."""
        return saved

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        """The state that a policy with these settings has."""
        raise NotImplementedError

    def _sizes(self) -> dict[str, int]:
        """The names in the layout of the state's fields that have a known value."""
        return {"n": self.n_arms, "d": self.dim}

    def _extra(self) -> dict[str, NDArray[Any]]:
        """Arrays that a subclass keeps in addition to ``arms`` and ``state``."""
        return {}

    def _restore(self, saved: snapshot.Saved, sizes: dict[str, int]) -> None:
        """Take back what `_extra` gave, checked."""

    def _check_indices(self, saved: snapshot.Saved) -> None:
        """Refuse a loaded state whose indices would lead compiled code out of bounds."""
        snapshot.within(saved, "state.choice", self.state.choice, 0, self.n_arms - 1)
        if "counts" in self.state._fields:
            snapshot.within(saved, "state.counts", self.state.counts, 0, 2**62)

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in self.settings.items())
        return f"{type(self).__name__}({self.n_arms} arms of dimension {self.dim}, {shown})"
