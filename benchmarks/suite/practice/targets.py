"""The targets that were set before anything was tuned, and whether this run meets them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from suite.practice.summary import Estimate, Floats, Results, estimate, known, mean, ratio
from suite.worlds import SYNTHETIC

HYBRID, AUTO = ("HybridCSLB", None), ('HybridCSLB half_life="auto"', None)
YARDSTICKS = (known("LinUCB shared"), known("LinUCB disjoint"))


class Target(NamedTuple):
    """What should hold, the goal, and the estimate; None where its runs are not there."""

    what: str
    goal: float
    found: Estimate | None
    at_least: bool = False

    @property
    def met(self) -> str:
        """By the estimate itself; "unsure" is added where its interval has values on both sides."""
        if self.found is None:
            return "not played"
        value, half = self.found
        met = value >= self.goal if self.at_least else value <= self.goal
        unsure = ", unsure" if abs(value - self.goal) < half else ""
        return ("yes" if met else "NO") + unsure


def targets(results: Results) -> list[Target]:
    """Every target of the issue."""

    def alone(world: str, quantity: str = "regret", who: tuple[str, None] = HYBRID) -> Estimate | None:
        columns = results.paired(world, who, quantity=quantity)
        return estimate(mean, *columns) if columns else None

    found = [
        Target("clicks: regret", 320, alone("clicks")),
        Target("films: regret", 620, alone("films")),
        Target("films: second half", 150, alone("films", "second")),
        Target("films, shuffled: regret / UCB1's, best in hindsight", 2, _against_ucb1(results)),
        Target("films, shuffled: regret (twice 468)", 936, alone("films, shuffled")),
        Target("films with users: mean reward", 0.795, alone("films with users", "reward"), at_least=True),
    ]
    found += [Target(f"{world}: regret / {_BETTER}", 1.2, _against_linucb(results, world)) for world in SYNTHETIC]
    found.append(Target(f"the five: geometric mean of regret / {_BETTER}", 0.95, _geometric_mean(results)))
    found.append(Target('reversal: second half, half_life="auto"', 900, alone("reversal", "second", AUTO)))
    columns = results.paired("no reversal", AUTO, HYBRID)
    cost = estimate(ratio, *columns) if columns else None
    found.append(Target('no reversal: regret, half_life="auto" / as it comes', 1.1, cost))
    return found


_BETTER = "the better LinUCB's that knows R"


def _against_ucb1(results: Results) -> Estimate | None:
    world = "films, shuffled"
    scales = results.scales(world, "UCB1")
    columns = results.paired(world, HYBRID, *(("UCB1", scale) for scale in scales)) if scales else None
    return estimate(_over_the_least, *columns) if columns else None


def _over_the_least(ours: Floats, *theirs: Floats) -> float:
    return float(ours.mean() / min(column.mean() for column in theirs))


def _against_linucb(results: Results, world: str) -> Estimate | None:
    columns = results.paired(world, HYBRID, *YARDSTICKS)
    return estimate(_over_the_least, *columns) if columns else None


def _geometric_mean(results: Results) -> Estimate | None:
    """Seeds are left out of all five worlds together: their worlds are drawn from the same numbers."""
    found = [results.paired(world, HYBRID, *YARDSTICKS) for world in SYNTHETIC]
    triples = [columns for columns in found if columns]
    if len(triples) < len(SYNTHETIC) or len({len(columns[0]) for columns in triples}) != 1:
        return None
    statistic: Callable[..., float] = _mean_of_ratios
    return estimate(statistic, *(column for columns in triples for column in columns))


def _mean_of_ratios(*columns: Floats) -> float:
    logs = [np.log(_over_the_least(*columns[i : i + 3])) for i in range(0, len(columns), 3)]
    return float(np.exp(np.mean(logs)))
