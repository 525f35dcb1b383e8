"""Requests to a ledger: decisions and rewards, which are planned in groups, and operations, one at a time.

``by`` is the id of the API key that a request came with, None where no key is needed.
"""

from dataclasses import dataclass
from typing import Any

from sketchbandits.kernels.linalg import Floats
from sketchbandits.service.bandits.config import BanditConfig


class Refusal(Exception):
    """A request that cannot be met: a word for programs, a sentence for people. HTTP knows a status for each word."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class UnknownArm(ValueError):
    """An id that no arm of the bandit ever had."""


def refusal_of(error: Exception) -> Refusal:
    """The refusal of a request with a value that is not allowed."""
    if isinstance(error, UnknownArm):
        return Refusal("unknown_arm", str(error))
    return Refusal("bad_value", str(error) or "arms and policy must fit into memory")


def internal() -> Refusal:
    """The answer to a request that an unforeseen error ended."""
    return Refusal("internal", "something went wrong here; it is in the service's log")


@dataclass(frozen=True, slots=True)
class Decide:
    """Choose ``count`` arms; the same ``key`` gets the same answer."""

    bandit: str
    available: tuple[str, ...] | None = None
    key: str | None = None
    count: int = 1
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Reward:
    """Record the rewards of decisions: pairs of id and value."""

    bandit: str
    items: tuple[tuple[str, float], ...]
    by: str | None = None


@dataclass(frozen=True, slots=True)
class CreateBandit:
    """A new bandit with its arms."""

    name: str
    config: BanditConfig
    ids: tuple[str, ...]
    features: Floats
    by: str | None = None


@dataclass(frozen=True, slots=True)
class AddArms:
    """More arms for a bandit."""

    bandit: str
    ids: tuple[str, ...]
    features: Floats
    by: str | None = None


@dataclass(frozen=True, slots=True)
class RemoveArms:
    """Arms that are not to be played again."""

    bandit: str
    ids: tuple[str, ...]
    by: str | None = None


@dataclass(frozen=True, slots=True)
class FreeArms:
    """Give back the memory of removed arms whose decisions are all rewarded."""

    bandit: str
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Retract:
    """Take back the rewards of decisions, so that the policy has never learned them."""

    bandit: str
    decision_ids: tuple[str, ...]
    by: str | None = None


@dataclass(frozen=True, slots=True)
class DeleteBandit:
    """Forget a bandit; the log keeps what happened."""

    bandit: str
    by: str | None = None


Request = Decide | Reward
Operation = CreateBandit | AddArms | RemoveArms | FreeArms | Retract | DeleteBandit
Answer = dict[str, Any] | Refusal


def bandit_of(request: Request | Operation) -> str:
    """The name of the bandit that a request is for."""
    return request.name if isinstance(request, CreateBandit) else request.bandit
