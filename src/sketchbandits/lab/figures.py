"""The figures of a report: the paper's two kinds, regret and running time, and one for each sweep.

Columns are what the paper puts side by side, rows the readings of its normalisation. A curve is named at its right end,
in its policy's colour; `drawing` keeps such names apart. The same outcomes give the same bytes.
"""

import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # submodules load on first use

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab import drawing, palette
from sketchbandits.lab.intervals import LEVEL, Interval, ratio
from sketchbandits.lab.own_case import OwnPlan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.reproduce import (
    ARM_COUNTS,
    DIMS,
    ENGINES,
    SIZE_SCENES,
    SKETCH_SIZES,
    STRUCTURES,
    TWINS,
    TYPICAL_DIM,
    TYPICAL_WIDTH,
    WIDTHS,
    PaperPlan,
)
from sketchbandits.lab.study import Experiment, Runs
from sketchbandits.lab.tables import contenders
from sketchbandits.policies.registry import PolicySpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

Study = Mapping[str, Experiment]

PAIRS = ((1, 2), (3, 4))  # the data sets that share a figure in the paper
MARKERS = {"ucb1": "o", "cslb": "s", "oful": "^"}
PNG_DPI = 160
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
        sweeps = {"arms": _arms, "sizes": _sizes, "growth": _growth}
        return figures | {name: draw(study[name], rows) for name, draw in sweeps.items()}


def own_figures(plan: OwnPlan, study: Study) -> dict[str, "Figure"]:
    """``regret`` and ``time`` of a user's own case."""
    scene = plan.scene
    columns, rows = {scene.name: textwrap.fill(f"{scene.name}, {_ROWS[scene.normalize]}", 60)}, {scene.normalize: ""}
    with drawing.style():
        return {"regret": _regret(study["regret"], columns, rows), "time": _time(study["time"], columns, rows)}


def render(figures: Mapping[str, "Figure"]) -> dict[str, bytes]:
    """Every figure as ``figures/<name>.png`` and ``figures/<name>.svg``; the same data give the same bytes."""
    files: dict[str, bytes] = {}
    with drawing.style():
        for name, figure in figures.items():
            for suffix, options in (("png", {"dpi": PNG_DPI}), ("svg", {"metadata": {"Date": None, "Title": name}})):
                file = io.BytesIO()
                figure.savefig(file, format=suffix, **options)
                files[f"figures/{name}.{suffix}"] = file.getvalue()
    return files


# ---- regret and running time


def _regret(experiment: Experiment, columns: Mapping[Any, str], rows: Mapping[str, str]) -> "Figure":
    figure = drawing.panels(columns.values(), rows.values(), "cumulative regret", "rounds")
    looks, names = palette.appearances(contenders(experiment)), []
    for ax, (normalize, number) in zip(figure.axes, product(rows, columns), strict=True):
        for contender, look in looks.items():
            runs = experiment[number, normalize, str(contender)]
            _curve(ax, runs, look, contender.label)
            if len(looks) <= drawing.MOST_NAMES:
                names.append(drawing.name_curve(ax, runs.checkpoints[-1], runs.regret.mean(), contender.label, look[0]))
        _rounds_axes(ax, int(runs.checkpoints[-1]))
    if len(looks) > drawing.MOST_NAMES:
        figure.legend(handles=figure.axes[0].get_lines(), loc="outside lower center", ncols=min(4, len(looks)))
    return drawing.keep_names_apart(figure, names)


def _curve(ax: "Axes", runs: Runs, look: palette.Appearance, label: str) -> None:
    """The mean over runs and, for more than one, a 95 % Student-t band of it."""
    x, n = np.append(0, runs.checkpoints), len(runs.curves)
    mean = np.append(0.0, runs.curves.mean(axis=0))
    if n > 1:
        error = np.append(0.0, runs.curves.std(axis=0, ddof=1)) / math.sqrt(n)
        half = scipy.special.stdtrit(n - 1, (1 + LEVEL) / 2) * error
        ax.fill_between(x, np.maximum(mean - half, 0.0), mean + half, color=look[0], alpha=0.12, linewidth=0, zorder=1)
    ax.plot(x, mean, color=look[0], linestyle=look[1], linewidth=2.0, label=label)


def _rounds_axes(ax: "Axes", rounds: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.set(xlim=(0, rounds), ylim=(0, ax.dataLim.y1 * 1.03 if ax.dataLim.y1 > 0 else 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5 if axis is ax.xaxis else 6, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: drawing.thousands(value)))


def _time(experiment: Experiment, columns: Mapping[Any, str], rows: Mapping[str, str]) -> "Figure":
    order = _by_time(experiment)
    policies = [textwrap.fill(contender.label, 28, break_on_hyphens=False) for contender in order]
    height = 0.75 + (0.3 if max(map(len, policies)) <= 28 else 0.45) * len(order)
    label = "microseconds a round, log scale"
    figure = drawing.panels(columns.values(), rows.values(), "", label, height=height, sharex=True, sharey=True)
    places = [(number, normalize) for normalize, number in product(rows, columns)]
    times = np.concatenate([drawing.microseconds(experiment[*place, str(each)]) for place in places for each in order])
    wide = max(math.log(times.max() / times.min()), 1.0)
    for ax, place in zip(figure.axes, places, strict=True):
        # The last number needs room.
        ax.set(xscale="log", xlim=(times.min() * math.exp(-0.06 * wide), times.max() * math.exp(0.15 * wide)))
        for row, contender in enumerate(order):
            _dots(ax, row, contender, experiment[*place, str(contender)])
        ax.set(yticks=range(len(order)), yticklabels=policies, ylim=(len(order) - 0.4, -0.6))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", color="#F2F2F2")
    drawing.plain_log(figure.axes[0].xaxis)
    _time_legend(figure, hollow=any(contender in TWINS.values() for contender in order))
    return drawing.keep_names_apart(figure, [])


def _by_time(experiment: Experiment) -> list[PolicySpec]:
    """Fastest first, by the geometric mean over all data sets: one order for all panels of all figures."""
    logs: dict[PolicySpec, list[float]] = {}
    for key, group in experiment.groups.items():
        logs.setdefault(group[0].contender, []).append(math.log(drawing.microseconds(experiment[key]).mean()))
    return sorted(logs, key=lambda contender: np.mean(logs[contender]))


def _dots(ax: "Axes", row: int, contender: PolicySpec, runs: Runs) -> None:
    """Every run, from the least to the most, and their mean: hollow for a policy as the paper prints it."""
    times, colour = drawing.microseconds(runs), palette.colour_of(contender)
    face = "white" if contender in TWINS.values() else colour
    ax.plot([times.min(), times.max()], [row, row], color=colour, linewidth=1.6)
    ax.plot(times.mean(), row, "o", color=colour, markersize=7.5, markerfacecolor=face, markeredgewidth=1.6)
    ax.plot(times, np.full(len(times), row), "o", color=colour, markersize=4, alpha=0.4, markeredgewidth=0)
    text = drawing.two_digits(times.mean())
    ax.annotate(text, (times.max(), row), (7, 0), textcoords="offset points", va="center", fontsize=drawing.SMALL)


def _time_legend(figure: "Figure", *, hollow: bool) -> None:
    from matplotlib.lines import Line2D

    def dot(label: str, size: float, **look: Any) -> Line2D:
        return Line2D([], [], linestyle="none", marker="o", color=palette.GREY, markersize=size, label=label, **look)

    dots = [dot("mean", 7.5), dot("one run", 4, alpha=0.5, markeredgewidth=0)]
    if hollow:
        dots.append(dot("mean, as the paper prints the policy", 7.5, markerfacecolor="white", markeredgewidth=1.6))
    figure.legend(handles=dots, loc="outside lower center", ncols=3)


# ---- sweeps


def _arms(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    columns = [f"arms in {structure}" for structure in STRUCTURES]
    figure = drawing.panels(columns, rows.values(), "cumulative regret", "number of arms N", sharey=True)
    names = []
    for ax, (normalize, structure) in zip(figure.axes, product(rows, STRUCTURES), strict=True):
        for aside, kind in zip((0.96, 1.0, 1.04), ("cslb", "ucb1", "oful"), strict=True):
            contender = PolicySpec(kind)
            regrets = [experiment[structure, n, normalize, kind].regret for n in ARM_COUNTS]
            look = {"marker": MARKERS[kind], "label": contender.label}
            ends = _spread_line(ax, ARM_COUNTS, regrets, palette.colour_of(contender), aside, **look)
            if ends:
                names.append(drawing.name_curve(ax, *ends[1], contender.label, palette.colour_of(contender)))
            if ends and kind == "ucb1":
                names.append(_reference(ax, ARM_COUNTS, ends[0][1], 1, "linear in N"))
    drawing.size_axes(figure.axes, ARM_COUNTS, short=True)
    return drawing.keep_names_apart(figure, names)


def _sizes(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    columns = [_size_title(name) for name in SIZE_SCENES]
    figure = drawing.panels(columns, rows.values(), "regret, CS-LB / OFUL", "sketch size l", sharey="row")
    for ax, (normalize, name) in zip(figure.axes, product(rows, SIZE_SCENES), strict=True):
        sizes = [l for l in SKETCH_SIZES if (name, l, normalize) in experiment.groups]
        rival = experiment[name, normalize].regret
        found = [_positive_ratio(experiment[name, l, normalize].regret, rival) for l in sizes]
        _intervals(ax, sizes, found)
        drawing.size_axes([ax], sizes)
        clusters = [experiment[name, l, normalize].fact("clusters").mean() for l in sizes]
        _expected(ax, np.array(sizes), np.array(sizes) * np.sqrt(clusters) / SIZE_SCENES[name][1], found[0].mean)
    for ax in figure.axes[:: len(columns)]:
        low, high = ax.get_ylim()
        ax.set_ylim(low / (high / low) ** 0.14, high * (high / low) ** 0.14)  # the remarks need room
    return drawing.keep_names_apart(figure, [])


def _growth(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    titles = [f"sketch size l = {TYPICAL_WIDTH}", f"dimension d = {TYPICAL_DIM}"]
    figure = drawing.panels(titles, ("",), "microseconds a round, log scale", "", sharey=True)
    cells = [[(d, TYPICAL_WIDTH) for d in DIMS], [(TYPICAL_DIM, l) for l in WIDTHS]]
    names = []
    for ax, where, sizes, power in zip(figure.axes, cells, (DIMS, WIDTHS), (1, 2), strict=True):
        for engine in ENGINES:
            contender = PolicySpec("cslb", (("engine", engine),))
            printed = contender in TWINS.values()
            look: dict[str, Any] = {"marker": "s", "linestyle": "-"}
            if printed:
                look = {"marker": "o", "linestyle": "--", "markerfacecolor": "white", "markeredgewidth": 1.6}
            times = [drawing.microseconds(experiment[engine, *cell]) for cell in where]
            ends = _spread_line(ax, sizes, times, palette.colour_of(contender), label=contender.label, **look)
            names.append(drawing.name_curve(ax, *ends[1], f"engine {engine}", palette.colour_of(contender)))
            if printed:
                start = ends[1][1] / 2.5 * (sizes[0] / sizes[-1]) ** power
                names.append(_reference(ax, sizes, start, power, ("∝ d", "∝ l²")[power - 1]))
        ax.set_xlabel(("dimension d", "sketch size l")[power - 1])
        drawing.size_axes([ax], sizes)
    return drawing.keep_names_apart(figure, names)


def _spread_line(
    ax: "Axes", sizes: Sequence[int], values: Sequence[Floats], colour: str, aside: float = 1.0, **look: Any
) -> list[tuple[float, float]]:
    """Means over runs with bars from the least to the most, where a logarithm can show them; the two end points."""
    kept = [(size, value) for size, value in zip(sizes, values, strict=True) if value.max() > 0]
    if not kept:
        return []
    x = np.array([size * aside for size, _ in kept])
    mean = np.array([value.mean() for _, value in kept])
    low = np.array([value[value > 0].min() for _, value in kept])
    high = np.array([value.max() for _, value in kept])
    bars = [np.maximum(mean - low, 0.0), high - mean]
    style: dict[str, Any] = {"markersize": 6.5, "linewidth": 2.0, "elinewidth": 1.2, "capsize": 2.5}
    ax.errorbar(x, mean, yerr=bars, color=colour, **(style | look))
    return [(x[0], mean[0]), (x[-1], mean[-1])]


def _reference(ax: "Axes", sizes: Sequence[int], start: float, power: int, text: str) -> "Annotation":
    """A grey line that grows with a power of the size."""
    end = start * (sizes[-1] / sizes[0]) ** power
    ax.plot([sizes[0], sizes[-1]], [start, end], color="#BDBDBD", linewidth=1.4, zorder=1)
    return drawing.name_curve(ax, sizes[-1], end, text, palette.GREY)


def _intervals(ax: "Axes", sizes: Sequence[int], found: Sequence[Interval]) -> None:
    """Ratios with their intervals; a single run has none, and a ratio with a regret of nothing is left out."""
    colour = palette.COLOURS["cslb"]
    ax.axhline(1.0, color=palette.GREY, linewidth=1.0)
    shown = [(l, value) for l, value in zip(sizes, found, strict=True) if np.isfinite(value.mean)]
    for l, value in shown:
        if np.isfinite([value.low, value.high]).all():
            ax.plot([l, l], [value.low, value.high], color=colour, linewidth=1.6)
    ax.plot([l for l, _ in shown], [v.mean for _, v in shown], "s-", markersize=6, color=colour, linewidth=1.2)


def _positive_ratio(values: Floats, rival: Floats) -> Interval:
    if min(values.min(), rival.min()) <= 0:
        return Interval(math.nan, math.nan, math.nan)
    return ratio(values, rival)


def _expected(ax: "Axes", sizes: Floats, predictor: Floats, first: float) -> None:
    """Shade where l sqrt(K) < d, between the sizes played by a straight line in the logarithms, and say so."""
    x = np.geomspace(*ax.get_xlim(), 1000)
    below = np.interp(np.log(x), np.log(sizes), np.log(predictor)) < -1e-9
    edges = np.flatnonzero(np.diff(below, prepend=False, append=False))
    for start, end in edges.reshape(-1, 2):
        ax.axvspan(x[start], x[end - 1], color=palette.SHADE, linewidth=0, zorder=0)
    text = "l√K < d: the paper\nexpects CS-LB to win" if below.any() else "l√K ≥ d: the paper\nexpects no win"
    y, va = (0.03, "bottom") if first > 1 else (0.97, "top")  # away from the first points
    colour = "#3C6E3C" if below.any() else palette.GREY
    ax.annotate(text, (0.04, y), xycoords="axes fraction", fontsize=drawing.SMALL, color=colour, va=va)


def _size_title(name: str) -> str:
    n_arms, dim, _, group_size = SIZE_SCENES[name]
    number = f"({name}) " if name.isdigit() else ""
    return f"{number}N = {n_arms}, d = {dim}" + (f", m = {group_size}" if group_size > 1 else "")
