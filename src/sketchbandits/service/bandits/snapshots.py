"""Snapshots: the ledger as it was after some record of the log, so that recovery replays only what came later.

A snapshot is a folder with the number of the last record that is in it: for each bandit its policy, as `Policy.save`
writes it, and the rest as JSON; and a manifest with the format, checksums of the log, a digest of every file and one of
itself. It is written under another name, flushed and renamed: it is there whole or not at all. One that is damaged or
of another log is passed over, since the log alone decides.

Bandits are copied one after the other while the others go on, so each says up to which record it has been copied.
Replay begins at the record where copying began, and leaves out what a bandit contains already. A log that ends before
the last record of a snapshot does not fit it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sketchbandits.service.bandits.environment import environment
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.saved import Frozen, from_json, frozen_bandit
from sketchbandits.service.folder import flush_folder, snapshot_numbers
from sketchbandits.service.log.events import Position

FORMAT = 2
READABLE = (1, 2)  # version 0.1.0 wrote the first: without a digest of the manifest, all bandits at one record
KEPT = 2
MANIFEST = ".manifest.json"  # a name that no bandit can have
_TOGETHER = 1_000  # entries of a long list that are written in one go: nothing else runs in Python meanwhile


class Kept(NamedTuple):
    """A snapshot that was read: where replay begins, its ledger, the last record in it, and where it was made."""

    position: Position
    ledger: Ledger
    until: Position
    made_by: dict[str, str] | None


class Snapshots:
    """The folder of a service's snapshots."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.passed_over: list[str] = []

    def write(self, kept: Frozen) -> None:
        """Keep a frozen ledger, and forget all but the last few."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.tidy()
        part = self.folder / f"{kept.until.seq}.part"
        part.mkdir()
        try:
            _fill(part, kept)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        target = self.folder / str(kept.until.seq)
        shutil.rmtree(target, ignore_errors=True)
        part.rename(target)
        flush_folder(self.folder)
        for old in snapshot_numbers(self.folder)[KEPT:]:
            shutil.rmtree(self.folder / str(old), ignore_errors=True)

    def tidy(self) -> None:
        """Remove what a killed process has left unfinished."""
        for part in self.folder.glob("*.part"):
            shutil.rmtree(part, ignore_errors=True)

    def intact(self) -> Iterator[Kept]:
        """The snapshots that can be read, newest first; why one cannot goes to ``passed_over``."""
        for seq in snapshot_numbers(self.folder):
            try:
                found = _read(self.folder / str(seq))
            except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                self.passed_over.append(f"snapshot {seq}: {error}")
                continue
            yield found


def frozen(ledger: Ledger, position: Position) -> Frozen:
    """A copy of a ledger to which the records up to a place were applied, and which nobody changes meanwhile."""
    bandits = [frozen_bandit(bandit, position.seq) for bandit in ledger.bandits.values()]
    return Frozen(position, position, ledger.next_number, ledger.keys_required, ledger.deleted.copy(), bandits)


def _fill(part: Path, kept: Frozen) -> None:
    for bandit in kept.bandits:
        bandit.policy.save(part / f"{bandit.name}.npz")
        _write(part / f"{bandit.name}.json", bandit.value)
    manifest = {
        "format": FORMAT,
        "seq": kept.position.seq,
        "chain": kept.position.chain,
        "until": kept.until,
        "deleted": kept.deleted,
        "next_number": kept.next_number,
        "keys_required": kept.keys_required,
        "bandits": [bandit.name for bandit in kept.bandits],
        "made_by": environment(),
        "files": {file.name: _digest(file) for file in sorted(part.iterdir())},
    }
    _write(part / MANIFEST, manifest | {"digest": _digest_of_manifest(manifest)})
    flush_folder(part)


def _read(folder: Path) -> Kept:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    if manifest["format"] not in READABLE:
        raise ValueError(f"its format must be one of {READABLE}, got {manifest['format']!r}")
    if manifest["format"] == FORMAT and manifest.pop("digest") != _digest_of_manifest(manifest):
        raise ValueError("its manifest is not what was written")
    for name, digest in manifest["files"].items():
        if _digest(folder / name) != digest:
            raise ValueError(f"{name} is not what was written")
    names = manifest.get("bandits") or [name.removesuffix(".json") for name in manifest["files"] if name.endswith("n")]
    ledger = Ledger()
    for name in names:
        value = json.loads((folder / f"{name}.json").read_bytes())
        ledger.bandits[name] = from_json(name, value, folder / f"{name}.npz")
    ledger.bandits = dict(sorted(ledger.bandits.items(), key=lambda item: item[1].created))
    position = Position(manifest["seq"], manifest["chain"])
    until = Position(*manifest["until"]) if "until" in manifest else position
    ledger.next_number, ledger.gaps_until = manifest["next_number"], until.seq
    ledger.keys_required, ledger.deleted = manifest.get("keys_required", False), manifest.get("deleted", {})
    return Kept(position, ledger, until, manifest.get("made_by"))


def _write(path: Path, value: dict[str, Any]) -> None:
    with path.open("w") as file:
        for text in _encoded(value):
            file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _encoded(value: dict[str, Any]) -> Iterator[str]:
    """An object as JSON, its long lists in pieces: the encoder holds Python's global lock until a piece is done."""
    yield "{"
    for i, (name, entry) in enumerate(value.items()):
        yield f"{', ' if i else ''}{json.dumps(name)}: "
        if isinstance(entry, list):
            yield from _encoded_list(entry)
        elif isinstance(entry, dict):
            yield from _encoded(entry)
        else:
            yield json.dumps(entry, allow_nan=False)
    yield "}"


def _encoded_list(entries: list[Any]) -> Iterator[str]:
    yield "["
    for start in range(0, len(entries), _TOGETHER):
        text = json.dumps(entries[start : start + _TOGETHER], allow_nan=False)
        yield (", " if start else "") + text[1:-1]
    yield "]"


def _digest_of_manifest(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
