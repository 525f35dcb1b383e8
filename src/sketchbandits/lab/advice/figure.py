"""Predicted time and regret bound: a point a policy, dots for other sketch sizes, the frontier, the budget."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.advice.predictions import ESTIMATED, Prediction
from sketchbandits.lab.advice.report import best_sizes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sketchbandits.lab.advice.advise import Advice

# Okabe and Ito's colours and relatives, told apart by colour-blind readers; one a policy, whatever else is drawn.
COLOURS = {
    "MultiscaleCSLB": "#D55E00",
    "CSLB": "#0072B2",
    "OFUL": "#00795A",
    "UCB1": "#000000",
    "LinTS": "#A8437F",
    "SOFUL": "#8A6100",
    "CBSCFD": "#5E55A8",
    "DBSLinUCB": "#2A7FAF",
}
GREY = "#6E6E6E"
ABOVE, BELOW = 5.0, 0.6  # the highest value shown, of the trivial bound; the lowest, of the least bound
LEAST = 1e-6  # of the trivial bound
# Directions in which a name may stand from its point, and how far, in points: the first place that is free.
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (1, -1), (-1, 1), (-1, -1))
DISTANCES = (9, 16, 26, 38, 52, 70)


def draw(advice: "Advice", ax: "Axes | None" = None) -> "Figure":
    """The figure that ``ax`` belongs to, or a new one."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 10, "text.parse_math": False}):
        if ax is None:
            ax = Figure(figsize=(8.4, 5.2), layout="constrained").add_subplot()
        figure = ax.get_figure(root=True)
        assert figure is not None
        shown = best_sizes(advice.predictions)
        bounded = [found for found in shown if found.bound is not None]
        _axes(ax, advice, shown)
        _lines(ax, advice, bounded)
        for found in bounded:
            _points(ax, advice, found)
        figure.draw_without_rendering()  # sizes of texts and the places of points are known from here on
        _names(ax, advice, bounded)
    return figure


def _axes(ax: "Axes", advice: "Advice", shown: Sequence[Prediction]) -> None:
    from matplotlib.ticker import FuncFormatter

    times = [found.microseconds for found in shown] + [advice.budget_us or shown[0].microseconds]
    bounds = [_height(advice, found) for found in shown if found.bound is not None]
    low, high = min(times), max(times)
    # Never less than a factor of four wide: close points would otherwise pretend to differ.
    room = max(1.35, (4.0 * low / high) ** 0.5)
    ax.set(xscale="log", yscale="log", xlim=(low / room, high * room * 1.5))
    ax.set_ylim(BELOW * min(*bounds, advice.case.trivial), ABOVE * max(advice.case.trivial, min(bounds)))
    rounds = f"{advice.case.rounds:,} rounds"
    ax.set(xlabel="microseconds a round, select and update from Python (predicted)", ylabel=f"regret bound at {rounds}")
    ax.set_title(f"{advice.look.n_arms:,} arms of rank {advice.look.rank:,} in {advice.look.dim:,} dimensions")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: _plain(value)))
        axis.set_minor_formatter(FuncFormatter(_minor))
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, which="major")


def _minor(value: float, _: Any) -> str:
    """Of the numbers between powers of ten, 2 and 5."""
    digit = value / 10.0 ** np.floor(np.log10(value) + 1e-9)
    return _plain(value) if round(digit) in (2, 5) else ""


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1.0 else f"{value:g}"


def _lines(ax: "Axes", advice: "Advice", bounded: Sequence[Prediction]) -> None:
    """The trivial bound, the budget and the frontier."""
    ax.axhline(advice.case.trivial, color=GREY, linestyle=":", linewidth=1.2)
    style: dict[str, Any] = {"color": GREY, "fontsize": 9, "xycoords": ("axes fraction", "data")}
    ax.annotate(
        "trivial: 2 S L T", (0.995, advice.case.trivial), (0, 3), ha="right", textcoords="offset points", **style
    )
    if advice.budget_us is not None:
        ax.axvline(advice.budget_us, color="#B00020", linestyle="--", linewidth=1.2)
        ax.axvspan(advice.budget_us, ax.get_xlim()[1], color="#B00020", alpha=0.05, linewidth=0)
        style |= {"color": "#B00020", "xycoords": ("data", "axes fraction")}
        text = f"budget: {advice.budget_us:g} us"
        ax.annotate(text, (advice.budget_us, 0.01), (-4, 0), ha="right", textcoords="offset points", **style)
    best: list[Prediction] = []
    for found in sorted(bounded, key=lambda found: (found.microseconds, found.bound or 0.0)):
        if found.guarantee != ESTIMATED and (not best or (found.bound or 0.0) < (best[-1].bound or 0.0)):
            best.append(found)
    x, y = [found.microseconds for found in best], [_height(advice, found) for found in best]
    edge = ax.get_xlim()[1]
    ax.plot(
        [x[0], *x, edge], [ax.get_ylim()[1], *y, y[-1]], drawstyle="steps-post", color="#BBBBBB", linewidth=5, alpha=0.5
    )


def _points(ax: "Axes", advice: "Advice", found: Prediction) -> None:
    """A policy's sketch sizes as dots, and its best one as a point."""
    colour = COLOURS.get(found.policy, GREY)
    own = [each for each in advice.predictions if each.name == found.name and each.bound is not None]
    if len(own) > 1:
        points = np.array([(each.microseconds, _height(advice, each)) for each in own])
        ax.plot(*points.T, ".", color=colour, markersize=4, alpha=0.5)
    x, y, inside = _place(ax, advice, found)
    marker = "^" if not inside else "*" if found == advice.choice else "o"
    filled = colour if found.guarantee != ESTIMATED else "white"
    size = 15 if marker == "*" else 7
    ax.plot([x], [y], marker, color=colour, markerfacecolor=filled, markersize=size, clip_on=False, zorder=5)


def _height(advice: "Advice", found: Prediction) -> float:
    """Its bound; nothing is drawn far below the trivial one, and 0 has no logarithm."""
    return max(found.bound or 0.0, LEAST * advice.case.trivial)


def _place(ax: "Axes", advice: "Advice", found: Prediction) -> tuple[float, float, bool]:
    """Where its point is drawn; what lies above the axes is drawn at their upper edge."""
    bound, top = _height(advice, found), ax.get_ylim()[1]
    return found.microseconds, min(bound, top), bound <= top


def _names(ax: "Axes", advice: "Advice", bounded: Sequence[Prediction]) -> None:
    """A name beside each point, at the first place where it covers no other name or point."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    points: list[Floats] = [ax.transData.transform(_place(ax, advice, found)[:2]) for found in bounded]
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    for i, (found, point) in enumerate(zip(bounded, points, strict=True)):
        x, y, inside = _place(ax, advice, found)
        text = found.name + (f", l={found.sketch_size}" if found.sketch_size is not None else "")
        text += "" if inside else f" ({found.bound:.0e})"
        look: dict[str, Any] = {"color": COLOURS.get(found.policy, GREY), "fontsize": 9, "zorder": 6}
        look |= {"fontweight": "bold"} if found == advice.choice else {}
        name = ax.annotate(text, (x, y), (0, 0), textcoords="offset points", ha="left", va="bottom", **look)
        own = Text.get_window_extent(name)
        box = _free_box(ax, point, (own.width, own.height), taken[:i] + taken[i + 1 :])
        scale = 72.0 / _dpi(ax)
        name.set_position(((box.x0 - point[0]) * scale, (box.y0 - point[1]) * scale))
        taken.append(box)
        end = (np.clip(point[0], box.x0, box.x1), np.clip(point[1], box.y0, box.y1))
        if np.hypot(end[0] - point[0], end[1] - point[1]) * scale > 1.5 * DISTANCES[0]:
            line = ax.transData.inverted().transform(np.array([point, end]))
            ax.plot(*line.T, color=look["color"], linewidth=0.6)


def _free_box(ax: "Axes", point: Any, size: tuple[float, float], taken: Sequence[Any]) -> Any:
    """The nearest box of this size beside the point that lies inside the axes and on nothing that is taken."""
    from matplotlib.transforms import Bbox

    dots, (width, height) = _dpi(ax) / 72.0, size
    for distance in DISTANCES:
        for right, up in SIDES:
            x = point[0] + right * (distance * dots + width / 2) - width / 2
            y = point[1] + up * (distance * dots + height / 2) - height / 2
            box = Bbox.from_bounds(x, y, width, height)
            inside = ax.bbox.x0 <= box.x0 and box.x1 <= ax.bbox.x1 and ax.bbox.y0 <= box.y0
            if inside and box.y1 <= ax.bbox.y1 and not any(box.overlaps(other) for other in taken):
                return box
    return Bbox.from_bounds(point[0], point[1], width, height)  # crowded: over others rather than nowhere


def _dpi(ax: "Axes") -> float:
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure.dpi
