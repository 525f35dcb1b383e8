"""``sketchbandits serve``: it listens on a socket, starts the service, and stops both in order."""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from sketchbandits.service.folder import KEYS
from sketchbandits.service.http.api import make_app
from sketchbandits.service.http.connections import Connections, limits
from sketchbandits.service.http.protocol import protocol
from sketchbandits.service.keys import KeyRing
from sketchbandits.service.log.progress import Progress
from sketchbandits.service.service import Service, Settings, Stopped

SHUTDOWN_SECONDS = 30  # for what was accepted
REFUSING_SECONDS = 0.2  # after that, for clients to see 503 rather than a closed connection
SWITCH_SECONDS = 0.0002  # after which a thread that plans or builds lets the event loop have Python's global lock
ENDING_SECONDS = 2.0  # for the last answers to be read
SEND_BUFFER = 1 << 17  # bytes in the kernel for a client that does not read; the rest is in view of `Connections`

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

logger = logging.getLogger("sketchbandits.service")


class Server(uvicorn.Server):
    """uvicorn with our connections. It installs no signal handlers: ours close the log after the last answer."""

    def __init__(self, config: uvicorn.Config, connections: Connections) -> None:
        config.http = protocol(connections)
        super().__init__(config)
        self.connections, self.asked_to_stop = connections, asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def stop_when_asked(self, drain: Callable[[], Awaitable[None]]) -> None:
        """Go on listening while ``drain`` finishes what was accepted: requests that come now are told to come back."""
        await self.asked_to_stop.wait()
        self.connections.stopping = True
        try:
            await asyncio.wait_for(drain(), SHUTDOWN_SECONDS)
            await asyncio.sleep(REFUSING_SECONDS)
        except TimeoutError:
            logger.warning("not everything that was accepted is answered %d s after the stop", SHUTDOWN_SECONDS)
        finally:
            self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the sockets; whoever has not read an answer or sent a request soon is cut off."""
        ending = asyncio.get_running_loop().call_later(ENDING_SECONDS, self.connections.abort)
        await super().shutdown(sockets)
        ending.cancel()


def make_config(app: ASGIApp) -> uvicorn.Config:
    """How uvicorn serves an application: without a log of its own, without any header that names it."""
    return uvicorn.Config(
        app=app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2 * math.ceil(ENDING_SECONDS),
    )


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
    bound = socket.create_server((host, port), family=family, backlog=2048)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # of every connection too
    return bound


def allowed_hosts(host: str) -> tuple[str, ...]:
    """The host names that requests may use while no key is needed."""
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "[::1]", host)))


def serve(settings: Settings, bound: socket.socket, ready: Callable[[Service], None], progress: Progress) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted is finished. Raises what went wrong."""
    sys.setswitchinterval(SWITCH_SECONDS)
    before = os.umask(0o077)  # files are readable for their owner alone
    try:
        service = Service(settings)
        with contextlib.closing(make_app(service)) as app:
            server = Server(make_config(app), Connections(*limits(settings), service.connections))
            with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
                runner.run(_serve(service, server, bound, ready, progress))
    finally:
        os.umask(before)


async def _serve(
    service: Service, server: Server, bound: socket.socket, ready: Callable[[Service], None], progress: Progress
) -> None:
    with _stopped_by_signals(server):
        await _serve_until_asked(service, server, bound, ready, progress)


@contextlib.contextmanager
def _stopped_by_signals(server: Server) -> Iterator[None]:
    """SIGTERM and SIGINT ask the server to stop; afterwards they mean what they meant before."""
    loop, before = asyncio.get_running_loop(), {name: signal.getsignal(name) for name in _SIGNALS}
    for name in _SIGNALS:
        loop.add_signal_handler(name, server.asked_to_stop.set)
    try:
        yield
    finally:
        for name in _SIGNALS:
            loop.remove_signal_handler(name)
            signal.signal(name, before[name])


async def _serve_until_asked(
    service: Service, server: Server, bound: socket.socket, ready: Callable[[Service], None], progress: Progress
) -> None:
    # HTTP first, so that health can be seen while a long log is replayed.
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    starting = asyncio.create_task(service.start(lambda done, total: _report(server, progress, done, total)))
    others = [
        asyncio.create_task(server.connections.watch()),
        asyncio.create_task(server.stop_when_asked(service.drain)),
    ]
    try:
        await asyncio.wait([serving, starting], return_when=asyncio.FIRST_COMPLETED)
        if starting.done() and not isinstance(starting.exception(), Stopped):
            await starting
            service.watch(lambda error: server.asked_to_stop.set())
            _spare_the_collector()
            ready(service)
    finally:
        server.should_exit = True if starting.done() and starting.exception() else server.should_exit
        await serving
        for task in others:
            task.cancel()
        with contextlib.suppress(Exception):
            await starting
        await service.stop()


def _spare_the_collector() -> None:
    """Let the garbage collector leave alone what is there for good: looking at it all takes a tenth of a second."""
    gc.collect()
    gc.freeze()


def _report(server: Server, progress: Progress, done: int, total: int) -> None:
    """Report progress of recovery, and end it if the service was asked to stop."""
    if server.asked_to_stop.is_set():
        raise Stopped
    progress(done, total)
