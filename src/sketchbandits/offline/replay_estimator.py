"""The `replay` estimator, for a policy that learns while it plays.

**Reference** Li, Chu, Langford and Wang, WSDM 2011 (replay of a uniform log).
**Departures** The log is not uniform: rejection makes it so, see `replay`.
"""

import math
from collections.abc import Callable

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.offline.estimates import Figure, OfflineResult
from sketchbandits.offline.judging import built, choice, least_probability, usable_decisions, warning
from sketchbandits.offline.logged import LoggedDecisions
from sketchbandits.policies.base import Policy
from sketchbandits.policies.pending.rule import Mask

REPETITIONS = 20
REPETITIONS_IN_ORDER = 3  # in the log's own order they differ little from each other


def replay(
    log: LoggedDecisions, build: Callable[[], Policy], *, name: str, repetitions: int | None = None, seed: int = 0
) -> OfflineResult:
    """The mean reward of a policy that learns while it plays, over as many rounds as the log can give it.

    Decision t is kept with probability ``p_min/p_t``, ``p_min = e/max n``; the policy plays on the kept ones, and those
    whose arm is its own choice are counted and learned from. Each repetition (20 unless given) keeps other decisions
    and, where every arm was always available, plays them in another order: they are then independent and identically
    distributed. The mean over repetitions is the estimate.

    **Unbiased** Whatever happened before, t matches the policy's choice c with probability ``p_t(c) p_min/p_t(c) =
    p_min``: the number of matches M is binomial and says nothing of rewards or of what was available. Given M, matched
    rounds are therefore distributed as M rounds that the policy plays itself.

    The error has two parts: the noise of rewards around the mean of their arm, as if repetitions shared all of it,
    and the spread between repetitions. Where arms were not always all available the
    order is the log's (3 repetitions), and the error is that of this order.
    """
    usual = REPETITIONS if log.chosen_from is None else REPETITIONS_IN_ORDER
    repetitions = validate.whole("repetitions", usual if repetitions is None else repetitions)
    usable, policy = usable_decisions(log), built(build, log)
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
        notes=(*warning(matched, "matched rounds", log), *usable.notes, _replay_note(rounds, paid.size)),
    )


def _matches(log: LoggedDecisions, policy: Policy, places: Ints, generator: np.random.Generator) -> Ints:
    """The matched rounds of one repetition, by a copy of the policy with a stream of its own."""
    player = policy.copy()
    if callable(reseed := getattr(player, "reseed", None)):
        reseed(generator)
    chance = least_probability(log, places) / log.probabilities[places]
    kept = places[generator.random(places.size) < chance]
    if log.chosen_from is None:
        kept = generator.permutation(kept)
        own = player.play((log.arms[kept], log.rewards[kept]), learn="matches") == log.arms[kept]
    else:
        own = _play_among_sets(player, log, kept, log.chosen_from[kept])
    return kept[own]


def _play_among_sets(policy: Policy, log: LoggedDecisions, kept: Ints, chosen_from: Ints) -> Mask:
    """`Policy.play` with ``learn="matches"`` where each event has its own arms to choose from."""
    own = np.zeros(kept.size, np.bool_)
    choices: dict[int, int] = {}  # by set, until something is learned
    events = zip(log.arms[kept].tolist(), log.rewards[kept].tolist(), chosen_from.tolist(), strict=True)
    for i, (arm, reward, among) in enumerate(events):
        if among not in choices:
            choices[among] = choice(policy, log, among)
        if choices[among] == arm:
            own[i] = True
            policy.update(arm, reward)
            choices.clear()
    return own


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


def _replay_note(rounds: int, logged: int) -> str:
    return (
        f"The policy had {rounds:,} rounds to learn in, the log {logged:,}, and each reward came immediately. "
        "Rewards of an arm are assumed to have one distribution over time."
    )
