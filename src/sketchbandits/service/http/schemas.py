"""The JSON bodies and queries that the service takes; the OpenAPI document describes these models."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sketchbandits.policies.registry import POLICIES
from sketchbandits.service.bandits.config import LONGEST_DEADLINE, MOST_PENDING, NAME, PENDING, REWARD_RANGE
from sketchbandits.validate import LARGEST

BATCH = 1_000
FIELDS = 50  # of one object at most: a large body of unknown fields is refused before each is checked


def _not_text(value: Any) -> Any:
    """JSON has one kind of number, so 2.0 is accepted as a whole number; "2" and true are not."""
    if isinstance(value, bool | str):
        raise ValueError("must be a whole number")
    return value


Name = Annotated[str, Field(pattern=f"^{NAME.pattern}$", description="A bandit's name.")]
ArmId = Annotated[str, Field(min_length=1, max_length=200)]
DecisionId = Annotated[str, Field(min_length=1, max_length=64)]
Number = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=BATCH, strict=False), BeforeValidator(_not_text)]
Pending = Annotated[int, Field(ge=0, le=MOST_PENDING, strict=False), BeforeValidator(_not_text)]
Seed = Annotated[int, Field(ge=0, lt=2**63, strict=False), BeforeValidator(_not_text)]
Policy = Literal[
    "multiscale", "cslb", "oful", "linucb", "lints", "soful", "cbscfd", "dbslinucb", "cbrap", "ucb1", "hybrid"
]
assert set(Policy.__args__) == set(POLICIES)  # type: ignore[attr-defined]


class Body(BaseModel):
    """A body: unknown fields are refused, and so is text in place of a number."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class DecisionRequest(Body):
    """Ask for decisions."""

    bandit: Name = "default"
    available: Annotated[list[ArmId], Field(min_length=1, max_length=100_000, fail_fast=True)] | None = Field(
        None, description="The arms to choose from; all where left out."
    )
    key: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="A client's own key: the same key gets the same answer, however often it is sent."
    )
    count: Count = Field(1, description="How many, made before any of their rewards.")


class RewardItem(Body):
    """One reward."""

    decision_id: DecisionId
    reward: Number | bool = Field(description="A number; true counts as 1 and false as 0.")


class SingleReward(RewardItem):
    """One reward; its status is also the answer's."""

    bandit: Name = "default"


class ManyRewards(Body):
    """Many rewards."""

    bandit: Name = "default"
    rewards: Annotated[list[RewardItem], Field(min_length=1, max_length=BATCH, fail_fast=True)]


class Arm(Body):
    """An arm to add."""

    id: ArmId
    features: Annotated[list[Number], Field(min_length=1, max_length=100_000, fail_fast=True)]


class ArmsRequest(Body):
    """Arms to add."""

    bandit: Name = "default"
    arms: Annotated[list[Arm], Field(min_length=1, max_length=100_000, fail_fast=True)]


class RetractionRequest(Body):
    """Rewards to take back."""

    bandit: Name = "default"
    decision_ids: Annotated[list[DecisionId], Field(min_length=1, max_length=BATCH, fail_fast=True)]


class BanditRequest(Body):
    """A bandit to create."""

    name: Name
    policy: Policy = "multiscale"
    options: dict[str, bool | int | float | str | None] = Field({}, description="The policy's keywords.", max_length=50)
    exploration: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    deadline: Annotated[float, Field(ge=1e-3, le=LONGEST_DEADLINE)] | None = None
    default_reward: Number = 0.0
    pending: Pending | None = Field(
        None,
        description="How many of the latest outstanding decisions are passed to the policy as pending; where left out, "
        f"{PENDING:,} for a policy that gains by them and 0 for others.",
    )
    seed: Seed = 0
    reward_range: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = Field(
        list(REWARD_RANGE),
        description="The least and the largest reward that is accepted; null for any. One reward of a million by "
        "mistake would decide for one arm for ever.",
    )
    arms: Annotated[list[Arm], Field(min_length=1, max_length=100_000, fail_fast=True)]


class BanditQuery(BaseModel):
    """Which bandit."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bandit: Name = "default"


class NamedQuery(BaseModel):
    """Which bandit; nothing is deleted by default."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    bandit: Name


class ArmsQuery(BanditQuery):
    """Which arms, in which order."""

    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    offset: Annotated[int, Field(ge=0, le=10**9)] = 0
    sort: Literal["id", "pulls", "mean", "estimate", "bound"] = "bound"
    search: Annotated[str, Field(max_length=200)] = ""


class RemovalQuery(BanditQuery):
    """Which arms to remove."""

    id: Annotated[list[ArmId], Field(min_length=1, max_length=300, fail_fast=True)]


class PolicyQuery(BanditQuery):
    """How many clusters to show."""

    limit: Annotated[int, Field(ge=0, le=1_000)] = 100


class NoQuery(BaseModel):
    """Nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True)
