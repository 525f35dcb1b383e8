"""The file of keys: JSON with a digest over its content, replaced as a whole.

A changed bit is noticed as damage and never changes who may do what. The digest is no signature: whoever may write the
file may also write its digest. Format 1, of version 0.1.0, has no digest, and no keys for some bandits or with a limit;
it is read, and the next change of a key writes format 2.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sketchbandits.service.folder import flush_folder

FORMAT = 2
CLIENT, ADMIN = "client", "admin"
ROLES = (CLIENT, ADMIN)
SLOWEST_RATE, MOST_RATE = 1e-3, 1e6  # requests per second
_FIELDS = {1: {"format", "keys"}, 2: {"format", "keys", "sha256"}}


@dataclass(frozen=True)
class Key:
    """What is kept of a key.

    ``revoked``: the time when it was revoked, or None. ``bandits``: those it may use, None for all. ``rate``: the
    requests per second that it may send, None without a limit.
    """

    id: str
    name: str
    role: str
    digest: str
    created: float
    revoked: float | None = None
    bandits: tuple[str, ...] | None = None
    rate: float | None = None


class KeysUnreadable(Exception):
    """The file of keys is damaged or may not be read: an operator must repair it."""


def unreadable(path: Path, error: OSError) -> KeysUnreadable:
    """The file is there, perhaps whole, and the system does not let us read it."""
    reason = error.strerror or str(error)
    return KeysUnreadable(f"{path} cannot be read ({reason}): it must be readable for the user that runs the service")


def read_keys(path: Path) -> list[Key]:
    """The keys of a file, or `KeysUnreadable`."""
    try:
        value = json.loads(path.read_bytes())
        found = value["format"]
        if type(found) is int and found > FORMAT:
            raise KeysUnreadable(
                f"{path} has format {found}, and this version reads up to {FORMAT}: use a newer version, or, if the "
                "file is damaged, restore it from a backup"
            )
        if type(found) is not int or value.keys() != _FIELDS.get(found):
            raise ValueError(f"it is no file of keys of format 1 or {FORMAT}")
        if found == FORMAT and value["sha256"] != _content_digest(value["keys"]):
            raise ValueError("its content does not fit its digest")
        return [_key(entry) for entry in value["keys"]]
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise KeysUnreadable(
            f"{path} is damaged ({error}): restore it from a backup; or move it away and make new keys with "
            f"`sketchbandits keys create NAME --role admin --state {path.parent}`: those that it held are then lost"
        ) from None


def write_keys(path: Path, keys: Sequence[Key]) -> None:
    """Replace the file, durably; the caller keeps others from doing so at the same time.

    The new file has one fixed name until it is whole, so what a killed process left behind is removed here.
    """
    entries = [asdict(key) for key in keys]
    value = {"format": FORMAT, "keys": entries, "sha256": _content_digest(entries)}
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    try:
        # Readable for its owner alone, and never a file or link that is there already.
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    flush_folder(path.parent)


def _content_digest(entries: Any) -> str:
    canonical = json.dumps({"format": FORMAT, "keys": entries}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _key(entry: Any) -> Key:
    """The key of an entry; what an older or foreign program wrote is checked as well, since format 1 has no digest."""
    bandits, rate = entry.get("bandits"), entry.get("rate")
    if bandits is not None and not (isinstance(bandits, list) and all(isinstance(name, str) for name in bandits)):
        raise ValueError(f"bandits of a key must be a list of names, got {bandits!r}")
    if rate is not None and not (isinstance(rate, int | float) and SLOWEST_RATE <= rate <= MOST_RATE):
        raise ValueError(f"rate of a key must be a number of requests per second, got {rate!r}")
    key = Key(**{**entry, "bandits": None if bandits is None else tuple(bandits)})
    if key.role not in ROLES or not all(isinstance(text, str) for text in (key.id, key.name, key.digest)):
        raise ValueError(f"a key must have an id, a name, a digest and a role of {', '.join(ROLES)}")
    if type(key.created) not in (int, float) or type(key.revoked) not in (int, float, type(None)):
        raise ValueError("the times of a key must be numbers")
    return key
