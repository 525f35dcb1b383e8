"""Rows straight from the pages of a damaged SQLite file, when SQLite itself finds no way to them.

Every leaf page of a table is read, whether it lies in the file or in the write-ahead log. A page may be old or
half written, and rows may turn up twice; only the chain of checksums decides which of them count.

**Reference.** The SQLite file format, sections 1.6 (b-tree pages), 1.7 (overflow) and 2.1 (records).
"""

import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sketchbandits.service.log.chain import Row
from sketchbandits.service.log.sqlite.wal import Wal, read_wal, sibling

PAGE_SIZE = 4096
_MAGIC = b"SQLite format 3\0"
_LEAF = 13
_INTEGERS = (0, 1, 2, 3, 4, 6, 8)  # bytes of serial types 0 to 6


class Header(NamedTuple):
    """The first bytes of a database file: whether they are whole, and what they say."""

    whole: bool
    page_size: int
    unused: int  # bytes at the end of every page
    pages: int
    version: int
    application: int


def read_header(database: Path) -> Header:
    """The header of a database file; the service's own page size where it cannot be read."""
    with database.open("rb") as file:
        data = file.read(100)
    size = int.from_bytes(data[16:18])
    size = 65536 if size == 1 else size
    whole = len(data) == 100 and data.startswith(_MAGIC) and size >= 512 and size & (size - 1) == 0
    whole = whole and data[18] in (1, 2) and data[19] in (1, 2)  # with others SQLite would only read the file
    if not whole:
        return Header(False, PAGE_SIZE, 0, 0, 0, 0)
    pages = int.from_bytes(data[28:32]) if data[24:28] == data[92:96] else 0
    return Header(True, size, data[20], pages, int.from_bytes(data[60:64]), int.from_bytes(data[68:72]))


def broken(database: Path, header: Header, wal: Wal) -> str | None:
    """What is wrong with the file itself, as far as that shows without reading every page; None if nothing is."""
    if not header.whole:
        return "its first page is damaged"
    held = database.stat().st_size // header.page_size
    logged = set(wal.pages[: wal.committed])
    expected = wal.size or header.pages
    lost = sum(page not in logged for page in range(held + 1, expected + 1))
    return f"its file is too short: {lost} of {expected} pages are missing" if lost else None


class Pages:
    """Every row with a number above ``above`` in the whole pages of a database and its write-ahead log.

    New rows are in new pages, at the end of the file: ``patience`` leaf pages without any may end the search.
    """

    def __init__(self, database: Path, above: int = 0, patience: float = math.inf) -> None:
        header = read_header(database)
        self._wal = wal = read_wal(database, header.page_size)
        self._file = os.open(database, os.O_RDONLY)
        log = sibling(database, "-wal")
        self._log = os.open(log, os.O_RDONLY) if log.exists() else None
        self._size, self._usable = header.page_size, header.page_size - header.unused
        self._held = os.fstat(self._file).st_size // self._size
        self._newest = {page: frame for frame, page in enumerate(wal.pages[: wal.reachable])}
        self._places: dict[int, list[tuple[int, int]]] = {}
        for images in self._images():
            self._search(images, above, patience)

    def close(self) -> None:
        """Close the files."""
        for file in (self._file, self._log):
            if file is not None:
                os.close(file)

    def count(self, above: int) -> int:
        """How many numbers above this one have a row."""
        return sum(seq > above for seq in self._places)

    def rows(self, seq: int) -> Iterator[Row]:
        """Every row that claims this number and can be parsed, the most trustworthy first."""
        for image, cell in self._places.get(seq, ()):
            try:
                yield self._row(self._page(image), cell)
            except (IndexError, ValueError):
                continue

    def ascending(self, above: int) -> Iterator[Row]:
        """All rows with a number above this one."""
        for seq in sorted(seq for seq in self._places if seq > above):
            yield from self.rows(seq)

    def _search(self, images: Iterable[int], above: int, patience: float) -> None:
        idle = 0
        for image in images:
            cells = list(_leaf_cells(self._page(image)))
            found = [(seq, cell) for seq, cell in cells if seq > above]
            for seq, cell in found:
                self._places.setdefault(seq, []).append((image, cell))
            idle = 0 if found else idle + bool(cells)
            if idle > patience:
                return

    def _images(self) -> Iterator[Iterable[int]]:
        """Pages of the file by their index from 0, frames of the write-ahead log as ``~frame``; those to trust first.

        The first page is left out: it holds the names of the tables.
        """
        pages, committed = self._wal.pages, self._wal.committed
        yield [~frame for frame in reversed(range(committed)) if pages[frame] != 1]
        yield reversed(range(1, self._held))
        yield [~frame for frame in range(committed, self._wal.reachable) if pages[frame] != 1]

    def _page(self, image: int) -> bytes:
        """The bytes of a page; fewer or none where they cannot be read."""
        try:
            if image >= 0:
                return os.pread(self._file, self._size, image * self._size)
            return os.pread(self._log, self._size, self._wal.offset(~image)) if self._log is not None else b""
        except OSError:
            return b""

    def _newest_page(self, number: int) -> bytes:
        """The page with this number, as it was written last."""
        frame = self._newest.get(number)
        if frame is not None:
            return self._page(~frame)
        return self._page(number - 1) if number > 0 else b""

    def _row(self, page: bytes, cell: int) -> Row:
        """A row of five columns, the first of which is the number itself."""
        size, at = _varint(page, cell)
        seq, at = _varint(page, at)
        payload = self._payload(page, at, size)
        length, at = _varint(payload, 0)
        types = []
        while at < length:
            kind, at = _varint(payload, at)
            types.append(kind)
        if len(types) != 5 or types[0] != 0:
            raise ValueError("not a row of the log")
        row: list[Any] = [seq]
        for kind in types[1:]:
            value, at = _value(payload, at, kind)
            row.append(value)
        return tuple(row)

    def _payload(self, page: bytes, at: int, size: int) -> bytes:
        """The content of a row, from its page and the overflow pages behind it."""
        usable = self._usable
        if size <= usable - 35:
            return page[at : at + size]
        least = (usable - 12) * 32 // 255 - 23
        local = least + (size - least) % (usable - 4)
        local = local if local <= usable - 35 else least
        parts = [page[at : at + local]]
        left, following = size - local, int.from_bytes(page[at + local : at + local + 4])
        if left > (self._held + len(self._newest)) * usable:
            raise ValueError("a row is longer than the whole file")
        while left > 0:
            more = self._newest_page(following)
            if len(more) < usable:
                raise ValueError("an overflow page is missing")
            parts.append(more[4 : 4 + min(left, usable - 4)])
            left, following = left - (usable - 4), int.from_bytes(more[:4])
        return b"".join(parts)


def _leaf_cells(page: bytes) -> Iterator[tuple[int, int]]:
    """The number and the place of every cell of a leaf page of a table."""
    if len(page) < 8 or page[0] != _LEAF:
        return
    for k in range(int.from_bytes(page[3:5])):
        cell = int.from_bytes(page[8 + 2 * k : 10 + 2 * k])
        try:
            _, at = _varint(page, cell)
            seq, _ = _varint(page, at)
        except IndexError:
            continue
        yield seq, cell


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    value = 0
    for k in range(at, at + 8):
        byte = data[k]
        value = value << 7 | byte & 127
        if byte < 128:
            return value, k + 1
    return value << 8 | data[at + 8], at + 9


def _value(payload: bytes, at: int, kind: int) -> tuple[Any, int]:
    """A column by its serial type: nothing, a whole number or bytes."""
    if kind in (8, 9):
        return kind - 8, at
    length = (kind - 12) // 2 if kind >= 12 and kind % 2 == 0 else _INTEGERS[kind]
    raw = payload[at : at + length]
    if len(raw) != length:
        raise ValueError("a row is cut short")
    if kind >= 12:
        return raw, at + length
    return (int.from_bytes(raw, signed=True) if length else None), at + length
