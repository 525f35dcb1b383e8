"""Hybrid CS-LB: decisions for someone, with nothing to tune.

    reward = u . c_a + noise ,   c_a = Phi z_a + w_a ,   Phi ~ N(0, R^2/rho) ,   w_a ~ N(0, R^2/c) ,   noise ~ N(0, R^2)

for a context u (with a constant appended) and an arm a with coordinates z_a in its cluster. Every arm has a fit of its
own, shrunk towards what its cluster predicts. ``c -> inf`` is one LinUCB with shared parameters on ``u x z``, and
``c -> 0`` one LinUCB per arm. R, rho and c are learned (`learning`), at numbers of rewards that grow by a quarter.

    explore="randomised":  argmax_a  u . mean_a + (f + b N(0, 1)^2) R sd_a(u) ,  one draw for all arms
    explore="ucb":         argmax_a  u . mean_a + sqrt(ln t) R sd_a(u)
    explore="ts":          argmax_a  u . (a joint draw from the posterior, `sampling`)_a
    explore="theory":      argmax_a  u . mean_a + beta_t sd_a(u) ,  beta_t that of docs/math/hybrid.md

**Cost** O(N p^2) per decision, O((p r)^2 + N p (p + r)) per reward (p: length of a context and 1, r: rank of the arms);
a refit O(N p^3 + (p r)^3 + N p^2 r^2) for each of about ten own ridges. Memory O(N p^2 + K (p r)^2).
**Guarantee** of ``"theory"`` alone: with probability at least 1 - delta its bounds hold at all times, for the noise and
the norms that were given. The prior of the others is learned from the rewards.
**Reference** the hybrid model of Li, Chu, Langford and Schapire, WWW 2010; one random multiple of all widths: Vaswani,
Mehrabian, Durand and Kveton (RandUCB), AISTATS 2020; marginal likelihood: MacKay, Neural Computation 4, 1992; the
radius: Abbasi-Yadkori, Pal and Szepesvari, NeurIPS 2011.
**Departures** from Li et al.: prior scales and noise are learned, arms share by clusters, statistics of single arms
make every refit exact, and cost does not depend on the number of the arms' features.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.features import Features
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies import rounds
from sketchbandits.policies.guard import exclusive
from sketchbandits.policies.hybrid.choice import all_units, decide, lines, predict, sample_winner, zeta
from sketchbandits.policies.hybrid.envelope import interval_probabilities
from sketchbandits.policies.hybrid.layout import RANDOMISED, TS, HybridState
from sketchbandits.policies.hybrid.parameters import checked_settings, given_arms
from sketchbandits.policies.hybrid.requests import RequestModel, checked_ids
from sketchbandits.policies.hybrid.rounds import refit_now, user_loop
from sketchbandits.policies.hybrid.sampling import SAMPLES
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.pending.rule import Mask

SHOWN = 2.0  # standard deviations by which `bounds` are above estimates, where choices are random
Context = ArrayLike | Mapping[str, Any] | None


class HybridCSLB(RequestModel):
    """Hybrid CS-LB: decides for a user, learns how noisy rewards are and how far features can be trusted.

    For decisions with a context (a user, a request), and for fixed arms whose rewards the features explain only in
    part. Nothing has to be known: noise and scales are learned. Choices stay the same if all rewards, all features or
    all contexts are multiplied by a number; the columns of features and contexts should have similar sizes among each
    other: `Features` makes such vectors from what people have. It promises nothing unless ``explore="theory"``, and an
    arm that features predict to be bad, against the truth, may never be tried. For millions of arms take `CSLB`, and
    where a bound has to hold and there are no contexts `MultiscaleCSLB`. Arms may be added and removed.

    Parameters
    ----------
    arms
        One row of features per arm: an array, a sparse matrix or a data frame of numbers; with ``arm_features`` a data
        frame or a list of mappings. Copied. Or a whole number: so many arms without features, each with a fit of its
        own that is shrunk towards what all have in common. None (the default) with ``feature_dim``.
    context_dim
        The length of a context (default None: there is none, every round is the same). No constant is needed in it,
        but for ``"theory"``, which adds none.
    feature_dim
        Arms come with the request, this many features each (default None: arms are fixed): ``select(context,
        arms=ids, features=rows)`` returns an id, ``update(id, reward, context=..., features=row)`` learns from it.
    sketch_size
        The largest rank of a cluster, as in `CSLB` (default None: one cluster of all arms as long as
        ``context_dim + 1`` times the rank of the arms is at most 512). Smaller is faster, and shares less between arms.
    explore
        ``"randomised"`` (default): every decision draws how bold it is, and `probabilities` are exact. ``"ucb"``: the
        largest bound, whose width grows with the square root of the logarithm of the number of rewards; no draws.
        ``"ts"``: Thompson sampling, a joint draw of all coefficients. ``"theory"``: the largest bound that holds with
        probability ``1 - delta``; cautious, needs ``noise``, ``theta_norm`` and ``own_norm``.
    half_life
        After so many rewards an earlier one counts half, >= 1, or after a time such as ``"6h"``, with ``at=`` in every
        call (default None: nothing is forgotten). For worlds that change: arms that were not played for long become
        uncertain again. Where nothing changes it costs regret. ``"auto"``: nothing is forgotten until a copy that
        forgets fast predicts better; twice the time and memory.
    max_arms
        With ``feature_dim``: how many ids keep a fit of their own (default None: 1,000). The ids whose last reward is
        the oldest lose theirs, and what they taught stays in what all arms share.
    noise
        The standard deviation of rewards around their mean, in their units, > 0 (default None: learned).
    ridge
        The ridge of what arms share, from 1e-8 to 1e8, in units where contexts and features have mean square 1, with
        ``"theory"`` in their own units (default None: learned, or what suits the norms). Larger trusts features less.
    own_share
        The share of an arm's prior variance that is its own and not shared, in (0, 1) (default None: learned).
    delta
        ``"theory"``: the probability that a bound fails at any time, in (0, 1) (default None: 0.01).
    theta_norm
        ``"theory"``: at least the Frobenius norm of the matrix B of rewards ``context . (B features + own_arm)``, > 0.
    own_norm
        ``"theory"``: at least the root of the sum of the squared norms of all ``own_arm``, also of arms to come, >= 0.
    context_features
        A `Features` schema: contexts may be mappings, and ``context_dim`` is that of the schema (default None).
    arm_features
        A `Features` schema of arms, fixed or in requests: ``arms`` and ``features`` may be data frames and mappings
        (default None).
    seed
        Of the draws (default 0): with the same seed and the same rewards the same arms.

    """

    def __init__(
        self,
        arms: Any = None,
        *,
        context_dim: int | None = None,
        feature_dim: int | None = None,
        sketch_size: int | None = None,
        explore: str = "randomised",
        half_life: int | str | None = None,
        max_arms: int | None = None,
        noise: float | None = None,
        ridge: float | None = None,
        own_share: float | None = None,
        delta: float | None = None,
        theta_norm: float | None = None,
        own_norm: float | None = None,
        context_features: Features | None = None,
        arm_features: Features | None = None,
        seed: Any = 0,
    ) -> None:
        self.settings = checked_settings({k: v for k, v in locals().items() if k not in ("self", "__class__", "seed")})
        super().__init__(given_arms(arms, self.settings, arm_features))
        self._read_settings()
        self._slots = {}
        self.arms.setflags(write=self._comes)
        self._start(seed)

    def select(
        self,
        context: Context = None,
        *,
        available: ArrayLike | None = None,
        slate: int | None = None,
        pending: Any = None,
        cost: ArrayLike | None = None,
        arms: Any = None,
        features: Any = None,
        decision: int | None = None,
        at: Any = None,
    ) -> Any:
        """The arm to play for ``context``; with ``slate=k`` an array of k different arms, best first. No side effect.

        ``available``: the arms to choose from, a mask or ids. ``cost``: a known price per arm, in units of the reward,
        subtracted. ``arms``, ``features``: the arms of this request by their ids, and one row of features each, where
        arms come with requests; the answer is one of the ids, and ``features`` may be left out where all are known.
        The draw is a function of the seed and ``decision``: by default the rewards recorded and the number of
        ``pending`` decisions, whose arms may be given; a number of your own lets a log be repeated. ``at``: when, where
        ``half_life`` is a time: what is known counts for less by then (default None: the time of the latest reward).
        """
        question = (available, slate, pending, cost, arms, features, decision, at)
        if context is None and self.context_dim is None and all(part is None for part in question):
            if self._comes:
                raise ValueError("arms must be the ids of the arms that this request offers, got None")
            return self.state.choice.item(0)
        with self._lock:
            x = self._checked_context(context)
            state, among, ids = self._asked(available, arms, features, at)
            size = 1 if slate is None else validate.whole("slate", slate, most=int(among.sum()))
            number = int(state.level["samples"][0]) + self._waiting(pending)
            if decision is not None:
                number = _decision(decision)
            picks = np.empty(size, np.int64)
            decide(state, x, number, _prices(cost, among.size), among, picks)
        chosen = picks if ids is None else [ids[i] for i in picks.tolist()]
        if slate is not None:
            return chosen
        return chosen[0] if ids is not None else picks.item(0)

    def _asked(
        self, available: ArrayLike | None, arms: Any, features: Any, at: Any
    ) -> tuple[HybridState, Mask, list[Any] | None]:
        """The model of the arms in question, which of them may be chosen, and their ids where they came along."""
        if not self._comes:
            self._refuse_requests(arms, features)
            return self._at(at), self._allowed(available), None
        if available is not None:
            raise ValueError(f"available must be None where arms come with requests, got {available!r}")
        offer = self._offer(arms, features, at)
        return offer.state, offer.state.active.copy(), offer.ids

    def _waiting(self, pending: Any) -> int:
        if pending is None:
            return 0
        if self._comes:
            return len(checked_ids("pending", pending))
        return checked_arms(pending, self.n_arms, "pending").size

    @exclusive
    def select_many(
        self,
        count: int,
        context: Context = None,
        *,
        available: ArrayLike | None = None,
        pending: Any = None,
        arms: Any = None,
        features: Any = None,
        at: Any = None,
    ) -> Any:
        """``count`` decisions for one context before any reward is known, repeats allowed. No side effect.

        They are those of ``count`` calls of `select`, each with the picks so far at the end of ``pending``.
        """
        count = validate.whole("count", count, least=0)
        x = self._checked_context(context)
        state, allowed, ids = self._asked(available, arms, features, at)
        first, prices = int(state.level["samples"][0]) + self._waiting(pending), np.zeros(allowed.size)
        picks = np.empty(count, np.int64)
        for i in range(count):
            decide(state, x, first + i, prices, allowed.copy(), picks[i : i + 1])
        return picks if ids is None else [ids[i] for i in picks.tolist()]

    def update(self, arm: Any, reward: float, *, context: Context = None, features: Any = None, at: Any = None) -> None:
        """Record ``reward`` for ``arm`` and the ``context`` that it was chosen for: any arm, any time, any order.

        ``features``: of an arm that came with a request; may be left out while its id has a fit of its own, and are
        then those that the id had. ``at``: when the decision was made, needed where ``half_life`` is a time; late
        rewards count as much as their decision does by now.
        """
        if not self._comes:
            if features is not None:
                self._refuse_requests(None, features)
            super().update(arm, reward, context=context, at=at)
            return
        self._learn_offered(arm, self._checked_context(context), validate.reward("reward", reward), features, at)

    @exclusive
    def probabilities(
        self,
        context: Context = None,
        *,
        available: ArrayLike | None = None,
        cost: ArrayLike | None = None,
        arms: Any = None,
        features: Any = None,
        decision: int | None = None,
        at: Any = None,
    ) -> Floats:
        """How probable each arm is to be chosen for ``context``; in all 1, in the order of ``arms``.

        Over the draws of all decisions, and exact; with ``"ts"`` over the samples of this ``decision``.
        """
        x = self._checked_context(context)
        state, among, _ = self._asked(available, arms, features, at)
        prices, n, level = _prices(cost, among.size), among.size, state.level[0]
        means, widths, result = np.empty(n), np.empty(n), np.zeros(n)
        if level["rule"] == RANDOMISED:
            lines(state, x, prices, among, means, widths)
            return interval_probabilities(means, widths, float(level["floor"]), float(level["boldness"]), among)
        number = int(level["samples"]) if decision is None else _decision(decision)
        if level["rule"] == TS and level["noise"] > 0.0:
            for sample in range(SAMPLES):
                result[sample_winner(state, x, prices, among, number, 0, sample)] += 1.0 / SAMPLES
            return result
        picks = np.empty(1, np.int64)
        decide(state, x, number, prices, among, picks)
        result[picks[0]] = 1.0
        return result

    @exclusive
    def estimates(self, context: Context = None, *, arms: Any = None, features: Any = None, at: Any = None) -> Floats:
        """The estimated mean reward of every arm for ``context``. No side effect."""
        return self._predicted(self._checked_context(context), arms, features, at)[1]

    @exclusive
    def bounds(self, context: Context = None, *, arms: Any = None, features: Any = None, at: Any = None) -> Floats:
        """The estimate plus what `select` adds to it with ``"ucb"`` and ``"theory"``, else two standard deviations."""
        x = self._checked_context(context)
        state, means, widths = self._predicted(x, arms, features, at)
        factor = SHOWN if state.level[0]["rule"] in (RANDOMISED, TS) else zeta(state, 0, 0)
        units = np.empty(means.size)
        all_units(state, units)
        return means + factor * widths * units

    def _predicted(self, x: Floats, arms: Any, features: Any, at: Any) -> tuple[HybridState, Floats, Floats]:
        """The model of the arms in question, their means and their widths over R."""
        if self._comes:
            state = self._asked(None, arms, features, at)[0]
        else:
            self._refuse_requests(arms, features)
            state = self._at(at)
        means, widths = np.empty(state.counts.size), np.empty(state.counts.size)
        predict(state, x, means, widths)
        return state, means + float(state.level["centre"][0]), widths

    @property
    @exclusive
    def learned(self) -> Mapping[str, float]:
        """What was learned, or given: ``noise``, in units of the reward, ``ridge`` and ``own_share``.

        With ``half_life="auto"`` also ``restarts``: how often a change was found.
        """
        level = self._main.level[0]
        ridge, own = float(level["ridge"]), float(level["own_ridge"])
        found = {"noise": float(level["noise"]), "ridge": ridge, "own_share": ridge / (ridge + own)}
        return found if self._main is self.state else {**found, "restarts": int(self.state.watch["restarts"][0])}

    @property
    def runs_compiled(self) -> bool:
        """Whether batches and simulations without contexts run in one kernel: no overriding subclass."""
        return super().runs_compiled and type(self).select is HybridCSLB.select

    @property
    def _updates_compiled(self) -> bool:
        plain = self.context_dim is None and not self._timed and not self._comes
        return plain and type(self).update is HybridCSLB.update

    @exclusive
    def play_rounds(self, means: Floats, gaps: Floats, noise: Floats) -> float:
        """As for every policy, where there is no context."""
        if self.context_dim is not None:
            raise ValueError(f"context_dim must be None to play rounds without contexts, got {self.context_dim}")
        self._refuse_rounds()
        return super().play_rounds(means, gaps, noise)

    def _refuse_rounds(self) -> None:
        if self._timed:
            given = self.settings["half_life"]
            raise ValueError(f"half_life must not be a time to play rounds, which have none, got {given!r}")
        if self._comes:
            raise ValueError(f"feature_dim must be None to play rounds, got {self.settings['feature_dim']}")

    @exclusive
    def play_user_rounds(self, contexts: Floats, rewards: Floats, available: Mask | None) -> Ints:
        """Choose and learn in rounds, one per row, inside one kernel; the arms that were chosen.

        ``rewards``: what each arm would pay. ``available``: a mask of the same shape, or None.
        """
        self._refuse_rounds()
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
            refit_now(self.state)
        if self.context_dim is None:
            rounds.renew_choice(self.state)
        return chosen


def _decision(number: int) -> int:
    return validate.whole("decision", number, least=0, most=2**39)


def _prices(cost: ArrayLike | None, size: int) -> Floats:
    return np.zeros(size) if cost is None else validate.vector("cost", cost, size=size)
