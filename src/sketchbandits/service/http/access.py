"""The access log: one line of JSON per request, written by a thread.

A slow or full disk never delays a request: lines that do not fit into a bounded queue, or that could not be written,
are counted, and a line ``{"lost": n}`` says how many are missing. No line holds a body, a query or a key; keys are
named by their ids. The file may be moved away at any time, which is how logs are rotated: a new one is begun.
"""

import atexit
import contextlib
import json
import logging
import os
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sketchbandits.service.http.reading import BANDIT, KEY_ID

WAITING = 10_000  # lines at most
PAUSE = 0.05  # seconds in which lines are gathered, so that one write serves many
CLOSE_SECONDS = 5.0
_LONGEST = 200  # characters of a path that are kept
_NAMES = ("time", "address", "key", "method", "path", "bandit", "status", "ms", "bytes_in", "bytes_out")

logger = logging.getLogger("sketchbandits.service")


class AccessLog:
    """Lines for a file. ``lost`` counts those that are not in it."""

    def __init__(self, path: Path, waiting: int = WAITING) -> None:
        self.path, self.waiting = path, waiting
        self._dropped = self._failed = 0  # each is changed by one thread alone
        self._lines: deque[tuple[Any, ...]] = deque()
        self._wake, self._closing = threading.Event(), threading.Event()
        self._file = _File(path)
        self._thread = threading.Thread(target=self._write, name="access log", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def lost(self) -> int:
        """How many lines did not fit or could not be written."""
        return self._dropped + self._failed

    def put(self, *values: Any) -> None:
        """A line with these values, in the order of `_NAMES`; never waits."""
        if len(self._lines) >= self.waiting:
            self._dropped += 1
            return
        self._lines.append(values)
        if not self._wake.is_set():
            self._wake.set()

    def close(self) -> None:
        """Write what waits, for as long as a few seconds suffice, and close the file."""
        atexit.unregister(self.close)
        self._closing.set()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)

    def _write(self) -> None:
        reported = 0
        while not self._closing.is_set() or self._lines:
            self._wake.wait()
            self._closing.wait(PAUSE)
            self._wake.clear()
            values = [self._lines.popleft() for _ in range(len(self._lines))]
            lines = [json.dumps(dict(zip(_NAMES, line, strict=True))) for line in values]
            if (lost := self.lost) > reported:
                lines.append(json.dumps({"lost": lost - reported}))
            written = self._file.write([f"{line}\n".encode() for line in lines])
            self._failed += max(len(values) - written, 0)
            reported = lost if written == len(lines) else reported
        self._file.close()

    async def watched(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and put a line about it."""
        status, received, sent = None, 0, 0

        async def receiving() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message

        async def sending(message: Message) -> None:
            nonlocal status, sent
            status, sent = message.get("status", status), sent + len(message.get("body", b""))
            await send(message)

        now, started = time.time(), time.perf_counter()
        try:
            await app(scope, receiving, sending)
        finally:
            address = scope["client"][0] if scope.get("client") else None
            took = round(1e3 * (time.perf_counter() - started), 3)
            path, bandit = scope["path"][:_LONGEST], scope.get(BANDIT)
            self.put(
                round(now, 3), address, scope.get(KEY_ID), scope["method"], path, bandit, status, took, received, sent
            )


class _File:
    """A file that lines are appended to; opened again once its name stands for another file or for none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None
        self._torn = self._failing = False
        try:
            self._open()
        except OSError as error:
            allowed = "a file that lines can be appended to"
            raise ValueError(f"access_log must be {allowed}, got {str(path)!r}: {error.strerror or error}") from None

    def write(self, lines: list[bytes]) -> int:
        """Append the lines; returns how many are whole in the file. A failure is logged once until it has passed."""
        text, done = b"".join(lines), 0
        try:
            self._reopen_if_moved()
            assert self._handle is not None
            if self._torn:
                os.write(self._handle, b"\n")
                self._torn = False
            while done < len(text):
                done += os.write(self._handle, text[done:])
            self._failing = False
        except OSError as error:
            self._torn = self._torn or (done > 0 and text[done - 1 : done] != b"\n")
            if not self._failing:
                logger.error("the access log %s cannot be written, lines are lost: %s", self.path, error)
            self._failing = True
        return text[:done].count(b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._handle = os.open(self.path, flags, 0o600)  # readable for its owner alone
        self._torn = False

    def _reopen_if_moved(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.stat(self.path), os.fstat(self._handle)):
                    return
        self.close()
        self._open()
