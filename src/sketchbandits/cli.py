"""The command line: ``sketchbandits compare``.

Exit codes: 0 done, 1 a file or folder could not be written, 2 bad input, 130 interrupted. Whatever goes wrong is one
line on stderr. Results go to stdout, progress to stderr.
"""

import contextlib
import io
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from sketchbandits import __version__
from sketchbandits.experiments.compare import CONTENDERS, Comparison, Plan, Watch, compare, write_together
from sketchbandits.experiments.paper import HORIZON

IO_ERROR, BAD_INPUT, INTERRUPTED = 1, 2, 130
DEFAULTS = Plan()

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """The console entry."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± or µ is no reason to fail
    try:
        sys.exit(app(standalone_mode=False))
    except KeyboardInterrupt:
        _interrupted()
    except Exception as error:
        # Typer's own refusals, such as an unknown option. Their class differs: some versions bring their own Click.
        if not hasattr(error, "format_message"):
            raise
        _stop(BAD_INPUT, error.format_message())


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sketchbandits {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Linear bandits under a fixed compute budget."""


# Values arrive as text and `Plan` checks them, so that every refusal reads alike.
@app.command("compare")
def compare_command(
    dataset: Annotated[str, typer.Option(metavar="1|2|3|4", help="The paper's data set.")] = str(DEFAULTS.dataset),
    rounds: Annotated[str, typer.Option(metavar="N", help="The length of every run.")] = str(DEFAULTS.rounds),
    runs: Annotated[str, typer.Option(metavar="N", help="Runs, each with new arms, hidden parameter and noise.")] = str(
        DEFAULTS.runs
    ),
    normalize: Annotated[
        str, typer.Option(metavar="max|unit", help="Scale all arms by the largest norm, or each by its own.")
    ] = DEFAULTS.normalize,
    seed: Annotated[str, typer.Option(metavar="N", help="The same seed gives the same regrets.")] = str(DEFAULTS.seed),
    out: Annotated[
        str, typer.Option(metavar="DIR", help="The folder for summary.csv, regret.png and regret.svg.")
    ] = "results/compare",
    policies: Annotated[
        str, typer.Option(metavar="NAME,NAME", help=f"Some of {', '.join(CONTENDERS)}.", show_default="all")
    ] = ",".join(DEFAULTS.policies),
) -> None:
    """Play all policies on one of the paper's data sets: a table, a figure, a CSV file.

    Times are wall-clock: compare them on an idle machine only.
    """
    try:
        plan = _plan(dataset, normalize, policies, rounds, runs, seed)
        folder = _folder(out)
        with _progress() as watch:
            comparison = compare(plan, watch)
        files = comparison.files()
        with _disk_errors_refused(folder):
            write_together(folder, files)
        _report(comparison, folder, list(files))
    except KeyboardInterrupt:  # not in `main` alone: Typer would turn it into a silent exit
        _interrupted()


def _plan(dataset: str, normalize: str, policies: str, rounds: str, runs: str, seed: str) -> Plan:
    names = tuple(name.strip() for name in policies.split(","))
    try:
        return Plan(_whole(dataset), normalize, names, _whole(rounds), _whole(runs), _whole(seed))
    except ValueError as error:
        _stop(BAD_INPUT, f"--{error}")  # a plan's fields have the names of the flags


def _whole(text: str) -> Any:
    """The number, or the text itself for `Plan` to refuse."""
    with contextlib.suppress(ValueError):
        return int(text)
    return text


def _folder(out: str) -> Path:
    """The folder, there and writable: better refused now than after the last round."""
    if not out:
        _stop(BAD_INPUT, "--out must be the path of a folder, got ''")
    folder = Path(out)
    with _disk_errors_refused(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    return folder


@contextlib.contextmanager
def _disk_errors_refused(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        _stop(IO_ERROR, f"--out must be a folder that can be written to, got {str(folder)!r}: {error.strerror}")


@contextlib.contextmanager
def _progress() -> Iterator[Watch]:
    """One bar with the time left on a terminal; elsewhere one line a stage."""
    if not sys.stderr.isatty():
        yield _announce
        return
    from rich.console import Console  # only where a bar is shown: start-up stays short
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.percentage:.0f}%"))
    times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, *times, console=Console(stderr=True), transient=True, expand=True) as bar:
        task = bar.add_task("starting", total=1.0)

        def watch(stage: str, what: str, share: float) -> None:
            description = f"{stage}: {what}"
            if share == 0.0:
                bar.reset(task, description=description)  # every stage has its own clock
            else:
                bar.update(task, completed=share, description=description)

        yield watch


def _announce(stage: str, what: str, share: float) -> None:
    if share == 0.0:
        print(f"{stage} ...", file=sys.stderr, flush=True)


def _report(comparison: Comparison, folder: Path, files: list[str]) -> None:
    from rich import box  # as in `_progress`
    from rich.console import Console
    from rich.table import Table

    plan = comparison.plan
    runs = "1 run" if plan.runs == 1 else f"{plan.runs} runs"
    print(f"{plan.data}, {plan.normalize} norm\n{plan.rounds:,} rounds, {runs}, seed {plan.seed}")
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("policy", no_wrap=True)
    for heading in ("regret", "± 95 %", "µs/round", "warm-up ms"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, regret, half_width, microseconds, warmup in comparison.standings():
        band = "-" if math.isnan(half_width) else f"{half_width:,.1f}"
        table.add_row(name, f"{regret:,.1f}", band, f"{microseconds:,.2f}", f"{warmup:,.2f}")
    Console().print(table)
    print(f"Wrote {', '.join(files)} to {folder}{os.sep}")
    if plan.rounds < HORIZON:
        print(f"A short run can flatter sketches: the paper's claims need about {HORIZON:,} rounds.")


def _interrupted() -> NoReturn:
    _stop(INTERRUPTED, "interrupted: no file was left half-written")


def _stop(code: int, message: str) -> NoReturn:
    if message:  # empty where Typer has printed its help instead
        print(message, file=sys.stderr)
    sys.exit(code)
