"""Every call of the service, described once: the request it makes, and what its answer means. Nothing is sent here.

Each function takes the client's own bandit first; `Client` and `AsyncClient` turn it into a method.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.client.errors import Conflict, UnknownDecision

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Entry = TypeVar("Entry", bound="DataclassInstance")
Json = dict[str, Any]
PAGE = 1_000  # arms in one answer
REWARD_RANGE = (0.0, 1.0)  # of a new bandit
OPERATION_SECONDS = 630.0  # for changes: the service may have to compile and build a policy, and gives that 600 s


@dataclass(frozen=True, slots=True)
class Decision:
    """An arm to play. ``bound``: its upper confidence bound, none where infinite. ``probability``: of this choice."""

    decision_id: str
    arm: str
    bound: float | None
    probability: float


@dataclass(frozen=True, slots=True)
class Arm:
    """What is known of an arm.

    ``pulls``: rewards recorded. ``mean``: of these rewards, None without any. ``bound``: its upper confidence bound,
    None where infinite. ``active``: whether it may be played. ``pending``: outstanding decisions. ``estimate``: the
    policy's estimate of its mean reward; None also where an older service does not say.
    """

    id: str
    pulls: int
    mean: float | None
    bound: float | None
    active: bool
    pending: int
    estimate: float | None = None


@dataclass(frozen=True, slots=True)
class Bandit:
    """A bandit and its counts; ``created`` in Unix seconds, ``arms`` those that may be played.

    ``rewards``: those recorded and not retracted since. ``reward_range``: the least and the largest reward that is
    accepted, None for any. ``memory_bytes``: of the policy's state. A service of version 0.1.0 says nothing about the
    last three.
    """

    name: str
    policy: str
    arms: int
    dimension: int
    decisions: int
    rewards: int
    outstanding: int
    defaults: int
    mean_reward: float | None
    created: float
    retracted: int = 0
    reward_range: tuple[float, float] | None = None
    memory_bytes: int | None = None


class Repeat(Enum):
    """When a request may be sent again."""

    ALWAYS = "a second one changes nothing that the first has not"
    UNPROCESSED = "only where it is certain that the first was not carried out"
    NEVER = "the caller asks again"


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request and what its answer means.

    ``parse(status, body)`` gets answers with a status below 300 or in ``understood``, their body none where it is not
    JSON; a missing key or a wrong type in it becomes `BadAnswer`. ``silence`` is what no answer at all means, where
    that is an answer too. ``patience``: for how many seconds an attempt waits for its answer at least.
    """

    method: str
    path: str
    parse: Callable[[int, Any], T]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Json | None = None
    repeat: Repeat = Repeat.ALWAYS
    understood: frozenset[int] = frozenset()
    silence: tuple[T, ...] = ()
    patience: float = 0.0


class Page(NamedTuple):
    """Some arms, and the call for those after them."""

    arms: list[Arm]
    following: Call["Page"] | None


def decide_many(
    own: str, count: int, available: Iterable[str] | None = None, *, key: str | None = None, bandit: str | None = None
) -> Call[list[Decision]]:
    """``count`` arms to play (1 to 1,000), before the reward of any is known, from ``available`` or all.

    ``key``: the same key with the same request gets the same decisions, as long as the service remembers it. Without
    one each call makes its own, so that an attempt whose answer was lost is repeated without a second decision.
    """
    body: Json = {"bandit": bandit or own, "count": validate.whole("count", count)}
    body["key"] = uuid.uuid4().hex if key is None else key
    if available is not None:
        body["available"] = _ids("available", available)
    return Call("POST", "/v1/decisions", lambda _, answer: _all(Decision, answer["decisions"]), body=body)


def decide(
    own: str, available: Iterable[str] | None = None, *, key: str | None = None, bandit: str | None = None
) -> Call[Decision]:
    """An arm to play, from ``available`` or all; ``key`` as in `decide_many`."""
    many = decide_many(own, 1, available, key=key, bandit=bandit)
    return Call(many.method, many.path, lambda status, body: many.parse(status, body)[0], body=many.body)


def reward(own: str, decision: Decision | str, value: float, *, bandit: str | None = None) -> Call[str]:
    """Record a decision's reward, at any time: "accepted", or "known" if the same value is recorded already.

    Raises `UnknownDecision` where there is no such decision, `Conflict` where another value is recorded, by an earlier
    call or by the deadline, or where this decision's reward was retracted: what is recorded stays.
    `InvalidRequest` says that the value is outside the bandit's range.
    """
    entry = _reward(decision, value)
    named = {"bandit": bandit or own, **entry}
    return Call("POST", "/v1/rewards", _one_status, body=named, understood=frozenset({404, 409}))


def reward_many(
    own: str, rewards: Iterable[tuple[Decision | str, float]], *, bandit: str | None = None
) -> Call[list[str]]:
    """Record many rewards (1 to 1,000); one status each: "accepted", "known", "unknown", "conflict" or "retracted".

    One value outside the bandit's range refuses them all.
    """
    body = {"bandit": bandit or own, "rewards": [_reward(decision, value) for decision, value in rewards]}
    return Call("POST", "/v1/rewards", lambda _, answer: [one["status"] for one in answer["results"]], body=body)


def retract(own: str, decisions: Iterable[Decision | str], *, bandit: str | None = None) -> Call[list[str]]:
    """Take back the rewards of these decisions (1 to 1,000), as if the policy had never learned them; a status each.

    "retracted": now; "known": before; "waiting": there is no reward yet; "unknown": there is no such decision. Admin.
    """
    if isinstance(decisions, str):
        raise ValueError(f"decisions must be several decisions or their ids, got one text, {decisions!r}")
    body = {"bandit": bandit or own, "decision_ids": [_decision_id(one) for one in decisions]}
    return Call(
        "POST",
        "/v1/retractions",
        lambda _, answer: [one["status"] for one in answer["results"]],
        body=body,
        patience=OPERATION_SECONDS,
    )


def arms(own: str, *, sort: str = "id", search: str = "", bandit: str | None = None, offset: int = 0) -> Call[Page]:
    """Every arm, or those whose id holds ``search``, fetched page by page while you iterate.

    ``sort``: "id", or "pulls", "mean", "estimate", "bound" (largest first). Decisions and rewards change all but
    the id between two pages: an arm may then come twice or not at all.
    """
    query = {"bandit": bandit or own, "sort": sort, "search": search, "limit": PAGE, "offset": offset}

    def page(_: int, answer: Json) -> Page:
        shown, end = _all(Arm, answer["arms"]), offset + len(answer["arms"])
        more = shown and end < answer["total"]
        return Page(shown, arms(own, sort=sort, search=search, bandit=bandit, offset=end) if more else None)

    return Call("GET", "/v1/arms", page, query)


def add_arms(own: str, ids: Iterable[str], features: ArrayLike, *, bandit: str | None = None) -> Call[int]:
    """Add arms, one row of ``features`` each; returns how many there are. Admin. Repeated as `create_bandit` is."""
    body = {"bandit": bandit or own, "arms": _arms(ids, features)}
    return _change("POST", "/v1/arms", lambda answer: int(answer["total"]), body=body)


def remove_arms(own: str, ids: Iterable[str], *, bandit: str | None = None) -> Call[int]:
    """Never play these arms again; returns how many are left. Admin. Repeated as `create_bandit` is.

    An arm of that id may have been added again in the meantime, and a repeat would remove that one.
    """
    query = {"bandit": bandit or own, "id": _ids("ids", ids)}
    return _change("DELETE", "/v1/arms", lambda answer: int(answer["active"]), query)


def free_arms(own: str, *, bandit: str | None = None) -> Call[int]:
    """Give back the memory of removed arms without open decisions; returns of how many. Admin. Not repeated blindly.

    What they taught the policy stays. Rewards of this bandit cannot be retracted any more after that.
    """
    return _change("DELETE", "/v1/arms/removed", lambda answer: int(answer["freed"]), {"bandit": bandit or own})


def bandits(own: str) -> Call[list[Bandit]]:
    """Every bandit of the service."""
    return Call("GET", "/v1/bandits", lambda _, answer: _all(Bandit, answer["bandits"]))


def create_bandit(
    own: str,
    name: str,
    ids: Iterable[str],
    features: ArrayLike,
    *,
    policy: str | None = None,
    options: Mapping[str, Any] | None = None,
    exploration: float | None = None,
    deadline: float | None = None,
    default_reward: float | None = None,
    pending: int | None = None,
    reward_range: tuple[float, float] | None = REWARD_RANGE,
) -> Call[Bandit]:
    """A new bandit with its arms; what is not given is the service's default. Admin.

    ``reward_range``: the least and the largest reward that it accepts, None for any.
    Repeated only where it was certainly not carried out: the service could not be reached, or said 503 and that it has
    done nothing. A repeat after a lost answer would be refused because the name exists, without a way to know whether
    this client created it: then `Unanswered` is raised.
    """
    given = {
        "policy": policy,
        "options": None if options is None else dict(options),
        "exploration": exploration,
        "deadline": deadline,
        "default_reward": default_reward,
        "pending": pending,
    }
    body: Json = {"name": name, "arms": _arms(ids, features)} | {k: v for k, v in given.items() if v is not None}
    if reward_range != REWARD_RANGE:  # the default is left out: version 0.1.0 does not know the field
        body["reward_range"] = None if reward_range is None else _range(reward_range)
    return _change("POST", "/v1/bandits", lambda answer: _made(Bandit, answer), body=body)


def delete_bandit(own: str, bandit: str) -> Call[None]:
    """Delete a bandit with all that it has learned; its name is free again. Admin. Repeated as `create_bandit` is."""
    return _change("DELETE", "/v1/bandits", _deleted, {"bandit": bandit})


def policy(own: str, *, limit: int = 100, bandit: str | None = None) -> Call[Json]:
    """The policy, its settings, memory and clusters (at most ``limit``), as the OpenAPI document describes them."""
    return Call("GET", "/v1/policy", lambda _, answer: _object(answer), {"bandit": bandit or own, "limit": limit})


def activity(own: str, *, bandit: str | None = None) -> Call[Json]:
    """Decisions and rewards per minute, latency and queue, as the OpenAPI document describes them."""
    return Call("GET", "/v1/activity", lambda _, answer: _object(answer), {"bandit": bandit or own})


def ready(own: str) -> Call[bool]:
    """Whether the service is there and takes decisions. One attempt, no exception where it is not."""
    understood = frozenset({502, 503, 504})
    return Call(
        "GET",
        "/readyz",
        lambda status, answer: status == 200 and answer["status"] == "ready",
        repeat=Repeat.NEVER,
        understood=understood,
        silence=(False,),
    )


def _change(
    method: str,
    path: str,
    parse: Callable[[Any], T],
    query: Mapping[str, Any] | None = None,
    *,
    body: Json | None = None,
) -> Call[T]:
    """A change of arms or bandits: a second one would be refused, or change what others have made meanwhile."""
    return Call(
        method,
        path,
        lambda _, answer: parse(answer),
        query or {},
        body,
        repeat=Repeat.UNPROCESSED,
        patience=OPERATION_SECONDS,
    )


def _made(kind: type[Entry], entry: Json) -> Entry:
    """A record from an answer; fields that a newer service adds are ignored, and optional ones may be missing."""
    optional = {one.name for one in fields(kind) if one.default is not MISSING} - entry.keys()
    values = {one.name: entry[one.name] for one in fields(kind) if one.name not in optional}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})


def _all(kind: type[Entry], entries: list[Json]) -> list[Entry]:
    return [_made(kind, entry) for entry in entries]


def _ids(name: str, ids: Iterable[str]) -> list[str]:
    if isinstance(ids, str):
        raise ValueError(f"{name} must be several arm ids, got one text, {ids!r}")
    return list(ids)


def _range(limits: tuple[float, float]) -> list[float]:
    low, high = limits
    return [validate.number("reward_range", low), validate.number("reward_range", high)]


def _deleted(answer: Json) -> None:
    answer["deleted"]


def _object(answer: Json) -> Json:
    answer["bandit"]  # whatever has none is no answer of the service
    return answer


def _decision_id(decision: Decision | str) -> str:
    return decision.decision_id if isinstance(decision, Decision) else decision


def _reward(decision: Decision | str, value: float) -> Json:
    number = float(value) if isinstance(value, bool | np.bool_) else validate.number("value", value)
    return {"decision_id": _decision_id(decision), "reward": number}


def _one_status(status: int, answer: Json) -> str:
    found = answer["results"][0]
    if found["status"] == "unknown":
        raise UnknownDecision(status, "unknown_decision", f"there is no decision {found['decision_id']!r}")
    if found["status"] == "conflict":
        raise Conflict(
            status, "conflict", f"decision {found['decision_id']!r} is recorded with another reward, which stays"
        )
    if found["status"] == "retracted":
        message = f"the reward of decision {found['decision_id']!r} was retracted by an administrator; it gets no other"
        raise Conflict(status, "retracted", message)
    return str(found["status"])


def _arms(ids: Iterable[str], features: ArrayLike) -> list[Json]:
    names, rows = _ids("ids", ids), validate.matrix("features", features).tolist()
    if len(names) != len(rows):
        raise ValueError(f"features must have one row for each of {len(names)} ids, got {len(rows)}")
    return [{"id": name, "features": row} for name, row in zip(names, rows, strict=True)]
