"""The contract of every event log, and the exceptions by which it says that it cannot keep it."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

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


class View(Protocol):
    """A connection that only reads, for one thread beside the writer's. What it returns is not verified.

    Every method raises `LogDamaged` where the database cannot read what is stored there, and can be called again for
    another place; `Unavailable` where it does not answer, and then this view is of no more use.
    """

    def last(self) -> int:
        """The number of the last row, 0 where there is none."""

    def rows(self, after: int, count: int) -> list[tuple[Any, ...]]:
        """Up to ``count`` rows with higher numbers, in order: seq, kind, decision, body, chain."""

    def found(self, decisions: Sequence[int]) -> list[tuple[int, int]]:
        """What the index of outcomes says of these decisions: pairs of a decision and the number of its record."""

    def close(self) -> None:
        """Close the connection."""


class EventLog(Protocol):
    """Numbered, chained records of which none is lost once `append` has returned.

    One thread at a time may call it, not always the same one; `read` may be called at any time by any thread. A
    database on the network may not answer for a while: that is `Unavailable`.
    """

    last: Position
    cuts: list[Cut]
    notes: list[str]  # what opening it changed, as sentences for an operator
    format: int  # the format that was found

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
        """The reward record, or that of the default at the deadline, of each of these decisions that has one.

        Raises `LogDamaged` if one of them is damaged, or if the index names a record of another decision; then ask for
        each alone. The log can be used further.
        """

    def record(self, seq: int) -> Record | None:
        """One verified record; raises `LogDamaged` if it is damaged, and the log can be used further."""

    def probe(self) -> None:
        """Raise `NotStored` where the log could not be written now: a full disk, a database that only reads."""

    def heartbeat(self) -> None:
        """Show the database that the writer lives, and see that it is still the only one.

        Raises `Unavailable` where the database does not answer, `Uncertain` where another process has taken over.
        After the first call a PostgreSQL server ends the session after 20 s without a statement, so that the next
        owner need not wait for a process that has stopped: call it every 5 s from then on.
        """

    def close(self) -> None:
        """Close the log; a second call does nothing."""
