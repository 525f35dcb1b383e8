"""What a workload is: points to measure, a way to measure one, and what all of them say in a table and a figure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Point(NamedTuple):
    """One measurement: a few words for it, all that it depends on except the seed, about how many seconds it takes."""

    label: str
    parameters: dict[str, Any]
    seconds: float


class Measured(NamedTuple):
    """A point's parameters and what was measured there: plain numbers, lists and words, as JSON has them."""

    parameters: dict[str, Any]
    samples: dict[str, Any]


class Session(NamedTuple):
    """What a measurement may use in addition to its parameters."""

    seed: int
    folder: Path  # for what is to be kept between runs
    show: Callable[[str, float], None]  # what is being done, and the share of this point that is done


@dataclass(frozen=True)
class Summary:
    """What a workload says: a table of text, remarks below it, and the facts that its figure and its JSON hold."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    left: int = 1  # columns that are words
    group: int | None = None  # the column at whose changes the table has a line


@dataclass(frozen=True)
class Workload:
    """One question about cost. ``full`` and ``quick`` are its two sets of sizes."""

    name: str
    title: str
    full: Any
    quick: Any
    points: Callable[[Any], list[Point]]
    measure: Callable[[dict[str, Any], Session], dict[str, Any]]
    summarise: Callable[[Sequence[Measured]], Summary]
    draw: Callable[[dict[str, Any]], "Figure"]  # of a summary's facts
