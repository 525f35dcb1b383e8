"""Building policies: new ones, with more arms or fewer, or anew without some rewards.

Before anything is allocated, an estimate is compared with what a bandit may take. Kernels that are missing are compiled
in another process (`compiling`), and the building itself has its own thread.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from sketchbandits.policies.changing_arms import ChangingArms
from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.memory import check_quota, estimated_bytes
from sketchbandits.service.bandits.requests import (
    AddArms,
    CreateBandit,
    DeleteBandit,
    Operation,
    Refusal,
    RemoveArms,
    refusal_of,
)
from sketchbandits.service.bandits.threads import background_thread
from sketchbandits.service.compiling import Compiler, CompilingFailed
from sketchbandits.service.exercise import Need

MEMORY = 1 << 30  # bytes that the policy of one bandit may take, by default
_GROWING = ("cslb", "multiscale")  # policies that reserve as much again for arms to come

Result = TypeVar("Result")


class _Size(NamedTuple):
    """What decides the memory and the kernels of a policy."""

    config: BanditConfig
    n_arms: int
    dim: int

    @property
    def need(self) -> Need:
        return Need.of(self.config.policy, self.config.filled().options, self.n_arms, self.dim)


class Builder:
    """One thread: a large bandit that is being created uses one core at most."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._compiler = Compiler()
        self._thread = background_thread("build")

    async def build(self, ledger: Ledger, operation: Operation, function: Callable[[], Result]) -> Result:
        """What a function returns that is called in the thread to carry out an operation on a copy."""
        if (size := _size_of(ledger, operation)) is not None:
            self._check_memory(size, operation)
            try:
                await self._compiler.ready(_nothing, size.need)
            except CompilingFailed as error:
                raise Refusal("busy", f"{error}: ask again later") from None
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def prepare(self, ledger: Ledger) -> None:
        """Have every kernel compiled, or loaded, that requests to the bandits of a ledger will call."""
        sizes = [_Size(bandit.config, bandit.policy.n_arms, bandit.policy.dim) for bandit in ledger.bandits.values()]
        await self._compiler.ready(_nothing, *(size.need for size in sizes), alone=True)

    def _check_memory(self, size: _Size, operation: Operation) -> None:
        twice = size.config.policy in _GROWING and isinstance(operation, AddArms)
        try:
            estimate = estimated_bytes(size.config, size.n_arms * (2 if twice else 1), size.dim)
            check_quota(estimate, self._memory)
        except ValueError as error:
            raise refusal_of(error) from None

    def stop(self) -> None:
        """Wait for no compiler any more; what needs one is refused."""
        self._compiler.stop()

    def close(self) -> None:
        """End the thread."""
        self.stop()
        self._thread.shutdown()


def _size_of(ledger: Ledger, operation: Operation) -> _Size | None:
    """The size of what an operation builds; None where it builds nothing, or is going to be refused anyway."""
    if isinstance(operation, CreateBandit):
        return _Size(operation.config, *operation.features.shape)
    bandit: Bandit | None = ledger.bandits.get(operation.bandit)
    if bandit is None or isinstance(operation, RemoveArms | DeleteBandit):
        return None
    if not isinstance(operation, AddArms):
        return _Size(bandit.config, bandit.policy.n_arms, bandit.policy.dim)
    if not isinstance(bandit.policy, ChangingArms):
        return None
    return _Size(bandit.config, bandit.policy.n_arms + len(operation.features), bandit.policy.dim)


def _nothing() -> None:
    return None
