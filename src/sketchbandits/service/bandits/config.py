"""The configuration of a bandit: its policy with all options, and the rules around it."""

import inspect
import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.base import Policy
from sketchbandits.policies.multiscale.policy import SKETCH_SIZE as MULTISCALE_SKETCH_SIZE
from sketchbandits.policies.registry import POLICIES, PolicySpec

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
LONGEST_DEADLINE = 366 * 86_400.0  # seconds
REWARD_RANGE = (0.0, 1.0)  # of a new bandit
PENDING = 1_000  # outstanding decisions that are passed to a policy that gains by them
MOST_PENDING = 100_000
SKETCH_SIZE = 5  # for policies whose class requires one and has no default: the paper's for its first data set
# Version 0.1.0 built every policy with this size unless one was given, and did not record it.
_UNRECORDED_SKETCH_SIZE = 5


@dataclass(frozen=True)
class BanditConfig:
    """A policy and the rules around it; checked on construction.

    ``policy``: its name in the registry; ``options``: its keywords, as far as they are given.
    ``exploration``: the probability with which an arm is drawn uniformly instead of chosen by the policy, so that other
    policies can be judged by the log.
    ``deadline``: seconds after which ``default_reward`` is recorded for a decision without a reward; None where rewards
    may come at any time.
    ``pending``: how many of the latest outstanding decisions are passed to the policy as pending; None for the
    policy's own default, which is `PENDING` if it gains by them and 0 if not.
    ``seed``: of the policy and of exploration.
    ``reward_range``: the least and the largest reward that is accepted; None for any. One reward of 1e12 by mistake
    would decide for one arm for ever.
    """

    policy: str = "multiscale"
    options: dict[str, Any] = field(default_factory=dict)
    exploration: float = 0.0
    deadline: float | None = None
    default_reward: float = 0.0
    pending: int | None = None
    seed: int = 0
    reward_range: tuple[float, float] | None = REWARD_RANGE

    def __post_init__(self) -> None:
        validate.option("policy", self.policy, POLICIES)
        PolicySpec.of(self.policy, self.options)
        if validate.number("exploration", self.exploration, least=0.0) > 1.0:
            raise ValueError(f"exploration must be a number from 0 to 1, got {self.exploration!r}")
        if self.deadline is not None and validate.positive("deadline", self.deadline) > LONGEST_DEADLINE:
            raise ValueError(f"deadline must be at most {LONGEST_DEADLINE:.0f} seconds, got {self.deadline!r}")
        validate.number("default_reward", self.default_reward)
        if self.pending is not None:
            validate.whole("pending", self.pending, least=0, most=MOST_PENDING)
        validate.whole("seed", self.seed, least=0, most=2**63 - 1)
        if self.reward_range is not None:
            self._check_range(*self.reward_range)

    def _check_range(self, least: float, largest: float) -> None:
        validate.number("reward_range", least)
        validate.number("reward_range", largest)
        if least >= largest:
            raise ValueError(f"reward_range must be two numbers, the smaller one first, got {least!r} and {largest!r}")
        if self.deadline is not None and not least <= self.default_reward <= largest:
            raise ValueError(
                f"default_reward must be within reward_range, {least!r} to {largest!r}, got {self.default_reward!r}"
            )

    def check_reward(self, reward: float) -> None:
        """Refuse a reward outside the range."""
        if self.reward_range is not None and not self.reward_range[0] <= reward <= self.reward_range[1]:
            least, largest = self.reward_range
            raise ValueError(f"reward must be from {least!r} to {largest!r}, the bandit's reward_range, got {reward!r}")

    def filled(self) -> "BanditConfig":
        """The same with every option of the policy: those that are not given at their defaults."""
        given = {name: value for name, value in self.options.items() if (name, value) != ("sketch_size", None)}
        return replace(self, options=_default_options(self.policy) | given)

    def build(self, arms: Floats) -> Policy:
        """The policy on these arms."""
        return PolicySpec.of(self.policy, self.filled().options).build(arms, {}, self.seed)

    def recorded(self, policy: Policy) -> "BanditConfig":
        """What the log records of a new bandit, nothing left to defaults; ``policy`` is what `build` returned."""
        return replace(self.filled(), pending=self.pending_limit(policy))

    def pending_limit(self, policy: Policy) -> int:
        """How many outstanding decisions are passed to the policy at most."""
        if self.pending is not None:
            return self.pending
        return PENDING if policy.pending_by_default else 0

    def allows(self, recorded: "BanditConfig") -> bool:
        """Whether an existing bandit, recorded like this, has these rules; what is not given is allowed to differ."""
        wanted = self if self.pending is not None else replace(self, pending=recorded.pending)
        if wanted.reward_range == REWARD_RANGE:  # not given; bandits of older versions have none
            wanted = replace(wanted, reward_range=recorded.reward_range)
        return recorded in (
            wanted.filled(),
            replace(wanted, options=_with_unrecorded_size(wanted.policy, self.options)),
        )

    @property
    def policy_type(self) -> type[Policy]:
        """The class that `build` makes."""
        return POLICIES[self.policy].policy

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes back."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "BanditConfig":
        """A configuration that a log or a snapshot holds."""
        limits = value.get("reward_range")
        value = {**value, "reward_range": None if limits is None else tuple(limits)}
        return cls(**{**value, "options": _with_unrecorded_size(value["policy"], value["options"])})


def _default_options(policy: str) -> dict[str, Any]:
    """Every option of a policy with its default; a partition is left out, since it cannot be given as JSON."""
    parameters = inspect.signature(POLICIES[policy].policy).parameters
    options = {
        name: parameter.default
        for name, parameter in parameters.items()
        if name not in ("arms", "seed", "partition", "sketch_size")
    }
    if "sketch_size" in parameters:
        options["sketch_size"] = MULTISCALE_SKETCH_SIZE if policy == "multiscale" else SKETCH_SIZE
    return options


def _with_unrecorded_size(policy: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options as version 0.1.0 used them; later versions record every option, so that nothing is added."""
    if "sketch_size" not in inspect.signature(POLICIES[policy].policy).parameters:
        return options
    return {"sketch_size": _UNRECORDED_SKETCH_SIZE} | options


def checked_name(name: str) -> str:
    """A bandit's name, which is also a file's."""
    if not NAME.fullmatch(name):
        allowed = "1 to 64 lower-case letters, digits, '-' and '_', beginning with a letter or digit"
        raise ValueError(f"bandit must be {allowed}, got {name!r}")
    return name
