"""What the log holds: numbered, chained records of everything that ever changed a bandit.

Replay applies them in order and reads nothing else, no clock and no random number: whatever chance or time decided is
in the body. A body is one line of JSON in UTF-8, for arms followed by their features as raw little-endian float64.
"""

import json
import struct
import zlib
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats

FORMAT = 2  # of the log: the records below and the tables that hold them; this one is written
FORMATS = (1, 2)  # these are read: format 1 has the kinds 1 to 6, and in PostgreSQL no table of owners

_HEAD = struct.Struct("<qqq")
_NO_DECISION = -1


class Kind(IntEnum):
    """What happened; the numbers are part of the format."""

    BANDIT = 1
    ARMS_ADDED = 2
    ARMS_REMOVED = 3
    DECISION = 4
    REWARD = 5
    DEFAULT = 6  # the default reward, recorded when the deadline passes
    RETRACTED = 7  # rewards that an administrator took back
    BANDIT_DELETED = 8
    ARMS_FREED = 9  # removed arms whose memory is given back
    KEYS_REQUIRED = 10  # of no bandit: from now on every request needs a key


class Event(NamedTuple):
    """A change that is to be logged; ``decision`` is the number of the decision that a reward belongs to."""

    kind: Kind
    decision: int | None
    body: bytes


class Position(NamedTuple):
    """A place in the log: after the record ``seq``, whose checksum is ``chain``."""

    seq: int
    chain: int


START = Position(0, 0)


class Record(NamedTuple):
    """An event at its place. Its checksum continues that of the record before: a chain with no record left out."""

    seq: int
    kind: Kind
    decision: int | None
    body: bytes
    chain: int

    @property
    def position(self) -> Position:
        """The place after this record."""
        return Position(self.seq, self.chain)


def chained(event: Event, after: Position) -> Record:
    """The event as the record that follows ``after``."""
    kind, decision, body = event
    seq = after.seq + 1
    head = _HEAD.pack(seq, kind, _NO_DECISION if decision is None else decision)
    return Record(seq, kind, decision, body, zlib.crc32(body, zlib.crc32(head, after.chain)))


def parsed(body: bytes) -> dict[str, Any]:
    """The JSON part of a body."""
    value: dict[str, Any] = json.loads(body.partition(b"\n")[0])
    return value


def features_of(body: bytes) -> Floats:
    """The matrix of a body that `encoding.body_with_features` made."""
    head, _, raw = body.partition(b"\n")
    return np.frombuffer(raw, "<f8").reshape(json.loads(head)["shape"]).astype(np.float64)
