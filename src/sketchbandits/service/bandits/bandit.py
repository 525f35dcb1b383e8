"""One bandit: a policy, the names of its arms, and the decisions that still wait for a reward.

Choosing has no side effects; what changes a bandit is called only after the change was logged. Recovery applies the
same changes in the same order, so the bandit it arrives at is bit-for-bit identical.

Arms have the numbers of the log, in the order in which they came. Once the memory of removed arms has been freed, the
policy numbers those that it kept differently: `ArmPlaces` translates.
"""

import hashlib
import itertools
import logging
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits import snapshot
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.assumptions import Diagnostics, message
from sketchbandits.policies.base import Policy
from sketchbandits.policies.changing_arms import ChangingArms, TakesArms
from sketchbandits.policies.hybrid.policy import HybridCSLB
from sketchbandits.policies.pending.rule import Mask
from sketchbandits.service.bandits.changes import Change
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.places import FREED, ArmPlaces
from sketchbandits.service.bandits.requests import UnknownArm
from sketchbandits.service.bandits.retelling import retold
from sketchbandits.service.bandits.totals import Totals
from sketchbandits.service.log.events import Kind

logger = logging.getLogger("sketchbandits.service")

KEYS_KEPT = 100_000  # idempotency keys, the latest of each API key
# Removed arms whose memory is kept: their rewards can still be taken back.
MOST_REMOVED, REMOVED_PER_ARM = 1_000, 4
_FREEING_ARMS = "multiscale, cslb with radius=logdet, oful, linucb or ucb1"
_TAKING_ARMS = f"hybrid, {_FREEING_ARMS}"
# A step of planning or learning should take about a millisecond; what one takes grows with the number of arms and with
# the size of the policy's state.
_ARMS_PER_STEP, _BYTES_PER_STEP, _SHORT_STATE = 250_000, 1 << 26, 1 << 21


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


class Shrunk(NamedTuple):
    """A policy without the memory of some removed arms, and which of its former arms its present ones are."""

    policy: Policy
    kept: Ints


class Bandit:
    """A policy with the names of its arms, its outstanding decisions and its totals."""

    def __init__(self, name: str, config: BanditConfig, policy: Policy, ids: Iterable[str], *, created: float) -> None:
        self.name, self.config, self.created = name, config, created
        self.most_pending = config.pending_limit(policy)
        self.ids = list(ids)
        self.index = {arm_id: i for i, arm_id in enumerate(self.ids)}
        # Numbers of decisions: those of deleted bandits of this name end at the first, its own at the last.
        self.first_number = self.last_number = 0
        self.since = 0  # the record up to which the snapshot went that it was read from
        self.version = 0  # grows with every change, so that what was computed from a copy can be told from the present
        self.places = ArmPlaces()
        # An ordered dictionary finds its oldest entry in constant time, however many before it were removed.
        self.waiting: OrderedDict[int, Waiting] = OrderedDict()
        # By API key ("" for none): idempotency key -> number of the record with its decision.
        self.keys: dict[str, OrderedDict[str, int]] = {}
        self.retracted: set[int] = set()  # decisions whose reward was taken back
        self.unknown_rewards = 0  # rewards for decisions that do not exist, since the service began
        self.totals = Totals(len(self.ids))
        self._bounds: Floats | None = None
        self._reported: set[str] = set()  # parameters that were said to be too small
        self.replace_policy(policy)

    # Reading.

    @property
    def bounds(self) -> Floats:
        """The upper confidence bound of every arm that the policy has, computed once for each change."""
        if self._bounds is None:
            self._bounds = self.policy.bounds()
        return self._bounds

    @property
    def diagnosed(self) -> Diagnostics:
        """Whether the policy's assumptions fit its rewards, as of its last check."""
        return self.policy.diagnosed or self.policy.renew_diagnosis()

    def _report_assumptions(self) -> None:
        """Log once of each parameter that it looks too small."""
        for violation in self.diagnosed.violated:
            if violation.parameter not in self._reported:
                self._reported.add(violation.parameter)
                logger.warning("bandit %s: %s", self.name, message(violation))

    def finite_bound(self, arm: int) -> float | None:
        """An arm's bound as JSON can say it."""
        bound = float(self.bounds[self.places.of(arm)])
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

    def record_of(self, key: str | None, by: str | None) -> int | None:
        """The record with the decision that an idempotency key was answered with.

        Keys of a time without API keys, or of version 0.1.0, which did not record whose they were, are everybody's.
        """
        if key is None:
            return None
        found = (own.get(key) for own in (self.keys.get(by or ""), self.keys.get("")) if own is not None)
        return next((seq for seq in found if seq is not None), None)

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
        mask = np.zeros(self.policy.n_arms, np.bool_)
        mask[self.places.all_of(arms)] = True
        return mask

    def choose(self, count: int, available: Mask | None, pending: list[int]) -> list[Choice]:
        """The policy's own choices, in one compiled call; ``pending`` grows by the arms chosen."""
        if self.most_pending:
            waiting = self.places.all_of(pending)
            found = self.policy.select_many(count, available=available, pending=waiting).tolist()
        else:
            found = [self.policy.select(available=available)] * count
        arms = self.places.arms_at(found)
        pending += arms
        return [Choice(arm, 1.0, self.finite_bound(arm)) for arm in arms]

    def explore(self, number: int, available: Mask | None, pending: list[int]) -> Choice:
        """The policy's own arm or, with the probability ``exploration``, any available.

        Whether to explore depends on the seed and the decision's number alone.
        """
        among = self.active if available is None else self._active_of(available)
        own, share = self.choose(1, available, pending)[0].arm, self.config.exploration
        coin, position = _two_uniforms(self.config.seed, number)
        arm = int(among[int(position * among.size)]) if coin < share else own
        pending[-1] = arm
        probability = share / among.size + (1.0 - share if arm == own else 0.0)
        return Choice(arm, probability, self.finite_bound(arm))

    def _active_of(self, available: Mask) -> Ints:
        return np.array(self.places.arms_at(np.flatnonzero(self.policy.active & available).tolist()), np.int64)

    # Changing: only after the change was logged.

    def decided(self, data: dict[str, Any], seq: int) -> None:
        """Decisions were made."""
        n, token, time = data["n"], data["token"], data["t"]
        for i, arm in enumerate(data["arms"]):
            self.waiting[n + i] = Waiting(arm, token, time)
        self.last_number = n + len(data["arms"]) - 1
        self.totals.decided(data["arms"], time)
        if (key := data.get("key")) is not None:
            own = self.keys.setdefault(data.get("by", ""), OrderedDict())
            own[key] = seq
            if len(own) > KEYS_KEPT:
                own.popitem(last=False)
        self.version += 1

    def counted(self, change: Change) -> None:
        """Add a reward to the totals, in the order of the log."""
        data = change.data
        self.totals.rewarded(data["arm"], data["reward"], data["t"], default=change.kind == Kind.DEFAULT)

    def learning(self, changes: Sequence[Change]) -> Iterator[None]:
        """Learn from rewards and default rewards, a few in each compiled call; each was `counted` before."""
        for change in changes:
            assert change.decision is not None
            del self.waiting[change.decision]
        arms = self.places.all_of([change.data["arm"] for change in changes])
        rewards = [change.data["reward"] for change in changes]
        for start in range(0, len(changes), self.rewards_per_step):
            end = start + self.rewards_per_step
            self.policy.update_many(arms[start:end], rewards[start:end])
            yield
        self._bounds = None
        self.version += 1
        self._report_assumptions()

    def with_arms(self, features: Floats) -> Policy:
        """A copy of the policy with more arms; this bandit is unchanged until the change is logged."""
        self._check_changeable(TakesArms, "arms to come and go", _TAKING_ARMS)
        copy = self.policy.copy()
        assert isinstance(copy, TakesArms)
        copy.add_arms(features)
        return copy

    def without_arms(self, arms: Sequence[int]) -> Policy:
        """A copy of the policy that never plays these arms again; this bandit is unchanged."""
        self._check_changeable(TakesArms, "arms to come and go", _TAKING_ARMS)
        copy = self.policy.copy()
        assert isinstance(copy, TakesArms)
        copy.remove_arms(self.places.all_of(arms))
        return copy

    def _check_changeable(self, kind: type, what: str, able: str) -> None:
        if not isinstance(self.policy, kind):
            raise ValueError(f"policy must be {able} for {what}, got {self.config.policy!r}")

    def replace_policy(self, policy: Policy) -> None:
        """Use a policy whose arms have the same places, as `without_arms` returns it."""
        self.policy = policy
        policy.assumption_warnings = False  # a Python warning could become an error; `_report_assumptions` logs
        policy.renew_diagnosis()
        self._report_assumptions()
        self._bounds = None
        self.active: NDArray[np.int64] = np.array(self.places.arms_at(np.flatnonzero(policy.active).tolist()), np.int64)
        self.state_bytes = bytes_of(policy)
        self.short = self.state_bytes <= _SHORT_STATE
        self.choices_per_step = max(1, _ARMS_PER_STEP // policy.n_arms)
        self.rewards_per_step = max(1, _BYTES_PER_STEP // max(1, self.state_bytes))
        self.version += 1

    def add_arms(self, policy: Policy, ids: Sequence[str]) -> None:
        """Use the policy that `with_arms` returned; ``ids`` are those of the new arms."""
        self.places.append(len(self.ids), policy.n_arms, len(ids))
        for arm_id in ids:
            self.index[arm_id] = len(self.ids)
            self.ids.append(arm_id)
        self.totals.grow(len(self.ids))
        self.replace_policy(policy)

    @property
    def keeps_too_much(self) -> bool:
        """Whether the policy has so many more removed arms than others that their memory should be given back."""
        if not isinstance(self.policy, ChangingArms):
            return False
        return self.policy.n_arms - self.active.size > max(MOST_REMOVED, REMOVED_PER_ARM * self.active.size)

    def freeable(self) -> list[int]:
        """Removed arms whose memory the policy can give back: nothing more can be learned about them."""
        gone = np.ones(len(self.ids), np.bool_)
        gone[self.active] = False
        gone[self.totals.outstanding > 0] = False
        if self.places.place is not None:
            gone[self.places.place == FREED] = False
        arms: list[int] = np.flatnonzero(gone).tolist()
        return arms

    def without_memory_of(self, arms: Sequence[int]) -> "Shrunk":
        """A copy of the policy that has given back the memory of removed arms; what they taught stays."""
        self._check_changeable(ChangingArms, "the memory of removed arms to be freed", _FREEING_ARMS)
        policy = self.policy.copy()
        assert isinstance(policy, ChangingArms)
        return Shrunk(policy, policy.free_arms(self.places.all_of(arms)))

    def free_arms(self, shrunk: "Shrunk") -> None:
        """Use the policy that `without_memory_of` returned."""
        self.places.free(shrunk.kept, len(self.ids))
        self.replace_policy(shrunk.policy)

    def without_rewards(self, arms: Sequence[int], rewards: Sequence[float]) -> Policy:
        """A policy that never learned these rewards; this bandit is unchanged.

        It is built anew and learns, arm by arm, as many rewards as the arm has left, each of them their mean: for a fit
        to all arms that is the same statistic, up to rounding; a sketch depends on the order, too.
        How rewards scatter, which nobody can tell from means, is watched afresh. A policy that learns the noise is told
        rewards that scatter as those did (`retold`).
        """
        if self.places.arm_at is not None:
            raise ValueError(
                "decision_ids must belong to a bandit of which no arms were freed: what they taught was merged"
            )
        left = self.totals.copy()
        left.retract(arms, rewards)
        policy = self._grown_config().build(self.policy.arms)
        policy.assumption_warnings = False
        if gone := sorted(set(range(policy.n_arms)) - set(self.active.tolist())):
            assert isinstance(policy, TakesArms)
            policy.remove_arms(gone)
        if isinstance(self.policy, HybridCSLB):
            policy.update_many(*retold(self.policy, self.totals, left, arms, rewards))
            return policy
        means = np.divide(left.sums, left.counts, out=np.zeros(left.sums.size), where=left.counts > 0)
        for arm in np.flatnonzero(left.counts).tolist():
            count = left.counts.item(arm)
            policy.update_many(np.full(count, arm), np.full(count, means[arm]))
        policy.restart_watch()
        return policy

    def _grown_config(self) -> BanditConfig:
        """The configuration, with the norm of the longest arm: added ones may be longer than was allowed for."""
        given, largest = self.config.options.get("arm_norm"), float(np.linalg.norm(self.policy.arms, axis=1).max())
        if given is None or given >= largest:
            return self.config
        return replace(self.config, options=self.config.options | {"arm_norm": largest})

    def retract(self, data: dict[str, Any], policy: Policy | None) -> None:
        """Rewards were taken back; ``policy`` is what `without_rewards` has returned, if it is known."""
        built = policy or self.without_rewards(data["arms"], data["rewards"])
        self.totals.retract(data["arms"], data["rewards"])
        self.retracted.update(data["numbers"])
        self.replace_policy(built)


def bytes_of(policy: Policy) -> int:
    """The memory of a policy's state."""
    return sum(array.nbytes for _, array in snapshot.leaves(policy.state))


def _two_uniforms(seed: int, number: int) -> tuple[float, float]:
    """Two numbers in [0, 1) that depend on nothing but the arguments."""
    key, message = (value.to_bytes(8, "little") for value in (seed, number))
    digest = hashlib.blake2b(message, key=key, digest_size=16).digest()
    first, second = (int.from_bytes(half, "little") >> 11 for half in (digest[:8], digest[8:]))
    return first / 2**53, second / 2**53
