"""HTTP: checks who asks and what, calls the endpoint, and says no in words that name the argument.

Nothing that goes wrong inside is told to a client: it is logged, and the answer is a plain 500.
"""

import asyncio
import contextlib
import functools
import json
import logging
import operator
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, Union

from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Router
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from sketchbandits.service.bandits.requests import Refusal, internal
from sketchbandits.service.bandits.writer import RETRY_SECONDS
from sketchbandits.service.http import metrics
from sketchbandits.service.http.endpoints import ENDPOINTS, Endpoint
from sketchbandits.service.http.openapi import document
from sketchbandits.service.http.schemas import FIELDS, NoQuery
from sketchbandits.service.keys import ADMIN, CLIENT
from sketchbandits.service.service import Service

DASHBOARD = Path(__file__).parents[1] / "dashboard"
_SMALL, _LARGE = 4_096, 100_000
_CODES = {404: "not_found", 405: "method_not_allowed"}
_SAFETY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_JSON_HEADERS = [(name.encode(), value.encode()) for name, value in _SAFETY.items()]
_JSON_HEADERS.append((b"content-type", b"application/json"))
_PAGE_SAFETY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}

logger = logging.getLogger("sketchbandits.service")
Answer = Union["_Json", Response]
Call = Callable[[Request], Awaitable[Answer]]


def make_app(service: Service) -> ASGIApp:
    """The ASGI application of a service; starting and stopping it is the caller's."""
    calls: dict[str, dict[str, Call]] = {}
    for endpoint in ENDPOINTS:
        calls.setdefault(endpoint.path, {})[endpoint.method] = _call(service, endpoint)
    calls["/metrics"] = {"GET": _metrics(service)}
    calls["/openapi.json"] = {"GET": _constant(_Json(200, document()))}
    calls["/"] = {"GET": _page}
    paths = {path: _Path(service, path, by) for path, by in calls.items()}
    others = Router([Mount("/dashboard", _Files(directory=DASHBOARD))], default=_not_found, redirect_slashes=False)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await paths.get(scope.get("path", ""), others)(scope, receive, send)  # our paths have no parameters

    return app


class _Path:
    """All methods of a path: every answer is counted and timed, and none is a stack trace."""

    def __init__(self, service: Service, path: str, calls: dict[str, Call]) -> None:
        self.service, self.path = service, path
        self.calls = calls | ({"HEAD": calls["GET"]} if "GET" in calls else {})
        self.latency = service.latency.setdefault(path, metrics.Histogram())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started, method = time.perf_counter(), scope["method"]
        response = await self._answer(Request(scope, receive), self.calls.get(method))
        await response(scope, receive, send)
        self.service.answers[method if method in self.calls else "other", self.path, response.status_code] += 1
        self.latency.add(time.perf_counter() - started)

    async def _answer(self, request: Request, call: Call | None) -> Answer:
        try:
            return _method_refused(self.calls) if call is None else await call(request)
        except Refusal as refusal:
            return _refused(refusal)
        except ClientDisconnect:
            return _refused(Refusal(400, "gone", "the request ended too early"))
        except Exception:
            logger.exception("%s %s failed", request.method, self.path)
            return _refused(internal())


def _call(service: Service, endpoint: Endpoint) -> Call:
    body_type: TypeAdapter[Any] | None = None
    if endpoint.bodies:
        body_type = TypeAdapter(_first_that_fits(endpoint.bodies))

    settings = service.settings
    limit = settings.admin_body_limit if endpoint.role == ADMIN else settings.body_limit

    async def call(request: Request) -> Answer:
        if endpoint.role is not None:
            _authorise(service, request, endpoint.role)
        query = _query(request, endpoint.query)
        body = None if body_type is None else await _parsed_body(body_type, await _body(request, limit))
        return _Json(*await endpoint.handler(service, query, body))

    return call


def _first_that_fits(bodies: tuple[type[BaseModel], ...]) -> Any:
    """A body of one of these kinds; where there are several, the first that fits."""
    if len(bodies) == 1:
        return bodies[0]
    return Annotated[functools.reduce(operator.or_, bodies), Field(union_mode="left_to_right")]


def _header(request: Request, name: bytes) -> str:
    """A header's value; for one name this is faster than Starlette's mapping."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return ""


def _authorise(service: Service, request: Request, needed: str) -> None:
    if service.open:
        _check_host(service.settings.hosts, request)
        return
    scheme, _, key = _header(request, b"authorization").partition(" ")
    role = service.keys.role_of(key.strip() if scheme.lower() == "bearer" else None)
    if role is None:
        raise Refusal(401, "unauthorised", "the header must be 'Authorization: Bearer KEY' with a key that is valid")
    if not service.allows(role, needed):
        raise Refusal(403, "forbidden", f"the key's role must be {needed}, got {role}")


def _check_host(hosts: tuple[str, ...] | None, request: Request) -> None:
    """Without keys, a page from elsewhere must not reach the service under a name of its own."""
    if hosts is None:
        return
    host = _header(request, b"host")
    name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdecimal() else host
    if name not in hosts:
        raise Refusal(400, "bad_host", f"the header Host must be one of {', '.join(hosts)}")


def _query(request: Request, model: type[BaseModel]) -> Any:
    if not request.scope["query_string"] and model is NoQuery:
        return None
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in values and name != "id":
            raise Refusal(400, "bad_query", f"{name[:50]} must be given once")
        values[name] = [*values.get(name, []), value] if name == "id" else value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        entries = error.errors(include_url=False, include_context=False)
        first = next((entry for entry in entries if entry["type"] == "extra_forbidden"), entries[0])
        unknown = first["type"] == "extra_forbidden"
        raise Refusal(400 if unknown else 422, "bad_query", _sentence(first)) from None


async def _body(request: Request, limit: int) -> bytes:
    if _header(request, b"content-type").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "not_json", "the header Content-Type must be application/json")
    if (length := _header(request, b"content-length")).isdecimal() and int(length) > limit:
        raise Refusal(413, "too_large", f"the body must be at most {limit} bytes")
    chunks, size, more = [], 0, True
    while more:  # one that takes too long is ended by the server
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size, more = size + len(chunks[-1]), message.get("more_body", False)
        if size > limit:
            raise Refusal(413, "too_large", f"the body must be at most {limit} bytes")
    return b"".join(chunks)


async def _parsed_body(body_type: TypeAdapter[Any], body: bytes) -> Any:
    """A large body is taken apart beside the loop, which goes on serving others in between."""
    if len(body) > _LARGE:
        return await asyncio.to_thread(_parsed, body_type, body)
    return _parsed(body_type, body)


def _parsed(body_type: TypeAdapter[Any], body: bytes) -> Any:
    if len(body) > _SMALL:
        with contextlib.suppress(ValueError, RecursionError):  # for pydantic to put into words
            json.loads(body, object_pairs_hook=_few)
    try:
        return body_type.validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        broken = first["type"] == "json_invalid"
        raise Refusal(400 if broken else 422, "bad_json" if broken else "bad_value", _sentence(first)) from None


def _few(pairs: list[tuple[str, Any]]) -> None:
    """Refuse at once what would otherwise be refused field by field, in seconds."""
    if len(pairs) > FIELDS:
        raise Refusal(422, "bad_value", f"the body must have at most {FIELDS} fields in an object, got {len(pairs)}")


def _sentence(entry: Any) -> str:
    """Where it is, what is allowed, what was given."""
    place = ".".join(str(part) for part in entry["loc"] if not str(part)[:1].isupper()) or "the body"
    given = repr(entry["input"])
    shown = given if len(given) <= 80 else f"{given[:77]}..."
    wrong = entry["msg"].removeprefix("Value error, ")
    return f"{place}: {wrong[:1].lower()}{wrong[1:]}, got {shown}"


class _Json:
    """An answer; leaner than Starlette's, for headers that never change."""

    def __init__(self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.status_code, self.headers = status, headers or {}
        self.body = to_json(value)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        more = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        headers = [*_JSON_HEADERS, (b"content-length", str(len(self.body)).encode()), *more]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self.body})


def _refused(refusal: Refusal) -> _Json:
    headers = {}
    if refusal.status == 503:
        headers["retry-after"] = str(RETRY_SECONDS)
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return _Json(refusal.status, {"error": {"code": refusal.code, "message": refusal.message}}, headers)


def _method_refused(calls: dict[str, Call]) -> Answer:
    allowed = ", ".join(sorted(calls))
    response = _refused(Refusal(405, "method_not_allowed", f"the method must be one of {allowed}"))
    response.headers["allow"] = allowed
    return response


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http":
        await _refused(Refusal(404, "not_found", "there is nothing at this path"))(scope, receive, send)


def _metrics(service: Service) -> Call:
    async def show(request: Request) -> Response:
        _authorise(service, request, CLIENT)
        return Response(metrics.exposition(service), 200, _SAFETY, "text/plain; version=1.0.0")

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
            await _refused(Refusal(error.status_code, code, str(error.detail)))(scope, receive, send)
