"""Every endpoint: what it takes, what it answers, who may call it. `api` serves this table, `openapi` describes it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel

from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.requests import (
    AddArms,
    Answer,
    CreateBandit,
    Decide,
    DeleteBandit,
    FreeArms,
    Refusal,
    RemoveArms,
    Retract,
    Reward,
)
from sketchbandits.service.http import answers, schemas, views
from sketchbandits.service.http.tables import table_of
from sketchbandits.service.http.traffic import Traffic
from sketchbandits.service.keys import ADMIN, CLIENT, Key, allowed
from sketchbandits.service.service import Service

Result = tuple[int, dict[str, Any]]
Caller = Key | None  # whose key a request came with; none where no key is needed
Handler = Callable[["Context", Caller, Any, Any], Awaitable[Result]]
Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Context:
    """What an endpoint works with."""

    service: Service
    traffic: Traffic


@dataclass(frozen=True)
class Endpoint:
    """A method of a path; ``bodies`` are the alternatives for its body, ``role`` is None where no key is needed."""

    method: str
    path: str
    name: str
    handler: Handler
    answers: dict[int, type[BaseModel]]
    summary: str
    role: str | None = CLIENT
    query: type[BaseModel] = schemas.NoQuery
    bodies: tuple[type[BaseModel], ...] = ()
    refusals: tuple[int, ...] = ()


async def decide(context: Context, caller: Caller, query: Any, body: schemas.DecisionRequest) -> Result:
    """Choose arms."""
    available = None if body.available is None else tuple(body.available)
    request = Decide(body.bandit, available, body.key, body.count, by=_id(caller))
    return 200, await _answered(context.service, request)


async def reward(
    context: Context, caller: Caller, query: Any, body: schemas.SingleReward | schemas.ManyRewards
) -> Result:
    """Record rewards."""
    single = isinstance(body, schemas.SingleReward)
    items = (body,) if isinstance(body, schemas.SingleReward) else body.rewards
    pairs = tuple((item.decision_id, float(item.reward)) for item in items)
    answer = await _answered(context.service, Reward(body.bandit, pairs, by=_id(caller)))
    status = (
        {"unknown": 404, "conflict": 409, "retracted": 409}.get(answer["results"][0]["status"], 200) if single else 200
    )
    return status, answer


async def retract(context: Context, caller: Caller, query: Any, body: schemas.RetractionRequest) -> Result:
    """Take rewards back."""
    request = Retract(body.bandit, tuple(body.decision_ids), by=_id(caller))
    return 200, {"bandit": body.bandit} | await _answered(context.service, request)


async def list_arms(context: Context, caller: Caller, query: schemas.ArmsQuery, body: None) -> Result:
    """A page of arms."""
    writer = context.service.owner()
    picture = await writer.pictures.of(context.service.ledger.bandit(query.bandit))
    return 200, await writer.pictures.call(partial(views.arms_page, query.bandit, picture, query))


async def add_arms(context: Context, caller: Caller, query: Any, body: schemas.ArmsRequest) -> Result:
    """Add arms."""
    ids, features = table_of(body.arms)
    answer = await _answered(context.service, AddArms(body.bandit, ids, features, by=_id(caller)))
    return 201, {"bandit": body.bandit} | answer


async def remove_arms(context: Context, caller: Caller, query: schemas.RemovalQuery, body: None) -> Result:
    """Remove arms."""
    answer = await _answered(context.service, RemoveArms(query.bandit, tuple(query.id), by=_id(caller)))
    return 200, {"bandit": query.bandit} | answer


async def free_arms(context: Context, caller: Caller, query: schemas.NamedQuery, body: None) -> Result:
    """Give back the memory of removed arms."""
    answer = await _answered(context.service, FreeArms(query.bandit, by=_id(caller)))
    return 200, {"bandit": query.bandit} | answer


async def list_bandits(context: Context, caller: Caller, query: Any, body: None) -> Result:
    """All bandits."""
    context.service.owner()
    bandits = [bandit for bandit in list(context.service.ledger.bandits.values()) if allowed(caller, bandit.name)]
    return 200, {"bandits": [views.bandit_entry(bandit) for bandit in bandits]}


async def create_bandit(context: Context, caller: Caller, query: Any, body: schemas.BanditRequest) -> Result:
    """Create a bandit."""
    ids, features = table_of(body.arms)
    rules = body.model_dump(exclude={"name", "arms"})
    rules["reward_range"] = None if body.reward_range is None else tuple(body.reward_range)
    try:
        config = BanditConfig(**rules)
    except ValueError as error:
        raise Refusal("bad_value", str(error)) from None
    await _answered(context.service, CreateBandit(body.name, config, ids, features, by=_id(caller)))
    return 201, views.bandit_entry(context.service.ledger.bandit(body.name))


async def delete_bandit(context: Context, caller: Caller, query: schemas.NamedQuery, body: None) -> Result:
    """Delete a bandit."""
    await _answered(context.service, DeleteBandit(query.bandit, by=_id(caller)))
    return 200, {"deleted": query.bandit}


async def show_policy(context: Context, caller: Caller, query: schemas.PolicyQuery, body: None) -> Result:
    """A policy's settings, memory and clusters."""
    writer, bandit = context.service.owner(), context.service.ledger.bandit(query.bandit)
    picture = await writer.pictures.of(bandit)
    return 200, await writer.pictures.call(partial(views.policy_view, bandit, picture, query.limit))


async def show_activity(context: Context, caller: Caller, query: schemas.BanditQuery, body: None) -> Result:
    """The last day of a bandit, and how the service is doing."""
    writer = context.service.owner()
    minutes = views.minutes(context.service.ledger.bandit(query.bandit))
    log = {
        "records": writer.log.last.seq,
        "snapshot": writer.snapshot.seq,
        "cut": len(writer.log.cuts),
        "scrubbed": context.service.scrubbed,
        "damaged": context.service.damaged,
        "refusing": None if writer.committer.refusing is None else "the log cannot be written; stderr says why",
    }
    queue = {"waiting": writer.waiting, "limit": writer.limit}
    return 200, {
        "bandit": query.bandit,
        "minutes": minutes,
        "latency": context.traffic.decision_latency(),
        "queue": queue,
        "log": log,
    }


async def health(context: Context, caller: Caller, query: Any, body: None) -> Result:
    """The process lives."""
    return 200, {"status": "ok"}


async def readiness(context: Context, caller: Caller, query: Any, body: None) -> Result:
    """Decisions are served."""
    writer = context.service.owner()
    if writer.committer.refusing is not None:
        raise Refusal("storage", "the log cannot be written now: decisions and rewards are refused until it can")
    return 200, {"status": "ready"}


def _id(caller: Caller) -> str | None:
    return None if caller is None else caller.id


async def _answered(service: Service, request: Any) -> dict[str, Any]:
    """What the writer answers, or a refusal if that takes too long; a timer costs less than `asyncio.timeout`."""
    future = service.owner().submit(request)
    short = isinstance(request, Decide | Reward)
    seconds = service.settings.answer_seconds if short else service.settings.operation_seconds
    timer = asyncio.get_running_loop().call_later(seconds, _give_up, future)
    try:
        answer = await future
    finally:
        timer.cancel()
    if isinstance(answer, Refusal):
        raise answer
    return answer


def _give_up(future: "asyncio.Future[Answer]") -> None:
    if not future.done():
        message = "no answer in time; whether it was done is not known: ask again with the same key"
        future.set_result(Refusal("timeout", message))


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/decisions",
        "decide",
        decide,
        {200: answers.DecisionAnswer},
        "Ask which arm to play. Depending on the bandit, outstanding decisions are passed to its policy, so that a "
        "burst is spread over arms.",
        bodies=(schemas.DecisionRequest,),
        refusals=(404, 409),
    ),
    Endpoint(
        "POST",
        "/v1/rewards",
        "reward",
        reward,
        {200: answers.RewardAnswer, 404: answers.RewardAnswer, 409: answers.RewardAnswer},
        "Record rewards, at any time and in any order; repeating one changes nothing. A single reward is answered "
        "with 404 if its decision is unknown and with 409 if another value is recorded or it was retracted. A reward "
        "outside the bandit's range refuses the whole request.",
        bodies=(schemas.SingleReward, schemas.ManyRewards),
        refusals=(404,),
    ),
    Endpoint(
        "POST",
        "/v1/retractions",
        "retract",
        retract,
        {200: answers.RetractionAnswer},
        "Take rewards back that were recorded by mistake: the policy is built anew as if it had never learned them. "
        "Their decisions stay without a reward.",
        role=ADMIN,
        bodies=(schemas.RetractionRequest,),
        refusals=(404,),
    ),
    Endpoint(
        "GET",
        "/v1/arms",
        "list_arms",
        list_arms,
        {200: answers.ArmsAnswer},
        "Arms with pulls, means and bounds.",
        query=schemas.ArmsQuery,
        refusals=(404,),
    ),
    Endpoint(
        "POST",
        "/v1/arms",
        "add_arms",
        add_arms,
        {201: answers.ArmsAdded},
        "Add arms; nothing that was learnt is lost.",
        role=ADMIN,
        bodies=(schemas.ArmsRequest,),
        refusals=(404, 409),
    ),
    Endpoint(
        "DELETE",
        "/v1/arms",
        "remove_arms",
        remove_arms,
        {200: answers.ArmsRemoved},
        "Never play these arms again; their outstanding rewards may still come.",
        role=ADMIN,
        query=schemas.RemovalQuery,
        refusals=(404,),
    ),
    Endpoint(
        "DELETE",
        "/v1/arms/removed",
        "free_arms",
        free_arms,
        {200: answers.ArmsFreed},
        "Give back the memory of removed arms whose decisions are all rewarded; what they taught stays.",
        role=ADMIN,
        query=schemas.NamedQuery,
        refusals=(404,),
    ),
    Endpoint(
        "GET", "/v1/bandits", "list_bandits", list_bandits, {200: answers.BanditsAnswer}, "All bandits in numbers."
    ),
    Endpoint(
        "POST",
        "/v1/bandits",
        "create_bandit",
        create_bandit,
        {201: answers.BanditEntry},
        "Create a bandit with its arms.",
        role=ADMIN,
        bodies=(schemas.BanditRequest,),
        refusals=(409,),
    ),
    Endpoint(
        "DELETE",
        "/v1/bandits",
        "delete_bandit",
        delete_bandit,
        {200: answers.BanditDeleted},
        "Delete a bandit. The log keeps what happened; the name may be used again.",
        role=ADMIN,
        query=schemas.NamedQuery,
        refusals=(404,),
    ),
    Endpoint(
        "GET",
        "/v1/policy",
        "show_policy",
        show_policy,
        {200: answers.PolicyAnswer},
        "A policy's settings, memory, and clusters with their sentinels.",
        query=schemas.PolicyQuery,
        refusals=(404,),
    ),
    Endpoint(
        "GET",
        "/v1/activity",
        "show_activity",
        show_activity,
        {200: answers.ActivityAnswer},
        "Decisions and rewards of the last day by minutes; latency, queue and log.",
        query=schemas.BanditQuery,
        refusals=(404,),
    ),
    Endpoint("GET", "/healthz", "health", health, {200: answers.StatusAnswer}, "The process lives.", role=None),
    Endpoint("GET", "/readyz", "readiness", readiness, {200: answers.StatusAnswer}, "Decisions are served.", role=None),
)
