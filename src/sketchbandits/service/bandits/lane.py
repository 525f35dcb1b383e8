"""The requests for one bandit, served in order: plan, commit, apply, answer.

Every bandit has a lane of its own, so that one with much to do never holds up the others; they only share the commits.
Requests that arrive while a commit is on its way to the disk wait and form the next group.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.building import Builder
from sketchbandits.service.bandits.committer import Committer
from sketchbandits.service.bandits.ledger import Built, Ledger
from sketchbandits.service.bandits.planning import (
    NO_FACTS,
    GroupPlan,
    Plan,
    decisions_of,
    planning_defaults,
    questions,
)
from sketchbandits.service.bandits.player import Player
from sketchbandits.service.bandits.requests import Answer, Operation, Refusal, Request, Reward, internal

GROUP = 512  # requests in one commit at most
RETRY_SECONDS = 1

Result = TypeVar("Result")
logger = logging.getLogger("sketchbandits.service")


@dataclass(frozen=True)
class Shared:
    """What all lanes work with. ``clock`` gives the time that records get."""

    ledger: Ledger
    committer: Committer
    player: Player
    builder: Builder
    clock: Callable[[], float]
    no_defaults_before: float = 0.0  # by the monotonic clock: defaults wait until the clock is known to be right


class Job(NamedTuple):
    """A request, how many decisions or rewards it has, and where its answer goes."""

    request: Request | Operation
    size: int
    answer: "asyncio.Future[Answer]"


class Lane:
    """One bandit's queue, and the task that serves it."""

    def __init__(self, name: str, shared: Shared) -> None:
        self.name, self.waiting = name, 0
        self._shared = shared
        self._jobs: deque[Job] = deque()
        self._looks: deque[tuple[Callable[[Bandit], Any], asyncio.Future[Any]]] = deque()
        self._wake = asyncio.Event()
        self._stopping = False
        self.closed = False  # whether `run` has ended: nothing more may be submitted
        self._no_defaults_until = shared.no_defaults_before

    def submit(self, request: Request | Operation) -> "asyncio.Future[Answer]":
        """Queue a request; the future has its answer once that is durable."""
        size = size_of(request)
        job = Job(request, size, asyncio.get_running_loop().create_future())
        self.waiting += size
        self._jobs.append(job)
        self._wake.set()
        return job.answer

    def look(self, function: Callable[[Bandit], Result]) -> "asyncio.Future[Result]":
        """What a function returns that is called in a thread between two groups, when the bandit does not change."""
        found: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._looks.append((function, found))
        self._wake.set()
        return found

    def stop(self) -> None:
        """End once everything that was accepted is answered."""
        self._stopping = True
        self._wake.set()

    @property
    def idle(self) -> bool:
        """Whether nothing waits."""
        return not self._jobs and not self._looks

    async def run(self) -> None:
        """Serve until `stop`, or until there is no such bandit; an error that cannot be handled ends it."""
        try:
            while not (self.idle and (self._stopping or self._bandit is None)):
                await self._wait()
                await self._look()
                await self._defaults()
                if self._jobs:
                    await self._group()
        finally:
            self.closed = True
            self._drop_all()

    @property
    def _bandit(self) -> Bandit | None:
        return self._shared.ledger.bandits.get(self.name)

    async def _wait(self) -> None:
        """Until there is something to do, or a deadline passes."""
        if self._stopping or not self.idle:
            return
        self._wake.clear()
        now = self._shared.clock()
        nearest = None if self._bandit is None else self._bandit.next_deadline(now)
        # At most a minute: the machine may be suspended meanwhile.
        seconds = None if nearest is None else min(max(nearest - now, self._defaults_pause(), 0.0), 60.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)

    async def _look(self) -> None:
        while self._looks:
            function, found = self._looks.popleft()
            if (bandit := self._bandit) is None:
                missing = Refusal("unknown_bandit", f"bandit must be one that exists, got {self.name!r}, which is gone")
                _settle(found, error=missing)
                continue
            try:
                result = await self._shared.player.call(lambda f=function, b=bandit: f(b))  # type: ignore[misc]
            except Exception as error:
                _settle(found, error=error)
            else:
                _settle(found, result)

    async def _defaults(self) -> None:
        bandit = self._bandit
        if bandit is None or bandit.config.deadline is None or self._defaults_pause() > 0.0:
            return
        plan = Plan()
        now = self._shared.clock()
        await self._shared.player.play(planning_defaults(bandit, plan, now, GROUP), short=True)
        if plan.changes and not await self._commit(plan.changes, short=bandit.short):
            self._no_defaults_until = time.monotonic() + RETRY_SECONDS

    def _defaults_pause(self) -> float:
        """Seconds before deadlines are recorded: after a start in doubt about the clock, or a refusal of the log."""
        return self._no_defaults_until - time.monotonic()

    async def _group(self) -> None:
        """Serve the requests at the head of the queue, or the one operation that stands there."""
        jobs: list[Job] = []
        while self._jobs and len(jobs) < GROUP:
            alone = not isinstance(self._jobs[0].request, Request)
            if alone and jobs:
                break
            jobs.append(self._jobs.popleft())
            if alone:
                break
        answers: list[Answer] = []
        try:
            answers = await self._serve([job.request for job in jobs])
        finally:
            missing = Refusal("failed", "the service has failed and whether it was done is not known: ask again")
            for job, answer in zip(jobs, answers or [missing] * len(jobs), strict=True):
                self._reply(job, answer)

    async def _serve(self, requests: Sequence[Any]) -> list[Answer]:
        if not isinstance(requests[0], Request):
            return [await self._operate(requests[0])]
        ledger, bandit = self._shared.ledger, self._bandit
        if bandit is None:  # it was deleted by an operation before these
            return [_gone(self.name)] * len(requests)
        asked = questions(ledger, requests)
        facts = await self._shared.committer.look_up(asked) if asked.records or asked.decisions else NO_FACTS
        if facts is None:
            return [_refused_by_storage({})] * len(requests)
        wanted = decisions_of(requests)
        first = ledger.take_numbers(wanted)
        group, used = GroupPlan(ledger, requests, facts, self._shared.clock(), first=first), 0
        try:
            await self._shared.player.play(group.steps(), short=bandit.short)
            if not group.plan.changes or await self._commit(group.plan.changes, short=bandit.short):
                used = group.used
                return group.plan.answers
            return [_refused_by_storage(answer) for answer in group.plan.answers]
        finally:
            ledger.give_numbers_back(first + used, first + wanted)

    async def _operate(self, operation: Operation) -> Answer:
        shared = self._shared
        asked = questions(shared.ledger, [operation])
        facts = await shared.committer.look_up(asked) if asked.decisions else NO_FACTS
        if facts is None:
            return _refused_by_storage({})
        now = shared.clock()
        try:
            change, built, answer = await shared.builder.plan(shared.ledger, operation, now, facts)
        except Refusal as refusal:
            return refusal
        except Exception:  # nothing has changed, so an unforeseen error in one operation must not end the service
            logger.exception("planning failed: %s", type(operation).__name__)
            return internal()
        if change is not None and not await self._commit([change], built, short=False):
            return _refused_by_storage({})
        return answer

    async def _commit(self, changes: list[Any], built: Built = None, *, short: bool) -> bool:
        """Log, then apply. Whether it was stored: if not, nothing has changed."""
        records = await self._shared.committer.commit(changes)
        if records is None:
            return False
        applying = self._shared.ledger.applying(zip(records, changes, strict=True), built)
        await self._shared.player.play(applying, short=short)
        return True

    def _reply(self, job: Job, answer: Answer) -> None:
        self.waiting -= job.size
        if not job.answer.done():  # the client may have left
            job.answer.set_result(answer)

    def _drop_all(self) -> None:
        gone = Refusal("stopping", "the service is stopping: ask again shortly")
        if not self._stopping and self._bandit is None:
            gone = _gone(self.name)
        while self._jobs:
            self._reply(self._jobs.popleft(), gone)
        while self._looks:
            _settle(self._looks.popleft()[1], error=gone)


def size_of(request: Request | Operation) -> int:
    """How many decisions or rewards a request has."""
    return len(request.items) if isinstance(request, Reward) else getattr(request, "count", 1)


def _gone(name: str) -> Refusal:
    return Refusal("unknown_bandit", f"bandit must be one that exists, got {name!r}")


def _settle(found: "asyncio.Future[Any]", result: Any = None, error: Exception | None = None) -> None:
    if found.done():
        return
    if error is None:
        found.set_result(result)
    else:
        found.set_exception(error)


def _refused_by_storage(answer: Answer) -> Answer:
    """A refusal stays as it is; anything else was not stored."""
    if isinstance(answer, Refusal):
        return answer
    return Refusal("storage", "the log could not be written, nothing has changed: ask again later")
