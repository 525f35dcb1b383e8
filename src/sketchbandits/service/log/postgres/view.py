"""A connection to a PostgreSQL database that reads beside the writer, also where pages are damaged."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from sketchbandits.service.log.chain import COLUMNS
from sketchbandits.service.log.contract import LogDamaged, Unavailable
from sketchbandits.service.log.postgres.tables import connect, last_place

_ROWS = f"SELECT {COLUMNS} FROM events WHERE seq > %s ORDER BY seq LIMIT %s"
_FOUND = "SELECT decision, seq FROM events WHERE decision = ANY(%s::bigint[])"


class PostgresView:
    """See `View` for what each method promises."""

    def __init__(self, database: str) -> None:
        try:
            self._connection = connect(database, read_only=True)
        except psycopg.Error as error:
            raise Unavailable(f"the database does not answer: {_words(error)}") from error
        with self._explained():
            self._connection.execute("SET enable_seqscan = off")  # what is found is found by the index

    def last(self) -> int:
        """The number of the last row, 0 where there is none."""
        with self._explained():
            return last_place(self._connection).seq

    def rows(self, after: int, count: int) -> list[tuple[Any, ...]]:
        """Up to ``count`` rows with higher numbers, in order."""
        with self._explained():
            return self._connection.execute(_ROWS, (after, count), binary=True).fetchall()

    def found(self, decisions: Sequence[int]) -> list[tuple[int, int]]:
        """What the index of outcomes says of these decisions."""
        with self._explained():
            return self._connection.execute(_FOUND, (list(decisions),)).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if self._connection.closed or isinstance(error, psycopg.OperationalError):
                self._connection.close()
                raise Unavailable(f"the database does not answer: {_words(error)}") from error
            raise LogDamaged(f"the log cannot be read there: {_words(error)}") from error


def _words(error: Exception) -> str:
    """The first line of a message; the rest repeats the statement."""
    return str(error).partition("\n")[0]
