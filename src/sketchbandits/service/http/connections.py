"""All open connections: how many there may be, which one makes room for another, and which are open for too long.

One sweep per second looks at every connection, which costs less than a timer per request. Time is counted in sweeps:
while the event loop itself stands still, no client is late. What a connection waits for changes twice per request, so
it is noted only at sweeps, and where a new connection needs room.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import logging
import resource
import socket
import struct
from collections import OrderedDict
from dataclasses import asdict
from enum import IntEnum
from typing import Protocol

from sketchbandits.service.counts import ConnectionCounts
from sketchbandits.service.service import Settings

MOST = 10_000
RESERVED = 100  # descriptors for the log, the listening socket, connections that are being refused and all else
LINGERING = 50  # refused connections that stay until their client has read why
SWEEP_SECONDS = 1.0
REPORT_SECONDS = 10.0
_LOOKS = 100_000  # at connections between two sweeps, for one that can make room
_TROUBLE = ("refused", "displaced", "closed_slow", "closed_unread", "oversized")

logger = logging.getLogger("sketchbandits.service")


class State(IntEnum):
    """What a connection waits for; the first two may make room for a new connection, in this order."""

    IDLE = 0  # its next request
    ARRIVING = 1  # the rest of a request
    BUSY = 2  # an answer


class Member(Protocol):
    """What this module needs of a connection."""

    transport: asyncio.Transport
    rooms: "tuple[Room, ...]"
    state: State  # as last noted
    turn: int  # when it was last answered: larger means later
    noted: int  # the turn when its state was last noted

    def waits_for(self) -> State:
        """What it waits for now."""

    def overdue(self, now: float) -> str | None:
        """Why the connection must be closed now: the name of its counter."""


class Room:
    """The connections of one address, or all: a queue per state, each ordered by how long it lasts."""

    def __init__(self, most: int, address: str = "") -> None:
        self.most, self.address = most, address
        self.queues: tuple[OrderedDict[Member, None], ...] = tuple(OrderedDict() for _ in State)

    @property
    def count(self) -> int:
        """How many connections."""
        return sum(map(len, self.queues))


class Connections:
    """Admits, displaces and closes connections, and counts what it did."""

    def __init__(self, most: int, per_address: int, counts: ConnectionCounts) -> None:
        self.all, self.per_address, self.counts = Room(most), per_address, counts
        self.by_address: dict[str, Room] = {}
        self.lingering: OrderedDict[Member, float] = OrderedDict()
        self.now = 0.0  # seconds, counted in sweeps
        self.turns = itertools.count(1)
        self._looks = _LOOKS
        self.stopping = False  # every answer ends its connection from now on
        self._reported, self._report_after = asdict(counts), 0.0

    def admit(self, connection: Member, host: str) -> bool:
        """Whether there is room for a new connection, which another one may have to make."""
        address = _network(host)
        room = self.by_address.get(address) or Room(self.per_address, address)
        if not all(each.count < each.most or self._make_room(each) for each in (room, self.all)):
            return False
        self.by_address[address] = room  # again if the displaced connection was its last
        connection.rooms, connection.state = (room, self.all), State.ARRIVING
        for each in connection.rooms:
            each.queues[State.ARRIVING][connection] = None
        self.counts.open += 1
        return True

    def _make_room(self, room: Room) -> bool:
        """End the connection that has been idle for longest, or else the one whose request is arriving for longest."""
        oldest = next(iter(room.queues[State.IDLE]), None)
        if oldest is None or oldest.noted != oldest.turn or oldest.waits_for() is not State.IDLE:
            if self._looks < 0:
                return False
            self._looks -= self.all.count
            self._note()
        for state in (State.IDLE, State.ARRIVING):
            if room.queues[state]:
                self.end(next(iter(room.queues[state])), "displaced")
                return True
        return False

    def _note(self) -> None:
        """Note what every connection waits for, in the order in which they were answered."""
        found = ((each, each.waits_for()) for each in itertools.chain(*self.all.queues))
        changed = [(each, state) for each, state in found if state is not each.state or each.turn != each.noted]
        for connection, state in sorted(changed, key=lambda pair: pair[0].turn):
            self.move(connection, state)

    def move(self, connection: Member, state: State) -> None:
        """The connection waits for something else."""
        for room in connection.rooms:
            del room.queues[connection.state][connection]
            room.queues[state][connection] = None
        connection.state, connection.noted = state, connection.turn

    def leave(self, connection: Member) -> None:
        """The connection is closed, or about to be; a second call changes nothing."""
        self.lingering.pop(connection, None)
        if not connection.rooms:
            return
        for room in connection.rooms:
            del room.queues[connection.state][connection]
            if not room.count:
                self.by_address.pop(room.address, None)
        connection.rooms = ()
        self.counts.open -= 1

    def end(self, connection: Member, reason: str) -> None:
        """Close a connection and count it; what its client has not read by now is given up."""
        setattr(self.counts, reason, getattr(self.counts, reason) + 1)
        self.leave(connection)
        _close(connection.transport)

    def linger(self, connection: Member) -> None:
        """A refused connection stays for a moment: closed with unread bytes, its client would see a reset."""
        self.counts.refused += 1
        self.lingering[connection] = self.now
        if len(self.lingering) > LINGERING:
            _reset(self.lingering.popitem(last=False)[0].transport)

    async def watch(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep()

    def sweep(self) -> None:
        """Close what is overdue, and report what had to be closed or refused."""
        self.now += SWEEP_SECONDS
        self._looks = _LOOKS
        self._note()
        for connection in [*itertools.chain(*self.all.queues)]:
            if reason := connection.overdue(self.now):
                self.end(connection, reason)
        for connection, since in list(self.lingering.items()):
            if since < self.now - SWEEP_SECONDS:
                self.leave(connection)
                _close(connection.transport)
        if self.now >= self._report_after:
            self._report()

    def _report(self) -> None:
        """At most one line per ten seconds, whatever clients do; keep-alive that ends is no trouble."""
        counts = asdict(self.counts)
        more = {name: counts[name] - self._reported[name] for name in _TROUBLE}
        if not any(more.values()):
            return
        self._reported, self._report_after = counts, self.now + REPORT_SECONDS
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in more.items() if count)
        limits = f"{self.all.most} in all, {self.per_address} per address"
        logger.warning("connections: %s; %d are open, allowed are %s", told, counts["open"], limits)

    def abort(self) -> None:
        """Close every connection without waiting for its client."""
        for connection in [*itertools.chain(*self.all.queues), *self.lingering]:
            _reset(connection.transport)


def _close(transport: asyncio.Transport) -> None:
    if transport.get_write_buffer_size():
        _reset(transport)
    else:
        transport.close()


def _reset(transport: asyncio.Transport) -> None:
    """Close, and let the kernel drop what was not read: it would keep that for many minutes."""
    with contextlib.suppress(OSError):  # closed already
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()


def _network(host: str) -> str:
    """What counts as one address: of IPv6 the first 64 bits, since whoever has one address there has them all."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host)
    return str(address.ipv4_mapped or ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


def limits(settings: Settings) -> tuple[int, int]:
    """How many connections there may be in all and per address; raises the limit on open files as far as needed."""
    available = _descriptors(RESERVED + (settings.connections or MOST)) - RESERVED
    most = settings.connections or max(1, min(MOST, available))
    if not 1 <= most <= max(1, available):
        raise ValueError(
            f"connections must be a whole number from 1 to {max(1, available)}, {RESERVED} less than the files that "
            f"this process may open, got {most}"
        )
    per_address = settings.connections_per_address or max(1, 3 * most // 4)
    if not 1 <= per_address <= most:
        raise ValueError(f"connections_per_address must be a whole number from 1 to {most}, got {per_address}")
    return most, per_address


def _descriptors(needed: int) -> int:
    """How many files this process may open, after asking for as many as needed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return needed
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
