"""What an outcome depends on besides its task: the sources that a run passes through, and the machine."""

import functools
import hashlib
import os
import platform
from importlib.metadata import version
from pathlib import Path

PACKAGE = Path(__file__).parents[2]
# Sources that no run passes through: changing them leaves finished runs valid. Of the lab, only these two count.
_NOT_PLAYED = ("__main__.py", "bench", "checks.py", "cli", "client", "offline", "service")
_PLAYED_IN_LAB = ("lab/experiments/tasks.py", "lab/experiments/scenes.py")


@functools.cache
def stamp() -> str:
    """A hash of every source file that a run passes through, and the versions of the numerical packages."""
    hashed = hashlib.sha256()
    for path in played_sources():
        hashed.update(path.read_bytes())
    hashed.update("".join(version(name) for name in ("numpy", "scipy", "numba")).encode())
    return hashed.hexdigest()


def played_sources() -> list[Path]:
    """The source files that a run passes through, in order."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if _is_played(path.relative_to(PACKAGE))]


def _is_played(path: Path) -> bool:
    return path.as_posix() in _PLAYED_IN_LAB if path.parts[0] == "lab" else path.parts[0] not in _NOT_PLAYED


@functools.cache
def machine() -> str:
    """Processor, cores, system and Python, in words; no name of a computer or a person."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
