"""The log in a PostgreSQL database, for teams that have one.

The writer holds an advisory lock for as long as its session lives. A process that gets the lock after a lost connection
knows that the earlier session has ended: what that was writing is in the table by then, or never will be.
"""

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
from sketchbandits.service.log.contract import Cut, LogDamaged, LogInUse, NotStored, Unavailable, Uncertain
from sketchbandits.service.log.events import START, Kind, Position, Record
from sketchbandits.service.log.postgres.tables import (
    INSERT,
    Connection,
    connect,
    cut,
    last_place,
    lock,
    make,
    page_of_rows,
    refuse_format,
)
from sketchbandits.validate import whole

_SECONDS_TO_SETTLE = 10.0  # for finding out what a broken connection has left behind
_SECONDS_FOR_LOCK = 2.0  # a server needs a moment to notice that a killed writer is gone


class PostgresLog(ChainedLog):
    """A log in a PostgreSQL database; see `EventLog` for what each method promises."""

    def __init__(self, database: str, *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only)
        self._database = database
        with _explained():
            self._connection = connect(database, read_only=read_only)
            try:
                if not read_only:
                    make(self._connection)
                    lock(self._connection, _SECONDS_FOR_LOCK)
                refuse_format(self._connection)
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
        return outcomes_of(self._asked("WHERE e.decision = ANY(%s::bigint[])", list(decisions)))

    def record(self, seq: int) -> Record | None:
        """One verified record."""
        return next((checked(row[:5], row[5]) for row in self._asked("WHERE e.seq = %s", seq)), None)

    def close(self) -> None:
        """Close the log; a second call does nothing."""
        self._connection.close()

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
            connection.execute(INSERT, [list(column) for column in zip(*records, strict=True)])
        except psycopg.Error as error:
            self._settle(records[-1].position, error)

    def _asked(self, condition: LiteralString, value: object) -> list[Row]:
        """Rows, each with the checksum of the record before it; asked for twice if the connection is lost."""
        with _explained():
            try:
                return self._connected().execute(WITH_CHAIN_BEFORE + condition, (value,)).fetchall()
            except psycopg.OperationalError:
                return self._asked_again(condition, value)

    def _asked_again(self, condition: LiteralString, value: object) -> list[Row]:
        try:
            return self._connected().execute(WITH_CHAIN_BEFORE + condition, (value,)).fetchall()
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
        connection = connect(self._database, read_only=self._read_only)
        try:
            if not self._read_only:
                lock(connection, patience)
        except BaseException:
            connection.close()
            raise
        return connection

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
