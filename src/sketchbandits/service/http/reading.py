"""What a request says: whose key it has, its query and its body, each checked before the service sees it."""

import asyncio
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect, Request

from sketchbandits.service.http.bodies import BodyType, sentence
from sketchbandits.service.http.large_bodies import LargeBodies
from sketchbandits.service.http.responses import HttpRefusal
from sketchbandits.service.http.schemas import NoQuery
from sketchbandits.service.keys import Key
from sketchbandits.service.service import Service

KEY_ID, BANDIT = "sketchbandits.key", "sketchbandits.bandit"  # in a request's scope, for the access log
_LARGE = 100_000  # bytes of a body
# What proxies add: whoever runs one lets requests in from elsewhere, which look as if they came from this machine.
_FORWARDED = frozenset({b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"forwarded", b"x-real-ip"})


def _header(request: Request, name: bytes) -> str:
    """A header's value; for one name this is faster than Starlette's mapping."""
    for key, value in request.scope["headers"]:
        if key == name:
            return str(value, "latin-1")
    return ""


def authorise(service: Service, request: Request, needed: str) -> Key | None:
    """The key of a request, None while none is needed; a key that does not suffice or a foreign host is refused."""
    if service.open:
        _check_host(service.settings.hosts, request)
        _refuse_forwarded(request)
        return None
    scheme, _, text = _header(request, b"authorization").partition(" ")
    key = service.keys.find(text.strip() if scheme.lower() == "bearer" else None)
    if key is None:
        raise HttpRefusal(
            401, "unauthorised", "the header must be 'Authorization: Bearer KEY' with a key that is valid"
        )
    request.scope[KEY_ID] = key.id
    if not service.allows(key.role, needed):
        raise HttpRefusal(403, "forbidden", f"the key's role must be {needed}, got {key.role}")
    return key


def _check_host(hosts: tuple[str, ...] | None, request: Request) -> None:
    """Without keys, a page from another site must not reach the service through a host name of its own."""
    if hosts is None:
        return
    host = _header(request, b"host")
    name = host.rsplit(":", 1)[0] if host.rpartition(":")[2].isdecimal() else host
    if name not in hosts:
        raise HttpRefusal(400, "bad_host", f"the header Host must be one of {', '.join(hosts)}")


def _refuse_forwarded(request: Request) -> None:
    """Without keys, a request from another machine must not reach the service through a proxy on this one."""
    for name, _ in request.scope["headers"]:
        if name in _FORWARDED:
            raise HttpRefusal(
                400,
                "forwarded",
                f"the header {name.decode()} comes from a proxy, and a service behind a proxy needs keys: make one "
                "with `sketchbandits keys create NAME --role admin`",
            )


def read_query(request: Request, model: type[BaseModel]) -> Any:
    """The parameters of the query; only ``id`` may be repeated."""
    if not request.scope["query_string"] and model is NoQuery:
        return None
    values: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name in values and name != "id":
            raise HttpRefusal(400, "bad_query", f"{name[:50]} must be given once")
        values[name] = [*values.get(name, []), value] if name == "id" else value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        entries = error.errors(include_url=False, include_context=False)
        first = next((entry for entry in entries if entry["type"] == "extra_forbidden"), entries[0])
        unknown = first["type"] == "extra_forbidden"
        raise HttpRefusal(400 if unknown else 422, "bad_query", sentence(first)) from None


async def read_body(request: Request, limit: int) -> bytes:
    """The bytes of a JSON body, at most ``limit``."""
    if _header(request, b"content-type").partition(";")[0].strip().lower() != "application/json":
        raise HttpRefusal(415, "not_json", "the header Content-Type must be application/json")
    if (length := _header(request, b"content-length")).isdecimal() and int(length) > limit:
        raise HttpRefusal(413, "too_large", f"the body must be at most {limit} bytes")
    chunks, size, more = [], 0, True
    while more:  # the server closes a connection that takes too long
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size, more = size + len(chunks[-1]), message.get("more_body", False)
        if size > limit:
            raise HttpRefusal(413, "too_large", f"the body must be at most {limit} bytes")
    return b"".join(chunks)


async def parse_body(body_type: BodyType, body: bytes, large: LargeBodies) -> Any:
    """A large body is parsed in a thread, a very large one in another process: the event loop goes on serving."""
    if large.takes(body_type.kinds, body):
        return await large.parse(body_type.kinds[0], body)
    if len(body) > _LARGE:
        return await asyncio.to_thread(body_type.parse, body)
    return body_type.parse(body)
