"""The `ips` estimator, for a policy that has learned and then stays as it is.

**Reference** Horvitz and Thompson, JASA 47, 1952 (IPS); Hajek, discussion in Foundations of Statistical Inference, 1971
(self-normalised).
"""

import math
from collections.abc import Callable

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.offline.estimates import Figure, OfflineResult, bounded_mean
from sketchbandits.offline.judging import built, choice, least_probability, usable_decisions, warning
from sketchbandits.offline.logged import EVERY_ARM, LoggedDecisions
from sketchbandits.policies.base import Policy


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
    usable, policy = usable_decisions(log), built(build, log)
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
            f"{name}, IPS": _weighted(weights, rewards, 1.0 / least_probability(log, second), possible),
            "the log, the same decisions": Figure.of(rewards),
        },
        facts={
            "decisions learned from": f"{half:,}",
            "decisions judged by": f"{second.size:,}",
            "effective decisions": f"{effective:,.1f}",
            "decisions without a reward": f"{usable.missing:.2%}",
        },
        notes=(
            *warning(effective, "effective decisions", log, used=0.5),
            *usable.notes,
            _ips_note(reward_range, possible),
        ),
    )


def _weights(log: LoggedDecisions, policy: Policy, places: Ints) -> Floats:
    """``1[a = c]/p`` of the frozen policy's choices c."""
    chosen_from = np.full(places.size, EVERY_ARM) if log.chosen_from is None else log.chosen_from[places]
    different, which = np.unique(chosen_from, return_inverse=True)
    choices = np.array([choice(policy, log, among) for among in different.tolist()])[which]
    return np.where(choices == log.arms[places], 1.0 / log.probabilities[places], 0.0)


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


def _ips_note(given: tuple[float, float] | None, possible: tuple[float, float]) -> str:
    source = "as given" if given is not None else "as seen in the log"
    return (
        f"The policy learned from the first half and then stayed as it was. The interval of IPS assumes that "
        f"rewards lie between {possible[0]:g} and {possible[1]:g}, {source}."
    )
