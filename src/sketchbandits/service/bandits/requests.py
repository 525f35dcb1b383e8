"""What a ledger is asked: decisions and rewards, which come in groups, and operations, which come alone."""

from dataclasses import dataclass
from typing import Any

from sketchbandits.kernels.linalg import Floats
from sketchbandits.service.bandits.config import BanditConfig


class Refusal(Exception):
    """A request that cannot be met: an HTTP status, a word for programs, a sentence for people."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def internal() -> Refusal:
    """What is said of anything that nobody foresaw."""
    return Refusal(500, "internal", "something went wrong here; it is in the service's log")


@dataclass(frozen=True, slots=True)
class Decide:
    """Choose ``count`` arms; the same ``key`` gets the same answer."""

    bandit: str
    available: tuple[str, ...] | None = None
    key: str | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Reward:
    """Book the rewards of decisions: pairs of id and value."""

    bandit: str
    items: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class CreateBandit:
    """A new bandit with its arms."""

    name: str
    config: BanditConfig
    ids: tuple[str, ...]
    features: Floats


@dataclass(frozen=True, slots=True)
class AddArms:
    """More arms for a bandit."""

    bandit: str
    ids: tuple[str, ...]
    features: Floats


@dataclass(frozen=True, slots=True)
class RemoveArms:
    """Arms that are not to be played again."""

    bandit: str
    ids: tuple[str, ...]


Request = Decide | Reward
Operation = CreateBandit | AddArms | RemoveArms
Answer = dict[str, Any] | Refusal
