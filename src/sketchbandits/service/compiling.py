"""Kernels are compiled in a child process and only loaded in the one that serves.

Numba's compiler holds the interpreter's lock for seconds, loading a compiled kernel from the cache on disk takes
milliseconds. `Compiler.ready` therefore runs an action in a thread where a kernel that the cache does not have raises
`NeedsCompiling` instead of being compiled (`from_cache`); a child (``python -m sketchbandits.service.compiling``) then
compiles everything that the service does with such a policy (`exercise`), and the action runs again.

Without a cache on disk the thread compiles as it must. Where compiling is switched off, there is nothing to do.
"""

import asyncio
import json
import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from numba.core import event

from sketchbandits.precompile import cache_folders, compiles
from sketchbandits.service.children import ChildFailed, Children, serve_parent
from sketchbandits.service.exercise import Need, use_kernels

Result = TypeVar("Result")

SECONDS = 600.0  # for a child to compile one policy, on a machine that has other work
ATTEMPTS = 2  # children for one need: other processes that fill the same cache may overwrite its index

logger = logging.getLogger("sketchbandits.service")


class NeedsCompiling(Exception):
    """A kernel is not in the cache; the message is its name."""


class CompilingFailed(Exception):
    """Kernels could not be compiled in a child process; the message says why."""


class _Guard(event.Listener):
    """Hears of every compilation in this process, before it begins, and refuses it in threads that asked for that.

    The exception leaves the dispatcher as it was: nothing is compiled yet, and Numba's locks are context managers.
    """

    def __init__(self) -> None:
        self.local = threading.local()
        self.compiled = 0
        self._lock, self._heard = threading.Lock(), False

    def listen(self) -> None:
        """Be told from now on, for good: Numba's list of listeners may not change while another thread reads it."""
        with self._lock:
            if not self._heard:
                event.register("numba:compile", self)  # type: ignore[no-untyped-call]
                self._heard = True

    def on_start(self, found: event.Event) -> None:
        function = found.data["dispatcher"].py_func
        name = f"{function.__module__}.{function.__qualname__}"
        if getattr(self.local, "refused", False):
            raise NeedsCompiling(name)
        if name.startswith("sketchbandits."):
            self.compiled += 1
            logger.info("compiled in this process: %s", name)

    def on_end(self, found: event.Event) -> None:
        """Nothing to do."""


_guard = _Guard()


@contextmanager
def from_cache() -> Iterator[None]:
    """A context in which this thread loads kernels from the cache and raises `NeedsCompiling` where one is missing.

    Other threads compile as before. Threads that the code inside starts are other threads, too.
    """
    _guard.listen()
    _guard.local.refused = True
    try:
        yield
    finally:
        _guard.local.refused = False


def kernels_compiled_here() -> int:
    """How many kernels this process has compiled itself since it began to watch: 0 where all goes well."""
    return _guard.compiled


class Compiler:
    """Sees to it that kernels are there before they are called; `stop` ends its child."""

    def __init__(self, *, seconds: float = SECONDS) -> None:
        self._children = Children("sketchbandits.service.compiling", most=1, seconds=seconds)
        self._known: set[Need] = set()
        self._compiling: dict[Need, asyncio.Task[None]] = {}

    async def ready(self, action: Callable[[], Result], *needs: Need, alone: bool = False) -> Result:
        """The result of ``action``, run in a thread once the kernels of all ``needs`` are there.

        Raises `CompilingFailed` where a child could not compile them. ``alone`` says that nobody is served yet: they
        are then compiled here after all.
        """
        for need in needs:
            await self._provide(need, alone)
        return await asyncio.to_thread(action)

    def stop(self) -> None:
        """End the child; what waits for it gets `CompilingFailed`."""
        self._children.stop()

    async def _provide(self, need: Need, alone: bool) -> None:
        if need in self._known or not compiles():
            return
        if not cache_folders():
            logger.warning("kernels of %s are compiled in the serving process: no cache can be written", need.policy)
            await asyncio.to_thread(use_unless_refused, need)
        elif not await asyncio.to_thread(_load, need):
            await self._compile(need, alone)
        self._known.add(need)

    async def _compile(self, need: Need, alone: bool) -> None:
        """Have a child compile, once for all who ask at the same time."""
        task = self._compiling.get(need)
        if task is None:
            task = self._compiling[need] = asyncio.create_task(self._in_child(need))
            task.add_done_callback(lambda done: self._finished(need, done))
        try:
            await asyncio.shield(task)  # one who leaves does not end it for the others
        except CompilingFailed as error:
            if not alone or self._children.stopped:
                raise
            logger.warning("%s; they are compiled in the serving process", error)
            await asyncio.to_thread(use_unless_refused, need)

    def _finished(self, need: Need, done: "asyncio.Task[None]") -> None:
        self._compiling.pop(need, None)
        if not done.cancelled():
            done.exception()  # asked for here, since all who waited may have left

    async def _in_child(self, need: Need) -> None:
        for _ in range(ATTEMPTS):
            try:
                found = await self._children.ask([need.encoded()], lambda stream: json.loads(stream.read()))
            except ChildFailed as error:
                raise CompilingFailed(f"the kernels of {need.policy} could not be compiled: {error}") from None
            logger.info("compiled %d kernels of %s in a child process", found["compiled"], need.policy)
            if await asyncio.to_thread(_load, need):
                return
        raise CompilingFailed(f"the kernels of {need.policy} are not in the cache, although a child compiled them")


def _load(need: Need) -> bool:
    """Load the kernels of a need; False where the cache lacks one."""
    try:
        with from_cache():
            use_unless_refused(need)
    except NeedsCompiling as missing:
        logger.info("not in the cache: %s", missing)
        return False
    return True


def use_unless_refused(need: Need, folder: Path | None = None) -> None:
    """Use the kernels of a need; options that the policy refuses need none, and whoever builds it is told."""
    try:
        use_kernels(need, folder)
    except ValueError as error:
        logger.debug("%s is not built: %s", need.policy, error)


def answer(request: bytearray) -> Iterable[bytes]:
    """Of a child: compile what the request names; says how many kernels that were."""
    _guard.listen()
    with tempfile.TemporaryDirectory() as folder:
        use_unless_refused(Need.decoded(request), Path(folder))
    report: dict[str, Any] = {"compiled": kernels_compiled_here()}
    return [json.dumps(report).encode()]


if __name__ == "__main__":
    serve_parent(answer)
