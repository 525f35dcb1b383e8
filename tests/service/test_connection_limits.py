"""Which connection makes room for another, what counts as one address, and how many connections there may be."""

import resource
from types import SimpleNamespace

import pytest

from sketchbandits.service.counts import ConnectionCounts
from sketchbandits.service.http import connections
from sketchbandits.service.service import Settings


class Idle:
    """As much of a connection as its registry needs."""

    def __init__(self):
        self.rooms, self.closed, self.turn, self.noted = (), False, 0, 0
        self.transport = SimpleNamespace(get_write_buffer_size=lambda: 0, close=self.close, abort=self.close)

    def close(self):
        self.closed = True

    def waits_for(self):
        return self.state

    def overdue(self, now):
        return "closed_idle" if now > 2 else None


def test_the_oldest_idle_connection_goes_first_then_the_oldest_that_is_arriving():
    counts = ConnectionCounts()
    registry = connections.Connections(4, 3, counts)
    first, second, third, fourth = members = [Idle() for _ in range(4)]
    assert all(registry.admit(member, host) for member, host in zip(members, "aaab", strict=True))
    registry.move(second, connections.State.IDLE)
    registry.move(first, connections.State.IDLE)
    registry.move(fourth, connections.State.IDLE)
    assert registry.admit(Idle(), "a") and [member.closed for member in members] == [False, True, False, False]
    assert registry.admit(Idle(), "b") and first.closed, "the oldest of all, of whichever address"
    assert registry.admit(Idle(), "b") and fourth.closed and not third.closed
    assert registry.admit(Idle(), "c") and third.closed, "none is idle"
    for member in list(registry.all.queues[connections.State.ARRIVING]):
        registry.move(member, connections.State.BUSY)
    assert not registry.admit(Idle(), "d")
    assert (counts.open, counts.displaced) == (4, 4)
    for _ in range(3):
        registry.sweep()
    assert (counts.open, counts.closed_idle, registry.by_address) == (0, 4, {})


def test_addresses_of_one_network_count_as_one():
    registry = connections.Connections(10, 2, ConnectionCounts())
    for host in ("2001:db8::1", "2001:db8::2:1", "2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.1", "10.0.0.2"):
        assert registry.admit(Idle(), host)
    assert {address: room.count for address, room in registry.by_address.items()} == {
        "2001:db8::/64": 2,
        "2001:db8:0:1::/64": 1,
        "10.0.0.1": 2,
        "10.0.0.2": 1,
    }


def test_limits_follow_the_files_that_may_be_open(tmp_path, monkeypatch):
    raised = []
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: raised.append(both))
    for (soft, hard), settings, expected in (
        ((1024, 4096), {}, (3996, 2997)),
        ((1024, 1 << 20), {}, (10_000, 7_500)),
        ((1 << 16, 1 << 20), {}, (10_000, 7_500)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), {}, (10_000, 7_500)),
        ((1024, resource.RLIM_INFINITY), {"connections": 20_000, "connections_per_address": 5}, (20_000, 5)),
        ((256, 256), {"connections": 1}, (1, 1)),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda which, both=(soft, hard): both)
        assert connections.limits(Settings(tmp_path, **settings)) == expected
    assert raised == [(4096, 4096), (10_100, 1 << 20), (20_100, resource.RLIM_INFINITY)]
    for settings, named in (
        ({"connections": 200}, "connections must be a whole number from 1 to 156"),
        ({"connections": 10, "connections_per_address": 11}, "connections_per_address must be .* from 1 to 10"),
    ):
        with pytest.raises(ValueError, match=named):
            connections.limits(Settings(tmp_path, **settings))
