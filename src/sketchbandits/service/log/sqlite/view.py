"""A connection to a SQLite file that reads beside the writer, also where pages are damaged."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sketchbandits.service.log.chain import COLUMNS
from sketchbandits.service.log.contract import LogDamaged, Unavailable
from sketchbandits.service.log.sqlite.file import UNREADABLE, connect, last_place, malformed

_ROWS = f"SELECT {COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?"
FOUND = "SELECT decision, seq FROM events INDEXED BY one_outcome WHERE decision IN (SELECT value FROM json_each(?))"


class SqliteView:
    """See `View` for what each method promises. No transaction stays open, so that the write-ahead log can be reset."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._explained():
            self._connection = connect(path, read_only=True)

    def last(self) -> int:
        """The number of the last row, 0 where there is none."""
        with self._explained():
            return last_place(self._connection).seq

    def rows(self, after: int, count: int) -> list[tuple[Any, ...]]:
        """Up to ``count`` rows with higher numbers, in order."""
        with self._explained():
            rows = self._connection.execute(_ROWS, (after, count)).fetchall()
        if any(type(row[0]) is not int for row in rows):
            raise LogDamaged(f"{self._path} cannot be read: its tables are not what was written")
        return rows

    def found(self, decisions: Sequence[int]) -> list[tuple[int, int]]:
        """What the index of outcomes says of these decisions."""
        with self._explained():
            return self._connection.execute(FOUND, (json.dumps(list(decisions)),)).fetchall()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.ProgrammingError, *UNREADABLE) as error:
            if not malformed(error):
                raise Unavailable(f"{self._path} cannot be read now: {error}") from error
            raise LogDamaged(f"{self._path} cannot be read there: {error}") from error
