"""What the last digits of a state depend on: the processor, the linear algebra that it chooses, and the versions.

On one of them, replay is bit-for-bit identical. On another one, matrix products may round differently.
"""

import functools
import platform
from pathlib import Path

import numba
import numpy as np
import scipy.linalg  # loads its linear algebra, so that it is always among those that are found
from threadpoolctl import threadpool_info

from sketchbandits import __version__


@functools.cache
def environment() -> dict[str, str]:
    """Names and versions, as a snapshot records them; found once, since that holds up the process for a while."""
    return {
        "sketchbandits": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "processor": _processor(),
        "linear algebra": ", ".join(
            sorted({_library(entry) for entry in threadpool_info() if entry["user_api"] == "blas"})
        ),
    }


def changed(before: dict[str, str], now: dict[str, str]) -> str | None:
    """What differs, as a sentence for an operator; None where nothing does."""
    differing = [f"{name} {before.get(name)} is now {now[name]}" for name in now if before.get(name) != now[name]]
    if not differing:
        return None
    return (
        f"the snapshot was made elsewhere ({'; '.join(differing)}): the state is the same up to rounding, no longer "
        "bit for bit"
    )


def _library(entry: dict[str, str]) -> str:
    return f"{entry['internal_api']} {entry['version']} {entry.get('architecture', '')}".strip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, platform.machine())
