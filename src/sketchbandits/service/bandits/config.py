"""What a bandit is told when it is created, and the policy made of it."""

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.base import Policy
from sketchbandits.policies.registry import POLICIES, PolicySpec

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
SKETCH_SIZE = 5  # of policies that have one and are not given it
LONGEST_DEADLINE = 366 * 86_400.0


@dataclass(frozen=True)
class BanditConfig:
    """A policy and the rules around it; checked on construction.

    ``exploration``: the probability with which an arm is drawn uniformly instead, so that a log can judge other
    policies. ``deadline``: seconds after which a decision without a reward is booked with ``default_reward``; none
    where rewards may come at any time. ``pending``: how many of the latest outstanding decisions count as pending.
    """

    policy: str = "multiscale"
    options: dict[str, Any] = field(default_factory=dict)
    exploration: float = 0.0
    deadline: float | None = None
    default_reward: float = 0.0
    pending: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        validate.option("policy", self.policy, POLICIES)
        self.spec()
        if validate.number("exploration", self.exploration, least=0.0) > 1.0:
            raise ValueError(f"exploration must be a number from 0 to 1, got {self.exploration!r}")
        if self.deadline is not None and validate.positive("deadline", self.deadline) > LONGEST_DEADLINE:
            raise ValueError(f"deadline must be at most {LONGEST_DEADLINE:.0f} seconds, got {self.deadline!r}")
        validate.number("default_reward", self.default_reward)
        validate.whole("pending", self.pending, least=0, most=100_000)
        validate.whole("seed", self.seed, least=0, most=2**63 - 1)

    def spec(self) -> PolicySpec:
        """The policy by name, its options checked."""
        return PolicySpec.of(self.policy, self.options)

    def build(self, arms: Floats) -> Policy:
        """The policy on these arms."""
        return self.spec().build(arms, {"sketch_size": SKETCH_SIZE}, self.seed)

    @property
    def policy_type(self) -> type[Policy]:
        """The class that `build` makes."""
        return self.spec().policy_type

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "BanditConfig":
        """A configuration from a log or a request."""
        return cls(**value)


def checked_name(name: str) -> str:
    """A bandit's name, which is also a file's."""
    if not NAME.fullmatch(name):
        allowed = "1 to 64 lower-case letters, digits, '-' and '_', beginning with a letter or digit"
        raise ValueError(f"bandit must be {allowed}, got {name!r}")
    return name
