"""The keys under which measured points are kept in the journal, so that an interrupted benchmark can continue.

A point's key is a hash of its workload, parameters and seed, of the sources that are measured and that measure, of the
numerical packages' versions and of the machine: a number measured elsewhere, or of other code, is never reused.
"""

import functools
import hashlib
import json
from pathlib import Path
from typing import Any

from sketchbandits.lab.experiments import sources
from sketchbandits.lab.journal import Journal

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
    what |= {"stamp": stamp(), "machine": sources.machine()}
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]


@functools.cache
def stamp() -> str:
    """A hash of the library's sources, of its packages' versions and of the files here that measure."""
    hashed = hashlib.sha256(sources.stamp().encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        if path.name not in _NOT_MEASURED:
            hashed.update(path.read_bytes())
    return hashed.hexdigest()


def measured(journal: Journal) -> dict[str, dict[str, Any]]:
    """The samples of every point in a journal, by key; the last of several with one key."""
    return {entry["key"]: entry["samples"] for entry in journal if isinstance(entry.get("samples"), dict)}
