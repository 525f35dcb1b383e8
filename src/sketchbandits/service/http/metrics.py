"""Numbers for Prometheus.

Counters live where things are counted and are read when `exposition` is called, so that a request costs no more than
one addition to a histogram.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.writer import Writer
from sketchbandits.service.http.process import process_metrics
from sketchbandits.service.http.traffic import Traffic
from sketchbandits.service.service import Service

_PREFIX = "sketchbandits"


def exposition(service: Service, traffic: Traffic) -> bytes:
    """The text that Prometheus reads."""
    registry = CollectorRegistry()
    registry.register(_Collector(service, traffic))
    return generate_latest(registry)


class _Collector:
    def __init__(self, service: Service, traffic: Traffic) -> None:
        self.service, self.traffic = service, traffic

    def collect(self) -> Iterator[Metric]:
        yield from process_metrics()
        yield from _requests(self.service, self.traffic)
        yield from _connections(self.service)
        if (writer := self.service.writer) is not None:
            yield from _bandits(list(self.service.ledger.bandits.values()))
            yield from _queue(writer)
            yield from _log(self.service, writer)


def _requests(service: Service, traffic: Traffic) -> Iterator[Metric]:
    yield _gauge("ready", "Whether requests are served.", float(service.ready))
    answers = CounterMetricFamily(f"{_PREFIX}_answers", "HTTP answers.", labels=["method", "path", "status"])
    for (method, path, status), count in traffic.answers.items():
        answers.add_metric([method, path, str(status)], count)
    yield answers
    latency = HistogramMetricFamily(
        f"{_PREFIX}_request_seconds", "From request to answer.", labels=["path"], unit="seconds"
    )
    for path, histogram in traffic.latency.items():
        latency.add_metric([path], histogram.buckets(), histogram.sum)
    yield latency


def _connections(service: Service) -> Iterator[Metric]:
    counts = service.connections
    yield _gauge("connections", "Open connections.", counts.open)
    closed = CounterMetricFamily(f"{_PREFIX}_connections_closed", "Connections that were closed.", labels=["reason"])
    for reason in ("closed_idle", "closed_slow", "closed_unread", "displaced", "refused", "oversized"):
        closed.add_metric([reason.removeprefix("closed_")], getattr(counts, reason))
    yield closed


def _bandits(bandits: list[Bandit]) -> Iterator[Metric]:
    for name, text in (
        ("decisions", "Decisions made."),
        ("defaults", "Default rewards recorded at deadlines."),
        ("retracted", "Rewards taken back."),
    ):
        counter = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=["bandit"])
        for bandit in bandits:
            counter.add_metric([bandit.name], getattr(bandit.totals, name))
        yield counter
    rewards = CounterMetricFamily(
        f"{_PREFIX}_rewards", "Rewards recorded, default rewards included.", labels=["bandit"]
    )
    unknown = CounterMetricFamily(
        f"{_PREFIX}_unknown_rewards", "Rewards for decisions that do not exist; guesses, if many.", labels=["bandit"]
    )
    # Rewards may be negative: a gauge, not a counter.
    total = GaugeMetricFamily(f"{_PREFIX}_reward_sum", "The sum of rewards.", labels=["bandit"])
    outstanding = GaugeMetricFamily(f"{_PREFIX}_outstanding", "Decisions without a reward.", labels=["bandit"])
    memory = GaugeMetricFamily(f"{_PREFIX}_state_bytes", "Memory of the policy's state.", labels=["bandit"])
    yield from _assumptions(bandits)
    for bandit in bandits:
        rewards.add_metric([bandit.name], bandit.totals.rewards + bandit.totals.retracted)  # a counter never falls
        unknown.add_metric([bandit.name], bandit.unknown_rewards)
        total.add_metric([bandit.name], bandit.totals.reward_sum)
        outstanding.add_metric([bandit.name], len(bandit.waiting))
        memory.add_metric([bandit.name], bandit.state_bytes)
    yield from (rewards, unknown, total, outstanding, memory)


def _assumptions(bandits: list[Bandit]) -> Iterator[Metric]:
    text = "Whether a parameter looks too small for the rewards, so that bounds may not hold."
    violated = GaugeMetricFamily(f"{_PREFIX}_assumption_violated", text, labels=["bandit", "parameter"])
    seen = GaugeMetricFamily(f"{_PREFIX}_noise_seen", "Standard deviation of rewards of one arm.", labels=["bandit"])
    for bandit in bandits:
        found = bandit.diagnosed
        wrong = {violation.parameter for violation in found.violated}
        for name in ("noise", "theta_norm"):
            if getattr(found, name) is not None:
                violated.add_metric([bandit.name, name], float(name in wrong))
        if found.noise_seen is not None:
            seen.add_metric([bandit.name], found.noise_seen)
    yield from (violated, seen)


def _queue(writer: Writer) -> Iterator[Metric]:
    commits = writer.committer.stats
    yield _gauge("queue", "Decisions and rewards that wait.", writer.waiting)
    yield _counter("queue_refusals", "Requests refused by a full queue.", writer.refused)
    yield _counter("commits", "Groups committed to the log.", commits.groups)
    yield _counter("commit_seconds", "Time spent committing.", commits.seconds)
    yield _counter("commits_refused", "Groups that the log refused.", commits.not_stored)
    yield _gauge("log_writable", "Whether the log can be written.", float(writer.committer.refusing is None))
    yield _counter("damaged_look_ups", "Requests that asked for a damaged record.", commits.damaged)
    yield _counter("snapshots", "Snapshots written.", writer.snapshots_written)


def _log(service: Service, writer: Writer) -> Iterator[Metric]:
    yield _gauge("log_records", "Records in the log.", writer.log.last.seq)
    yield _gauge("snapshot_record", "The last snapshot's record.", writer.snapshot.seq)
    yield _gauge("log_cuts", "Times the log was cut back at the start.", len(writer.log.cuts))
    yield _counter("log_scrubbed", "Records read again and verified.", service.scrubbed)
    yield _gauge("log_damaged", "Records found that are not what was written.", service.damaged)
    if service.clock is not None:
        text = "Seconds by which the machine's clock is ahead of the service's, which nobody can set."
        yield _gauge("clock_ahead_seconds", text, service.clock.ahead)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}_{name}", text, value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"{_PREFIX}_{name}", text, value)
