"""The durable log of the service: where everything that happened is written before it is acknowledged."""

from pathlib import Path
from types import ModuleType

from sketchbandits.service.log.contract import (
    Cut,
    EventLog,
    LogDamaged,
    LogInUse,
    NotStored,
    Unavailable,
    Uncertain,
    View,
)
from sketchbandits.service.log.sqlite.log import SqliteLog, cut_sqlite
from sketchbandits.service.log.sqlite.view import SqliteView

__all__ = [
    "PATIENCE",
    "Cut",
    "EventLog",
    "LogDamaged",
    "LogInUse",
    "NotStored",
    "Unavailable",
    "Uncertain",
    "View",
    "cut_back",
    "open_log",
    "open_view",
]

PATIENCE = 30.0  # seconds; a PostgreSQL server frees the lock of a service that has vanished in less

_POSTGRES = ("postgresql://", "postgres://")


def open_log(database: str, *, read_only: bool = False, patience: float = PATIENCE) -> EventLog:
    """The log in a PostgreSQL database (``postgresql://…``) or in a SQLite file, made if there is none.

    Opened for writing, it belongs to this process alone until it is closed; ``cuts`` lists what had to be cut off, and
    ``notes`` what else was changed. Where another process has a PostgreSQL log, that may be a session whose end the
    server has not noticed yet: it is tried for ``patience`` seconds. A file is free as soon as its process has ended.
    """
    if database.startswith(_POSTGRES):
        return _postgres_log().PostgresLog(database, read_only=read_only, patience=patience)
    return SqliteLog(_file(database), read_only=read_only)


def open_view(database: str) -> View:
    """A connection that reads a log beside the process that writes it, also where it is damaged."""
    if database.startswith(_POSTGRES):
        return _postgres_log().view_postgres(database)
    return SqliteView(_file(database))


def cut_back(database: str, first: int) -> Cut:
    """Cut off record ``first`` and all after it, as a person decided; they are kept. No process may write meanwhile."""
    if database.startswith(_POSTGRES):
        return _postgres_log().cut_postgres(database, first)
    return cut_sqlite(_file(database), first)


def _postgres_log() -> ModuleType:
    """The module for PostgreSQL, whose driver is an optional dependency."""
    try:
        from sketchbandits.service.log.postgres import log as postgres_log
    except ImportError as error:
        allowed = "the path of a file, or a PostgreSQL address after pip install 'sketchbandits[postgres]'"
        raise ValueError(f"database must be {allowed}, got a PostgreSQL address ({error})") from error
    return postgres_log


def _file(database: str) -> Path:
    """The path of a SQLite file in a folder that exists."""
    path = Path(database)
    if not database or "://" in database or not path.absolute().parent.is_dir() or path.is_dir():
        allowed = "a postgresql:// address or the path of a file in a folder that exists"
        raise ValueError(f"database must be {allowed}, got {database!r}")
    return path
