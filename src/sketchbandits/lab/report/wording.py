"""Numbers and names as a reader sees them: digits, intervals, labels of policies, lists in words."""

import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from sketchbandits.lab.experiments.study import Experiment, Plan
from sketchbandits.lab.intervals import Interval
from sketchbandits.lab.report.page import Cell
from sketchbandits.policies.registry import POLICIES

MINUS, NONE = "\N{MINUS SIGN}", "\N{EN DASH}"
SCALES = "max: all arms divided by the largest norm; unit: each by its own."


def decimals(*values: float) -> int:
    """Decimals that show three digits of the largest value: none from 100 on, and none for a zero left by rounding."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return 0 if largest < 1e-9 else min(9, max(0, 2 - math.floor(math.log10(largest))))


def fixed(value: float, digits: int) -> str:
    """A number with separators and so many decimals; a dash for NaN and infinity."""
    if not math.isfinite(value):
        return NONE
    text = f"{value:,.{digits}f}"
    return text.replace("-", MINUS if text.strip("-0.") else "")


def number(value: Any) -> str:
    """Any figure of a finding as text."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, Interval):
        return f"{_mean(value)} {_ends(value)}".strip()
    if isinstance(value, float):
        return fixed(value, decimals(value))
    if isinstance(value, int):
        return f"{value:,}"
    return re.sub(r"^(\S+) to \1$", r"\1", named(value))


def _mean(value: Interval) -> str:
    return fixed(value.mean, decimals(*value))


def _ends(value: Interval) -> str:
    if not math.isfinite(value.mean):
        return ""
    if not (math.isfinite(value.low) and math.isfinite(value.high)):
        return "(one run)"
    return f"({fixed(value.low, decimals(*value))} to {fixed(value.high, decimals(*value))})"


def interval_cell(value: Interval, *, best: bool = False) -> Cell:
    """A cell with the mean, and its interval in smaller type."""
    return Cell(_mean(value), _ends(value), best)


def times(before: float, after: float) -> str:
    """The factor by which the second value exceeds the first."""
    return number(float(after / before)) if before > 0 else NONE


def named(text: Any) -> str:
    """The text with the labels of policies in place of their names on the command line."""

    def label(found: re.Match[str]) -> str:
        options = (found[2] or "").replace("=", " ").replace("_", " ").replace(",", ", ")
        return f"{POLICIES[found[1]].label} ({options})" if options else POLICIES[found[1]].label

    return re.sub(rf"\b({'|'.join(POLICIES)})\b(?::([^\s;]*[^\s;,.)]))?", label, str(text))


def listed(words: Iterable[Any]) -> str:
    """Words with commas, and “and” before the last."""
    *others, last = map(str, words)
    return f"{', '.join(others)} and {last}" if others else last


def runs_in_words(plan: Plan) -> str:
    """The number of runs of a plan."""
    return "one run" if plan.runs == 1 else f"{plan.runs:,} runs"


def mean_of(plan: Plan, spread: str) -> str:
    """What a figure or table shows of the runs: their mean, and how it shows their spread."""
    return "one run" if plan.runs == 1 else f"the mean of {runs_in_words(plan)}{spread}"


def policy_names(plan: Plan) -> str:
    """The labels of a plan's policies."""
    return listed(policy.label for policy in plan.policies)


def dataset_names(numbers: Iterable[Any]) -> str:
    """The paper's data sets by their numbers in parentheses."""
    names = [f"({each})" for each in numbers]
    return f"data set{'s' if len(names) > 1 else ''} {listed(names)}"


def place_name(place: tuple[Any, str]) -> str:
    """A data set and its normalisation."""
    return f"({place[0]}) {place[1]}"


def place_if_any(key: tuple[Any, ...]) -> list[str]:
    """The name of one of the paper's data sets; an empty list for a user's own arms, which are one place only."""
    return [place_name((key[0], key[1]))] if isinstance(key[0], int) else []


def timed_lengths(experiment: Experiment) -> str:
    """The number of rounds of each policy that were timed, in words."""
    lengths: dict[int, list[str]] = {}
    for group in experiment.groups.values():
        labels = lengths.setdefault(group[0].rounds, [])
        if group[0].policy.label not in labels:
            labels.append(group[0].policy.label)
    return "; ".join(f"{rounds:,} rounds of {', '.join(labels)}" for rounds, labels in sorted(lengths.items()))
