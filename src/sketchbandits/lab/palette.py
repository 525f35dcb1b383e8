"""One palette: the colour and the line of each policy in every figure, advice and benchmark."""

from collections.abc import Sequence
from typing import Any

from sketchbandits.policies.registry import PolicySpec

LineStyle = Any  # Matplotlib takes a name or a pattern of dashes
Appearance = tuple[str, LineStyle]  # colour and line style of a curve

# The colours of Okabe and Ito, which colour-blind readers can tell apart, and others for policies beyond the paper's.
COLOURS = {
    "cslb": "#0072B2",
    "oful": "#D55E00",
    "soful": "#CC79A7",
    "cbscfd": "#009E73",
    "ucb1": "#000000",
    "linucb": "#56B4E9",
    "lints": "#E69F00",
    "dbslinucb": "#882255",
    "cbrap": "#999999",
    "multiscale": "#B01030",
    "hybrid": "#5E3C99",
}
LINES = {"soful": "-.", "cbscfd": "-.", "dbslinucb": "-.", "cbrap": ":"}  # every other one is solid
GREY, SHADE = "#6E6E6E", "#E8F1E4"
_MORE_LINES: tuple[LineStyle, ...] = (
    "-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (1, 3)), (0, (8, 4)),
)  # fmt: skip


def colour_of(policy: PolicySpec) -> str:
    """The policy's colour, whatever its options."""
    return COLOURS[policy.name]


def line_of(policy: PolicySpec) -> LineStyle:
    """A Matplotlib line style; dashed where the policy has options of its own."""
    return "--" if policy.options else LINES.get(policy.name, "-")


def appearances(policies: Sequence[PolicySpec]) -> dict[PolicySpec, Appearance]:
    """Colour and line of every policy; of two that would be drawn alike, the later one gets another line."""
    found: dict[PolicySpec, Appearance] = {}
    for policy in policies:
        colour, line = colour_of(policy), line_of(policy)
        free = (other for other in (line, *_MORE_LINES) if (colour, other) not in found.values())
        found[policy] = (colour, next(free, line))
    return found
