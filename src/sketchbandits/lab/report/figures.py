"""The figures of a report: regret and running time, as in the paper, and those of `sweep_figures`.

Columns are what the paper puts side by side, rows the readings of its normalisation. A curve is named at its right end,
in its policy's colour; `drawing` keeps such names apart. The same outcomes give the same bytes.
"""

import math
import textwrap
from collections.abc import Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.lab import drawing, palette
from sketchbandits.lab.experiments.study import Experiment, Runs, Study
from sketchbandits.lab.intervals import LEVEL
from sketchbandits.lab.own_case import OwnPlan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.reproduce import AS_PRINTED, PaperPlan
from sketchbandits.lab.report.sweep_figures import SWEEPS
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.results import student_band

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAIRS = ((1, 2), (3, 4))  # the data sets that share a figure in the paper
_ROWS = {"max": "max norm", "unit": "unit norm", "none": "arms as they are"}


def paper_figures(plan: PaperPlan, study: Study) -> dict[str, "Figure"]:
    """``regret-1-2``, ``time-1-2``, ``regret-3-4`` and ``time-3-4`` as played; ``arms``, ``sizes`` and ``growth``."""
    figures: dict[str, Figure] = {}
    rows = {normalize: _ROWS[normalize] for normalize in plan.normalize}
    with drawing.style():
        for pair in PAIRS:
            columns = {n: f"({n}) {paper.title(paper.dataset(n))}" for n in pair if n in plan.datasets}
            if columns:
                name = "-".join(map(str, pair))
                figures[f"regret-{name}"] = _regret(study["regret"], columns, rows)
                figures[f"time-{name}"] = _time(study["time"], columns, rows)
        return figures | {name: draw(study[name], rows) for name, draw in SWEEPS.items()}


def own_figures(plan: OwnPlan, study: Study) -> dict[str, "Figure"]:
    """``regret`` and ``time`` of a user's own case."""
    scene = plan.scene
    columns, rows = {scene.name: textwrap.fill(f"{scene.name}, {_ROWS[scene.normalize]}", 60)}, {scene.normalize: ""}
    with drawing.style():
        return {"regret": _regret(study["regret"], columns, rows), "time": _time(study["time"], columns, rows)}


def _regret(experiment: Experiment, columns: Mapping[Any, str], rows: Mapping[str, str]) -> "Figure":
    figure = drawing.panels(columns.values(), rows.values(), "cumulative regret", "rounds")
    appearances, names = palette.appearances(experiment.policies), []
    for ax, (normalize, number) in zip(figure.axes, product(rows, columns), strict=True):
        for policy, appearance in appearances.items():
            runs = experiment[number, normalize, str(policy)]
            _curve(ax, runs, appearance, policy.label)
            if len(appearances) <= drawing.MOST_NAMES:
                end = (runs.checkpoints[-1], runs.regret.mean())
                names.append(drawing.name_curve(ax, *end, policy.label, appearance[0]))
        _rounds_axes(ax, int(runs.checkpoints[-1]))
    if len(appearances) > drawing.MOST_NAMES:
        figure.legend(handles=figure.axes[0].get_lines(), loc="outside lower center", ncols=min(4, len(appearances)))
    return drawing.keep_names_apart(figure, names)


def _curve(ax: "Axes", runs: Runs, appearance: palette.Appearance, label: str) -> None:
    """The mean over runs and, for more than one, a 95 % Student-t band of it."""
    x, mean, (colour, line) = np.append(0, runs.checkpoints), np.append(0.0, runs.curves.mean(axis=0)), appearance
    if len(runs.curves) > 1:
        low, high = (np.append(0.0, side) for side in student_band(runs.curves, LEVEL))
        ax.fill_between(x, np.maximum(low, 0.0), high, color=colour, alpha=0.12, linewidth=0, zorder=1)
    ax.plot(x, mean, color=colour, linestyle=line, linewidth=2.0, label=label)


def _rounds_axes(ax: "Axes", rounds: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.set(xlim=(0, rounds), ylim=(0, ax.dataLim.y1 * 1.03 if ax.dataLim.y1 > 0 else 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5 if axis is ax.xaxis else 6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: drawing.thousands(value)))


def _time(experiment: Experiment, columns: Mapping[Any, str], rows: Mapping[str, str]) -> "Figure":
    order = _by_time(experiment)
    policies = [textwrap.fill(policy.label, 28, break_on_hyphens=False) for policy in order]
    height = 0.75 + (0.3 if max(map(len, policies)) <= 28 else 0.45) * len(order)
    label = "microseconds per round, log scale"
    figure = drawing.panels(columns.values(), rows.values(), "", label, height=height, sharex=True, sharey=True)
    places = [(number, normalize) for normalize, number in product(rows, columns)]
    times = np.concatenate([experiment[*place, str(each)].positive_microseconds for place in places for each in order])
    wide = max(math.log(times.max() / times.min()), 1.0)
    for ax, place in zip(figure.axes, places, strict=True):
        # The last number needs space.
        ax.set(xscale="log", xlim=(times.min() * math.exp(-0.06 * wide), times.max() * math.exp(0.15 * wide)))
        for row, policy in enumerate(order):
            _dots(ax, row, policy, experiment[*place, str(policy)])
        ax.set(yticks=range(len(order)), yticklabels=policies, ylim=(len(order) - 0.4, -0.6))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", color="#F2F2F2")
    drawing.plain_log(figure.axes[0].xaxis)
    _time_legend(figure, hollow=any(policy in AS_PRINTED.values() for policy in order))
    return drawing.keep_names_apart(figure, [])


def _by_time(experiment: Experiment) -> list[PolicySpec]:
    """Fastest first, by the geometric mean over all data sets: one order for all panels of all figures."""
    logs: dict[PolicySpec, list[float]] = {}
    for key, group in experiment.groups.items():
        logs.setdefault(group[0].policy, []).append(math.log(experiment[key].positive_microseconds.mean()))
    return sorted(logs, key=lambda policy: np.mean(logs[policy]))


def _dots(ax: "Axes", row: int, policy: PolicySpec, runs: Runs) -> None:
    """Every run, from the least to the most, and their mean: hollow for a policy as the paper prints it."""
    times, colour = runs.positive_microseconds, palette.colour_of(policy)
    face = "white" if policy in AS_PRINTED.values() else colour
    ax.plot([times.min(), times.max()], [row, row], color=colour, linewidth=1.6)
    ax.plot(times.mean(), row, "o", color=colour, markersize=7.5, markerfacecolor=face, markeredgewidth=1.6)
    ax.plot(times, np.full(len(times), row), "o", color=colour, markersize=4, alpha=0.4, markeredgewidth=0)
    text = drawing.two_digits(times.mean())
    ax.annotate(text, (times.max(), row), (7, 0), textcoords="offset points", va="center", fontsize=drawing.SMALL)


def _time_legend(figure: "Figure", *, hollow: bool) -> None:
    from matplotlib.lines import Line2D

    def dot(label: str, size: float, **style: Any) -> Line2D:
        return Line2D([], [], linestyle="none", marker="o", color=palette.GREY, markersize=size, label=label, **style)

    dots = [dot("mean", 7.5), dot("one run", 4, alpha=0.5, markeredgewidth=0)]
    if hollow:
        dots.append(dot("mean, as the paper prints the policy", 7.5, markerfacecolor="white", markeredgewidth=1.6))
    figure.legend(handles=dots, loc="outside lower center", ncols=3)
