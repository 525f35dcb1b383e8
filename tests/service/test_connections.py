"""Connections over real sockets: what a client may send, leave waiting and not read, and how many there may be."""

import asyncio
import contextlib
import json
import re
import signal
import socket
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from service_tools import PATIENCE, Process, write_arms

from sketchbandits.service.counts import ConnectionCounts
from sketchbandits.service.http import connections, protocol, server
from sketchbandits.service.http.api import make_app
from sketchbandits.service.keys import KeyRing
from sketchbandits.service.service import Service, Settings

GET = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"
LARGE = b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"
LATER = b"GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n"
CHUNKED = b"Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
LATER_SECONDS = 1.0


async def application(scope, receive, send):
    """Answers immediately, late, with much, or with what it was sent."""
    body = b"small"
    if scope["path"] == "/later":
        await asyncio.sleep(LATER_SECONDS)
    if scope["path"] == "/large":
        body = bytes(20_000_000)
    if scope["path"] == "/echo":
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        names = b" ".join(name for name, value in scope["headers"])
        body = names + b"|" + body
    headers = [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextlib.contextmanager
def serving(app=application, most=50, per_address=40):
    """An application on a free port of loopback, in a thread."""
    counts, bound = ConnectionCounts(), server.listen("127.0.0.1", 0)
    made = server.Server(server.make_config(app), connections.Connections(most, per_address, counts))

    async def serve():
        others = [asyncio.create_task(made.connections.watch())]
        others.append(asyncio.create_task(made.stop_when_asked(lambda: asyncio.sleep(0))))
        await made.serve(sockets=[bound])
        for task in others:
            task.cancel()

    def work():
        with asyncio.Runner(loop_factory=made.config.get_loop_factory()) as runner:
            runner.run(serve())

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield SimpleNamespace(port=bound.getsockname()[1], counts=counts, server=made)
    finally:
        made.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


@pytest.fixture
def quick(monkeypatch):
    """Seconds become hundredths."""
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.02)
    for name, seconds in (("REQUEST_SECONDS", 0.6), ("IDLE_SECONDS", 0.6), ("UNREAD_SECONDS", 0.4)):
        monkeypatch.setattr(protocol, name, seconds)


OPENED = []


@pytest.fixture(autouse=True)
def _nothing_stays_open():
    yield
    while OPENED:
        OPENED.pop().close()


def connect(port, *sent):
    """A connection that is closed after the test at the latest."""
    client = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    OPENED.append(client)
    for data in sent:
        client.sendall(data)
    return client


def some(client):
    """Bytes of an answer that must not have ended."""
    received = client.recv(1 << 20)
    assert received
    return received


def answer(client):
    """One answer with a content length: its status, headers and body."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += some(client)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(re.search(rb"content-length: (\d+)", head.lower())[1])
    while len(body) < length:
        body += some(client)
    return int(head.split()[1]), head.lower(), body


def until_closed(client):
    """What comes until the service closes the connection, by an end or a reset."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while more := client.recv(65_536):
            received += more
    return received


def flood(client, data, most):
    """How many bytes can be sent until the connection is closed."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < most:
            client.sendall(data)
            sent += len(data)
    return sent


def wait_for(condition):
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.mark.process
@pytest.mark.parametrize(
    "begun",
    [
        b"GET /small HTTP/1.1\r\n",
        b"GET /small HTTP/1.1\r\n" + CHUNKED + b"0\r\n",
        b"POST /echo HTTP/1.1\r\n" + CHUNKED + b"1\r\nx\r\n0\r\n",
    ],
    ids=["headers", "trailers of a request that is answered", "trailers after a body"],
)
def test_headers_and_trailers_without_end_close_the_connection(begun):
    most = 32_000_000
    fields = b"".join(b"X-%d: %s\r\n" % (i, b"x" * 2000) for i in range(32))
    with serving() as service, connect(service.port, begun) as client:
        assert flood(client, fields, most) < most / 2  # what the kernel takes before it knows of the end
        assert service.counts.oversized == 1
        assert answer(connect(service.port, GET))[0] == 200


@pytest.mark.process
def test_short_headers_framing_and_line_ends_are_bounded_too():
    framed = b"POST /echo HTTP/1.1\r\n" + CHUNKED
    for kind, (begun, data) in enumerate(
        (
            (b"GET /small HTTP/1.1\r\n", b"a:\r\n" * 2_000),
            (framed, b"1;%s\r\nx\r\n" % (b"e" * 5_000)),
            (GET, b"\r\n" * 5_000),
        )
    ):
        with serving() as service, connect(service.port, begun) as client:
            assert flood(client, data, 32_000_000) < 16_000_000, kind
            assert service.counts.oversized == 1, kind


@pytest.mark.process
def test_a_body_in_small_chunks_and_a_trailer_is_read():
    body = b"8\r\n12345678\r\n" * 30_000
    with serving() as service:
        client = connect(service.port, b"POST /echo HTTP/1.1\r\n" + CHUNKED, body, b"0\r\nAuthorization: x\r\n\r\n")
        names, _, echoed = answer(client)[2].partition(b"|")
        assert echoed == b"12345678" * 30_000 and b"authorization" not in names.split()
        client.sendall(GET)
        assert answer(client)[2] == b"small" and service.counts.oversized == 0


@pytest.mark.process
def test_a_trailer_does_not_authorise(tmp_path):
    key = KeyRing(tmp_path / "keys.json").create("test", "admin").encode()
    with serving(make_app(Service(Settings(tmp_path)))) as service:
        head = b"GET /metrics HTTP/1.1\r\n"
        credentials = b"Authorization: Bearer " + key + b"\r\n"
        assert answer(connect(service.port, head + credentials + CHUNKED + b"0\r\n\r\n"))[0] == 200
        assert answer(connect(service.port, head + CHUNKED + b"0\r\n" + credentials + b"\r\n"))[0] == 401


@pytest.mark.process
def test_pipelined_requests_are_answered_in_order_and_bounded():
    with serving() as service:
        client = connect(service.port, GET * 60 + b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi")
        received = b""
        while not received.endswith(b"|hi"):
            received += some(client)
        assert received.count(b"200 OK") == 61
        client = connect(service.port, LATER + GET * 50, GET * 51)
        until_closed(client)
        assert service.counts.oversized == 1


@pytest.mark.process
@pytest.mark.parametrize("line_end", [b"", b"\r\n"], ids=["silent", "bare line ends"])
def test_an_idle_connection_is_closed_whatever_line_ends_it_sends(quick, line_end):
    with serving() as service, connect(service.port, GET) as client:
        assert answer(client)[0] == 200
        started = time.monotonic()
        client.settimeout(0.1)
        closed = False
        while not closed and time.monotonic() < started + 10:
            try:
                client.sendall(line_end)
                closed = client.recv(100) == b""
            except TimeoutError:
                pass
            except ConnectionError:
                closed = True
        assert closed and service.counts.closed_idle == 1 and service.counts.open == 0


@pytest.mark.process
def test_a_request_that_does_not_arrive_is_closed_and_one_that_waits_for_its_answer_is_not(quick):
    with serving() as service:
        for begun in (b"", b"GET /sm", b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf", GET + b"GET /sm"):
            assert until_closed(connect(service.port, begun)).count(b"200 OK") == begun.count(b"small"), begun
        assert service.counts.closed_slow == 4
        waiting = connect(service.port, LATER + b"POST /echo HTTP/1.1\r\nContent-Length: 2\r\n\r\n")
        assert answer(waiting)[0] == 200, "the second request's time begins after the first answer"
        waiting.sendall(b"hi")
        assert answer(waiting)[2].endswith(b"|hi")


@pytest.mark.process
def test_a_client_that_does_not_read_is_closed_and_one_that_reads_slowly_is_not(quick):
    with serving() as service:
        unread = connect(service.port, LARGE)
        slow = connect(service.port, LARGE)
        received = 0
        while received < 20_000_000:  # for several times the allowed pause
            received += len(some(slow))
            time.sleep(0.05)
        wait_for(lambda: service.counts.closed_unread == 1)
        assert len(until_closed(unread)) < 1_000_000
        slow.sendall(GET)
        assert answer(slow)[2] == b"small"


@pytest.mark.process
def test_at_the_limit_of_an_address_its_oldest_idle_connection_makes_room():
    with serving(most=10, per_address=4) as service:
        busy = connect(service.port, LATER)
        wait_for(lambda: service.counts.open == 1)
        arriving = connect(service.port, b"GET /sm")
        idle = [connect(service.port), connect(service.port)]
        for client in reversed(idle):
            client.sendall(GET)
            assert answer(client)[0] == 200
        newest = connect(service.port, GET)
        assert answer(newest)[0] == 200
        assert until_closed(idle[1]) == b"" and service.counts.displaced == 1, "the one idle for longest"
        idle[0].sendall(GET)
        assert answer(idle[0])[0] == 200
        busier = [connect(service.port, LATER) for _ in range(3)]  # two idle ones go, then the one arriving
        for client in (idle[0], newest, arriving):
            assert until_closed(client) == b""
        refused = connect(service.port, GET)
        status, head, body = answer(refused)
        assert status == 503 and b"connection: close" in head and b"retry-after" in head
        assert json.loads(body)["error"]["code"] == "busy" and until_closed(refused) == b""
        assert [answer(client)[0] for client in (busy, *busier)] == [200] * 4
        assert (service.counts.displaced, service.counts.refused, service.counts.open) == (4, 1, 4)


@pytest.mark.process
def test_a_limit_in_all_holds_for_a_flood_and_is_reported_once(quick, caplog):
    with serving(most=5, per_address=5) as service:
        clients = [connect(service.port, GET) for _ in range(100)]
        wait_for(lambda: service.counts.displaced >= 95)
        assert service.counts.open <= 5
        wait_for(lambda: service.counts.open == 0)
        lines = [record.getMessage() for record in caplog.records if record.name == "sketchbandits.service"]
        assert len(lines) == 1 and "displaced" in lines[0] and "allowed are 5 in all" in lines[0]
        assert all(client.fileno() > 0 for client in clients)


@pytest.mark.process
@pytest.mark.parametrize("framing", [b"Content-Length: 4\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n4\r\n"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_a_post_that_offers_another_protocol_is_served_with_its_body(framing, pieces):
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    request = b"POST /echo?x=1 HTTP/1.1\r\nHost: localhost\r\n" + offer + framing + b"body"
    request += b"\r\n0\r\n\r\n" if b"chunked" in framing else b""
    with serving() as service, connect(service.port) as client:
        size = -(-len(request) // pieces)
        for start in range(0, len(request), size):
            client.sendall(request[start : start + size])
            time.sleep(0.02)
        status, head, body = answer(client)
        assert status == 200 and body.endswith(b"|body") and b"connection: close" in head
        assert b"upgrade" not in body.partition(b"|")[0].split() and until_closed(client) == b""


@pytest.mark.process
def test_the_service_refuses_while_it_stops_and_ends_in_spite_of_a_client_that_does_not_read(monkeypatch):
    monkeypatch.setattr(server, "ENDING_SECONDS", 0.5)
    with serving() as service:
        kept = [connect(service.port, GET) for _ in range(2)]
        assert [answer(client)[0] for client in kept] == [200, 200]
        unread = connect(service.port, LARGE)
        later = connect(service.port, LATER)
        wait_for(lambda: service.counts.open == 4)
        service.server.connections.stopping = True
        kept[0].sendall(GET)
        assert b"connection: close" in answer(kept[0])[1] and until_closed(kept[0]) == b""
        started = time.monotonic()
        service.server.asked_to_stop.set()
        wait_for(lambda: service.counts.open == 0)
        assert time.monotonic() - started < 5
        assert until_closed(kept[1]) == b"" and until_closed(unread) != b""
        later.close()


@pytest.mark.process
def test_sigterm_answers_503_while_work_finishes(tmp_path):
    """Decisions are stopped in the log by another connection's transaction, so that the service has work to finish."""
    state = tmp_path / "state"
    service = Process(state, "--arms", write_arms(tmp_path / "arms.npy"), "--policy", "ucb1")
    port = int(service.address.rpartition(":")[2])
    decide = b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    decide += b"Content-Length: 2\r\n\r\n{}"
    flooding = [connect(port, b"GET /healthz HTTP/1.1\r\n" + CHUNKED + b"0\r\n") for _ in range(4)]
    before = memory(service)
    for client in flooding:
        flood(client, b"".join(b"X-%d: %s\r\n" % (i, b"x" * 2000) for i in range(32)), 16_000_000)
    assert memory(service) - before < 8_000_000
    unread = connect(port, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 60)
    late = connect(port)
    lock = sqlite3.connect(state / "events.db", isolation_level=None)
    lock.execute("begin immediate")
    accepted = connect(port, decide)
    time.sleep(0.3)
    service.process.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    late.sendall(decide)
    for client in (late, connect(port, decide)):
        status, head, body = answer(client)
        assert status == 503 and b"connection: close" in head and json.loads(body)["error"]["code"] == "not_ready"
        assert until_closed(client) == b""
    lock.execute("rollback")
    lock.close()
    released = time.monotonic()
    assert answer(accepted)[0] == 200
    assert service.process.wait(PATIENCE) == 0, service.text()
    assert time.monotonic() - released < 8
    unread.close()


def memory(service):
    """Bytes of a process in memory."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{service.process.pid}/status").read_text())[1]) * 1024


@pytest.mark.process
def test_a_trailer_as_large_as_the_body_before_it_closes_the_connection():
    """Of a request that is answered already: its body is dropped, and buys no room for a trailer."""
    with serving() as service, connect(service.port, b"POST /small HTTP/1.1\r\n" + CHUNKED) as client:
        chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
        assert flood(client, chunk, 8_000_000) >= 8_000_000, "a body that nobody reads is no offence"
        client.sendall(b"0\r\nX-Long: ")
        # What the kernel takes before it knows of the end is more than the service does.
        assert flood(client, b"y" * 65_536, 32_000_000) < 16_000_000
        wait_for(lambda: service.counts.oversized == 1)


@pytest.mark.process
def test_headers_of_waiting_requests_are_bounded_together():
    many = b"GET /small HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 300 + b"\r\n"
    with serving() as service:
        client = connect(service.port, LATER + many * 5)
        until_closed(client)
        assert service.counts.oversized == 1
        several = connect(service.port, many * 3)
        received = b""
        while received.count(b"200 OK") < 3:
            received += some(several)
