"""One bandit: a policy, the names of its arms, and the decisions that still wait for a reward.

Choosing has no side effects; what changes a bandit is called only after the change was logged. Recovery applies the
same changes in the same order, so the bandit it arrives at is bit-for-bit identical.
"""

import hashlib
import itertools
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.base import Policy
from sketchbandits.policies.changing_arms import ChangingArms
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.requests import UnknownArm
from sketchbandits.service.log.events import Kind

KEYS_KEPT = 100_000  # idempotency keys, the latest
MINUTES_KEPT = 1_440


class Waiting(NamedTuple):
    """A decision without a reward."""

    arm: int
    token: str
    time: float


class Choice(NamedTuple):
    """An arm, the probability with which it was chosen, and its upper confidence bound, none where infinite."""

    arm: int
    probability: float
    bound: float | None


class Bandit:
    """A policy with the names of its arms, its outstanding decisions and its totals."""

    def __init__(self, name: str, config: BanditConfig, policy: Policy, ids: Iterable[str], *, created: float) -> None:
        self.name, self.config, self.policy, self.created = name, config, policy, created
        self.most_pending = config.pending_limit(policy)
        self.ids = list(ids)
        self.index = {arm_id: i for i, arm_id in enumerate(self.ids)}
        self.origin = ""  # a digest of the arms it was created with
        # An ordered dictionary finds its oldest entry in constant time, however many before it were removed.
        self.waiting: OrderedDict[int, Waiting] = OrderedDict()
        self.keys: OrderedDict[str, int] = OrderedDict()  # idempotency key -> number of the record with its decision
        self.decisions = self.rewards = self.defaults = 0
        self.reward_sum = 0.0
        self.minutes: dict[int, list[float]] = {}  # start -> decisions, rewards, their sum, defaults
        self.reward_sums = np.zeros(len(self.ids))  # per arm: not every policy keeps them
        self._bounds: Floats | None = None
        self._estimates: Floats | None = None
        self._active: NDArray[np.int64] | None = None

    # Reading.

    @property
    def bounds(self) -> Floats:
        """Every arm's upper confidence bound, computed once for each change."""
        if self._bounds is None:
            self._bounds = self.policy.bounds()
        return self._bounds

    @property
    def estimates(self) -> Floats:
        """The policy's estimate of every arm's mean reward."""
        if self._estimates is None:
            self._estimates = self.policy.estimates()
        return self._estimates

    @property
    def active(self) -> NDArray[np.int64]:
        """The arms that may be played."""
        if self._active is None:
            self._active = np.flatnonzero(self.policy.active)
        return self._active

    def finite_bound(self, arm: int) -> float | None:
        """An arm's bound as JSON can say it."""
        bound = float(self.bounds[arm])
        return bound if math.isfinite(bound) else None

    def pending(self) -> list[int]:
        """The arms of the latest outstanding decisions, oldest first."""
        latest = itertools.islice(reversed(self.waiting.values()), self.most_pending)
        return [waiting.arm for waiting in latest][::-1]

    def arms_of(self, available: Sequence[str]) -> list[int]:
        """Indices of arm ids; an id that no arm ever had is refused."""
        unknown = [arm_id for arm_id in available if arm_id not in self.index]
        if unknown:
            shown = ", ".join(map(repr, unknown[:5])) + (" ..." if len(unknown) > 5 else "")
            raise UnknownArm(f"arms must be ids that the bandit {self.name!r} has, got {shown}")
        return [self.index[arm_id] for arm_id in available]

    def overdue(self, now: float, most: int) -> list[int]:
        """The oldest decisions that are past the deadline, at most ``most``."""
        if self.config.deadline is None:
            return []
        latest = now - self.config.deadline
        late = itertools.takewhile(lambda item: item[1].time <= latest, self._past(now))
        return [number for number, _ in itertools.islice(late, most)]

    def next_deadline(self, now: float) -> float | None:
        """When the oldest outstanding decision falls due; none where nothing will."""
        oldest = next(self._past(now), None) if self.config.deadline is not None else None
        return None if oldest is None else oldest[1].time + (self.config.deadline or 0.0)

    def _past(self, now: float) -> Iterator[tuple[int, Waiting]]:
        """Outstanding decisions, oldest first; one of a clock that was ahead must not hold up those behind it."""
        return ((number, waiting) for number, waiting in self.waiting.items() if waiting.time <= now)

    # Choosing: no side effects.

    def mask_of(self, arms: Sequence[int]) -> Mask:
        """A mask of these arms, the form that policies check fastest."""
        mask = np.zeros(len(self.ids), np.bool_)
        mask[list(arms)] = True
        return mask

    def choose(self, count: int, available: Mask | None, pending: list[int]) -> list[Choice]:
        """The policy's own choices, in one compiled call; ``pending`` grows by the arms chosen."""
        if self.most_pending:
            arms = self.policy.select_many(count, available=available, pending=pending).tolist()
        else:
            arms = [self.policy.select(available=available)] * count
        pending += arms
        return [Choice(arm, 1.0, self.finite_bound(arm)) for arm in arms]

    def explore(self, numbers: Sequence[int], available: Mask | None, pending: list[int]) -> list[Choice]:
        """For each of these decisions the policy's own arm or, with the probability ``exploration``, any available."""
        among = self.active if available is None else np.flatnonzero(self.policy.active & available)
        return [self._explore(number, available, among, pending) for number in numbers]

    def _explore(self, number: int, available: Mask | None, among: Ints, pending: list[int]) -> Choice:
        """Whether to explore depends on the seed and the decision's number alone."""
        own, share = self.choose(1, available, pending)[0].arm, self.config.exploration
        coin, position = _two_uniforms(self.config.seed, number)
        arm = int(among[int(position * among.size)]) if coin < share else own
        pending[-1] = arm
        probability = share / among.size + (1.0 - share if arm == own else 0.0)
        return Choice(arm, probability, self.finite_bound(arm))

    # Changing: only after the change was logged.

    def decided(self, data: dict[str, Any], seq: int) -> None:
        """Decisions were made."""
        n, token, time = data["n"], data["token"], data["t"]
        for i, arm in enumerate(data["arms"]):
            self.waiting[n + i] = Waiting(arm, token, time)
        self.decisions += len(data["arms"])
        self._minute(time)[0] += len(data["arms"])
        if (key := data.get("key")) is not None:
            self.keys[key] = seq
            if len(self.keys) > KEYS_KEPT:
                self.keys.popitem(last=False)

    def rewarded(self, changes: Sequence[Change]) -> None:
        """Learn from rewards and default rewards in one compiled call; each was `counted` before."""
        for change in changes:
            assert change.decision is not None
            del self.waiting[change.decision]
        data = [change.data for change in changes]
        self.policy.update_many([entry["arm"] for entry in data], [entry["reward"] for entry in data])
        self._bounds = self._estimates = None

    def counted(self, change: Change) -> None:
        """Add a reward to the totals, in the order of the log."""
        minute, reward = self._minute(change.data["t"]), change.data["reward"]
        self.rewards += 1
        self.reward_sum += reward
        self.reward_sums[change.data["arm"]] += reward
        minute[1] += 1
        minute[2] += reward
        if change.kind == Kind.DEFAULT:
            self.defaults += 1
            minute[3] += 1

    def _minute(self, time: float) -> list[float]:
        start = int(time // 60) * 60
        if start not in self.minutes:
            # Called in the order of the log, live and in replay, so that both drop the same minutes.
            self.minutes = {kept: entry for kept, entry in self.minutes.items() if kept > start - MINUTES_KEPT * 60}
        return self.minutes.setdefault(start, [0, 0, 0.0, 0])

    def with_arms(self, features: Floats) -> Policy:
        """A copy of the policy with more arms; this bandit is unchanged until the change is logged."""
        copy = self._copy_for_change_of_arms()
        copy.add_arms(features)
        return copy

    def without_arms(self, arms: Sequence[int]) -> Policy:
        """A copy of the policy that never plays these arms again; this bandit is unchanged."""
        copy = self._copy_for_change_of_arms()
        copy.remove_arms(arms)
        return copy

    def _copy_for_change_of_arms(self) -> ChangingArms:
        if not isinstance(self.policy, ChangingArms):
            able = "multiscale, cslb with radius=logdet, oful, linucb or ucb1"
            raise ValueError(f"policy must be {able} for arms to come and go, got {self.config.policy!r}")
        return self.policy.copy()

    def replace_policy(self, policy: Policy, ids: Iterable[str] = ()) -> None:
        """Use the policy that `with_arms` or `without_arms` returned; ``ids`` are those of new arms."""
        for arm_id in ids:
            self.index[arm_id] = len(self.ids)
            self.ids.append(arm_id)
        self.reward_sums = np.concatenate([self.reward_sums, np.zeros(len(self.ids) - self.reward_sums.size)])
        self.policy, self._bounds, self._estimates, self._active = policy, None, None, None


def _two_uniforms(seed: int, number: int) -> tuple[float, float]:
    """Two numbers in [0, 1) that depend on nothing but the arguments."""
    key, message = (value.to_bytes(8, "little") for value in (seed, number))
    digest = hashlib.blake2b(message, key=key, digest_size=16).digest()
    first, second = (int.from_bytes(half, "little") >> 11 for half in (digest[:8], digest[8:]))
    return first / 2**53, second / 2**53


def digest_of(features: Floats, ids: Sequence[str]) -> str:
    """A digest of arms, by which a service recognises the file that a bandit was created from."""
    digest = hashlib.sha256(np.ascontiguousarray(features, "<f8").tobytes())
    digest.update("\0".join(ids).encode())
    return digest.hexdigest()
