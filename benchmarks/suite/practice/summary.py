"""Runs summarised: means with 95 % intervals, the scale that was best in hindsight, ratios of paired seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from suite.practice.contenders import CONTENDERS, KNOWN, RIVAL

Floats = NDArray[np.float64]
QUANTITIES = ("regret", "second", "reward", "microseconds")
BEST, TOLD = "best in hindsight", "R known"


class Estimate(NamedTuple):
    """A value, and half the width of its 95 % interval; NaN from a single seed."""

    value: float
    half: float

    def shown(self) -> str:
        """As a table has it."""
        return rounded(self.value, 4) + ("" if np.isnan(self.half) else f" ± {rounded(self.half, 2)}")


def rounded(value: float, digits: int) -> str:
    """So many digits, and all those before the point."""
    if value == 0.0 or not np.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def estimate(statistic: Callable[..., float], *columns: Floats) -> Estimate:
    """A statistic of columns with one row per seed, with its jackknife interval (Student's t).

    Of a mean that is the usual interval. A ratio of means, or the least of several, leaves out one seed of all columns
    at a time: policies that met the same rounds are compared in pairs.
    """
    n = len(columns[0])
    value = float(statistic(*columns))
    if n < 2:
        return Estimate(value, np.nan)
    rest = ~np.eye(n, dtype=bool)
    without = np.array([statistic(*(column[keep] for column in columns)) for keep in rest])
    error = np.sqrt((n - 1) / n * ((without - without.mean()) ** 2).sum())
    return Estimate(value, float(scipy.stats.t.ppf(0.975, n - 1) * error))


def mean(column: Floats) -> float:
    """The mean over seeds."""
    return float(column.mean())


def ratio(ours: Floats, theirs: Floats) -> float:
    """Of means over seeds."""
    return float(ours.mean() / theirs.mean())


class Results:
    """Outcomes by world, policy and scale."""

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str, float | None], dict[int, Mapping[str, Any]]] = {}
        self.notes: dict[tuple[str, str], str] = {}  # why a policy is not there, or has fewer seeds
        self.absent: dict[str, str] = {}  # policies that could not play anywhere, and why
        self.versions: dict[str, str] = {}  # of the other libraries, by package

    def add(self, world: str, policy: str, scale: float | None, seed: int, outcome: Mapping[str, Any]) -> None:
        """Take a run; one that failed leaves a note."""
        if "failed" in outcome:
            self.notes[world, policy] = f"failed: {outcome['failed']}"
        else:
            self.cells.setdefault((world, policy, scale), {})[seed] = outcome

    def scales(self, world: str, policy: str) -> list[float | None]:
        """The scales that were played."""
        return [scale for where, who, scale in self.cells if (where, who) == (world, policy)]

    def seeds(self, world: str, policy: str, scale: float | None = None) -> list[int]:
        """Of one scale."""
        return sorted(self.cells.get((world, policy, scale), {}))

    def best_scale(self, world: str, policy: str) -> float | None:
        """The scale with the least mean regret in hindsight; None where there is no scale, or nothing was played."""
        played = self.scales(world, policy)
        if not played:
            return None
        return min(played, key=lambda scale: mean(self.column(world, policy, scale, "regret")))

    def column(
        self, world: str, policy: str, scale: float | None, quantity: str, seeds: Sequence[int] | None = None
    ) -> Floats:
        """A quantity, one value per seed."""
        cell = self.cells[world, policy, scale]
        return np.array([cell[seed][quantity] for seed in (sorted(cell) if seeds is None else seeds)])

    def best_rival(self, world: str) -> tuple[str, float | None] | None:
        """The yardstick, and its scale, with the least mean regret in hindsight."""
        names = [name for name, one in CONTENDERS.items() if one.family == RIVAL and self.scales(world, name)]
        best = [(name, self.best_scale(world, name)) for name in names]
        return min(best, key=lambda one: mean(self.column(world, *one, "regret")), default=None)

    def paired(self, world: str, *who: tuple[str, float | None], quantity: str = "regret") -> list[Floats] | None:
        """A column for each policy and scale, over the seeds that all of them played; None where there are none."""
        common = set.intersection(*(set(self.seeds(world, *one)) for one in who))
        if not common:
            return None
        return [self.column(world, *one, quantity, sorted(common)) for one in who]


def known(policy: str) -> tuple[str, float]:
    """A rival that is told R."""
    return policy, KNOWN
