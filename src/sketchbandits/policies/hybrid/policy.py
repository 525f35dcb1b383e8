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

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.kernels.counter import new_key
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies import rounds
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.hybrid.choice import decide, lines, noise_of, predict, zeta
from sketchbandits.policies.hybrid.envelope import interval_probabilities
from sketchbandits.policies.hybrid.layout import RANDOMISED
from sketchbandits.policies.hybrid.model import RULES, HybridModel
from sketchbandits.policies.hybrid.refit import refit, settled
from sketchbandits.policies.hybrid.rounds import user_loop
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.pending.rule import Mask

LEAST = 1e-9  # share or ridge that can be given
SHOWN = 2.0  # standard deviations by which `bounds` are above estimates, where choices are random


class HybridCSLB(HybridModel):
    """Hybrid CS-LB: decides for a user, learns how noisy rewards are and how far features can be trusted.

    For decisions with a context (a user, a request), and for fixed arms whose rewards the features explain only in
    part. Nothing has to be known: noise and scales are learned. Choices stay the same if all rewards, all features or
    all contexts are multiplied by a number; the columns of features and contexts should have similar sizes among each
    other (standardise an age beside flags). It promises nothing, and an arm that features predict to be bad, against
    the truth, may never be tried. Where a bound has to hold, take `MultiscaleCSLB`, and for millions of arms `CSLB`.
    Arms may be added and removed.

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
            "ridge": None if ridge is None else _within("ridge", ridge, LEAST, 1.0 / LEAST),
            "own_share": None if own_share is None else _within("own_share", own_share, LEAST, 1.0 - LEAST),
            "counted": counted,
        }
        key = new_key(validate.generator(seed))
        with self._warm_up():
            self.state = self._new_state(key)
            refit(self.state)
            settled(self.state)

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

    @exclusive
    def probabilities(
        self, context: ArrayLike | None = None, *, available: ArrayLike | None = None, cost: ArrayLike | None = None
    ) -> Floats:
        """How probable each arm is to be chosen for ``context``, over the draws of decisions: exact, in all 1."""
        x, among = self._checked_context(context), self._allowed(available)
        prices = np.zeros(self.n_arms) if cost is None else validate.vector("cost", cost, size=self.n_arms)
        means, widths = np.empty(self.n_arms), np.empty(self.n_arms)
        lines(self.state, x, prices, among, means, widths)
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
        factor = SHOWN if level["rule"] == RANDOMISED else zeta(self.state, 0, 0)
        noise = np.array([noise_of(self.state, arm) for arm in range(self.n_arms)])
        return means + factor * noise * widths

    def _predicted(self, context: ArrayLike | None) -> Floats:
        result = np.empty((2, self.n_arms))
        predict(self.state, self._checked_context(context), result[0], result[1])
        result[0] += float(self.state.level["centre"][0])
        return result

    @property
    @exclusive
    def learned(self) -> Mapping[str, float]:
        """What was learned, or given: ``noise``, in units of the reward, ``ridge`` and ``own_share``."""
        level = self.state.level[0]
        ridge, own = float(level["ridge"]), float(level["own_ridge"])
        return {"noise": float(level["noise"]), "ridge": ridge, "own_share": ridge / (ridge + own)}

    @property
    def runs_compiled(self) -> bool:
        """Whether batches and simulations without contexts run in one kernel: no overriding subclass."""
        return super().runs_compiled and type(self).select is HybridCSLB.select

    @exclusive
    def play_rounds(self, means: Floats, gaps: Floats, noise: Floats) -> float:
        """As for every policy, where there is no context."""
        if self.context_dim is not None:
            raise ValueError(f"context_dim must be None to play rounds without contexts, got {self.context_dim}")
        return super().play_rounds(means, gaps, noise)

    @exclusive
    def play_user_rounds(self, contexts: Floats, rewards: Floats, available: Mask | None) -> Ints:
        """Choose and learn in rounds, one per row, inside one kernel; the arms that were chosen.

        ``rewards``: what each arm would pay. ``available``: a mask of the same shape, or None.
        """
        payoffs = validate.matrix("rewards", rewards, columns=self.n_arms)
        size = len(payoffs)
        x = np.ones((size, 1)) if self.context_dim is None else self._checked_contexts(contexts, size)
        among = self.active[None]
        if available is not None:
            mask = np.asarray(available)
            if mask.shape != payoffs.shape or mask.dtype.kind != "b":
                raise ValueError(f"available must be a mask of shape {payoffs.shape}, got {mask.dtype} {mask.shape}")
            among = mask & self.active
        if not among.any(axis=1).all():
            round_ = int(among.any(axis=1).argmin())
            raise ValueError(f"available must hold at least one arm that may be played, got none in round {round_}")
        chosen, start = np.zeros(size, np.int64), 0
        while (start := user_loop(self.state, x, payoffs, among, chosen, start)) >= 0:
            refit(self.state)
            settled(self.state)
        if self.context_dim is None:
            rounds.renew_choice(self.state)
        return chosen


def _within(name: str, value: float, least: float, most: float) -> float:
    """A number in an interval beyond which fits lose their digits."""
    number = validate.number(name, value, above=0.0)
    if not least <= number <= most:
        raise ValueError(f"{name} must be a number from {least:g} to {most:.15g}, got {value!r}")
    return number
