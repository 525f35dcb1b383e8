"""Hybrid CS-LB: decisions for someone, with nothing to tune.

    reward = u . c_a + noise ,   c_a = Phi z_a + w_a ,   Phi ~ N(0, R^2/rho) ,   w_a ~ N(0, R^2/c) ,   noise ~ N(0, R^2)

for a context u (with a constant appended) and an arm a with coordinates z_a in its cluster. Every arm has a fit of its
own, shrunk towards what its cluster predicts. ``c -> inf`` is one LinUCB with shared parameters on ``u x z``, and
``c -> 0`` one LinUCB per arm. R, rho and c are learned (`learning`), at numbers of rewards that grow by a quarter.

    explore="randomised":  argmax_a  u . mean_a + b |N(0, 1)| R sd_a(u) ,  one draw for all arms
    explore="ucb":         argmax_a  u . mean_a + sqrt(ln t) R sd_a(u)

**Cost** O(N p^2) per decision, O((p r)^2 + N p (p + r)) per reward (p: length of a context and 1, r: rank of the arms);
a refit O(N p^3 + (p r)^3 + N p^2 r^2) for each of about ten own ridges. Memory O(N p^2 + K (p r)^2).
**Guarantee** none: the prior is learned from the rewards. `MultiscaleCSLB` has one.
**Reference** the hybrid model of Li, Chu, Langford and Schapire, WWW 2010; one random multiple of all widths: Vaswani,
Mehrabian, Durand and Kveton (RandUCB), AISTATS 2020; marginal likelihood: MacKay, Neural Computation 4, 1992.
**Departures** from Li et al.: prior scales and noise are learned, arms share by clusters, statistics of single arms
make every refit exact, and cost does not depend on the number of the arms' features.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import snapshot, validate
from sketchbandits.kernels.counter import new_key
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies import rounds
from sketchbandits.policies.base import Policy
from sketchbandits.policies.guard import all_or_nothing, exclusive
from sketchbandits.policies.hybrid.choice import decide, lines, predict, zeta
from sketchbandits.policies.hybrid.envelope import interval_probabilities
from sketchbandits.policies.hybrid.groups import Groups, groups_of
from sketchbandits.policies.hybrid.layout import LEVEL, RANDOMISED, UCB
from sketchbandits.policies.hybrid.refit import BOLDNESS, refit, settled
from sketchbandits.policies.hybrid.rounds import STATE, absorb_in, user_loop
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.policies.rounds import AFTER, DONE

RULES = {"randomised": (RANDOMISED, BOLDNESS), "ucb": (UCB, 1.0)}
SHOWN = 2.0  # standard deviations by which `bounds` are above estimates, where choices are random


class HybridCSLB(Policy):
    """Hybrid CS-LB: decides for a user, learns how noisy rewards are and how far features can be trusted.

    For decisions with a context (a user, a request), and for fixed arms whose rewards the features explain only in
    part. Nothing has to be known: noise and scales are learned, and choices do not depend on the units of rewards,
    features and contexts. It promises nothing; where a bound has to hold, take `MultiscaleCSLB`, and for millions of
    arms `CSLB`. Arms may be added and removed.

    Parameters
    ----------
    arms
        One row of features per arm: an array, a sparse matrix or a data frame of numbers. Copied. Or a whole number:
        so many arms without features, each with a fit of its own that is shrunk towards what all have in common.
    context_dim
        The length of a context (default None: there is none, every round is the same). No constant is needed in it.
    sketch_size
        The largest rank of a cluster, as in `CSLB` (default None: one cluster of all arms as long as
        ``context_dim + 1`` times the rank of the arms is at most 512). Smaller is faster, and shares less between arms.
    explore
        ``"randomised"`` (default): every decision draws how bold it is, and `probabilities` are exact. ``"ucb"``: the
        largest bound, whose width grows with the square root of the logarithm of the number of rewards.
    half_life
        After so many rewards an earlier one counts half, >= 1 (default None: nothing is forgotten). For worlds that
        change: arms that were not played for long become uncertain again. Where nothing changes it costs regret.
    noise
        The standard deviation of rewards around their mean, in their units, > 0 (default None: learned).
    ridge
        The ridge of what arms share, > 0, in units where contexts and features have mean square 1 (default None:
        learned). Larger trusts the features less.
    own_share
        The share of an arm's prior variance that is its own and not shared, in (0, 1) (default None: learned).
    seed
        Of the draws (default 0): with the same seed and the same rewards the same arms.

    """

    context_dim: int | None

    def __init__(
        self,
        arms: ArrayLike | int,
        *,
        context_dim: int | None = None,
        sketch_size: int | None = None,
        explore: str = "randomised",
        half_life: int | None = None,
        noise: float | None = None,
        ridge: float | None = None,
        own_share: float | None = None,
        seed: Any = 0,
    ) -> None:
        counted = isinstance(arms, (int, np.integer)) and not isinstance(arms, (bool, np.bool_))
        super().__init__(np.ones((validate.whole("arms", arms), 1)) if counted else arms)
        self.context_dim = None if context_dim is None else validate.whole("context_dim", context_dim)
        self.settings = {
            "context_dim": self.context_dim,
            "sketch_size": None if sketch_size is None else validate.whole("sketch_size", sketch_size),
            "explore": validate.option("explore", explore, tuple(RULES)),
            "half_life": None if half_life is None else validate.whole("half_life", half_life),
            "noise": None if noise is None else validate.positive("noise", noise),
            "ridge": None if ridge is None else validate.positive("ridge", ridge),
            "own_share": None if own_share is None else validate.probability("own_share", own_share),
            "counted": counted,
        }
        key = new_key(validate.generator(seed))
        with self._warm_up():
            self.state = self._new_state(key)
            refit(self.state)
            settled(self.state)

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

    # ------------------------------------------------------------------------------------------------------- decisions
    def select(
        self,
        context: ArrayLike | None = None,
        *,
        available: ArrayLike | None = None,
        slate: int | None = None,
        pending: ArrayLike | None = None,
        cost: ArrayLike | None = None,
        decision: int | None = None,
    ) -> Any:
        """The arm to play for ``context``; with ``slate=k`` an array of k different arms, best first. No side effect.

        ``available``: the arms to choose from, a mask or ids. ``cost``: a known price per arm, in units of the reward,
        subtracted. The draw is a function of the seed and ``decision``: by default the rewards recorded and the number
        of ``pending`` decisions, whose arms may be given; a number of your own lets a log be repeated.
        """
        plain = available is None and slate is None and pending is None and cost is None and decision is None
        if plain and context is None and self.context_dim is None:
            return self.state.choice.item(0)
        picks = self._decide(context, available, slate, pending, cost, decision)
        return picks if slate is not None else picks.item(0)

    @exclusive
    def _decide(
        self,
        context: ArrayLike | None,
        available: ArrayLike | None,
        slate: int | None,
        pending: ArrayLike | None,
        cost: ArrayLike | None,
        decision: int | None,
    ) -> Ints:
        x, among = self._checked_context(context), self._allowed(available)
        size = 1 if slate is None else validate.whole("slate", slate, most=int(among.sum()))
        prices = np.zeros(self.n_arms) if cost is None else validate.vector("cost", cost, size=self.n_arms)
        waiting = 0 if pending is None else checked_arms(pending, self.n_arms, "pending").size
        number = int(self.state.level["samples"][0]) + waiting
        if decision is not None:
            number = validate.whole("decision", decision, least=0, most=2**39)
        picks = np.empty(size, np.int64)
        decide(self.state, x, number, prices, among, picks)
        return picks

    @exclusive
    def select_many(
        self,
        count: int,
        context: ArrayLike | None = None,
        *,
        available: ArrayLike | None = None,
        pending: ArrayLike | None = None,
    ) -> Ints:
        """``count`` decisions for one context before any reward is known, repeats allowed. No side effect.

        They are those of ``count`` calls of `select`, each with the picks so far at the end of ``pending``.
        """
        count = validate.whole("count", count, least=0)
        x, allowed = self._checked_context(context), self._allowed(available)
        waiting = 0 if pending is None else checked_arms(pending, self.n_arms, "pending").size
        first = int(self.state.level["samples"][0]) + waiting
        picks = np.empty(count, np.int64)
        for i in range(count):
            decide(self.state, x, first + i, np.zeros(self.n_arms), allowed.copy(), picks[i : i + 1])
        return picks

    def _checked_context(self, context: ArrayLike | None) -> Floats:
        """The context with its constant."""
        if self.context_dim is None:
            if context is not None:
                raise ValueError(f"context must be None for a policy without contexts, got {context!r}")
            return np.ones(1)
        if context is None:
            raise ValueError(f"context must be a vector of length {self.context_dim}, got None")
        return np.append(validate.vector("context", context, size=self.context_dim), 1.0)

    @exclusive
    def probabilities(
        self, context: ArrayLike | None = None, *, available: ArrayLike | None = None, cost: ArrayLike | None = None
    ) -> Floats:
        """How probable each arm is to be chosen for ``context``, over the draws of decisions: exact, in all 1."""
        x, among = self._checked_context(context), self._allowed(available)
        prices = np.zeros(self.n_arms) if cost is None else validate.vector("cost", cost, size=self.n_arms)
        means, widths = np.empty(self.n_arms), np.empty(self.n_arms)
        lines(self.state, x, prices, means, widths)
        level = self.state.level[0]
        if level["rule"] == RANDOMISED:
            return interval_probabilities(means, widths, float(level["boldness"]), among)
        picks, result = np.empty(1, np.int64), np.zeros(self.n_arms)
        decide(self.state, x, int(level["samples"]), prices, among, picks)
        result[picks[0]] = 1.0
        return result

    @exclusive
    def estimates(self, context: ArrayLike | None = None) -> Floats:
        """The estimated mean reward of every arm for ``context``. No side effect."""
        return self._predicted(context)[0]

    @exclusive
    def bounds(self, context: ArrayLike | None = None) -> Floats:
        """The estimate plus what `select` with ``"ucb"`` adds to it, with ``"randomised"`` two standard deviations."""
        means, widths = self._predicted(context)
        level = self.state.level[0]
        factor = SHOWN if level["rule"] == RANDOMISED else zeta(self.state, int(level["samples"]), 0)
        return means + factor * float(level["noise"]) * widths

    def _predicted(self, context: ArrayLike | None) -> Floats:
        result = np.empty((2, self.n_arms))
        predict(self.state, self._checked_context(context), result[0], result[1])
        return result

    @property
    @exclusive
    def learned(self) -> Mapping[str, float]:
        """What was learned, or given: ``noise``, in units of the reward, ``ridge`` and ``own_share``."""
        level = self.state.level[0]
        ridge, own = float(level["ridge"]), float(level["own_ridge"])
        return {"noise": float(level["noise"]), "ridge": ridge, "own_share": ridge / (ridge + own)}

    # --------------------------------------------------------------------------------------------------------- rewards
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
        return self.context_dim is None and type(self).select is HybridCSLB.select and self._updates_compiled

    @property
    def _updates_compiled(self) -> bool:
        return self.context_dim is None and type(self).update is HybridCSLB.update

    def _learn(self, arm: int, reward: float) -> None:
        self.update(arm, reward)

    @exclusive
    def play_user_rounds(self, contexts: Floats, rewards: Floats, available: Mask | None) -> Ints:
        """Choose and learn in rounds, one per row, inside one kernel; the arms that were chosen."""
        size = len(rewards)
        x = np.ones((size, 1)) if self.context_dim is None else np.column_stack([contexts, np.ones(size)])
        among = self.active[None] if available is None else available & self.active
        chosen, start = np.zeros(size, np.int64), 0
        while (start := user_loop(self.state, x, np.ascontiguousarray(rewards), among, chosen, start)) >= 0:
            refit(self.state)
            settled(self.state)
        if self.context_dim is None:
            rounds.renew_choice(self.state)
        return chosen

    # ----------------------------------------------------------------------------------------------- arms, seeds, files
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
    def _from_saved(cls, saved: snapshot.Saved) -> "HybridCSLB":
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
