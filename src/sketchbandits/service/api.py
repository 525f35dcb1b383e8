"""HTTP: checks who asks and what, calls the endpoint, and says no in words that name the argument.

Nothing that goes wrong inside is told to a client: it is logged, and the answer is a plain 500.
"""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sketchbandits.service import metrics
from sketchbandits.service.endpoints import ENDPOINTS, Endpoint
from sketchbandits.service.keys import CLIENT
from sketchbandits.service.ledger import Refusal
from sketchbandits.service.openapi import document
from sketchbandits.service.schemas import NoQuery
from sketchbandits.service.service import Service
from sketchbandits.service.writer import RETRY_SECONDS

DASHBOARD = Path(__file__).with_name("dashboard")
_CODES = {404: "not_found", 405: "method_not_allowed"}
_SAFETY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
_PAGE_SAFETY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}

logger = logging.getLogger("sketchbandits.service")
Call = Callable[[Request], Awaitable[Response]]


def make_app(service: Service) -> Starlette:
    """The ASGI application of a service; starting and stopping it is the caller's."""
    calls: dict[str, dict[str, Call]] = {}
    for endpoint in ENDPOINTS:
        calls.setdefault(endpoint.path, {})[endpoint.method] = _call(service, endpoint)
    calls["/metrics"] = {"GET": _metrics(service)}
    described = _json(200, document())
    calls["/openapi.json"] = {"GET": _constant(described)}
    routes: list[Any] = [Route(path, _guarded(service, path, by), methods=list(by)) for path, by in calls.items()]
    routes.append(Route("/", _page))
    routes.append(Mount("/dashboard", _Files(directory=DASHBOARD)))
    return Starlette(routes=routes, exception_handlers={HTTPException: _refused_by_starlette})


def _guarded(service: Service, path: str, calls: dict[str, Call]) -> Call:
    """Every answer of a path: counted, timed, and never a stack trace."""
    histogram = service.latency.setdefault(path, metrics.Histogram())

    async def serve(request: Request) -> Response:
        started, method = time.perf_counter(), request.method
        try:
            _check_host(service, request)
            response = await calls["GET" if method == "HEAD" else method](request)
        except Refusal as refusal:
            response = _refused(refusal)
        except ClientDisconnect:
            response = _refused(Refusal(400, "gone", "the request ended too early"))
        except Exception:
            logger.exception("%s %s failed", method, path)
            response = _refused(Refusal(500, "internal", "something went wrong here; it is in the service's log"))
        service.answers[method, path, response.status_code] += 1
        histogram.add(time.perf_counter() - started)
        return response

    return serve


def _call(service: Service, endpoint: Endpoint) -> Call:
    body_type: TypeAdapter[Any] | None = None
    if endpoint.bodies:
        union: Any = endpoint.bodies[0]
        for other in endpoint.bodies[1:]:
            union = union | other
        body_type = TypeAdapter(union)

    async def call(request: Request) -> Response:
        if endpoint.role is not None:
            _authorise(service, request, endpoint.role)
        query = _query(request, endpoint.query)
        body = None if body_type is None else _parsed(body_type, await _body(service, request))
        try:
            async with asyncio.timeout(service.settings.answer_seconds):
                status, answer = await endpoint.handler(service, query, body)
        except TimeoutError:
            message = "no answer in time; whether it was done is not known: ask again with the same key"
            raise Refusal(503, "timeout", message) from None
        return _json(status, answer)

    return call


def _authorise(service: Service, request: Request, needed: str) -> None:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    role = service.role_of(key.strip() if scheme.lower() == "bearer" else None)
    if role is None:
        raise Refusal(401, "unauthorised", "the header must be 'Authorization: Bearer KEY' with a key that is valid")
    if not service.allows(role, needed):
        raise Refusal(403, "forbidden", f"the key's role must be {needed}, got {role}")


def _check_host(service: Service, request: Request) -> None:
    """Without keys, a page from elsewhere must not reach the service under a name of its own."""
    if (hosts := service.settings.hosts) is None:
        return
    host = request.headers.get("host", "")
    name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdecimal() else host
    if name not in hosts:
        raise Refusal(400, "bad_host", f"the header Host must be one of {', '.join(hosts)}")


def _query(request: Request, model: type[BaseModel]) -> Any:
    raw = request.url.query if model is not NoQuery else request.scope["query_string"]
    if not raw and not model.model_fields.get("id"):
        return model.model_construct() if model is NoQuery else model()
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in values and name != "id":
            raise Refusal(400, "bad_query", f"{name[:50]} must be given once")
        values[name] = [*values.get(name, []), value] if name == "id" else value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        unknown = any(entry["type"] == "extra_forbidden" for entry in error.errors())
        raise Refusal(400 if unknown else 422, "bad_query", _sentence(error)) from None


async def _body(service: Service, request: Request) -> bytes:
    limit = service.settings.body_limit
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refusal(415, "not_json", "the header Content-Type must be application/json")
    if int(length if (length := request.headers.get("content-length", "0")).isdecimal() else 0) > limit:
        raise Refusal(413, "too_large", f"the body must be at most {limit} bytes")
    body = b""
    try:
        async with asyncio.timeout(service.settings.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Refusal(413, "too_large", f"the body must be at most {limit} bytes")
    except TimeoutError:
        raise Refusal(400, "too_slow", "the body must arrive in time") from None
    return body


def _parsed(body_type: TypeAdapter[Any], body: bytes) -> Any:
    try:
        return body_type.validate_json(body)
    except ValidationError as error:
        broken = any(entry["type"] == "json_invalid" for entry in error.errors())
        raise Refusal(400 if broken else 422, "bad_json" if broken else "bad_value", _sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    """The first thing wrong: where, what is allowed, what was given."""
    entry = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in entry["loc"] if not str(part)[:1].isupper()) or "the body"
    given = repr(entry["input"])
    shown = given if len(given) <= 80 else f"{given[:77]}..."
    return f"{place}: {entry['msg'][:1].lower()}{entry['msg'][1:]}, got {shown}"


def _json(status: int, value: dict[str, Any], headers: dict[str, str] = _SAFETY) -> Response:
    body = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return Response(body, status, headers, "application/json")


def _refused(refusal: Refusal) -> Response:
    headers = dict(_SAFETY)
    if refusal.status == 503:
        headers["retry-after"] = str(RETRY_SECONDS)
    if refusal.status == 401:
        headers["www-authenticate"] = "Bearer"
    return _json(refusal.status, {"error": {"code": refusal.code, "message": refusal.message}}, headers)


async def _refused_by_starlette(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    response = _refused(Refusal(error.status_code, _CODES.get(error.status_code, "refused"), str(error.detail)))
    response.headers.update(error.headers or {})
    return response


def _metrics(service: Service) -> Call:
    async def show(request: Request) -> Response:
        _authorise(service, request, CLIENT)
        return Response(metrics.exposition(service), 200, _SAFETY, "text/plain; version=1.0.0")

    return show


def _constant(response: Response) -> Call:
    async def show(request: Request) -> Response:
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
