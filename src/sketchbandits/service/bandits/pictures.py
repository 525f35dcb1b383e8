"""What people look at: every arm's numbers, computed from a copy in a thread, once for all who ask meanwhile.

A picture is at least as recent as the request for it. Several dashboards that ask at the same time share one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.base import Policy
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.places import FREED, ArmPlaces
from sketchbandits.service.bandits.threads import background_thread
from sketchbandits.service.bandits.totals import Totals

Result = TypeVar("Result")
Look = Callable[[str, Callable[[Bandit], Any]], Awaitable[Any]]


class Picture(NamedTuple):
    """A bandit's numbers at some moment; arrays over all arms of the log, freed ones included.

    ``labels`` and ``ranks`` are those of the partition, None where the policy has none; arms that were freed have the
    label -1.
    """

    version: int
    ids: list[str]
    counts: Ints
    means: Floats
    estimates: Floats
    bounds: Floats
    active: Mask
    outstanding: Ints
    rewards: int
    settings: dict[str, Any]
    dim: int
    memory_bytes: int
    labels: NDArray[np.int64] | None
    ranks: NDArray[np.int64] | None


class _Copy(NamedTuple):
    """What a picture is computed from; taken while the bandit does not change."""

    version: int
    ids: list[str]
    policy: Policy
    places: ArmPlaces
    totals: Totals
    memory_bytes: int


class Pictures:
    """The latest picture of every bandit, and the thread that computes them."""

    def __init__(self, look: Look) -> None:
        self._look, self._thread = look, background_thread("picture")
        self._latest: WeakKeyDictionary[Bandit, Picture] = WeakKeyDictionary()  # those of deleted bandits vanish
        self._drawing: WeakKeyDictionary[Bandit, asyncio.Task[Picture]] = WeakKeyDictionary()

    async def of(self, bandit: Bandit) -> Picture:
        """A picture that shows at least what is there now."""
        wanted = bandit.version
        while (picture := self._latest.get(bandit)) is None or picture.version < wanted:
            drawing = self._drawing.get(bandit)
            if drawing is None or drawing.done():
                drawing = self._drawing[bandit] = asyncio.create_task(self._draw(bandit))
            await asyncio.shield(drawing)
        return picture

    async def _draw(self, bandit: Bandit) -> Picture:
        copy = await self._look(bandit.name, _copied)
        picture = self._latest[bandit] = await self.call(partial(_drawn, copy))
        return picture

    async def call(self, function: Callable[[], Result]) -> Result:
        """What a function returns that is called in the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()


def _copied(bandit: Bandit) -> _Copy:
    places = ArmPlaces(bandit.places.arm_at, len(bandit.ids))
    return _Copy(bandit.version, bandit.ids[:], bandit.policy.copy(), places, bandit.totals.copy(), bandit.state_bytes)


def _drawn(copy: _Copy) -> Picture:
    policy, totals = copy.policy, copy.totals
    n_arms = len(copy.ids)
    own = np.arange(n_arms) if copy.places.place is None else copy.places.place
    has = own != FREED
    partition = getattr(policy, "partition", None)
    return Picture(
        version=copy.version,
        ids=copy.ids,
        counts=totals.counts,
        means=np.divide(totals.sums, totals.counts, out=np.full(n_arms, -np.inf), where=totals.counts > 0),
        estimates=_spread(policy.estimates(), own, has, np.nan),
        bounds=_spread(policy.bounds(), own, has, np.nan),
        active=_spread(policy.active, own, has, False),
        outstanding=totals.outstanding,
        rewards=totals.rewards,
        settings=dict(policy.settings),
        dim=policy.dim,
        memory_bytes=copy.memory_bytes,
        labels=None if partition is None else _spread(partition.labels, own, has, FREED),
        ranks=None if partition is None else partition.ranks,
    )


def _spread(values: NDArray[Any], own: Ints, has: Mask, missing: Any) -> NDArray[Any]:
    """Values of the policy's arms as values of all arms."""
    spread = np.full(own.size, missing, values.dtype)
    spread[has] = values[own[has]]
    return spread
