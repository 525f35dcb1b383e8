"""What the logs in SQLite and in PostgreSQL share: which calls are refused, and how a chain is continued and read."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from sketchbandits.service.log.chain import linked
from sketchbandits.service.log.contract import Cut, Uncertain
from sketchbandits.service.log.events import FORMAT, Event, Position, Record
from sketchbandits.validate import whole


class ChainedLog(ABC):
    """A log of chained records; see `EventLog` for what each method promises. A subclass stores and reads them."""

    last: Position
    format: int  # as it was found; opened for writing, the log has the current one afterwards

    def __init__(self, *, read_only: bool) -> None:
        self.cuts: list[Cut] = []
        self.notes: list[str] = []
        self._read_only, self._uncertain = read_only, False

    def append(self, events: Sequence[Event]) -> list[Record]:
        """Store the events in one transaction, durable on return; all of them or, with `NotStored`, none."""
        if self._read_only:
            raise ValueError("events must not be appended to a log that was opened read only")
        if self._uncertain:
            raise Uncertain("an earlier append left it undetermined what the log holds: open the log again")
        records = linked(events, self.last)
        if records:
            self._store(records)
            self.last = records[-1].position
        return records

    def recover(self, after: Position) -> Iterator[Record]:
        """The verified records after a place that the log holds; a damaged end is cut off, kept and added to `cuts`."""
        if not self.holds(after):
            raise ValueError(f"after must be a place of the log, which ends at {self.last}, got {after}")
        return self._recovered(after)

    def read(self, after: int = 0) -> Iterator[Record]:
        """The verified records after a number, read over a separate connection that changes nothing."""
        return self._read(whole("after", after, least=0))

    def _note_format(self) -> None:
        """Tell that a log of an earlier format has the current one now."""
        self.notes.append(
            f"the log had format {self.format} and has format {FORMAT} now: versions of sketchbandits that only know "
            f"format {self.format} will refuse it"
        )

    @abstractmethod
    def holds(self, position: Position) -> bool:
        """Whether the log has a record with this number and this checksum."""

    @abstractmethod
    def _store(self, records: list[Record]) -> None:
        """Insert records, at least one, in one transaction; raise `NotStored` or `Uncertain` if that fails."""

    @abstractmethod
    def _recovered(self, after: Position) -> Iterator[Record]:
        """The records that `recover` returns."""

    @abstractmethod
    def _read(self, after: int) -> Iterator[Record]:
        """The records that `read` returns."""
