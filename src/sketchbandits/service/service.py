"""The running service: it recovers, serves and stops."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sketchbandits.service.bandits.arms import reconcile
from sketchbandits.service.bandits.building import MEMORY
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.recovery import Recovered, recover
from sketchbandits.service.bandits.requests import CreateBandit, Operation, Refusal
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.bandits.writer import SNAPSHOT_EVERY, WAITING, Writer
from sketchbandits.service.clock import ServiceClock
from sketchbandits.service.compiling import CompilingFailed
from sketchbandits.service.counts import ConnectionCounts
from sketchbandits.service.folder import CLOCK, KEYS, LOG_FILE, SNAPSHOTS
from sketchbandits.service.keys import ADMIN, CLIENT, KeyRing, check_keys
from sketchbandits.service.log import EventLog, open_log
from sketchbandits.service.log.progress import Progress
from sketchbandits.service.log.scrub import RATE, Scrubber

CHECK_SECONDS = 1.0  # between looks at the machine's clock and at whether there is a first key

logger = logging.getLogger("sketchbandits.service")


class Stopped(Exception):
    """A start was interrupted: nothing is lost, the next one begins again."""


@dataclass(frozen=True)
class Settings:
    """How a service runs; ``database`` is a PostgreSQL address, or none for SQLite in the state folder."""

    state: Path
    database: str | None = None
    open: bool = False  # whether no key is needed while none exists; only for services on loopback
    require_keys: bool = False  # also while none exists
    hosts: tuple[str, ...] | None = None  # names that a request may use for an open service; any if None
    body_limit: int = 1 << 20
    admin_body_limit: int = 1 << 26  # arms of a bandit in one body
    answer_seconds: float = 30.0
    operation_seconds: float = 600.0  # for changes of bandits and arms: a policy may have to be compiled and built
    waiting: int = WAITING
    snapshot_every: int = SNAPSHOT_EVERY
    connections: int | None = None  # at a time, by all; as many as the system allows, up to 10,000, if None
    connections_per_address: int | None = None  # three quarters of all if None
    access_log: Path | None = None  # one line of JSON per request
    memory: int = MEMORY  # bytes that the policy of one bandit may take
    scrub_rate: float = RATE  # records per second that are read again and verified; 0 for none
    remove_missing_arms: bool = False  # whether arms that are not in ``bandits`` any more are removed at the start
    bandits: tuple[CreateBandit, ...] = field(default=(), repr=False)  # created at the first start


class Service:
    """One ledger, one writer, one log."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.keys = KeyRing(settings.state / KEYS)
        self.connections = ConnectionCounts()
        self.ledger = Ledger()
        self.writer: Writer | None = None
        self.recovered: Recovered | None = None
        self.clock: ServiceClock | None = None
        self.scrubber: Scrubber | None = None
        self.warm = self.stopping = False
        self.keys.required = settings.require_keys
        self._task: asyncio.Task[None] | None = None
        self._checking: asyncio.Task[None] | None = None
        self._stop_scrub = threading.Event()
        self._scrubbing: threading.Thread | None = None

    @property
    def scrubbed(self) -> int:
        """How many records were read again and verified since the service began."""
        return 0 if self.scrubber is None else self.scrubber.checked

    @property
    def damaged(self) -> int:
        """How many records were found that are not what was written."""
        return 0 if self.scrubber is None else len(self.scrubber.faults)

    @property
    def ready(self) -> bool:
        """Whether decisions are served."""
        return self.warm and self.writer is not None and self.writer.failure is None and not self.stopping

    @property
    def open(self) -> bool:
        """Whether requests need no key: on loopback, as long as no key was ever made."""
        return self.settings.open and not self.keys.in_use

    def allows(self, role: str | None, needed: str) -> bool:
        """Whether a role suffices."""
        return role == ADMIN or (role == CLIENT and needed == CLIENT)

    def owner(self) -> Writer:
        """The writer, or a refusal while there is none."""
        if self.writer is None or not self.ready:
            raise Refusal("not_ready", "the service is starting or stopping: ask again shortly")
        return self.writer

    async def start(self, progress: Progress = lambda done, total: None) -> None:
        """Recover, create the bandits of the settings that do not exist yet, begin to serve."""
        settings = self.settings
        database = settings.database or str(settings.state / LOG_FILE)
        log = await asyncio.to_thread(open_log, database)
        snapshots = Snapshots(settings.state / SNAPSHOTS)
        try:
            snapshots.tidy()
            self.recovered = await asyncio.to_thread(recover, log, snapshots, progress)
            self.ledger = self.recovered.ledger
            check_keys(self.keys, self.ledger.keys_required, settings.require_keys)
            self.keys.required |= self.ledger.keys_required or settings.require_keys
            self.clock = ServiceClock(settings.state / CLOCK, self.recovered.last_time)
            operations = [operation for bandit in settings.bandits for operation in self._wanted(bandit)]
        except BaseException:
            log.close()
            raise
        for note in (*self.recovered.notes, *self.clock.notes):
            logger.warning("%s", note)
        self.writer = self._writer(log, snapshots, self.clock)
        self._task = asyncio.create_task(self.writer.run())
        try:
            for operation in operations:
                if isinstance(refusal := await self.writer.submit(operation), Refusal):
                    raise ValueError(refusal.message)
            await self.writer.builder.prepare(self.ledger)
        except (ValueError, CompilingFailed):
            if self.stopping:  # which ends the child that compiles
                raise Stopped from None
            raise
        self._checking = asyncio.create_task(self._check())
        self._scrub(database, log)
        self.warm = True

    def _writer(self, log: EventLog, snapshots: Snapshots, clock: ServiceClock) -> Writer:
        assert self.recovered is not None
        return Writer(
            self.ledger,
            log,
            snapshots,
            snapshot=self.recovered.snapshot,
            clock=clock.now,
            waiting=self.settings.waiting,
            snapshot_every=self.settings.snapshot_every,
            no_defaults_for=clock.doubt,
            memory=self.settings.memory,
        )

    def _wanted(self, wanted: CreateBandit) -> list[Operation]:
        """What brings a bandit to what the settings say; one that exists with other rules is refused."""
        bandit = self.ledger.bandits.get(wanted.name)
        if bandit is None:
            return [wanted]
        if differences := wanted.config.differences(bandit.config):
            named = "; ".join(differences)
            raise ValueError(f"bandit {wanted.name!r} must keep the rules it was created with: {named}")
        operations, notes = reconcile(bandit, wanted, remove=self.settings.remove_missing_arms)
        for note in notes:
            logger.warning("%s", note)
        return operations

    async def _check(self) -> None:
        """Now and then: was the clock set, and is there a first key?"""
        assert self.writer is not None and self.clock is not None
        while True:
            if (note := self.clock.check()) is not None:
                logger.warning("%s", note)
            if not self.ledger.keys_required and self.keys.in_use:
                await self.writer.require_keys()
            await asyncio.sleep(CHECK_SECONDS)

    def _scrub(self, database: str, log: EventLog) -> None:
        """Read the log again in the background, at a bounded rate."""
        if self.settings.scrub_rate > 0.0:
            self.scrubber = Scrubber(
                database, rate=self.settings.scrub_rate, report=_report_damage, end=lambda: log.last.seq
            )
            self._scrubbing = threading.Thread(
                target=self.scrubber.run, args=(self._stop_scrub,), name="scrub", daemon=True
            )
            self._scrubbing.start()

    async def drain(self) -> None:
        """Refuse new requests with 503 from now on, and return once all that were accepted are answered."""
        self.stopping = True
        if self.writer is not None:
            self.writer.builder.stop()
        while self.writer is not None and self.writer.failure is None and self.writer.waiting:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Finish what was accepted, then close."""
        self.stopping = True
        self._stop_scrub.set()
        if self._checking is not None:
            self._checking.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._checking
        if self._scrubbing is not None:
            await asyncio.to_thread(self._scrubbing.join)
        if self._task is not None and self.writer is not None:
            await self.writer.stop(self._task)

    def watch(self, failed: Callable[[BaseException], None]) -> None:
        """Call ``failed`` if the writer ends by an error."""
        assert self._task is not None
        self._task.add_done_callback(lambda task: failed(error) if (error := task.exception()) else None)


def _report_damage(fault: object) -> None:
    logger.error("the log is damaged: %s; `sketchbandits log` says what to do", fault)
