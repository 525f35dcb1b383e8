"""Where and with what a benchmark was measured."""

import os
import platform
from importlib.metadata import version

from threadpoolctl import threadpool_info

import sketchbandits
from sketchbandits.lab.experiments import sources


def machine() -> dict[str, str]:
    """Processor, load, system, BLAS and versions; no name of a computer or a person."""
    blas = {
        f"{i['internal_api']} {i['version']}, {i['num_threads']} threads"
        for i in threadpool_info()
        if i["user_api"] == "blas"
    }
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy", "numba"))
    return {
        "cpu": sources.machine(),
        "load at the start": f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown",
        "system": platform.platform(),
        "blas": "; ".join(sorted(blas)),
        "versions": f"sketchbandits {sketchbandits.__version__}, {packages}",
    }
