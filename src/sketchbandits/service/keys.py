"""API keys. A key is shown once, when it is made; what is kept is its SHA-256 digest.

A key has 256 random bits, so a plain digest cannot be inverted by search. The file is read again when it has changed,
which is checked every `FRESH` seconds: a revoked key is refused from then on. A digest over the content shows damage:
while the file is damaged, cannot be read or has vanished, every key is refused. `key_file` reads and writes it.
"""

import contextlib
import fcntl
import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sketchbandits import validate
from sketchbandits.service.key_file import (
    ADMIN,
    CLIENT,
    MOST_RATE,
    ROLES,
    SLOWEST_RATE,
    Key,
    KeysUnreadable,
    read_keys,
    unreadable,
    write_keys,
)

__all__ = ["ADMIN", "CLIENT", "FRESH", "ROLES", "Key", "KeyRing", "KeysUnreadable", "allowed", "check_keys"]

FRESH = 0.02  # checking the file for every request would take longer than all other checks together
_KEY = re.compile(r"sb_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_MOST_BANDITS = 1_000  # of one key

logger = logging.getLogger("sketchbandits.service")


class KeyRing:
    """The keys of a state folder.

    ``required``: whether every request needs a key. It becomes True with the first key that is seen and stays so; a
    service sets it at the start where its log says so.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.required = False
        self._seen: tuple[int, ...] | None = None  # what the file looked like when it was read; None: it is missing
        self._keys: dict[str, Key] = {}
        self._problem = ""  # why the file cannot be read
        self._fresh_until = 0.0
        self._reported = ""

    def create(self, name: str, role: str, *, bandits: Sequence[str] | None = None, rate: float | None = None) -> str:
        """A new key, for all bandits and without a limit unless given: the only time that its secret is seen."""
        role = validate.option("role", role, ROLES)
        if not 1 <= len(name) <= 100 or not name.isprintable():
            raise ValueError(f"name must be 1 to 100 printable characters, got {name!r}")
        if bandits is not None and not 1 <= len(bandits) <= _MOST_BANDITS:
            raise ValueError(f"bandit must be 1 to {_MOST_BANDITS:,} names of bandits, got {len(bandits)}")
        if rate is not None:
            rate = _checked_rate(rate)
        text = f"sb_{secrets.token_hex(6)}_{secrets.token_urlsafe(32)}"
        only = None if bandits is None else tuple(dict.fromkeys(bandits))
        key = Key(text.split("_")[1], name, role, _digest(text), time.time(), bandits=only, rate=rate)
        with self._locked():
            write_keys(self.path, [*self.all(), key])
        return text

    def revoke(self, key_id: str) -> Key:
        """Refuse a key from now on; it stays in the list."""
        with self._locked():
            keys = {key.id: key for key in self.all()}
            if key_id not in keys:
                raise ValueError(f"id must be one of {', '.join(keys) or 'no keys at all'}; got {key_id!r}")
            revoked = replace(keys[key_id], revoked=keys[key_id].revoked or time.time())
            write_keys(self.path, [revoked if key.id == key_id else key for key in keys.values()])
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
        """Every key that was ever made, revoked ones too; none where there is no file."""
        self._refresh()
        return list(self._keys.values())

    @property
    def in_use(self) -> bool:
        """Whether every request needs a key: one was seen, or the file cannot be read, or the log says so."""
        self._valid()
        return self.required

    def find(self, text: str | None) -> Key | None:
        """The valid key that reads like this, or None; a wrong key takes as long to compare as a right one."""
        keys = self._valid()
        found = _KEY.fullmatch(text or "")
        key = keys.get(found[1]) if found else None
        expected = key.digest if key else _DIGEST_OF_NO_KEY
        if hmac.compare_digest(_digest(text or ""), expected) and key is not None and key.revoked is None:
            return key
        return None

    def _valid(self) -> dict[str, Key]:
        """The keys by which requests are judged: none while their file is missing or unreadable, which is logged."""
        try:
            self._refresh()
            lost = self.required and self._seen is None
            problem = f"{self.path} is missing: restore it from a backup" if lost else ""
        except KeysUnreadable as error:
            self.required, problem = True, str(error)
        if problem != self._reported:
            if problem:
                logger.error("every request that needs a key is refused: %s", problem)
            else:
                logger.warning("%s can be read again", self.path)
            self._reported = problem
        return {} if problem else self._keys

    def _refresh(self) -> None:
        """Read the file again if it has changed; raises `KeysUnreadable` where that cannot be done."""
        if (now := time.monotonic()) >= self._fresh_until:
            try:
                self._read_if_changed()
                self._problem = ""
            except KeysUnreadable as error:
                self._problem = str(error)
            self._fresh_until = now + FRESH
        if self._problem:
            raise KeysUnreadable(self._problem)

    def _read_if_changed(self) -> None:
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            self._keys, self._seen = {}, None
            return
        except OSError as error:
            raise unreadable(self.path, error) from None
        seen = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if seen != self._seen or self._problem:
            keys = read_keys(self.path)
            self._keys, self._seen = {key.id: key for key in keys}, seen
            self.required = self.required or bool(keys)


def allowed(caller: Key | None, bandit: str) -> bool:
    """Whether a request with this key, or with none where none is needed, may use the bandit."""
    return caller is None or caller.bandits is None or bandit in caller.bandits


def check_keys(ring: KeyRing, required: bool, require_flag: bool) -> None:
    """Refuse to start without keys where they are required, by the log or the flag, or where they cannot be read."""
    try:
        there = bool(ring.all())
    except KeysUnreadable as error:
        raise ValueError(f"keys must be readable before the service starts: {error}") from None
    if there or not (required or require_flag):
        return
    why = "the log says that every request needs a key" if required else "the flag --require-keys was given"
    what = "has no keys" if ring.path.exists() else "is missing"
    raise ValueError(
        f"keys must exist: {why}, and {ring.path} {what}. Restore it from a backup; or, if it is lost or there never "
        f"was one, make a new key with `sketchbandits keys create NAME --role admin --state {ring.path.parent}`"
    )


def _checked_rate(rate: float) -> float:
    checked = validate.positive("rate", rate)
    if not SLOWEST_RATE <= checked <= MOST_RATE:
        allowed_rates = f"a number of requests per second from {SLOWEST_RATE:g} to {MOST_RATE:,.0f}"
        raise ValueError(f"rate must be {allowed_rates}, got {rate!r}")
    return checked


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


_DIGEST_OF_NO_KEY = _digest("")
