"""``sketchbandits log``: check every record of a service's log, or cut it back."""

from pathlib import Path
from typing import Annotated

import typer

from sketchbandits import validate
from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, flag, whole
from sketchbandits.cli.state import DEFAULT, database_of, verified_records
from sketchbandits.service.folder import SNAPSHOTS, set_snapshots_aside
from sketchbandits.service.log import LogDamaged, LogInUse, cut_back


def command(
    source: Annotated[str, typer.Argument(metavar="STATE", help="The folder of a service, or postgresql://...")],
    cut: Annotated[str | None, flag("N", "Cut the log back: keep aside record N and all after it.")] = None,
    state: Annotated[str | None, flag("DIR", "With postgresql://...: the folder of all other state.", DEFAULT)] = None,
) -> None:
    """Check every record of a log; with --cut, give up what follows the damage."""
    database = database_of(source)
    snapshots = _snapshots(source, database, state)
    if cut is None:
        with verified_records(database) as records:
            count = sum(1 for _ in records)
        print(f"{count:,} records, all good")
        return
    with bad_values_refused():
        try:
            done = cut_back(database, validate.whole("cut", whole(cut)))
            aside = set_snapshots_aside(snapshots, done.first)
        except (LogDamaged, LogInUse, OSError) as error:
            terminal.stop(terminal.IO_ERROR, str(error))
    print(f"cut back at record {done.first}: {done.records} records kept in {done.kept_in}")
    print(f"{aside} snapshot{'' if aside == 1 else 's'} set aside in {snapshots}")


def _snapshots(source: str, database: str, state: str | None) -> Path:
    """Where the snapshots of a log are: in the folder of a log file, for a database in the state folder of `serve`."""
    if "://" in source:
        return Path(state or DEFAULT) / SNAPSHOTS
    if state is not None:
        terminal.stop(terminal.BAD_INPUT, f"--state must be left out unless STATE is postgresql://..., got {state!r}")
    return Path(database).parent / SNAPSHOTS
