"""How every figure looks: panels, colours and lines, names at the ends of curves, axes and their numbers."""

import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy  # submodules load on first use

from sketchbandits.kernels.linalg import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.text import Annotation

MOST_NAMES = 11  # curves named where they end; more of them go into a legend
SMALL = 9.5
NEAR, FAR = 5, 13  # points from the edge to a name, without and with a line to it
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


@contextmanager
def style() -> Iterator[None]:
    """Fonts, lines and grids of every figure drawn meanwhile; the same bytes for the same figure."""
    import matplotlib  # drawing is optional and slow to load

    with matplotlib.rc_context(_STYLE):
        yield


def panels(
    columns: Collection[str], rows: Collection[str], ylabel: str, xlabel: str, *, height: float = 3.3, **shared: Any
) -> "Figure":
    """Panels with one title per column and one label per row."""
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


def name_curve(ax: "Axes", x: float, y: float, text: str, colour: str) -> "Annotation":
    """A curve's name at the right edge, with a line to the curve's end; `keep_names_apart` gives it its height."""
    from matplotlib.text import OffsetFrom

    if len(text) > 18:
        text = text.replace(" (", "\n(").replace(", ", ",\n")
    arrow = {"arrowstyle": "-", "color": colour, "linewidth": 0.8, "relpos": (0, 0.5), "shrinkA": 1, "shrinkB": 3}
    place: dict[str, Any] = {"textcoords": OffsetFrom(ax.bbox, (1, 0), "points"), "va": "center"}
    style: dict[str, Any] = {"color": ink(colour), "arrowprops": arrow, "annotation_clip": False, "fontsize": 10}
    return ax.annotate(text, (x, y), (FAR, 0), **place, **style)


def keep_names_apart(figure: "Figure", names: Sequence["Annotation"]) -> "Figure":
    """Fix the layout, then put the names of each panel next to their curves, moved apart only as far as needed."""
    from matplotlib.text import Text

    engine = figure.get_layout_engine()
    assert engine is not None
    engine.execute(figure)
    figure.set_layout_engine("none")
    for ax in figure.axes:
        own = [name for name in names if name.axes is ax]
        ends = np.array([ax.transData.transform(name.xy)[1] for name in own])
        heights = np.array([Text.get_window_extent(name).height + 1.0 for name in own])
        places = apart(ends, heights, ax.bbox.y0, ax.bbox.y1)
        moved = bool((abs(places - ends) > 2).any())
        for name, place in zip(own, places, strict=True):
            name.xyann = (FAR if moved else NEAR, (place - ax.bbox.y0) * 72 / figure.dpi)
            assert name.arrow_patch is not None
            name.arrow_patch.set_visible(moved)
    return figure


def apart(wanted: Floats, heights: Floats, low: float, high: float) -> Floats:
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


def ink(colour: str) -> str:
    """The colour, darkened until text in it has a contrast of 4.5 on white."""
    from matplotlib.colors import to_hex, to_rgb

    rgb = np.array(to_rgb(colour))
    while np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722) > 0.183:
        rgb *= 0.97
    return to_hex(rgb.tolist())


def size_axes(panels: Sequence["Axes"], sizes: Sequence[int], *, short: bool = False) -> None:
    """Logarithms on both axes, ticks at the sizes played."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    pad = (sizes[-1] / sizes[0]) ** 0.05
    for ax in panels:
        ax.set(xscale="log", yscale="log", xlim=(sizes[0] / pad, sizes[-1] * pad))
        ax.xaxis.set_major_locator(FixedLocator(list(sizes)))
        ax.xaxis.set_minor_locator(NullLocator())
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    for ax in panels:
        plain_log(ax.yaxis, short=short)


def plain_log(axis: "Axis", *, short: bool = False) -> None:
    """Plain numbers on a logarithmic axis: powers of ten, with 2 and 5 between them where there are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high / low > 100 else (1.0, 2.0, 5.0)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: thousands(value) if short else f"{value:,g}"))


def thousands(value: float) -> str:
    """5000 as 5k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def two_digits(value: float) -> str:
    """At least two digits: 0.10, 1.2, 12, 123."""
    exponent = math.floor(math.log10(float(f"{value:.1e}")))
    return f"{value:,.{max(0, 1 - exponent)}f}"
