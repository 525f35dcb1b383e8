"""The figures of a report: the paper's two kinds, regret and running time, and one for each sweep.

Columns are what the paper puts side by side, rows the readings of its normalisation. A curve is named at its right end,
in its policy's colour; `_settle` keeps such names apart. The same outcomes give the same bytes.
"""

import io
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # submodules load on first use
from numpy.typing import ArrayLike

from sketchbandits.experiments import paper
from sketchbandits.experiments.contenders import Contender
from sketchbandits.experiments.intervals import LEVEL, Interval, ratio
from sketchbandits.experiments.own_case import OwnPlan
from sketchbandits.experiments.reproduce import (
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
from sketchbandits.experiments.study import Experiment, Runs
from sketchbandits.experiments.tables import contenders
from sketchbandits.linalg import Floats

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

Study = Mapping[str, Experiment]
Grid = tuple["Figure", list[list["Axes"]]]
Look = tuple[str, Any]  # a colour and a line style

PAIRS = ((1, 2), (3, 4))  # the data sets that share a figure in the paper
MOST_NAMES = 9  # curves named where they end; more of them go into a legend
MARKERS = {"ucb1": "o", "cslb": "s", "oful": "^"}
GREY, SHADE = "#6E6E6E", "#E8F1E4"
SMALL = 9.5
PNG_DPI = 160
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (1, 3)), (0, (8, 4)))
_ROWS = {"max": "max norm", "unit": "unit norm", "none": "arms as they are"}
_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.titlesize": 11,
    "axes.labelsize": 11,
    "axes.edgecolor": "#444444",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.labelcolor": "black",
    "ytick.labelcolor": "black",
    "legend.frameon": False,
    "legend.fontsize": 10,
    "svg.hashsalt": "sketchbandits",
    "svg.fonttype": "path",
}


def paper_figures(plan: PaperPlan, study: Study) -> dict[str, "Figure"]:
    """``regret-1-2``, ``time-1-2``, ``regret-3-4`` and ``time-3-4`` as played; ``arms``, ``sizes`` and ``growth``."""
    figures: dict[str, Figure] = {}
    with _style():
        for pair in PAIRS:
            columns = {n: f"({n}) {paper.title(paper.dataset(n))}" for n in pair if n in plan.datasets}
            if columns:
                name = "-".join(map(str, pair))
                figures[f"regret-{name}"] = _regret(study["regret"], columns, plan.normalize)
                figures[f"time-{name}"] = _time(study["time"], columns, plan.normalize)
        sweeps = {"arms": _arms, "sizes": _sizes, "growth": _growth}
        return figures | {name: draw(study[name], plan.normalize) for name, draw in sweeps.items()}


def own_figures(plan: OwnPlan, study: Study) -> dict[str, "Figure"]:
    """``regret`` and ``time`` of a user's own case."""
    columns, rows = {plan.scene.name: plan.scene.name}, (plan.scene.normalize,)
    with _style():
        return {"regret": _regret(study["regret"], columns, rows), "time": _time(study["time"], columns, rows)}


def render(figures: Mapping[str, "Figure"]) -> dict[str, bytes]:
    """Every figure as ``figures/<name>.png`` and ``figures/<name>.svg``; the same data give the same bytes."""
    files: dict[str, bytes] = {}
    with _style():
        for name, figure in figures.items():
            for suffix, options in (("png", {"dpi": PNG_DPI}), ("svg", {"metadata": {"Date": None}})):
                file = io.BytesIO()
                figure.savefig(file, format=suffix, **options)  # type: ignore[arg-type]
                files[f"figures/{name}.{suffix}"] = file.getvalue()
    return files


# ---- regret and running time


def _regret(experiment: Experiment, columns: Mapping[Any, str], rows: Sequence[str]) -> "Figure":
    figure, grid = _grid(list(columns.values()), rows, "cumulative regret", "rounds")
    looks, names = _looks(contenders(experiment)), []
    for ax, (normalize, number) in zip(sum(grid, []), product(rows, columns), strict=True):
        for contender, look in looks.items():
            runs = experiment[number, normalize, str(contender)]
            _curve(ax, runs, look, contender.label)
            if len(looks) <= MOST_NAMES:
                names.append(_name(ax, runs.checkpoints[-1], runs.regret.mean(), contender.label, look[0]))
        _rounds_axes(ax, int(runs.checkpoints[-1]))
    if len(looks) > MOST_NAMES:
        figure.legend(handles=grid[0][0].get_lines(), loc="outside lower center", ncols=min(4, len(looks)))
    return _settle(figure, names)


def _curve(ax: "Axes", runs: Runs, look: Look, label: str) -> None:
    """The mean over runs and, for more than one, a 95 % Student-t band of it."""
    x, n = np.append(0, runs.checkpoints), len(runs.curves)
    mean = np.append(0.0, runs.curves.mean(axis=0))
    if n > 1:
        error = np.append(0.0, runs.curves.std(axis=0, ddof=1)) / math.sqrt(n)
        half = scipy.special.stdtrit(n - 1, (1 + LEVEL) / 2) * error
        ax.fill_between(x, np.maximum(mean - half, 0.0), mean + half, color=look[0], alpha=0.14, linewidth=0)
    ax.plot(x, mean, color=look[0], linestyle=look[1], linewidth=2.0, label=label)


def _rounds_axes(ax: "Axes", rounds: int) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    ax.set(xlim=(0, rounds), ylim=(0, ax.dataLim.y1 * 1.03 if ax.dataLim.y1 > 0 else 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        axis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))


def _time(experiment: Experiment, columns: Mapping[Any, str], rows: Sequence[str]) -> "Figure":
    order = _by_time(experiment)
    height = 0.75 + 0.3 * len(order)
    label = "microseconds a round, log scale"
    figure, grid = _grid(list(columns.values()), rows, "", label, height=height, sharex=True, sharey=True)
    for ax, (normalize, number) in zip(sum(grid, []), product(rows, columns), strict=True):
        ax.set_xscale("log")
        for place, contender in enumerate(order):
            _dots(ax, place, contender, experiment[number, normalize, str(contender)])
        ax.set(yticks=range(len(order)), yticklabels=[contender.label for contender in order])
        ax.set_ylim(len(order) - 0.4, -0.6)
        ax.tick_params(axis="y", length=0)
        ax.grid(visible=False, axis="y")
    low, high = (side([ax.dataLim.intervalx for ax in sum(grid, [])]) for side in (np.min, np.max))
    _plain_log(grid[0][0].xaxis, low / 1.3, high * (high / low) ** 0.2 * 1.3)
    return _settle(figure, [])


def _by_time(experiment: Experiment) -> list[Contender]:
    """Fastest first, by the geometric mean over all data sets: one order for all panels of all figures."""
    logs: dict[Contender, list[float]] = {}
    for key, group in experiment.groups.items():
        logs.setdefault(group[0].contender, []).append(math.log(_microseconds(experiment[key]).mean()))
    return sorted(logs, key=lambda contender: np.mean(logs[contender]))


def _dots(ax: "Axes", place: int, contender: Contender, runs: Runs) -> None:
    """Every run, from the least to the most, and their mean: hollow for a policy as the paper prints it."""
    times, colour = _microseconds(runs), contender.colour
    face = "white" if contender in TWINS.values() else colour
    ax.plot([times.min(), times.max()], [place, place], color=colour, linewidth=1.6)
    ax.plot(times.mean(), place, "o", color=colour, markersize=8, markerfacecolor=face, markeredgewidth=1.6)
    ax.plot(times, np.full(len(times), place), "o", color=colour, markersize=4, alpha=0.4, markeredgewidth=0)
    text = _two_digits(times.mean())
    ax.annotate(text, (times.max(), place), (7, 0), textcoords="offset points", va="center", fontsize=SMALL)


# ---- sweeps


def _arms(experiment: Experiment, rows: Sequence[str]) -> "Figure":
    columns = [f"arms in {structure}" for structure in STRUCTURES]
    figure, grid = _grid(columns, rows, "cumulative regret", "number of arms N")
    names = []
    for ax, (normalize, structure) in zip(sum(grid, []), product(rows, STRUCTURES), strict=True):
        starts = []
        for kind in ("ucb1", "cslb", "oful"):
            regrets = [experiment[structure, n, normalize, kind].regret for n in ARM_COUNTS]
            shown = _spread_line(ax, ARM_COUNTS, regrets, Contender(kind).colour, marker=MARKERS[kind])
            if shown:
                starts.append(shown[0][1] * ARM_COUNTS[0] / shown[0][0])
                names.append(_name(ax, *shown[-1], Contender(kind).label, Contender(kind).colour))
        names.append(_reference(ax, ARM_COUNTS, min(starts, default=1.0), 1, "linear in N"))
        _size_axes(ax, ARM_COUNTS)
    return _settle(figure, names)


def _sizes(experiment: Experiment, rows: Sequence[str]) -> "Figure":
    columns = [_size_title(name) for name in SIZE_SCENES]
    figure, grid = _grid(columns, rows, "regret of CS-LB / OFUL", "sketch size l")
    for ax, (normalize, name) in zip(sum(grid, []), product(rows, SIZE_SCENES), strict=True):
        sizes = [l for l in SKETCH_SIZES if (name, l, normalize) in experiment.groups]
        rival = experiment[name, normalize].regret
        found = [_positive_ratio(experiment[name, l, normalize].regret, rival) for l in sizes]
        ax.axhline(1.0, color=GREY, linewidth=1.0)
        _intervals(ax, sizes, found)
        _size_axes(ax, sizes, pad=1.25)
        clusters = [experiment[name, l, normalize].fact("clusters").mean() for l in sizes]
        _expected(ax, np.array(sizes), np.array(sizes) * np.sqrt(clusters) / SIZE_SCENES[name][1])
    return _settle(figure, [])


def _growth(experiment: Experiment, rows: Sequence[str]) -> "Figure":
    titles = [f"sketch size l = {TYPICAL_WIDTH}", f"dimension d = {TYPICAL_DIM}"]
    figure, ((left, right),) = _grid(titles, ("",), "microseconds a round", "")
    names = []
    for ax, label, ticks, power, text, cell in (
        (left, "dimension d", DIMS, 1, "∝ d", lambda size: (size, TYPICAL_WIDTH)),
        (right, "sketch size l", WIDTHS, 2, "∝ l²", lambda size: (TYPICAL_DIM, size)),
    ):
        for engine in ENGINES:
            contender = Contender("cslb", (("engine", engine),))
            times = [_microseconds(experiment[engine, *cell(size)]) for size in ticks]
            look = {"marker": "s", "linestyle": "-", "markerfacecolor": contender.colour}
            if contender in TWINS.values():
                look = {"marker": "o", "linestyle": contender.line, "markerfacecolor": "white"}
            shown = _spread_line(ax, ticks, times, contender.colour, **look)
            names.append(_name(ax, *shown[-1], f"engine {engine}", contender.colour))
        names.append(_reference(ax, ticks, times[0].mean() / 2.5, power, text))
        ax.set_xlabel(label)
        _size_axes(ax, ticks)
    return _settle(figure, names)


def _spread_line(
    ax: "Axes", sizes: Sequence[int], values: Sequence[Floats], colour: str, **look: Any
) -> list[tuple[float, float]]:
    """Means over runs with bars from the least to the most; returns the points that a logarithm can show."""
    points = [(float(size), float(value.mean())) for size, value in zip(sizes, values, strict=True) if value.mean() > 0]
    kept = [value for value in values if value.mean() > 0]
    if points:
        x, mean = np.array(points).T
        low = np.array([value[value > 0].min() for value in kept])
        bars = [mean - np.minimum(low, mean), np.array([value.max() for value in kept]) - mean]
        style = {"markersize": 6.5, "linewidth": 2.0, "elinewidth": 1.2, "capsize": 2.5, "clip_on": False}
        ax.errorbar(x, mean, yerr=bars, color=colour, **(style | look))
    return points


def _reference(ax: "Axes", sizes: Sequence[int], start: float, power: int, text: str) -> "Annotation":
    """A grey line that grows with a power of the size."""
    end = start * (sizes[-1] / sizes[0]) ** power
    ax.plot([sizes[0], sizes[-1]], [start, end], color="#BDBDBD", linewidth=1.4, zorder=1)
    return _name(ax, sizes[-1], end, text, GREY)


def _intervals(ax: "Axes", sizes: Sequence[int], found: Sequence[Interval]) -> None:
    """Ratios with their intervals; a single run has none, and a ratio with a regret of nothing is left out."""
    for l, value in zip(sizes, found, strict=True):
        if np.isfinite([value.low, value.high]).all():
            ax.plot([l, l], [value.low, value.high], color=Contender("cslb").colour, linewidth=1.6)
    shown = [(l, value.mean) for l, value in zip(sizes, found, strict=True) if np.isfinite(value.mean)]
    ax.plot(*zip(*shown, strict=True), marker="s", markersize=6, color=Contender("cslb").colour, linewidth=1.2)


def _positive_ratio(values: Floats, rival: Floats) -> Interval:
    if min(values.min(), rival.min()) <= 0:
        return Interval(math.nan, math.nan, math.nan)
    return ratio(values, rival)


def _expected(ax: "Axes", sizes: Floats, predictor: Floats) -> None:
    """Shade where l sqrt(K) < d, between the sizes played by a straight line in the logarithms."""
    x = np.geomspace(*ax.get_xlim(), 600)
    below = np.interp(np.log(x), np.log(sizes), np.log(predictor)) < -1e-9
    if below.any():
        ax.fill_between(x, 0, 1, where=below.tolist(), transform=ax.get_xaxis_transform(), color=SHADE, zorder=0)
        text = "l√K < d: the paper\nexpects CS-LB to win"
        ax.annotate(text, (0.03, 0.03), xycoords="axes fraction", fontsize=SMALL, color="#3C6E3C", va="bottom")


def _size_title(name: str) -> str:
    n_arms, dim, _, group_size = SIZE_SCENES[name]
    number = f"({name}) " if name.isdigit() else ""
    return f"{number}N = {n_arms}, d = {dim}" + (f", m = {group_size}" if group_size > 1 else "")


# ---- axes, names and numbers


@contextmanager
def _style() -> Iterator[None]:
    import matplotlib  # drawing is optional and slow to load

    with matplotlib.rc_context(_STYLE):
        yield


def _grid(
    columns: Sequence[str], rows: Sequence[str], ylabel: str, xlabel: str, *, height: float = 3.3, **shared: bool
) -> Grid:
    """Panels with a title a column and a label a row."""
    from matplotlib.figure import Figure

    size = (9.0 if len(columns) > 1 else 6.8, (0.3 + height * len(rows)) * (1.0 if len(columns) > 1 else 1.2))
    figure = Figure(figsize=size, layout="constrained")
    axes: list[list[Axes]] = figure.subplots(len(rows), len(columns), squeeze=False, **shared).tolist()  # type: ignore[call-overload]
    for ax, title in zip(axes[0], columns, strict=True):
        ax.set_title(title)
    for line, row in zip(axes, rows, strict=True):
        line[0].set_ylabel(ylabel)
        anchor: dict[str, Any] = {"xycoords": line[0].yaxis.label, "textcoords": "offset points"}
        place: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "center", "fontweight": "bold"}
        line[0].annotate(_ROWS.get(row, row), (0, 0.5), (-5, 0), **anchor, **place)
    for ax in axes[-1]:
        ax.set_xlabel(xlabel)
    return figure, axes


def _looks(policies: Sequence[Contender]) -> dict[Contender, Look]:
    """Everyone's colour and line; of two that would look the same, the later one gets another line."""
    looks: dict[Contender, Look] = {}
    for contender in policies:
        lines = (contender.line, *_LINES)
        free = (line for line in lines if (contender.colour, line) not in looks.values())
        looks[contender] = (contender.colour, next(free, contender.line))
    return looks


def _name(ax: "Axes", x: float, y: float, text: str, colour: str) -> "Annotation":
    """A curve's name beside its end, with a line to it for `_settle` to show or hide."""
    wrapped = textwrap.fill(text, 17, break_long_words=False, break_on_hyphens=False)
    arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.8, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 1}
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "arrowprops": arrow}
    return ax.annotate(wrapped, (x, y), (12, 0), color=_ink(colour), annotation_clip=False, fontsize=10, **place)


def _settle(figure: "Figure", names: Sequence["Annotation"]) -> "Figure":
    """Fix the layout, then move the names of each panel apart, as little as needed and inside its height."""
    from matplotlib.text import Text

    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for ax in figure.axes:
        own = [name for name in names if name.axes is ax]
        ends = [float(ax.transData.transform(name.xy)[1]) for name in own]
        heights = [Text.get_window_extent(name).height + 1.0 for name in own]
        for name, end, y in zip(own, ends, _apart(ends, heights, ax.bbox.y0, ax.bbox.y1), strict=True):
            name.xyann = (12 if len(own) else 6, (y - end) * 72 / figure.dpi)
            assert name.arrow_patch is not None
            name.arrow_patch.set_visible(abs(y - end) > 2)
    return figure


def _apart(wanted: Sequence[float], heights: Sequence[float], low: float, high: float) -> Floats:
    """Centres of boxes stacked in the order wanted, without overlap: the least sum of squares from the wanted."""
    if not wanted:
        return np.empty(0)
    order = np.argsort(wanted, kind="stable")
    tall = np.array(heights)[order]
    offsets = np.append(0.0, np.cumsum((tall[1:] + tall[:-1]) / 2))
    free = scipy.optimize.isotonic_regression(np.array(wanted)[order] - offsets).x
    bottom, top = low + tall[0] / 2, high - offsets[-1] - tall[-1] / 2
    found = np.empty(len(tall))
    found[order] = np.clip(free, min(bottom, top), top) + offsets
    return found


def _ink(colour: str) -> str:
    """The colour, darkened until text in it has a contrast of 4.5 on white."""
    from matplotlib.colors import to_hex, to_rgb

    rgb = np.array(to_rgb(colour))
    while np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722) > 0.183:
        rgb *= 0.97
    return to_hex(rgb.tolist())


def _size_axes(ax: "Axes", sizes: Sequence[int], pad: float = 1.0) -> None:
    """Logarithms on both axes, ticks at the sizes played."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ax.set(xscale="log", yscale="log", xlim=(sizes[0] / pad, sizes[-1] * pad))
    ax.xaxis.set_major_locator(FixedLocator(list(sizes)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _plain_log(ax.yaxis, *ax.get_ylim())


def _plain_log(axis: "Axis", low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis: powers of ten, with 2 and 5 between them where there are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    between = (1.0,) if high / low > 100 else (1.0, 2.0, 5.0) if high / low > 4 else (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)
    (axis.axes.set_xlim if axis.axis_name == "x" else axis.axes.set_ylim)(low, high)
    axis.set_major_locator(LogLocator(subs=between))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}" if value < 1e4 else _thousands(value)))


def _microseconds(runs: Runs) -> Floats:
    """Time a round; a clock too coarse for a short run must not end at minus infinity."""
    return np.maximum(runs.microseconds, 1e-3)


def _thousands(value: float) -> str:
    """5000 as 5k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _two_digits(value: float) -> str:
    """At least two digits: 0.10, 1.2, 12, 123."""
    exponent = math.floor(math.log10(float(f"{value:.1e}")))
    return f"{value:,.{max(0, 1 - exponent)}f}"
