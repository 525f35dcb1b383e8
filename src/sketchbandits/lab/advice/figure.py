"""Time per round and regret bound: one point per policy, the frontier of the best, and the budget."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab import drawing
from sketchbandits.lab.advice.candidates import ESTIMATED, Candidate
from sketchbandits.lab.advice.recommend import microseconds_of
from sketchbandits.lab.advice.report import in_order
from sketchbandits.lab.palette import COLOURS, GREY
from sketchbandits.policies.registry import POLICIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sketchbandits.lab.advice.advisor import Advice

LIMIT = "#B00020"  # the colour of the budget
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
        shown = in_order(advice.finalists)
        bounded = [found for found in shown if found.bound is not None]
        _axes(ax, advice, shown)
        _lines(ax, advice, bounded)
        for found in bounded:
            _point(ax, advice, found)
        figure.draw_without_rendering()  # sizes of texts and the places of points are known from here on
        _names(ax, advice, bounded)
    return figure


def _axes(ax: "Axes", advice: "Advice", shown: Sequence[Candidate]) -> None:
    from matplotlib.ticker import FuncFormatter

    times = [microseconds_of(found) for found in shown]
    times += [] if advice.budget_us is None else [advice.budget_us]
    bounds = [_height(advice, found) for found in shown if found.bound is not None]
    low, high = min(times), max(times)
    # Never less than a factor of four wide: close points would otherwise pretend to differ.
    margin = max(1.35, (4.0 * low / high) ** 0.5)
    ax.set(xscale="log", yscale="log", xlim=(low / margin, high * margin * 1.5))
    ax.set_ylim(BELOW * min(*bounds, advice.case.trivial), ABOVE * max(advice.case.trivial, min(bounds)))
    rounds = f"{advice.case.rounds:,} rounds"
    ax.set(xlabel="microseconds per round, select and update from Python", ylabel=f"regret bound at {rounds}")
    ax.set_title(f"{advice.facts.n_arms:,} arms of rank {advice.facts.rank:,} in {advice.facts.dim:,} dimensions")
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


def _lines(ax: "Axes", advice: "Advice", bounded: Sequence[Candidate]) -> None:
    """The trivial bound, the budget and the frontier."""
    ax.axhline(advice.case.trivial, color=GREY, linestyle=":", linewidth=1.2)
    style: dict[str, Any] = {"color": GREY, "fontsize": 9, "xycoords": ("axes fraction", "data")}
    ax.annotate(
        "trivial: 2 S L T", (0.995, advice.case.trivial), (0, 3), ha="right", textcoords="offset points", **style
    )
    if advice.budget_us is not None:
        ax.axvline(advice.budget_us, color=LIMIT, linestyle="--", linewidth=1.2)
        ax.axvspan(advice.budget_us, ax.get_xlim()[1], color=LIMIT, alpha=0.05, linewidth=0)
        style |= {"color": LIMIT, "xycoords": ("data", "axes fraction")}
        text = f"budget: {advice.budget_us:g} us"
        ax.annotate(text, (advice.budget_us, 0.01), (-4, 0), ha="right", textcoords="offset points", **style)
    best: list[Candidate] = []
    for found in sorted(bounded, key=lambda found: (microseconds_of(found), found.bound or 0.0)):
        if found.guarantee != ESTIMATED and (not best or (found.bound or 0.0) < (best[-1].bound or 0.0)):
            best.append(found)
    x, y = [microseconds_of(found) for found in best], [_height(advice, found) for found in best]
    edge = ax.get_xlim()[1]
    ax.plot(
        [x[0], *x, edge], [ax.get_ylim()[1], *y, y[-1]], drawstyle="steps-post", color="#BBBBBB", linewidth=5, alpha=0.5
    )


def _point(ax: "Axes", advice: "Advice", found: Candidate) -> None:
    """A policy at its best sketch size: hollow where the bound is an estimate, a star where it is recommended."""
    x, y, inside = _place(ax, advice, found)
    marker = "^" if not inside else "*" if found == advice.choice else "o"
    colour = _colour(found)
    filled = colour if found.guarantee != ESTIMATED else "white"
    size = 15 if marker == "*" else 7
    ax.plot([x], [y], marker, color=colour, markerfacecolor=filled, markersize=size, clip_on=False, zorder=5)


def _colour(found: Candidate) -> str:
    return next((COLOURS[name] for name, known in POLICIES.items() if known.policy.__name__ == found.policy), GREY)


def _height(advice: "Advice", found: Candidate) -> float:
    """Its bound; nothing is drawn far below the trivial one, and 0 has no logarithm."""
    return max(found.bound or 0.0, LEAST * advice.case.trivial)


def _place(ax: "Axes", advice: "Advice", found: Candidate) -> tuple[float, float, bool]:
    """Where its point is drawn; what lies above the axes is drawn at their upper edge."""
    bound, top = _height(advice, found), ax.get_ylim()[1]
    return microseconds_of(found), min(bound, top), bound <= top


def _names(ax: "Axes", advice: "Advice", bounded: Sequence[Candidate]) -> None:
    """A name next to each point, at the first place where it covers no other name or point."""
    from matplotlib.text import Text
    from matplotlib.transforms import Bbox

    points: list[Floats] = [ax.transData.transform(_place(ax, advice, found)[:2]) for found in bounded]
    taken = [Bbox.from_extents(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    for i, (found, point) in enumerate(zip(bounded, points, strict=True)):
        x, y, inside = _place(ax, advice, found)
        text = found.name + (f", l={found.sketch_size}" if found.sketch_size is not None else "")
        text += "" if inside else f" ({found.bound:.0e})"
        style: dict[str, Any] = {"color": drawing.ink(_colour(found)), "fontsize": 9, "zorder": 6}
        style |= {"fontweight": "bold"} if found == advice.choice else {}
        name = ax.annotate(text, (x, y), (0, 0), textcoords="offset points", ha="left", va="bottom", **style)
        own = Text.get_window_extent(name)
        box = _free_box(ax, point, (own.width, own.height), taken[:i] + taken[i + 1 :])
        scale = 72.0 / _dpi(ax)
        name.set_position(((box.x0 - point[0]) * scale, (box.y0 - point[1]) * scale))
        taken.append(box)
        end = (np.clip(point[0], box.x0, box.x1), np.clip(point[1], box.y0, box.y1))
        if np.hypot(end[0] - point[0], end[1] - point[1]) * scale > 1.5 * DISTANCES[0]:
            line = ax.transData.inverted().transform(np.array([point, end]))
            ax.plot(*line.T, color=style["color"], linewidth=0.6)


def _free_box(ax: "Axes", point: Any, size: tuple[float, float], taken: Sequence[Any]) -> Any:
    """The nearest box of this size next to the point that lies inside the axes and on nothing that is taken."""
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
