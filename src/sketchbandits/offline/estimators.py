"""What another policy would have earned, by a log: the rewards of arms that were not chosen were never seen.

With ``exploration`` e, each decision t drew its arm from the n_t available ones with probability e, and logged the
probability ``p_t(a) >= e/n_t`` of the arm that came out. That is what both estimators rest on; a log without it is
refused. They take an arm's rewards to be alike over time, and what is available not to depend on earlier rewards.

`replay` is for a policy that learns, `ips` for what it has learned.

**Reference** Li, Chu, Langford and Wang, WSDM 2011 (replay of a uniform log); Horvitz and Thompson, JASA 47, 1952
(IPS); Hajek, discussion in Foundations of Statistical Inference, 1971 (self-normalised).
**Departures** The log is not uniform: rejection makes it so, see `replay`.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.offline.estimates import TOO_FEW, Figure, OfflineResult, bounded_mean
from sketchbandits.offline.logged import EVERY_ARM, LoggedDecisions
from sketchbandits.policies.base import Policy
from sketchbandits.policies.pending.rule import Mask

DETERMINISTIC = (
    "the log must be one of a bandit with exploration above 0 for another policy to be judged by it, got a "
    "deterministic log: it holds rewards only of what the logging policy chose, and says nothing about other choices. "
    "Let the bandit explore from now on: sketchbandits serve --exploration 0.05"
)
REPETITIONS = 20
REPETITIONS_IN_ORDER = 3  # events in the log's own order differ little from one to the next


class _Usable(NamedTuple):
    """The decisions that are judged by, and what is to be said of the others."""

    places: Ints
    missing: float
    notes: list[str]


def replay(
    log: LoggedDecisions, build: Callable[[], Policy], *, name: str, repetitions: int | None = None, seed: int = 0
) -> OfflineResult:
    """The mean reward of a policy that learns while it plays, over as many rounds as the log can give it.

    Event t is kept with probability ``p_min/p_t``, ``p_min = e/max n``; the policy plays on kept events, and learns
    from and counts those whose arm is its own choice. Repetitions (20 unless given) keep anew and, where every arm was
    always available, play in a new order: kept events are then independent and alike. Their mean is the estimate.

    **Unbiased** Whatever happened before, t matches the policy's choice c with probability ``p_t(c) p_min/p_t(c) =
    p_min``: the number of matches M is binomial and says nothing of rewards or of what was available. Given M, matched
    rounds are therefore distributed as M rounds that the policy plays itself.

    The error has two parts: the noise of rewards around the mean of their arm, as though repetitions shared all of it,
    and the spread between repetitions, which the policy's luck brings. Where arms were not always all available the
    order is the log's (3 repetitions), and the error is that of this order.
    """
    usual = REPETITIONS if log.chosen_from is None else REPETITIONS_IN_ORDER
    repetitions = validate.whole("repetitions", usual if repetitions is None else repetitions)
    usable, policy = _usable(log), _built(build, log)
    streams = np.random.SeedSequence(validate.whole("seed", seed, least=0)).spawn(repetitions)
    runs = [_matches(log, policy, usable.places, np.random.default_rng(stream)) for stream in streams]
    matched = float(np.mean([run.size for run in runs]))
    paid = log.rewards[usable.places]
    rounds = round(matched)
    return OfflineResult(
        policy=name,
        estimator="replay",
        decisions=log.arms.size,
        missing=usable.missing,
        effective=matched,
        figures={
            f"{name}, replay": _of_repetitions(log, runs),
            f"the log, first {rounds:,} decisions": Figure.of(paid[:rounds]),
            "the log, all decisions": Figure.of(paid),
        },
        facts={
            "matched rounds, on average": f"{matched:,.1f} in {repetitions} repetitions",
            "decisions without a reward": f"{usable.missing:.2%}",
        },
        notes=(*_verdict(matched, "matched rounds", log), *usable.notes, _replay_note(rounds, paid.size)),
    )


def ips(
    log: LoggedDecisions,
    build: Callable[[], Policy],
    *,
    name: str,
    reward_range: tuple[float, float] | None = None,
) -> OfflineResult:
    """The mean reward of a policy that learned from the first half of the log and then stays as it is.

    Its choice c_t in the second half is weighed by ``w_t = 1[a_t = c_t]/p_t``: IPS is the mean of ``w r``, and the
    self-normalised estimate ``sum w r/sum w``. ``reward_range`` is that of possible rewards, for the interval of IPS;
    unless given, that of the log.

    **Unbiased** c_t is fixed before the arm of t is drawn, so given all before ``E[w_t r_t] = p_t(c_t) r(c_t)/p_t(c_t)
    = r(c_t)``: the mean of ``w r`` has the mean of ``r(c_t)`` as its expectation. The self-normalised form divides by
    ``mean w``, whose expectation is 1: its bias vanishes as 1/m, and it does not change when all rewards shift.
    """
    usable, policy = _usable(log), _built(build, log)
    half = usable.places.size // 2
    first, second = usable.places[:half], usable.places[half:]
    policy.update_many(log.arms[first], log.rewards[first])
    rewards, weights = log.rewards[second], _weights(log, policy, second)
    possible = _checked_range(reward_range, log.rewards[usable.places])
    effective = float(weights.sum() ** 2 / np.sum(weights**2)) if weights.any() else 0.0
    return OfflineResult(
        policy=name,
        estimator="ips",
        decisions=log.arms.size,
        missing=usable.missing,
        effective=effective,
        figures={
            f"{name}, self-normalised": _self_normalised(weights, rewards),
            f"{name}, IPS": _weighted(weights, rewards, 1.0 / _least_probability(log, second), possible),
            "the log, the same decisions": Figure.of(rewards),
        },
        facts={
            "decisions learned from": f"{half:,}",
            "decisions judged by": f"{second.size:,}",
            "effective decisions": f"{effective:,.1f}",
            "decisions without a reward": f"{usable.missing:.2%}",
        },
        notes=(
            *_verdict(effective, "effective decisions", log, used=0.5),
            *usable.notes,
            _ips_note(reward_range, possible),
        ),
    )


def _usable(log: LoggedDecisions) -> _Usable:
    """The decisions to judge by: those with a reward, unless that reward came early; refused if there are too few."""
    if log.exploration == 0.0 or not (log.sizes > 1).any():
        raise ValueError(DETERMINISTIC)
    rewarded = ~np.isnan(log.rewards)
    missing = 1.0 - float(rewarded.mean())
    usable = rewarded
    if missing and log.final is not None:
        # Among decisions some of which still wait, having a reward may depend on its value: leave out all of those.
        usable = rewarded & (log.final | (np.arange(rewarded.size) < log.first_missing))
    if usable.sum() < 2:
        raise ValueError(_too_few_rewards(log, rewarded, usable))
    return _Usable(np.flatnonzero(usable), missing, _missing_notes(log, missing, usable))


def _too_few_rewards(log: LoggedDecisions, rewarded: Mask, usable: Mask) -> str:
    message = f"the log must hold at least 2 decisions with rewards, got {usable.sum()}"
    if log.final is None:
        return message
    return (
        f"{message} that are older than the bandit's deadline; {rewarded.sum() - usable.sum():,} younger ones have "
        "rewards, but other decisions of that time still wait for theirs: replay the log again once it is longer"
    )


def _missing_notes(log: LoggedDecisions, missing: float, usable: Mask) -> list[str]:
    """What a report says about decisions that are not used."""
    if not missing:
        return []
    if log.final is not None:
        return [
            f"{usable.size - usable.sum():,} decisions are left out: they were made less than one deadline before the "
            "log ended, and some of them still wait for their reward."
        ]
    return [
        f"{missing:.2%} of the decisions have no reward, and the bandit has no deadline: the estimate assumes that "
        "they are missing at random, whatever their arm and their value. Where no reward means a low one, it is "
        "wrong: serve with --deadline."
    ]


def _built(build: Callable[[], Policy], log: LoggedDecisions) -> Policy:
    policy = build()
    if policy.n_arms != log.n_arms:
        raise ValueError(f"build must make a policy on the log's {log.n_arms} arms, got one on {policy.n_arms}")
    return policy


def _least_probability(log: LoggedDecisions, places: Ints) -> float:
    """The smallest probability that any arm could have had."""
    return log.exploration / int(log.sizes[places].max())


def _matches(log: LoggedDecisions, policy: Policy, places: Ints, generator: np.random.Generator) -> Ints:
    """The matched rounds of one repetition, by a copy of the policy with a stream of its own."""
    twin = policy.copy()
    if callable(reseed := getattr(twin, "reseed", None)):
        reseed(generator)
    chance = _least_probability(log, places) / log.probabilities[places]
    kept = places[generator.random(places.size) < chance]
    if log.chosen_from is None:
        kept = generator.permutation(kept)
        own = twin.play((log.arms[kept], log.rewards[kept]), learn="matches") == log.arms[kept]
    else:
        own = _play_among_sets(twin, log, kept, log.chosen_from[kept])
    return kept[own]


def _play_among_sets(policy: Policy, log: LoggedDecisions, kept: Ints, chosen_from: Ints) -> Mask:
    """`Policy.play` with ``learn="matches"`` where each event has its own arms to choose from."""
    own = np.zeros(kept.size, np.bool_)
    choices: dict[int, int] = {}  # by set, until something is learned
    events = zip(log.arms[kept].tolist(), log.rewards[kept].tolist(), chosen_from.tolist(), strict=True)
    for i, (arm, reward, among) in enumerate(events):
        if among not in choices:
            choices[among] = _choice(policy, log, among)
        if choices[among] == arm:
            own[i] = True
            policy.update(arm, reward)
            choices.clear()
    return own


def _choice(policy: Policy, log: LoggedDecisions, among: int) -> int:
    best = policy.select()
    # The choice among all is also that among a set that holds it; to ask for it would cost far more.
    return best if among == EVERY_ARM or best in log.members[among] else policy.select(available=log.sets[among])


def _weights(log: LoggedDecisions, policy: Policy, places: Ints) -> Floats:
    """``1[a = c]/p`` of the frozen policy's choices c."""
    chosen_from = np.full(places.size, EVERY_ARM) if log.chosen_from is None else log.chosen_from[places]
    different, which = np.unique(chosen_from, return_inverse=True)
    choices = np.array([_choice(policy, log, among) for among in different.tolist()])[which]
    return np.where(choices == log.arms[places], 1.0 / log.probabilities[places], 0.0)


def _of_repetitions(log: LoggedDecisions, runs: list[Ints]) -> Figure:
    """The mean over repetitions, and its error; see `replay`."""
    runs = [run for run in runs if run.size > 1]
    if not runs:
        return Figure.normal(math.nan, math.nan)
    means = np.array([log.rewards[run].mean() for run in runs])
    noise = float(np.mean([_noise(log.arms[run], log.rewards[run]) / run.size for run in runs]))
    luck = float(means.var(ddof=1)) / means.size if means.size > 1 else 0.0
    return Figure.normal(float(means.mean()), math.sqrt(noise + luck))


def _noise(arms: Ints, rewards: Floats) -> float:
    """The variance of rewards around the mean of their arm."""
    _, which, counts = np.unique(arms, return_inverse=True, return_counts=True)
    means = np.bincount(which, rewards) / counts
    return float(np.sum((rewards - means[which]) ** 2)) / max(rewards.size - counts.size, 1)


def _weighted(weights: Floats, rewards: Floats, largest: float, possible: tuple[float, float]) -> Figure:
    values, (low, high) = weights * rewards, possible
    plain = Figure.of(values)
    ends = bounded_mean(values, largest * min(low, 0.0), largest * max(high, 0.0))
    return Figure(plain.mean, plain.error, max(ends[0], low), min(ends[1], high))


def _self_normalised(weights: Floats, rewards: Floats) -> Figure:
    total = float(weights.sum())
    if total == 0.0:
        return Figure.normal(math.nan, math.nan)
    mean = float(weights @ rewards) / total
    return Figure.normal(mean, math.sqrt(float(np.sum((weights * (rewards - mean)) ** 2))) / total)


def _checked_range(given: tuple[float, float] | None, seen: Floats) -> tuple[float, float]:
    least, most = float(seen.min()), float(seen.max())
    if given is None:
        return least, most
    low, high = (validate.number("reward_range", end) for end in given)
    if low > least or high < most:
        raise ValueError(f"reward_range must hold the log's rewards, {least:g} to {most:g}, got {given!r}")
    return low, high


def _verdict(effective: float, what: str, log: LoggedDecisions, *, used: float = 1.0) -> list[str]:
    """Nothing, or that this is no answer; ``used`` is the share of decisions that are judged by."""
    if effective >= TOO_FEW:
        return []
    needed = math.ceil(TOO_FEW * int(log.sizes.max()) / (used * log.exploration))
    return [
        f"Too few: {effective:,.1f} {what}, below {TOO_FEW}. Take this as no answer. A policy that agrees with the log "
        f"no more than by chance needs about {needed:,} decisions with exploration {log.exploration:g} among "
        f"{log.sizes.max():,} arms; more exploration needs fewer."
    ]


def _replay_note(rounds: int, logged: int) -> str:
    return (
        f"The policy had {rounds:,} rounds to learn in, the log {logged:,}, and each reward came at once. Rewards of "
        "an arm are taken to be alike over time."
    )


def _ips_note(given: tuple[float, float] | None, possible: tuple[float, float]) -> str:
    source = "as given" if given is not None else "as seen in the log"
    return (
        f"The policy learned from the first half and then stayed as it was. The interval of IPS takes rewards to lie "
        f"between {possible[0]:g} and {possible[1]:g}, {source}."
    )
