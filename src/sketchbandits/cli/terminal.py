"""What every command shares: exit codes, one line for what goes wrong, tables of 80 columns."""

import contextlib
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

WIDTH = 80
IO_ERROR, BAD_INPUT, INTERRUPTED = 1, 2, 130


def stop(code: int, message: str) -> NoReturn:
    """End with one line on stderr."""
    if message:  # empty where Typer has printed its help instead
        print(" ".join(message.split()), file=sys.stderr)
    sys.exit(code)


def out_of_memory(error: MemoryError) -> NoReturn:
    """End with one line where the arms are too many or too large."""
    stop(IO_ERROR, f"arms and policies must fit into memory: {str(error) or 'they do not'}")


@contextlib.contextmanager
def disk_errors_refused(folder: Path) -> Iterator[None]:
    """A full disk or a folder that cannot be written ends the command with one line."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        stop(IO_ERROR, f"--out must be a folder that can be written to, got {str(folder)!r}: {reason}")


@contextlib.contextmanager
def unreadable_files_refused() -> Iterator[None]:
    """A file that is missing or may not be read ends the command with one line."""
    try:
        yield
    except OSError as error:
        stop(IO_ERROR, f"{error.filename!r} must be a file that can be read: {error.strerror or error}")


def output_folder(out: str) -> Path:
    """The folder of ``--out``, made and tried: better refused now than after the last round."""
    if not out:
        stop(BAD_INPUT, "--out must be the path of a folder, got ''")
    folder = Path(out)
    with disk_errors_refused(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    return folder


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1, group: int | None = None
) -> None:
    """A table of text: ``left`` columns of words come first; a change in column ``group`` starts a new section."""
    from rich import box  # only where a table is shown: start-up stays short
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
