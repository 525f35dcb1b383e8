"""A journal of finished work, one JSON line per entry, so that an interrupted command can continue where it stopped."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from sketchbandits.lab.outputs import write_together


class Journal:
    """A file of entries, each a JSON object with a ``key``; a line that is torn or no entry is skipped."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every entry, in the order in which they were appended."""
        return (entry for _, entry in self._lines())

    def append(self, entry: Mapping[str, Any]) -> None:
        """Put an entry on the disk, in one write."""
        with open(self.path, "ab") as file:
            torn = file.tell() > 0 and not self._ends_with_a_newline()
            file.write(b"\n" * torn + json.dumps(entry).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def forget(self, keys: Collection[str]) -> None:
        """Remove the entries with these keys, and all lines that are no entries."""
        kept = [line for line, entry in self._lines() if entry["key"] not in keys]
        if self.path.exists():
            write_together(self.path.parent, {self.path.name: "".join(kept).encode()})

    def _lines(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every line that is an entry, with the entry."""
        if not self.path.exists():
            return
        with open(self.path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                entry = _parse(line)
                if entry is not None:
                    yield line, entry

    def _ends_with_a_newline(self) -> bool:
        with open(self.path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"


def _parse(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and isinstance(entry.get("key"), str) else None
