"""The decisions of one bandit, read from the records of a log, as the offline estimators take them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.offline.logged import EVERY_ARM, LoggedDecisions
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.service.log.events import Kind, Record, features_of, parsed


class BanditLog(NamedTuple):
    """One bandit's part of a log: the configuration it was created with, every arm it ever had, its decisions."""

    config: dict[str, Any]
    ids: list[str]
    features: Floats
    decisions: LoggedDecisions


def read_bandit(records: Iterable[Record], bandit: str) -> BanditLog:
    """The decisions of the bandit with this name, from all records of a log in their order."""
    reader, others, end = _Reader(), set[str](), 0.0
    for record in records:
        data = parsed(record.body)
        end = data["t"]
        if data.get("bandit") == bandit:
            if record.kind == Kind.BANDIT:
                reader = _Reader()  # an earlier one of this name was deleted
            reader.read(record, data)
        elif record.kind == Kind.BANDIT:
            others.add(data["bandit"])
    if not reader.ids:
        known = ", ".join(map(repr, sorted(others))) or "none"
        raise ValueError(f"bandit must be one of the log's: {known}; got {bandit!r}")
    return reader.log(end)


@dataclass
class _Reader:
    """Gathers one bandit's records."""

    config: dict[str, Any] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)
    active: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    arms: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    index_of: dict[int, int] = field(default_factory=dict)  # a decision's number: its index in `arms`
    rewards: dict[int, float] = field(default_factory=dict)  # by index in `arms`
    retracted: set[int] = field(default_factory=set)  # indices in `arms`
    sets: dict[tuple[int, ...], int] = field(default_factory=dict)
    chosen_from: list[int] = field(default_factory=list)
    unrestricted: int | None = None  # the set of a decision that names none, until arms are added or removed

    def read(self, record: Record, data: dict[str, Any]) -> None:
        """Take one record of this bandit."""
        if record.kind == Kind.BANDIT:
            self.config = data["config"]
        if record.kind in (Kind.BANDIT, Kind.ARMS_ADDED):
            self.ids += data["ids"]
            self.features.append(features_of(record.body))
            self.active, self.unrestricted = np.append(self.active, np.ones(len(data["ids"]), np.bool_)), None
        elif record.kind == Kind.ARMS_REMOVED:
            self.active, self.unrestricted = self.active.copy(), None
            self.active[data["arms"]] = False
        elif record.kind == Kind.DECISION:
            self._decision(data)
        elif record.kind == Kind.RETRACTED:
            self.retracted.update(self.index_of[number] for number in data["numbers"])
        elif record.decision is not None:
            self.rewards[self.index_of[record.decision]] = data["reward"]

    def _decision(self, data: dict[str, Any]) -> None:
        chosen_from = self._set(data.get("available"))
        for i, (arm, probability) in enumerate(zip(data["arms"], data["p"], strict=True)):
            self.index_of[data["n"] + i] = len(self.arms)
            self.arms.append(arm)
            self.times.append(data["t"])
            self.probabilities.append(probability)
            self.chosen_from.append(chosen_from)

    def _set(self, available: list[int] | None) -> int:
        if available is None and self.unrestricted is not None:
            return self.unrestricted
        members = np.flatnonzero(self.active) if available is None else np.unique(available)
        index = self.sets.setdefault(tuple(members[self.active[members]].tolist()), len(self.sets))
        if available is None:
            self.unrestricted = index
        return index

    def log(self, end: float) -> BanditLog:
        """Everything read; ``end`` is the time of the log's last record.

        Where all arms were always available, no sets are left: such a log is played by compiled code.
        """
        chosen = np.array(self.chosen_from, np.int64)
        sets = [np.array(members, np.int64) for members in self.sets]
        complete = np.array([members.size == len(self.ids) for members in sets], np.bool_)
        chosen[complete[chosen]] = EVERY_ARM
        restricted = bool((chosen != EVERY_ARM).any())
        final = self._final(end)
        decisions = LoggedDecisions(
            arms=np.array(self.arms, np.int64),
            probabilities=np.array(self.probabilities),
            rewards=self._rewards(final),
            n_arms=len(self.ids),
            exploration=self.config["exploration"],
            sets=sets if restricted else (),
            chosen_from=chosen if restricted else None,
            final=final,
        )
        return BanditLog(self.config, self.ids, np.concatenate(self.features), decisions)

    def _final(self, end: float) -> Mask | None:
        """Which decisions were made at least one deadline before the log ended; None without a deadline.

        One whose reward was taken back never gets its true one.
        """
        deadline = self.config["deadline"]
        if deadline is None:
            return None
        final = np.array(self.times, np.float64) <= end - deadline
        final[list(self.retracted)] = False
        return final

    def _rewards(self, final: Mask | None) -> Floats:
        """The rewards; a decision past its deadline has the default that the service records when it next can."""
        rewards = np.full(len(self.arms), np.nan)
        rewards[list(self.rewards)] = list(self.rewards.values())
        rewards[list(self.retracted)] = np.nan
        if final is not None:
            rewards[final & np.isnan(rewards)] = self.config["default_reward"]
        return rewards
