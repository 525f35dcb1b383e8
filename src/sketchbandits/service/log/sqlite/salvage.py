"""A damaged SQLite file: what of it is good, and a fresh file that holds just that."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path

from sketchbandits.service.folder import flush_folder
from sketchbandits.service.log.chain import BadRecord, damaged, fitting, good_behind, paged, verified
from sketchbandits.service.log.contract import Cut, LogDamaged
from sketchbandits.service.log.events import START, Position, Record
from sketchbandits.service.log.sqlite.file import (
    APPLICATION,
    UNREADABLE,
    connect,
    fill,
    last_place,
    page_of_rows,
    refuse_format,
)
from sketchbandits.service.log.sqlite.pages import Pages, broken, read_header
from sketchbandits.service.log.sqlite.wal import FRAME_HEADER, HEADER, Wal, read_wal, sibling

_FRESH = ".rebuilt"
_PAGES_OF_PATIENCE = 100


def repair_files(database: Path) -> list[Cut]:
    """Inspect the files before SQLite opens them, and repair what it would misread or drop without an error."""
    cuts = _finish(database)
    if not any(path.exists() and path.stat().st_size for path in (database, sibling(database, "-wal"))):
        return cuts
    database.touch()
    header = read_header(database)
    if header.whole and header.application not in (0, APPLICATION):
        refuse_format(database, header.application, header.version)
    wal = read_wal(database, header.page_size)
    reason = broken(database, header, wal)
    if reason is None and wal.fault is None:
        return cuts
    last = None if reason else _last_by_sqlite(database)
    if last is None or (last == START and wal.promised) or _rows_behind(database, last):
        return [*cuts, rebuild(database, reason or str(wal.fault))]
    return [*cuts, _drop_tail(database, wal, last)]


def rebuild(database: Path, reason: str, before: int | None = None) -> Cut:
    """Replace a damaged file by one that holds its good records, and keep the damaged one.

    Raises `LogDamaged`, with nothing changed, where good records lie behind bad ones or none is left; ``before`` means
    that an operator wants the records before this one and no others, whatever follows.
    """
    fresh = sibling(database, _FRESH)
    try:
        with closing(_Good(database, before)) as good:
            fill(fresh, good.records())
            good.judge()
            cut = Cut(good.end.seq + 1, good.count_behind(), reason, str(_free_name(database)))
    except BaseException as error:
        _remove(fresh)
        if not isinstance(error, (sqlite3.Error, OSError)):
            raise
        raise LogDamaged(
            f"{database} is damaged ({reason}), and its good records could not be written to a new file in its folder "
            f"({error}): nothing was changed; free some space there and start again"
        ) from error
    _replace(database, Path(cut.kept_in))
    return cut


class _Good:
    """The longest chain of records that a file still holds, by SQLite as far as it gets, then from single pages."""

    def __init__(self, database: Path, before: int | None) -> None:
        self.end = START
        self._database, self._before = database, before
        self._pages: Pages | None = None

    def records(self) -> Iterator[Record]:
        """The records in order, as far as they are wanted."""
        for record in chain(self._by_sqlite(), self._by_pages()):
            if self._before is not None and record.seq >= self._before:
                return
            self.end = record.position
            yield record

    def count_behind(self) -> int:
        """How many rows there are behind the chain."""
        return self._behind().count(self.end.seq)

    def judge(self) -> None:
        """Refuse to cut off good records without being asked to, and to be left with no record at all."""
        if self._before is not None:
            if self.end.seq < self._before - 1:
                raise damaged(self.end.seq + 1, self._before - 1)
            return
        next_good = good_behind(self._behind().ascending(self.end.seq), self.end)
        if next_good is not None:
            raise damaged(self.end.seq + 1, next_good)
        if self.end == START:
            raise LogDamaged(
                f"{self._database} is not a log of this service, or nothing of it can be read: nothing was changed. "
                "Restore it from a copy, or give it up with `sketchbandits log STATE --cut 1`, which keeps it aside"
            )

    def close(self) -> None:
        """Close the files."""
        if self._pages is not None:
            self._pages.close()

    def _behind(self) -> Pages:
        if self._pages is None:
            self._pages = Pages(self._database, self.end.seq)
        return self._pages

    def _by_sqlite(self) -> Iterator[Record]:
        with suppress(BadRecord, *UNREADABLE), closing(connect(self._database, read_only=True)) as view:
            view.execute("PRAGMA writable_schema = ON")  # reads on in a file that is too short
            yield from verified(paged(lambda after: page_of_rows(view, after), 0), START)

    def _by_pages(self) -> Iterator[Record]:
        pages = self._behind()
        while found := next(filter(None, (fitting(row, self.end) for row in pages.rows(self.end.seq + 1))), None):
            yield found


def _last_by_sqlite(database: Path) -> Position | None:
    """Where the log ends for SQLite, if it can read it at all."""
    try:
        with closing(connect(database, read_only=True)) as view:
            return last_place(view)
    except (*UNREADABLE, TypeError):
        return None


def _rows_behind(database: Path, last: Position) -> bool:
    """Whether pages hold rows that SQLite does not see."""
    with closing(Pages(database, last.seq, patience=_PAGES_OF_PATIENCE)) as pages:
        return pages.count(last.seq) > 0


def _drop_tail(database: Path, wal: Wal, last: Position) -> Cut:
    """Keep aside what SQLite is about to drop: writes that were never finished, or are no longer whole."""
    path, kept = sibling(database, "-wal"), sibling(_free_name(database), "-wal")
    data = path.read_bytes() if path.exists() else b""
    if data:
        kept.write_bytes(data[:HEADER] + data[wal.offset(wal.committed) - FRAME_HEADER :])
    with closing(connect(database, read_only=False)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Cut(last.seq + 1, 0, f"{wal.fault}; the whole transactions before that are there", str(kept) if data else "")


def _free_name(database: Path) -> Path:
    """A name that no damaged file has yet."""
    number = 1
    while any(sibling(database, f".damaged-{number}{suffix}").exists() for suffix in ("", "-wal")):
        number += 1
    return sibling(database, f".damaged-{number}")


def _replace(database: Path, kept: Path) -> None:
    """Put the fresh file in the place of the damaged one; if this is interrupted, `_finish` completes it."""
    flush_folder(database.absolute().parent)
    if database.exists():
        database.rename(kept)
    if sibling(database, "-wal").exists():
        sibling(database, "-wal").rename(sibling(kept, "-wal"))
    sibling(database, "-shm").unlink(missing_ok=True)
    flush_folder(database.absolute().parent)
    sibling(database, _FRESH).rename(database)
    flush_folder(database.absolute().parent)


def _finish(database: Path) -> list[Cut]:
    """Complete a replacement that was interrupted: once the damaged file has been moved, the fresh one is whole."""
    fresh = sibling(database, _FRESH)
    if not fresh.exists():
        return []
    if database.exists():
        _remove(fresh)
        return []
    moved = database.parent.glob(f"{database.name}.damaged-*[0-9]")
    kept = max(moved, key=lambda path: int(path.name.rpartition("-")[2]), default=sibling(database, ".damaged-1"))
    _replace(database, kept)
    last = _last_by_sqlite(database) or START
    return [Cut(last.seq + 1, 0, "a repair of a damaged log had been interrupted and was finished", str(kept))]


def _remove(fresh: Path) -> None:
    """Delete a fresh file that is not needed."""
    for suffix in ("", "-wal", "-shm"):
        sibling(fresh, suffix).unlink(missing_ok=True)
