"""The thread in which policies are built, extended, shrunk, or built anew without some rewards, which takes seconds."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sketchbandits.policies.base import Policy

Result = TypeVar("Result")


class Builder:
    """One thread: a large bandit that is being created uses one core at most."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "build")

    async def build(self, function: Callable[[], Result]) -> Result:
        """What a function returns that is called in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def prepare(self, policies: Sequence[Policy]) -> None:
        """Have every kernel compiled, or loaded from the cache, that requests to these policies will call."""
        for policy in policies:
            await self.build(lambda p=policy: _use(p))  # type: ignore[misc]

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def _use(policy: Policy) -> None:
    copy = policy.copy()
    arm = int(copy.active.argmax())
    copy.select_many(2, pending=[arm])
    copy.update_many([arm], [0.0])
    copy.bounds()
    copy.estimates()
