"""What both examples share: options, a table of 80 columns, and one-line messages when a run ends early."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from sketchbandits.lab.intervals import interval

WIDTH = 80
BAD_INPUT, INTERRUPTED = 2, 130


def options(description: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """The options that every example has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=_whole, default=rounds, help=f"length of a run (default {rounds})")
    parser.add_argument(
        "--runs", type=_whole, default=5, help="number of runs, each with its own random numbers (default 5)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random numbers (default 0)")
    return parser


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number >= 1, got {text!r}")
    return int(text)


def stop(code: int, message: str) -> NoReturn:
    """End with one line on stderr."""
    sys.stderr.write(f"{message}\n")
    sys.exit(code)


def run(main: Callable[[], None]) -> None:
    """Run an example; Ctrl-C ends it with one line."""
    try:
        main()
    except KeyboardInterrupt:
        stop(INTERRUPTED, "interrupted: no table, an unfinished comparison would not be one")


def band(values: NDArray[np.float64], places: int) -> list[str]:
    """The mean over runs and its 95 % interval; a dash for the interval if there is a single run."""
    found = interval(values)
    shown = "-" if np.isnan(found.low) else f"{found.low:,.{places}f} .. {found.high:,.{places}f}"
    return [f"{found.mean:,.{places}f}", shown]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table as wide as the smallest terminal; the first column is text, the others are numbers."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, heading in enumerate(headings):
        drawn.add_column(heading, justify="right" if i else "left")
    for row in rows:
        drawn.add_row(*row)
    Console(width=WIDTH, highlight=False).print(drawn)


def say(text: str) -> None:
    """Print text, wrapped."""
    Console(width=WIDTH, highlight=False, markup=False).print(text)
