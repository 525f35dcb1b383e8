"""A whole log read page by page, also behind damage: which records are bad, and which outcomes the index does not find.

`EventLog.read` stops at the first bad record. This goes on: behind a bad record, the next one is good if it follows the
place that the bad one names, or the place that its content leads to.
"""

import time
from contextlib import closing, suppress
from typing import NamedTuple

from sketchbandits.service.log import open_view
from sketchbandits.service.log.chain import ROWS_PER_PAGE, Row, judged
from sketchbandits.service.log.contract import LogDamaged, View
from sketchbandits.service.log.events import START, Position
from sketchbandits.service.log.progress import Progress

MISSING = "missing"
UNREADABLE = "not readable"
UNFIT = "not what was written: its checksum differs"
NOT_INDEXED = "sound, but not found by the index"


class Fault(NamedTuple):
    """Records from ``first`` to ``last``; ``reason`` is that of the first; ``time`` is in seconds since 1970."""

    first: int
    last: int
    reason: str
    time: float

    def __str__(self) -> str:
        if self.first == self.last:
            return f"record {self.first} is {self.reason}"
        return f"records {self.first} to {self.last} are damaged; record {self.first} is {self.reason}"

    @property
    def in_index(self) -> bool:
        """Whether the records themselves are sound: then starting the service rebuilds the index."""
        return self.reason == NOT_INDEXED


class _Verdict(NamedTuple):
    """On one record, or on several that are missing; ``decision`` is that of a good record of an outcome."""

    first: int
    last: int
    reason: str | None
    decision: int | None


class Scan:
    """One pass over a log: call `advance` until it returns 0. ``faults`` are those that have ended so far."""

    def __init__(self, page: int = ROWS_PER_PAGE) -> None:
        self.position = 0  # the last record that was read, or given up
        self.faults: list[Fault] = []
        self._page = page
        self._places: tuple[Position, ...] = (START,)  # which the next record may follow
        self._open: Fault | None = None  # bad records up to now

    def advance(self, view: View, end: int) -> int:
        """Read the next page; returns how many records that were, 0 at the end of the log.

        ``end`` is the number of a record that is known to be there. If the view is `Unavailable`, nothing has changed.
        """
        verdicts, places = self._next(view, end)
        found = _found(view, {v.decision: v.first for v in verdicts if v.decision is not None})
        self._places, count = places, 0
        for verdict in verdicts:
            lost = verdict.decision is not None and verdict.decision not in found
            self._judge(verdict._replace(reason=NOT_INDEXED) if lost else verdict)
            self.position, count = verdict.last, count + 1 + verdict.last - verdict.first
        if not count:
            self._close()
        return count

    def _next(self, view: View, end: int) -> tuple[list[_Verdict], tuple[Position, ...]]:
        """Verdicts on the next records, and the places that the one behind them may follow."""
        for size in (self._page, 1):
            with suppress(LogDamaged):
                return self._judged(view.rows(self.position, size), end)
        unreadable = _Verdict(self.position + 1, self.position + 1, UNREADABLE, None)
        return [unreadable] if self.position < end else [], ()

    def _judged(self, rows: list[Row], end: int) -> tuple[list[_Verdict], tuple[Position, ...]]:
        verdicts, last, places = list[_Verdict](), self.position, self._places
        for row in rows:
            if row[0] <= last:
                break  # a damaged file may return its rows in any order
            if row[0] > last + 1:
                verdicts.append(_Verdict(last + 1, row[0] - 1, MISSING, None))
                places = ()
            record, places = judged(row, places)
            reason, decision = (None, record.decision) if record is not None else (UNFIT, None)
            verdicts.append(_Verdict(row[0], row[0], reason, decision))
            last = row[0]
        if not verdicts and last < end:
            return [_Verdict(last + 1, last + 1 if rows else end, MISSING, None)], ()
        return verdicts, places

    def _judge(self, verdict: _Verdict) -> None:
        """Begin, continue or end a fault; records that need no index end no fault of the index."""
        first, last, reason, decision = verdict
        before = self._open
        if reason is None:
            if before is not None and (decision is not None or not before.in_index):
                self._close()
        elif before is not None and before.in_index == (reason == NOT_INDEXED):
            self._open = before._replace(last=last)
        else:
            self._close()
            self._open = Fault(first, last, reason, time.time())

    def _close(self) -> None:
        if self._open is not None:
            self.faults.append(self._open)
            self._open = None


def _found(view: View, outcomes: dict[int, int]) -> set[int]:
    """The decisions for which the index names the record that they have, and no other."""
    try:
        pairs = view.found(list(outcomes)) if outcomes else []
    except LogDamaged:
        pairs = [pair for decision in outcomes for pair in _found_alone(view, decision)]
    wrong = {decision for decision, seq in pairs if outcomes.get(decision) != seq}
    return {decision for decision, _ in pairs} - wrong


def _found_alone(view: View, decision: int) -> list[tuple[int, int]]:
    try:
        return view.found([decision])
    except LogDamaged:
        return []


def scanned(database: str, end: int, progress: Progress = lambda done, total: None) -> tuple[list[Fault], int]:
    """All faults of a log that has at least ``end`` records, and how many it has."""
    scan = Scan()
    with closing(open_view(database)) as view:
        while scan.advance(view, end):
            progress(scan.position, max(end, scan.position))
    return scan.faults, scan.position
