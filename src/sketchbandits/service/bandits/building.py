"""Building policies: new ones, with more arms or fewer, or anew without some rewards.

Before anything is allocated, an estimate is compared with what a bandit may take. Kernels that are missing are compiled
in another process (`compiling`), large new policies are built in another one (`policy_process`), and everything else
that takes long here has its own thread.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from sketchbandits.policies.base import Policy
from sketchbandits.policies.changing_arms import TakesArms
from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.memory import check_quota, estimated_bytes
from sketchbandits.service.bandits.operations import Planned, check_new, plan_operation
from sketchbandits.service.bandits.planning import Facts
from sketchbandits.service.bandits.policy_process import LARGE, build_elsewhere, builders
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
from sketchbandits.service.children import ChildFailed
from sketchbandits.service.compiling import Compiler, CompilingFailed
from sketchbandits.service.exercise import Need

MEMORY = 1 << 30  # bytes that the policy of one bandit may take, by default
_GROWING = ("cslb", "multiscale")  # policies that reserve as much again for arms to come


class _Size(NamedTuple):
    """What decides the memory and the kernels of a policy."""

    config: BanditConfig
    n_arms: int
    dim: int

    @property
    def need(self) -> Need:
        options = self.config.options_for(self.n_arms, self.dim)
        return Need.of(self.config.policy, options, self.n_arms, self.dim)


class Builder:
    """One thread: a large bandit that is being created uses one core at most."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._compiler, self._builders = Compiler(), builders()
        self._thread = background_thread("build")

    async def plan(self, ledger: Ledger, operation: Operation, now: float, facts: Facts) -> Planned:
        """What `plan_operation` says, once its kernels are there; its work is done in a thread or a process."""
        policy = None
        if (size := _size_of(ledger, operation)) is not None:
            if isinstance(operation, CreateBandit | AddArms):  # others make a policy no larger, or smaller
                self._check_memory(size, operation)
            try:
                await self._compiler.ready(_nothing, size.need)
                if isinstance(operation, CreateBandit) and size.n_arms * size.dim >= LARGE:
                    policy = await self._built(ledger, operation)
            except (CompilingFailed, ChildFailed) as error:
                raise Refusal("busy", f"{error}: ask again later") from None
        planned = partial(plan_operation, ledger, operation, now, facts, policy)
        return await asyncio.get_running_loop().run_in_executor(self._thread, planned)

    async def _built(self, ledger: Ledger, operation: CreateBandit) -> Policy:
        try:
            check_new(ledger, operation)
            return await build_elsewhere(self._builders, operation.config, operation.features)
        except ValueError as error:
            raise refusal_of(error) from None

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
        self._builders.stop()

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
    if not isinstance(bandit.policy, TakesArms):
        return None
    return _Size(bandit.config, bandit.policy.n_arms + len(operation.features), bandit.policy.dim)


def _nothing() -> None:
    return None
