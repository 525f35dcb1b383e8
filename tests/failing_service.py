"""A small service over real sockets that fails on demand, and clients of both kinds to ask it with."""

import asyncio
import inspect
import json
import threading
from contextlib import closing
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from sketchbandits.client import (
    AsyncClient,
    Client,
)

KEY = "sb_0123456789ab_secret"


class FakeService:
    """The contract in little. ``faults``: what befalls the next requests, in order; after them all goes well.

    "drop": carried out, then the connection is closed without an answer; "hang": carried out, and no answer in time;
    "html": carried out, answered by something that is not the service; a number: that status, not carried out;
    "timeout", "failed": 503 that does not say whether it was carried out.
    """

    def __init__(self):
        self.faults, self.requests = [], []
        self.decided, self.rewards = {}, {}
        self.arms = {f"a{i}": [float(i)] for i in range(2_300)}
        self.names = ["default"]
        self.removed, self.retracted = [], set()
        self.released = threading.Event()

    def answer(self, method, path, query, body):
        handler = getattr(self, f"{method.lower()}_{path.strip('/').replace('/', '_')}", None)
        if handler is None:
            return 404, error("not_found", f"there is no {path}")
        return handler(body if body is not None else query)

    def post_v1_decisions(self, body):
        if body["bandit"] not in self.names:
            return 404, error("unknown_bandit", "bandit must be one of 'default'")
        asked = (body.get("available"), body["count"])
        first = len(self.decided) * 1_000
        known, asked_before = self.decided.setdefault(body["key"], (first, asked))
        if asked_before != asked:
            return 409, error("key_reused", "key must be new for another request")
        arm = (body.get("available") or ["a7"])[0]
        entries = [
            {"decision_id": f"{known + i}-00ff00ff", "arm": arm, "bound": None, "probability": 1.0, "new": "field"}
            for i in range(body["count"])
        ]
        return 200, {"bandit": body["bandit"], "decisions": entries, "repeated": known != first}

    def status_of(self, entry):
        number = int(entry["decision_id"].partition("-")[0])
        if not any(first <= number < first + asked[1] for first, asked in self.decided.values()):
            return "unknown"
        if entry["decision_id"] not in self.rewards:
            self.rewards[entry["decision_id"]] = entry["reward"]
            return "accepted"
        if entry["decision_id"] in self.retracted:
            return "retracted"
        return "known" if self.rewards[entry["decision_id"]] == entry["reward"] else "conflict"

    def post_v1_rewards(self, body):
        if body["bandit"] not in self.names:
            return 404, error("unknown_bandit", "bandit must be one of 'default'")
        entries = body.get("rewards", [body])
        results = [{"decision_id": one["decision_id"], "status": self.status_of(one)} for one in entries]
        statuses = {"unknown": 404, "conflict": 409, "retracted": 409}
        status = statuses.get(results[0]["status"], 200) if "rewards" not in body else 200
        return status, {"results": results}

    def post_v1_retractions(self, body):
        results = []
        for decision_id in body["decision_ids"]:
            status = "known" if decision_id in self.retracted else "retracted"
            if decision_id not in self.rewards:
                status = "waiting" if decision_id.endswith("-00ff00ff") else "unknown"
            else:
                self.retracted.add(decision_id)
            results.append({"decision_id": decision_id, "status": status})
        return 200, {"bandit": body["bandit"], "results": results}

    def get_v1_arms(self, query):
        found = [name for name in self.arms if query.get("search", [""])[0] in name]
        start, limit = int(query["offset"][0]), int(query["limit"][0])
        numbers = {"pulls": 0, "mean": None, "bound": None, "active": True, "pending": 0}
        return 200, {"total": len(found), "arms": [{"id": name} | numbers for name in found[start : start + limit]]}

    def post_v1_arms(self, body):
        if any(arm["id"] in self.arms for arm in body["arms"]):
            return 409, error("exists", "arms must have new ids")
        self.arms |= {arm["id"]: arm["features"] for arm in body["arms"]}
        return 201, {"bandit": body["bandit"], "added": len(body["arms"]), "total": len(self.arms)}

    def delete_v1_arms(self, query):
        for name in query["id"]:
            del self.arms[name]
        self.removed += query["id"]
        return 200, {"removed": len(query["id"]), "active": len(self.arms)}

    def delete_v1_arms_removed(self, query):
        freed, self.removed = len(self.removed), []
        return 200, {"bandit": query["bandit"][0], "freed": freed, "memory_bytes": 8_000}

    def delete_v1_bandits(self, query):
        name = query["bandit"][0]
        if name not in self.names:
            return 404, error("unknown_bandit", f"bandit must be one of 'default'; got {name!r}")
        self.names.remove(name)
        return 200, {"deleted": name}

    def get_v1_bandits(self, query):
        return 200, {"bandits": [self.entry(name) for name in self.names]}

    def post_v1_bandits(self, body):
        if body["name"] in self.names:
            return 409, error("exists", "name must be new")
        self.names.append(body["name"])
        self.arms |= {arm["id"]: arm["features"] for arm in body["arms"]}
        added = {"retracted": 0, "reward_range": body.get("reward_range", [0.0, 1.0]), "memory_bytes": 8_000}
        return 201, self.entry(body["name"]) | added

    def entry(self, name):
        """As version 0.1.0 answers."""
        counts = dict.fromkeys(["arms", "dimension", "decisions", "rewards", "outstanding", "defaults"], 3)
        return {"name": name, "policy": "oful", **counts, "mean_reward": None, "created": 1.5}

    def get_v1_policy(self, query):
        return 200, {"bandit": query["bandit"][0], "policy": "oful", "clusters": None, "limit": query["limit"][0]}

    def get_v1_activity(self, query):
        return 200, {"bandit": query["bandit"][0], "minutes": []}

    def get_readyz(self, query):
        return 200, {"status": "ready"}


def error(code, message):
    return {"error": {"code": code, "message": message}}


REFUSALS = {401: "unauthorised", 403: "forbidden", 422: "bad_value", 429: "limited", 500: "internal", 503: "busy"}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle_any(self):
        service, parts = self.server.service, urlsplit(self.path)
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = json.loads(raw) if raw else None
        service.requests.append((self.command, self.path, body, self.headers.get("Authorization")))
        fault = service.faults.pop(0) if service.faults else None
        if isinstance(fault, int):
            self.reply(fault, json.dumps(error(REFUSALS[fault], "No.")).encode() if fault in REFUSALS else b"<html>")
            return
        if fault in ("timeout", "failed"):
            self.reply(503, json.dumps(error(fault, "Nobody knows.")).encode())
            return
        status, answer = service.answer(self.command, parts.path, parse_qs(parts.query), body)
        if fault == "drop":
            self.close_connection = True
            return
        if fault == "hang":
            service.released.wait(30)
            self.close_connection = True
            return
        self.reply(status, b"<html>hello" if fault == "html" else json.dumps(answer).encode())

    def reply(self, status, raw):
        self.send_response(status)
        if status in (429, 503):
            self.send_header("Retry-After", "0")
        if status == 302:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    do_GET = do_POST = do_DELETE = handle_any

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        pass  # a client that gave up


CERTIFICATES = httpx.create_ssl_context()  # read once: no test needs them, and every client reads them


@pytest.fixture
def service(monkeypatch):
    for kind in ("Client", "AsyncClient"):
        monkeypatch.setattr(httpx, kind, partial(getattr(httpx, kind), verify=CERTIFICATES))
    monkeypatch.setattr("sketchbandits.client.attempts.FIRST_PAUSE", 0.001)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.service = FakeService()
        server.service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.service
        server.service.released.set()
        server.shutdown()
        thread.join()


class Synchronous:
    """Calls of a `Client`; one client for each group of settings."""

    kind = Client

    def __init__(self, url):
        self.url, self.clients = url, {}

    def __call__(self, method, *args, settings=(), **kwargs):
        if settings not in self.clients:
            self.clients[settings] = self.kind(self.url, KEY, **dict(settings))
        return self.outcome(getattr(self.clients[settings], method)(*args, **kwargs))

    def outcome(self, found):
        return list(found) if inspect.isgenerator(found) else found

    def close(self):
        for client in self.clients.values():
            self.outcome(client.close())


class Asynchronous(Synchronous):
    """The same calls of an `AsyncClient`, in a loop of its own."""

    kind = AsyncClient

    def __init__(self, url):
        super().__init__(url)
        self.runner = asyncio.Runner()

    def outcome(self, found):
        async def listed():
            return [arm async for arm in found]

        return self.runner.run(listed() if inspect.isasyncgen(found) else found)

    def close(self):
        super().close()
        self.runner.close()


@pytest.fixture(params=[Synchronous, Asynchronous], ids=["sync", "async"])
def ask(request, service):
    with closing(request.param(service.url)) as asking:
        yield asking
