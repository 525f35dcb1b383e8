"""All bandits of a service, and the two halves of every change: `Ledger.plan` and `Ledger.apply`.

`plan` looks, decides and refuses; it changes nothing. What it plans is committed to the log, and only then applied.
A group of requests is planned together: its decisions know of each other as pending, its rewards count for the next
group. Recovery calls `apply` alone.
"""

import logging
import os
import re
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sketchbandits.service.bandits.bandit import Bandit, Change, Choice, UnknownArm, origin_of
from sketchbandits.service.bandits.config import BanditConfig, checked_name
from sketchbandits.service.bandits.requests import (
    AddArms,
    Answer,
    CreateBandit,
    Decide,
    Operation,
    Refusal,
    Request,
    Reward,
    internal,
)
from sketchbandits.service.log.events import Kind, Record, features_of, parsed

logger = logging.getLogger("sketchbandits.service")

_ID = re.compile(r"([1-9][0-9]{0,17})-([0-9a-f]{8})")
_REPLAYED_TOGETHER = 4_096


class Questions(NamedTuple):
    """What only the log knows: the records with these numbers, the outcomes of these decisions."""

    records: list[int]
    decisions: list[int]


class Facts(NamedTuple):
    """The log's answers."""

    records: dict[int, bytes]
    outcomes: dict[int, tuple[Kind, bytes]]


@dataclass
class Plan:
    """Changes to log, and the answer to each request, good once they are."""

    changes: list[Change] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)


@dataclass
class _Group:
    """What the requests of one group have planned so far."""

    next_number: int
    plain: Counter[str]  # per bandit, decisions among all arms: chosen in one call when the first is asked for
    ready: dict[str, deque[Choice]] = field(default_factory=dict)
    pending: dict[str, list[int]] = field(default_factory=dict)
    keys: dict[tuple[str, str], Change] = field(default_factory=dict)
    rewards: dict[int, float] = field(default_factory=dict)


class Ledger:
    """Bandits by name, and the number of the next decision of any."""

    def __init__(self) -> None:
        self.bandits: dict[str, Bandit] = {}
        self.next_number = 1

    def bandit(self, name: str) -> Bandit:
        """The bandit, or a refusal."""
        if name not in self.bandits:
            known = ", ".join(map(repr, list(self.bandits)[:20])) or "none yet"
            raise Refusal(404, "unknown_bandit", f"bandit must be one of {known}; got {name[:64]!r}")
        return self.bandits[name]

    # Planning.

    def questions(self, requests: Iterable[Request]) -> Questions:
        """What must be looked up before these requests can be planned."""
        asked = Questions([], [])
        for request in requests:
            if (bandit := self.bandits.get(request.bandit)) is None:
                continue
            if isinstance(request, Decide):
                if request.key is not None and request.key in bandit.keys:
                    asked.records.append(bandit.keys[request.key])
                continue
            numbers = (_number(decision_id) for decision_id, _ in request.items)
            asked.decisions.extend(n for n in numbers if n is not None and n not in bandit.waiting)
        return asked

    def plan(self, requests: Sequence[Request], facts: Facts, now: float) -> Plan:
        """Decide what each request of a group changes and is answered."""
        plan, group = Plan(), _Group(self.next_number, self._plain(requests))
        for request in requests:
            try:
                if isinstance(request, Decide):
                    changes, answer = self._decide(request, facts, group, now)
                else:
                    changes, answer = self._reward(request, facts, group, now)
            except Refusal as refusal:
                changes, answer = [], refusal
            except Exception:  # nothing has changed, so one request that nobody foresaw must not end all others
                logger.exception("planning failed: %r", request)
                changes, answer = [], internal()
            plan.changes += changes
            plan.answers.append(answer)
        return plan

    def _plain(self, requests: Iterable[Request]) -> Counter[str]:
        """How many new decisions among all arms each bandit is asked for."""
        plain, keys = Counter[str](), set[tuple[str, str]]()
        for request in requests:
            if not isinstance(request, Decide) or (bandit := self.bandits.get(request.bandit)) is None:
                continue
            if request.key is not None:
                if request.key in bandit.keys or (bandit.name, request.key) in keys:
                    continue
                keys.add((bandit.name, request.key))
            if request.available is None:
                plain[bandit.name] += request.count
        return plain

    def _decide(self, request: Decide, facts: Facts, group: _Group, now: float) -> tuple[list[Change], Answer]:
        bandit = self.bandit(request.bandit)
        try:
            available = None if request.available is None else bandit.arms_of(request.available)
            if (data := self._answered(bandit, request, facts, group)) is not None:
                return [], _repeated(bandit, request, data)
            choices = _choices(bandit, request.count, available, group)
        except ValueError as error:
            raise _refusal(error) from None
        change = _decision(bandit, request, available, choices, group.next_number, now)
        group.next_number += request.count
        if request.key is not None:
            group.keys[bandit.name, request.key] = change
        return [change], _decisions(bandit, change.data, repeated=False)

    def _answered(self, bandit: Bandit, request: Decide, facts: Facts, group: _Group) -> dict[str, Any] | None:
        """What the same key was answered before, in this group or by the log."""
        if request.key is None:
            return None
        if (change := group.keys.get((bandit.name, request.key))) is not None:
            return change.data
        return parsed(facts.records[bandit.keys[request.key]]) if request.key in bandit.keys else None

    def _reward(self, request: Reward, facts: Facts, group: _Group, now: float) -> tuple[list[Change], Answer]:
        bandit, changes, results = self.bandit(request.bandit), list[Change](), []
        for decision_id, reward in request.items:
            status, change = _booking(bandit, decision_id, reward, facts, group, now)
            changes += [change] if change is not None else []
            results.append({"decision_id": decision_id, "status": status})
        return changes, {"results": results}

    def plan_defaults(self, now: float, most: int) -> Plan:
        """Book what is past its deadline."""
        plan = Plan()
        for bandit in self.bandits.values():
            for number in bandit.overdue(now, most):
                decision_id = f"{number}-{bandit.waiting[number].token}"
                plan.changes.append(
                    _reward_change(bandit, Kind.DEFAULT, number, decision_id, bandit.config.default_reward, now)
                )
        return plan

    def plan_operation(self, operation: Operation, now: float) -> tuple[Change, Any]:
        """Check an operation by carrying it out on a copy; returns the change and what `apply` would build anew."""
        try:
            if isinstance(operation, CreateBandit):
                return self._create(operation, now)
            bandit = self.bandit(operation.bandit)
            if isinstance(operation, AddArms):
                return _add(bandit, operation, now)
            arms = bandit.arms_of(operation.ids)
            data = {"bandit": bandit.name, "arms": arms, "t": now}
            return Change(Kind.ARMS_REMOVED, None, data), bandit.without_arms(arms)
        except (ValueError, MemoryError) as error:
            raise _refusal(error) from None

    def _create(self, operation: CreateBandit, now: float) -> tuple[Change, Any]:
        name, ids = checked_name(operation.name), list(operation.ids)
        if name in self.bandits:
            raise Refusal(409, "exists", f"name must be new, got {name!r}, which exists")
        _check_ids(ids, len(operation.features))
        policy = operation.config.build(operation.features)
        config = operation.config.recorded(policy)
        data = {"bandit": name, "config": config.to_json(), "ids": ids, "t": now}
        return Change(Kind.BANDIT, None, data, operation.features), policy

    # Applying.

    def apply(self, records: Iterable[tuple[int, Change]], built: Any = None) -> None:
        """Change what logged changes say, in their order; ``built`` is the policy that `plan_operation` made."""
        rewards: dict[str, list[Change]] = {}
        for seq, change in records:
            bandit = self.bandits.get(change.data["bandit"])
            if change.kind in (Kind.REWARD, Kind.DEFAULT):
                assert bandit is not None
                bandit.counted(change)
                rewards.setdefault(change.data["bandit"], []).append(change)
                continue
            if change.kind == Kind.DECISION:
                assert bandit is not None
                bandit.decided(change.data, seq)
                self.next_number = max(self.next_number, change.data["n"] + len(change.data["arms"]))
                continue
            self._book(rewards)
            self._operate(bandit, change, built)
        self._book(rewards)

    def _book(self, rewards: dict[str, list[Change]]) -> None:
        for name, changes in rewards.items():
            self.bandits[name].rewarded(changes)
        rewards.clear()

    def _operate(self, bandit: Bandit | None, change: Change, built: Any) -> None:
        data, features = change.data, change.features
        if change.kind == Kind.BANDIT:
            assert features is not None
            config = BanditConfig.from_json(data["config"])
            policy = built or config.build(features)
            new = Bandit(data["bandit"], config, policy, data["ids"], created=data["t"])
            new.origin = origin_of(features, data["ids"])
            self.bandits[new.name] = new
            return
        assert bandit is not None
        if change.kind == Kind.ARMS_ADDED:
            assert features is not None
            bandit.renew(built or bandit.with_arms(features), data["ids"])
        else:
            bandit.renew(built or bandit.without_arms(data["arms"]))

    def replay(self, records: Iterable[Record]) -> int:
        """Apply what a log holds; returns how many records."""
        count, batch = 0, list[tuple[int, Change]]()
        for record in records:
            features = features_of(record.body) if record.kind in (Kind.BANDIT, Kind.ARMS_ADDED) else None
            batch.append((record.seq, Change(record.kind, record.decision, parsed(record.body), features)))
            count += 1
            if len(batch) == _REPLAYED_TOGETHER:
                self.apply(batch)
                batch.clear()
        self.apply(batch)
        return count


def _refusal(error: Exception) -> Refusal:
    if isinstance(error, UnknownArm):
        return Refusal(404, "unknown_arm", str(error))
    return Refusal(422, "bad_value", str(error) or "arms and policy must fit into memory")


def _number(decision_id: str) -> int | None:
    found = _ID.fullmatch(decision_id)
    return int(found[1]) if found else None


def _choices(bandit: Bandit, count: int, available: list[int] | None, group: _Group) -> list[Choice]:
    """The next ``count`` choices of a bandit, with what this group has chosen so far among the pending ones."""
    name = bandit.name
    if name not in group.pending:
        group.pending[name] = bandit.pending()
    pending = group.pending[name]
    mask = None if available is None else bandit.mask_of(available)
    if bandit.config.exploration > 0.0:
        return bandit.explore(range(group.next_number, group.next_number + count), mask, pending)
    if mask is not None:
        return bandit.choose(count, mask, pending)
    if name not in group.ready:
        group.ready[name] = deque(bandit.choose(group.plain[name], None, pending))
    ready = group.ready[name]
    if len(ready) < count:  # a key whose first use was refused was not counted
        ready.extend(bandit.choose(count - len(ready), None, pending))
    return [ready.popleft() for _ in range(count)]


def _decision(
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
        raise Refusal(409, "key_reused", message)
    return _decisions(bandit, data, repeated=True)


def _booking(
    bandit: Bandit, decision_id: str, reward: float, facts: Facts, group: _Group, now: float
) -> tuple[str, Change | None]:
    """One reward: booked for the first time, known, in conflict with what is known, or of no decision there is."""
    number = _number(decision_id)
    waiting = bandit.waiting.get(number) if number is not None else None
    if number is not None and waiting is not None and decision_id.endswith(waiting.token):
        if number in group.rewards:
            return ("known" if group.rewards[number] == reward else "conflict"), None
        group.rewards[number] = reward
        return "accepted", _reward_change(bandit, Kind.REWARD, number, decision_id, reward, now)
    if number is None or number not in facts.outcomes:
        return "unknown", None
    booked = parsed(facts.outcomes[number][1])
    if booked["id"] != decision_id or booked["bandit"] != bandit.name:
        return "unknown", None
    return ("known" if booked["reward"] == reward else "conflict"), None


def _reward_change(bandit: Bandit, kind: Kind, number: int, decision_id: str, reward: float, now: float) -> Change:
    # + 0.0: a negative zero is not kept by every database.
    arm = bandit.waiting[number].arm
    data = {"bandit": bandit.name, "id": decision_id, "arm": arm, "reward": reward + 0.0, "t": now}
    return Change(kind, number, data)


def _add(bandit: Bandit, operation: AddArms, now: float) -> tuple[Change, Any]:
    ids = list(operation.ids)
    _check_ids(ids, len(operation.features))
    present = [arm_id for arm_id in ids if arm_id in bandit.index and bandit.policy.active[bandit.index[arm_id]]]
    if present:
        raise Refusal(409, "exists", f"arms must have new ids, got {present[0]!r}, which exists")
    policy = bandit.with_arms(operation.features)
    data = {"bandit": bandit.name, "ids": ids, "t": now}
    return Change(Kind.ARMS_ADDED, None, data, operation.features), policy


def _check_ids(ids: Sequence[str], rows: int) -> None:
    if len(ids) != rows or len(set(ids)) < rows:
        raise ValueError(f"arms must have one id each, all different, got {len(set(ids))} different for {rows} arms")
