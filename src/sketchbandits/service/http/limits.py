"""What a client may send: requests per second of a key, and a report of requests that came without a valid key."""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable

from starlette.requests import Request

from sketchbandits.service.http.reading import authorise
from sketchbandits.service.http.responses import HttpRefusal
from sketchbandits.service.keys import Key
from sketchbandits.service.service import Service

REPORT_SECONDS = 60.0
_MOST_ADDRESSES = 1_000  # counted each by itself, so that the counts need bounded memory
_SHOWN_ADDRESSES = 10  # in one line of the log
_OTHERS = "others"
_ROUNDING = 1e-9  # of a token, so that a wait that was asked for suffices

logger = logging.getLogger("sketchbandits.service")


class Gate:
    """Lets a request in that has a valid key of the right role which is within its limit."""

    def __init__(self, service: Service) -> None:
        self.service, self.limits, self.failures = service, Limits(), Failures()

    def admit(self, request: Request, needed: str) -> Key | None:
        """The key of a request, None while none is needed; or a refusal, which is counted if there is no valid key."""
        try:
            key = authorise(self.service, request, needed)
        except HttpRefusal as refusal:
            if refusal.status == 401:
                self.failures.add(request.client.host if request.client else "no address")
            raise
        if key is not None and key.rate is not None:
            self.limits.take(key.id, key.rate)
        return key


class Limits:
    """A token bucket per key, in memory: it holds the requests of one second, at least one, and is full at first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def take(self, key_id: str, rate: float) -> None:
        """One request; refused above ``rate`` per second. A refused request takes no token."""
        now, most = self.clock(), max(1.0, rate)
        tokens, then = self._buckets.get(key_id, (most, now))
        tokens = min(most, tokens + (now - then) * rate)
        admitted = tokens >= 1.0 - _ROUNDING
        self._buckets[key_id] = (tokens - 1.0 if admitted else tokens, now)
        if not admitted:
            wait = math.ceil((1.0 - tokens) / rate)
            message = f"this key may send {rate:g} requests per second: ask again after {wait} s; nothing was done"
            raise HttpRefusal(429, "limited", message, retry_after=wait)


class Failures:
    """Requests without a valid key, by address: guesses are to be seen. One line of the log per minute that has any."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, address: str) -> None:
        """One more; the first of a minute starts the only timer."""
        if not self.counts:
            asyncio.get_running_loop().call_later(REPORT_SECONDS, self.report)
        known = address in self.counts or len(self.counts) < _MOST_ADDRESSES
        self.counts[address if known else _OTHERS] += 1

    def report(self) -> None:
        """Log the counts and begin again."""
        if not self.counts:
            return
        shown = [f"{address} {count:,}" for address, count in self.counts.most_common(_SHOWN_ADDRESSES)]
        if len(self.counts) > len(shown):
            shown.append(f"{len(self.counts) - len(shown):,} more addresses")
        total, self.counts = self.counts.total(), Counter()
        logger.warning("%s requests without a valid key within a minute: %s", f"{total:,}", ", ".join(shown))
