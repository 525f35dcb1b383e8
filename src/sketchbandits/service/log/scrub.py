"""The whole log read again and again beside the service, slowly: damage is found before a request meets it."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing

from sketchbandits.service.log import open_view
from sketchbandits.service.log.contract import LogDamaged, Unavailable, View
from sketchbandits.service.log.scan import UNREADABLE, Fault, Scan

RATE = 500.0  # records per second: a fiftieth of a processor
EVERY = 86_400.0  # seconds from the start of one pass to that of the next
MOST_FAULTS = 1_000  # that are remembered and reported
_PAGE = 100  # records that are read at once: the work of a moment
_PAUSE = 10.0  # seconds, where the database does not answer

logger = logging.getLogger("sketchbandits.service")


class Scrubber:
    """Verifies every record of a log, and that the index finds every outcome; never changes anything.

    Call `run` in a thread of its own. Everything else may be read at any time from any thread. ``end`` says which
    record is surely there, as the writer of the log knows: without it, lost records at the end are no fault before they
    have been read once.
    """

    def __init__(
        self,
        database: str,
        *,
        rate: float = RATE,
        every: float = EVERY,
        report: Callable[[Fault], None] = lambda fault: None,
        end: Callable[[], int] = lambda: 0,
    ) -> None:
        self.total = 0  # records in the log, when the present pass began or later
        self.checked = 0  # records, in all passes
        self.passes = 0  # that reached the end of the log
        self.faults: list[Fault] = []
        self.finished_at: float | None = None  # the end of the last pass, in seconds since 1970
        self._database, self._rate, self._every = database, rate, every
        self._report, self._end = report, end
        self._scan = Scan(_PAGE)
        self._known: set[tuple[int, str]] = set()

    @property
    def position(self) -> int:
        """The last record that the present pass has read, or the last pass, where none is under way."""
        return self._scan.position

    def run(self, stop: threading.Event) -> None:
        """One pass after the other until ``stop`` is set; close the log only when this has returned."""
        while not stop.is_set():
            self._scan, began = Scan(_PAGE), time.monotonic()
            while not stop.is_set() and not self._ended(stop):
                stop.wait(_PAUSE)
            stop.wait(max(0.0, self._every - (time.monotonic() - began)))

    def _ended(self, stop: threading.Event) -> bool:
        """Whether the pass has ended; if the database does not answer, it goes on later from where it is."""
        try:
            with closing(open_view(self._database)) as view:
                return self._passed(view, stop)
        except Unavailable as error:
            logger.info("the log is not verified while the database does not answer: %s", error)
            return False
        except Exception:  # whatever happens here, the service goes on
            logger.exception("verifying the log failed at record %d: next pass in %.0f s", self.position, self._every)
            return True

    def _passed(self, view: View, stop: threading.Event) -> bool:
        """Go on to the end of the log; False where that is not reached before ``stop``."""
        lost = None
        try:
            self.total = max(self.total, self._end(), view.last())
        except LogDamaged as error:
            lost = error
        while not stop.is_set():
            if self._page(view, stop):
                continue
            if lost is not None:  # only damage says where the log ends
                self._remember(Fault(self.position + 1, self.position + 1, UNREADABLE, time.time()))
            self.passes += 1
            self.finished_at = time.time()
            return True
        return False

    def _page(self, view: View, stop: threading.Event) -> bool:
        """Read a page, report what was wrong, and sleep as long as the rate wants; False at the end of the log."""
        began = time.monotonic()
        count = self._scan.advance(view, self.total)
        self.checked += count
        self.total = max(self.total, self.position)
        while self._scan.faults:
            self._remember(self._scan.faults.pop(0))
        stop.wait(max(0.0, count / self._rate - (time.monotonic() - began)))
        return count > 0

    def _remember(self, fault: Fault) -> None:
        """Report a fault that no earlier pass has found."""
        key = (fault.first, fault.reason)
        if key not in self._known and len(self.faults) < MOST_FAULTS:
            self._known.add(key)
            self.faults.append(fault)
            self._report(fault)
