"""Measured points, one JSON line each: an interrupted benchmark goes on where it stopped.

A point's key is a hash of its workload, parameters and seed, of the sources that are measured and that measure, of the
numerical packages' versions and of the machine: a number measured elsewhere, or of other code, is never reused.
"""

import functools
import hashlib
import json
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from sketchbandits.lab import runs
from sketchbandits.lab.outputs import write_together

_NOT_MEASURED = (
    "figures.py",
    "journal.py",
    "run.py",
    "targets.py",
    "growth.py",
    "show.py",
)  # they only show what was measured


def key_of(workload: str, parameters: dict[str, Any], *, quick: bool, seed: int) -> str:
    """A hash of all that a measurement depends on."""
    what = {"workload": workload, "parameters": parameters, "quick": quick, "seed": seed}
    what |= {"stamp": stamp(), "machine": runs.machine()}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]


@functools.cache
def stamp() -> str:
    """A hash of the library's sources, of its packages' versions and of the files here that measure."""
    hashed = hashlib.sha256(runs.stamp().encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        if path.name not in _NOT_MEASURED:
            hashed.update(path.read_bytes())
    return hashed.hexdigest()


class Journal:
    """A file of measured points; a line that is torn or unknown is passed over, and its point measured again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, dict[str, Any]]:
        """What was measured, by key; the last of several."""
        return {entry["key"]: entry["samples"] for entry in map(_parse, self._lines()) if entry}

    def append(self, key: str, workload: str, parameters: dict[str, Any], samples: dict[str, Any]) -> None:
        """Put a measured point on the disk, in one write."""
        entry = {"key": key, "workload": workload, "parameters": parameters, "samples": samples}
        with open(self.path, "ab") as file:
            file.write(b"\n" + json.dumps(entry).encode() + b"\n")  # on a new line even where the last one is torn
            file.flush()
            os.fsync(file.fileno())

    def forget(self, keys: Collection[str]) -> None:
        """Drop these points."""
        kept = [line for line in self._lines() if (entry := _parse(line)) and entry["key"] not in keys]
        if self.path.exists():
            write_together(self.path.parent, {self.path.name: "".join(kept).encode()})

    def _lines(self) -> Iterator[str]:
        if self.path.exists():
            with open(self.path, encoding="utf-8", errors="replace") as lines:
                yield from lines


def _parse(line: str) -> dict[str, Any]:
    """A line's entry, or nothing where it is not what `Journal.append` writes."""
    try:
        entry = json.loads(line)
        whole = isinstance(entry["key"], str) and isinstance(entry["samples"], dict)
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return entry if whole else {}
