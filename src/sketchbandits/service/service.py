"""The running service: it recovers, serves and stops."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sketchbandits.service.bandits.bandit import digest_of
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.recovery import Recovered, recover
from sketchbandits.service.bandits.requests import CreateBandit, Refusal
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.bandits.writer import SNAPSHOT_EVERY, WAITING, Writer
from sketchbandits.service.counts import ConnectionCounts
from sketchbandits.service.folder import KEYS, LOG_FILE, SNAPSHOTS
from sketchbandits.service.keys import ADMIN, CLIENT, KeyRing
from sketchbandits.service.log import EventLog, open_log
from sketchbandits.service.log.progress import Progress

logger = logging.getLogger("sketchbandits.service")


@dataclass(frozen=True)
class Settings:
    """How a service runs; ``database`` is a PostgreSQL address, or none for SQLite in the state folder."""

    state: Path
    database: str | None = None
    open: bool = False  # whether no key is needed while none exists; only for services on loopback
    hosts: tuple[str, ...] | None = None  # names that a request may use for an open service; any if None
    body_limit: int = 1 << 20
    admin_body_limit: int = 1 << 26  # arms of a bandit in one body
    answer_seconds: float = 30.0
    connections: int | None = None  # at a time, by all; as many as the system allows, up to 10,000, if None
    connections_per_address: int | None = None  # three quarters of all if None
    require_keys: bool = False  # also while none exists
    access_log: Path | None = None  # one line of JSON per request
    waiting: int = WAITING
    snapshot_every: int = SNAPSHOT_EVERY
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
        self.warm = self.stopping = False
        self._closed = False  # True for ever once there was a key
        self._task: asyncio.Task[None] | None = None

    @property
    def ready(self) -> bool:
        """Whether decisions are served."""
        return self.warm and self.writer is not None and self.writer.failure is None and not self.stopping

    @property
    def open(self) -> bool:
        """Whether requests need no key: on loopback, as long as no key was ever made."""
        if self.settings.open and not self._closed:
            self._closed = self.keys.in_use
        return self.settings.open and not self._closed

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
        log = await asyncio.to_thread(open_log, settings.database or str(settings.state / LOG_FILE))
        snapshots = Snapshots(settings.state / SNAPSHOTS)
        snapshots.tidy()
        try:
            self.recovered = await asyncio.to_thread(recover, log, snapshots, progress)
            for note in self.recovered.notes:
                logger.warning("%s", note)
            self.ledger = self.recovered.ledger
            new = [bandit for bandit in settings.bandits if not self._exists(bandit)]
        except BaseException:
            log.close()
            raise
        self.writer = self._writer(log, snapshots)
        self._task = asyncio.create_task(self.writer.run())
        for bandit in new:
            if isinstance(refusal := await self.writer.submit(bandit), Refusal):
                raise ValueError(refusal.message)
        await asyncio.to_thread(self._warm_up)
        self.warm = True

    def _writer(self, log: EventLog, snapshots: Snapshots) -> Writer:
        assert self.recovered is not None
        return Writer(
            self.ledger,
            log,
            snapshots,
            snapshot=self.recovered.snapshot,
            waiting=self.settings.waiting,
            snapshot_every=self.settings.snapshot_every,
        )

    def _exists(self, wanted: CreateBandit) -> bool:
        """Whether the bandit exists already; one that exists with other arms or rules is refused."""
        bandit = self.ledger.bandits.get(wanted.name)
        if bandit is None:
            return False
        if not wanted.config.allows(bandit.config):
            raise ValueError(
                f"bandit {wanted.name!r} must keep the rules it was created with, {bandit.config}; got {wanted.config}"
            )
        if bandit.origin != digest_of(wanted.features, wanted.ids):
            raise ValueError(
                f"arms must be those that the bandit {wanted.name!r} was created with; change them by POST and DELETE "
                "/v1/arms, or leave --arms out"
            )
        return True

    def _warm_up(self) -> None:
        """Compile what requests will call, on copies of the policies."""
        for bandit in self.ledger.bandits.values():
            copy = bandit.policy.copy()
            copy.select_many(2, pending=[int(bandit.active[0])])
            copy.update_many([int(bandit.active[0])], [0.0])
            copy.bounds()
            copy.estimates()

    async def drain(self) -> None:
        """Refuse new requests with 503 from now on, and return once all that were accepted are answered."""
        self.stopping = True
        while self.writer is not None and self.writer.failure is None and self.writer.waiting:
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Finish what was accepted, then close."""
        self.stopping = True
        if self._task is not None and self.writer is not None:
            await self.writer.stop(self._task)

    def watch(self, failed: Callable[[BaseException], None]) -> None:
        """Call ``failed`` if the writer ends by an error."""
        assert self._task is not None
        self._task.add_done_callback(lambda task: failed(error) if (error := task.exception()) else None)
