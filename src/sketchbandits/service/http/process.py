"""The process in numbers, for Prometheus: CPU time, memory, file descriptors, threads, and kernels that it compiled."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from sketchbandits.service.compiling import kernels_compiled_here

_THREADS = Path("/proc/self/task")
_collector = ProcessCollector(registry=None)


def process_metrics() -> Iterator[Metric]:
    """CPU seconds, memory, descriptors and start time under Prometheus' own names, where the system has /proc."""
    yield from _collector.collect()
    yield GaugeMetricFamily("process_threads", "Threads, those of libraries included.", _threads())
    text = "Kernels compiled by this process itself, which holds up all of its requests."
    yield CounterMetricFamily("sketchbandits_kernels_compiled_here", text, kernels_compiled_here())


def _threads() -> int:
    return len(os.listdir(_THREADS)) if _THREADS.is_dir() else threading.active_count()
