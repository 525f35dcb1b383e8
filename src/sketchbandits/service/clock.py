"""The time that records get: it never jumps, whatever happens to the machine's clock.

Within a process it is the machine's clock at the start and what has passed since by a clock that nobody can set, and
which counts while the machine sleeps. Deadlines are durations, so this is what they need. A machine's clock that is set
meanwhile is reported and otherwise ignored.

Between two processes of one boot of the machine the same holds: the first process notes in ``clock.json`` how its time
relates to the time since the boot. After another boot only the machine's clock is left. It may be wrong until the
machine has asked a time server, so deadlines wait for a minute where much time seems to have passed. A clock that is
set back in that minute was ahead, and is followed, since otherwise deadlines would pass too early; time never goes back
behind the last record before the start.
"""

import json
import os
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from sketchbandits.service.folder import flush_folder

JUMP = 5.0  # seconds: less is the ordinary correction of a clock
DOUBT = 60.0  # seconds that deadlines wait after a start at which the clock may be wrong
GAP = 600.0  # seconds without a record after which it may be
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def uptime() -> float:
    """Seconds since the boot; on systems without such a clock since any moment, for this process alone."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def boot_id() -> str | None:
    """What tells this boot of the machine from others; None where the system does not say."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return None


class ServiceClock:
    """The time of one service; ``notes`` says what was strange at the start, ``doubt`` how long deadlines wait."""

    def __init__(
        self,
        path: Path,
        last: float | None,
        *,
        wall: Callable[[], float] = time.time,
        up: Callable[[], float] = uptime,
        boot: str | None = None,
    ) -> None:
        self.notes: list[str] = []
        self.doubt = 0.0
        self._path, self._wall, self._up = path, wall, up
        self._boot = boot_id() if boot is None else boot
        self._ahead = 0.0  # by how much the machine's clock is ahead, as last reported
        self._last = last
        self._start = self._offset(last)
        self._doubt_ends = self._up() + self.doubt
        self._note_boot()

    def now(self) -> float:
        """The present time, in Unix seconds."""
        return self._start + self._up()

    @property
    def ahead(self) -> float:
        """By how many seconds the machine's clock is ahead of this one."""
        return self._wall() - self.now()

    def check(self) -> str | None:
        """A sentence if the machine's clock has been set since the last call."""
        ahead = self.ahead
        if abs(ahead - self._ahead) < JUMP:
            return None
        moved, self._ahead = ahead - self._ahead, ahead
        if moved < 0.0 and self._up() < self._doubt_ends and self._last is not None:
            self._start = max(self._start + moved, self._last - self._up())
            self._ahead = self.ahead
            self._note_boot()
            return f"the machine's clock was set by {moved:+.0f} s soon after the start, and is followed"
        return f"the machine's clock was set by {moved:+.0f} s; deadlines go on by the time that has really passed"

    def _offset(self, last: float | None) -> float:
        """The time at the boot."""
        wall = self._wall() - self._up()
        if (noted := self._noted()) is not None:
            if abs(wall - noted) >= JUMP:
                self.notes.append(
                    f"the machine's clock was set by {wall - noted:+.0f} s while the service was down; deadlines go on "
                    "by the time that has really passed"
                )
                self._ahead = wall - noted
                return noted
            return wall if last is None else max(wall, last - self._up())
        if last is None:
            return wall
        gap = wall + self._up() - last
        if gap < 0.0:
            self.notes.append(f"the machine's clock is {-gap:.0f} s behind the last record; time goes on from there")
            self._ahead, self.doubt = gap, DOUBT
            return last - self._up()
        if gap > GAP:
            self.notes.append(
                f"{gap:.0f} s have passed since the last record, if the machine's clock is right: deadlines wait "
                f"{DOUBT:.0f} s"
            )
            self.doubt = DOUBT
        return wall

    def _noted(self) -> float | None:
        """The time at this boot as an earlier process knew it."""
        try:
            value = json.loads(self._path.read_bytes())
            noted = float(value["start"])
            if value["check"] != _check(value["boot"], noted):
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return noted if self._boot is not None and value["boot"] == self._boot else None

    def _note_boot(self) -> None:
        """Keep how this time relates to the time since the boot; a full disk is no reason not to start."""
        try:
            handle, part = tempfile.mkstemp(dir=self._path.parent, prefix=self._path.name)
        except OSError:
            return
        try:
            with os.fdopen(handle, "w") as file:
                json.dump({"boot": self._boot, "start": self._start, "check": _check(self._boot, self._start)}, file)
            os.replace(part, self._path)
            flush_folder(self._path.parent)
        except OSError:
            Path(part).unlink(missing_ok=True)


def _check(boot: str | None, start: float) -> int:
    """A checksum: a damaged note would move every deadline."""
    return zlib.crc32(f"{boot} {start!r}".encode())
