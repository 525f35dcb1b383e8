"""Shared by all tests: `JIT` is off when coverage is taken, and long runs are then shortened."""

import os

# Before NumPy loads: the matrices here are small, and a second thread only waits for the first.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import pytest  # noqa: E402

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")


def rounds(full: int, plain: int) -> int:
    """The length of a run: ``full`` with compiled kernels, ``plain`` in plain Python."""
    return full if JIT else plain


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not JIT:
        # NumPy scalars warn where compiled integers wrap around, as Philox wants them to.
        for item in items:
            item.add_marker(pytest.mark.filterwarnings("ignore:overflow encountered in scalar"))
