"""A change of a bandit: planned, written to the log, then applied. Recovery reads it back and applies it again."""

from typing import Any, NamedTuple

from sketchbandits.kernels.linalg import Floats
from sketchbandits.service.log.encoding import body, body_with_features
from sketchbandits.service.log.events import Event, Kind, Record, features_of, parsed


class Change(NamedTuple):
    """What an event says, before it is written or after it was read.

    ``decision`` is the number of the decision that a reward belongs to; ``features`` are those of new arms.
    """

    kind: Kind
    decision: int | None
    data: dict[str, Any]
    features: Floats | None = None

    def event(self) -> Event:
        """The change as the log holds it."""
        data, features = self.data, self.features
        return Event(self.kind, self.decision, body(data) if features is None else body_with_features(data, features))

    @classmethod
    def from_record(cls, record: Record) -> "Change":
        """The change that a record of the log holds."""
        features = features_of(record.body) if record.kind in (Kind.BANDIT, Kind.ARMS_ADDED) else None
        return cls(record.kind, record.decision, parsed(record.body), features)
