"""Answers as JSON, and the HTTP status of every refusal."""

from typing import Any

from pydantic_core import to_json
from starlette.types import Receive, Scope, Send

from sketchbandits.service.bandits.lane import RETRY_SECONDS
from sketchbandits.service.bandits.requests import Refusal

SAFETY = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}
# The status of what the service itself refuses; what only HTTP refuses is an `HttpRefusal`.
STATUSES = {
    "unknown_arm": 404,
    "unknown_bandit": 404,
    "exists": 409,
    "key_reused": 409,
    "bad_value": 422,
    "internal": 500,
    "damaged": 500,
    "busy": 503,
    "failed": 503,
    "not_ready": 503,
    "stopping": 503,
    "storage": 503,
    "timeout": 503,
}
_HEADERS = [(name.encode(), value.encode()) for name, value in SAFETY.items()]
_HEADERS.append((b"content-type", b"application/json"))


class HttpRefusal(Refusal):
    """A request that is refused before the service sees it; ``retry_after``: in seconds, where it may be sent again."""

    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(code, message)
        self.status, self.retry_after = status, retry_after


class JsonResponse:
    """An answer; it takes less time than Starlette's, since most headers never change."""

    def __init__(self, status: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        self.status_code, self.headers = status, headers or {}
        self.body = to_json(value)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer, without its body to HEAD."""
        more = [(name.encode(), value.encode("latin-1")) for name, value in self.headers.items()]
        headers = [*_HEADERS, (b"content-length", str(len(self.body)).encode()), *more]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self.body})


def refused(refusal: Refusal) -> JsonResponse:
    """The answer to a request that is refused."""
    if isinstance(refusal, HttpRefusal):
        status, pause = refusal.status, refusal.retry_after
    else:
        status, pause = STATUSES[refusal.code], None
    headers = {}
    if status == 503 or pause is not None:
        headers["retry-after"] = str(RETRY_SECONDS if pause is None else pause)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JsonResponse(status, {"error": {"code": refusal.code, "message": refusal.message}}, headers)
