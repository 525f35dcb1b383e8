"""Recovery: the newest snapshot that belongs to the log, and the records after it."""

import time
from dataclasses import dataclass

from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.folder import set_snapshots_aside
from sketchbandits.service.log import EventLog, LogDamaged
from sketchbandits.service.log.events import START, Position
from sketchbandits.service.log.progress import Progress, with_progress


@dataclass(frozen=True)
class Recovered:
    """A ledger as of the log's last good record, and how it was rebuilt."""

    ledger: Ledger
    snapshot: Position
    replayed: int
    seconds: float
    notes: tuple[str, ...]  # what an operator should know: snapshots passed over, records cut


def recover(log: EventLog, snapshots: Snapshots, progress: Progress = lambda done, total: None) -> Recovered:
    """Rebuild the ledger, bit-for-bit identical to one that was never stopped."""
    started = time.perf_counter()
    position, ledger = _newest(log, snapshots)
    replayed = ledger.replay(with_progress(log.recover(position), log.last.seq - position.seq, progress))
    cuts = (f"log cut back at record {cut.first}: {cut.reason}; kept in {cut.kept_in}" for cut in log.cuts)
    notes = (*snapshots.passed_over, *cuts)
    return Recovered(ledger, position, replayed, time.perf_counter() - started, notes)


def _newest(log: EventLog, snapshots: Snapshots) -> tuple[Position, Ledger]:
    """The newest snapshot that the log holds.

    A snapshot beyond the end of the log means that records are missing, which is expected only after a cut.
    """
    for position, ledger in snapshots.intact():
        if log.holds(position):
            return position, ledger
        if not log.cuts:
            raise LogDamaged(
                f"the log ends at record {log.last.seq} and does not hold record {position.seq}, of which there is a "
                f"snapshot: records are missing, or it is another log. Restore it from a copy; or move the folder "
                f"{snapshots.folder} away to go on from what the log has"
            )
        set_snapshots_aside(snapshots.folder, position.seq)
        snapshots.passed_over.append(f"snapshot {position.seq}: beyond the place where the log was cut back")
    return START, Ledger()
