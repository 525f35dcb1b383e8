"""Planning of decisions and rewards: which changes a group of requests makes, and what each request is answered.

A plan changes nothing. Its changes are committed to the log and only then applied. The requests of a group are planned
together: each decision of the group is pending for those after it, and rewards count from the next group on.
"""

import logging
import os
import re
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sketchbandits.service.bandits.bandit import Bandit, Choice
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.requests import (
    Answer,
    Decide,
    Operation,
    Refusal,
    Request,
    Retract,
    Reward,
    bandit_of,
    internal,
    refusal_of,
)
from sketchbandits.service.log.events import Kind, parsed

logger = logging.getLogger("sketchbandits.service")

_ID = re.compile(r"([1-9][0-9]{0,17})-([0-9a-f]{32}|[0-9a-f]{8})")  # version 0.1.0 had short tokens
_TOKEN_BYTES = 16  # nobody guesses the id of a decision of somebody else
_DEFAULTS_PER_STEP = 64


class Questions(NamedTuple):
    """What only the log knows: the records with these numbers, the outcomes of these decisions."""

    records: list[int]
    decisions: list[int]


class Facts(NamedTuple):
    """The log's answers to `Questions`: bodies of records, kind and body of the record with a decision's reward.

    ``damaged``: the numbers of records and of decisions about which the log can no longer say anything.
    """

    records: dict[int, bytes]
    outcomes: dict[int, tuple[Kind, bytes]]
    damaged: Questions = Questions([], [])

    def record(self, seq: int) -> dict[str, Any]:
        """What the record with this number says."""
        if seq in self.damaged.records:
            raise _damaged(f"record {seq}")
        return parsed(self.records[seq])

    def outcome(self, number: int) -> dict[str, Any] | None:
        """What the log says of a decision's reward; None where it has none."""
        if number in self.damaged.decisions:
            raise _damaged(f"the reward of decision {number}")
        return parsed(self.outcomes[number][1]) if number in self.outcomes else None


NO_FACTS = Facts({}, {})


def _damaged(what: str) -> Refusal:
    message = (
        f"{what} can no longer be read from the log; other requests are served. `sketchbandits log` says what to do"
    )
    return Refusal("damaged", message)


@dataclass
class Plan:
    """Changes to log, and the answer to each request, which is sent once they are logged."""

    changes: list[Change] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


def questions(ledger: Ledger, requests: Iterable[Request | Operation]) -> Questions:
    """What must be looked up in the log before these requests can be planned."""
    asked = Questions([], [])
    for request in requests:
        if (bandit := ledger.bandits.get(bandit_of(request))) is None:
            continue
        if isinstance(request, Decide):
            if (seq := bandit.record_of(request.key, request.by)) is not None:
                asked.records.append(seq)
        elif isinstance(request, Reward | Retract):
            ids = (
                (decision_id for decision_id, _ in request.items)
                if isinstance(request, Reward)
                else request.decision_ids
            )
            numbers = (decision_number(decision_id) for decision_id in ids)
            asked.decisions.extend(n for n in numbers if n is not None and n not in bandit.waiting)
    return asked


def plan_group(ledger: Ledger, requests: Sequence[Request], facts: Facts, now: float) -> Plan:
    """What each request of a group changes and is answered."""
    group = GroupPlan(ledger, requests, facts, now, first=ledger.next_number)
    for _ in group.steps():
        pass
    return group.plan


def plan_defaults(ledger: Ledger, now: float, most: int) -> Plan:
    """Record the default reward of decisions that are past their deadline, ``most`` per bandit."""
    plan = Plan()
    for bandit in ledger.bandits.values():
        for _ in planning_defaults(bandit, plan, now, most):
            pass
    return plan


def planning_defaults(bandit: Bandit, plan: Plan, now: float, most: int) -> Iterator[None]:
    """Record the default reward of up to ``most`` decisions of a bandit, in small steps."""
    for i, number in enumerate(bandit.overdue(now, most)):
        decision_id = f"{number}-{bandit.waiting[number].token}"
        plan.changes.append(_reward_change(bandit, Kind.DEFAULT, decision_id, bandit.config.default_reward, now))
        if i % _DEFAULTS_PER_STEP == 0:
            yield


class GroupPlan:
    """Plans the requests of one group in order, and remembers what those so far have planned.

    Their decisions get the numbers from ``first`` on, of which ``used`` are taken in the end.
    """

    def __init__(self, ledger: Ledger, requests: Sequence[Request], facts: Facts, now: float, *, first: int) -> None:
        self.plan = Plan()
        self._ledger, self._requests, self._facts, self._now = ledger, requests, facts, now
        self._first = self._next_number = first
        self._unrestricted = _unrestricted_decisions(ledger, requests)
        self._chosen: dict[str, deque[Choice]] = {}  # by bandit: choices among all arms that are not yet handed out
        self._pending: dict[str, list[int]] = {}
        self._keys: dict[tuple[str, str | None, str], Change] = {}
        self._rewards: dict[int, float] = {}

    @property
    def used(self) -> int:
        """How many numbers were taken."""
        return self._next_number - self._first

    def steps(self) -> Iterator[None]:
        """Plan everything, in small steps."""
        for request in self._requests:
            planned: tuple[list[Change], Answer]
            try:
                if isinstance(request, Decide):
                    planned = yield from self._decide(request)
                else:
                    planned = self._reward(request)
            except Refusal as refusal:
                planned = [], refusal
            except Exception:  # nothing has changed, so an unforeseen error in one request must not end all others
                logger.exception("planning failed: %r", request)
                planned = [], internal()
            self.plan.changes += planned[0]
            self.plan.answers.append(planned[1])
            yield

    def _decide(self, request: Decide) -> Generator[None, None, tuple[list[Change], Answer]]:
        """Choose arms, or repeat the answer that the same key was given before."""
        bandit = self._ledger.bandit(request.bandit)
        try:
            available = None if request.available is None else bandit.arms_of(request.available)
            if (data := self._answered_before(bandit, request)) is not None:
                return [], _repeated(bandit, request, data)
            choices = yield from self._choices(bandit, request.count, available)
        except ValueError as error:
            raise refusal_of(error) from None
        change = _decision_change(bandit, request, available, choices, self._next_number, self._now)
        self._next_number += request.count
        if request.key is not None:
            self._keys[bandit.name, request.by, request.key] = change
        return [change], _decisions(bandit, change.data, repeated=False)

    def _answered_before(self, bandit: Bandit, request: Decide) -> dict[str, Any] | None:
        """The decision that the same key was answered with, in this group or by the log."""
        if request.key is None:
            return None
        if (change := self._keys.get((bandit.name, request.by, request.key))) is not None:
            return change.data
        seq = bandit.record_of(request.key, request.by)
        return None if seq is None else self._facts.record(seq)

    def _choices(self, bandit: Bandit, count: int, available: list[int] | None) -> Generator[None, None, list[Choice]]:
        """The next ``count`` choices of a bandit; what this group has chosen so far is pending too."""
        if bandit.name not in self._pending:
            self._pending[bandit.name] = bandit.pending()
        pending = self._pending[bandit.name]
        mask = None if available is None else bandit.mask_of(available)
        if bandit.config.exploration > 0.0:
            explored = []
            for number in range(self._next_number, self._next_number + count):
                explored.append(bandit.explore(number, mask, pending))
                yield
            return explored
        chosen = self._chosen.setdefault(bandit.name, deque()) if mask is None else deque[Choice]()
        while len(chosen) < count:
            missing = count - len(chosen)
            if mask is None:  # as many as the whole group wants; a key whose first use was refused was not counted
                missing = max(missing, self._unrestricted[bandit.name])
            made = min(missing, bandit.choices_per_step)
            chosen.extend(bandit.choose(made, mask, pending))
            self._unrestricted[bandit.name] -= made if mask is None else 0
            yield
        return [chosen.popleft() for _ in range(count)]

    def _reward(self, request: Reward) -> tuple[list[Change], Answer]:
        """Record rewards: accepted now, known already, in conflict with what is recorded, or of no known decision."""
        bandit, changes, results = self._ledger.bandit(request.bandit), list[Change](), []
        self._check_rewards(bandit, request)
        for decision_id, reward in request.items:
            status = self._status(bandit, decision_id, reward)
            if status == "accepted":
                changes.append(_reward_change(bandit, Kind.REWARD, decision_id, reward, self._now, request.by))
            bandit.unknown_rewards += status == "unknown"
            results.append({"decision_id": decision_id, "status": status})
        return changes, {"results": results}

    def _check_rewards(self, bandit: Bandit, request: Reward) -> None:
        """Refuse all of a request's rewards where one is outside the range or hits damage: nothing changes then."""
        try:
            for _, reward in request.items:
                bandit.config.check_reward(reward)
        except ValueError as error:
            raise refusal_of(error) from None
        if self._facts.damaged.decisions:
            for decision_id, _ in request.items:
                self._facts.outcome(decision_number(decision_id) or 0)

    def _status(self, bandit: Bandit, decision_id: str, reward: float) -> str:
        number = decision_number(decision_id)
        if number is None:
            return "unknown"
        waiting = bandit.waiting.get(number)
        if waiting is not None and decision_id == f"{number}-{waiting.token}":
            if number not in self._rewards:
                self._rewards[number] = reward
                return "accepted"
            return "known" if self._rewards[number] == reward else "conflict"
        recorded = self._facts.outcome(number)
        if recorded is None or not belongs(recorded, bandit, decision_id):
            return "unknown"
        if number in bandit.retracted:
            return "retracted"
        return "known" if recorded["reward"] == reward else "conflict"


def _unrestricted_decisions(ledger: Ledger, requests: Iterable[Request]) -> Counter[str]:
    """How many new decisions among all arms a group asks of each bandit: they are chosen in few compiled calls."""
    counts, keys = Counter[str](), set[tuple[str, str | None, str]]()
    for request in requests:
        if not isinstance(request, Decide) or (bandit := ledger.bandits.get(request.bandit)) is None:
            continue
        if request.key is not None:
            own = (bandit.name, request.by, request.key)
            if own in keys or bandit.record_of(request.key, request.by) is not None:
                continue
            keys.add(own)
        if request.available is None:
            counts[bandit.name] += request.count
    return counts


def decisions_of(requests: Iterable[Request]) -> int:
    """How many decisions a group asks for."""
    return sum(request.count for request in requests if isinstance(request, Decide))


def decision_number(decision_id: str) -> int | None:
    """The number in a decision's id; None where it cannot be one."""
    found = _ID.fullmatch(decision_id)
    return int(found[1]) if found else None


def belongs(recorded: dict[str, Any], bandit: Bandit, decision_id: str) -> bool:
    """Whether a recorded reward is that of this decision of this bandit, and not of a deleted one of the same name."""
    number = decision_number(decision_id) or 0
    return recorded["bandit"] == bandit.name and recorded["id"] == decision_id and number > bandit.first_number


def _decision_change(
    bandit: Bandit, request: Decide, available: list[int] | None, choices: list[Choice], first: int, now: float
) -> Change:
    data: dict[str, Any] = {
        "bandit": bandit.name,
        "n": first,
        "token": os.urandom(_TOKEN_BYTES).hex(),
        "t": now,
        "arms": [choice.arm for choice in choices],
        "bounds": [choice.bound for choice in choices],
        "p": [choice.probability for choice in choices],
    }
    if available is not None:
        data["available"] = available
    if request.key is not None:
        data["key"] = request.key
    if request.by is not None:
        data["by"] = request.by
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


def _reward_change(
    bandit: Bandit, kind: Kind, decision_id: str, reward: float, now: float, by: str | None = None
) -> Change:
    """The reward of a decision that waits for it."""
    number = int(decision_id.partition("-")[0])
    arm = bandit.waiting[number].arm
    # + 0.0: not every database keeps a negative zero.
    data: dict[str, Any] = {"bandit": bandit.name, "id": decision_id, "arm": arm, "reward": reward + 0.0, "t": now}
    if by is not None:
        data["by"] = by
    return Change(kind, number, data)
