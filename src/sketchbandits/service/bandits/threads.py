"""Threads for work that takes longer than a moment, with a lower priority than the event loop.

Where there are fewer processors than busy threads, the system then gives the event loop its turn first. Such a thread
holds Python's global lock only between calls of compiled code, for less than the event loop would notice.
"""

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

NICE = 10


def background_thread(name: str) -> ThreadPoolExecutor:
    """One thread that does what it is given, one after the other."""
    return ThreadPoolExecutor(1, name, initializer=_step_back)


def _step_back() -> None:
    # Linux alone has priorities of threads; where a sandbox forbids them, all threads are equal.
    with contextlib.suppress(AttributeError, OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
