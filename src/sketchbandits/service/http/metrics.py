"""Numbers for Prometheus.

Counters live where things are counted and are read when `exposition` is called, so that a request costs no more than
one addition to a histogram.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from sketchbandits.service.http.traffic import Traffic
from sketchbandits.service.service import Service


class _Collector:
    def __init__(self, service: Service, traffic: Traffic) -> None:
        self.service, self.traffic = service, traffic

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
        for (method, path, status), count in self.traffic.answers.items():
            answers.add_metric([method, path, str(status)], count)
        yield answers
        latency = HistogramMetricFamily(
            "sketchbandits_request_seconds", "From request to answer.", labels=["path"], unit="seconds"
        )
        for path, histogram in self.traffic.latency.items():
            latency.add_metric([path], histogram.buckets(), histogram.sum)
        yield latency

    def _bandits(self) -> Iterator[Metric]:
        bandits = self.service.ledger.bandits.values()
        for name, text in (
            ("decisions", "Decisions made."),
            ("rewards", "Rewards recorded, default rewards included."),
            ("defaults", "Default rewards recorded at deadlines."),
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


def exposition(service: Service, traffic: Traffic) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Collector(service, traffic))
    return generate_latest(registry)
