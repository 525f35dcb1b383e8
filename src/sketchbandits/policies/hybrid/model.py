"""What the hybrid policy knows: its state for arms that come and go, rewards with contexts, files."""

import math
import os
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import snapshot, validate
from sketchbandits.kernels.counter import new_key
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies import rounds
from sketchbandits.policies.base import Policy
from sketchbandits.policies.guard import all_or_nothing, exclusive
from sketchbandits.policies.hybrid.groups import Groups, groups_of
from sketchbandits.policies.hybrid.layout import LEVEL, RANDOMISED, UCB
from sketchbandits.policies.hybrid.refit import BOLDNESS, refit, settled
from sketchbandits.policies.hybrid.rounds import STATE, absorb_in
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.policies.rounds import AFTER, DONE

RULES = {"randomised": (RANDOMISED, BOLDNESS), "ucb": (UCB, 1.0)}


class HybridModel(Policy):
    """The model behind `HybridCSLB`: everything but its decisions."""

    context_dim: int | None

    @property
    def _length(self) -> int:
        """Of a context with its constant."""
        return (self.context_dim or 0) + 1

    def _groups(self) -> Groups:
        return groups_of(self.arms, self._length, self.settings["sketch_size"])

    def _new_state(self, key: NDArray[np.uint64]) -> STATE:
        groups, n, p = self._groups(), self.n_arms, self._length
        k, r = int(groups.cluster.max()) + 1, groups.coordinates.shape[1]
        self._check_memory(n * ((p + 1) ** 2 + 2 * p * p + p + r) + k * ((p * r) ** 2 + p * r))
        level = np.zeros(1, LEVEL)
        level["rule"], level["boldness"] = RULES[self.settings["explore"]]
        level["constant"] = groups.constant
        level["half_life"] = self.settings["half_life"] or math.inf
        for name, given in (("given_noise", "noise"), ("given_ridge", "ridge"), ("given_share", "own_share")):
            level[name] = math.nan if self.settings[given] is None else self.settings[given]
        return STATE(
            choice=np.zeros(1, np.int64),
            counts=np.zeros(n, np.int64),
            **_places(groups),
            factors=np.zeros((n, p + 1, p + 1)),
            own=np.zeros((n, p)),
            spread=np.zeros((n, p, p)),
            inverse=np.zeros((n, p, p)),
            shared=np.zeros((k, p, r)),
            shared_inverse=np.zeros((k, p * r, p * r)),
            scale=np.ones(p),
            active=np.ones(n, np.bool_),
            level=level,
            key=key,
        )

    def _check_memory(self, numbers: int) -> None:
        there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40
        if 8 * numbers > there:
            given = f"{self.n_arms} arms of {self.dim} features and context_dim={self.context_dim}"
            raise ValueError(
                f"arms must be few enough for the memory, {there / 2**30:.0f} GiB, got {given}, whose statistics take "
                f"{numbers / 2**27:.0f} GiB: a smaller sketch_size or shorter contexts need less"
            )

    def _checked_context(self, context: ArrayLike | None) -> Floats:
        """The context with its constant."""
        if self.context_dim is None:
            if context is not None:
                raise ValueError(f"context must be None for a policy without contexts, got {context!r}")
            return np.ones(1)
        if context is None:
            raise ValueError(f"context must be a vector of length {self.context_dim}, got None")
        return np.append(validate.vector("context", context, size=self.context_dim), 1.0)

    def update(self, arm: int, reward: float, *, context: ArrayLike | None = None) -> None:
        """Record ``reward`` for ``arm`` and the ``context`` that it was chosen for: at any time, in any order."""
        if self.context_dim is None and context is None:
            super().update(arm, reward)
            return
        arm = validate.whole("arm", arm, least=0, most=self.n_arms - 1)
        reward = validate.reward("reward", reward)
        x = self._checked_context(context)
        with self._lock:
            self._learn_in(arm, x, reward)

    def _learn_in(self, arm: int, x: Floats, reward: float) -> None:
        while (code := absorb_in(self.state, arm, x, reward)) != DONE:
            refit(self.state)
            settled(self.state)
            if code == AFTER:
                return

    @exclusive
    def update_many(self, arms: ArrayLike, rewards: ArrayLike, *, contexts: ArrayLike | None = None) -> None:
        """Record ``rewards[t]`` for ``arms[t]`` and ``contexts[t]``, in order: identical to calls of `update`.

        All is checked before anything is recorded.
        """
        if self.context_dim is None and contexts is None:
            super().update_many(arms, rewards)
            return
        checked, numbers = self._checked_batch(arms, rewards)
        rows = self._checked_contexts(contexts, checked.size)
        with all_or_nothing(self):
            for arm, x, reward in zip(checked.tolist(), rows, numbers.tolist(), strict=True):
                self._learn_in(arm, x, reward)

    def _checked_contexts(self, contexts: ArrayLike | None, size: int) -> Floats:
        if self.context_dim is None:
            raise ValueError("contexts must be None for a policy without contexts, got some")
        if contexts is None:
            raise ValueError(f"contexts must have one row of length {self.context_dim} per arm, got None")
        if size == 0:
            return np.ones((0, self._length))
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
        return self.context_dim is None and type(self).update is HybridModel.update

    def _learn(self, arm: int, reward: float) -> None:
        self.update(arm, reward)

    @property
    @exclusive
    def active(self) -> Mask:
        """Which arms may be played: all but the removed ones."""
        result: Mask = self.state.active.copy()
        return result

    @exclusive
    def add_arms(self, arms: ArrayLike | int) -> Ints:
        """Add arms, as they were given at first; returns their ids, which continue those of the arms there are.

        The shared fit is made anew for all arms, exactly; nothing that was recorded is lost.
        """
        if self.settings["counted"]:
            new = np.ones((validate.whole("arms", arms), 1))
        else:
            new = validate.matrix("arms", arms, columns=self.dim)
        with all_or_nothing(self):
            first, old = self.n_arms, self.state
            self.arms = np.concatenate([self.arms, new])
            self.arms.setflags(write=False)
            self.n_arms = len(self.arms)
            self.state = self._new_state(old.key)
            for name in ("counts", "factors", "active"):
                getattr(self.state, name)[:first] = getattr(old, name)
            constant = self.state.level["constant"].copy()
            self.state.level[:] = old.level
            self.state.level["constant"] = constant
            refit(self.state)
            rounds.renew_choice(self.state)
        return np.arange(first, self.n_arms)

    @exclusive
    def remove_arms(self, ids: ArrayLike) -> None:
        """Never play these arms again; what they taught stays. Their ids are not given out a second time."""
        gone = checked_arms(ids, self.n_arms, "ids")
        left = self.active
        left[gone] = False
        if not left.any():
            raise ValueError(f"ids must leave at least one arm to play, got all {int(self.active.sum())} that are left")
        self.state.active[:] = left
        rounds.renew_choice(self.state)

    @exclusive
    def reseed(self, seed: Any) -> None:
        """Draw from another stream from now on; what was learned stays."""
        self.state.key[:] = new_key(validate.generator(seed))
        rounds.renew_choice(self.state)

    def _sums(self) -> Floats:
        factors = self.state.factors
        sums: Floats = np.einsum("ni,ni->n", factors[:, :, -2], factors[:, :, -1])
        return sums

    def _assumed(self) -> dict[str, float]:
        return {}

    @classmethod
    def _from_saved(cls, saved: snapshot.Saved) -> Self:
        policy = super()._from_saved(saved)
        policy.context_dim = policy.settings["context_dim"]
        return policy

    @classmethod
    def _state_type(cls, settings: dict[str, Any]) -> type:
        return STATE

    def _sizes(self) -> dict[str, int]:
        p = (self.settings["context_dim"] or 0) + 1
        return {"n": self.n_arms, "p": p, "f": p + 1}

    def _check_indices(self, saved: snapshot.Saved) -> None:
        super()._check_indices(saved)
        state, n = self.state, self.n_arms
        (k, p, r), starts = state.shared.shape, state.starts
        snapshot.within(saved, "state.cluster", state.cluster, 0, k - 1)
        snapshot.within(saved, "state.members", state.members, 0, n - 1)
        snapshot.within(saved, "state.starts", starts, 0, n)
        for name, most in (
            ("samples", 2**39),
            ("due", 2**62),
            ("faded", 2**39),
            ("waits", 1),
            ("rule", 1),
            ("constant", 1),
        ):
            snapshot.within(saved, f"state.level[{name}]", state.level[name], 0, most)
        if not np.isfinite(state.factors).all():
            raise ValueError(f"path must hold finite statistics, got others in {saved.path!r}")
        sizes = state.shared_inverse.shape[1], starts.size
        if sizes != (p * r, k + 1) or starts[0] != 0 or starts[-1] != n or (np.diff(starts) < 0).any():
            raise ValueError(f"path must hold a whole state, got one with other clusters in {saved.path!r}")


def _places(groups: Groups) -> dict[str, Any]:
    """Arms by cluster."""
    sizes = np.bincount(groups.cluster)
    return {
        "cluster": groups.cluster,
        "members": np.argsort(groups.cluster, kind="stable"),
        "starts": np.concatenate([[0], np.cumsum(sizes)]),
        "coordinates": groups.coordinates,
    }
