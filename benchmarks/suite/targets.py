"""What a ratio should be, and whether it is: reported, never an error."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Several = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Target:
    """A ratio, what it should be, and whether it is; the last two are empty where nothing was promised."""

    what: str
    ratio: float  # of medians
    ratio_of_minima: float
    target: str
    reached: str  # yes, NO; unsure where medians and minima disagree: the machine was busy

    @property
    def shown(self) -> str:
        """The ratio of medians, and that of minima in brackets."""
        return f"{three_digits(self.ratio)} ({three_digits(self.ratio_of_minima)})"

    def __str__(self) -> str:
        return f"{self.what}: {self.shown}, target {self.target}: {self.reached}"


def at_most(what: str, samples: Several, over: str, under: str, limit: float | None) -> Target:
    """``over / under`` should be at most ``limit``."""
    return _target(what, *ratios(samples[over], samples[under]), limit, "<=")


def at_least(what: str, samples: Several, over: str, under: str, limit: float | None) -> Target:
    """``over / under`` should be at least ``limit``."""
    return _target(what, *ratios(samples[over], samples[under]), limit, ">=")


def bounded(what: str, ratio: float, limit: float | None) -> Target:
    """A ratio that was measured once should be at most ``limit``."""
    return _target(what, ratio, ratio, limit, "<=")


def three_digits(value: float) -> str:
    """0.333, 12.3, 1,230."""
    return f"{float(f'{value:.3g}'):,g}"


def ratios(over: Sequence[float], under: Sequence[float]) -> tuple[float, float]:
    """Of the medians, and of the minima."""
    return statistics.median(over) / statistics.median(under), min(over) / min(under)


def _target(what: str, ratio: float, minima: float, limit: float | None, sign: str) -> Target:
    if limit is None:
        return Target(what, ratio, minima, "", "")
    by_medians, by_minima = (each <= limit if sign == "<=" else each >= limit for each in (ratio, minima))
    reached = ("yes" if by_medians else "NO") if by_medians == by_minima else "unsure"
    return Target(what, ratio, minima, f"{sign} {three_digits(limit)}", reached)
