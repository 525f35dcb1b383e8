"""Shared by all tests: how long a run is, with compiled kernels and without.

Coverage is measured with kernels as plain Python (``NUMBA_DISABLE_JIT=1``), which is slow: runs are then shorter, and
tests marked `process` are left out. Tests marked `slow` run only when asked for (``pytest -m slow``).
"""

import os

# Set before NumPy loads: the matrices here are small, and a second thread would only wait for the first.
for library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{library}_NUM_THREADS", "1")

import numpy as np  # noqa: E402
import pytest  # noqa: E402

JIT = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
if not JIT:  # NumPy scalars warn where compiled integers silently wrap around, as the Philox generator requires
    np.seterr(over="ignore")  # of this thread alone: for those of the service, a filter, which tests may set aside


def rounds(full: int, plain: int) -> int:
    """The length of a run: ``full`` with compiled kernels, ``plain`` in plain Python."""
    return full if JIT else plain


# Two processes take tests from the start and from the middle of the list. The service and the lab need few kernels:
# while one process runs their tests, the other compiles in those of the core, and hardly any kernel is compiled twice.
# Started commands use many kernels: they come last.
FOLDERS = {"service": 0, "lab": 1, "core": 2, "cli": 3}


def order(item: pytest.Item) -> tuple[bool, int]:
    return item.get_closest_marker("process") is not None, FOLDERS.get(item.path.parent.name, len(FOLDERS))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=order)
    if not JIT:
        for item in items:
            item.add_marker(pytest.mark.filterwarnings("ignore:overflow encountered in scalar"))
