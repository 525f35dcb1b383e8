"""The writer: owns a ledger and its log. Plan, commit, apply, answer.

Requests go to the lane of their bandit (`lane`), which plans them, has them committed together with those of other
bandits (`committer`), applies and answers them. Whatever takes longer than a moment happens in threads (`player`,
`building`), so that the event loop goes on reading requests.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from sketchbandits.service.bandits.building import MEMORY, Builder
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.committer import Committer
from sketchbandits.service.bandits.lane import RETRY_SECONDS, Lane, Shared, size_of
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.pictures import Pictures
from sketchbandits.service.bandits.player import Player
from sketchbandits.service.bandits.requests import Answer, CreateBandit, Operation, Refusal, Request, bandit_of
from sketchbandits.service.bandits.saved import Frozen, frozen_bandit
from sketchbandits.service.bandits.snapshots import Snapshots, frozen
from sketchbandits.service.bandits.threads import background_thread
from sketchbandits.service.log import EventLog
from sketchbandits.service.log.events import Kind, Position

WAITING = 4_096  # decisions and rewards of one bandit that may wait, by default
SNAPSHOT_EVERY = 100_000  # records, by default
LONGEST_SNAPSHOT_PAUSE = 600.0  # seconds; after each failure in a row the pause is twice as long
TICK = 0.1  # seconds between looks at whether a snapshot is due
PROBE_SECONDS, HEARTBEAT_SECONDS = 1.0, 5.0  # between attempts at a log that refuses, and signs of life to its server

Result = TypeVar("Result")

logger = logging.getLogger("sketchbandits.service")


class Writer:
    """Owns a ledger and its log until `stop`."""

    def __init__(
        self,
        ledger: Ledger,
        log: EventLog,
        snapshots: Snapshots,
        *,
        snapshot: Position,
        clock: Callable[[], float] = time.time,
        waiting: int = WAITING,
        snapshot_every: int = SNAPSHOT_EVERY,
        no_defaults_for: float = 0.0,
        memory: int = MEMORY,
    ) -> None:
        self.ledger, self.log, self.snapshots = ledger, log, snapshots
        self.snapshot = snapshot
        self.limit, self.snapshot_every = waiting, snapshot_every
        self.snapshots_written = self.refused = 0
        self.failure: BaseException | None = None
        self.committer, self.builder = Committer(log), Builder(memory)
        wait_until = time.monotonic() + no_defaults_for
        self._shared = Shared(ledger, self.committer, Player(), self.builder, clock, wait_until)
        self.pictures = Pictures(self.look)
        self._lanes: dict[str, Lane] = {}
        self._tasks: dict[asyncio.Task[None], Lane] = {}
        self._over = asyncio.Event()
        self._stopping = self._requiring_keys = False
        self._snapshot_thread = background_thread("snapshot")
        self._snapshot_task: asyncio.Task[None] | None = None
        self._snapshot_pause: float = RETRY_SECONDS  # after the next failure
        self._no_snapshot_until = self._next_probe = 0.0

    @property
    def waiting(self) -> int:
        """How many decisions and rewards wait."""
        return sum(lane.waiting for lane in self._lanes.values())

    def submit(self, request: Request | Operation) -> "asyncio.Future[Answer]":
        """Queue a request; the future has its answer once that is durable. Refused where the queue is full."""
        self._refuse_if_over()
        name = bandit_of(request)
        lane = self._lane(name)
        if lane is None:
            if name not in self.ledger.bandits and not isinstance(request, CreateBandit):
                return self._unknown(name)
            lane = self._open(name)
        size = size_of(request)
        if lane.waiting + size > self.limit and lane.waiting:
            self.refused += 1
            raise Refusal("busy", f"{lane.waiting} decisions and rewards are waiting: ask again shortly")
        return lane.submit(request)

    def _unknown(self, name: str) -> "asyncio.Future[Answer]":
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        try:
            self.ledger.bandit(name)
        except Refusal as refusal:
            answer.set_result(refusal)
        return answer

    def look(self, name: str, function: Callable[..., Result]) -> "asyncio.Future[Result]":
        """What a function returns that is called with the bandit, in a thread, while the bandit does not change."""
        self._refuse_if_over()
        self.ledger.bandit(name)
        return (self._lane(name) or self._open(name)).look(function)

    async def require_keys(self) -> None:
        """Record that from now on requests need keys."""
        if not self.ledger.keys_required:
            self._requiring_keys = True
            change = Change(Kind.KEYS_REQUIRED, None, {"t": self._shared.clock()})
            if await self.committer.commit([change]) is not None:
                self.ledger.keys_required = True

    def _refuse_if_over(self) -> None:
        if self._stopping or self.failure is not None:
            raise Refusal("stopping", "the service is stopping: ask again shortly")

    def _lane(self, name: str) -> Lane | None:
        lane = self._lanes.get(name)
        return None if lane is None or lane.closed else lane

    def _open(self, name: str) -> Lane:
        lane = self._lanes[name] = Lane(name, self._shared)
        task = asyncio.create_task(lane.run())
        self._tasks[task] = lane
        task.add_done_callback(self._ended)
        return lane

    def _ended(self, task: "asyncio.Task[None]") -> None:
        lane = self._tasks.pop(task)
        if self._lanes.get(lane.name) is lane:
            del self._lanes[lane.name]
        if not task.cancelled() and (error := task.exception()) is not None and self.failure is None:
            self.failure = error
        if self.failure is not None or (self._stopping and not self._tasks):
            self._over.set()

    async def run(self) -> None:
        """Serve until `stop`; an error that cannot be handled ends it, since memory and log must not differ."""
        for name in self.ledger.bandits:
            if self._lane(name) is None:
                self._open(name)  # deadlines pass also where nobody asks
        try:
            while not self._over.is_set():
                await self._tick()
            if self.failure is not None:
                raise self.failure
        except BaseException as error:
            self.failure = self.failure or error
            raise
        finally:
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(list(self._tasks))

    async def _tick(self) -> None:
        """Wait a moment, then do what is due."""
        try:
            await asyncio.wait_for(self._over.wait(), TICK)
        except TimeoutError:
            self._snapshot_if_due()
        if time.monotonic() >= self._next_probe:
            await self.committer.probe()
            pause = HEARTBEAT_SECONDS if self.committer.refusing is None else PROBE_SECONDS
            self._next_probe = time.monotonic() + pause

    async def stop(self, running: "asyncio.Task[None]") -> None:
        """Answer what was accepted, keep a last snapshot, close the log."""
        self._stopping = True
        self.builder.stop()
        for lane in self._lanes.values():
            lane.stop()
        if not self._tasks:
            self._over.set()
        try:
            await running
            if self._snapshot_task is not None:
                await asyncio.wait([self._snapshot_task])
            if self.log.last.seq > self.snapshot.seq:
                await self._write_snapshot(await asyncio.to_thread(frozen, self.ledger, self.log.last))
        finally:
            await self.committer.close()
            self._shared.player.close()
            self.builder.close()
            self.pictures.close()
            self._snapshot_thread.shutdown()

    def _snapshot_if_due(self) -> None:
        """Begin a snapshot after enough records; after a failure not before a pause, since copying takes time."""
        if self._snapshot_task is not None and not self._snapshot_task.done():
            return
        due = self.log.last.seq - self.snapshot.seq >= self.snapshot_every
        if due and time.monotonic() >= self._no_snapshot_until:
            self._snapshot_task = asyncio.create_task(self._snapshot())

    async def _snapshot(self) -> None:
        """Copy one bandit after the other, each between two of its groups, while the others go on.

        A bandit whose creation is logged but not yet applied has a lane, and is copied once it is there.
        """
        start = self.log.last
        copies = []
        for name in [*self.ledger.bandits, *(name for name in self._lanes if name not in self.ledger.bandits)]:
            if self._stopping:  # a last snapshot is about to be taken
                return
            lane = self._lane(name) or self._open(name)
            try:
                copies.append(await lane.look(lambda bandit: frozen_bandit(bandit, self.log.last.seq)))
            except Refusal as refusal:
                if refusal.code != "unknown_bandit":
                    return
                # It was deleted meanwhile, or never created.
        required = self.ledger.keys_required or self._requiring_keys
        await self._write_snapshot(Frozen(start, self.log.last.seq, self.ledger.next_number, required, copies))

    async def _write_snapshot(self, kept: Frozen) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._snapshot_thread, partial(self.snapshots.write, kept))
        except Exception as error:  # the log has everything: a snapshot only saves time
            logger.error("no snapshot was written, next attempt in %.0f s: %s", self._snapshot_pause, error)
            self._no_snapshot_until = time.monotonic() + self._snapshot_pause
            self._snapshot_pause = min(2.0 * self._snapshot_pause, LONGEST_SNAPSHOT_PAUSE)
            return
        self._snapshot_pause = RETRY_SECONDS
        self.snapshot = kept.position
        self.snapshots_written += 1
