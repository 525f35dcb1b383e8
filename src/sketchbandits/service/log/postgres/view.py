"""A connection to a PostgreSQL database that reads beside the writer, also where pages are damaged."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from sketchbandits.service.log.chain import COLUMNS
from sketchbandits.service.log.contract import LogDamaged, Unavailable
from sketchbandits.service.log.postgres.tables import Connection

_ROWS = f"SELECT {COLUMNS} FROM events WHERE seq > %s ORDER BY seq LIMIT %s"
_FOUND = "SELECT decision, seq FROM events WHERE decision = ANY(%s::bigint[])"


class PostgresView:
    """See `View` for what each method promises."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        connection.execute("SET enable_seqscan = off")  # what is found is found by the index

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
            words = str(error).partition("\n")[0]
            if self._connection.closed or isinstance(error, psycopg.OperationalError):
                raise Unavailable(f"the database does not answer: {words}") from error
            raise LogDamaged(f"the log cannot be read there: {words}") from error
