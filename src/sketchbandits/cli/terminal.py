"""What the command line shows: progress with the time left, tables of 80 columns, one line for whatever goes wrong."""

import contextlib
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from sketchbandits.lab.intervals import interval
from sketchbandits.lab.paper.beyond import OURS, RIVALS, Row, targets
from sketchbandits.lab.paper.claims.verdict import Verdict
from sketchbandits.lab.pool import Watch
from sketchbandits.lab.study import Experiment
from sketchbandits.lab.tables import contenders, places
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.progress import Bar

WIDTH = 80
IO_ERROR, BAD_INPUT, INTERRUPTED = 1, 2, 130
STEPS = 4  # lines of progress where there is no terminal to redraw


def stop(code: int, message: str) -> NoReturn:
    """End with one line on stderr."""
    if message:  # empty where Typer has printed its help instead
        print(" ".join(message.split()), file=sys.stderr)
    sys.exit(code)


@contextlib.contextmanager
def disk_errors_refused(folder: Path) -> Iterator[None]:
    """A full disk or a folder that cannot be written is one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        stop(IO_ERROR, f"--out must be a folder that can be written to, got {str(folder)!r}: {reason}")


@contextlib.contextmanager
def unreadable_files_refused() -> Iterator[None]:
    """A file that is missing or may not be read is one line."""
    try:
        yield
    except OSError as error:
        stop(IO_ERROR, f"{error.filename!r} must be a file that can be read: {error.strerror or error}")


@contextlib.contextmanager
def progress() -> Iterator[Watch]:
    """One bar with the time left on a terminal; elsewhere a few lines."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    with Bar(True, delay=0.0) as bar:
        bar.show(0.0, "starting")
        # Compiling and playing have their own clocks: a stage begins with a share of 0.
        yield lambda stage, what, share: bar.show(share, f"{stage}: {what}")


class _Lines:
    """A line when a stage begins and at every quarter."""

    def __init__(self) -> None:
        self.stage, self.step = "", 0

    def __call__(self, stage: str, what: str, share: float) -> None:
        step = int(share * STEPS)
        if stage != self.stage or (step > self.step and step < STEPS):
            shown = f" ({share:.0%})" if share > 0.0 else ""
            print(f"{stage}: {what}{shown} ...", file=sys.stderr, flush=True)
        self.stage, self.step = stage, step


def wide_table(study: Mapping[str, Experiment]) -> None:
    """One line a data set and normalisation, one column a policy: mean regret, then time a round."""
    policies = contenders(study["regret"])
    for name, heading in (("regret", "mean regret"), ("time", "microseconds a round")):
        headings = [heading, *(policy.label for policy in policies)]
        rows = [[f"({d}) {n}", *_cells(study[name], (d, n), policies, name)] for d, n in places(study["regret"])]
        print_table(headings, rows)


def _cells(experiment: Experiment, place: tuple[Any, str], policies: Sequence[PolicySpec], name: str) -> Iterator[str]:
    for policy in policies:
        runs = experiment[*place, str(policy)]
        yield f"{runs.regret.mean():,.0f}" if name == "regret" else f"{runs.microseconds.mean():,.2f}"


def long_table(study: Mapping[str, Experiment]) -> None:
    """One line a policy, from the least mean regret to the largest."""
    rows = []
    for key, runs in sorted(study["regret"].items(), key=lambda item: item[1].regret.mean()):
        band, timed = interval(runs.regret), study["time"][key]
        shown = "-" if np.isnan(band.low) else f"{band.low:,.1f} .. {band.high:,.1f}"
        times = [f"{timed.microseconds.mean():,.2f}", f"{1e3 * timed.warmup_seconds.mean():,.2f}"]
        rows.append([key[-1], f"{band.mean:,.1f}", shown, *times])
    print_table(["policy", "regret", "95 % interval", "us/round", "warm-up ms"], rows)


def beyond_table(rows: Sequence[Row]) -> None:
    """One line a data set: multi-scale's regret beside its rivals', the ratio to the best and its upper end."""
    headings = ["data", "norm", "multi-scale", *(rival.label for rival in RIVALS), "ratio", "upper", "time"]
    shown = [
        [
            row.scene,
            row.normalize,
            *(f"{row.regrets[str(policy)]:,.0f}" for policy in (OURS, *RIVALS)),
            *(f"{value:.2f}" for value in (row.ratio, row.upper, row.times)),
        ]
        for row in rows
    ]
    print_table(headings, shown, left=2)
    print(textwrap.fill(targets(list(rows)).sentence, WIDTH))


def verdict_table(verdicts: Iterable[Verdict]) -> None:
    """One line a claim, more where the verdict is long."""
    print_table(["claim", "verdict"], [[verdict.claim.id, verdict.text] for verdict in verdicts], left=2)


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, group: int | None = None
) -> None:
    """A table of text: ``left`` columns of words come first; a change in column ``group`` starts a new section."""
    from rich import box  # as in `progress`
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="left" if i < left else "right", overflow="fold")
    last: Sequence[str] | None = None
    for row in rows:
        if group is not None and last is not None and row[group] != last[group]:
            table.add_section()
        table.add_row(*row)
        last = row
    # A file or a pipe gets the same 80 columns as the smallest terminal.
    width = None if sys.stdout.isatty() else WIDTH
    Console(width=width, highlight=False).print(table)


def wrote(folder: Path, files: Sequence[str]) -> None:
    """Where the results are: the page to open first."""
    print(f"Wrote {len(files)} files. The page to open in a browser:\n{folder / 'report.html'}")


def wrote_advice(folder: Path) -> None:
    """Where an inspection's results are."""
    print(f"\nWrote advice.txt, advice.json and advice.png, to\n{folder}")
