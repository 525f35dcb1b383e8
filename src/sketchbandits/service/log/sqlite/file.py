"""The SQLite file that holds a log: its tables, its settings, and connections to it."""

import os
import sqlite3
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from sketchbandits.service.folder import flush_folder
from sketchbandits.service.log.chain import COLUMNS, ROWS_PER_PAGE, BadRecord, Row, fitting
from sketchbandits.service.log.contract import LogDamaged
from sketchbandits.service.log.events import FORMAT, FORMATS, START, Position, Record
from sketchbandits.service.log.sqlite.pages import PAGE_SIZE

APPLICATION = 0x5342_4C47  # "SBLG", in the file's header
# A damaged file raises these; the second where SQLite's own message contains damaged bytes.
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)
_MALFORMED = ("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_IOERR_READ", "SQLITE_IOERR_SHORT_READ")
_SECONDS_TO_WAIT = 10.0  # for a lock of SQLite's own, held for moments
TABLES = (
    "CREATE TABLE events (seq INTEGER PRIMARY KEY, kind INTEGER NOT NULL, decision INTEGER, "
    "body BLOB NOT NULL, chain INTEGER NOT NULL)",
    "CREATE UNIQUE INDEX one_outcome ON events (decision) WHERE decision IS NOT NULL",
)
_SETTINGS = (f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}")


def connect(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection that commits each statement by itself and may move from thread to thread."""
    address = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    return sqlite3.connect(address, uri=True, isolation_level=None, check_same_thread=False, timeout=_SECONDS_TO_WAIT)


def prepare(connection: sqlite3.Connection, path: Path) -> int:
    """Make the file a log that is durable at every commit; an empty one gets its tables. Returns its format."""
    known = refuse_foreign(connection, path)
    if not known:
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    if not known:
        _make(connection, ())
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the file itself says what it is, from now on
        flush_folder(path.absolute().parent)
    return known or FORMAT


def set_format(connection: sqlite3.Connection) -> None:
    """Give a log of an earlier format the current one, whose tables are the same."""
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def refuse_foreign(connection: sqlite3.Connection, path: Path) -> int:
    """The format of the log in the file; 0 where it is empty, and `LogDamaged` where it is anything else."""
    application, version = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
    )
    if application == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return 0
    refuse_format(path, application, version)
    return int(version)


def refuse_format(path: Path, application: int, version: int) -> None:
    """Refuse what another program or another version of the service wrote."""
    if application != APPLICATION:
        raise LogDamaged(f"{path} is not a log of this service but another program's database: nothing was changed")
    if version not in FORMATS:
        raise LogDamaged(
            f"{path} is a log of format {version}, and this version of the service reads formats up to {FORMAT}: "
            "nothing was changed; use the version that wrote it"
        )


def _make(connection: sqlite3.Connection, records: Iterable[Record]) -> None:
    """The tables of a log, and its first records, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for statement in (*TABLES, *_SETTINGS):
        connection.execute(statement)
    connection.executemany(f"INSERT INTO events ({COLUMNS}) VALUES (?, ?, ?, ?, ?)", records)
    connection.execute("COMMIT")


def insert(connection: sqlite3.Connection, records: list[Record]) -> None:
    """Insert some records by one statement.

    Python releases its global lock at every step of a statement and, while another thread is busy, waits milliseconds
    to get it back: once per row with one statement per row, only once with a single statement.
    """
    rows = ", ".join(["(?, ?, ?, ?, ?)"] * len(records))
    connection.execute(f"INSERT INTO events ({COLUMNS}) VALUES {rows}", tuple(chain.from_iterable(records)))


def malformed(error: Exception) -> bool:
    """Whether the file itself is damaged, as opposed to a full disk or a lock."""
    name = getattr(error, "sqlite_errorname", "")
    return isinstance(error, (BadRecord, UnicodeDecodeError)) or name.startswith(_MALFORMED) or "no such" in str(error)


def page_of_rows(connection: sqlite3.Connection, after: int) -> list[Row]:
    """The next rows in order."""
    query = f"SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT {ROWS_PER_PAGE}"
    return connection.execute(query, (after,)).fetchall()


def last_place(connection: sqlite3.Connection) -> Position:
    """What the last row says of itself."""
    row = connection.execute("SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return START if row is None else Position(*row)


def refuse_bad_end(connection: sqlite3.Connection) -> None:
    """Raise `BadRecord` where the last row does not fit the one before it: nothing may be chained to it."""
    query = f"SELECT {COLUMNS} FROM events ORDER BY seq DESC LIMIT 2"
    rows = connection.execute(query).fetchall()
    before = Position(rows[1][0], rows[1][4]) if len(rows) == 2 else START
    if rows and not fitting(rows[0], before):
        raise BadRecord(before.seq + 1)


def fill(path: Path, records: Iterable[Record]) -> None:
    """Write a whole new file, which is nothing until all of it is written."""
    connection = connect(path, read_only=False)
    try:
        for setting in (f"page_size = {PAGE_SIZE}", "journal_mode = OFF", "synchronous = OFF"):
            connection.execute(f"PRAGMA {setting}")
        _make(connection, records)
        connection.execute("PRAGMA journal_mode = WAL")
    finally:
        connection.close()
    with path.open("rb") as file:
        os.fsync(file.fileno())
