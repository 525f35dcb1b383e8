"""Regret relative to the best yardstick in hindsight: a panel per world, a dot per policy."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.lab import drawing, palette
from suite.practice.contenders import CONTENDERS, HYBRID, PEER, RIVAL
from suite.practice.peers import VARIANTS
from suite.practice.summary import Estimate, Results, estimate, mean, ratio

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 0.05  # of the axis
WIDE = 60.0  # axes that span more have fewer numbers
ACROSS = 4  # panels side by side
STYLES: dict[str, dict[str, Any]] = {
    "default": {"marker": "D", "color": palette.COLOURS["hybrid"], "markersize": 8, "zorder": 5},
    HYBRID: {"marker": "D", "color": palette.COLOURS["hybrid"], "markersize": 5, "markerfacecolor": "white"},
    RIVAL: {"marker": "o", "color": palette.COLOURS["cslb"], "markersize": 5},
    PEER: {"marker": "s", "color": palette.GREY, "markersize": 4.5},
}
NAMES = {
    "default": "HybridCSLB as it comes",
    HYBRID: "HybridCSLB, other options",
    RIVAL: "yardstick, best of five scales in hindsight",
    PEER: "other library",
}


def figure_of(results: Results, worlds: Sequence[str]) -> "Figure":
    """Every world with a yardstick and everybody who played there."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    shown = drawable(results, worlds)
    names = [*CONTENDERS, *(variant.label for variant in VARIANTS)]
    names = [name for name in names if any(results.scales(world, name) for world in shown)]
    across = min(ACROSS, max(1, len(shown)))
    down = max(1, math.ceil(len(shown) / across))
    with drawing.style():
        size = (2.4 + 2.3 * across, 0.9 + down * (0.5 + 0.19 * len(names)))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.06))
        panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
        for ax, world in zip(panels.flat, shown, strict=False):
            _panel(ax, results, world, names)
        for ax in panels.flat[len(shown) :]:
            ax.set_visible(False)
        for place in range(max(0, len(shown) - across), len(shown)):  # the lowest of each column
            panels.flat[place].tick_params(labelbottom=True)
        _axes(panels, names)
        _legend(figure, names, across)
    return figure


def drawable(results: Results, worlds: Sequence[str]) -> list[str]:
    """The worlds in which a yardstick played and had regret."""
    best = {world: results.best_rival(world) for world in worlds}
    return [world for world, who in best.items() if who and results.column(world, *who, "regret").mean() > 0.0]


def family(policy: str) -> str:
    """How it is drawn."""
    one = CONTENDERS.get(policy)
    return PEER if one is None else "default" if policy == "HybridCSLB" else one.family


def _panel(ax: "Axes", results: Results, world: str, names: Sequence[str]) -> None:
    rival, scale = reference = results.best_rival(world) or ("", None)
    theirs = estimate(mean, results.column(world, *reference, "regret")).value
    ax.axvline(1.0, color=palette.GREY, linewidth=1.0, zorder=1)
    for place, policy in enumerate(names):
        if not results.scales(world, policy):
            where: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "center", "fontsize": 7.5}
            ax.annotate("not played", (0.03, place), color=palette.GREY, **where)
            continue
        found = _relative(results, world, policy, reference)
        style = STYLES[family(policy)]
        if found.half > 0.0:
            ends = [max(found.value - found.half, LEAST / 10), found.value + found.half]
            ax.plot(ends, [place, place], color=style["color"], linewidth=1.3, zorder=3)
        ax.plot([found.value], [place], linestyle="", **({"zorder": 4} | style))
    ax.set_title(f"{world}\n", fontsize=11, fontweight="bold", pad=2)
    text = f"1 = {rival}{_value(rival, scale)}: {drawing.two_digits(theirs)}"
    ax.annotate(text, (0.5, 1.0), (0, 4), "axes fraction", "offset points", ha="center", fontsize=8)


def _value(policy: str, scale: float | None) -> str:
    return "" if scale is None else f", {scale:g}{' R' * (CONTENDERS[policy].unit == 'R')}"


def _relative(results: Results, world: str, policy: str, reference: tuple[str, float | None]) -> Estimate:
    """Its regret over the reference's, over the seeds that both played."""
    own = (policy, results.best_scale(world, policy))
    columns = results.paired(world, own, reference) or [np.full(1, np.nan)] * 2
    return Estimate(1.0, 0.0) if own == reference else estimate(ratio, *columns)


def _axes(panels: Any, names: Sequence[str]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    first = panels[0, 0]
    first.set(xscale="log", ylim=(len(names) - 0.4, -0.6))
    dots = [line.get_xdata() for ax in panels.flat for line in ax.lines if line.get_linestyle() == "None"]
    values = np.concatenate([np.asarray(each, dtype=np.float64) for each in dots])
    values = values[np.isfinite(values)]
    low, high = max(values.min() / 1.8, LEAST), values.max() * 1.8  # an interval may go beyond
    first.set_xlim(low, high)
    wanted = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if high / low < WIDE else (0.1, 0.3, 1, 3, 10, 30, 100, 300)
    ticks = [tick for tick in wanted if low <= tick <= high]
    for ax in panels.flat:
        ax.xaxis.set_major_locator(FixedLocator(ticks))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.grid(axis="y", linewidth=0.5)
        ax.tick_params(labelsize=8.5, length=2)
    first.set_yticks(range(len(names)), names)
    for line in panels:
        for label, name in zip(line[0].get_yticklabels(), names, strict=True):
            if name == "HybridCSLB":
                label.set(fontweight="bold", color=drawing.ink(STYLES["default"]["color"]))


def _legend(figure: "Figure", names: Sequence[str], across: int) -> None:
    from matplotlib.lines import Line2D

    used = [kind for kind in STYLES if any(family(name) == kind for name in names)]
    handles = [Line2D([], [], linestyle="", label=NAMES[kind], **STYLES[kind]) for kind in used]
    title = "Regret relative to the best yardstick in hindsight (1), 95 % intervals of paired seeds; less is better"
    small = {"fontsize": 9, "title_fontsize": 9}
    figure.legend(
        handles=handles, loc="outside lower center", ncols=len(handles) if across > 2 else 1, title=title, **small
    )
