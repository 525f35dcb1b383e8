"""One flush for many: changes of all bandits that are planned meanwhile go into the log together."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple, TypeVar

from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.planning import Facts, Questions
from sketchbandits.service.log import EventLog, LogDamaged, NotStored

Result = TypeVar("Result")
Records = list[int] | None  # the numbers of the records; None where nothing was stored

logger = logging.getLogger("sketchbandits.service")


class Commits:
    """What was committed since the service began, for metrics."""

    def __init__(self) -> None:
        self.groups = self.records = self.not_stored = self.damaged = 0
        self.seconds = 0.0


class _Waiting(NamedTuple):
    changes: Sequence[Change]
    stored: "asyncio.Future[Records]"


class Committer:
    """The log, and the thread that works on it."""

    def __init__(self, log: EventLog) -> None:
        self.log, self.stats = log, Commits()
        self.refusing: str | None = None  # why the log could not be written, until it can be again
        self._thread = ThreadPoolExecutor(1, "log")
        self._queue: list[_Waiting] = []
        self._work: asyncio.Task[None] | None = None

    async def commit(self, changes: Sequence[Change]) -> Records:
        """Store changes durably; all of them or, with None, nothing. Any other failure is raised: stop then."""
        stored: asyncio.Future[Records] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(changes, stored))
        if self._work is None:
            self._work = asyncio.create_task(self._commit_all())
        return await stored

    async def _commit_all(self) -> None:
        """Commit what waits, and what comes while that is on its way to the disk."""
        try:
            while self._queue:
                waiting, self._queue = self._queue, []
                await self._commit(waiting)
        finally:
            self._work = None

    async def _commit(self, waiting: list[_Waiting]) -> None:
        changes = [change for each in waiting for change in each.changes]
        try:
            first = await self._stored(changes)
        except BaseException as error:
            for each in waiting:
                if not each.stored.done():
                    each.stored.set_exception(error)
            return
        for each in waiting:
            numbers = None if first is None else list(range(first, first + len(each.changes)))
            first = None if first is None else first + len(each.changes)
            if not each.stored.done():
                each.stored.set_result(numbers)

    async def _stored(self, changes: list[Change]) -> int | None:
        """The number of the first record."""
        started = time.perf_counter()
        try:
            first = await self.in_thread(partial(_append, self.log, changes))
        except NotStored as error:
            self._note_refusal(error)
            return None
        self.refusing = None
        self.stats.seconds += time.perf_counter() - started
        self.stats.groups += 1
        self.stats.records += len(changes)
        return first

    async def look_up(self, asked: Questions) -> Facts | None:
        """What the log knows; None where it does not answer now."""
        try:
            facts = await self.in_thread(partial(_look_up, self.log, asked))
        except NotStored as error:
            self._note_refusal(error)
            return None
        self.stats.damaged += len(facts.damaged.records) + len(facts.damaged.decisions)
        return facts

    async def probe(self) -> None:
        """Try whether a log that could not be written can be written again; keep its session alive."""
        try:
            if self.refusing is None:
                await self.in_thread(self.log.heartbeat)
            else:
                await self.in_thread(self.log.probe)
                self.refusing = None
        except NotStored as error:
            self.refusing = str(error)

    def _note_refusal(self, error: NotStored) -> None:
        self.stats.not_stored += 1
        self.refusing = str(error)
        logger.error("nothing of a group was stored: %s", error)

    async def in_thread(self, function: Callable[[], Result]) -> Result:
        """What a function returns that is called in the log's thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def close(self) -> None:
        """Close the log."""
        await self.in_thread(self.log.close)
        self._thread.shutdown()


def _append(log: EventLog, changes: Sequence[Change]) -> int:
    return log.append([change.event() for change in changes])[0].seq


def _look_up(log: EventLog, asked: Questions) -> Facts:
    """Everything at once; where that meets damage one by one, so that it concerns only those who asked for it."""
    try:
        found = {seq: record.body for seq in asked.records if (record := log.record(seq)) is not None}
        return Facts(found, log.outcomes(asked.decisions))
    except LogDamaged as error:
        logger.error("a look-up has met damage: %s", error)
        return _one_by_one(log, asked)


def _one_by_one(log: EventLog, asked: Questions) -> Facts:
    facts = Facts({}, {}, Questions([], []))
    for seq in asked.records:
        try:
            if (record := log.record(seq)) is not None:
                facts.records[seq] = record.body
        except LogDamaged:
            facts.damaged.records.append(seq)
    for number in asked.decisions:
        try:
            facts.outcomes.update(log.outcomes([number]))
        except LogDamaged:
            facts.damaged.decisions.append(number)
    return facts
