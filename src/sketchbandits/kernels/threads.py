"""Threads of our own over compiled kernels, and BLAS limited to one thread meanwhile.

A BLAS with threads of its own keeps them spinning for a while after every product; they then take time from other
work, and on a busy machine they make small products 20 times slower.
"""

import functools
import importlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from threadpoolctl import ThreadpoolController

_LOCK = threading.Lock()
_held: list[Any] = []  # the limit in force, and once more for everyone inside it


@functools.cache
def _libraries() -> ThreadpoolController:
    importlib.import_module("scipy.linalg.cython_lapack")  # what the kernels call: it must be loaded to be limited
    return ThreadpoolController()  # looking through all loaded libraries takes milliseconds: once is enough


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which matrix products use one thread, in the whole process.

    Several threads may be inside it at the same time: the first sets the limit, the last lifts it.
    """
    with _LOCK:
        _held.append(_held[0] if _held else _libraries().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _LOCK:
            limit = _held.pop()
            if not _held:
                limit.restore_original_limits()


@dataclass(frozen=True)
class Threads:
    """Runs functions that release the interpreter's lock over parts of a range, side by side."""

    workers: int = 1
    pool: ThreadPoolExecutor | None = None

    def over(self, count: int, function: Callable[..., None], *arguments: Any) -> None:
        """``function(*arguments, first, last)`` over all of ``range(count)``."""
        if self.pool is None or count < 2 * self.workers:
            function(*arguments, 0, count)
            return
        edges = [count * i // self.workers for i in range(self.workers + 1)]
        parts = [self.pool.submit(function, *arguments, a, b) for a, b in pairwise(edges[1:])]
        function(*arguments, 0, edges[1])
        for part in parts:
            part.result()


@contextmanager
def threads(workers: int) -> Iterator[Threads]:
    """So many threads, this one included, with BLAS held to one each."""
    with one_blas_thread(), ThreadPoolExecutor(workers - 1) if workers > 1 else nullcontext() as pool:
        yield Threads(workers, pool)
