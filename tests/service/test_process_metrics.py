"""The process in numbers for Prometheus."""

import sys

import pytest

from sketchbandits.service.http.process import process_metrics


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_cpu_memory_descriptors_and_threads_are_there():
    found = {sample.name: sample.value for metric in process_metrics() for sample in metric.samples}
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds", "threads"):
        assert found[f"process_{name}"] > 0
    assert found["sketchbandits_kernels_compiled_here_total"] >= 0
