"""Where planning and learning are carried out: in the event loop while that takes a moment, in a thread where not.

Work comes as a generator that stops at the end of each small step. What is short runs in the event loop, since handing
it to a thread would take as long as the work. What is longer goes on in a thread, a slice at a time: the slices of
several bandits take turns there, so that no bandit waits for all the work of another. Compiled code releases Python's
global lock, so that the event loop goes on meanwhile.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from sketchbandits.service.bandits.threads import background_thread

SHORT = 0.002  # seconds in the event loop
SLICE = 0.010  # seconds in the thread

Result = TypeVar("Result")


class Player:
    """The thread that plays: one, so that a core is left for the event loop on a machine with two."""

    def __init__(self, name: str = "play") -> None:
        self._pool = background_thread(name)

    async def play(self, steps: Iterator[None], *, short: bool) -> None:
        """Take every step; ``short``: whether each takes so little time that the event loop may begin."""
        if short and _advanced(steps, SHORT):
            return
        while not await self.call(lambda: _advanced(steps, SLICE)):
            pass

    async def call(self, function: Callable[[], Result]) -> Result:
        """What a function returns that is called in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, function)

    def close(self) -> None:
        """End the thread once it has done what it was given."""
        self._pool.shutdown()


def _advanced(steps: Iterator[None], seconds: float) -> bool:
    """Take steps until the time is over; whether there are none left."""
    end = time.perf_counter() + seconds
    return all(time.perf_counter() < end for _ in steps)
