"""How many requests were answered with which status, and how long answers took, since the service began."""

import bisect
import itertools
from collections import Counter
from typing import Any

# Upper ends in seconds, each 1.26 times the one before: a percentile read from them is within 12 %.
ENDS = tuple(1e-4 * 10 ** (i / 10) for i in range(52))
_SHOWN = ("/v1/decisions", "/v1/rewards")
_PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999}


class Histogram:
    """Counts between fixed ends."""

    def __init__(self) -> None:
        self.counts = [0] * (len(ENDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """One more observation."""
        self.counts[bisect.bisect_left(ENDS, seconds)] += 1
        self.sum += seconds

    @property
    def count(self) -> int:
        """How many observations."""
        return sum(self.counts)

    def percentile(self, share: float) -> float | None:
        """The end below which this share of observations lies, in seconds; None without observations."""
        if not (count := self.count):
            return None
        wanted = share * count
        place = bisect.bisect_left(list(itertools.accumulate(self.counts)), wanted)
        return ENDS[min(place, len(ENDS) - 1)]

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts in the form that Prometheus takes, at every third end."""
        sums = list(itertools.accumulate(self.counts))
        return [*((f"{ENDS[i]:.6g}", sums[i]) for i in range(0, len(ENDS), 3)), ("+Inf", sums[-1])]


class Traffic:
    """Latency by path, and answers by method, path and status."""

    def __init__(self) -> None:
        self.latency: dict[str, Histogram] = {}
        self.answers: Counter[tuple[str, str, int]] = Counter()

    def decision_latency(self) -> dict[str, Any]:
        """The latency of decisions and rewards together, in milliseconds."""
        both = Histogram()
        for path in _SHOWN:
            if path in self.latency:
                both.counts = [a + b for a, b in zip(both.counts, self.latency[path].counts, strict=True)]
        seconds = {name: both.percentile(share) for name, share in _PERCENTILES.items()}
        return {"count": both.count, **{name: None if s is None else 1e3 * s for name, s in seconds.items()}}
