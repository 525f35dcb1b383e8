"""All bandits of a service, and how logged changes are applied to them.

The writer applies what it has just logged, recovery what it reads from the log: both call `Ledger.apply`, and nothing
else changes a ledger.
"""

from collections.abc import Iterable

from sketchbandits.policies.base import Policy
from sketchbandits.service.bandits.bandit import Bandit, digest_of
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.requests import Refusal
from sketchbandits.service.log.events import Kind, Record

_REPLAYED_TOGETHER = 4_096


class Ledger:
    """Bandits by name, and the number that the next decision of any of them gets."""

    def __init__(self) -> None:
        self.bandits: dict[str, Bandit] = {}
        self.next_number = 1

    def bandit(self, name: str) -> Bandit:
        """The bandit, or a refusal."""
        if name not in self.bandits:
            known = ", ".join(map(repr, list(self.bandits)[:20])) or "none yet"
            raise Refusal("unknown_bandit", f"bandit must be one of {known}; got {name[:64]!r}")
        return self.bandits[name]

    def apply(self, records: Iterable[tuple[int, Change]], policy: Policy | None = None) -> None:
        """Apply logged changes, each with the number of its record, in their order.

        ``policy`` is the one that `plan_operation` has built already for the only change; replay builds it again.
        Rewards of a bandit are learned in one compiled call, up to the next change of arms.
        """
        rewards: dict[str, list[Change]] = {}
        for seq, change in records:
            if change.kind in (Kind.REWARD, Kind.DEFAULT):
                self.bandits[change.data["bandit"]].counted(change)
                rewards.setdefault(change.data["bandit"], []).append(change)
            elif change.kind == Kind.DECISION:
                self.bandits[change.data["bandit"]].decided(change.data, seq)
                self.next_number = max(self.next_number, change.data["n"] + len(change.data["arms"]))
            else:
                self._learn(rewards)
                self._operate(change, policy)
        self._learn(rewards)

    def _learn(self, rewards: dict[str, list[Change]]) -> None:
        for name, changes in rewards.items():
            self.bandits[name].rewarded(changes)
        rewards.clear()

    def _operate(self, change: Change, policy: Policy | None) -> None:
        data, features = change.data, change.features
        if change.kind == Kind.ARMS_REMOVED:
            bandit = self.bandits[data["bandit"]]
            bandit.replace_policy(policy or bandit.without_arms(data["arms"]))
            return
        assert features is not None
        if change.kind == Kind.ARMS_ADDED:
            bandit = self.bandits[data["bandit"]]
            bandit.replace_policy(policy or bandit.with_arms(features), data["ids"])
            return
        config = BanditConfig.from_json(data["config"])
        new = Bandit(data["bandit"], config, policy or config.build(features), data["ids"], created=data["t"])
        new.origin = digest_of(features, data["ids"])
        self.bandits[new.name] = new

    def replay(self, records: Iterable[Record]) -> int:
        """Apply what a log holds; returns how many records."""
        count, batch = 0, list[tuple[int, Change]]()
        for record in records:
            batch.append((record.seq, Change.from_record(record)))
            count += 1
            if len(batch) == _REPLAYED_TOGETHER:
                self.apply(batch)
                batch.clear()
        self.apply(batch)
        return count
