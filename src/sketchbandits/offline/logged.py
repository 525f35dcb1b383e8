"""The logged decisions of one bandit as arrays, and how they are read from the log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.service.log.events import Kind, Record, features_of, parsed

EVERY_ARM = -1  # in ``chosen_from``
_ROUNDING = 1e-9


@dataclass(frozen=True)
class LoggedDecisions:
    """Decisions in the order in which they were made; checked on construction.

    ``rewards``: NaN where none came. ``exploration``: the probability with which an arm was drawn uniformly from those
    available; with it every probability is ``exploration/n``, plus ``1 - exploration`` for the policy's own arm.
    ``sets`` are the different sets of arms that were to choose from, ``chosen_from[t]`` says which it was at decision
    t, `EVERY_ARM` for all ``n_arms``. ``deadline``: whether a decision without a reward is booked when one passes.
    """

    arms: Ints
    probabilities: Floats
    rewards: Floats
    n_arms: int
    exploration: float
    sets: Sequence[Ints] = ()
    chosen_from: Ints | None = None
    deadline: bool = False

    def __post_init__(self) -> None:
        validate.whole("n_arms", self.n_arms)
        if validate.number("exploration", self.exploration, least=0.0) > 1.0:
            raise ValueError(f"exploration must be a number from 0 to 1, got {self.exploration!r}")
        size = checked_arms(self.arms, self.n_arms).size
        for name in ("probabilities", "rewards", "chosen_from"):
            array = getattr(self, name)
            if array is not None and np.shape(array) != (size,):
                raise ValueError(f"{name} must have one entry for each of {size} decisions, got {np.shape(array)}")
        if not (np.isnan(self.rewards) | (np.abs(self.rewards) <= validate.LARGEST)).all():
            raise ValueError("rewards must be finite, or NaN where none came, got an infinite one")
        if self.chosen_from is not None:
            self._check_sets(self.chosen_from)
        self._check_probabilities()

    @cached_property
    def sizes(self) -> Ints:
        """How many arms each decision chose from."""
        if self.chosen_from is None:
            return np.full(self.arms.size, self.n_arms)
        return np.array([*map(len, self.sets), self.n_arms])[self.chosen_from]

    @cached_property
    def members(self) -> list[frozenset[int]]:
        """The sets, for questions of membership."""
        return [frozenset(chosen.tolist()) for chosen in self.sets]

    @property
    def first_missing(self) -> int:
        """The first decision without a reward."""
        missing = np.flatnonzero(np.isnan(self.rewards))
        return int(missing[0]) if missing.size else self.arms.size

    def _check_sets(self, chosen_from: Ints) -> None:
        if not ((chosen_from >= EVERY_ARM) & (chosen_from < len(self.sets))).all():
            raise ValueError(f"chosen_from must be from {EVERY_ARM} to {len(self.sets) - 1}, got one that is not")
        members = [
            checked_arms(chosen, self.n_arms, f"sets[{i}]") + i * self.n_arms for i, chosen in enumerate(self.sets)
        ]
        restricted = chosen_from != EVERY_ARM
        played = self.arms[restricted] + chosen_from[restricted] * self.n_arms
        outside = np.flatnonzero(~np.isin(played, np.concatenate([*members, np.zeros(0, np.int64)])))
        if outside.size:
            t = np.flatnonzero(restricted)[outside[0]]
            raise ValueError(f"arms must be among those available, got {self.arms[t]} at decision {t}, where it is not")

    def _check_probabilities(self) -> None:
        drawn = self.exploration / self.sizes
        own = drawn + (1.0 - self.exploration)
        matching = np.isclose(self.probabilities, drawn, rtol=_ROUNDING, atol=0.0)
        matching |= np.isclose(self.probabilities, own, rtol=_ROUNDING, atol=0.0)
        if not matching.all():
            t = int(np.argmin(matching))
            raise ValueError(
                f"probabilities must be {drawn[t]:g} or {own[t]:g} with exploration {self.exploration:g} among "
                f"{self.sizes[t]} arms, got {self.probabilities[t]:g} at decision {t}"
            )


class BanditLog(NamedTuple):
    """One bandit's part of a log: what it was created with, every arm it ever had, its decisions."""

    config: dict[str, Any]
    ids: list[str]
    features: Floats
    decisions: LoggedDecisions


@dataclass
class _Reader:
    """Gathers one bandit's records."""

    config: dict[str, Any] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    features: list[Floats] = field(default_factory=list)
    active: Mask = field(default_factory=lambda: np.zeros(0, np.bool_))
    arms: list[int] = field(default_factory=list)
    probabilities: list[float] = field(default_factory=list)
    place_of: dict[int, int] = field(default_factory=dict)  # number of a decision: its place
    rewards: dict[int, float] = field(default_factory=dict)  # by place
    sets: dict[tuple[int, ...], int] = field(default_factory=dict)
    chosen_from: list[int] = field(default_factory=list)
    unrestricted: int | None = None  # the set of a decision that names none, until arms come or go

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
        elif record.decision is not None:
            self.rewards[self.place_of[record.decision]] = data["reward"]

    def _decision(self, data: dict[str, Any]) -> None:
        chosen_from = self._set(data.get("available"))
        for i, (arm, probability) in enumerate(zip(data["arms"], data["p"], strict=True)):
            self.place_of[data["n"] + i] = len(self.arms)
            self.arms.append(arm)
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

    def log(self) -> BanditLog:
        """Everything read. Where all arms were always available, no sets are left: that is played compiled."""
        chosen = np.array(self.chosen_from, np.int64)
        sets = [np.array(members, np.int64) for members in self.sets]
        complete = np.array([members.size == len(self.ids) for members in sets], np.bool_)
        chosen[complete[chosen]] = EVERY_ARM
        restricted = bool((chosen != EVERY_ARM).any())
        rewards = np.full(len(self.arms), np.nan)
        rewards[list(self.rewards)] = list(self.rewards.values())
        decisions = LoggedDecisions(
            arms=np.array(self.arms, np.int64),
            probabilities=np.array(self.probabilities),
            rewards=rewards,
            n_arms=len(self.ids),
            exploration=self.config["exploration"],
            sets=sets if restricted else (),
            chosen_from=chosen if restricted else None,
            deadline=self.config["deadline"] is not None,
        )
        return BanditLog(self.config, self.ids, np.concatenate(self.features), decisions)


def read_bandit(records: Iterable[Record], bandit: str) -> BanditLog:
    """The decisions of the bandit with this name, from a log's records in their order."""
    reader, others = _Reader(), set[str]()
    for record in records:
        data = parsed(record.body)
        if data["bandit"] == bandit:
            reader.read(record, data)
        elif record.kind == Kind.BANDIT:
            others.add(data["bandit"])
    if not reader.ids:
        known = ", ".join(map(repr, sorted(others))) or "none"
        raise ValueError(f"bandit must be one of the log's: {known}; got {bandit!r}")
    return reader.log()
