"""From a call to its result: what is sent, when it is sent again, what an answer means. It neither sends nor sleeps.

`exchange` is a generator: it hands out requests and pauses, is handed answers, and returns the result. The two clients
drive it, one with ``await``.
"""

import random
from collections.abc import Generator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypeVar

import httpx

from sketchbandits.client.calls import Call, Repeat
from sketchbandits.client.errors import BY_STATUS, BadAnswer, ServiceError, Unanswered, Unavailable

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0  # seconds, without word from the service
LONGEST_WAIT = 60.0  # seconds that the service may ask for; after that the caller decides
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_LIMITED = 429  # more requests than the key allows: nothing was done
_BUSY = frozenset({_LIMITED, 502, 503, 504})
# With these words the service says that it has done nothing. A proxy's 502 or 504, or a 503 of another kind, does not.
_NOTHING_DONE = frozenset({"busy", "not_ready", "stopping", "storage"})


class Send(NamedTuple):
    """Send this, and hand in the response or the error."""

    request: dict[str, Any]


class Pause(NamedTuple):
    """Wait so many seconds."""

    seconds: float


Outcome = httpx.Response | httpx.RequestError
Exchange = Generator[Send | Pause, Outcome | None, T]


def exchange(call: Call[T], attempts: int, timeout: float) -> Exchange[T]:
    """At most ``attempts`` times; what is refused (4xx other than 429) is never sent again."""
    request: dict[str, Any] = {"method": call.method, "url": call.path, "params": dict(call.query), "json": call.body}
    if call.patience > timeout:
        request["timeout"] = httpx.Timeout(timeout, read=call.patience)
    attempt = 0
    while True:
        outcome = yield Send(request)
        assert outcome is not None
        pause = _pause(outcome, attempt)
        attempt += 1
        if attempt == attempts or pause > LONGEST_WAIT or not _repeatable(call, outcome):
            return _result(call, outcome)
        yield Pause(pause)


def _repeatable(call: Call[T], outcome: Outcome) -> bool:
    if call.repeat is Repeat.ALWAYS:
        return isinstance(outcome, httpx.RequestError) or outcome.status_code in _BUSY
    return call.repeat is Repeat.UNPROCESSED and _not_done(outcome)


def _not_done(outcome: Outcome) -> bool:
    """Whether it is certain that the request was not carried out, and may be later."""
    if isinstance(outcome, httpx.RequestError):
        return isinstance(outcome, _NOT_SENT)
    if outcome.status_code == _LIMITED:
        return True
    return outcome.status_code == 503 and _described(_body(outcome)).get("code") in _NOTHING_DONE


def _pause(outcome: Outcome, attempt: int) -> float:
    """What the service asks for, and on top full jitter, so that clients refused together do not return together."""
    asked = _retry_after(outcome) if isinstance(outcome, httpx.Response) else None
    return (asked or 0.0) + random.uniform(0.0, min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**attempt))


def _retry_after(response: httpx.Response) -> float | None:
    """Seconds, or a date, as HTTP allows both."""
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def _result(call: Call[T], outcome: Outcome) -> T:
    if isinstance(outcome, httpx.RequestError):
        if call.silence:
            return call.silence[0]
        lost = call.repeat is Repeat.UNPROCESSED and not _not_done(outcome)
        reason = str(outcome) or type(outcome).__name__
        kind, code = (Unanswered, "unanswered") if lost else (Unavailable, "unreachable")
        raise kind(None, code, f"no answer to {call.method} {call.path}: {reason}") from outcome
    status = outcome.status_code
    if 200 <= status < 300 or status in call.understood:
        return _parsed(call, outcome)
    raise _error(call, outcome)


def _parsed(call: Call[T], response: httpx.Response) -> T:
    body = _body(response)
    try:
        return call.parse(response.status_code, body)
    except (ValueError, KeyError, TypeError, IndexError):
        if not response.is_success and _described(body):
            raise _error(call, response) from None
        message = f"{call.method} {call.path} was answered with what cannot be read: {response.text[:80]!r}"
        raise BadAnswer(response.status_code, "bad_answer", message) from None


def _body(response: httpx.Response) -> Any:
    """The JSON of an answer, none where it is something else."""
    try:
        return response.json()
    except ValueError:
        return None


def _described(body: Any) -> dict[str, str]:
    """The error that the service describes; a proxy in between describes none."""
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) and {"code", "message"} <= error.keys() else {}


def _error(call: Call[T], response: httpx.Response) -> ServiceError:
    status, described = response.status_code, _described(_body(response))
    plain = f"{call.method} {call.path} was answered with {status} {response.reason_phrase}".strip()
    kind = BadAnswer if 300 <= status < 400 else BY_STATUS.get(status, ServiceError)
    if call.repeat is Repeat.UNPROCESSED and status in _BUSY and not _not_done(response):
        kind = Unanswered
    message = str(described.get("message", plain)).rstrip(".")
    return kind(status, str(described.get("code", "error")), message, retry_after=_retry_after(response))
