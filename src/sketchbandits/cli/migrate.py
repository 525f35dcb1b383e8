"""``sketchbandits migrate``: give a log of an earlier format the one that this version writes."""

import contextlib
import json
from pathlib import Path
from typing import Annotated

import typer

from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, flag
from sketchbandits.cli.log import checked, snapshots_of
from sketchbandits.cli.state import DEFAULT, database_of
from sketchbandits.service.folder import snapshot_numbers
from sketchbandits.service.log import LogDamaged, LogInUse, NotStored, Uncertain, open_log
from sketchbandits.service.log.events import FORMAT

_MANIFEST = ".manifest.json"  # of a snapshot


def command(
    source: Annotated[str, typer.Argument(metavar="STATE", help="The folder of a service, or postgresql://...")],
    state: Annotated[str | None, flag("DIR", "With postgresql://...: the folder of all other state.", DEFAULT)] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say what would be done.")] = False,
) -> None:
    """Give a log of an earlier version the present format, while no service runs; every record is checked first."""
    database = database_of(source)
    snapshots = snapshots_of(source, database, state)
    count, found = checked(database)
    print(f"{count:,} records, all good")
    if found == FORMAT:
        print(f"the log has format {FORMAT}: nothing is to be done")
    elif check:
        print(f"the log has format {found}: it would get format {FORMAT}")
    else:
        _migrate(database)
    _print_snapshots(snapshots)


def _migrate(database: str) -> None:
    """Opening a log for writing is what changes its format."""
    try:
        with (
            bad_values_refused(database="STATE"),
            contextlib.closing(open_log(database, patience=0.0)) as log,
        ):
            cuts = (f"log cut back at record {cut.first}: {cut.reason}; kept in {cut.kept_in}" for cut in log.cuts)
            for line in (*cuts, *log.notes):
                print(line)
    except (LogDamaged, LogInUse, NotStored, Uncertain, OSError) as error:
        terminal.stop(terminal.IO_ERROR, str(error))


def _print_snapshots(folder: Path) -> None:
    """Say which snapshots the service will pass over; it needs none of them, since the log has everything."""
    try:
        from sketchbandits.service.bandits import snapshots  # the packages of a service are an extra
    except ModuleNotFoundError:
        return
    for number in snapshot_numbers(folder):
        found = _format_of(folder / str(number))
        if found not in snapshots.READABLE:
            named = "an unknown format" if found is None else f"format {found}"
            print(f"snapshot {number:,} has {named}: it is ignored, and written again by the service")


def _format_of(snapshot: Path) -> object:
    """The format that the manifest of a snapshot names; nothing where it cannot be read."""
    try:
        manifest = json.loads((snapshot / _MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return manifest.get("format") if isinstance(manifest, dict) else None
