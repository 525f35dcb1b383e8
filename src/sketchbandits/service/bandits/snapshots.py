"""Snapshots: the ledger as it was after some record of the log, so that recovery replays only what came later.

A snapshot is a folder ``NUMBER`` of that record: for each bandit its policy, as `Policy.save` writes it, and the rest
as JSON; and ``manifest.json`` with the format, the record's checksum and a digest of every file. It is written under
another name, flushed and renamed: it is there whole or not at all. One that is damaged or of another log is passed
over, since the log alone decides.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.saved import copy_of, from_json, to_json
from sketchbandits.service.folder import flush_folder, snapshot_numbers
from sketchbandits.service.log.events import Position

FORMAT = 1
KEPT = 2
MANIFEST = ".manifest.json"  # a name that no bandit can have


class Snapshots:
    """The folder of a service's snapshots."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.passed_over: list[str] = []

    def write(self, ledger: Ledger, position: Position) -> None:
        """Keep a ledger (a frozen one, if the service goes on meanwhile), and forget all but the last few."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tidy()
        part = self.folder / f"{position.seq}.part"
        part.mkdir()
        try:
            self._fill(part, ledger, position)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        target = self.folder / str(position.seq)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        flush_folder(self.folder)
        for old in snapshot_numbers(self.folder)[KEPT:]:
            shutil.rmtree(self.folder / str(old), ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a killed process has left unfinished."""
        for part in self.folder.glob("*.part"):
            shutil.rmtree(part, ignore_errors=True)

    def _fill(self, part: Path, ledger: Ledger, position: Position) -> None:
        for name, bandit in ledger.bandits.items():
            bandit.policy.save(part / f"{name}.npz")
            _write(part / f"{name}.json", to_json(bandit))
        files = {file.name: _digest(file) for file in sorted(part.iterdir())}
        head = {"format": FORMAT, "seq": position.seq, "chain": position.chain, "next_number": ledger.next_number}
        _write(part / MANIFEST, {**head, "files": files})
        flush_folder(part)

    def intact(self) -> Iterator[tuple[Position, Ledger]]:
        """The snapshots that can be read, newest first; why one cannot goes to ``passed_over``."""
        for seq in snapshot_numbers(self.folder):
            try:
                found = _read(self.folder / str(seq))
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                self.passed_over.append(f"snapshot {seq}: {error}")
                continue
            yield found


def frozen(ledger: Ledger) -> Ledger:
    """A copy that does not change while the ledger goes on."""
    copied = Ledger()
    copied.next_number = ledger.next_number
    for name, bandit in ledger.bandits.items():
        copied.bandits[name] = copy_of(bandit)
    return copied


def _read(folder: Path) -> tuple[Position, Ledger]:
    manifest = json.loads((folder / MANIFEST).read_text())
    if manifest["format"] != FORMAT:
        raise ValueError(f"its format must be {FORMAT}, got {manifest['format']!r}")
    for name, digest in manifest["files"].items():
        if _digest(folder / name) != digest:
            raise ValueError(f"{name} is not what was written")
    ledger = Ledger()
    ledger.next_number = manifest["next_number"]
    for name in manifest["files"]:
        if name.endswith(".json"):
            bandit = name.removesuffix(".json")
            value = json.loads((folder / name).read_text())
            ledger.bandits[bandit] = from_json(bandit, value, folder / f"{bandit}.npz")
    ledger.bandits = dict(sorted(ledger.bandits.items(), key=lambda item: item[1].created))
    return Position(manifest["seq"], manifest["chain"]), ledger


def _write(path: Path, value: dict[str, Any]) -> None:
    with path.open("w") as file:
        json.dump(value, file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
