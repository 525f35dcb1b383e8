"""The ASGI application: it reads a request, calls the endpoint, counts and times the answer, and logs the access.

A refusal names the argument. What goes wrong inside is logged and not shown to a client: the answer is a plain 500.
"""

import logging
import operator
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from sketchbandits.service.bandits.requests import Refusal, internal
from sketchbandits.service.http.access import AccessLog
from sketchbandits.service.http.bodies import BodyType
from sketchbandits.service.http.endpoints import ENDPOINTS, Context, Endpoint
from sketchbandits.service.http.large_bodies import LargeBodies
from sketchbandits.service.http.limits import Gate
from sketchbandits.service.http.metrics import exposition
from sketchbandits.service.http.openapi import document
from sketchbandits.service.http.reading import BANDIT, parse_body, read_body, read_query
from sketchbandits.service.http.responses import SAFETY, HttpRefusal, JsonResponse, refused
from sketchbandits.service.http.traffic import Histogram, Traffic
from sketchbandits.service.keys import ADMIN, CLIENT, Key, allowed
from sketchbandits.service.service import Service

DASHBOARD = Path(__file__).parents[1] / "dashboard"
_FILTERED = frozenset({"list_bandits"})  # endpoints of no bandit that show a key only the bandits it may use
_CODES = {404: "not_found", 405: "method_not_allowed"}
_PAGE_SAFETY = SAFETY | {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "cache-control": "no-cache",
}

logger = logging.getLogger("sketchbandits.service")
Answer = JsonResponse | Response
Call = Callable[[Request], Awaitable[Answer]]


def make_app(service: Service) -> "App":
    """The ASGI application of a service; the caller starts and stops the service and closes the application."""
    context, gate, large = Context(service, Traffic()), Gate(service), LargeBodies()
    calls: dict[str, dict[str, Call]] = {}
    for endpoint in ENDPOINTS:
        calls.setdefault(endpoint.path, {})[endpoint.method] = _call(context, gate, large, endpoint)
    calls["/metrics"] = {"GET": _metrics(context, gate)}
    calls["/openapi.json"] = {"GET": _constant(JsonResponse(200, document()))}
    calls["/"] = {"GET": _page}
    path = service.settings.access_log
    return App(context.traffic, gate, large, calls, None if path is None else AccessLog(path))


class App:
    """The application: an ASGI callable."""

    def __init__(
        self,
        traffic: Traffic,
        gate: Gate,
        large: LargeBodies,
        calls: dict[str, dict[str, Call]],
        access: AccessLog | None,
    ) -> None:
        self.gate, self.large, self.access = gate, large, access
        self.paths = {path: _Path(traffic, path, by_method) for path, by_method in calls.items()}
        self.others = Router(
            [Mount("/dashboard", _Files(directory=DASHBOARD))], default=_not_found, redirect_slashes=False
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        path = self.paths.get(scope.get("path", ""), self.others)  # our paths have no parameters
        if self.access is None or scope["type"] != "http":
            await path(scope, receive, send)
        else:
            await self.access.watched(path, scope, receive, send)

    def close(self) -> None:
        """Write what the logs still hold, after the last answer."""
        self.large.stop()
        self.gate.failures.report()
        if self.access is not None:
            self.access.close()


class _Path:
    """All methods of a path: every answer is counted and timed, and none is a stack trace."""

    def __init__(self, traffic: Traffic, path: str, calls: dict[str, Call]) -> None:
        self.traffic, self.path = traffic, path
        self.calls = calls | ({"HEAD": calls["GET"]} if "GET" in calls else {})
        self.latency = traffic.latency.setdefault(path, Histogram())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, method = time.perf_counter(), scope["method"]
        response = await self._answer(Request(scope, receive), self.calls.get(method))
        await response(scope, receive, send)
        self.traffic.answers[method if method in self.calls else "other", self.path, response.status_code] += 1
        self.latency.add(time.perf_counter() - started)

    async def _answer(self, request: Request, call: Call | None) -> Answer:
        try:
            return _method_refused(self.calls) if call is None else await call(request)
        except Refusal as refusal:
            return refused(refusal)
        except ClientDisconnect:
            return refused(HttpRefusal(400, "gone", "the request ended too early"))
        except Exception:
            logger.exception("%s %s failed", request.method, self.path)
            return refused(internal())


def _call(context: Context, gate: Gate, large: LargeBodies, endpoint: Endpoint) -> Call:
    body_type = BodyType(endpoint.bodies) if endpoint.bodies else None
    bandit_of = _bandit_of(endpoint)
    settings = context.service.settings
    limit = settings.admin_body_limit if endpoint.role == ADMIN else settings.body_limit

    async def call(request: Request) -> Answer:
        caller = None if endpoint.role is None else gate.admit(request, endpoint.role)
        query = read_query(request, endpoint.query)
        body = None if body_type is None else await parse_body(body_type, await read_body(request, limit), large)
        request.scope[BANDIT] = bandit = bandit_of(query, body)
        if caller is None or caller.bandits is None:
            return JsonResponse(*await endpoint.handler(context, caller, query, body))
        if endpoint.name not in _FILTERED:
            _check_bandit(caller, bandit)
        try:
            return JsonResponse(*await endpoint.handler(context, caller, query, body))
        except Refusal as refusal:
            raise _about_own_bandits(refusal, bandit) from None

    return call


def _bandit_of(endpoint: Endpoint) -> Callable[[Any, Any], str | None]:
    """Finds the bandit that a request names in its body or query: ``bandit``, or ``name`` where one is created."""
    of_body = _reader(endpoint.bodies[0]) if endpoint.bodies else None
    of_query = _reader(endpoint.query)
    if of_body is not None:
        return lambda query, body: of_body(body)
    if of_query is not None:
        return lambda query, body: of_query(query)
    return lambda query, body: None


def _reader(model: type[BaseModel]) -> Callable[[Any], str] | None:
    field = next((name for name in ("bandit", "name") if name in model.model_fields), None)
    return None if field is None else operator.attrgetter(field)


def _check_bandit(caller: Key, bandit: str | None) -> None:
    """A key for some bandits is refused others, and what belongs to no bandit."""
    if bandit is None or not allowed(caller, bandit):
        names = ", ".join(map(repr, caller.bandits or ()))
        given = "a request that is about all bandits" if bandit is None else repr(bandit)
        raise HttpRefusal(403, "forbidden", f"bandit must be one that the key may use, {names}; got {given}")


def _about_own_bandits(refusal: Refusal, bandit: str | None) -> Refusal:
    """The refusal, without the names of the other bandits there are."""
    if refusal.code != "unknown_bandit":
        return refusal
    return Refusal("unknown_bandit", f"bandit must be one that exists, got {bandit!r}")


def _method_refused(calls: dict[str, Call]) -> Answer:
    allowed = ", ".join(sorted(calls))
    response = refused(HttpRefusal(405, "method_not_allowed", f"the method must be one of {allowed}"))
    response.headers["allow"] = allowed
    return response


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await refused(HttpRefusal(404, "not_found", "there is nothing at this path"))(scope, receive, send)


def _metrics(context: Context, gate: Gate) -> Call:
    async def show(request: Request) -> Response:
        caller = gate.admit(request, CLIENT)
        if caller is not None and caller.bandits is not None:
            _check_bandit(caller, None)
        return Response(exposition(context.service, context.traffic), 200, SAFETY, "text/plain; version=1.0.0")

    return show


def _constant(response: Answer) -> Call:
    async def show(request: Request) -> Answer:
        return response

    return show


async def _page(request: Request) -> Response:
    return FileResponse(DASHBOARD / "index.html", headers=_PAGE_SAFETY)


class _Files(StaticFiles):
    """The dashboard's files."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_SAFETY)
        return response

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        except HTTPException as error:
            code = _CODES.get(error.status_code, "refused")
            await refused(HttpRefusal(error.status_code, code, str(error.detail)))(scope, receive, send)
