"""All bandits of a service, and how logged changes are applied to them.

The writer applies what it has just logged, recovery what it reads from the log: both call `Ledger.apply`, and nothing
else changes a ledger.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.base import Policy
from sketchbandits.service.bandits.bandit import Bandit, Shrunk
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.requests import Refusal
from sketchbandits.service.log.events import Kind, Record

_REPLAYED_TOGETHER = 4_096
_REWARDS = (Kind.REWARD, Kind.DEFAULT)

Built = Policy | Shrunk | None


class Ledger:
    """Bandits by name, the number that the next decision of any of them gets, and whether requests need keys."""

    def __init__(self) -> None:
        self.bandits: dict[str, Bandit] = {}
        self.next_number = 1
        self.keys_required = False
        # Bandits are copied for a snapshot one after the other: up to this record some may be unknown, deleted since.
        self.gaps_until = 0
        self.deleted: dict[str, int] = {}  # by name: the last number of a decision of the bandits that were deleted

    def bandit(self, name: str) -> Bandit:
        """The bandit, or a refusal."""
        if name not in self.bandits:
            known = ", ".join(map(repr, list(self.bandits)[:20])) or "none yet"
            raise Refusal("unknown_bandit", f"bandit must be one of {known}; got {name[:64]!r}")
        return self.bandits[name]

    def take_numbers(self, count: int) -> int:
        """The first of ``count`` numbers for decisions; bandits plan at the same time, and each group has its own."""
        first = self.next_number
        self.next_number += count
        return first

    def give_numbers_back(self, first: int, end: int) -> None:
        """The numbers from ``first`` up to ``end`` were not used; they are left out where others were taken since."""
        if self.next_number == end:
            self.next_number = first

    def apply(self, records: Iterable[tuple[int, Change]], built: Built = None) -> None:
        """Apply logged changes, each with the number of its record, in their order.

        ``built`` is what `plan_operation` has built already for the only change; replay builds it again.
        """
        for _ in self.applying(records, built):
            pass

    def applying(self, records: Iterable[tuple[int, Change]], built: Built = None) -> Iterator[None]:
        """`apply` in small steps. Rewards of a bandit are learned together, up to the next change of arms."""
        rewards: dict[str, list[Change]] = {}
        for seq, change in records:
            if change.kind == Kind.KEYS_REQUIRED:
                self.keys_required = True
                continue
            bandit = self.bandits.get(change.data["bandit"])
            if self._skips(seq, change, bandit):
                continue
            if bandit is not None and change.kind in _REWARDS:
                bandit.counted(change)
                rewards.setdefault(bandit.name, []).append(change)
            elif bandit is not None and change.kind == Kind.DECISION:
                bandit.decided(change.data, seq)
                end = change.data["n"] + len(change.data["arms"])
                if end > self.next_number:  # only in replay: numbers of a running service are taken before
                    self.next_number = end
            else:
                yield from self._learn(rewards)
                self._operate(change, built)
        yield from self._learn(rewards)

    def _skips(self, seq: int, change: Change, bandit: Bandit | None) -> bool:
        """Whether a snapshot contains a record already, or none of the bandit because it was deleted later."""
        if bandit is not None:
            return seq <= bandit.since
        return seq <= self.gaps_until and change.kind != Kind.BANDIT

    def _learn(self, rewards: dict[str, list[Change]]) -> Iterator[None]:
        for name, changes in rewards.items():
            yield from self.bandits[name].learning(changes)
        rewards.clear()

    def _operate(self, change: Change, built: Built) -> None:
        data, features, name = change.data, change.features, change.data["bandit"]
        policy = built if isinstance(built, Policy) else None
        if change.kind == Kind.BANDIT:
            assert features is not None
            self._create(data, features, policy)
        elif change.kind == Kind.BANDIT_DELETED:
            gone = self.bandits.pop(name)
            self.deleted[name] = max(gone.first_number, gone.last_number)
        elif change.kind == Kind.ARMS_ADDED:
            assert features is not None
            self.bandits[name].add_arms(policy or self.bandits[name].with_arms(features), data["ids"])
        elif change.kind == Kind.ARMS_REMOVED:
            self.bandits[name].replace_policy(policy or self.bandits[name].without_arms(data["arms"]))
        elif change.kind == Kind.ARMS_FREED:
            bandit = self.bandits[name]
            bandit.free_arms(built if isinstance(built, Shrunk) else bandit.without_memory_of(data["arms"]))
        else:
            self.bandits[name].retract(data, policy)

    def _create(self, data: dict[str, Any], features: Floats, policy: Policy | None) -> None:
        config = BanditConfig.from_json(data["config"])
        new = Bandit(data["bandit"], config, policy or config.build(features), data["ids"], created=data["t"])
        new.first_number = self.deleted.get(new.name, 0)
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
