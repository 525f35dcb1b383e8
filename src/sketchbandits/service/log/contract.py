"""The contract of every event log, and the exceptions by which it says that it cannot keep it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from sketchbandits.service.log.events import Event, Kind, Position, Record


class NotStored(Exception):
    """An append failed and nothing of it is in the log; the log can still be used."""


class Unavailable(NotStored):
    """The database does not answer now, and nothing was sent to it; it may answer again later."""


class Uncertain(Exception):
    """Whether an append is in the log cannot be determined now: stop, and open the log again."""


class LogDamaged(Exception):
    """The log is not what was written, and not only at its end: a person must decide. Nothing was changed."""


class LogInUse(Exception):
    """Another process has the log open for writing."""


class Cut(NamedTuple):
    """What was cut off: ``records`` of them could still be read, from record ``first`` on; all is ``kept_in``."""

    first: int
    records: int
    reason: str
    kept_in: str


class EventLog(Protocol):
    """Numbered, chained records of which none is lost once `append` has returned.

    One thread at a time may call it, not always the same one; `read` may be called at any time by any thread. A
    database on the network may not answer for a while: that is `Unavailable`.
    """

    last: Position
    cuts: list[Cut]

    def append(self, events: Sequence[Event]) -> list[Record]:
        """Store the events in one transaction, durable on return; all of them or, with `NotStored`, none."""

    def holds(self, position: Position) -> bool:
        """Whether the log has a record with this number and this checksum."""

    def recover(self, after: Position) -> Iterator[Record]:
        """The verified records after a place that the log holds; a damaged end is cut off, kept and added to `cuts`.

        Damage with good records behind it raises `LogDamaged`.
        """

    def read(self, after: int = 0) -> Iterator[Record]:
        """The verified records after a number, read over a separate connection that changes nothing."""

    def outcomes(self, decisions: Sequence[int]) -> dict[int, tuple[Kind, bytes]]:
        """The reward record, or that of the default at the deadline, of each of these decisions that has one."""

    def record(self, seq: int) -> Record | None:
        """One verified record."""

    def close(self) -> None:
        """Close the log; a second call does nothing."""
