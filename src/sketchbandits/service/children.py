"""Child processes for work that would hold the interpreter's lock of the serving process: compiling, large bodies.

A child is ``python -m MODULE``, started without a shell, with low priority and the parent's module search path. It
reads one request from stdin, whose length comes first, and writes one answer to stdout. Its stdin stays open until the
answer is read: where the parent ends, however abruptly, stdin is closed and the child ends too. It has a session of its
own, so that Ctrl-C in a terminal reaches the parent alone, which decides.
"""

import asyncio
import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, BinaryIO, TypeVar, cast

Answer = TypeVar("Answer")
Data = bytes | bytearray | memoryview
LENGTH = 8  # bytes of a request's length
NICENESS = 10


class ChildFailed(Exception):
    """A child died, took too long, or was stopped; the message says which."""


class Children:
    """The children that run one module: at most ``most`` at a time, each for at most ``seconds``; further calls wait.

    Each is served by a daemon thread, so that neither the event loop nor the end of the process waits for a child.
    """

    def __init__(self, module: str, *, most: int, seconds: float) -> None:
        self.module, self.seconds = module, seconds
        self._places = asyncio.Semaphore(most)
        self._running: set[_Child] = set()
        self.stopped = False

    async def ask(self, request: Sequence[Data], read: Callable[[BinaryIO], Answer]) -> Answer:
        """What ``read`` makes of a child's answer to the parts of a request; it runs in the child's thread."""
        async with self._places:
            if self.stopped:
                raise ChildFailed("the service is stopping")
            loop = asyncio.get_running_loop()
            answer, child = loop.create_future(), _Child(self.module)
            self._running.add(child)
            timer = loop.call_later(self.seconds, child.end, f"it took longer than {self.seconds:g} seconds")

            def work() -> None:
                deliver = _delivery(child, request, read)
                with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(deliver, answer)

            threading.Thread(target=work, name=self.module, daemon=True).start()
            try:
                return await answer
            finally:
                timer.cancel()
                self._running.discard(child)
                child.end("its answer is no longer wanted")

    def stop(self) -> None:
        """End all children; what waits for them, and every later call, gets `ChildFailed`."""
        self.stopped = True
        for child in tuple(self._running):
            child.end("the service is stopping")


def _delivery(child: "_Child", request: Sequence[Data], read: Callable[[BinaryIO], Any]) -> Callable[[Any], None]:
    """Talk to a child; returns what sets its answer, or the error, in a future."""
    try:
        result = child.talk(request, read)
    except Exception as error:
        failure = error
        return lambda future: None if future.done() else future.set_exception(failure)
    return lambda future: None if future.done() else future.set_result(result)


class _Child:
    def __init__(self, module: str) -> None:
        self.module = module
        self.process: subprocess.Popen[bytes] | None = None
        self.reason: str | None = None  # why it was ended from outside
        self._lock = threading.Lock()

    def end(self, reason: str) -> None:
        """End the child, also one that has yet to start."""
        with self._lock:
            self.reason = self.reason or reason
            if self.process is not None:
                self.process.kill()

    def talk(self, request: Sequence[Data], read: Callable[[BinaryIO], Answer]) -> Answer:
        process = self._start()
        assert process.stdin is not None and process.stdout is not None
        # The reader closes the pipe under it.
        with process.stdin, io.BufferedReader(cast(io.RawIOBase, process.stdout)) as source:
            try:
                process.stdin.write(sum(map(len, request)).to_bytes(LENGTH, "little"))
                for part in request:
                    _write_all(process.stdin, part)
                return read(source)
            except (OSError, ValueError, LookupError, EOFError) as error:  # what a dead child leaves half-done
                process.kill()
                ended = f"it ended with exit status {process.wait()}"
                raise ChildFailed(self.reason or ended) from error
            finally:
                process.kill()  # nothing to do for one that has answered; its answer is complete
                process.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        with self._lock:
            if self.reason is not None:
                raise ChildFailed(self.reason)
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-m", self.module],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    bufsize=0,
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,
                )
            except OSError as error:  # no memory or no process left
                raise ChildFailed(f"it could not be started: {error}") from error
            return self.process


def _write_all(stream: IO[bytes], part: Data) -> None:
    rest = memoryview(part).cast("B")
    while rest:
        rest = rest[stream.write(rest) :]


def read_exactly(stream: BinaryIO, into: Data) -> None:
    """Fill a buffer from a stream without holding the interpreter's lock; EOFError where it ends before that."""
    rest = memoryview(into).cast("B")
    while rest:
        count = stream.readinto(rest)  # type: ignore[attr-defined]
        if not count:
            raise EOFError("the answer is cut short")
        rest = rest[count:]


def serve_parent(answer: Callable[[bytearray], Iterable[Data]]) -> None:
    """The whole life of a child: read the request, answer it, and end where the parent does."""
    if hasattr(os, "nice"):
        with contextlib.suppress(OSError):  # not every sandbox lets a process lower its priority
            os.nice(NICENESS)
    source, target = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # what a library prints is no part of the answer
    length = bytearray(LENGTH)
    read_exactly(source, length)
    request = bytearray(int.from_bytes(length, "little"))
    read_exactly(source, request)
    threading.Thread(target=_end_with_parent, args=(source,), daemon=True).start()
    for part in answer(request):
        _write_all(target, part)


def _end_with_parent(source: Any) -> None:
    source.read(1)  # nothing more is sent: it returns where the other end is closed
    os._exit(1)
