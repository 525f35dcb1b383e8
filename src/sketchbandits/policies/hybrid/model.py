"""What the hybrid policy knows: its state for arms that come and go, rewards with contexts, files."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits import snapshot, validate
from sketchbandits.features import Features
from sketchbandits.kernels.counter import new_key
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies import rounds
from sketchbandits.policies.base import Policy
from sketchbandits.policies.guard import all_or_nothing, exclusive
from sketchbandits.policies.hybrid.building import NEVER, check_memory, groups_for, new_state, shape_of
from sketchbandits.policies.hybrid.half_life import checked_time, half_life_of
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.hybrid.parameters import is_vectors
from sketchbandits.policies.hybrid.refit import PER_HALF_LIFE
from sketchbandits.policies.hybrid.rounds import absorb_in, batch_loop, main_of, refit_all, refit_now
from sketchbandits.policies.hybrid.saved import check_settings, check_state
from sketchbandits.policies.hybrid.watch import WatchedState
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.policies.rounds import AFTER, DONE

State = HybridState | WatchedState


class HybridModel(Policy):
    """The model behind `HybridCSLB`: everything but its decisions."""

    context_dim: int | None
    context_features: Features | None
    arm_features: Features | None
    _later: tuple[int, int, State] | None = None  # the fit as it will be at a later time, for questions about it

    @property
    def _main(self) -> HybridState:
        """The copy of the model that decides."""
        return main_of(self.state)

    @property
    def _length(self) -> int:
        """Of a context with its constant."""
        return (self.context_dim or 0) + 1

    @property
    def _timed(self) -> bool:
        return bool(self._main.level["timed"][0])

    def _fresh_state(self, key: Any) -> State:
        groups = groups_for(self.arms, self._length, self.settings)
        (n, r), k = groups.coordinates.shape, int(groups.cluster.max()) + 1
        given = f"{self.n_arms} arms of {self.dim} features and context_dim={self.context_dim}"
        check_memory(shape_of(n, k, r, self._length, self.settings), given)
        return new_state(groups, self._length, self.settings, key)

    def _start(self, seed: Any) -> None:
        """The state before any reward."""
        key = new_key(validate.generator(seed))
        with self._warm_up():
            self.state = self._fresh_state(key)
            refit_all(self.state)

    def _checked_context(self, context: ArrayLike | Mapping[str, Any] | None) -> Floats:
        """The context with its constant."""
        if self.context_dim is None:
            if context is not None:
                raise ValueError(f"context must be None for a policy without contexts, got {context!r}")
            return np.ones(1)
        if context is None:
            raise ValueError(f"context must be a vector of length {self.context_dim}, got None")
        if isinstance(context, Mapping):
            if self.context_features is None:
                raise ValueError(
                    f"context must be a vector of length {self.context_dim}, got a mapping: "
                    "HybridCSLB(context_features=...) has a schema that encodes mappings"
                )
            context = self.context_features.vector(context)
        return np.append(validate.vector("context", context, size=self.context_dim), 1.0)

    def update(
        self, arm: int, reward: float, *, context: ArrayLike | Mapping[str, Any] | None = None, at: Any = None
    ) -> None:
        """Record ``reward`` for ``arm`` and the ``context`` that it was chosen for: any arm, any time, any order.

        ``at``: when the decision was made, needed where ``half_life`` is a time; late rewards count as much as their
        decision does by now.
        """
        if self.context_dim is None and context is None and at is None and not self._timed:
            super().update(arm, reward)
            return
        arm = validate.whole("arm", arm, least=0, most=self.n_arms - 1)
        reward = validate.reward("reward", reward)
        x, when = self._checked_context(context), checked_time(at, timed=self._timed)
        with self._lock:
            self._learn_in(arm, x, reward, when)

    def _learn_in(self, arm: int, x: Floats, reward: float, when: float) -> None:
        if self._main.level["waits"][0]:  # an interrupt came before the refit
            refit_now(self.state)
        if self._timed:
            root = np.sqrt(self._weight(when))
            x, reward = root * x, root * reward
        while (code := absorb_in(self.state, arm, x, reward)) != DONE:
            refit_now(self.state)
            if code == AFTER:
                break
        if self.context_dim is None:
            rounds.renew_choice(self.state)

    def _weight(self, when: float) -> float:
        """What a reward of this time counts; the clock goes on to it, with a refit at every 20th of a half-life."""
        level = self._main.level[0]
        first = level["samples"] == 0
        if first:
            level["faded"] = when
        if first or when > level["now"]:
            level["now"] = when
            if when - level["faded"] >= level["half_life"] / PER_HALF_LIFE:
                refit_now(self.state)
        return float(2.0 ** ((when - level["faded"]) / level["half_life"]))

    def _at(self, at: Any) -> HybridState:
        """The fit at this time: that of the last reward, or faded in steps of a 20th of the half-life."""
        main = self._main
        if at is None or not self._timed:
            checked_time(at, timed=self._timed and at is not None)
            return main
        when, level = checked_time(at, timed=True), main.level[0]
        steps = int((when - level["faded"]) / level["half_life"] * PER_HALF_LIFE) if level["samples"] else 0
        if steps < 1:
            return main
        known = self._later
        if known is None or known[:2] != (int(level["samples"]), steps):
            later = snapshot.copy_state(main)
            later.level["now"] = level["faded"] + steps * level["half_life"] / PER_HALF_LIFE
            refit_now(later)
            known = self._later = (int(level["samples"]), steps, later)
        return main_of(known[2])

    @exclusive
    def update_many(
        self, arms: ArrayLike, rewards: ArrayLike, *, contexts: Any = None, at: ArrayLike | None = None
    ) -> None:
        """Record ``rewards[t]`` for ``arms[t]`` and ``contexts[t]``, in order: identical to calls of `update`.

        ``contexts``: one row per arm, or with ``context_features`` a data frame or a list of mappings. ``at``: one time
        per arm. All is checked before anything is recorded.
        """
        if self.context_dim is None and contexts is None and at is None and not self._timed:
            super().update_many(arms, rewards)
            return
        checked, numbers = self._checked_batch(arms, rewards)
        rows, times = self._checked_contexts(contexts, checked.size), self._checked_times(at, checked.size)
        with all_or_nothing(self):
            if not self._timed:
                self._learn_rows(checked, rows, numbers)
                return
            for arm, x, reward, when in zip(checked.tolist(), rows, numbers.tolist(), times, strict=True):
                self._learn_in(arm, x, reward, when)

    def _learn_rows(self, arms: Ints, rows: Floats, rewards: Floats) -> None:
        start = 0
        while (start := batch_loop(self.state, arms, rows, rewards, start)) >= 0:
            refit_now(self.state)
        if self.context_dim is None:
            rounds.renew_choice(self.state)

    def _checked_times(self, at: ArrayLike | None, size: int) -> list[float]:
        if not self._timed or at is None:
            return [checked_time(at, timed=self._timed)] * size
        times = list(at) if isinstance(at, list | tuple | np.ndarray) else [at]
        if len(times) != size:
            raise ValueError(f"at must have one time per arm, {size}, got {len(times)}")
        return [checked_time(one, timed=True) for one in times]

    def _checked_contexts(self, contexts: Any, size: int) -> Floats:
        if self.context_dim is None:
            if contexts is not None:
                raise ValueError("contexts must be None for a policy without contexts, got some")
            return np.ones((size, 1))
        if contexts is None:
            raise ValueError(f"contexts must have one row of length {self.context_dim} per arm, got None")
        if size == 0:
            return np.ones((0, self._length))
        if self.context_features is not None and not is_vectors(contexts):
            contexts = self.context_features.transform(contexts)
        rows = validate.matrix("contexts", contexts, columns=self.context_dim)
        if len(rows) != size:
            raise ValueError(f"contexts must have as many rows as arms, {size}, got {len(rows)}")
        return np.column_stack([rows, np.ones(size)])

    @property
    def runs_compiled(self) -> bool:
        """Whether batches and simulations without contexts run in one kernel."""
        return self.context_dim is None and self._updates_compiled

    @property
    def _updates_compiled(self) -> bool:
        return self.context_dim is None and not self._timed and type(self).update is HybridModel.update

    def _learn(self, arm: int, reward: float) -> None:
        self.update(arm, reward)

    @property
    @exclusive
    def counts(self) -> Ints:
        """How many rewards were recorded for each arm."""
        result: Ints = self._main.counts.copy()
        return result

    @property
    @exclusive
    def active(self) -> Mask:
        """Which arms may be played: all but the removed ones."""
        result: Mask = self._main.active.copy()
        return result

    def _copies(self) -> list[HybridState]:
        return [self.state.main, self.state.fast] if isinstance(self.state, WatchedState) else [self.state]

    @exclusive
    def add_arms(self, arms: Any) -> Ints:
        """Add arms, as they were given at first; returns their ids, which continue those of the arms there are.

        The shared fit is made anew for all arms, exactly; nothing that was recorded is lost.
        """
        new = self._encoded_arms(arms)
        with all_or_nothing(self):
            first, before = self.n_arms, self._copies()
            self.arms = np.concatenate([self.arms, new])
            self.arms.setflags(write=False)
            self.n_arms = len(self.arms)
            watch = self.state.watch if isinstance(self.state, WatchedState) else None
            self.state = self._fresh_state(before[0].key)
            for old, copy in zip(before, self._copies(), strict=True):
                _carry_over(old, copy, first)
            if watch is not None:
                self.state.watch[:] = watch
            self._later = None
            refit_all(self.state)
            rounds.renew_choice(self.state)
        return np.arange(first, self.n_arms)

    def _encoded_arms(self, arms: Any) -> Floats:
        """New arms in the form of those there are."""
        if self.settings["counted"]:
            return np.ones((validate.whole("arms", arms), 1))
        if self.arm_features is not None and not is_vectors(arms):
            arms = self.arm_features.transform(arms)
        return validate.matrix("arms", arms, columns=self.dim)

    @exclusive
    def remove_arms(self, ids: ArrayLike) -> None:
        """Never play these arms again; what they taught stays. Their ids are not given out a second time."""
        gone = checked_arms(ids, self.n_arms, "ids")
        left = self.active
        left[gone] = False
        if not left.any():
            raise ValueError(f"ids must leave at least one arm to play, got all {int(self.active.sum())} that are left")
        for copy in self._copies():
            copy.active[:] = left
        self._later = None
        rounds.renew_choice(self.state)

    @exclusive
    def reseed(self, seed: Any) -> None:
        """Draw from another stream from now on; what was learned stays."""
        key = new_key(validate.generator(seed))
        for copy in self._copies():
            copy.key[:] = key
        self._later = None
        rounds.renew_choice(self.state)

    def _sums(self) -> Floats:
        factors = self._main.factors
        sums: Floats = np.einsum("ni,ni->n", factors[:, :, -2], factors[:, :, -1])
        return sums

    def _assumed(self) -> dict[str, float]:
        return {}

    @exclusive
    def copy(self) -> Self:
        """An independent policy in the same state."""
        twin = super().copy()
        twin._later = None
        return twin

    @classmethod
    def _from_saved(cls, saved: snapshot.Saved) -> Self:
        check_settings(saved)
        policy = super()._from_saved(saved)
        policy._read_settings()
        return policy

    def _read_settings(self) -> None:
        """What follows from the settings and is no part of the state."""
        self.context_dim = self.settings["context_dim"]
        self.context_features, self.arm_features = (
            None if self.settings[name] is None else Features.from_dict(self.settings[name])
            for name in ("context_features", "arm_features")
        )

    def _sizes(self) -> dict[str, int]:
        p = (self.settings["context_dim"] or 0) + 1
        return {"n": self.n_arms, "p": p, "f": p + 1}

    def _check_indices(self, saved: snapshot.Saved) -> None:
        snapshot.within(saved, "state.choice", self.state.choice, 0, self.n_arms - 1)
        check_state(saved, self.state, self.arms)

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return WatchedState if half_life_of(settings["half_life"]).watched else HybridState


def _carry_over(old: HybridState, new: HybridState, first: int) -> None:
    """What was recorded for the first arms, and what was learned."""
    for name in ("counts", "factors", "active"):
        getattr(new, name)[:first] = getattr(old, name)
    new.scale[:] = old.scale
    constant = new.level["constant"].copy()
    if constant[0] and old.level["constant"][0]:
        new.coordinates[:, -1] = old.coordinates[0, -1]
    new.level[:] = old.level
    new.level["constant"] = constant
    if new.level["learns"][0] < NEVER:
        new.level["learns"] = new.level["samples"]  # the features have new units
