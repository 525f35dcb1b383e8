"""A bandit as snapshots hold it: copied while the original goes on, written as JSON and read back.

The policy is saved in a file of its own, as `Policy.save` writes it.
"""

from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.policies.base import Policy
from sketchbandits.service.bandits.bandit import Bandit, Waiting
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.places import ArmPlaces
from sketchbandits.service.bandits.totals import Totals
from sketchbandits.service.log.events import Position


class FrozenBandit(NamedTuple):
    """A bandit as it was after the record that ``value`` names: its policy, and the rest as JSON can say it."""

    name: str
    policy: Policy
    value: dict[str, Any]


class Frozen(NamedTuple):
    """A ledger that does not change any more.

    Its bandits were copied one after the other: each contains all of its own records up to one between ``position``,
    where copying began, and ``until``. ``deleted``: as in `Ledger`.
    """

    position: Position
    until: Position
    next_number: int
    keys_required: bool
    deleted: dict[str, int]
    bandits: list[FrozenBandit]


def frozen_bandit(bandit: Bandit, seq: int) -> FrozenBandit:
    """A copy of a bandit to which all of its records up to ``seq`` were applied."""
    value = {
        "config": bandit.config.to_json(),
        "created": bandit.created,
        "since": seq,
        "numbers": [bandit.first_number, bandit.last_number],
        "ids": bandit.ids[:],
        "arm_at": None if bandit.places.arm_at is None else bandit.places.arm_at.tolist(),
        "waiting": [[number, *waiting] for number, waiting in bandit.waiting.items()],
        "keys": [[by, key, record] for by, own in bandit.keys.items() for key, record in own.items()],
        "retracted": sorted(bandit.retracted),
        "totals": bandit.totals.to_json(),
    }
    return FrozenBandit(bandit.name, bandit.policy.copy(), value)


def from_json(name: str, value: dict[str, Any], path: Path) -> Bandit:
    """What `frozen_bandit` made, with the policy that was saved at ``path``.

    A policy that an earlier version built from the same rewards by other rules is refused: the log alone decides, so
    that the bandit is the same whether or not there is a snapshot.
    """
    if BanditConfig.chose_otherwise(value["config"]):
        raise ValueError(f"bandit {name!r} is of an earlier version, whose multi-scale CS-LB chose otherwise")
    if "totals" in value and isinstance(value["totals"], list):
        value = _from_format_1(value, path)
    config = BanditConfig.from_json(value["config"])
    bandit = Bandit(name, config, config.policy_type.load(path), value["ids"], created=value["created"])
    bandit.since, bandit.retracted = value["since"], set(value["retracted"])
    bandit.first_number, bandit.last_number = value["numbers"]
    bandit.waiting = OrderedDict((number, Waiting(*rest)) for number, *rest in value["waiting"])
    for by, key, record in value["keys"]:
        bandit.keys.setdefault(by, OrderedDict())[key] = record
    bandit.totals = Totals.from_json(value["totals"], [waiting.arm for waiting in bandit.waiting.values()])
    if value["arm_at"] is not None:
        bandit.places = ArmPlaces(np.array(value["arm_at"], np.int64), len(bandit.ids))
        bandit.replace_policy(bandit.policy)
    return bandit


def _from_format_1(value: dict[str, Any], path: Path) -> dict[str, Any]:
    """What version 0.1.0 wrote, as it is written today; it copied all bandits at one record."""
    decisions, rewards, defaults, reward_sum = value["totals"]
    sums = value["reward_sums"]
    totals = {
        "numbers": [decisions, rewards, defaults, 0, reward_sum],
        "minutes": value["minutes"],
        "sums": sums,
        "left_out": [0.0] * len(sums),
        "counts": BanditConfig.from_json(value["config"]).policy_type.load(path).counts.tolist(),
    }
    keys = [["", key, record] for key, record in value["keys"].items()]
    return value | {"totals": totals, "keys": keys, "since": 0, "numbers": [0, 0], "arm_at": None, "retracted": []}
