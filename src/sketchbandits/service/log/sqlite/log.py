"""The log in one SQLite file: nothing to set up, one fsync per group of events."""

import errno
import fcntl
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO

from sketchbandits.service.log.base import ChainedLog
from sketchbandits.service.log.chain import (
    WITH_CHAIN_BEFORE,
    BadRecord,
    checked,
    outcomes_of,
    paged,
    place_after,
    verified,
)
from sketchbandits.service.log.contract import Cut, LogDamaged, LogInUse, NotStored, Uncertain
from sketchbandits.service.log.events import FORMAT, START, Kind, Position, Record
from sketchbandits.service.log.sqlite.check import Unsound, make_sound, refuse_other_tables
from sketchbandits.service.log.sqlite.file import (
    UNREADABLE,
    connect,
    insert,
    last_place,
    malformed,
    page_of_rows,
    prepare,
    refuse_bad_end,
    refuse_foreign,
    set_format,
)
from sketchbandits.service.log.sqlite.salvage import rebuild, repair_files
from sketchbandits.service.log.sqlite.view import FOUND
from sketchbandits.service.log.sqlite.wal import sibling
from sketchbandits.validate import whole

_ROWS_PER_STATEMENT = 1000  # SQLite allows 32766 values
_PROBE = bytes(65_536)  # what a group of events may take at once
_BY_NUMBER = WITH_CHAIN_BEFORE + "WHERE e.seq = ?"
# The index decides which records are read, so that one which it names wrongly shows.
_BY_DECISION = (
    f"SELECT e.seq, e.kind, e.decision, e.body, e.chain, b.chain FROM ({FOUND}) AS i "
    "LEFT JOIN events AS e ON e.seq = i.seq LEFT JOIN events AS b ON b.seq = i.seq - 1"
)


class SqliteLog(ChainedLog):
    """A log in a SQLite file; see `EventLog` for what each method promises."""

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only)
        self._path = path
        if read_only and not path.exists():
            raise ValueError(f"database must be the file of a log, got {str(path)!r}, which is not there")
        self._lock: IO[bytes] | None = None
        try:
            with _explained(path), _room(path):
                if not read_only:
                    self._lock = _locked(path)
                    self.cuts += repair_files(path)
                self._connection, self.last = self._opened()
        except BaseException:
            self._unlock()
            raise

    def holds(self, position: Position) -> bool:
        """Whether the log has a record with this number and this checksum."""
        query = "SELECT chain FROM events WHERE seq = ?"
        try:
            row = self._connection.execute(query, (position.seq,)).fetchone()
        except UNREADABLE as error:
            self._repair(error)
            row = self._connection.execute(query, (position.seq,)).fetchone()
        return position == START or row == (position.chain,)

    def outcomes(self, decisions: Sequence[int]) -> dict[int, tuple[Kind, bytes]]:
        """The reward record, or that of the default at the deadline, of each of these decisions that has one."""
        with _explained(self._path):
            rows = self._connection.execute(_BY_DECISION, (json.dumps(list(decisions)),)).fetchall()
        return outcomes_of(rows, decisions)

    def record(self, seq: int) -> Record | None:
        """One verified record."""
        with _explained(self._path):
            row = self._connection.execute(_BY_NUMBER, (seq,)).fetchone()
        return None if row is None else checked(row[:5], row[5])

    def probe(self) -> None:
        """Raise `NotStored` where the log could not be written now."""
        part = sibling(self._path, "-probe")
        try:
            with part.open("wb") as file:
                file.write(_PROBE)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise NotStored(f"{self._path.parent} takes no file of {len(_PROBE):,} bytes now: {error}") from error
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def heartbeat(self) -> None:
        """Nothing: the lock of a file is free as soon as its process has ended, and not before."""

    def close(self) -> None:
        """Close the log; a second call does nothing."""
        self._connection.close()
        self._unlock()

    def _opened(self) -> tuple[sqlite3.Connection, Position]:
        """A connection, and where the log ends; a file that SQLite cannot read is repaired first."""
        try:
            return self._connected()
        except (BadRecord, Unsound, *UNREADABLE) as error:
            if self._read_only or not (isinstance(error, Unsound) or malformed(error)):
                raise
            self.cuts.append(rebuild(self._path, str(error)))
            return self._connected()

    def _connected(self) -> tuple[sqlite3.Connection, Position]:
        connection = connect(self._path, read_only=self._read_only)
        try:
            if not self._read_only:
                self._make_usable(connection)
            elif not (found := refuse_foreign(connection, self._path)):
                raise LogDamaged(f"{self._path} is empty")
            else:
                refuse_other_tables(connection)
                self.format = found
            self._inode = os.stat(self._path).st_ino
            return connection, last_place(connection)
        except BaseException:
            _close_unchanged(connection, self._path)
            raise

    def _make_usable(self, connection: sqlite3.Connection) -> None:
        """Make it a log of the current format whose index finds every outcome, or raise why it is damaged."""
        self.format = prepare(connection, self._path)
        refuse_other_tables(connection)
        note = make_sound(connection)
        if note is not None:
            self.notes.append(note)
        refuse_bad_end(connection)
        if self.format != FORMAT:
            set_format(connection)
            self._note_format()

    def _repair(self, error: Exception) -> None:
        """Put a file of the good records in the place of the damaged one, or raise `LogDamaged`."""
        if self._read_only or not malformed(error):
            raise LogDamaged(f"{self._path} cannot be read: {error}") from error
        _close_unchanged(self._connection, self._path)
        self.cuts.append(rebuild(self._path, str(error)))
        with _explained(self._path):
            self._connection, self.last = self._connected()

    def _recovered(self, after: Position) -> Iterator[Record]:
        place = after
        while True:
            try:
                for record in verified(paged(lambda seq: page_of_rows(self._connection, seq), place.seq), place):
                    yield record
                    place = record.position
                break
            except (BadRecord, *UNREADABLE) as error:
                self._repair(error)
        self.last = place

    def _read(self, after: int) -> Iterator[Record]:
        with _explained(self._path), closing(connect(self._path, read_only=True)) as view:
            refuse_foreign(view, self._path)
            row = view.execute("SELECT chain FROM events WHERE seq = ?", (after,)).fetchone()
            yield from verified(paged(lambda seq: page_of_rows(view, seq), after), place_after(after, row))

    def _store(self, records: list[Record]) -> None:
        self._refuse_if_gone()
        try:
            self._insert(records)
        except sqlite3.Error as error:
            self._settle(records[-1].position, error)

    def _insert(self, records: list[Record]) -> None:
        """Insert the records in one transaction: one statement, which commits by itself, wherever it can hold them."""
        groups = [records[k : k + _ROWS_PER_STATEMENT] for k in range(0, len(records), _ROWS_PER_STATEMENT)]
        if len(groups) > 1:
            self._connection.execute("BEGIN IMMEDIATE")
        for group in groups:
            insert(self._connection, group)
        if len(groups) > 1:
            self._connection.execute("COMMIT")

    def _refuse_if_gone(self) -> None:
        """A file that was moved or deleted can still be written to, and what is written is lost."""
        try:
            there = os.stat(self._path).st_ino == self._inode
        except OSError:
            there = False
        if not there:
            self._uncertain = True
            raise Uncertain(f"{self._path} is no longer the file that was opened: stop, and find out where it went")

    def _settle(self, wanted: Position, error: sqlite3.Error) -> None:
        """After a failure: return if the events are stored nevertheless, raise `NotStored` if none of them is."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            found = last_place(self._connection)
        except sqlite3.Error:
            found = None
        # A write that could not be flushed may or may not be there after a restart, even if it can be read now.
        unflushed = "FSYNC" in getattr(error, "sqlite_errorname", "")
        if found == wanted and not unflushed:
            return
        if found == self.last and not unflushed:
            raise NotStored(f"{self._path} took nothing of {wanted.seq - self.last.seq} events: {error}") from error
        self._uncertain = True
        raise Uncertain(
            f"what {self._path} holds cannot be determined after a failure ({error}): open it again"
        ) from error

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def cut_sqlite(path: Path, first: int) -> Cut:
    """Cut off record ``first`` and all after it; the file as it was is kept. No process may write meanwhile."""
    first = whole("first", first, least=1)
    if not path.exists():
        raise ValueError(f"database must be the file of a log, got {str(path)!r}, which is not there")
    lock = _locked(path)
    try:
        return rebuild(path, f"an operator cut it back to before record {first}", before=first)
    finally:
        lock.close()


def _locked(path: Path) -> IO[bytes]:
    """The right to write, which the system takes back when the process ends, however it ends."""
    lock = sibling(path, "-lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise LogInUse(f"{path} is open for writing in another process, which must stop first") from None
    return lock


def _close_unchanged(connection: sqlite3.Connection, path: Path) -> None:
    """Close without moving the write-ahead log into the file, which SQLite does when the last connection goes."""
    with closing(connect(path, read_only=True)) as other:
        with suppress(*UNREADABLE):
            last_place(other)
        connection.close()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Failures of SQLite as our exceptions."""
    try:
        yield
    except (BadRecord, Unsound) as error:
        raise LogDamaged(f"{path} is damaged: {error}") from None
    except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
        raise LogDamaged(f"{path} cannot be used: {error}") from error


@contextmanager
def _room(path: Path) -> Iterator[None]:
    """Say so where opening the log fails for lack of space: for some files SQLite says only that they failed."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        name, free = getattr(error, "sqlite_errorname", ""), shutil.disk_usage(path.absolute().parent).free
        full = name == "SQLITE_FULL" or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        if full or (name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")) and free < len(_PROBE)):
            reason = f"its disk is full ({error}): nothing was changed; free some space there and start again"
            raise OSError(reason) from error
        raise
