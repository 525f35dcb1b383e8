"""The configuration of a bandit: its policy with all options, and the rules around it."""

import inspect
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.base import Policy
from sketchbandits.policies.multiscale.policy import MOST_ARMS_TO_DRAW, MOST_WORK_TO_DRAW, default_size
from sketchbandits.policies.registry import POLICIES, PolicySpec

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
LONGEST_DEADLINE = 366 * 86_400.0  # seconds
REWARD_RANGE = (0.0, 1.0)  # of a new bandit
PENDING = 1_000  # outstanding decisions that are passed to a policy that gains by them
MOST_PENDING = 100_000
SKETCH_SIZE = 5  # for policies whose class requires one and has no default: the paper's for its first data set
DERIVED = ("sketch_size", "explore")  # options that multi-scale derives from its arms where they are not given
SIZED_BY_ARMS = ("multiscale", "hybrid")  # policies whose class has a default for the sketch size: None
# What earlier versions used where a record does not hold the option. Version 0.1.0 recorded what was given; later ones
# recorded every option that there was. All other options have the default that they had then.
_UNRECORDED = {"sketch_size": 5, "explore": "optimism", "budget": 2048}


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
        given = {name: value for name, value in self.options.items() if not (name in DERIVED and value is None)}
        return replace(self, options=_default_options(self.policy) | given)

    def build(self, arms: Floats) -> Policy:
        """The policy on these arms."""
        return PolicySpec.of(self.policy, self.filled().options).build(arms, {}, self.seed)

    def recorded(self, policy: Policy) -> "BanditConfig":
        """What the log records of a new bandit, nothing left to defaults; ``policy`` is what `build` returned.

        What was derived from the arms is recorded too: built anew with more arms, or by a later version, the policy
        keeps it. A budget of "auto" stays: it follows the arms.
        """
        filled = self.filled()
        derived = {name: policy.settings[name] for name in DERIVED if filled.options.get(name, "") is None}
        return replace(filled, options=filled.options | derived, pending=self.pending_limit(policy))

    def options_for(self, n_arms: int, dim: int) -> dict[str, Any]:
        """Every option that the policy will have on so many arms, as far as their number and dimension tell.

        A sketch size that is derived from the rank of the arms is at most this.
        """
        options = self.filled().options
        if self.policy == "hybrid":  # which clusters it has follows from the arms, again whenever there are more
            return options
        if options.get("sketch_size", "") is None:
            options["sketch_size"] = default_size(0 if options["budget"] == 0 else min(n_arms, dim))
        if options.get("explore", "") is None:
            large = n_arms > MOST_ARMS_TO_DRAW or n_arms * dim**2 > MOST_WORK_TO_DRAW
            options["explore"] = "optimism" if large else "randomised"
        return options

    def pending_limit(self, policy: Policy) -> int:
        """How many outstanding decisions are passed to the policy at most."""
        if self.pending is not None:
            return self.pending
        return PENDING if policy.pending_by_default else 0

    def differences(self, recorded: "BanditConfig") -> list[str]:
        """The rules of an existing bandit, recorded like this, that are not these; what is not given may differ."""
        if self.policy != recorded.policy:
            return [_difference("policy", recorded.policy, self.policy)]
        names = {each.name for each in fields(self)} - {"options"} - self._open_rules()
        rules = [(name, getattr(recorded, name), getattr(self, name)) for name in sorted(names)]
        had, wanted = recorded.filled().options, self.filled().options
        rules += [(name, had[name], value) for name, value in wanted.items() if not self._leaves_open(name, had[name])]
        return [_difference(*rule) for rule in rules if rule[1] != rule[2]]

    def _open_rules(self) -> set[str]:
        """Rules that are not given: bandits of earlier versions have other defaults."""
        given = {"pending": self.pending is not None, "reward_range": self.reward_range != REWARD_RANGE}
        return {name for name, is_given in given.items() if not is_given}

    def _leaves_open(self, option: str, value: Any) -> bool:
        """Whether an option is not given, and a bandit's ``value`` is derived from its arms or an earlier default."""
        return self.options.get(option) is None and (
            (option in DERIVED and self.filled().options[option] is None) or value == _UNRECORDED.get(option)
        )

    @property
    def policy_type(self) -> type[Policy]:
        """The class that `build` makes."""
        return POLICIES[self.policy].policy

    def to_json(self) -> dict[str, Any]:
        """What `from_json` takes back."""
        return asdict(self)

    @staticmethod
    def chose_otherwise(value: dict[str, Any]) -> bool:
        """Whether it was recorded by a version whose policy of that name made other choices of the same rewards."""
        return value["policy"] == "multiscale" and "explore" not in value["options"]

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "BanditConfig":
        """A configuration that a log or a snapshot holds."""
        limits = value.get("reward_range")
        value = {**value, "reward_range": None if limits is None else tuple(limits)}
        return cls(**{**value, "options": _with_unrecorded(value["policy"], value["options"])})


def _default_options(policy: str) -> dict[str, Any]:
    """Every option of a policy with its default; what cannot be given as JSON, such as a partition, is left out."""
    parameters = inspect.signature(POLICIES[policy].policy).parameters
    left_out = ("arms", "seed", "partition", *POLICIES[policy].only_in_python)
    options = {name: parameter.default for name, parameter in parameters.items() if name not in left_out}
    if "sketch_size" in options and policy not in SIZED_BY_ARMS:
        options["sketch_size"] = SKETCH_SIZE
    return options


def _with_unrecorded(policy: str, options: dict[str, Any]) -> dict[str, Any]:
    """Recorded options with those that the record leaves out, as the version that wrote it used them."""
    if policy == "hybrid":  # no version left any out
        return options
    known = inspect.signature(POLICIES[policy].policy).parameters
    return {name: value for name, value in _UNRECORDED.items() if name in known} | options


def _difference(name: str, recorded: Any, wanted: Any) -> str:
    return f"{name} = {recorded!r}, got {wanted!r}"


def checked_name(name: str) -> str:
    """A bandit's name, which is also a file's."""
    if not NAME.fullmatch(name):
        allowed = "1 to 64 lower-case letters, digits, '-' and '_', beginning with a letter or digit"
        raise ValueError(f"bandit must be {allowed}, got {name!r}")
    return name
