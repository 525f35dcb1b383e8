"""Planning of decisions and rewards: which changes a group of requests makes, and what each request is answered.

A plan changes nothing. Its changes are committed to the log and only then applied. The requests of a group are planned
together: each decision of the group is pending for those after it, and rewards count from the next group on.
"""

import logging
import os
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sketchbandits.service.bandits.bandit import Bandit, Choice
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.requests import Answer, Decide, Refusal, Request, Reward, internal, refusal_of
from sketchbandits.service.log.events import Kind, parsed

logger = logging.getLogger("sketchbandits.service")

_ID = re.compile(r"([1-9][0-9]{0,17})-([0-9a-f]{8})")


class Questions(NamedTuple):
    """What only the log knows: the records with these numbers, the outcomes of these decisions."""

    records: list[int]
    decisions: list[int]


class Facts(NamedTuple):
    """The log's answers to `Questions`: bodies of records, kind and body of the record with a decision's reward."""

    records: dict[int, bytes]
    outcomes: dict[int, tuple[Kind, bytes]]


@dataclass
class Plan:
    """Changes to log, and the answer to each request, which is sent once they are logged."""

    changes: list[Change] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def questions(ledger: Ledger, requests: Iterable[Request]) -> Questions:
    """What must be looked up in the log before these requests can be planned."""
    asked = Questions([], [])
    for request in requests:
        if (bandit := ledger.bandits.get(request.bandit)) is None:
            continue
        if isinstance(request, Decide):
            if request.key is not None and request.key in bandit.keys:
                asked.records.append(bandit.keys[request.key])
            continue
        numbers = (_number(decision_id) for decision_id, _ in request.items)
        asked.decisions.extend(n for n in numbers if n is not None and n not in bandit.waiting)
    return asked


def plan_group(ledger: Ledger, requests: Sequence[Request], facts: Facts, now: float) -> Plan:
    """What each request of a group changes and is answered."""
    plan, group = Plan(), _Group(ledger, requests, facts, now)
    for request in requests:
        try:
            changes, answer = group.decide(request) if isinstance(request, Decide) else group.reward(request)
        except Refusal as refusal:
            changes, answer = [], refusal
        except Exception:  # nothing has changed, so an unforeseen error in one request must not end all others
            logger.exception("planning failed: %r", request)
            changes, answer = [], internal()
        plan.changes += changes
        plan.answers.append(answer)
    return plan


def plan_defaults(ledger: Ledger, now: float, most: int) -> Plan:
    """Record the default reward of decisions that are past their deadline, ``most`` per bandit."""
    plan = Plan()
    for bandit in ledger.bandits.values():
        for number in bandit.overdue(now, most):
            decision_id = f"{number}-{bandit.waiting[number].token}"
            default = bandit.config.default_reward
            plan.changes.append(_reward_change(bandit, Kind.DEFAULT, decision_id, default, now))
    return plan


class _Group:
    """Plans the requests of one group in order, and remembers what those so far have planned."""

    def __init__(self, ledger: Ledger, requests: Iterable[Request], facts: Facts, now: float) -> None:
        self._ledger, self._facts, self._now = ledger, facts, now
        self._next_number = ledger.next_number
        self._unrestricted = _unrestricted_decisions(ledger, requests)
        self._chosen: dict[str, deque[Choice]] = {}  # by bandit: choices among all arms that are not yet handed out
        self._pending: dict[str, list[int]] = {}
        self._keys: dict[tuple[str, str], Change] = {}
        self._rewards: dict[int, float] = {}

    def decide(self, request: Decide) -> tuple[list[Change], Answer]:
        """Choose arms, or repeat the answer that the same key was given before."""
        bandit = self._ledger.bandit(request.bandit)
        try:
            available = None if request.available is None else bandit.arms_of(request.available)
            if (data := self._answered_before(bandit, request)) is not None:
                return [], _repeated(bandit, request, data)
            choices = self._choices(bandit, request.count, available)
        except ValueError as error:
            raise refusal_of(error) from None
        change = _decision_change(bandit, request, available, choices, self._next_number, self._now)
        self._next_number += request.count
        if request.key is not None:
            self._keys[bandit.name, request.key] = change
        return [change], _decisions(bandit, change.data, repeated=False)

    def _answered_before(self, bandit: Bandit, request: Decide) -> dict[str, Any] | None:
        """The decision that the same key was answered with, in this group or by the log."""
        if request.key is None:
            return None
        if (change := self._keys.get((bandit.name, request.key))) is not None:
            return change.data
        return parsed(self._facts.records[bandit.keys[request.key]]) if request.key in bandit.keys else None

    def _choices(self, bandit: Bandit, count: int, available: list[int] | None) -> list[Choice]:
        """The next ``count`` choices of a bandit; what this group has chosen so far is pending too."""
        name = bandit.name
        if name not in self._pending:
            self._pending[name] = bandit.pending()
        pending = self._pending[name]
        mask = None if available is None else bandit.mask_of(available)
        if bandit.config.exploration > 0.0:
            return bandit.explore(range(self._next_number, self._next_number + count), mask, pending)
        if mask is not None:
            return bandit.choose(count, mask, pending)
        if name not in self._chosen:
            self._chosen[name] = deque(bandit.choose(self._unrestricted[name], None, pending))
        chosen = self._chosen[name]
        if len(chosen) < count:  # a key whose first use was refused was not counted
            chosen.extend(bandit.choose(count - len(chosen), None, pending))
        return [chosen.popleft() for _ in range(count)]

    def reward(self, request: Reward) -> tuple[list[Change], Answer]:
        """Record rewards: accepted now, known already, in conflict with what is recorded, or of no known decision."""
        bandit, changes, results = self._ledger.bandit(request.bandit), list[Change](), []
        for decision_id, reward in request.items:
            status = self._status(bandit, decision_id, reward)
            if status == "accepted":
                changes.append(_reward_change(bandit, Kind.REWARD, decision_id, reward, self._now))
            results.append({"decision_id": decision_id, "status": status})
        return changes, {"results": results}

    def _status(self, bandit: Bandit, decision_id: str, reward: float) -> str:
        number = _number(decision_id)
        if number is None:
            return "unknown"
        waiting = bandit.waiting.get(number)
        if waiting is not None and decision_id.endswith(waiting.token):
            if number not in self._rewards:
                self._rewards[number] = reward
                return "accepted"
            return "known" if self._rewards[number] == reward else "conflict"
        if number not in self._facts.outcomes:
            return "unknown"
        recorded = parsed(self._facts.outcomes[number][1])
        if recorded["id"] != decision_id or recorded["bandit"] != bandit.name:
            return "unknown"
        return "known" if recorded["reward"] == reward else "conflict"


def _unrestricted_decisions(ledger: Ledger, requests: Iterable[Request]) -> Counter[str]:
    """How many new decisions among all arms a group asks of each bandit: they are chosen in one compiled call."""
    counts, keys = Counter[str](), set[tuple[str, str]]()
    for request in requests:
        if not isinstance(request, Decide) or (bandit := ledger.bandits.get(request.bandit)) is None:
            continue
        if request.key is not None:
            if request.key in bandit.keys or (bandit.name, request.key) in keys:
                continue
            keys.add((bandit.name, request.key))
        if request.available is None:
            counts[bandit.name] += request.count
    return counts


def _number(decision_id: str) -> int | None:
    found = _ID.fullmatch(decision_id)
    return int(found[1]) if found else None


def _decision_change(
    bandit: Bandit, request: Decide, available: list[int] | None, choices: list[Choice], first: int, now: float
) -> Change:
    data: dict[str, Any] = {
        "bandit": bandit.name,
        "n": first,
        "token": os.urandom(4).hex(),
        "t": now,
        "arms": [choice.arm for choice in choices],
        "bounds": [choice.bound for choice in choices],
        "p": [choice.probability for choice in choices],
    }
    if available is not None:
        data["available"] = available
    if request.key is not None:
        data["key"] = request.key
    return Change(Kind.DECISION, None, data)


def _decisions(bandit: Bandit, data: dict[str, Any], *, repeated: bool) -> Answer:
    """The answer that a logged decision gives."""
    shown = [
        {"decision_id": f"{data['n'] + i}-{data['token']}", "arm": bandit.ids[arm], "bound": bound, "probability": p}
        for i, (arm, bound, p) in enumerate(zip(data["arms"], data["bounds"], data["p"], strict=True))
    ]
    return {"bandit": bandit.name, "decisions": shown, "repeated": repeated}


def _repeated(bandit: Bandit, request: Decide, data: dict[str, Any]) -> Answer:
    before = data.get("available")
    same = [bandit.ids[arm] for arm in before] == list(request.available or ()) if before is not None else False
    if len(data["arms"]) != request.count or not (same or before is request.available is None):
        message = f"key must be new for another request, got {request.key!r}, which was used with other parameters"
        raise Refusal("key_reused", message)
    return _decisions(bandit, data, repeated=True)


def _reward_change(bandit: Bandit, kind: Kind, decision_id: str, reward: float, now: float) -> Change:
    """The reward of a decision that waits for it."""
    number = int(decision_id.partition("-")[0])
    arm = bandit.waiting[number].arm
    # + 0.0: not every database keeps a negative zero.
    data = {"bandit": bandit.name, "id": decision_id, "arm": arm, "reward": reward + 0.0, "t": now}
    return Change(kind, number, data)
