"""Planning of what changes bandits, arms and recorded rewards. Each such operation is a group of its own."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sketchbandits.policies.base import Policy
from sketchbandits.service.bandits.bandit import Bandit, bytes_of
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.config import checked_name
from sketchbandits.service.bandits.ledger import Built, Ledger
from sketchbandits.service.bandits.planning import NO_FACTS, Facts, belongs, decision_number
from sketchbandits.service.bandits.requests import (
    AddArms,
    CreateBandit,
    DeleteBandit,
    FreeArms,
    Operation,
    Refusal,
    RemoveArms,
    Retract,
    refusal_of,
)
from sketchbandits.service.log.events import Kind, parsed


class Planned(NamedTuple):
    """The change to log, if there is any; what was built for `Ledger.apply`; and the answer."""

    change: Change | None
    built: Built
    answer: dict[str, Any]


def plan_operation(
    ledger: Ledger, operation: Operation, now: float, facts: Facts = NO_FACTS, policy: Policy | None = None
) -> Planned:
    """Check an operation by carrying it out on a copy; nothing changes. ``policy``: a new bandit's, if it is built."""
    try:
        if isinstance(operation, CreateBandit):
            check_new(ledger, operation)
            return _create(operation, now, policy or operation.config.build(operation.features))
        bandit = ledger.bandit(operation.bandit)
        data = {"bandit": bandit.name, "t": now} | _by(operation)
        match operation:
            case AddArms():
                return _add(bandit, operation, data)
            case RemoveArms():
                return _remove(bandit, operation, data)
            case FreeArms():
                return _free(bandit, data)
            case Retract():
                return _retract(bandit, operation, data, facts)
            case DeleteBandit():
                return Planned(Change(Kind.BANDIT_DELETED, None, data), None, {})
    except (ValueError, MemoryError) as error:
        raise refusal_of(error) from None


def _by(operation: Operation) -> dict[str, str]:
    return {} if operation.by is None else {"by": operation.by}


def check_new(ledger: Ledger, operation: CreateBandit) -> None:
    """Refuse a bandit whose name or ids cannot be, before anything is built."""
    name = checked_name(operation.name)
    if name in ledger.bandits:
        raise Refusal("exists", f"name must be new, got {name!r}, which exists")
    _check_ids(operation.ids, len(operation.features))


def _create(operation: CreateBandit, now: float, policy: Policy) -> Planned:
    config = operation.config.recorded(policy).to_json()
    data = {"bandit": operation.name, "config": config, "ids": list(operation.ids), "t": now} | _by(operation)
    return Planned(Change(Kind.BANDIT, None, data, operation.features), policy, {})


def _add(bandit: Bandit, operation: AddArms, data: dict[str, Any]) -> Planned:
    ids = list(operation.ids)
    _check_ids(ids, len(operation.features))
    active = set(bandit.active.tolist())
    present = [arm_id for arm_id in ids if bandit.index.get(arm_id) in active]
    if present:
        raise Refusal("exists", f"arms must have new ids, got {present[0]!r}, which exists")
    built = bandit.with_arms(operation.features)
    answer = {"added": len(ids), "total": len(active) + len(ids)}
    return Planned(Change(Kind.ARMS_ADDED, None, data | {"ids": ids}, operation.features), built, answer)


def _remove(bandit: Bandit, operation: RemoveArms, data: dict[str, Any]) -> Planned:
    arms = bandit.arms_of(operation.ids)
    built = bandit.without_arms(arms)
    left = int(built.active.sum())
    answer = {"removed": bandit.active.size - left, "active": left}
    return Planned(Change(Kind.ARMS_REMOVED, None, data | {"arms": arms}), built, answer)


def _free(bandit: Bandit, data: dict[str, Any]) -> Planned:
    arms = bandit.freeable()
    if not arms:
        return Planned(None, None, {"freed": 0, "memory_bytes": bandit.state_bytes})
    freed = bandit.without_memory_of(arms)
    answer = {"freed": len(arms), "memory_bytes": bytes_of(freed.policy)}
    return Planned(Change(Kind.ARMS_FREED, None, data | {"arms": arms}), freed, answer)


def _retract(bandit: Bandit, operation: Retract, data: dict[str, Any], facts: Facts) -> Planned:
    """What becomes of each reward, and one change for all that are taken back now."""
    results, entries = [], dict[int, dict[str, Any]]()
    for decision_id in operation.decision_ids:
        number = decision_number(decision_id)
        status = _standing(bandit, decision_id, number, facts)
        if status == "retracted" and number in entries:
            status = "known"
        elif status == "retracted":
            assert number is not None
            entries[number] = parsed(facts.outcomes[number][1])
        results.append({"decision_id": decision_id, "status": status})
    answer = {"results": results}
    if not entries:
        return Planned(None, None, answer)
    found = list(entries.values())
    arms, rewards = [entry["arm"] for entry in found], [entry["reward"] for entry in found]
    data |= {"numbers": list(entries), "ids": [entry["id"] for entry in found], "arms": arms, "rewards": rewards}
    return Planned(Change(Kind.RETRACTED, None, data), bandit.without_rewards(arms, rewards), answer)


def _standing(bandit: Bandit, decision_id: str, number: int | None, facts: Facts) -> str:
    """``retracted``: taken back now; ``known``: taken back before; ``waiting``: has no reward; ``unknown``."""
    if number is None:
        return "unknown"
    if (waiting := bandit.waiting.get(number)) is not None:
        return "waiting" if decision_id == f"{number}-{waiting.token}" else "unknown"
    recorded = facts.outcome(number)
    if recorded is None or not belongs(recorded, bandit, decision_id):
        return "unknown"
    return "known" if number in bandit.retracted else "retracted"


def _check_ids(ids: Sequence[str], rows: int) -> None:
    if len(ids) != rows or len(set(ids)) < rows:
        raise ValueError(f"arms must have one id each, all different, got {len(set(ids))} different for {rows} arms")
