"""The ASGI application: it reads a request, calls the endpoint, and counts and times the answer.

A refusal names the argument. What goes wrong inside is logged and not shown to a client: the answer is a plain 500.
"""

import functools
import logging
import operator
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from sketchbandits.service.bandits.requests import Refusal, internal
from sketchbandits.service.http.endpoints import ENDPOINTS, Context, Endpoint
from sketchbandits.service.http.metrics import exposition
from sketchbandits.service.http.openapi import document
from sketchbandits.service.http.reading import authorise, parse_body, read_body, read_query
from sketchbandits.service.http.responses import SAFETY, HttpRefusal, JsonResponse, refused
from sketchbandits.service.http.traffic import Histogram, Traffic
from sketchbandits.service.keys import ADMIN, CLIENT
from sketchbandits.service.service import Service

DASHBOARD = Path(__file__).parents[1] / "dashboard"
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


def make_app(service: Service) -> ASGIApp:
    """The ASGI application of a service, which the caller starts and stops."""
    context = Context(service, Traffic())
    calls: dict[str, dict[str, Call]] = {}
    for endpoint in ENDPOINTS:
        calls.setdefault(endpoint.path, {})[endpoint.method] = _call(context, endpoint)
    calls["/metrics"] = {"GET": _metrics(context)}
    calls["/openapi.json"] = {"GET": _constant(JsonResponse(200, document()))}
    calls["/"] = {"GET": _page}
    paths = {path: _Path(context.traffic, path, by_method) for path, by_method in calls.items()}
    others = Router([Mount("/dashboard", _Files(directory=DASHBOARD))], default=_not_found, redirect_slashes=False)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await paths.get(scope.get("path", ""), others)(scope, receive, send)  # our paths have no parameters

    return app


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


def _call(context: Context, endpoint: Endpoint) -> Call:
    body_type: TypeAdapter[Any] | None = None
    if endpoint.bodies:
        body_type = TypeAdapter(_first_that_fits(endpoint.bodies))

    settings = context.service.settings
    limit = settings.admin_body_limit if endpoint.role == ADMIN else settings.body_limit

    async def call(request: Request) -> Answer:
        caller = None if endpoint.role is None else authorise(context.service, request, endpoint.role)
        query = read_query(request, endpoint.query)
        body = None if body_type is None else await parse_body(body_type, await read_body(request, limit))
        return JsonResponse(*await endpoint.handler(context, caller, query, body))

    return call


def _first_that_fits(bodies: tuple[type[BaseModel], ...]) -> Any:
    """A body of one of these kinds; where there are several, the first that fits."""
    if len(bodies) == 1:
        return bodies[0]
    return Annotated[functools.reduce(operator.or_, bodies), Field(union_mode="left_to_right")]


def _method_refused(calls: dict[str, Call]) -> Answer:
    allowed = ", ".join(sorted(calls))
    response = refused(HttpRefusal(405, "method_not_allowed", f"the method must be one of {allowed}"))
    response.headers["allow"] = allowed
    return response


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await refused(HttpRefusal(404, "not_found", "there is nothing at this path"))(scope, receive, send)


def _metrics(context: Context) -> Call:
    async def show(request: Request) -> Response:
        authorise(context.service, request, CLIENT)
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
