"""The service from Python: ``Client``, and ``AsyncClient`` with the same methods to await.

A call is repeated where that is safe and may help: no connection, no answer in time, 429, 502, 503, 504; with the pause
that the service asks for, else with exponential backoff and full jitter. Decisions carry an idempotency key, so a lost
answer never makes a second decision; rewards and retractions are idempotent by themselves. What the service refuses
(other 4xx) is never sent again, and changes of arms and bandits only where the first was certainly not carried out.
"""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

try:
    import httpx
except ImportError:
    raise ImportError("sketchbandits.client needs httpx: pip install 'sketchbandits[service]'") from None

from sketchbandits import validate
from sketchbandits.client import calls
from sketchbandits.client.attempts import Outcome, Send, exchange
from sketchbandits.client.calls import Arm, Bandit, Call, Decision, Page
from sketchbandits.client.errors import (
    BadAnswer,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    ServiceError,
    Unanswered,
    Unauthorized,
    Unavailable,
    UnknownDecision,
)

__all__ = [
    "Arm",
    "AsyncClient",
    "BadAnswer",
    "Bandit",
    "Client",
    "Conflict",
    "Decision",
    "Forbidden",
    "InvalidRequest",
    "NotFound",
    "ServiceError",
    "Unanswered",
    "Unauthorized",
    "Unavailable",
    "UnknownDecision",
]

P = ParamSpec("P")
T = TypeVar("T")


class _Settings:
    """The settings of both clients."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:8000",
        key: str | None = None,
        bandit: str = "default",
        timeout: float = 10.0,
        attempts: int = 5,
    ) -> None:
        """``timeout`` in seconds, of one attempt; ``attempts`` at most, the first included.

        Changes of arms and bandits, and retractions, may take as long as the service allows them: ten minutes.
        """
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"url must begin with http:// or https://, got {url!r}")
        self.url, self.bandit = url, bandit
        self.timeout = validate.positive("timeout", timeout)
        self.attempts = validate.whole("attempts", attempts)
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._open({"base_url": url, "headers": headers, "timeout": self.timeout})

    def _open(self, settings: dict[str, Any]) -> None:
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r}, bandit={self.bandit!r})"  # the key stays out of logs


def _sent(describe: Callable[Concatenate[str, P], Call[T]]) -> "Callable[Concatenate[Client, P], T]":
    """The method of `Client` that sends what ``describe`` describes."""

    @functools.wraps(describe)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._send(describe(self.bandit, *args, **kwargs))

    return method


def _awaited(describe: Callable[Concatenate[str, P], Call[T]]) -> "Callable[Concatenate[AsyncClient, P], Awaitable[T]]":
    """The same for `AsyncClient`."""

    @functools.wraps(describe)
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._send(describe(self.bandit, *args, **kwargs))

    return method


def _pages(describe: Callable[Concatenate[str, P], Call[Page]]) -> "Callable[Concatenate[Client, P], Iterator[Arm]]":
    """A method that goes on to the next page."""

    @functools.wraps(describe)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[Arm]:
        following: Call[Page] | None = describe(self.bandit, *args, **kwargs)
        while following is not None:
            page = self._send(following)
            yield from page.arms
            following = page.following

    return method


def _awaited_pages(
    describe: Callable[Concatenate[str, P], Call[Page]],
) -> "Callable[Concatenate[AsyncClient, P], AsyncIterator[Arm]]":
    """The same for `AsyncClient`."""

    @functools.wraps(describe)
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Arm]:
        following: Call[Page] | None = describe(self.bandit, *args, **kwargs)
        while following is not None:
            page = await self._send(following)
            for arm in page.arms:
                yield arm
            following = page.following

    return method


class Client(_Settings):
    """The service, one call at a time; threads may share it. A context manager, or `close` it."""

    decide = _sent(calls.decide)
    decide_many = _sent(calls.decide_many)
    reward = _sent(calls.reward)
    reward_many = _sent(calls.reward_many)
    retract = _sent(calls.retract)
    arms = _pages(calls.arms)
    add_arms = _sent(calls.add_arms)
    remove_arms = _sent(calls.remove_arms)
    free_arms = _sent(calls.free_arms)
    bandits = _sent(calls.bandits)
    create_bandit = _sent(calls.create_bandit)
    delete_bandit = _sent(calls.delete_bandit)
    policy = _sent(calls.policy)
    activity = _sent(calls.activity)
    ready = _sent(calls.ready)

    def _open(self, settings: dict[str, Any]) -> None:
        self._http = httpx.Client(**settings)

    def _send(self, call: Call[T]) -> T:
        steps, outcome = exchange(call, self.attempts, self.timeout), cast(Outcome | None, None)
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Send):
                    outcome = self._answer(step.request)
                else:
                    time.sleep(step.seconds)
        except StopIteration as done:
            return cast(T, done.value)

    def _answer(self, request: dict[str, Any]) -> Outcome:
        try:
            return self._http.request(**request)
        except httpx.RequestError as error:
            return error

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class AsyncClient(_Settings):
    """The service for asyncio: the methods of `Client`, to await; ``arms`` is for ``async for``."""

    decide = _awaited(calls.decide)
    decide_many = _awaited(calls.decide_many)
    reward = _awaited(calls.reward)
    reward_many = _awaited(calls.reward_many)
    retract = _awaited(calls.retract)
    arms = _awaited_pages(calls.arms)
    add_arms = _awaited(calls.add_arms)
    remove_arms = _awaited(calls.remove_arms)
    free_arms = _awaited(calls.free_arms)
    bandits = _awaited(calls.bandits)
    create_bandit = _awaited(calls.create_bandit)
    delete_bandit = _awaited(calls.delete_bandit)
    policy = _awaited(calls.policy)
    activity = _awaited(calls.activity)
    ready = _awaited(calls.ready)

    def _open(self, settings: dict[str, Any]) -> None:
        self._http = httpx.AsyncClient(**settings)

    async def _send(self, call: Call[T]) -> T:
        steps, outcome = exchange(call, self.attempts, self.timeout), cast(Outcome | None, None)
        try:
            while True:
                step = steps.send(outcome)
                if isinstance(step, Send):
                    outcome = await self._answer(step.request)
                else:
                    await asyncio.sleep(step.seconds)
        except StopIteration as done:
            return cast(T, done.value)

    async def _answer(self, request: dict[str, Any]) -> Outcome:
        try:
            return await self._http.request(**request)
        except httpx.RequestError as error:
            return error

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()
