"""What both estimators share: which decisions of a log they use, and what a policy would have chosen there."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Ints
from sketchbandits.offline.estimates import TOO_FEW
from sketchbandits.offline.logged import EVERY_ARM, LoggedDecisions
from sketchbandits.policies.base import Policy
from sketchbandits.policies.pending.rule import Mask

DETERMINISTIC = (
    "the log must be one of a bandit with exploration above 0 for another policy to be judged by it, got a "
    "deterministic log: it holds rewards only of what the logging policy chose, and says nothing about other choices. "
    "Let the bandit explore from now on: sketchbandits serve --exploration 0.05"
)


class Usable(NamedTuple):
    """The decisions that are used, the share without a reward, and what a report says about those."""

    places: Ints
    missing: float
    notes: list[str]


def usable_decisions(log: LoggedDecisions) -> Usable:
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
    return Usable(np.flatnonzero(usable), missing, _missing_notes(log, missing, usable))


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


def built(build: Callable[[], Policy], log: LoggedDecisions) -> Policy:
    """The policy to judge, on the arms of the log."""
    policy = build()
    if policy.n_arms != log.n_arms:
        raise ValueError(f"build must make a policy on the log's {log.n_arms} arms, got one on {policy.n_arms}")
    return policy


def least_probability(log: LoggedDecisions, places: Ints) -> float:
    """The smallest probability that any arm could have had."""
    return log.exploration / int(log.sizes[places].max())


def choice(policy: Policy, log: LoggedDecisions, among: int) -> int:
    """What the policy chooses from the set with the index ``among``."""
    best = policy.select()
    # The choice among all arms is also the choice in a set that contains it, and costs far less.
    return best if among == EVERY_ARM or best in log.members[among] else policy.select(available=log.sets[among])


def warning(effective: float, what: str, log: LoggedDecisions, *, used: float = 1.0) -> list[str]:
    """A warning where the estimate rests on too little; ``used`` is the share of decisions that are judged by."""
    if effective >= TOO_FEW:
        return []
    needed = math.ceil(TOO_FEW * int(log.sizes.max()) / (used * log.exploration))
    return [
        f"Too few: {effective:,.1f} {what}, below {TOO_FEW}. This is no answer. A policy that agrees with the log "
        f"no more than by chance needs about {needed:,} decisions with exploration {log.exploration:g} among "
        f"{log.sizes.max():,} arms; more exploration needs fewer."
    ]
