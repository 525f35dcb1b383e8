"""The JSON that the service answers with; the OpenAPI document describes these models."""

from typing import Any, Literal

from pydantic import Field

from sketchbandits.service.http.schemas import ArmId, Body, DecisionId, Name


class Decision(Body):
    """An arm to play; its reward is sent with the id of the decision."""

    decision_id: DecisionId
    arm: ArmId
    bound: float | None = Field(description="The arm's upper confidence bound; null where it is infinite.")
    probability: float = Field(description="With which the arm was chosen: 1 unless the bandit explores at random.")


class DecisionAnswer(Body):
    """Decisions, which are durable before they are sent."""

    bandit: Name
    decisions: list[Decision]
    repeated: bool = Field(description="Whether this key was answered before; this is that answer.")


class RewardResult(Body):
    """What became of a reward."""

    decision_id: DecisionId
    status: Literal["accepted", "known", "unknown", "conflict", "retracted"]


class RewardAnswer(Body):
    """accepted: recorded now; known: recorded before; conflict: another value is recorded; unknown: no decision;
    retracted: an administrator has taken this decision's reward back.
    """

    results: list[RewardResult]


class ArmsAdded(Body):
    """How many there are now."""

    bandit: Name
    added: int
    total: int


class ArmsRemoved(Body):
    """How many are left."""

    bandit: Name
    removed: int
    active: int


class ArmsFreed(Body):
    """How many arms were freed now, and what the policy's state takes since."""

    bandit: Name
    freed: int
    memory_bytes: int


class RetractionResult(Body):
    """What became of the wish to take back a reward."""

    decision_id: DecisionId
    status: Literal["retracted", "known", "waiting", "unknown"]


class RetractionAnswer(Body):
    """retracted: taken back now; known: taken back before; waiting: has no reward yet; unknown: no decision."""

    bandit: Name
    results: list[RetractionResult]


class BanditDeleted(Body):
    """The bandit is gone."""

    deleted: Name


class ArmEntry(Body):
    """The present numbers of an arm."""

    id: ArmId
    pulls: int = Field(description="Rewards recorded.")
    mean: float | None = Field(description="The mean of the arm's own rewards; null without any.")
    estimate: float | None = Field(description="The policy's estimate of the arm's mean reward, from all rewards.")
    bound: float | None = Field(description="The upper confidence bound; null where it is infinite.")
    active: bool
    pending: int = Field(description="Outstanding decisions.")


class ArmsAnswer(Body):
    """A page of arms."""

    bandit: Name
    total: int
    arms: list[ArmEntry]


class ViolationEntry(Body):
    """A parameter that looks too small for the rewards: the bounds may not hold."""

    parameter: Literal["noise", "theta_norm"]
    given: float
    seen: float | None = Field(description="The standard deviation of one arm's rewards; the least norm they imply.")
    suggestion: float | None = Field(description="A value that would fit.")


class Assumptions(Body):
    """What the rewards say of the policy's parameters; checked whenever their number has doubled."""

    noise: float | None = Field(description="As given; null for a policy without this parameter.")
    noise_seen: float | None = Field(description="The standard deviation of one arm's rewards; null where not known.")
    theta_norm: float | None = Field(description="As given; null for a policy without this parameter.")
    violated: list[ViolationEntry]


class BanditEntry(Body):
    """A bandit in numbers."""

    name: Name
    policy: str
    arms: int
    dimension: int
    decisions: int
    rewards: int
    outstanding: int
    defaults: int = Field(description="Default rewards recorded at deadlines.")
    retracted: int = Field(description="Rewards taken back.")
    mean_reward: float | None
    reward_range: list[float] | None = Field(description="Least and largest reward that is accepted; null for any.")
    memory_bytes: int = Field(description="Of the policy's state.")
    assumptions: Assumptions
    created: float


class BanditsAnswer(Body):
    """All bandits."""

    bandits: list[BanditEntry]


class Sentinel(Body):
    """The arm with a cluster's largest bound."""

    arm: ArmId
    bound: float | None


class Cluster(Body):
    """Arms that share a span."""

    cluster: int
    arms: int
    rank: int
    pulls: int
    sentinel: Sentinel


class Clusters(Body):
    """The clusters with the largest sentinels."""

    total: int
    shown: list[Cluster]


class PolicyAnswer(Body):
    """A policy's settings, memory and clusters."""

    bandit: Name
    policy: str
    settings: dict[str, Any]
    arms: int
    dimension: int
    rewards: int
    memory_bytes: int
    clusters: Clusters | None


class Minute(Body):
    """What happened in a minute."""

    time: int
    decisions: int
    rewards: int
    reward_sum: float
    defaults: int


class Latency(Body):
    """How long decisions and rewards took since the service began."""

    count: int
    p50_ms: float | None
    p99_ms: float | None
    p999_ms: float | None


class Queue(Body):
    """How many decisions and rewards wait."""

    waiting: int
    limit: int


class Log(Body):
    """The last record, the last snapshot, how often the log was cut back; and what the scrub has found.

    ``scrubbed``: records that were read again and verified since the service began; ``damaged``: those that were not
    what was written; ``refusing``: why nothing can be written now.
    """

    records: int
    snapshot: int
    cut: int
    scrubbed: int
    damaged: int
    refusing: str | None


class ActivityAnswer(Body):
    """The last day."""

    bandit: Name
    minutes: list[Minute]
    latency: Latency
    queue: Queue
    log: Log


class StatusAnswer(Body):
    """Whether the service lives or is ready, in one word."""

    status: str


class ErrorDetail(Body):
    """A word for programs, a sentence for people."""

    code: str
    message: str


class ErrorAnswer(Body):
    """Why a request was refused."""

    error: ErrorDetail
