"""The result of an offline estimate: figures with their uncertainty, and a report in 80 columns."""

import math
import textwrap
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats

WIDTH = 80
TOO_FEW = 100  # matched rounds, or effective decisions, below which nothing is claimed
CONFIDENCE = 0.95
NORMAL = 1.959963984540054  # two-sided, for CONFIDENCE
_LARGEST_STAKE = 0.5  # the largest stake that the interval of `bounded_mean` places on one decision


class Figure(NamedTuple):
    """A mean reward per decision, its standard error and its 95 % interval; NaN where there is none."""

    mean: float
    error: float
    low: float
    high: float

    @classmethod
    def normal(cls, mean: float, error: float) -> "Figure":
        """With the interval of the central limit theorem, which holds for martingales too."""
        return cls(mean, error, mean - NORMAL * error, mean + NORMAL * error)

    @classmethod
    def of(cls, rewards: Floats) -> "Figure":
        """The mean of rewards that were paid."""
        if rewards.size < 2:
            return cls.normal(float(rewards.mean()) if rewards.size else math.nan, math.nan)
        return cls.normal(float(rewards.mean()), float(rewards.std(ddof=1)) / math.sqrt(rewards.size))


def bounded_mean(values: Floats, low: float, high: float) -> tuple[float, float]:
    """A 95 % interval for the conditional mean of values in ``[low, high]``, each given all before it.

    The empirical-Bernstein interval with predictable stakes: Waudby-Smith and Ramdas, JRSS B 86, 2024, Theorem 2. It
    holds for every sample size and, unlike that for independent values, where later values depend on earlier ones.
    """
    if high <= low:
        return low, high
    x, n = (values - low) / (high - low), values.size
    seen = np.arange(1, n + 1)
    centre = (0.5 + np.cumsum(x)) / (seen + 1)  # after each value; before it: `past`
    past = np.concatenate([[0.5], centre[:-1]])
    spread = np.concatenate([[0.25], ((0.25 + np.cumsum((x - centre) ** 2)) / (seen + 1))[:-1]])
    chance = math.log(2.0 / (1.0 - CONFIDENCE))
    stakes = np.minimum(np.sqrt(2.0 * chance / (n * spread)), _LARGEST_STAKE)
    paid = np.sum((x - past) ** 2 * (-np.log1p(-stakes) - stakes))
    middle, half = np.sum(stakes * x) / stakes.sum(), (chance + paid) / stakes.sum()
    ends = low + (high - low) * np.clip([middle - half, middle + half], 0.0, 1.0)
    return float(ends[0]), float(ends[1])


@dataclass(frozen=True)
class OfflineResult:
    """What a policy would have earned, estimated from the log of another.

    ``figures``: the estimate first; the log's own means are there for comparison. ``effective``: matched rounds, or the
    effective number of decisions behind the estimate. ``missing``: the share of decisions without a reward.
    """

    policy: str
    estimator: str
    decisions: int
    missing: float
    effective: float
    figures: dict[str, Figure]
    facts: dict[str, str]
    notes: tuple[str, ...]

    @property
    def estimate(self) -> Figure:
        """The mean reward per decision that the policy would have earned."""
        return next(iter(self.figures.values()))

    @property
    def enough(self) -> bool:
        """Whether the log says anything about this policy."""
        return self.effective >= TOO_FEW

    def text(self) -> str:
        """The report."""
        title = f"{self.policy} judged by {self.decisions:,} logged decisions ({self.estimator})"
        rows = [f"{'mean reward per decision':<34} {'estimate':>9} {'error':>8}  95 % interval"]
        rows += [f"{name:<34} {_row(figure)}" for name, figure in self.figures.items()]
        facts = [f"{name:<34} {fact}" for name, fact in self.facts.items()]
        notes = [
            line
            for note in self.notes
            for line in textwrap.wrap(note, WIDTH, initial_indent="- ", subsequent_indent="  ")
        ]
        title_lines = textwrap.wrap(title, WIDTH)
        return "\n".join([*title_lines, "", *rows, "", *facts, "", *notes]) + "\n"


def _row(figure: Figure) -> str:
    low, high = _shown(figure.low), _shown(figure.high)
    return f"{_shown(figure.mean):>9} {_shown(figure.error):>8}  {f'{low} to {high}' if low != '-' else '-'}"


def _shown(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"
