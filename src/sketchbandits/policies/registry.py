"""Policies by name: which classes there are, reading ``name:option=value``, and building.

cslb                                 a policy with the parameters that an experiment shares
cslb:sketch_size=8,radius=logdet     the same with two options of its own
cslb:sketch_size=8,oful,ucb1         three policies: a piece with "=" belongs to the policy before it
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.base import Policy
from sketchbandits.policies.cbrap import CBRAP
from sketchbandits.policies.cbscfd import CBSCFD
from sketchbandits.policies.cslb.policy import CSLB
from sketchbandits.policies.dbslinucb import DBSLinUCB
from sketchbandits.policies.hybrid.half_life import half_life_of
from sketchbandits.policies.hybrid.policy import HybridCSLB
from sketchbandits.policies.lints import LinTS
from sketchbandits.policies.linucb import LinUCB
from sketchbandits.policies.multiscale.policy import MultiscaleCSLB
from sketchbandits.policies.oful import OFUL
from sketchbandits.policies.soful import SOFUL
from sketchbandits.policies.ucb1 import UCB1


class RegisteredPolicy(NamedTuple):
    """A policy class, its name in text and figures, and the parameters that it chooses itself.

    ``chooses``: parameters that an experiment shares between policies but does not pass to this one, because its own
    choice is better. They can still be given as an option of the policy.
    ``only_in_python``: parameters whose values, or the calls that they change, cannot be written as text.
    """

    policy: type[Policy]
    label: str
    chooses: tuple[str, ...] = ()
    only_in_python: tuple[str, ...] = ()


POLICIES = {
    "cslb": RegisteredPolicy(CSLB, "CS-LB"),
    "oful": RegisteredPolicy(OFUL, "OFUL"),
    "soful": RegisteredPolicy(SOFUL, "SOFUL"),
    "cbscfd": RegisteredPolicy(CBSCFD, "CBSCFD"),
    "ucb1": RegisteredPolicy(UCB1, "UCB1"),
    "linucb": RegisteredPolicy(LinUCB, "LinUCB"),
    "lints": RegisteredPolicy(LinTS, "LinTS"),
    "dbslinucb": RegisteredPolicy(DBSLinUCB, "DBSLinUCB"),
    "cbrap": RegisteredPolicy(CBRAP, "CBRAP"),
    "multiscale": RegisteredPolicy(MultiscaleCSLB, "multi-scale", chooses=("ridge", "sketch_size")),
    "hybrid": RegisteredPolicy(
        HybridCSLB,
        "hybrid",
        chooses=("ridge", "noise", "delta", "theta_norm", "sketch_size"),  # it learns what it needs of them
        only_in_python=("context_dim", "feature_dim", "max_arms", "context_features", "arm_features"),
    ),
}


@dataclass(frozen=True, order=True)
class PolicySpec:
    """The name of a registered policy and its own options, sorted by name."""

    name: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "PolicySpec":
        """Read ``name:option=value,option=value``; anything not allowed raises ``ValueError`` naming ``policies``."""
        given_name, *rest = text.strip().split(":", 1)
        name = re.sub("[-_ ]", "", given_name.lower())  # CS-LB is cslb
        if name not in POLICIES:
            raise ValueError(f"policies must be some of {', '.join(POLICIES)} (or all), got {given_name!r}")
        options = [_option(text, name, piece) for piece in rest[0].split(",")] if rest else []
        if len(dict(options)) < len(options):
            raise ValueError(f"policies must be given each option once, got {text!r}")
        return cls(name, tuple(sorted(options)))

    @classmethod
    def of(cls, name: str, options: Mapping[str, Any]) -> "PolicySpec":
        """A registered policy with options that are values already, not text to be parsed."""
        for option in options:
            _check_text("options", name, option)
            if option not in _parameters(name):
                raise ValueError(f"options must be among {', '.join(_parameters(name))} for {name}, got {option!r}")
        return cls(name, tuple(sorted(options.items())))

    def __str__(self) -> str:
        options = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.name}:{options}" if options else self.name

    @property
    def policy_type(self) -> type[Policy]:
        """The class that `build` makes."""
        return POLICIES[self.name].policy

    @property
    def label(self) -> str:
        """The name that figures and tables show."""
        label = POLICIES[self.name].label
        options = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.options)
        return f"{label} ({options})" if options else label

    def build(self, arms: Floats, parameters: Mapping[str, Any], seed: Any) -> Policy:
        """The policy on ``arms``; of the shared ``parameters`` it takes those it has, and its own options override."""
        accepted = set(_parameters(self.name)) - set(POLICIES[self.name].chooses)
        given = {name: value for name, value in parameters.items() if name in accepted}
        if half_life_of(half_life := dict(self.options).get("half_life")).timed:
            rule = "a whole number of rewards or auto: a time needs at=... with every call, in Python"
            raise ValueError(f"half_life must be {rule}, got {half_life!r}")
        try:
            return self.policy_type(arms, **{**given, **dict(self.options), "seed": seed})
        except TypeError as error:  # a required parameter is missing
            raise ValueError(f"policies must have all their parameters, got {str(self)!r}: {error}") from None


def parse_policies(text: str, every: Sequence[str] = tuple(POLICIES)) -> tuple[PolicySpec, ...]:
    """All policies of a comma-separated list; ``all`` stands for each name in ``every``, without options."""
    if text.strip() == "all":
        return tuple(PolicySpec(name) for name in every)
    pieces: list[str] = []
    for piece in text.split(","):
        if "=" in piece and ":" not in piece and pieces:
            pieces[-1] += f",{piece}"
        else:
            pieces.append(piece)
    specs = tuple(map(PolicySpec.parse, pieces))
    if len(set(specs)) < len(specs):
        raise ValueError(f"policies must be named once each, got {text!r}")
    return specs


def _parameters(name: str) -> list[str]:
    """The keywords of a policy's constructor that can be given as text, except its seed."""
    known, left_out = POLICIES[name], {"arms", "seed", *POLICIES[name].only_in_python}
    return [option for option in inspect.signature(known.policy).parameters if option not in left_out]


def _check_text(argument: str, policy: str, option: str) -> None:
    """Refuse an option that only Python can give."""
    if option in POLICIES[policy].only_in_python:
        cls = POLICIES[policy].policy.__name__
        raise ValueError(f"{argument} must leave out {option}, which is for {cls}(...) in Python only, got it")


def _option(text: str, policy: str, piece: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in piece.partition("="))
    _check_text("policies", policy, name)
    if not equals or name not in _parameters(policy):
        allowed = ", ".join(_parameters(policy))
        raise ValueError(f"policies must be name:option=value with options of {policy}: {allowed}; got {text!r}")
    return name, _value(value)


def _value(text: str) -> Any:
    """A whole number, a number, true, false, none or a word."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text
