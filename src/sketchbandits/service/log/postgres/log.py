"""The log in a PostgreSQL database, for teams that have one.

The writer holds an advisory lock for as long as its session lives. A process that gets the lock after a lost connection
knows that the earlier session has ended: what that was writing is in the table by then, or never will be.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import LiteralString

import psycopg

from sketchbandits.service.log.base import ChainedLog
from sketchbandits.service.log.chain import (
    WITH_CHAIN_BEFORE,
    BadRecord,
    Row,
    checked,
    damaged,
    good_behind,
    outcomes_of,
    paged,
    place_after,
    verified,
)
from sketchbandits.service.log.contract import Cut, LogDamaged, LogInUse, NotStored, Unavailable, Uncertain, View
from sketchbandits.service.log.events import FORMAT, START, Kind, Position, Record
from sketchbandits.service.log.postgres.tables import (
    INSERT,
    Connection,
    connect,
    cut,
    end_when_silent,
    last_place,
    lock,
    make,
    owner,
    page_of_rows,
    refuse_format,
    take_over,
)
from sketchbandits.service.log.postgres.view import PostgresView
from sketchbandits.validate import whole

logger = logging.getLogger("sketchbandits.service")

_SECONDS_TO_SETTLE = 10.0  # for finding out what a broken connection has left behind
_SECONDS_FOR_LOCK = 2.0  # a server needs a moment to notice that a killed writer is gone
_NAMED = WITH_CHAIN_BEFORE + "WHERE e.decision = ANY(%s::bigint[])"
_NUMBERED = WITH_CHAIN_BEFORE + "WHERE e.seq = %s"


class PostgresLog(ChainedLog):
    """A log in a PostgreSQL database; see `EventLog` for what each method promises."""

    def __init__(self, database: str, *, read_only: bool = False, patience: float = _SECONDS_FOR_LOCK) -> None:
        super().__init__(read_only=read_only)
        self._database = database
        self._number = 0  # of this owner
        self._ended_when_silent: Connection | None = None
        with _explained():
            self._connection = connect(database, read_only=read_only)
            try:
                if not read_only:
                    make(self._connection)
                self.format = refuse_format(self._connection)
                if not read_only:
                    self._own(patience)
                self.last = last_place(self._connection)
            except BaseException:
                self._connection.close()
                raise

    def holds(self, position: Position) -> bool:
        """Whether the log has a record with this number and this checksum."""
        with _explained():
            row = self._connection.execute("SELECT chain FROM events WHERE seq = %s", (position.seq,)).fetchone()
        return position == START or row == (position.chain,)

    def outcomes(self, decisions: Sequence[int]) -> dict[int, tuple[Kind, bytes]]:
        """The reward record, or that of the default at the deadline, of each of these decisions that has one."""
        return outcomes_of(self._asked(_NAMED, list(decisions)), decisions)

    def record(self, seq: int) -> Record | None:
        """One verified record."""
        return next((checked(row[:5], row[5]) for row in self._asked(_NUMBERED, seq)), None)

    def probe(self) -> None:
        """Raise `NotStored` where the log could not be written now."""
        self.heartbeat()
        if self._asked("SELECT current_setting('transaction_read_only') = %s", "off") != [(True,)]:
            raise NotStored("the database only reads now: it is a standby, or set so")

    def heartbeat(self) -> None:
        """Show the database that the writer lives, and see that it is still the only one."""
        if self._read_only:
            return
        ((number,),) = self._asked("SELECT number FROM events_owner WHERE %s", True)
        if number != self._number:
            raise self._taken_over()
        if self._ended_when_silent is not self._connection:
            try:
                end_when_silent(self._connection)
            except psycopg.Error as error:
                raise Unavailable(f"the database does not answer: {_words(error)}") from error
            self._ended_when_silent = self._connection

    def close(self) -> None:
        """Close the log; a second call does nothing."""
        self._connection.close()

    def _own(self, patience: float) -> None:
        """Become the only writer, and see which format the log has had."""
        try:
            lock(self._connection, 0.0)
        except LogInUse:
            if patience <= 0.0:
                raise
            logger.warning("the log is open for writing in another process: waiting up to %.0f s for it", patience)
            lock(self._connection, patience)
        self.format, self._number = take_over(self._connection)
        if self.format != FORMAT:
            self._note_format()

    def _taken_over(self) -> Uncertain:
        """The refusal to write to a log that has another owner."""
        self._uncertain = True
        return Uncertain("another service has taken over the log, and nothing was written to it: stop this one")

    def _recovered(self, after: Position) -> Iterator[Record]:
        place = after
        with _explained():
            try:
                for record in verified(paged(lambda seq: page_of_rows(self._connection, seq), place.seq), place):
                    yield record
                    place = record.position
            except BadRecord as error:
                if self._read_only:
                    raise
                self._cut_tail(place, str(error))
        self.last = place

    def _cut_tail(self, place: Position, reason: str) -> None:
        """Cut off what follows the last good record, if none of it is good."""
        rows = paged(lambda seq: page_of_rows(self._connection, seq), place.seq)
        next_good = good_behind(rows, place)
        if next_good is not None:
            raise damaged(place.seq + 1, next_good)
        self.cuts.append(cut(self._connection, place.seq + 1, reason))

    def _read(self, after: int) -> Iterator[Record]:
        with _explained(), closing(connect(self._database, read_only=True)) as view:
            row = view.execute("SELECT chain FROM events WHERE seq = %s", (after,)).fetchone()
            yield from verified(paged(lambda seq: page_of_rows(view, seq), after), place_after(after, row))

    def _store(self, records: list[Record]) -> None:
        """Insert the records by one statement, which commits by itself."""
        connection = self._connected()
        try:
            columns = [list(column) for column in zip(*records, strict=True)]
            stored = connection.execute(INSERT, [self._number, *columns]).rowcount
        except psycopg.Error as error:
            self._settle(records[-1].position, error)
            return
        if stored != len(records):
            raise self._taken_over()

    def _asked(self, query: LiteralString, value: object) -> list[Row]:
        """The rows of a query with one parameter; it is asked twice if the connection is lost."""
        with _explained():
            try:
                return self._connected().execute(query, (value,)).fetchall()
            except psycopg.OperationalError:
                return self._asked_again(query, value)

    def _asked_again(self, query: LiteralString, value: object) -> list[Row]:
        try:
            return self._connected().execute(query, (value,)).fetchall()
        except psycopg.OperationalError as error:
            raise Unavailable(f"the database does not answer: {_words(error)}") from error

    def _connected(self) -> Connection:
        """The connection, or a new one after it was lost, with the lock and with the log as it was left."""
        if not self._connection.closed:
            return self._connection
        try:
            self._connection = self._reconnected(_SECONDS_FOR_LOCK)
            found = last_place(self._connection)
        except (psycopg.Error, LogInUse) as error:
            self._connection.close()
            raise Unavailable(f"the database does not answer, and nothing was sent to it: {_words(error)}") from error
        if found != self.last and not self._read_only:
            self._uncertain = True
            raise Uncertain(f"the log ends at {found} and was left at {self.last}: another process has written to it")
        return self._connection

    def _reconnected(self, patience: float) -> Connection:
        """A new connection with the lock; raises `Uncertain` where there was another owner meanwhile."""
        connection = connect(self._database, read_only=self._read_only)
        try:
            if not self._read_only:
                self._lock_again(connection, patience)
        except BaseException:
            connection.close()
            raise
        return connection

    def _lock_again(self, connection: Connection, patience: float) -> None:
        """Get the lock back; `LogInUse` means a session of this process that the server has not given up yet."""

        def refuse_another_owner() -> None:
            if owner(connection) != self._number:
                raise self._taken_over()

        lock(connection, patience, refuse_another_owner)
        refuse_another_owner()

    def _settle(self, wanted: Position, error: psycopg.Error) -> None:
        """After a failure: return if the events are stored nevertheless, raise `NotStored` if none of them is."""
        end = time.monotonic() + _SECONDS_TO_SETTLE
        found = None
        while found is None and time.monotonic() < end:
            try:
                if self._connection.closed:
                    self._connection = self._reconnected(end - time.monotonic())
                found = last_place(self._connection)
            except (psycopg.Error, LogInUse):
                self._connection.close()
                time.sleep(0.1)
        if found == wanted:
            return
        if found == self.last:
            raise NotStored(f"nothing of {wanted.seq - found.seq} events was stored: {_words(error)}") from error
        self._uncertain = True
        raise Uncertain(
            f"what the log holds cannot be determined after a failure ({_words(error)}): open it again"
        ) from error


def view_postgres(database: str) -> View:
    """A connection that reads a log beside the process that writes it."""
    return PostgresView(database)


def cut_postgres(database: str, first: int) -> Cut:
    """Cut off record ``first`` and all after it; they are kept in a second table. No process may write meanwhile."""
    first = whole("first", first, least=1)
    with _explained(), closing(connect(database, read_only=False)) as connection:
        refuse_format(connection)
        lock(connection, _SECONDS_FOR_LOCK)
        rows = paged(lambda seq: page_of_rows(connection, seq), 0)
        place = START
        try:
            for record in verified(rows, START):
                if record.seq >= first:
                    break
                place = record.position
        except BadRecord as error:
            if error.seq < first:
                raise damaged(error.seq, first - 1) from None
        if place.seq < first - 1:
            raise ValueError(f"first must be at most {place.seq + 1}, where the log ends, got {first}")
        return cut(connection, first, f"an operator cut it back to before record {first}")


def _words(error: Exception) -> str:
    """The first line of a message; the rest repeats the statement."""
    return str(error).partition("\n")[0]


@contextmanager
def _explained() -> Iterator[None]:
    """Failures of the database as our exceptions, without its address, which may contain a password."""
    try:
        yield
    except BadRecord as error:
        raise LogDamaged(f"the log is damaged: {error}") from None
    except psycopg.OperationalError as error:
        raise ValueError(f"database must be a PostgreSQL server that answers: {_words(error)}") from error
    except psycopg.Error as error:
        raise LogDamaged(f"the log cannot be read: {_words(error)}") from error
