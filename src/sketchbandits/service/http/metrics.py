"""Numbers for Prometheus, and the latencies that the dashboard shows.

Counters live where things are counted; they are read when somebody asks, so that a request pays for no more than one
addition into a histogram.
"""

import bisect
import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

if TYPE_CHECKING:
    from sketchbandits.service.service import Service

# Upper ends in seconds, each 1.26 times the last: a percentile read off them is within 12 %.
ENDS = tuple(1e-4 * 10 ** (i / 10) for i in range(52))


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
        """The end below which this share lies, in seconds; none without observations."""
        if not (count := self.count):
            return None
        wanted = share * count
        place = bisect.bisect_left(list(itertools.accumulate(self.counts)), wanted)
        return ENDS[min(place, len(ENDS) - 1)]

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus takes them: at most one in three."""
        sums = list(itertools.accumulate(self.counts))
        return [*((f"{ENDS[i]:.6g}", sums[i]) for i in range(0, len(ENDS), 3)), ("+Inf", sums[-1])]


class _Collector:
    def __init__(self, service: "Service") -> None:
        self.service = service

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        if (writer := self.service.writer) is None:
            return
        yield from self._bandits()
        stats, prefix = writer.stats, "sketchbandits"
        yield GaugeMetricFamily(f"{prefix}_queue", "Decisions and rewards that wait.", writer.waiting)
        yield CounterMetricFamily(f"{prefix}_queue_refusals", "Requests refused by a full queue.", stats.refused)
        yield CounterMetricFamily(f"{prefix}_commits", "Groups committed to the log.", stats.groups)
        yield CounterMetricFamily(f"{prefix}_commit_seconds", "Time spent committing.", stats.commit_seconds)
        yield CounterMetricFamily(f"{prefix}_commits_refused", "Groups that the log refused.", stats.not_stored)
        yield CounterMetricFamily(f"{prefix}_snapshots", "Snapshots written.", stats.snapshots)
        yield GaugeMetricFamily(f"{prefix}_log_records", "Records in the log.", writer.log.last.seq)
        yield GaugeMetricFamily(f"{prefix}_snapshot_record", "The last snapshot's record.", writer.snapshot.seq)
        yield GaugeMetricFamily(f"{prefix}_log_cuts", "Times the log was cut back at the start.", len(writer.log.cuts))

    def _requests(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("sketchbandits_ready", "Whether requests are served.", float(self.service.ready))
        answers = CounterMetricFamily("sketchbandits_answers", "HTTP answers.", labels=["method", "path", "status"])
        for (method, path, status), count in self.service.answers.items():
            answers.add_metric([method, path, str(status)], count)
        yield answers
        latency = HistogramMetricFamily(
            "sketchbandits_request_seconds", "From request to answer.", labels=["path"], unit="seconds"
        )
        for path, histogram in self.service.latency.items():
            latency.add_metric([path], histogram.buckets(), histogram.sum)
        yield latency

    def _bandits(self) -> Iterator[Metric]:
        bandits = self.service.ledger.bandits.values()
        for name, text in (
            ("decisions", "Decisions made."),
            ("rewards", "Rewards booked, those of deadlines too."),
            ("defaults", "Rewards that the deadline booked."),
        ):
            counter = CounterMetricFamily(f"sketchbandits_{name}", text, labels=["bandit"])
            for bandit in bandits:
                counter.add_metric([bandit.name], getattr(bandit, name))
            yield counter
        # Rewards may be negative: a gauge, not a counter.
        total = GaugeMetricFamily("sketchbandits_reward_sum", "The sum of rewards.", labels=["bandit"])
        outstanding = GaugeMetricFamily("sketchbandits_outstanding", "Decisions without a reward.", labels=["bandit"])
        for bandit in bandits:
            total.add_metric([bandit.name], bandit.reward_sum)
            outstanding.add_metric([bandit.name], len(bandit.waiting))
        yield from (total, outstanding)


def exposition(service: "Service") -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Collector(service))
    return generate_latest(registry)
