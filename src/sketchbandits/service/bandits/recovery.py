"""Recovery: the newest snapshot that belongs to the log, and the records after it."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sketchbandits.service.bandits.environment import changed, environment
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.snapshots import Kept, Snapshots
from sketchbandits.service.folder import set_snapshots_aside
from sketchbandits.service.log import EventLog, LogDamaged
from sketchbandits.service.log.events import START, Kind, Position, Record, parsed
from sketchbandits.service.log.progress import Progress, with_progress

_LOOKED_BACK = 1_000  # records before a snapshot in which the last decision is sought


@dataclass(frozen=True)
class Recovered:
    """A ledger as of the log's last good record, and how it was rebuilt.

    ``last_time``: of the last record, by the clock of the service that wrote it.
    """

    ledger: Ledger
    snapshot: Position
    replayed: int
    seconds: float
    notes: tuple[str, ...]  # what an operator should know: snapshots passed over, records cut
    last_time: float | None


def recover(log: EventLog, snapshots: Snapshots, progress: Progress = lambda done, total: None) -> Recovered:
    """Rebuild the ledger, bit-for-bit identical to one that was never stopped (see `environment`)."""
    started = time.perf_counter()
    kept, last, replayed = _replayed(log, snapshots, progress)
    cuts = (f"log cut back at record {cut.first}: {cut.reason}; kept in {cut.kept_in}" for cut in log.cuts)
    elsewhere = None if kept.made_by is None else changed(kept.made_by, environment())
    notes = (*log.notes, *snapshots.passed_over, *cuts, *([] if elsewhere is None else [elsewhere]))
    return Recovered(kept.ledger, kept.position, replayed, time.perf_counter() - started, notes, last.time(log))


def _replayed(log: EventLog, snapshots: Snapshots, progress: Progress) -> tuple[Kept, "_Last", int]:
    """The newest snapshot and all that came later; the next one where the log turns out to end within it."""
    while True:
        kept = _newest(log, snapshots)
        last = _Last(log.recover(kept.position))
        replayed = kept.ledger.replay(with_progress(iter(last), log.last.seq - kept.position.seq, progress))
        if log.last.seq >= kept.until.seq:
            return kept, last, replayed
        _set_aside(snapshots, kept)


def _set_aside(snapshots: Snapshots, kept: Kept) -> None:
    set_snapshots_aside(snapshots.folder, kept.until.seq)
    snapshots.passed_over.append(f"snapshot {kept.until.seq}: beyond the place where the log was cut back")


def _newest(log: EventLog, snapshots: Snapshots) -> Kept:
    """The newest snapshot that the log holds.

    A snapshot beyond the end of the log means that records are missing, which is expected only after a cut.
    """
    for kept in snapshots.intact():
        position, until = kept.position, kept.until
        if log.holds(position) and log.holds(until):
            if (used := _numbers_used(log, position)) <= kept.ledger.next_number:
                return kept
            snapshots.passed_over.append(
                f"snapshot {until.seq}: its next decision is {kept.ledger.next_number}, the log has {used - 1}"
            )
            continue
        if not log.cuts:
            raise LogDamaged(
                f"the log ends at record {log.last.seq} and does not hold record {until.seq}, of which there is a "
                f"snapshot: records are missing, or it is another log. Restore it from a copy; or move the folder "
                f"{snapshots.folder} away to go on from what the log has"
            )
        _set_aside(snapshots, kept)
    return Kept(START, Ledger(), START, None)


def _numbers_used(log: EventLog, position: Position) -> int:
    """The first number that no decision shortly before a place has."""
    used = 0
    for seq in range(position.seq, max(position.seq - _LOOKED_BACK, 0), -1):
        try:
            record = log.record(seq)
        except LogDamaged:  # it is reported when it is needed
            continue
        if record is not None and record.kind == Kind.DECISION:
            data = parsed(record.body)
            return int(data["n"]) + len(data["arms"])
    return used


class _Last:
    """Records, of which the last one of a bandit is remembered: only the service's own clock has given it its time."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = records
        self._last: Record | None = None

    def __iter__(self) -> Iterator[Record]:
        for record in self._records:
            if record.kind != Kind.KEYS_REQUIRED:
                self._last = record
            yield record

    def time(self, log: EventLog) -> float | None:
        """When the last record was written; also where nothing was replayed."""
        seq = log.last.seq
        try:
            while self._last is None and seq > 0:
                if (record := log.record(seq)) is not None and record.kind != Kind.KEYS_REQUIRED:
                    self._last = record
                seq -= 1
        except LogDamaged:
            return None
        return None if self._last is None else float(parsed(self._last.body)["t"])
