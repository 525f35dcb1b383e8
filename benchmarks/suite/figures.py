"""The figure of every workload, drawn from the facts of its summary: nothing here is measured.

Two kinds: costs against a size, with logarithms on both axes and the slope named where a curve ends; and rows of dots,
one row per policy or call.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sketchbandits.lab import drawing, palette
from suite import growth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

Facts = Mapping[str, Any]
BLUE, ORANGE, GREEN, GREY = palette.COLOURS["cslb"], palette.COLOURS["oful"], palette.COLOURS["cbscfd"], palette.GREY
SWEEPS = {"d": "dimension d", "N": "arms N", "K": "clusters K", "l": "sketch size l"}
STYLES = {"round": (BLUE, "-"), "full scan": (BLUE, "--"), "state": (BLUE, "-")}
TIMES = ("round", "full scan")
STYLES |= {"partition": (GREEN, "-"), "arms": (GREY, "-")}
STYLES |= {"warm-up": (BLUE, "-"), "product": (GREY, "-"), "by SVD": (ORANGE, "--")}
QUANTILES = {"p50": ("|", 11), "p99": ("o", 7), "p99.9": ("D", 5.5), "again": ("s", 6), "max": (">", 6.5)}


# ---- costs against a size


def growth_of_rounds(facts: Facts) -> "Figure":
    """Time above, memory below; a column for each size that grows."""
    sweeps = [sweep for sweep in SWEEPS if any(curve["sweep"] == sweep for curve in facts["curves"])]
    with drawing.style():
        figure = drawing.panels([f"{SWEEPS[s]} grows" for s in sweeps], ("time", "memory"), "", "", sharey="row")
        figure.set_size_inches(3.5 * len(sweeps) + 0.7, 7.2)
        names = []
        for i, ax in enumerate(figure.axes):
            sweep, timed = sweeps[i % len(sweeps)], i < len(sweeps)
            curves = [c for c in facts["curves"] if c["sweep"] == sweep and (c["quantity"] in TIMES) == timed]
            for curve in curves:
                names += _growing(ax, curve, 1.0 if timed else 1e-6, stated=True)
            _size_axis(ax, curves[0]["sizes"], SWEEPS[sweep])
            ax.set_ylabel(("microseconds per round" if timed else "megabytes") if i % len(sweeps) == 0 else "")
        for row in (figure.axes[: len(sweeps)], figure.axes[len(sweeps) :]):
            _same_heights(row)
        return drawing.keep_names_apart(figure, names)


def growth_of_warmup(facts: Facts) -> "Figure":
    """A panel for each dimension and sketch size."""
    several = [curve for curve in facts["curves"] if len(curve["sizes"]) > 1]
    shapes = list(dict.fromkeys((curve["dim"], curve["sketch_size"]) for curve in several))
    with drawing.style():
        figure = drawing.panels([f"d = {d}, l = {l}" for d, l in shapes], ("",), "seconds", "arms N", sharey=True)
        figure.set_size_inches(4.0 * len(shapes) + 0.6, 4.2)
        names = []
        for ax, shape in zip(figure.axes, shapes, strict=True):
            curves = [curve for curve in several if (curve["dim"], curve["sketch_size"]) == shape]
            sizes = sorted({size for curve in curves for size in curve["sizes"]})
            for curve in curves:
                names += _growing(ax, curve, inside=curve["sizes"][-1] < sizes[-1])
            _size_axis(ax, sizes, "arms N")
        _same_heights(figure.axes)
        return drawing.keep_names_apart(figure, names)


def _growing(
    ax: "Axes", curve: Facts, scale: float = 1.0, *, stated: bool = False, inside: bool = False
) -> list["Annotation"]:
    """A curve, named with its slope over the upper sizes: at the edge, or where it ends inside."""
    what = curve.get("quantity") or curve["what"]
    colour, line = STYLES[what]
    values = [scale * value for value in curve["medians"]]
    ax.plot(curve["sizes"], values, color=colour, linestyle=line, linewidth=1.8, marker="o", markersize=4)
    found = curve["exponent"]
    text = what.replace(", ", ",\n") + (f"\nslope {growth.shown(found['mean'])}" if found else "")
    if stated:
        text += f"\n(stated {growth.shown(curve['stated_exponent'])})"
    if not inside:
        return [drawing.name_curve(ax, curve["sizes"][-1], values[-1], text, colour)]
    text_style: dict[str, Any] = {"color": drawing.ink(colour), "fontsize": 10, "va": "center"}
    ax.annotate(text, (curve["sizes"][-1], values[-1]), (7, 0), textcoords="offset points", **text_style)
    return []


def _size_axis(ax: "Axes", sizes: Sequence[int], label: str) -> None:
    """Logarithms on both axes; at most four of the sizes have a number."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    step = math.ceil((len(sizes) - 1) / 3) if len(sizes) > 4 else 1
    pad = max((sizes[-1] / sizes[0]) ** 0.06, 1.1)
    ax.set(xscale="log", yscale="log", xlim=(sizes[0] / pad, sizes[-1] * pad))
    ax.xaxis.set_major_locator(FixedLocator(list(sizes)[::-step]))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    ax.set_xlabel(label)


def short(size: float) -> str:
    """8,192, but 30k."""
    return drawing.thousands(size) if size >= 10_000 else f"{size:,g}"


def brief(value: float) -> str:
    """0.12, 12, 1,234, 123k."""
    return drawing.two_digits(value) if value < 10_000 else drawing.thousands(float(f"{value:.3g}"))


def _same_heights(panels: Sequence["Axes"]) -> None:
    """One range of values for panels side by side, at least two decades: a flat curve must look flat."""
    low, high = min(ax.dataLim.y0 for ax in panels), max(ax.dataLim.y1 for ax in panels)
    wide = max((high / low) ** 0.06, math.sqrt(100 * low / high))
    for ax in panels:
        ax.set_ylim(low / wide, high * wide)
        drawing.plain_log(ax.yaxis)


# ---- rows of dots


def slowest_rounds(facts: Facts) -> "Figure":
    """A row for each game: half of all rounds, all but a hundredth, all but a thousandth, the slowest.

    Hollow: the slowest of those that were slow in every run.
    """
    curves = facts["curves"]
    labels = [f"{c['title']}\nN = {c['n_arms']:,}, {c['played']:,} rounds" for c in curves]
    with drawing.style():
        figure = drawing.panels(["select + update"], ("",), "", "microseconds per round, log scale", height=1.0)
        figure.set_size_inches(8.2, 1.6 + 0.65 * len(curves))
        (ax,) = figure.axes
        for row, curve in enumerate(curves):
            _quantiles(ax, row, curve["quantiles"])
        _rows(ax, labels)
        _widen(ax, [value for curve in curves for value in curve["quantiles"].values()])
        dots = [(name.replace("again", "slowest in every run"), BLUE, *marker) for name, marker in QUANTILES.items()]
        _legend(figure, dots, hollow=list(QUANTILES).index("again"))
        return drawing.keep_names_apart(figure, [])


def _quantiles(ax: "Axes", row: int, found: Mapping[str, float]) -> None:
    ax.plot([found["p50"], found["max"]], [row, row], color=BLUE, linewidth=1.4)
    for name, value in found.items():
        marker, size = QUANTILES[name]
        face = "white" if name == "again" else BLUE
        ax.plot(value, row, marker, color=BLUE, markerfacecolor=face, markersize=size, markeredgewidth=1.8)
    _number(ax, found["p50"], row, brief(found["p50"]), left=True)
    _number(ax, found["max"], row, brief(found["max"]))


def speed_and_regret(facts: Facts) -> "Figure":
    """For each setting, rounds per second and regret; policies in the order of their speed in the last setting."""
    policies = facts["policies"]
    places = list(dict.fromkeys((fact["n_arms"], fact["dim"]) for fact in policies))
    order = [fact["policy"] for fact in policies if (fact["n_arms"], fact["dim"]) == places[-1]]
    with drawing.style():
        titles = [f"N = {n:,}, d = {d}" for n, d in places for _ in range(2)]
        figure = drawing.panels(titles, ("",), "", "", height=1.0, sharey=True)
        figure.set_size_inches(1.6 + 2.9 * len(titles), 1.3 + 0.34 * len(order))
        for i, ax in enumerate(figure.axes):
            what, unit = (("rounds_per_second", "rounds per second, log scale"), ("regret", "regret"))[i % 2]
            part = [fact for fact in policies if (fact["n_arms"], fact["dim"]) == places[i // 2]]
            for fact in part:
                _spread(ax, order.index(fact["policy"]), fact[what], fact["colour"], drawing.thousands)
            _rows(ax, order)
            _widen(ax, [value for fact in part for value in fact[what]], log=what != "regret")
            ax.set_xlabel(unit)
        _legend(figure, [("median", GREY, "o", 7.5), ("one draw", GREY, "o", 4)])
        return drawing.keep_names_apart(figure, [])


def costs_of_calls(facts: Facts) -> "Figure":
    """A row for each call, a dot for each policy."""
    calls = facts["calls"]
    places = list(dict.fromkeys((fact["n_arms"], fact["dim"]) for fact in calls))
    order, colours = list(dict.fromkeys(fact["call"] for fact in calls)), {"CS-LB": BLUE, "OFUL": ORANGE}
    shift = {"CS-LB": -0.13, "OFUL": 0.13}  # two dots must not hide each other
    with drawing.style():
        titles = [f"N = {n:,}, d = {d}" for n, d in places]
        label = "microseconds, log scale (line: to the least)"
        figure = drawing.panels(titles, ("",), "", label, height=1.0, sharey=True, sharex=True)
        figure.set_size_inches(9.0, 1.6 + 0.5 * len(order))
        for ax, place in zip(figure.axes, places, strict=True):
            part = [fact for fact in calls if (fact["n_arms"], fact["dim"]) == place]
            for fact in part:
                colour = colours.get(fact["policy"], GREY)
                row = order.index(fact["call"]) + shift.get(fact["policy"], 0.0)
                ax.plot([fact["least"], fact["median"]], [row, row], color=colour, linewidth=1.4)
                ax.plot(fact["median"], row, "o", color=colour, markersize=7)
            _rows(ax, order)
        _widen(figure.axes[0], [fact["median"] for fact in calls])
        _legend(figure, [(name, colours.get(name, GREY), "o", 7) for name in dict.fromkeys(f["policy"] for f in calls)])
        return drawing.keep_names_apart(figure, [])


def speed_of_peers(facts: Facts) -> "Figure":
    """Rounds a second of every library; hollow where its model does not see the features of arms."""
    peers = facts["peers"]
    places = list(dict.fromkeys((fact["n_arms"], fact["dim"]) for fact in peers))
    order = list(dict.fromkeys(f"{fact['peer']} {fact['variant']}" for fact in peers))
    with drawing.style():
        titles = [f"N = {n:,}, d = {d}" for n, d in places]
        figure = drawing.panels(titles, ("",), "", "rounds per second, log scale", height=1.0, sharey=True, sharex=True)
        figure.set_size_inches(10.0, 1.5 + 0.34 * len(order))
        for ax, place in zip(figure.axes, places, strict=True):
            for fact in (fact for fact in peers if (fact["n_arms"], fact["dim"]) == place):
                colour = {"sketchbandits": BLUE, "yardstick": ORANGE}.get(fact["peer"], GREY)
                face = None if fact["comparable"] else "white"
                row = order.index(f"{fact['peer']} {fact['variant']}")
                _spread(ax, row, fact["rounds_per_second"], colour, drawing.thousands, face)
            _rows(ax, order)
        _widen(figure.axes[0], [value for fact in peers for value in fact["rounds_per_second"]])
        _legend(figure, [("sees the features of arms", GREY, "o", 7), ("does not", GREY, "o", 7)], hollow=1)
        return drawing.keep_names_apart(figure, [])


def _spread(
    ax: "Axes", row: int, values: Sequence[float], colour: str, show: Callable[[float], str], face: str | None = None
) -> None:
    """Every value, from the least to the most, and their median in figures."""
    middle = statistics.median(values)
    ax.plot([min(values), max(values)], [row, row], color=colour, linewidth=1.4)
    ax.plot(middle, row, "o", color=colour, markersize=7, markerfacecolor=face or colour, zorder=3)
    ax.plot(values, [row] * len(values), "o", color=colour, markersize=4, alpha=0.4, markeredgewidth=0)
    _number(ax, max(values), row, show(float(f"{middle:.2g}")))


def _number(ax: "Axes", x: float, row: int, text: str, *, left: bool = False) -> None:
    place: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": drawing.SMALL}
    ax.annotate(text, (x, row), (-8 if left else 8, 0), ha="right" if left else "left", **place)


def _rows(ax: "Axes", labels: Sequence[str]) -> None:
    ax.set(xscale="log", yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", color="#F2F2F2")


def _widen(ax: "Axes", values: Sequence[float], *, log: bool = True) -> None:
    """Leave space for the numbers next to the dots."""
    if not log:
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        ax.set(xscale="linear", xlim=(-0.03 * max(*values, 1e-9), 1.3 * max(*values, 1e-9)))
        ax.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: drawing.thousands(value)))
        return
    logs = [math.log(value) for value in values if value > 0] or [0.0]
    wide = max(max(logs) - min(logs), 1.0)
    ax.set_xlim(math.exp(min(logs) - 0.16 * wide), math.exp(max(logs) + 0.24 * wide))
    drawing.plain_log(ax.xaxis, short=True)


def _legend(figure: "Figure", dots: Sequence[tuple[str, str, str, float]], hollow: int | None = None) -> None:
    """Dots by name, colour, marker and size; one of them may be hollow."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], linestyle="none", marker=marker, color=colour, markersize=size, label=name, markeredgewidth=1.5)
        for name, colour, marker, size in dots
    ]
    if hollow is not None:
        handles[hollow].set_markerfacecolor("white")
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
