"""``sketchbandits serve``: it listens on a socket, starts the service, and stops both in order."""

import asyncio
import contextlib
import ipaddress
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sketchbandits.service.folder import KEYS
from sketchbandits.service.http.api import make_app
from sketchbandits.service.keys import KeyRing
from sketchbandits.service.log.progress import Progress
from sketchbandits.service.service import Service, Settings

HEAD_LIMIT = 1 << 18
REQUEST_SECONDS = 10.0  # for a whole request to arrive
SHUTDOWN_SECONDS = 30

logger = logging.getLogger("sketchbandits.service")


class Stopped(Exception):
    """Recovery was interrupted: nothing is lost, the next start recovers."""


class _Protocol(HttpToolsProtocol):
    """Remembers when a request began to arrive, so that `_sweep` can close one that takes too long.

    A connection whose headers exceed the limit is closed immediately: the parser itself has no limit.
    """

    began: float | None = None
    head = 0  # bytes of headers that are not complete
    in_body = False

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.began = self.loop.time()

    def on_message_begin(self) -> None:
        self.began, self.head, self.in_body = self.loop.time(), 0, False
        super().on_message_begin()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.in_body and self.began is not None:
            self.head += len(data)
            if self.head > HEAD_LIMIT:
                self.transport.close()

    def on_headers_complete(self) -> None:
        self.in_body = True
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self.began = None
        super().on_message_complete()


async def _sweep(server: uvicorn.Server) -> None:
    """Close connections whose request does not arrive in time; one loop costs less than a timer per request."""
    while True:
        await asyncio.sleep(REQUEST_SECONDS / 10)
        oldest = asyncio.get_running_loop().time() - REQUEST_SECONDS
        for connection in list(server.server_state.connections):
            if isinstance(connection, _Protocol) and connection.began is not None and connection.began < oldest:
                connection.transport.close()


class _Server(uvicorn.Server):
    """Installs no signal handlers: ours close the log after the last answer."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_host(host: str, state: Path) -> None:
    """Refuse an address that other machines can reach while no key is needed."""
    if not is_loopback(host) and not KeyRing(state / KEYS).in_use:
        raise ValueError(
            f"host must be a loopback address such as 127.0.0.1 while there are no keys, got {host!r}: "
            "make one with `sketchbandits keys create`"
        )


def listen(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 takes any that is free."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    return socket.create_server((host, port), family=family, backlog=2048)


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The host names that requests may use while no key is needed."""
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "[::1]", host)))


def serve(settings: Settings, bound: socket.socket, ready: Callable[[Service], None], progress: Progress) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted is finished. Raises what went wrong."""
    config = uvicorn.Config(
        app=lambda *args: None,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=60,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    before = os.umask(0o077)  # files are readable for their owner alone
    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(_serve(settings, config, bound, ready, progress))
    finally:
        os.umask(before)


async def _serve(
    settings: Settings,
    config: uvicorn.Config,
    bound: socket.socket,
    ready: Callable[[Service], None],
    progress: Progress,
) -> None:
    service = Service(settings)
    config.app = make_app(service)
    server = _Server(config)
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, _ask_to_stop, server)
    # HTTP first, so that health can be seen while a long log is replayed.
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    starting = asyncio.create_task(service.start(lambda done, total: _report(server, progress, done, total)))
    sweeping = asyncio.create_task(_sweep(server))
    try:
        await asyncio.wait([serving, starting], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not isinstance(starting.exception(), Stopped):
            await starting
            service.watch(lambda error: _ask_to_stop(server))
            ready(service)
    finally:
        server.should_exit = True if starting.done() and starting.exception() else server.should_exit
        await serving
        sweeping.cancel()
        with contextlib.suppress(Exception):
            await starting
        await service.stop()


def _report(server: uvicorn.Server, progress: Progress, done: int, total: int) -> None:
    """Report progress of recovery, and end it if the service was asked to stop."""
    if server.should_exit:
        raise Stopped
    progress(done, total)


def _ask_to_stop(server: uvicorn.Server) -> None:
    server.should_exit = True
