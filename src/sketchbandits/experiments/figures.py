"""The figures of a report: the paper's two kinds, regret and running time, and one for each sweep.

Columns are what the paper puts side by side, rows the readings of its normalisation. A curve is named at its right end,
in its policy's colour; `_settle` keeps such names apart. The same outcomes give the same bytes.
"""

import io
import math
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # submodules load on first use

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
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

Study = Mapping[str, Experiment]
Look = tuple[str, Any]  # a colour and a line style

PAIRS = ((1, 2), (3, 4))  # the data sets that share a figure in the paper
MOST_NAMES = 9  # curves named where they end; more of them go into a legend
MARKERS = {"ucb1": "o", "cslb": "s", "oful": "^"}
GREY, SHADE = "#6E6E6E", "#E8F1E4"
SMALL = 9.5
NEAR, FAR = 5, 13  # points from the edge to a name, without and with a line to it
PNG_DPI = 160
_LINES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (1, 3)), (0, (8, 4)))
_ROWS = {"max": "max norm", "unit": "unit norm", "none": "arms as they are"}
_STYLE: dict[Any, Any] = {
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
    "text.parse_math": False,  # a file's name may hold a dollar
    "svg.hashsalt": "sketchbandits",
    "svg.fonttype": "path",
}


def paper_figures(plan: PaperPlan, study: Study) -> dict[str, "Figure"]:
    """``regret-1-2``, ``time-1-2``, ``regret-3-4`` and ``time-3-4`` as played; ``arms``, ``sizes`` and ``growth``."""
    figures: dict[str, Figure] = {}
    rows = {normalize: _ROWS[normalize] for normalize in plan.normalize}
    with _style():
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
    with _style():
        return {"regret": _regret(study["regret"], columns, rows), "time": _time(study["time"], columns, rows)}


def render(figures: Mapping[str, "Figure"]) -> dict[str, bytes]:
    """Every figure as ``figures/<name>.png`` and ``figures/<name>.svg``; the same data give the same bytes."""
    files: dict[str, bytes] = {}
    with _style():
        for name, figure in figures.items():
            for suffix, options in (("png", {"dpi": PNG_DPI}), ("svg", {"metadata": {"Date": None, "Title": name}})):
                file = io.BytesIO()
                figure.savefig(file, format=suffix, **options)
                files[f"figures/{name}.{suffix}"] = file.getvalue()
    return files


# ---- regret and running time


def _regret(experiment: Experiment, columns: Mapping[Any, str], rows: Mapping[str, str]) -> "Figure":
    figure = _grid(columns.values(), rows.values(), "cumulative regret", "rounds")
    looks, names = _looks(contenders(experiment)), []
    for ax, (normalize, number) in zip(figure.axes, product(rows, columns), strict=True):
        for contender, look in looks.items():
            runs = experiment[number, normalize, str(contender)]
            _curve(ax, runs, look, contender.label)
            if len(looks) <= MOST_NAMES:
                names.append(_name(ax, runs.checkpoints[-1], runs.regret.mean(), contender.label, look[0]))
        _rounds_axes(ax, int(runs.checkpoints[-1]))
    if len(looks) > MOST_NAMES:
        figure.legend(handles=figure.axes[0].get_lines(), loc="outside lower center", ncols=min(4, len(looks)))
    return _settle(figure, names)


def _curve(ax: "Axes", runs: Runs, look: Look, label: str) -> None:
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
        axis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))


def _time(experiment: Experiment, columns: Mapping[Any, str], rows: Mapping[str, str]) -> "Figure":
    order = _by_time(experiment)
    policies = [textwrap.fill(contender.label, 28, break_on_hyphens=False) for contender in order]
    height = 0.75 + (0.3 if max(map(len, policies)) <= 28 else 0.45) * len(order)
    label = "microseconds a round, log scale"
    figure = _grid(columns.values(), rows.values(), "", label, height=height, sharex=True, sharey=True)
    places = [(number, normalize) for normalize, number in product(rows, columns)]
    times = np.concatenate([_microseconds(experiment[*place, str(each)]) for place in places for each in order])
    wide = max(math.log(times.max() / times.min()), 1.0)
    for ax, place in zip(figure.axes, places, strict=True):
        # The last number needs room.
        ax.set(xscale="log", xlim=(times.min() * math.exp(-0.06 * wide), times.max() * math.exp(0.15 * wide)))
        for row, contender in enumerate(order):
            _dots(ax, row, contender, experiment[*place, str(contender)])
        ax.set(yticks=range(len(order)), yticklabels=policies, ylim=(len(order) - 0.4, -0.6))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", color="#F2F2F2")
    _plain_log(figure.axes[0].xaxis)
    _time_legend(figure, hollow=any(contender in TWINS.values() for contender in order))
    return _settle(figure, [])


def _by_time(experiment: Experiment) -> list[Contender]:
    """Fastest first, by the geometric mean over all data sets: one order for all panels of all figures."""
    logs: dict[Contender, list[float]] = {}
    for key, group in experiment.groups.items():
        logs.setdefault(group[0].contender, []).append(math.log(_microseconds(experiment[key]).mean()))
    return sorted(logs, key=lambda contender: np.mean(logs[contender]))


def _dots(ax: "Axes", row: int, contender: Contender, runs: Runs) -> None:
    """Every run, from the least to the most, and their mean: hollow for a policy as the paper prints it."""
    times, colour = _microseconds(runs), contender.colour
    face = "white" if contender in TWINS.values() else colour
    ax.plot([times.min(), times.max()], [row, row], color=colour, linewidth=1.6)
    ax.plot(times.mean(), row, "o", color=colour, markersize=7.5, markerfacecolor=face, markeredgewidth=1.6)
    ax.plot(times, np.full(len(times), row), "o", color=colour, markersize=4, alpha=0.4, markeredgewidth=0)
    text = _two_digits(times.mean())
    ax.annotate(text, (times.max(), row), (7, 0), textcoords="offset points", va="center", fontsize=SMALL)


def _time_legend(figure: "Figure", *, hollow: bool) -> None:
    from matplotlib.lines import Line2D

    def dot(label: str, size: float, **look: Any) -> Line2D:
        return Line2D([], [], linestyle="none", marker="o", color=GREY, markersize=size, label=label, **look)

    dots = [dot("mean", 7.5), dot("one run", 4, alpha=0.5, markeredgewidth=0)]
    if hollow:
        dots.append(dot("mean, as the paper prints the policy", 7.5, markerfacecolor="white", markeredgewidth=1.6))
    figure.legend(handles=dots, loc="outside lower center", ncols=3)


# ---- sweeps


def _arms(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    columns = [f"arms in {structure}" for structure in STRUCTURES]
    figure = _grid(columns, rows.values(), "cumulative regret", "number of arms N", sharey=True)
    names = []
    for ax, (normalize, structure) in zip(figure.axes, product(rows, STRUCTURES), strict=True):
        for aside, kind in zip((0.96, 1.0, 1.04), ("cslb", "ucb1", "oful"), strict=True):
            contender = Contender(kind)
            regrets = [experiment[structure, n, normalize, kind].regret for n in ARM_COUNTS]
            look = {"marker": MARKERS[kind], "label": contender.label}
            ends = _spread_line(ax, ARM_COUNTS, regrets, contender.colour, aside, **look)
            if ends:
                names.append(_name(ax, *ends[1], contender.label, contender.colour))
            if ends and kind == "ucb1":
                names.append(_reference(ax, ARM_COUNTS, ends[0][1], 1, "linear in N"))
    _size_axes(figure.axes, ARM_COUNTS, short=True)
    return _settle(figure, names)


def _sizes(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    columns = [_size_title(name) for name in SIZE_SCENES]
    figure = _grid(columns, rows.values(), "regret, CS-LB / OFUL", "sketch size l", sharey="row")
    for ax, (normalize, name) in zip(figure.axes, product(rows, SIZE_SCENES), strict=True):
        sizes = [l for l in SKETCH_SIZES if (name, l, normalize) in experiment.groups]
        rival = experiment[name, normalize].regret
        found = [_positive_ratio(experiment[name, l, normalize].regret, rival) for l in sizes]
        _intervals(ax, sizes, found)
        _size_axes([ax], sizes)
        clusters = [experiment[name, l, normalize].fact("clusters").mean() for l in sizes]
        _expected(ax, np.array(sizes), np.array(sizes) * np.sqrt(clusters) / SIZE_SCENES[name][1], found[0].mean)
    for ax in figure.axes[:: len(columns)]:
        low, high = ax.get_ylim()
        ax.set_ylim(low / (high / low) ** 0.14, high * (high / low) ** 0.14)  # the remarks need room
    return _settle(figure, [])


def _growth(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    titles = [f"sketch size l = {TYPICAL_WIDTH}", f"dimension d = {TYPICAL_DIM}"]
    figure = _grid(titles, ("",), "microseconds a round, log scale", "", sharey=True)
    cells = [[(d, TYPICAL_WIDTH) for d in DIMS], [(TYPICAL_DIM, l) for l in WIDTHS]]
    names = []
    for ax, where, sizes, power in zip(figure.axes, cells, (DIMS, WIDTHS), (1, 2), strict=True):
        for engine in ENGINES:
            contender = Contender("cslb", (("engine", engine),))
            printed = contender in TWINS.values()
            look: dict[str, Any] = {"marker": "s", "linestyle": "-"}
            if printed:
                look = {"marker": "o", "linestyle": "--", "markerfacecolor": "white", "markeredgewidth": 1.6}
            times = [_microseconds(experiment[engine, *cell]) for cell in where]
            ends = _spread_line(ax, sizes, times, contender.colour, label=contender.label, **look)
            names.append(_name(ax, *ends[1], f"engine {engine}", contender.colour))
            if printed:
                start = ends[1][1] / 2.5 * (sizes[0] / sizes[-1]) ** power
                names.append(_reference(ax, sizes, start, power, ("∝ d", "∝ l²")[power - 1]))
        ax.set_xlabel(("dimension d", "sketch size l")[power - 1])
        _size_axes([ax], sizes)
    return _settle(figure, names)


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
    return _name(ax, sizes[-1], end, text, GREY)


def _intervals(ax: "Axes", sizes: Sequence[int], found: Sequence[Interval]) -> None:
    """Ratios with their intervals; a single run has none, and a ratio with a regret of nothing is left out."""
    colour = Contender("cslb").colour
    ax.axhline(1.0, color=GREY, linewidth=1.0)
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
        ax.axvspan(x[start], x[end - 1], color=SHADE, linewidth=0, zorder=0)
    text = "l√K < d: the paper\nexpects CS-LB to win" if below.any() else "l√K ≥ d: the paper\nexpects no win"
    y, va = (0.03, "bottom") if first > 1 else (0.97, "top")  # away from the first points
    colour = "#3C6E3C" if below.any() else GREY
    ax.annotate(text, (0.04, y), xycoords="axes fraction", fontsize=SMALL, color=colour, va=va)


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
    columns: Collection[str], rows: Collection[str], ylabel: str, xlabel: str, *, height: float = 3.3, **shared: Any
) -> "Figure":
    """Panels with a title a column and a label a row."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    size = (9.0 if len(columns) > 1 else 6.8, (0.3 + height * len(rows)) * (1.0 if len(columns) > 1 else 1.2))
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.07))
    axes: list[list[Axes]] = figure.subplots(len(rows), len(columns), squeeze=False, **shared).tolist()
    for ax, title in zip(axes[0], columns, strict=True):
        ax.set_title(title)
    for line, row in zip(axes, rows, strict=True):
        line[0].set_ylabel(ylabel)
        anchor: dict[str, Any] = {"xycoords": line[0].yaxis.label, "textcoords": "offset points"}
        place: dict[str, Any] = {"rotation": 90, "ha": "right", "va": "center", "fontweight": "bold"}
        line[0].annotate(row, (0, 0.5), (-5, 0), **anchor, **place)
    for ax in axes[-1]:
        ax.set_xlabel(xlabel)
    return figure


def _looks(policies: Sequence[Contender]) -> dict[Contender, Look]:
    """Everyone's colour and line; of two that would look the same, the later one gets another line."""
    looks: dict[Contender, Look] = {}
    for contender in policies:
        lines = (contender.line, *_LINES)
        free = (line for line in lines if (contender.colour, line) not in looks.values())
        looks[contender] = (contender.colour, next(free, contender.line))
    return looks


def _name(ax: "Axes", x: float, y: float, text: str, colour: str) -> "Annotation":
    """A curve's name at the right edge, with a line to the curve's end; `_settle` gives it its height."""
    from matplotlib.text import OffsetFrom

    if len(text) > 18:
        text = text.replace(" (", "\n(").replace(", ", ",\n")
    arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.8, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 3}
    place: dict[str, Any] = {"textcoords": OffsetFrom(ax.bbox, (1, 0), "points"), "va": "center"}
    look: dict[str, Any] = {"color": _ink(colour), "arrowprops": arrow, "annotation_clip": False, "fontsize": 10}
    return ax.annotate(text, (x, y), (FAR, 0), **place, **look)


def _settle(figure: "Figure", names: Sequence["Annotation"]) -> "Figure":
    """Fix the layout, then set the names of each panel beside their curves, moved apart only as far as needed."""
    from matplotlib.text import Text

    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    figure.set_layout_engine("none")
    for ax in figure.axes:
        own = [name for name in names if name.axes is ax]
        ends = np.array([ax.transData.transform(name.xy)[1] for name in own])
        heights = np.array([Text.get_window_extent(name).height + 1.0 for name in own])
        places = _apart(ends, heights, ax.bbox.y0, ax.bbox.y1)
        moved = bool((abs(places - ends) > 2).any())
        for name, place in zip(own, places, strict=True):
            name.xyann = (FAR if moved else NEAR, (place - ax.bbox.y0) * 72 / figure.dpi)
            assert name.arrow_patch is not None
            name.arrow_patch.set_visible(moved)
    return figure


def _apart(wanted: Floats, heights: Floats, low: float, high: float) -> Floats:
    """Centres of boxes stacked in the order wanted, without overlap: the least sum of squares from the wanted."""
    if not wanted.size:
        return wanted
    order = np.argsort(wanted, kind="stable")
    tall = heights[order]
    offsets = np.append(0.0, np.cumsum((tall[1:] + tall[:-1]) / 2))
    free = scipy.optimize.isotonic_regression(wanted[order] - offsets).x
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


def _size_axes(panels: Sequence["Axes"], sizes: Sequence[int], *, short: bool = False) -> None:
    """Logarithms on both axes, ticks at the sizes played."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    pad = (sizes[-1] / sizes[0]) ** 0.05
    for ax in panels:
        ax.set(xscale="log", yscale="log", xlim=(sizes[0] / pad, sizes[-1] * pad))
        ax.xaxis.set_major_locator(FixedLocator(list(sizes)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    for ax in panels:
        _plain_log(ax.yaxis, short=short)


def _plain_log(axis: "Axis", *, short: bool = False) -> None:
    """Plain numbers on a logarithmic axis: powers of ten, with 2 and 5 between them where there are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value) if short else f"{value:,g}"))


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
