"""Rows as a database returns them, checked and turned into records by their chain of checksums."""

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, LiteralString

from sketchbandits.service.log.contract import LogDamaged
from sketchbandits.service.log.events import START, Event, Kind, Position, Record, chained

ROWS_PER_PAGE = 500
COLUMNS = "seq, kind, decision, body, chain"
WITH_CHAIN_BEFORE: LiteralString = (
    "SELECT e.seq, e.kind, e.decision, e.body, e.chain, b.chain FROM events e LEFT JOIN events b ON b.seq = e.seq - 1 "
)

Row = tuple[Any, ...]  # of these columns, with whatever a damaged file has in them

_KINDS = {int(kind): kind for kind in Kind}


class BadRecord(Exception):
    """The record ``seq`` is missing or does not fit the one before it."""

    def __init__(self, seq: int) -> None:
        super().__init__(f"record {seq} is missing or does not fit its checksum")
        self.seq = seq


def _next(row: Row, after: Position) -> Record | None:
    """The row as the record that follows ``after``, whatever checksum it claims; nothing if it cannot be one."""
    seq, kind, decision, body, _ = row
    if seq != after.seq + 1 or type(body) is not bytes or kind not in _KINDS:
        return None
    try:
        return chained(Event(_KINDS[kind], decision, body), after)
    except (struct.error, TypeError):  # a damaged file may have anything as a number
        return None


def linked(events: Iterable[Event], after: Position) -> list[Record]:
    """Events as the records that follow ``after``."""
    records: list[Record] = []
    for event in events:
        records.append(chained(event, records[-1].position if records else after))
    return records


def fitting(row: Row, after: Position) -> Record | None:
    """The row as the record that follows ``after``, or nothing where it is not that record."""
    record = _next(row, after)
    return record if record is not None and record.chain == row[4] else None


def verified(rows: Iterable[Row], after: Position) -> Iterator[Record]:
    """The rows as the records that follow ``after``; raises `BadRecord` at the first that is not."""
    for row in rows:
        record = fitting(row, after)
        if record is None:
            raise BadRecord(after.seq + 1)
        yield record
        after = record.position


def paged(fetch: Callable[[int], list[Row]], after: int) -> Iterator[Row]:
    """Rows in order, a page at a time: no transaction stays open while they are used."""
    while rows := fetch(after):
        yield from rows
        after = rows[-1][0]


def place_after(seq: int, row: Row | None) -> Position:
    """The place after record ``seq``, whose checksum is the one column of ``row``, or the start of the log."""
    if row is None and seq > 0:
        raise ValueError(f"after must be the number of a record of the log, got {seq}")
    return START if row is None else Position(seq, row[0])


def checked(row: Row, before: int | None) -> Record:
    """A row taken out of the middle, ``before`` being the checksum of the record before it."""
    seq = row[0]
    after = START if seq == 1 else Position(seq - 1, before if before is not None else -1)
    record = None if after.chain == -1 else fitting(row, after)
    if record is None:
        raise LogDamaged(f"record {seq} of the log does not fit its checksum: check it with `sketchbandits log STATE`")
    return record


def outcomes_of(rows: Iterable[Row], decisions: Iterable[int]) -> dict[int, tuple[Kind, bytes]]:
    """Kind and body by decision, of the rows that the index names for these decisions.

    Each row has the checksum of the record before it as its sixth column; one that is not there has no values at all.
    """
    asked, found = set(decisions), dict[int, tuple[Kind, bytes]]()
    for row in rows:
        record = None if row[0] is None else checked(row[:5], row[5])
        if record is None or record.decision not in asked or record.decision in found:
            named = "a record that is not there" if record is None else f"record {record.seq}"
            raise LogDamaged(f"the index of the log names {named} for another decision: restart, which rebuilds it")
        found[record.decision] = (record.kind, record.body)
    return found


def judged(row: Row, places: Sequence[Position]) -> tuple[Record | None, tuple[Position, ...]]:
    """The row as a record that follows one of the places, or nothing; and the places that the next row may follow.

    Behind a bad row these are two: what the row says its place is, and where its content leads.
    """
    record = next(filter(None, (fitting(row, place) for place in places)), None)
    if record is not None:
        return record, (record.position,)
    meant = _next(row, places[0]) if places else None
    said = (Position(row[0], row[4]),) if type(row[4]) is int else ()
    return None, said if meant is None else (meant.position, *said)


def good_behind(rows: Iterable[Row], after: Position) -> int | None:
    """The first of the rows after a bad record that is whole: it fits what the row before it says, or should say.

    ``rows`` start behind ``after``, the last good place, and ascend; several may claim the same number.
    """
    said: set[Position] = set()  # by the rows so far, as their own places
    meant = after  # the place that the content of the rows so far leads to
    for row in rows:
        if any(fitting(row, place) for place in said) or (meant != after and fitting(row, meant)):
            return int(row[0])
        said = {place for place in said if place.seq in (row[0], row[0] - 1)} | {Position(row[0], row[4])}
        record = _next(row, meant)
        meant = meant if record is None else record.position
    return None


def damaged(first_bad: int, next_good: int) -> LogDamaged:
    """The refusal to cut off good records."""
    return LogDamaged(
        f"record {first_bad} of the log is missing or damaged, but good records follow (the next is {next_good}): "
        f"nothing was changed. Restore the log from a copy, or give up everything from record {first_bad} on with "
        f"`sketchbandits log STATE --cut {first_bad}`, which keeps what it cuts off"
    )
