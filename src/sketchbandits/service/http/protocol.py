"""One connection: uvicorn's protocol, with a limit to everything that a client may send, leave waiting or not read.

- Bytes that are no body are counted: headers, trailers, framing of chunks, line ends between requests.
- Trailers are dropped: uvicorn would append them to the headers, where one could pass for `Authorization`.
- A request that offers another protocol (``Upgrade: h2c``) is served as if it did not, with its body.
"""

import asyncio
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from sketchbandits.service.bandits.requests import Refusal
from sketchbandits.service.http.connections import Connections, Room, State
from sketchbandits.service.http.responses import refused

HEAD_LIMIT = 1 << 18  # bytes
FIELDS = 1_000  # headers of a request and of those that wait: each costs 100 times the memory of its shortest form
PIPELINED = 100  # requests that wait for the answer to an earlier one
CHUNK_FRAMING = 32  # bytes that each chunk of a body may add
REQUEST_SECONDS = 10.0  # for a whole request to arrive
IDLE_SECONDS = 60.0
UNREAD_SECONDS = 10.0  # for the client to read any of what waits for it
_OFFERS = (b"upgrade", b"connection", b"http2-settings")


def _too_many_connections() -> bytes:
    answer = refused(Refusal("busy", "there are too many connections: ask again shortly"))
    headers = {"content-type": "application/json", "connection": "close", "content-length": str(len(answer.body))}
    lines = [f"{name}: {value}\r\n".encode() for name, value in (headers | answer.headers).items()]
    return b"".join([STATUS_LINE[answer.status_code], *lines, b"\r\n", answer.body])


_REFUSAL = _too_many_connections()


class _Oversized(Exception):
    """Stops the parser in the middle of what has arrived."""


class Connection(HttpToolsProtocol):
    """A connection of the service; `protocol` makes the class for one server."""

    registry: Connections
    rooms: tuple[Room, ...] = ()
    state = State.ARRIVING
    began: float | None = None  # when the request began that is arriving
    idle_since, turn, noted = 0.0, 0, 0
    unread, unread_since = 0, 0.0  # bytes that the client has not read, and since when they became no fewer
    waiting_fields = 0  # headers of requests that wait behind another one
    overhead = 0  # bytes since the request began that are no body
    after_headers = admitted = False
    answering: RequestResponseCycle | None = None
    offer = b""  # the request that offers another protocol, without the offer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refuse the connection if there are too many."""
        super().connection_made(transport)
        self.began = self.registry.now
        self.admitted = self.registry.admit(self, self.client[0] if self.client else "")
        if not self.admitted:
            transport.write(_REFUSAL)
            transport.write_eof()
            self.registry.linger(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Make room for another."""
        self.registry.leave(self)
        if self.answering is not None:
            self.answering.disconnected = True  # uvicorn tells only the request that came last
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, and end a connection that sends too much of what is no body."""
        if not self.admitted:
            return
        self.overhead += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            self._feed_without_offer(data[stopped.args[0] :])
        except httptools.HttpParserError:
            self._refuse_invalid()
            return
        if self.overhead > HEAD_LIMIT:
            self.registry.end(self, "oversized")

    def _feed_without_offer(self, rest: bytes) -> None:
        """The parser stops after headers that offer another protocol: give it the same request without the offer."""
        while self.offer:
            data, self.offer = self.offer + rest, b""
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as stopped:
                rest = data[stopped.args[0] :]
            except httptools.HttpParserError:
                self._refuse_invalid()

    def _refuse_invalid(self) -> None:
        if not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received.")

    def on_message_begin(self) -> None:
        """A request begins."""
        self.began = self.registry.now
        self.overhead = 0  # of one piece of data, a few hundred kilobytes at most, is not counted
        self.after_headers = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, drop a trailer."""
        if self.after_headers:
            return
        if len(self.headers) + self.waiting_fields >= FIELDS:
            self._refuse_more()
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin to answer, or wait until earlier requests are answered."""
        self.after_headers = True
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self.offer = self._without_offer()
            return
        if len(self.pipeline) >= PIPELINED:
            self._refuse_more()
        super().on_headers_complete()
        if self.pipeline:
            self.waiting_fields += len(self.headers)
        else:
            self.answering = self.cycle
        if self.registry.stopping:
            self.cycle.keep_alive = False

    def on_chunk_header(self) -> None:
        """A chunk of the body begins."""
        self.overhead = max(0, self.overhead - CHUNK_FRAMING)

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self.overhead -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request has arrived."""
        if self.offer:
            return  # it comes again
        self.began = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Answer the next request that waits, and read no more while any does."""
        following = self.pipeline[-1][0] if self.pipeline else None
        super().on_response_complete()
        if following is not None:
            self.answering = following
            self.waiting_fields -= len(list(following.scope["headers"]))
        self._unset_keepalive_if_required()  # any byte would cancel it; `overdue` knows better
        if self.pipeline:
            self.flow.pause_reading()
        self.idle_since, self.turn = self.registry.now, next(self.registry.turns)

    def overdue(self, now: float) -> str | None:
        """Why the connection must be closed now: the name of its counter."""
        if self._is_unread(now):
            return "closed_unread"
        state = self.waits_for()
        if state is State.BUSY:
            self.idle_since = now
        if self.began is not None and (state is State.BUSY or self.flow.read_paused):
            self.began = now  # a request behind another one, or one that the service does not go on reading
        if self.began is not None and now - self.began > REQUEST_SECONDS:
            return "closed_slow"
        return "closed_idle" if state is State.IDLE and now - self.idle_since > IDLE_SECONDS else None

    def _is_unread(self, now: float) -> bool:
        size = self.transport.get_write_buffer_size()
        if not 0 < self.unread <= size:  # nothing waited before, or the client has read some of it
            self.unread_since = now
        self.unread = size
        return size > 0 and now - self.unread_since > UNREAD_SECONDS

    def waits_for(self) -> State:
        """What the connection waits for now; an idle one stays idle whatever line ends it sends."""
        unanswered = self.cycle is not None and not self.cycle.response_complete
        if self.transport.get_write_buffer_size() or self.pipeline or (unanswered and not self.cycle.more_body):
            return State.BUSY
        return State.IDLE if self.began is None else State.ARRIVING

    def _without_offer(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s\r\n" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s\r\n" % field for field in self.headers if field[0] not in _OFFERS]
        return b"".join([*lines, b"connection: close\r\n\r\n"])

    def _refuse_more(self) -> None:
        self.registry.end(self, "oversized")
        raise _Oversized


def protocol(connections: Connections) -> type[Any]:
    """The class of one server's connections."""
    return type("ServiceConnection", (Connection,), {"registry": connections})
