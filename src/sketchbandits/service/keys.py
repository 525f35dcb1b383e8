"""API keys. A key is shown once, when it is made; what is kept is its SHA-256 digest.

A key has 256 random bits, so a plain digest cannot be inverted by search. The file is read again when it has changed,
which is checked every `FRESH` seconds: a revoked key is refused from then on. While the file cannot be read, every key
is refused.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sketchbandits import validate
from sketchbandits.service.folder import flush_folder

FORMAT = 1
FRESH = 0.02  # checking the file for every request would take longer than all other checks together
CLIENT, ADMIN = "client", "admin"
ROLES = (CLIENT, ADMIN)
_KEY = re.compile(r"sb_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")


@dataclass(frozen=True)
class Key:
    """What is kept of a key; ``revoked`` is the time when it was revoked, or None."""

    id: str
    name: str
    role: str
    digest: str
    created: float
    revoked: float | None = None


class KeysUnreadable(Exception):
    """The file of keys is damaged: an operator must repair it."""


class KeyRing:
    """The keys of a state folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, ...] | None = None
        self._keys: dict[str, Key] = {}
        self._fresh_until = 0.0

    def create(self, name: str, role: str) -> str:
        """A new key: the only time that its secret is seen."""
        role = validate.option("role", role, ROLES)
        if not 1 <= len(name) <= 100 or not name.isprintable():
            raise ValueError(f"name must be 1 to 100 printable characters, got {name!r}")
        text = f"sb_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"
        key = Key(text.split("_")[1], name, role, _digest(text), time.time())
        with self._locked():
            self._replace([*self.all(), key])
        return text

    def revoke(self, key_id: str) -> Key:
        """Refuse a key from now on; it stays in the list."""
        with self._locked():
            keys = {key.id: key for key in self.all()}
            if key_id not in keys:
                raise ValueError(f"id must be one of {', '.join(keys) or 'no keys at all'}; got {key_id!r}")
            revoked = Key(**{**asdict(keys[key_id]), "revoked": keys[key_id].revoked or time.time()})
            self._replace([revoked if key.id == key_id else key for key in keys.values()])
        return revoked

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from changing the keys between reading and writing them."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_name(f"{self.path.name}.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._fresh_until = 0.0
            yield
            self._fresh_until = 0.0

    def all(self) -> list[Key]:
        """Every key that was ever made, revoked ones too."""
        self._refresh()
        return list(self._keys.values())

    @property
    def in_use(self) -> bool:
        """Whether a key was ever made, also if all are revoked or their file cannot be read."""
        try:
            self._refresh()
        except KeysUnreadable:
            return True
        return bool(self._keys)

    def find(self, text: str | None) -> Key | None:
        """The valid key that reads like this, or None. The comparison takes as long for a wrong key as for a right one."""
        try:
            self._refresh()
        except KeysUnreadable:
            return None
        found = _KEY.fullmatch(text or "")
        key = self._keys.get(found[1]) if found else None
        expected = key.digest if key else _DIGEST_OF_NO_KEY
        if hmac.compare_digest(_digest(text or ""), expected) and key is not None and key.revoked is None:
            return key
        return None

    def _refresh(self) -> None:
        now = time.monotonic()
        if now < self._fresh_until:
            return
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            self._keys, self._seen, self._fresh_until = {}, None, now + FRESH
            return
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen:
            self._keys, self._seen = self._read(), seen
        self._fresh_until = now + FRESH

    def _read(self) -> dict[str, Key]:
        try:
            value = json.loads(self.path.read_text())
            if value["format"] != FORMAT:
                raise ValueError(f"format {value['format']!r}")
            keys = [Key(**entry) for entry in value["keys"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise KeysUnreadable(f"{self.path} must be a file of keys of format {FORMAT}: {error}") from None
        return {key.id: key for key in keys}

    def _replace(self, keys: list[Key]) -> None:
        handle, part = tempfile.mkstemp(dir=self.path.parent, prefix=self.path.name)  # readable for its owner alone
        with os.fdopen(handle, "w") as file:
            json.dump({"format": FORMAT, "keys": [asdict(key) for key in keys]}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, self.path)
        flush_folder(self.path.parent)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


_DIGEST_OF_NO_KEY = _digest("")
