"""``sketchbandits features``: a schema for a table, to be read, edited and passed on as ``--features``."""

import shlex
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from sketchbandits.arms_file import proposed
from sketchbandits.cli import terminal
from sketchbandits.cli.flags import SCHEMA, bad_values_refused, flag, is_schema, words
from sketchbandits.features import Features


def command(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="Arms, one per row: .csv or .parquet.")],
    id_column: Annotated[str | None, flag("NAME", "The column that names the rows.", "id or ..._id, if any")] = None,
    ignore: Annotated[str | None, flag("NAME,NAME", "Columns that are not encoded.", "none")] = None,
    out: Annotated[str | None, flag("FILE.json", "Write the schema to this file.", "only shown")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE.json if it exists.")] = False,
) -> None:
    """Propose a schema for a table of numbers, texts and gaps, and say why.

    Columns become features of similar size: numbers, categories, hashed texts.
    Edit what you know better, then pass it to `simulate`, `inspect` or `serve`
    as --features FILE.json.
    """
    with bad_values_refused(arms="TABLE"):
        if out is not None:
            _check_out(out, force=force)
        with terminal.unreadable_files_refused():
            schema, hints = proposed(table, id_column=id_column, ignore=() if ignore is None else words(ignore))
    print(schema.describe())
    for hint in hints:
        print(textwrap.fill(hint, terminal.WIDTH, initial_indent="! ", subsequent_indent="  "))
    if out is not None:
        _write(schema, out)
        print(f"Wrote {shlex.quote(out)}: pass it on as --features {shlex.quote(out)}")


def _check_out(out: str, *, force: bool) -> None:
    if not is_schema(out):
        raise ValueError(f"out must end in {SCHEMA}, by which --features tells a schema from columns, got {out!r}")
    if not Path(out).parent.is_dir():
        raise ValueError(f"out must lie in a folder that exists, got {out!r}")
    if not force and Path(out).exists():
        raise ValueError(f"out must be a new file, or come with --force, got {out!r}, which exists")


def _write(schema: Features, out: str) -> None:
    try:
        schema.save(out)
    except OSError as error:
        reason = error.strerror or str(error)
        terminal.stop(terminal.IO_ERROR, f"--out must be a file that can be written, got {out!r}: {reason}")
