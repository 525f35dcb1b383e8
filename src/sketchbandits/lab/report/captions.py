"""The figures of a page, each with a caption and with a description for readers who cannot see it."""

import base64
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sketchbandits.lab.experiments.study import Plan, Study
from sketchbandits.lab.paper.reproduce import (
    ARM_COUNTS,
    DIMS,
    ENGINES,
    SIZE_SCENES,
    SKETCH_SIZES,
    STRUCTURES,
    TYPICAL_DIM,
    TYPICAL_WIDTH,
    WIDTHS,
)
from sketchbandits.lab.report.data_tables import mean_regrets
from sketchbandits.lab.report.wording import (
    dataset_names,
    listed,
    mean_of,
    named,
    number,
    place_if_any,
    timed_lengths,
    times,
)

BARS = ", bars from the least to the most"


class ShownFigure(NamedTuple):
    """A figure as the page shows it; ``reading`` says in words what a reader who cannot see it would read off."""

    file: str
    base64: str
    caption: str
    reading: str


def captioned(plan: Plan, study: Study, figures: Mapping[str, bytes]) -> list[ShownFigure]:
    """The SVG files among ``figures`` in order, each with a caption and a description."""
    shown = []
    for name in sorted((name for name in figures if name.endswith(".svg")), key=_figure_order):
        caption, reading = _about(_kind(name), re.findall(r"\d", name), plan, study)
        shown.append(ShownFigure(name, base64.b64encode(figures[name]).decode(), caption, reading))
    return shown


def _kind(name: str) -> str:
    """The first word of a figure's name; digits in it are data sets."""
    return re.split("[^a-z]", os.path.basename(name))[0]


def _figure_order(name: str) -> tuple[bool, list[str], int]:
    kind = _kind(name)
    return (
        kind not in ("regret", "time"),
        re.findall(r"\d", name),
        list(ABOUT).index(kind) if kind in ABOUT else len(ABOUT),
    )


def _about(kind: str, numbers: Sequence[str], plan: Any, study: Study) -> tuple[str, str]:
    """A figure's caption, and what can be read off it."""
    shown = [place for place in study["regret"].places if not numbers or str(place[0]) in numbers]
    return ABOUT[kind](plan, study, shown) if kind in ABOUT else (kind, "")


def _on(shown: Sequence[tuple[Any, str]]) -> str:
    numbers = dict.fromkeys(place[0] for place in shown if isinstance(place[0], int))
    return f" on {dataset_names(numbers)}" if numbers else ""


def _about_regret(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    mean = mean_of(plan, "; the band is its 95 % interval (Student's t)")
    caption = f"Cumulative regret{_on(shown)} over {plan.rounds:,} rounds: {mean}."
    readings = []
    for place in shown:
        ranking = sorted(mean_regrets(study, place, 1.0).items(), key=lambda item: item[1])
        ranks = ", ".join(f"{policy.label} {number(mean)}" for policy, mean in ranking)
        readings.append(": ".join([*place_if_any(place), ranks]))
    return caption, f"At the end, from the least: {'; '.join(readings)}."


def _about_time(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    hollow = "" if len(study["time"].policies) == len(plan.policies) else " Hollow: as the paper prints the policy."
    caption = (
        f"Time per round{_on(shown)}, timed alone: the first {timed_lengths(study['time'])}.{hollow} "
        f"Shown is {mean_of(plan, ' (large dots), the runs (small) and lines from the least to the most')}."
    )
    readings = []
    for place in shown:
        means = {key[2]: float(runs.microseconds.mean()) for key, runs in study["time"].items() if key[:2] == place}
        fast, slow = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        ends = f"from {number(means[fast])} µs ({named(fast)}) to {number(means[slow])} µs ({named(slow)})"
        readings.append(": ".join([*place_if_any(place), ends]))
    return caption, f"{'; '.join(readings)}."


def _about_arms(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    arms, few, many = study["arms"], ARM_COUNTS[0], ARM_COUNTS[-1]
    readings = []
    for structure, normalize in dict.fromkeys((key[0], key[2]) for key in arms):
        grown = []
        for kind in dict.fromkeys(key[3] for key in arms):
            ends = [arms[structure, n, normalize, kind].regret.mean() for n in (few, many)]
            grown.append(f"{named(kind)} {times(*ends)}")
        readings.append(f"{structure}, {normalize}: {', '.join(grown)}")
    rounds = next(iter(arms.groups.values()))[0].rounds
    caption = (
        f"Regret after {rounds:,} rounds with {few} to {many} arms, in {listed(STRUCTURES)}: "
        f"{mean_of(plan, BARS)}. Grey: linear in N."
    )
    return caption, f"From {few} to {many} arms regret is multiplied by: {'; '.join(readings)}."


def _about_sizes(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    sizes, readings = study["sizes"], []
    for name, normalize in dict.fromkeys((key[0], key[-1]) for key in sizes):
        means = {
            key[1]: sizes[key].regret.mean()
            for key in sizes
            if isinstance(key[1], int) and key[::2] == (name, normalize)
        }
        best = min(means, key=means.__getitem__)
        share = times(sizes[name, "closed", normalize].regret.mean(), means[best])
        scene = f"({name})" if name.isdigit() else "N = {}, d = {}".format(*SIZE_SCENES[name])
        readings.append(f"{scene} {normalize}: least at l = {best}, {share} of OFUL's")
    caption = (
        f"Regret of CS-LB over that of OFUL (closed radius) after {plan.rounds:,} rounds, for l = "
        f"{listed(SKETCH_SIZES)} as far as l ≤ d: {mean_of(plan, ' (geometric) with its 95 % interval')}. Shaded: l√K "
        "< d."
    )
    return caption, f"{'; '.join(readings)}."


def _about_growth(plan: Plan, study: Study, shown: Sequence[tuple[Any, str]]) -> tuple[str, str]:
    time = {key: float(runs.microseconds.mean()) for key, runs in study["growth"].items()}
    readings = []
    for engine in ENGINES:
        in_d = times(time[engine, DIMS[0], TYPICAL_WIDTH], time[engine, DIMS[-1], TYPICAL_WIDTH])
        in_l = times(time[engine, TYPICAL_DIM, WIDTHS[0]], time[engine, TYPICAL_DIM, WIDTHS[-1]])
        readings.append(f"engine {engine}: {in_d} in d, {in_l} in l")
    caption = (
        f"Time per round of CS-LB, timed alone, as the dimension grows (left, l = {TYPICAL_WIDTH}) and as the sketch "
        f"size does (right, d = {TYPICAL_DIM}): {mean_of(plan, BARS)}. Grey: the "
        "cost that the paper prints."
    )
    ends = f"from d = {DIMS[0]} to {DIMS[-1]} and from l = {WIDTHS[0]} to {WIDTHS[-1]}"
    return caption, f"Time is multiplied, {ends}, by: {'; '.join(readings)}."


ABOUT: dict[str, Callable[[Any, Study, Sequence[tuple[Any, str]]], tuple[str, str]]] = {
    "regret": _about_regret,
    "time": _about_time,
    "arms": _about_arms,
    "sizes": _about_sizes,
    "growth": _about_growth,
}
