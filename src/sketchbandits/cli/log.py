"""``sketchbandits log``: check every record of a service's log, list who changed what, or cut the log back."""

import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from sketchbandits import validate
from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, flag, whole
from sketchbandits.cli.state import DEFAULT, database_of, record_progress, verified_records
from sketchbandits.progress import stages
from sketchbandits.service.folder import SNAPSHOTS, set_snapshots_aside
from sketchbandits.service.log import LogDamaged, LogInUse, NotStored, cut_back, open_log
from sketchbandits.service.log.events import Kind, Record, parsed
from sketchbandits.service.log.scan import Fault, scanned

_SHOWN = 20  # faults
_PLAIN = (Kind.DECISION, Kind.REWARD, Kind.DEFAULT)


def command(
    source: Annotated[str, typer.Argument(metavar="STATE", help="The folder of a service, or postgresql://...")],
    cut: Annotated[str | None, flag("N", "Cut the log back: keep aside record N and all after it.")] = None,
    state: Annotated[str | None, flag("DIR", "With postgresql://...: the folder of all other state.", DEFAULT)] = None,
    audit: Annotated[bool, typer.Option("--audit", help="List every change of bandits, arms and keys.")] = False,
) -> None:
    """Check every record of a log; with --cut, give up what follows the damage."""
    database = database_of(source)
    snapshots = snapshots_of(source, database, state)
    if audit and cut is not None:
        terminal.stop(terminal.BAD_INPUT, "--audit must be left out where --cut is given")
    if audit:
        _print_changes(database)
    elif cut is None:
        count, _ = checked(database)
        print(f"{count:,} records, all good")
    else:
        _cut(database, cut, snapshots)


def _cut(database: str, cut: str, snapshots: Path) -> None:
    with bad_values_refused():
        try:
            done = cut_back(database, validate.whole("cut", whole(cut)))
            aside = set_snapshots_aside(snapshots, done.first)
        except (LogDamaged, LogInUse, OSError) as error:
            terminal.stop(terminal.IO_ERROR, str(error))
    print(f"cut back at record {done.first}: {done.records} records kept in {done.kept_in}")
    print(f"{aside} snapshot{'' if aside == 1 else 's'} set aside in {snapshots}")


def checked(database: str) -> tuple[int, int]:
    """How many records a log has, all of which are good, and its format; else what to do ends the command."""
    try:
        with bad_values_refused(database="STATE"), stages() as watch:
            with contextlib.closing(open_log(database, read_only=True)) as log:
                end, format = log.last.seq, log.format
            faults, count = scanned(database, end, record_progress(watch, "reading"))
    except (LogDamaged, NotStored, OSError) as error:
        terminal.stop(terminal.IO_ERROR, str(error))
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, "interrupted: nothing was changed")
    if faults:
        for fault in faults[:_SHOWN]:
            print(fault)
        if len(faults) > _SHOWN:
            print(f"and {len(faults) - _SHOWN} more places")
        terminal.stop(terminal.IO_ERROR, _advice(faults, count, "://" in database))
    return count, format


def _advice(faults: Sequence[Fault], end: int, in_server: bool) -> str:
    """What to do about damage: one or two sentences."""
    bad = [fault for fault in faults if not fault.in_index]
    if not bad and in_server:
        return (
            "the records are good, but the index does not find all of them: "
            "stop the service, and REINDEX INDEX one_outcome in the database"
        )
    if not bad:
        return (
            "the records are good, but the index does not find all of them: "
            "start the service once more, which rebuilds the index from the records"
        )
    first = bad[0].first
    if len(bad) == 1 and bad[0].last == end:
        return (
            f"the damage is at the end: the next start of the service cuts off what follows record {first - 1}, and "
            "keeps it aside"
        )
    return (
        "the damage is inside. A service that still runs has the lost records in memory: copy its folder of snapshots "
        "before it stops. Then restore the log from a backup, or give up everything from the first bad record on with "
        f"`sketchbandits log STATE --cut {first}`, which keeps what it cuts off"
    )


def _print_changes(database: str) -> None:
    with verified_records(database) as records:
        for record in records:
            if record.kind not in _PLAIN:
                print(_change(record))


def _change(record: Record) -> str:
    """When, what, of which bandit, with which key, how many arms."""
    data: dict[str, Any] = parsed(record.body)
    time = datetime.fromtimestamp(data["t"], UTC).isoformat(sep=" ", timespec="seconds") if "t" in data else "no time"
    arms = data.get("ids", data.get("arms"))
    count = "" if arms is None else f"  {len(arms):,} {'reward' if record.kind == Kind.RETRACTED else 'arm'}s"
    what = record.kind.name.lower().replace("_", " ")
    return f"{time}  {what}  {data.get('bandit', 'all bandits')}  by {data.get('by') or 'no key'}{count}"


def snapshots_of(source: str, database: str, state: str | None) -> Path:
    """Where the snapshots of a log are: in the folder of a log file, for a database in the state folder of `serve`."""
    if "://" in source:
        return Path(state or DEFAULT) / SNAPSHOTS
    if state is not None:
        terminal.stop(terminal.BAD_INPUT, f"--state must be left out unless STATE is postgresql://..., got {state!r}")
    return Path(database).parent / SNAPSHOTS
