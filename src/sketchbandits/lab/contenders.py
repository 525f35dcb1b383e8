"""Policies by name, as the command line takes them, and how each always looks.

cslb                                 a policy with the experiment's parameters
cslb:sketch_size=8,radius=logdet     the same with two of its own
cslb:sketch_size=8,oful,ucb1         three policies: a piece with "=" belongs to the policy before it
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies import CBRAP, CBSCFD, CSLB, OFUL, SOFUL, UCB1, DBSLinUCB, LinTS, LinUCB, MultiscaleCSLB
from sketchbandits.policies.base import Policy


class Kind(NamedTuple):
    """A policy class, its name in text and figures, its colour, its line, and what it is not told but chooses."""

    policy: type[Policy]
    label: str
    colour: str
    line: str = "-"
    chooses: tuple[str, ...] = ()


# Okabe and Ito's colours, told apart by colour-blind readers; those that the paper does not play have others.
KINDS = {
    "cslb": Kind(CSLB, "CS-LB", "#0072B2"),
    "oful": Kind(OFUL, "OFUL", "#D55E00"),
    "soful": Kind(SOFUL, "SOFUL", "#CC79A7", "-."),
    "cbscfd": Kind(CBSCFD, "CBSCFD", "#009E73", "-."),
    "ucb1": Kind(UCB1, "UCB1", "#000000"),
    "linucb": Kind(LinUCB, "LinUCB", "#56B4E9"),
    "lints": Kind(LinTS, "LinTS", "#E69F00"),
    "dbslinucb": Kind(DBSLinUCB, "DBSLinUCB", "#882255", "-."),
    "cbrap": Kind(CBRAP, "CBRAP", "#999999", ":"),
    "multiscale": Kind(MultiscaleCSLB, "multi-scale", "#B01030", chooses=("ridge",)),
}


@dataclass(frozen=True, order=True)
class Contender:
    """A policy's name and the parameters that differ from the experiment's, in order of their names."""

    kind: str
    options: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Contender":
        """Read ``name:option=value,option=value``; anything not allowed raises ``ValueError`` naming ``policies``."""
        name, *rest = text.strip().split(":", 1)
        kind = re.sub("[-_ ]", "", name.lower())  # CS-LB is cslb
        if kind not in KINDS:
            raise ValueError(f"policies must be some of {', '.join(KINDS)} (or all), got {name!r}")
        given = [_option(text, kind, piece) for piece in rest[0].split(",")] if rest else []
        if len(dict(given)) < len(given):
            raise ValueError(f"policies must be given each option once, got {text!r}")
        return cls(kind, tuple(sorted(given)))

    @classmethod
    def of(cls, kind: str, options: Mapping[str, Any]) -> "Contender":
        """A policy of one of `KINDS` with options as values, none of them read from text."""
        for name in options:
            if name not in _parameters(kind):
                raise ValueError(f"options must be among {', '.join(_parameters(kind))} for {kind}, got {name!r}")
        return cls(kind, tuple(sorted(options.items())))

    def __str__(self) -> str:
        options = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.kind}:{options}" if options else self.kind

    @property
    def label(self) -> str:
        """The name that figures and tables show."""
        options = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in self.options)
        return f"{KINDS[self.kind].label} ({options})" if options else KINDS[self.kind].label

    @property
    def colour(self) -> str:
        """The policy's colour, whatever its options."""
        return KINDS[self.kind].colour

    @property
    def line(self) -> str:
        """A Matplotlib line style: one of its own for a policy with options."""
        return "--" if self.options else KINDS[self.kind].line

    def build(self, arms: Floats, parameters: Mapping[str, Any], seed: Any) -> Policy:
        """The policy on ``arms``: of ``parameters`` it takes those it has; its own options come first."""
        accepted = set(_parameters(self.kind)) - set(KINDS[self.kind].chooses)
        given = {name: value for name, value in parameters.items() if name in accepted}
        try:
            return KINDS[self.kind].policy(arms, **{**given, **dict(self.options), "seed": seed})
        except TypeError as error:  # a required one is missing
            raise ValueError(f"policies must have all their parameters, got {str(self)!r}: {error}") from None


def parse_policies(text: str, every: Sequence[str] = tuple(KINDS)) -> tuple[Contender, ...]:
    """All policies of a comma-separated list; ``all`` stands for one of each kind."""
    if text.strip() == "all":
        return tuple(Contender(kind) for kind in every)
    pieces: list[str] = []
    for piece in text.split(","):
        if "=" in piece and ":" not in piece and pieces:
            pieces[-1] += f",{piece}"
        else:
            pieces.append(piece)
    contenders = tuple(map(Contender.parse, pieces))
    if len(set(contenders)) < len(contenders):
        raise ValueError(f"policies must be named once each, got {text!r}")
    return contenders


def _parameters(kind: str) -> list[str]:
    """The keywords that a policy takes, its seed aside."""
    return [name for name in inspect.signature(KINDS[kind].policy).parameters if name not in ("arms", "seed")]


def _option(text: str, kind: str, piece: str) -> tuple[str, Any]:
    name, equals, value = (part.strip() for part in piece.partition("="))
    if not equals or name not in _parameters(kind):
        allowed = ", ".join(_parameters(kind))
        raise ValueError(f"policies must be name:option=value with options of {kind}: {allowed}; got {text!r}")
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
