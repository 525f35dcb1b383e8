"""SQLite's write-ahead log, read before SQLite does.

SQLite silently drops the part after the first frame that does not fit. This module says what it is going to drop: an
unfinished write, damage, or only old frames that wait to be overwritten.

**Reference.** The SQLite file format, section 4 (the write-ahead log) and the layout of its index in shared memory. The
checksum of a frame is a Fibonacci sequence with the words added in, hence linear: one product for all frames.
"""

import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HEADER = 32
FRAME_HEADER = 24
_MAGIC = 0x377F0682  # odd: checksums over big-endian words
_WORDS = NDArray[np.uint32]


class Wal(NamedTuple):
    """The frames of a write-ahead log; ``pages[i]`` is the page that frame ``i`` holds."""

    page_size: int
    pages: list[int]
    committed: int  # frames that SQLite is going to use
    reachable: int  # frames up to the last that ends a transaction, whatever is wrong before it
    size: int  # pages of the database by the last committed frame, 0 if there is none
    promised: int  # committed frames by SQLite's index in shared memory, 0 where it says nothing
    fault: str | None

    def offset(self, frame: int) -> int:
        """Where the page of a frame starts in the file."""
        return HEADER + frame * (FRAME_HEADER + self.page_size) + FRAME_HEADER


def read_wal(database: Path, page_size: int) -> Wal:
    """The write-ahead log of a database, empty if there is none."""
    path = sibling(database, "-wal")
    data = path.read_bytes() if path.exists() else b""
    if len(data) < HEADER:
        promised = _promised(database, None)
        lost = f"only {len(data)} bytes are left of its write-ahead log"
        return Wal(page_size, [], 0, 0, 0, promised, lost if data or promised else None)
    header = np.frombuffer(data, ">u4", 8)
    intact = _intact(header, page_size)
    frames = _frames(data, page_size)
    salts = header[4:6] if intact or not len(frames) else frames[0, 2:4]
    own = frames[:, 2:4] == salts
    good = own.all(axis=1) & _fits(header, frames)
    valid = int(np.argmin(np.append(good, False))) if intact else 0
    ends = frames[:, 1] != 0
    committed = _last(ends[:valid])
    promised = _promised(database, data[16:24])
    fault = None if intact else "the header of its write-ahead log is damaged"
    fault = fault or _torn(data, frames, own, committed)
    if fault is None and promised > committed:
        fault = f"its write-ahead log had {promised} frames and has {committed}"
    size = int(frames[committed - 1, 1]) if committed else 0
    return Wal(page_size, frames[:, 0].tolist(), committed, _last(ends & good), size, promised, fault)


def sibling(database: Path, suffix: str) -> Path:
    """The file in the database's folder whose name is that of the database with a suffix."""
    return database.with_name(database.name + suffix)


def _intact(header: NDArray[Any], page_size: int) -> bool:
    """Whether SQLite accepts this header."""
    if header[0] & ~np.uint32(1) != _MAGIC or header[2] != page_size:
        return False
    words = header[:6].astype(np.uint32) if header[0] & 1 else header[:6].byteswap().astype(np.uint32)
    return bool((_sums(words[None, :]) == header[6:8]).all())


def _frames(data: bytes, page_size: int) -> NDArray[Any]:
    """Every whole frame as a row of big-endian words."""
    words = (FRAME_HEADER + page_size) // 4
    count = (len(data) - HEADER) // 4 // words
    return np.frombuffer(data, ">u4", count * words, HEADER).reshape(count, words)


def _fits(header: NDArray[Any], frames: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the checksum of each frame continues the one that the frame before says it has."""
    if not len(frames):
        return np.zeros(0, np.bool_)
    words = np.concatenate([frames[:, :2], frames[:, 6:]], axis=1)
    words = words.astype(np.uint32) if header[0] == _MAGIC | 1 else words.byteswap().astype(np.uint32)
    said = frames[:, 4:6].astype(np.uint32)
    before = np.concatenate([header[None, 6:8].astype(np.uint32), said[:-1]])
    result: NDArray[np.bool_] = (_sums(words, before) == said).all(axis=1)
    return result


def _sums(words: _WORDS, before: _WORDS | None = None) -> _WORDS:
    """SQLite's checksum of each row: ``t[k] = t[k-1] + t[k-2] + word[k]``, of which the last two count."""
    count = words.shape[1]
    fibonacci = np.ones(count + 2, np.uint32)
    for k in range(2, count + 2):
        fibonacci[k] = np.uint32((int(fibonacci[k - 1]) + int(fibonacci[k - 2])) & 0xFFFFFFFF)
    backwards = fibonacci[:count][::-1]
    sums = np.stack([words[:, :-1] @ backwards[1:], words @ backwards], axis=1)
    if before is not None:
        s, t = before[:, 0], before[:, 1]
        sums[:, 0] += fibonacci[count - 2] * s + fibonacci[count - 1] * t
        sums[:, 1] += fibonacci[count - 1] * s + fibonacci[count] * t
    return sums


def _last(marked: NDArray[np.bool_]) -> int:
    """One more than the last marked place, 0 if there is none."""
    places = np.flatnonzero(marked)
    return int(places[-1]) + 1 if len(places) else 0


def _torn(data: bytes, frames: NDArray[Any], own: NDArray[np.bool_], committed: int) -> str | None:
    """Why what follows the committed frames is more than old frames, both of whose salts differ."""
    rest = own[committed:].any(axis=1) | (frames[committed:, 0] == 0)
    reason = f"its write-ahead log is torn or damaged behind frame {committed}"
    if rest.any():
        return reason
    part = data[HEADER + frames.size * 4 :]
    if not part or len(rest):
        return None
    salts = data[16:24]
    old = len(part) >= 16 and part[8:12] != salts[:4] and part[12:16] != salts[4:]
    return None if old else reason


def _promised(database: Path, salts: bytes | None) -> int:
    """How many frames were committed when the last process died: SQLite notes it once they are on disk."""
    path = sibling(database, "-shm")
    if not path.exists():
        return 0
    with path.open("rb") as file:
        index = file.read(96)
    if len(index) < 96 or index[:48] != index[48:] or index[12] != 1 or salts not in (None, index[32:40]):
        return 0
    frames: int = struct.unpack_from("=I", index, 16)[0]
    return frames
