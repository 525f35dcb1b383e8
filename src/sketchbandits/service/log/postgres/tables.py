"""The tables of a log in a PostgreSQL database, and connections to them."""

import time
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from sketchbandits.service.log.chain import COLUMNS, ROWS_PER_PAGE, Row
from sketchbandits.service.log.contract import Cut, LogDamaged, LogInUse
from sketchbandits.service.log.events import FORMAT, FORMATS, START, Position

Connection = psycopg.Connection[tuple[Any, ...]]

_LOCK = 0x5342_4C47  # the first half of the advisory lock's number; the second half is the table's
_KEPT = "the table events_cut"
# A server that no longer answers is a lost connection after seconds, not after hours.
_CONNECTION = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "application_name": "sketchbandits",
}
# The same on the server's side, so that it notices a client that has vanished, and frees its lock.
_SESSION = {
    "tcp_keepalives_idle": "5",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "10s",
}
_IDLE = "20s"  # how long a writer that has called `heartbeat` may be silent
_OWNER = """
CREATE TABLE events_owner (one boolean PRIMARY KEY CHECK (one), number bigint NOT NULL);
INSERT INTO events_owner VALUES (true, 0);
"""
_TABLES = f"""
CREATE TABLE events (seq bigint PRIMARY KEY, kind smallint NOT NULL, decision bigint, body bytea NOT NULL,
                     chain bigint NOT NULL);
CREATE UNIQUE INDEX one_outcome ON events (decision) WHERE decision IS NOT NULL;
CREATE TABLE events_cut (cut timestamptz NOT NULL DEFAULT now(), reason text NOT NULL, seq bigint NOT NULL,
                         kind smallint NOT NULL, decision bigint, body bytea NOT NULL, chain bigint NOT NULL);
CREATE TABLE events_format (version integer NOT NULL);
INSERT INTO events_format VALUES ({FORMAT});
{_OWNER}
"""
# Only the owner with this number inserts anything. FOR SHARE: the next one waits until a statement under way has ended,
# and a statement that starts while it takes over waits for its number.
INSERT = (
    "WITH mine AS (SELECT FROM events_owner WHERE number = %b::bigint FOR SHARE) "
    f"INSERT INTO events ({COLUMNS}) SELECT given.* FROM mine, "
    "unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bigint[]) AS given"
)


def cut(connection: Connection, first: int, reason: str) -> Cut:
    """Move rows aside, in one transaction."""
    moved = (
        f"WITH cut AS (DELETE FROM events WHERE seq >= %s RETURNING {COLUMNS}) "
        f"INSERT INTO events_cut (reason, {COLUMNS}) SELECT %s, {COLUMNS} FROM cut"
    )
    return Cut(first, connection.execute(moved, (first, reason)).rowcount, reason, _KEPT)


def connect(database: str, *, read_only: bool) -> Connection:
    """A connection that commits each statement by itself, and durably whatever the server's default is."""
    try:
        settings: dict[str, Any] = _CONNECTION | conninfo_to_dict(database)
    except psycopg.ProgrammingError as error:
        raise ValueError(f"database must be the address of a PostgreSQL database: {error}") from None
    connection = psycopg.connect(**settings, autocommit=True)
    connection.read_only = read_only
    connection.execute("SET synchronous_commit = on")
    if not read_only:
        _set(connection, _SESSION)
    return connection


def end_when_silent(connection: Connection) -> None:
    """Let the server end this session if its process is silent for a while; servers before version 14 cannot."""
    _set(connection, {"idle_session_timeout": _IDLE})


def _set(connection: Connection, settings: dict[str, str]) -> None:
    """Change those of these settings that the server knows, for this session."""
    query = (
        "SELECT set_config(name, given.value, false) FROM pg_settings "
        "JOIN unnest(%s::text[], %s::text[]) AS given (wanted, value) ON name = wanted"
    )
    connection.execute(query, (list(settings), list(settings.values())))


def make(connection: Connection) -> None:
    """The tables of a new log; a second process that makes them at the same time waits and finds them made."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK,))
        if connection.execute("SELECT to_regclass('events')").fetchone() == (None,):
            connection.execute(_TABLES)


def lock(connection: Connection, patience: float, between: Callable[[], None] = lambda: None) -> None:
    """Become the only writer, or raise `LogInUse` after some seconds; ``between`` is called while another one is."""
    end = time.monotonic() + patience
    query = "SELECT pg_try_advisory_lock(%s, 'events'::regclass::oid::integer)"
    while connection.execute(query, (_LOCK,)).fetchone() != (True,):
        between()
        if time.monotonic() >= end:
            raise LogInUse("the log is open for writing in another process, which must stop first")
        time.sleep(0.05)


def take_over(connection: Connection) -> tuple[int, int]:
    """Become the owner, once `lock` has returned: the format that the log had, and the number of this owner.

    A log of an earlier format gets the current one.
    """
    with connection.transaction():
        version = refuse_format(connection)
        if connection.execute("SELECT to_regclass('events_owner')").fetchone() == (None,):
            connection.execute(_OWNER)  # which takes the right to make tables, once
        if version != FORMAT:
            connection.execute("UPDATE events_format SET version = %s", (FORMAT,))
        row = connection.execute("UPDATE events_owner SET number = number + 1 RETURNING number").fetchone()
        assert row is not None
        return version, int(row[0])


def owner(connection: Connection) -> int:
    """The number of the owner now."""
    row = connection.execute("SELECT number FROM events_owner").fetchone()
    return 0 if row is None else int(row[0])


def refuse_format(connection: Connection) -> int:
    """The format of the log; refuses what another program or another version of the service wrote."""
    if connection.execute("SELECT to_regclass('events_format')").fetchone() == (None,):
        raise LogDamaged("the database has no log of this service: nothing was changed")
    versions = connection.execute("SELECT version FROM events_format").fetchall()
    if len(versions) != 1 or versions[0][0] not in FORMATS:
        found = ", ".join(str(version) for (version,) in versions) or "unknown"
        raise LogDamaged(
            f"the log has format {found}, and this version of the service reads formats up to {FORMAT}: nothing was "
            "changed; use the version that wrote it"
        )
    return int(versions[0][0])


def page_of_rows(connection: Connection, after: int) -> list[Row]:
    """The next rows in order."""
    query = f"SELECT {COLUMNS} FROM events WHERE seq > %s ORDER BY seq LIMIT {ROWS_PER_PAGE}"
    return connection.execute(query, (after,), binary=True).fetchall()


def last_place(connection: Connection) -> Position:
    """What the last row says of itself."""
    row = connection.execute("SELECT seq, chain FROM events ORDER BY seq DESC LIMIT 1").fetchone()
    return START if row is None else Position(*row)
