"""A stand-in for the decision service: canned answers that a test may change, and a record of what was asked."""

import json
import socket
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

DASHBOARD = Path(str(find_spec("sketchbandits").origin)).parent / "service" / "dashboard"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# As the service sends it; the last directive also forbids to parse a string as markup.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
NOW = 1_750_000_000 // 60 * 60  # 15 June 2025, 17:06 in Berlin


def bandit(name: str = "default", **changed: Any) -> dict[str, Any]:
    """An entry of ``GET /v1/bandits``."""
    entry = {
        "name": name,
        "policy": "multiscale",
        "arms": 3,
        "dimension": 16,
        "decisions": 1_234_567,
        "rewards": 1_200_000,
        "outstanding": 34_567,
        "defaults": 12_000,
        "retracted": 0,
        "mean_reward": 0.31416,
        "reward_range": [0.0, 1.0],
        "memory_bytes": 1_234_000,
        "assumptions": {"noise": 0.5, "noise_seen": 0.48, "theta_norm": 1.0, "violated": []},
        "created": NOW - 86_400,
    }
    return entry | changed


def arm(arm_id: str, **changed: Any) -> dict[str, Any]:
    """An entry of ``GET /v1/arms``."""
    numbers = {"pulls": 1_000, "mean": 0.25, "estimate": 0.375, "bound": 0.5}
    return {"id": arm_id, **numbers, "active": True, "pending": 0} | changed


def minute(ago: int, decisions: int = 60, rewards: int = 50, reward_sum: float = 25.0) -> dict[str, Any]:
    """An entry of the activity, ``ago`` minutes before `NOW`."""
    time = NOW - 60 * ago
    return {"time": time, "decisions": decisions, "rewards": rewards, "reward_sum": reward_sum, "defaults": 0}


class FakeService:
    """Listens on loopback; attributes are the state and may be set at any time."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.bandits = [bandit()]
        first = arm("first", bound=None, estimate=0.9, mean=None, pulls=0)
        self.arms = {"default": [first, arm("second", estimate=0.5, bound=0.75), arm("third")]}
        self.minutes = [minute(ago) for ago in range(30, 0, -1)]
        self.latency = {"count": 2_000, "p50_ms": 0.42, "p99_ms": 12.34, "p999_ms": 1_250.0}
        self.queue = {"waiting": 3, "limit": 1_024}
        self.log: dict[str, Any] = {"records": 2_468_135, "snapshot": 2_400_000, "cut": 0}
        self.log |= {"scrubbed": 1_234_567, "damaged": 0, "refusing": None}
        self.settings: dict[str, Any] = {"sketch_size": 5, "ridge": 1.0, "radius": "paper"}
        self.clusters: dict[str, Any] | None = {
            "total": 1,
            "shown": [
                {"cluster": 7, "arms": 3, "rank": 2, "pulls": 5_000, "sentinel": {"arm": "second", "bound": 0.75}},
            ],
        }
        self.status, self.code, self.retry_after = 200, "refused", ""
        self.limited = 0  # how many of the next requests are above the key's limit
        self.slow = threading.Event()  # set: answers come immediately
        self.slow.set()
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.port = 0
        self._server: _Server | None = None

    @property
    def url(self) -> str:
        """Where the dashboard is."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Listen; after a stop, on the same port."""
        service = self

        class Handler(_Handler):
            fake = service

        self._server = _Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def stop(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.hang_up()
            self._server.server_close()
            self._server = None

    def answer(self, path: str, query: dict[str, str]) -> Any:
        """The JSON of a GET under /v1, none where there is no such path."""
        name = query.get("bandit", "default")
        if path == "/v1/bandits":
            return {"bandits": self.bandits}
        if path == "/v1/arms":
            return {"bandit": name} | self._page(self.arms[name], query)
        if path == "/v1/policy":
            kind = {"bandit": name, "policy": "multiscale", "settings": self.settings, "arms": 3, "dimension": 16}
            return kind | {"rewards": 1, "memory_bytes": 1_234_000, "clusters": self.clusters}
        if path == "/v1/activity":
            counts = {"latency": self.latency, "queue": self.queue, "log": self.log}
            return {"bandit": name, "minutes": self.minutes} | counts
        return None

    def _page(self, arms: list[dict[str, Any]], query: dict[str, str]) -> dict[str, Any]:
        found = [each for each in arms if query.get("search", "") in each["id"]]
        sort, offset, limit = query.get("sort", "bound"), int(query.get("offset", 0)), int(query.get("limit", 100))
        if sort == "id":
            found.sort(key=lambda each: each["id"])
        else:
            found.sort(key=lambda each: float("inf") if each[sort] is None else each[sort], reverse=True)
        return {"total": len(found), "arms": found[offset : offset + limit]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.open: set[socket.socket] = set()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection for as long as the browser keeps it."""
        self.open.add(request)
        try:
            super().finish_request(request, client_address)
        except ConnectionError:
            pass  # the browser went away, or `hang_up` did
        finally:
            self.open.discard(request)

    def hang_up(self) -> None:
        """End the connections that are kept."""
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    fake: FakeService

    def do_GET(self) -> None:
        """Answer from the state, or with a file of the dashboard."""
        url = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        if url.path.startswith("/v1/"):
            self.fake.asked.append((url.path, query))
            self.fake.slow.wait(30)
            self._json(url.path, query)
        elif url.path == "/healthz":
            self._send(200, b'{"status": "ok"}', "application/json")
        else:
            name = "index.html" if url.path == "/" else url.path.removeprefix("/dashboard/")
            known = {path.name: path for path in DASHBOARD.iterdir()}
            self._send(200, known[name].read_bytes(), TYPES[known[name].suffix]) if name in known else self._refuse(404)

    def _json(self, path: str, query: dict[str, str]) -> None:
        if self.fake.key is not None and self.headers["Authorization"] != f"Bearer {self.fake.key}":
            self._refuse(401)
        elif self.fake.limited > 0:
            self.fake.limited -= 1
            self._refuse(429)
        elif self.fake.status != 200:
            self._refuse(self.fake.status)
        elif (answer := self.fake.answer(path, query)) is None:
            self._refuse(404)
        else:
            self._send(200, json.dumps(answer).encode(), "application/json")

    def _refuse(self, status: int) -> None:
        body = {"error": {"code": self.fake.code, "message": "as the test wants it"}}
        self._send(status, json.dumps(body).encode(), "application/json")

    def _send(self, status: int, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", POLICY)
        if status != 200 and self.fake.retry_after:
            self.send_header("Retry-After", self.fake.retry_after)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
