"""The durable log of the service: where everything that happened is written before it is acknowledged."""

from pathlib import Path
from types import ModuleType

from sketchbandits.service.log.contract import Cut, EventLog, LogDamaged, LogInUse, NotStored, Unavailable, Uncertain
from sketchbandits.service.log.sqlite.log import SqliteLog, cut_sqlite

__all__ = ["Cut", "EventLog", "LogDamaged", "LogInUse", "NotStored", "Unavailable", "Uncertain", "cut_back", "open_log"]

_POSTGRES = ("postgresql://", "postgres://")


def open_log(database: str, *, read_only: bool = False) -> EventLog:
    """The log in a PostgreSQL database (``postgresql://…``) or in a SQLite file, made if there is none.

    For writing it belongs to this process alone until it is closed; what had to be cut off is told in ``cuts``.
    """
    if database.startswith(_POSTGRES):
        return _postgres_log().PostgresLog(database, read_only=read_only)
    return SqliteLog(_file(database), read_only=read_only)


def cut_back(database: str, first: int) -> Cut:
    """Cut everything from record ``first`` on off a log that nobody writes to, as a person decided; it is kept."""
    if database.startswith(_POSTGRES):
        return _postgres_log().cut_postgres(database, first)
    return cut_sqlite(_file(database), first)


def _postgres_log() -> ModuleType:
    """Needs a driver that not everybody has, and is loaded by those who want it."""
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
