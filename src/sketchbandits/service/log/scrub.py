"""The whole log read again and again beside the service, slowly: damage is found before a request meets it."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing

from sketchbandits.service.log.contract import EventLog, Unavailable, View
from sketchbandits.service.log.scan import Fault, Scan

RATE = 2_000.0  # records per second
EVERY = 86_400.0  # seconds from the start of one pass to that of the next
MOST_FAULTS = 1_000  # that are remembered and reported
_PAGE = 100  # records that are read at once: the work of a moment
_PAUSE = 10.0  # seconds, where the database does not answer

logger = logging.getLogger("sketchbandits.service")


class Scrubber:
    """Verifies every record of a log, and that the index finds every outcome; never changes anything.

    Call `run` in a thread of its own. Everything else may be read at any time from any thread.
    """

    def __init__(
        self,
        log: EventLog,
        report: Callable[[Fault], None] = lambda fault: None,
        *,
        rate: float = RATE,
        every: float = EVERY,
    ) -> None:
        self.faults: list[Fault] = []
        self.passes = 0
        self.finished_at: float | None = None  # the end of the last pass, in seconds since 1970
        self._log, self._report, self._rate, self._every = log, report, rate, every
        self._scan = Scan(_PAGE)
        self._known: set[tuple[int, str]] = set()

    @property
    def position(self) -> int:
        """The last record that the present pass has read, or the last pass, where none is under way."""
        return self._scan.position

    @property
    def total(self) -> int:
        """How many records the log has now."""
        return self._log.last.seq

    def run(self, stop: threading.Event) -> None:
        """One pass after the other until ``stop`` is set; the log may be closed only when this has returned."""
        while not stop.is_set():
            self._scan, began = Scan(_PAGE), time.monotonic()
            while not stop.is_set() and not self._passed(stop):
                stop.wait(_PAUSE)
            stop.wait(max(0.0, self._every - (time.monotonic() - began)))

    def _passed(self, stop: threading.Event) -> bool:
        """Whether the pass has ended; if the database does not answer, it goes on later from where it is."""
        try:
            with closing(self._log.view()) as view:
                while not stop.is_set():
                    if not self._page(view, stop):
                        self.passes += 1
                        self.finished_at = time.time()
                        return True
        except Unavailable as error:
            logger.info("the log is not verified while the database does not answer: %s", error)
        except Exception:  # whatever happens here, the service goes on
            logger.exception("verifying the log failed at record %d: next pass in %.0f s", self.position, self._every)
            return True
        return False

    def _page(self, view: View, stop: threading.Event) -> bool:
        """Read a page, report what was wrong, and sleep as long as the rate wants; False at the end of the log."""
        began = time.monotonic()
        count = self._scan.advance(view, self._log.last.seq)
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
