"""Planning of what changes bandits and arms: a new bandit, arms added, arms removed. Each is a group of its own."""

from collections.abc import Sequence

from sketchbandits.policies.base import Policy
from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.config import checked_name
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.requests import AddArms, CreateBandit, Operation, Refusal, refusal_of
from sketchbandits.service.log.events import Kind


def plan_operation(ledger: Ledger, operation: Operation, now: float) -> tuple[Change, Policy]:
    """Check an operation by carrying it out on a copy; returns the change and the policy for `Ledger.apply`."""
    try:
        if isinstance(operation, CreateBandit):
            return _create(ledger, operation, now)
        bandit = ledger.bandit(operation.bandit)
        if isinstance(operation, AddArms):
            return _add(bandit, operation, now)
        arms = bandit.arms_of(operation.ids)
        data = {"bandit": bandit.name, "arms": arms, "t": now}
        return Change(Kind.ARMS_REMOVED, None, data), bandit.without_arms(arms)
    except (ValueError, MemoryError) as error:
        raise refusal_of(error) from None


def _create(ledger: Ledger, operation: CreateBandit, now: float) -> tuple[Change, Policy]:
    name, ids = checked_name(operation.name), list(operation.ids)
    if name in ledger.bandits:
        raise Refusal("exists", f"name must be new, got {name!r}, which exists")
    _check_ids(ids, len(operation.features))
    policy = operation.config.build(operation.features)
    data = {"bandit": name, "config": operation.config.recorded(policy).to_json(), "ids": ids, "t": now}
    return Change(Kind.BANDIT, None, data, operation.features), policy


def _add(bandit: Bandit, operation: AddArms, now: float) -> tuple[Change, Policy]:
    ids = list(operation.ids)
    _check_ids(ids, len(operation.features))
    present = [arm_id for arm_id in ids if arm_id in bandit.index and bandit.policy.active[bandit.index[arm_id]]]
    if present:
        raise Refusal("exists", f"arms must have new ids, got {present[0]!r}, which exists")
    data = {"bandit": bandit.name, "ids": ids, "t": now}
    return Change(Kind.ARMS_ADDED, None, data, operation.features), bandit.with_arms(operation.features)


def _check_ids(ids: Sequence[str], rows: int) -> None:
    if len(ids) != rows or len(set(ids)) < rows:
        raise ValueError(f"arms must have one id each, all different, got {len(set(ids))} different for {rows} arms")
