"""One figure for each sweep of the paper's experiments: over the number of arms, sketch sizes and dimensions."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab import drawing, palette
from sketchbandits.lab.experiments.study import Experiment
from sketchbandits.lab.intervals import Interval, ratio
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.reproduce import (
    ARM_COUNTS,
    AS_PRINTED,
    DIMS,
    ENGINES,
    SIZE_SCENES,
    SKETCH_SIZES,
    STRUCTURES,
    TYPICAL_DIM,
    TYPICAL_WIDTH,
    WIDTHS,
)
from sketchbandits.policies.registry import PolicySpec

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

MARKERS = {"ucb1": "o", "cslb": "s", "oful": "^"}
ARMS_SHOWN = (PolicySpec("cslb"), PolicySpec("ucb1"), *paper.OFUL_READINGS.values())


def _arms(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    columns = [f"arms in {structure}" for structure in STRUCTURES]
    figure = drawing.panels(columns, rows.values(), "cumulative regret", "number of arms N", sharey=True)
    names = []
    for ax, (normalize, structure) in zip(figure.axes, product(rows, STRUCTURES), strict=True):
        for aside, policy in zip((0.94, 0.98, 1.02, 1.06), ARMS_SHOWN, strict=True):
            kind = str(policy)
            regrets = [experiment[structure, n, normalize, kind].regret for n in ARM_COUNTS]
            line = palette.line_of(policy)
            style = {"marker": MARKERS[policy.name], "label": policy.label, "linestyle": line}
            ends = _spread_line(ax, ARM_COUNTS, regrets, palette.colour_of(policy), aside, **style)
            if ends:
                names.append(drawing.name_curve(ax, *ends[1], policy.label, palette.colour_of(policy)))
            if ends and kind == "ucb1":
                names.append(_reference(ax, ARM_COUNTS, ends[0][1], 1, "linear in N"))
    drawing.size_axes(figure.axes, ARM_COUNTS, short=True)
    return drawing.keep_names_apart(figure, names)


def _sizes(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    columns = [_size_title(name) for name in SIZE_SCENES]
    figure = drawing.panels(columns, rows.values(), "regret, CS-LB / OFUL", "sketch size l", sharey="row")
    for ax, (normalize, name) in zip(figure.axes, product(rows, SIZE_SCENES), strict=True):
        sizes = [l for l in SKETCH_SIZES if (name, l, normalize) in experiment.groups]
        rival = experiment[name, "closed", normalize].regret
        found = [_positive_ratio(experiment[name, l, normalize].regret, rival) for l in sizes]
        _intervals(ax, sizes, found)
        drawing.size_axes([ax], sizes)
        clusters = [experiment[name, l, normalize].fact("clusters").mean() for l in sizes]
        _expected(ax, np.array(sizes), np.array(sizes) * np.sqrt(clusters) / SIZE_SCENES[name][1], found[0].mean)
    for ax in figure.axes[:: len(columns)]:
        low, high = ax.get_ylim()
        ax.set_ylim(low / (high / low) ** 0.14, high * (high / low) ** 0.14)  # space for the remarks
    return drawing.keep_names_apart(figure, [])


def _growth(experiment: Experiment, rows: Mapping[str, str]) -> "Figure":
    titles = [f"sketch size l = {TYPICAL_WIDTH}", f"dimension d = {TYPICAL_DIM}"]
    figure = drawing.panels(titles, ("",), "microseconds per round, log scale", "", sharey=True)
    cells = [[(d, TYPICAL_WIDTH) for d in DIMS], [(TYPICAL_DIM, l) for l in WIDTHS]]
    names = []
    for ax, where, sizes, power in zip(figure.axes, cells, (DIMS, WIDTHS), (1, 2), strict=True):
        for engine in ENGINES:
            policy = PolicySpec("cslb", (("engine", engine),))
            printed = policy in AS_PRINTED.values()
            style: dict[str, Any] = {"marker": "s", "linestyle": "-"}
            if printed:
                style = {"marker": "o", "linestyle": "--", "markerfacecolor": "white", "markeredgewidth": 1.6}
            times = [experiment[engine, *cell].positive_microseconds for cell in where]
            ends = _spread_line(ax, sizes, times, palette.colour_of(policy), label=policy.label, **style)
            names.append(drawing.name_curve(ax, *ends[1], f"engine {engine}", palette.colour_of(policy)))
            if printed:
                start = ends[1][1] / 2.5 * (sizes[0] / sizes[-1]) ** power
                names.append(_reference(ax, sizes, start, power, ("∝ d", "∝ l²")[power - 1]))
        ax.set_xlabel(("dimension d", "sketch size l")[power - 1])
        drawing.size_axes([ax], sizes)
    return drawing.keep_names_apart(figure, names)


def _spread_line(
    ax: "Axes", sizes: Sequence[int], values: Sequence[Floats], colour: str, aside: float = 1.0, **style: Any
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
    common: dict[str, Any] = {"markersize": 6.5, "linewidth": 2.0, "elinewidth": 1.2, "capsize": 2.5}
    ax.errorbar(x, mean, yerr=bars, color=colour, **(common | style))
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


SWEEPS: dict[str, Callable[[Experiment, Mapping[str, str]], "Figure"]] = {
    "arms": _arms,
    "sizes": _sizes,
    "growth": _growth,
}
