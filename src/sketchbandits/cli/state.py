"""The state of a decision service on disk, for `serve`, `keys`, `log` and `replay`."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, flag
from sketchbandits.progress import Watch, stages
from sketchbandits.service.folder import LOG_FILE
from sketchbandits.service.log import LogDamaged, open_log
from sketchbandits.service.log.progress import with_progress

DEFAULT = "sketchbandits-state"
STATE = flag("DIR", "The folder of all state.", DEFAULT)


def state_folder(state: str) -> Path:
    """The folder of ``--state``, made for its owner alone where it is missing."""
    folder = Path(state)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        terminal.stop(
            terminal.IO_ERROR, f"--state must be a folder that can be written to, got {state!r}: {error.strerror}"
        )
    return folder


@contextlib.contextmanager
def verified_records(database: str) -> Iterator[Any]:
    """The verified records of a log, which is only read; whatever goes wrong is one line."""
    try:
        with (
            bad_values_refused(database="STATE"),
            stages() as watch,
            contextlib.closing(open_log(database, read_only=True)) as log,
        ):
            yield with_progress(log.read(), log.last.seq, record_progress(watch, "reading"))
    except (LogDamaged, OSError) as error:
        terminal.stop(terminal.IO_ERROR, str(error))
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, "interrupted: nothing was changed")


def record_progress(watch: Watch, stage: str) -> Callable[[int, int], None]:
    """Progress through the records of a log."""
    return lambda done, total: watch(stage, f"record {done:,} of {total:,}", done / max(total, 1))


def database_of(state: str) -> str:
    """The log of a service: the URL of a database, or the path of the file in a folder."""
    if "://" in state:
        return state
    path = Path(state) / LOG_FILE if Path(state).is_dir() else Path(state)
    if not path.exists():
        terminal.stop(terminal.IO_ERROR, f"STATE must be the folder or log of a service, got {state!r}")
    return str(path)
