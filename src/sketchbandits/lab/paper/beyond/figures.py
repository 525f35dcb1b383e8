"""The figures of `beyond`: every set's ratio by family, and regret against time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sketchbandits.environments.generators import NORMALIZATIONS
from sketchbandits.lab import drawing, palette
from sketchbandits.lab.experiments.study import Study
from sketchbandits.lab.paper.beyond.plan import FRONTIER, OURS
from sketchbandits.lab.paper.beyond.rows import MOST_MEAN, MOST_RATIO, Row
from sketchbandits.policies.registry import PolicySpec

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def ratio_figure(rows: Sequence[Row]) -> "Figure":
    """A dot per set, by family: its ratio to the best rival with a guarantee at the last horizon."""
    from matplotlib.figure import Figure

    families = list(dict.fromkeys(row.family for row in rows))
    with drawing.style():
        figure = Figure(figsize=(8.5, 1.4 + 0.32 * len(families)), layout="constrained")
        ax = figure.subplots()
        for limit, label, side in ((MOST_MEAN, "mean at most", "right"), (MOST_RATIO, "each at most", "left")):
            ax.axvline(limit, color=palette.GREY, linestyle="--", linewidth=1)
            style: dict[str, Any] = {"fontsize": drawing.SMALL, "color": palette.GREY, "va": "bottom", "ha": side}
            ax.annotate(f" {label} {limit:g} ", (limit, -0.5), **style)
        for normalize in NORMALIZATIONS:
            own = [row for row in rows if row.normalize == normalize]
            x, y = [row.reaches[-1].ratio for row in own], [families.index(row.family) for row in own]
            filled = palette.colour_of(OURS) if normalize == NORMALIZATIONS[0] else "white"
            ax.plot(x, y, "o", color=palette.colour_of(OURS), markerfacecolor=filled, label=f"norm: {normalize}")
        ax.set_yticks(range(len(families)), families)
        ax.set_ylim(len(families) - 0.5, -1.1)
        ax.set_xlim(left=0.0)
        ax.set_xlabel(f"regret over the best rival's, {max(row.reaches[-1].rounds for row in rows):,} rounds")
        ax.legend(loc="best")
    return figure


def frontier_figure(study: Study) -> "Figure":
    """Regret against time per round for every policy: down and to the left is better."""
    from matplotlib.figure import Figure

    with drawing.style():
        figure = Figure(figsize=(10.5, 4.6), layout="constrained")
        panels = figure.subplots(1, len(FRONTIER), squeeze=False)[0]
        for ax, (name, (n_arms, dim, size, group)) in zip(panels, FRONTIER.items(), strict=True):
            experiment = study["frontier"]
            for key in experiment:
                if key[0] == name:
                    _point(ax, PolicySpec.parse(key[2]), experiment[key])
            rounds = experiment.groups[name, "max", str(OURS)][0].rounds
            ax.set_title(f"{n_arms:,} arms, d = {dim}, l = {size}, {group} per direction")
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel("microseconds per round")
            ax.margins(x=0.22, y=0.12)
            drawing.plain_log(ax.xaxis)
            drawing.plain_log(ax.yaxis)
        panels[0].set_ylabel(f"mean regret after {rounds:,} rounds")
    return figure


def _point(ax: Any, policy: PolicySpec, runs: Any) -> None:
    x, y = float(np.median(runs.microseconds)), float(runs.regret.mean())
    ours = policy == OURS
    ax.plot(x, y, "o", color=palette.colour_of(policy), markersize=11 if ours else 7)
    weight = "bold" if ours else "normal"
    style = {"color": drawing.ink(palette.colour_of(policy)), "fontsize": drawing.SMALL, "fontweight": weight}
    offset = (0, -19) if ours else (0, 8)
    ax.annotate(policy.label, (x, y), xytext=offset, textcoords="offset points", ha="center", **style)
