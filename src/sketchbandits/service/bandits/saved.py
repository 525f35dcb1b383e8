"""A bandit as snapshots hold it: copied while the original goes on, written as JSON and read back.

The policy is saved in a file of its own, as `Policy.save` writes it.
"""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits.service.bandits.bandit import Bandit, Waiting
from sketchbandits.service.bandits.config import BanditConfig


def copy_of(bandit: Bandit) -> Bandit:
    """A copy that does not change while the bandit goes on."""
    copy = Bandit(bandit.name, bandit.config, bandit.policy.copy(), bandit.ids, created=bandit.created)
    copy.index, copy.waiting, copy.keys = bandit.index.copy(), bandit.waiting.copy(), bandit.keys.copy()
    copy.minutes = {start: list(minute) for start, minute in bandit.minutes.items()}
    copy.origin, copy.reward_sum, copy.reward_sums = bandit.origin, bandit.reward_sum, bandit.reward_sums.copy()
    copy.decisions, copy.rewards, copy.defaults = bandit.decisions, bandit.rewards, bandit.defaults
    return copy


def to_json(bandit: Bandit) -> dict[str, Any]:
    """All but the policy."""
    return {
        "config": bandit.config.to_json(),
        "created": bandit.created,
        "origin": bandit.origin,
        "ids": bandit.ids,
        "index": bandit.index,
        "waiting": [[number, *waiting] for number, waiting in bandit.waiting.items()],
        "keys": bandit.keys,
        "reward_sums": bandit.reward_sums.tolist(),
        "totals": [bandit.decisions, bandit.rewards, bandit.defaults, bandit.reward_sum],
        "minutes": [[start, *minute] for start, minute in bandit.minutes.items()],
    }


def from_json(name: str, value: dict[str, Any], path: Path) -> Bandit:
    """What `to_json` made, with the policy that was saved at ``path``."""
    config = BanditConfig.from_json(value["config"])
    bandit = Bandit(name, config, config.policy_type.load(path), value["ids"], created=value["created"])
    bandit.origin, bandit.index, bandit.keys = value["origin"], value["index"], OrderedDict(value["keys"])
    bandit.waiting = OrderedDict((number, Waiting(*rest)) for number, *rest in value["waiting"])
    bandit.reward_sums = np.array(value["reward_sums"])
    bandit.decisions, bandit.rewards, bandit.defaults, bandit.reward_sum = value["totals"]
    bandit.minutes = {start: minute for start, *minute in value["minutes"]}
    return bandit
