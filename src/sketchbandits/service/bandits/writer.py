"""The writer: the only task that changes a ledger. Plan, commit, apply, answer.

Requests that arrive while a commit is on its way to the disk wait and form the next group, so that one flush serves
them all. Only the log's own work is done in a thread; everything else happens in the event loop, so that code which
reads the ledger there sees it between two groups.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.operations import plan_operation
from sketchbandits.service.bandits.planning import Facts, Plan, plan_defaults, plan_group, questions
from sketchbandits.service.bandits.requests import Answer, CreateBandit, Operation, Refusal, Request, Reward, internal
from sketchbandits.service.bandits.snapshots import Snapshots, frozen
from sketchbandits.service.log import EventLog, NotStored
from sketchbandits.service.log.events import Position

GROUP = 512  # requests in one commit at most
WAITING = 4_096  # decisions and rewards that may wait, by default
SNAPSHOT_EVERY = 100_000  # records, by default
RETRY_SECONDS = 1
LONGEST_SNAPSHOT_PAUSE = 600.0  # seconds; after each failure in a row the pause is twice as long

logger = logging.getLogger("sketchbandits.service")


class _Job(NamedTuple):
    request: Request | Operation
    size: int
    answer: "asyncio.Future[Answer]"


class WriterStats:
    """What the writer has done since it began, for metrics."""

    def __init__(self) -> None:
        self.groups = self.records = self.not_stored = self.snapshots = self.refused = 0
        self.commit_seconds = 0.0


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
    ) -> None:
        self.ledger, self.log, self.snapshots = ledger, log, snapshots
        self.snapshot = snapshot
        self.clock, self.limit, self.snapshot_every = clock, waiting, snapshot_every
        self.stats = WriterStats()
        self.waiting = 0
        self.failure: BaseException | None = None
        self._jobs: deque[_Job] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self._no_defaults_until = 0.0
        self._disk = ThreadPoolExecutor(1, "log")
        self._snapshot_thread = ThreadPoolExecutor(1, "snapshot")
        self._snapshot_task: asyncio.Future[None] | None = None
        self._snapshot_pause: float = RETRY_SECONDS  # after the next failure
        self._no_snapshot_until = 0.0

    def submit(self, request: Request | Operation) -> "asyncio.Future[Answer]":
        """Queue a request; the future has its answer once that is durable. Refused where the queue is full."""
        size = _size(request)
        if self._stopping or self.failure is not None:
            raise Refusal("stopping", "the service is stopping: ask again shortly")
        if self.waiting + size > self.limit and self.waiting:
            self.stats.refused += 1
            raise Refusal("busy", f"{self.waiting} decisions and rewards are waiting: ask again shortly")
        job = _Job(request, size, asyncio.get_running_loop().create_future())
        self.waiting += size
        self._jobs.append(job)
        self._wake.set()
        return job.answer

    async def run(self) -> None:
        """Serve until `stop`; an error that cannot be handled ends it, since memory and log must not differ."""
        try:
            while not (self._stopping and not self._jobs):
                await self._wait()
                await self._defaults()
                if self._jobs:
                    await self._group()
                self._snapshot_if_due()
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self._drop_all()

    async def stop(self, running: "asyncio.Task[None]") -> None:
        """Answer what was accepted, keep a last snapshot, close the log."""
        self._stopping = True
        self._wake.set()
        try:
            await running
            if self._snapshot_task is not None:
                await asyncio.wait([self._snapshot_task])
            if self.log.last.seq > self.snapshot.seq:
                await self._write_snapshot(self.ledger, self.log.last)
        finally:
            await self._in_disk_thread(self.log.close)
            self._disk.shutdown()
            self._snapshot_thread.shutdown()

    async def _wait(self) -> None:
        """Until there is a request, or a deadline passes."""
        if self._jobs or self._stopping:
            return
        self._wake.clear()
        deadlines = [bandit.next_deadline(self.clock()) for bandit in self.ledger.bandits.values()]
        nearest = min((deadline for deadline in deadlines if deadline is not None), default=None)
        # At most a minute: the clock may be set meanwhile, and the machine may be suspended.
        seconds = None if nearest is None else min(max(nearest - self.clock(), self._defaults_pause(), 0.0), 60.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    async def _defaults(self) -> None:
        if self._defaults_pause() > 0.0:
            return
        plan = plan_defaults(self.ledger, self.clock(), GROUP)
        if plan.changes and not await self._commit(plan.changes):
            self._no_defaults_until = time.monotonic() + RETRY_SECONDS

    def _defaults_pause(self) -> float:
        """Seconds before the deadlines that the log refused are tried again."""
        return self._no_defaults_until - time.monotonic()

    async def _group(self) -> None:
        """Serve the requests at the head of the queue, or the one operation that stands there."""
        jobs: list[_Job] = []
        while self._jobs and len(jobs) < GROUP:
            alone = not isinstance(self._jobs[0].request, Request)
            if alone and jobs:
                break
            jobs.append(self._jobs.popleft())
            if alone:
                break
        plan = Plan()
        try:
            plan = await self._serve([job.request for job in jobs])
        finally:
            missing = Refusal("failed", "the service has failed and whether it was done is not known: ask again")
            for job, answer in zip(jobs, plan.answers or [missing] * len(jobs), strict=True):
                self._reply(job, answer)

    async def _serve(self, requests: Sequence[Any]) -> Plan:
        if not isinstance(requests[0], Request):
            return await self._operate(requests[0])
        try:
            facts = await self._facts(requests)
        except NotStored as error:
            self._note_refusal(error)
            return Plan(answers=[_refused_by_storage({})] * len(requests))
        plan = plan_group(self.ledger, requests, facts, self.clock())
        if plan.changes and not await self._commit(plan.changes):
            plan.answers = [_refused_by_storage(answer) for answer in plan.answers]
        return plan

    async def _facts(self, requests: Sequence[Request]) -> Facts:
        """What the log knows of keys and decisions that are not in memory; most groups need nothing of it."""
        asked = questions(self.ledger, requests)
        if not asked.records and not asked.decisions:
            return Facts({}, {})
        return await self._in_disk_thread(partial(_look_up, self.log, *asked))

    async def _operate(self, operation: Operation) -> Plan:
        try:
            change, built = await self._in_disk_thread(
                partial(plan_operation, self.ledger, operation, self.clock())
            )  # in the thread, since a copy may take long; nothing else changes the ledger meanwhile
        except Refusal as refusal:
            return Plan(answers=[refusal])
        except Exception:  # nothing has changed, so an unforeseen error in one operation must not end the service
            logger.exception("planning failed: %s", type(operation).__name__)
            return Plan(answers=[internal()])
        active = self._active(operation)
        stored = await self._commit([change], built)
        changed = {"changed": abs(self._active(operation) - active)}
        return Plan([change], [changed if stored else _refused_by_storage({})])

    def _active(self, operation: Operation) -> int:
        """How many arms the bandit has."""
        name = operation.name if isinstance(operation, CreateBandit) else operation.bandit
        return self.ledger.bandits[name].active.size if name in self.ledger.bandits else 0

    async def _commit(self, changes: list[Change], built: Any = None) -> bool:
        """Log, then apply. Whether it was stored: if not, nothing has changed."""
        started = time.perf_counter()
        try:
            records = await self._in_disk_thread(partial(_append, self.log, changes))
        except NotStored as error:
            self._note_refusal(error)
            return False
        self.stats.commit_seconds += time.perf_counter() - started
        self.stats.groups += 1
        self.stats.records += len(records)
        self.ledger.apply(zip(records, changes, strict=True), built)
        return True

    def _note_refusal(self, error: NotStored) -> None:
        self.stats.not_stored += 1
        logger.error("nothing of a group was stored: %s", error)

    def _reply(self, job: _Job, answer: Answer) -> None:
        self.waiting -= job.size
        if not job.answer.done():  # the client may have left
            job.answer.set_result(answer)

    def _drop_all(self) -> None:
        while self._jobs:
            self._reply(self._jobs.popleft(), Refusal("stopping", "the service is stopping: ask again shortly"))

    def _snapshot_if_due(self) -> None:
        """Begin a snapshot after enough records; after a failure not before a pause, since copying takes time."""
        if self._snapshot_task is not None and not self._snapshot_task.done():
            return
        due = self.log.last.seq - self.snapshot.seq >= self.snapshot_every
        if due and time.monotonic() >= self._no_snapshot_until:
            self._snapshot_task = asyncio.ensure_future(self._write_snapshot(frozen(self.ledger), self.log.last))

    async def _write_snapshot(self, ledger: Ledger, position: Position) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._snapshot_thread, self.snapshots.write, ledger, position)
        except Exception as error:  # the log has everything: a snapshot only saves time
            logger.error("no snapshot was written, next attempt in %.0f s: %s", self._snapshot_pause, error)
            self._no_snapshot_until = time.monotonic() + self._snapshot_pause
            self._snapshot_pause = min(2.0 * self._snapshot_pause, LONGEST_SNAPSHOT_PAUSE)
            return
        self._snapshot_pause = RETRY_SECONDS
        self.snapshot = position
        self.stats.snapshots += 1

    async def _in_disk_thread(self, function: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._disk, function)


def _size(request: Request | Operation) -> int:
    return len(request.items) if isinstance(request, Reward) else getattr(request, "count", 1)


def _append(log: EventLog, changes: Sequence[Change]) -> list[int]:
    return [record.seq for record in log.append([change.event() for change in changes])]


def _look_up(log: EventLog, records: list[int], decisions: list[int]) -> Facts:
    found = {seq: record.body for seq in records if (record := log.record(seq)) is not None}
    return Facts(found, log.outcomes(decisions))


def _refused_by_storage(answer: Answer) -> Answer:
    """A refusal stays as it is; anything else was not stored."""
    if isinstance(answer, Refusal):
        return answer
    return Refusal("storage", "the log could not be written, nothing has changed: ask again later")
