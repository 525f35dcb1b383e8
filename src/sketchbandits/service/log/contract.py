"""What every event log promises, and how it says that it cannot keep the promise."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from sketchbandits.service.log.events import Event, Kind, Position, Record


class NotStored(Exception):
    """An append failed and nothing of it is in the log; the log can be used on."""


class Unavailable(NotStored):
    """The database cannot be asked now, and nothing was sent to it; later it may answer again."""


class Uncertain(Exception):
    """Whether an append is in the log cannot be found out now: stop, and open the log anew."""


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
        """Whether the log has this place: the record with this number and this checksum."""

    def recover(self, after: Position) -> Iterator[Record]:
        """The verified records after a place that the log holds; a damaged end is cut off, kept and told in `cuts`.

        Damage with good records behind it raises `LogDamaged`.
        """

    def read(self, after: int = 0) -> Iterator[Record]:
        """The verified records after a number, over a connection of its own that changes nothing."""

    def outcomes(self, decisions: Sequence[int]) -> dict[int, tuple[Kind, bytes]]:
        """What was booked for each of the decisions that has its reward, or the deadline's default."""

    def record(self, seq: int) -> Record | None:
        """One verified record."""

    def close(self) -> None:
        """Let go of the log; a second call does nothing."""
