"""The only loop that plays a policy in an environment.

`simulate` keeps the environment and plays *copies* of the policies, each for the same rounds against the same noise
(a paired comparison): in round t of a run every policy receives the same noise value, and in a contextual environment
the same contexts. Runs are independent streams spawned from one seed.

There is one class per way to play; each has ``play(noise) -> (regret, seconds)``, which plays ``noise.size`` more
rounds. A library policy on fixed arms plays inside one compiled kernel, `Policy.play_rounds`. Any other object with
``select`` and ``update``, contexts and late rewards (`late_rewards`) are played one decision at a time, uncompiled.
"""

import copy
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.late_rewards import DelayLaw, Lateness, OutstandingRewards, check_lateness
from sketchbandits.policies.base import Policy
from sketchbandits.policies.contextual import ContextualPolicy
from sketchbandits.progress import Bar
from sketchbandits.results import Result
from sketchbandits.user_rounds import UserRounds

if TYPE_CHECKING:  # data sets and generators are loaded by those who use them
    from typing_extensions import TypeIs

    from sketchbandits.environments.protocol import (
        Environment,
        FixedArmsEnvironment,
        FreshArmsEnvironment,
        UsersEnvironment,
    )

CHUNK = 16_384  # rounds between two readings of the clock and two chances for Ctrl-C
N_CHECKPOINTS = 200


def simulate(
    env: "Environment",
    policies: Mapping[str, Any],
    *,
    rounds: int,
    runs: int = 1,
    seed: Any = 0,
    checkpoints: ArrayLike | None = None,
    progress: bool | Callable[[int], None] | None = None,
    after: Callable[[str, int, Any], None] | None = None,
    delay: DelayLaw | None = None,
    batch: int = 1,
    pending: bool | None = None,
) -> Result:
    """Play every policy for ``rounds`` rounds, ``runs`` times, and return a `sketchbandits.results.Result`.

    The policies passed in are not changed: every run plays copies. A policy that has already learned starts every run
    from what it knows. One that draws at random gets its own stream for each run, made from its own seed and ``seed``
    (CBRAP keeps its projection). BLAS uses one thread during the call.

    Parameters
    ----------
    env
        Where to play: an environment of `sketchbandits.environments`, or any object that follows its protocol.
    policies
        Name: policy. On fixed arms a policy needs ``select() -> int`` and ``update(arm, reward)``; in a contextual
        environment ``select(contexts) -> int`` and ``update(context, reward)``.
    rounds
        The number of decisions in a run.
    runs
        How often every policy is played. Runs differ in everything that is drawn; with two or more the result has
        confidence bands.
    seed
        A whole number, a ``SeedSequence``, a ``Generator`` or None. The same seed gives the same result, whichever
        other policies are played.
    checkpoints
        The rounds after which regret is kept; the last round always is. Default: 200, evenly spaced.
    progress
        True or False: show a bar with the time left, or not. None: show it if stderr is a terminal and the call takes
        longer than a second. A function is called from time to time with the number of rounds played since its last
        call.
    after
        A function called with (name, run, policy) at the end of each run; ``policy`` is the copy that played.
    delay
        Makes rewards late: a law of `sketchbandits.environments.delays`, or any object with its ``draw``. Regret
        counts every decision when it is taken; rewards that are outstanding at the end are dropped.
    batch
        How many decisions are taken together; none of their rewards arrives before the last of them is taken.
    pending
        Whether outstanding decisions are passed to a policy (`Policy.select_many`) when rewards are late. None, the
        default, takes what measurements favour for each policy (its ``pending_by_default``; False where a policy has
        none). True passes them to every policy, and is refused in a contextual environment. False passes none:
        a deterministic policy then repeats its choice until a reward arrives.

    """
    rounds, runs = validate.whole("rounds", rounds), validate.whole("runs", runs)
    points = _checkpoints(checkpoints, rounds)
    late = check_lateness(delay, batch, pending)
    _check_policies(env, policies, late)
    regret = {name: np.zeros((runs, points.size)) for name in policies}
    seconds = {name: np.zeros(runs) for name in policies}
    with one_blas_thread(), _Progress(progress, rounds * runs * len(policies)) as bar:
        for run, stream in enumerate(_streams(seed, runs)):
            seeds = _RunSeeds(*stream.spawn(4))
            for name, original in policies.items():
                policy = _copy(original, seeds.policy)
                player, noise = _player(env, policy, seeds, late), np.random.default_rng(seeds.noise)
                label = f"{name}, run {run + 1}"
                regret[name][run], seconds[name][run] = _curve(env, player, noise, points, bar, label)
                if after is not None:
                    after(name, run, policy)
    warmup = {name: float(getattr(policy, "warmup_seconds", 0.0)) for name, policy in policies.items()}
    return Result(points, regret, seconds, warmup, seed)


class _Progress:
    """Counts rounds, for a bar or for a user's function."""

    def __init__(self, wanted: bool | Callable[[int], None] | None, total: int) -> None:
        self.report = wanted if callable(wanted) else None
        self.bar = Bar(False if callable(wanted) else wanted)
        self.total, self.done = total, 0

    def advance(self, rounds: int, label: str) -> None:
        """Count ``rounds`` more rounds, played by the policy and run in ``label``."""
        self.done += rounds
        if self.report is not None:
            self.report(rounds)
        self.bar.show(self.done / self.total, label)

    def __enter__(self) -> Self:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.__exit__(*error)


class _RunSeeds(NamedTuple):
    """Independent streams of one run; every policy starts from the same ones."""

    noise: np.random.SeedSequence
    contexts: np.random.SeedSequence
    policy: np.random.SeedSequence
    delays: np.random.SeedSequence


class _Player(Protocol):
    """A policy in an environment."""

    def play(self, noise: Floats) -> tuple[float, float]:
        """Play ``noise.size`` more rounds; returns their regret and the seconds they took."""


def _curve(
    env: "Environment", player: _Player, noise: np.random.Generator, points: Ints, bar: _Progress, label: str
) -> tuple[Floats, float]:
    """Cumulative regret at each checkpoint, and the seconds spent playing."""
    curve = np.zeros(points.size)
    played, regret, seconds = 0, 0.0, 0.0
    for i, point in enumerate(points.tolist()):
        while played < point:
            size = min(CHUNK, point - played)
            more, spent = player.play(env.draw_noise(noise, size) if hasattr(env, "draw_noise") else np.zeros(size))
            played, regret, seconds = played + size, regret + more, seconds + spent
            bar.advance(size, label)
        curve[i] = regret
    return curve, seconds


class _Compiled:
    """A library policy on fixed arms: all rounds are played inside one kernel."""

    def __init__(self, env: "FixedArmsEnvironment", policy: Policy) -> None:
        self.env, self.policy = env, policy
        policy.play_rounds(env.means, env.gaps, np.zeros(0))  # compile, or load the compiled kernel, off the clock

    def play(self, noise: Floats) -> tuple[float, float]:
        """Play ``noise.size`` more rounds."""
        started = time.perf_counter()
        regret = self.policy.play_rounds(self.env.means, self.env.gaps, noise)
        return regret, time.perf_counter() - started


class _FixedArms:
    """Any object with ``select()`` and ``update(arm, reward)``."""

    def __init__(self, env: "FixedArmsEnvironment", policy: Any) -> None:
        self.policy = policy
        self.means, self.gaps = env.means.tolist(), env.gaps.tolist()
        if isinstance(policy, Policy):
            policy.copy().update(0, 0.0)  # compile off the clock

    def play(self, noise: Floats) -> tuple[float, float]:
        """Play ``noise.size`` more rounds."""
        policy, means, gaps, regret = self.policy, self.means, self.gaps, 0.0
        started = time.perf_counter()
        for value in noise.tolist():
            arm = _checked_choice(policy, policy.select(), len(means))
            regret += gaps[arm]
            policy.update(arm, means[arm] + value)
        return regret, time.perf_counter() - started


class _LateFixedArms(_FixedArms):
    """Decisions ahead of their rewards on fixed arms; outstanding ones are passed to the policy, or not."""

    def __init__(
        self, env: "FixedArmsEnvironment", policy: Any, late: OutstandingRewards, passes_pending: bool
    ) -> None:
        super().__init__(env, policy)
        self.late, self.passes_pending = late, passes_pending
        self.batch: list[int] = []
        if passes_pending and isinstance(policy, Policy):
            policy.copy().select_many(2, pending=[0])  # compile off the clock

    def play(self, noise: Floats) -> tuple[float, float]:
        """Play ``noise.size`` more rounds."""
        late, policy, means, regret = self.late, self.policy, self.means, 0.0
        started = time.perf_counter()
        for value, delay in zip(noise.tolist(), late.draw_delays(noise.size), strict=True):
            for arm, reward in late.receive():
                policy.update(arm, reward)
            arm = self._next()
            regret += self.gaps[arm]
            late.send(arm, means[arm] + value, delay)
        return regret, time.perf_counter() - started

    def _next(self) -> int:
        """The arm of this decision; a batch is chosen with its first decision."""
        place, size = self.late.place_in_batch, self.late.batch
        if place == 0 and self.passes_pending:
            waiting = np.fromiter(self.late.arms.values(), np.int64, len(self.late.arms))
            self.batch = self.policy.select_many(size, pending=waiting).tolist()
        elif place == 0:
            self.batch = [self.policy.select() for _ in range(size)]
        return _checked_choice(self.policy, self.batch[place], len(self.means))


class _Contextual:
    """Any object with ``select(contexts)`` and ``update(context, reward)``; drawing contexts is off the clock."""

    def __init__(
        self, env: "FreshArmsEnvironment", policy: Any, generator: np.random.Generator, late: OutstandingRewards | None
    ) -> None:
        self.env, self.policy, self.generator, self.late = env, policy, generator, late
        if isinstance(policy, ContextualPolicy):  # compile off the clock
            sample, _ = env.contexts(np.random.default_rng(0))
            trial = policy.copy()
            trial.update(sample[trial.select(sample)], 0.0)

    def play(self, noise: Floats) -> tuple[float, float]:
        """Play ``noise.size`` more rounds."""
        delays = [0] * noise.size if self.late is None else self.late.draw_delays(noise.size)
        regret = seconds = 0.0
        for value, delay in zip(noise.tolist(), delays, strict=True):
            contexts, expected = self.env.contexts(self.generator)
            started = time.perf_counter()
            choice = self.policy.select(contexts)
            seconds += time.perf_counter() - started
            reward = float(expected[_checked_choice(self.policy, choice, len(expected))]) + value
            started = time.perf_counter()
            self._record(contexts[choice], reward, delay)
            seconds += time.perf_counter() - started
            regret += float(expected.max() - expected[choice])
        return regret, seconds

    def _record(self, context: Floats, reward: float, delay: int) -> None:
        if self.late is None:
            self.policy.update(context, reward)
            return
        self.late.send(context, reward, delay)
        for earlier, known in self.late.receive():
            self.policy.update(earlier, known)


def _has_fixed_means(env: "FixedArmsEnvironment | UsersEnvironment") -> "TypeIs[FixedArmsEnvironment]":
    """Whether an arm is worth the same in every round; if not, the environment draws whole rounds."""
    return hasattr(env, "draw_noise")


def _player(env: "Environment", policy: Any, seeds: _RunSeeds, lateness: Lateness | None) -> _Player:
    """How this policy plays in this environment."""
    late = OutstandingRewards(lateness, seeds.delays) if lateness is not None else None
    if env.contextual:
        return _Contextual(env, policy, np.random.default_rng(seeds.contexts), late)
    if not _has_fixed_means(env):
        return UserRounds(env, policy, np.random.default_rng(seeds.contexts), late)
    if lateness is not None and late is not None:
        return _LateFixedArms(env, policy, late, lateness.passes_pending(policy))
    return _Compiled(env, policy) if isinstance(policy, Policy) and policy.runs_compiled else _FixedArms(env, policy)


def _checked_choice(policy: Any, choice: int, count: int) -> int:
    if not 0 <= choice < count:
        raise ValueError(f"{policy!r} selected arm {choice!r}, must be from 0 to {count - 1}")
    return choice


def _streams(seed: Any, runs: int) -> list[np.random.SeedSequence]:
    """One independent stream per run; the same for the same seed, also if a ``SeedSequence`` is passed in twice."""
    sequence = validate.generator(seed).bit_generator.seed_seq
    assert isinstance(sequence, np.random.SeedSequence)
    if not isinstance(seed, np.random.Generator):
        sequence = np.random.SeedSequence(sequence.entropy, spawn_key=sequence.spawn_key)
    return sequence.spawn(runs)


def _checkpoints(checkpoints: ArrayLike | None, rounds: int) -> Ints:
    if checkpoints is None:
        return np.unique(np.linspace(0, rounds, min(N_CHECKPOINTS, rounds) + 1)[1:].round().astype(np.int64))
    points = np.unique(np.append(np.asarray(checkpoints), rounds))
    if points.dtype.kind not in "iu" or points[0] < 1 or points[-1] > rounds:
        raise ValueError(f"checkpoints must be whole numbers from 1 to rounds = {rounds}, got {checkpoints!r}")
    return points.astype(np.int64)


def _check_policies(env: "Environment", policies: Mapping[str, Any], late: Lateness | None) -> None:
    """Refuse policies that cannot be played here."""
    if not isinstance(policies, Mapping) or not policies:
        raise ValueError(f"policies must be a non-empty dictionary of name: policy, got {policies!r}")
    forced = late is not None and late.pending is True
    if forced and (env.contextual or not _has_fixed_means(env)):
        raise ValueError("pending must be False or None in a contextual environment with delay or batch, got True")
    for name, policy in policies.items():
        if not callable(getattr(policy, "select", None)) or not callable(getattr(policy, "update", None)):
            raise ValueError(f"policies[{name!r}] must have select and update, got {policy!r}")
        if env.contextual:
            _check_contextual(env, name, policy)
        else:
            _check_fixed_arms(env, name, policy)
            _check_users(env, name, policy)
        if forced and not callable(getattr(policy, "select_many", None)):
            raise ValueError(f"policies[{name!r}] must have select_many, or pending must not be True, got {policy!r}")


def _check_contextual(env: "FreshArmsEnvironment", name: str, policy: Any) -> None:
    if isinstance(policy, Policy):
        raise ValueError(f"policies[{name!r}] must be contextual in this environment: use its .contextual(dim=…)")
    if getattr(policy, "dim", env.dim) != env.dim:
        raise ValueError(f"policies[{name!r}] must have dim = {env.dim}, got {policy.dim}")


def _check_users(env: "FixedArmsEnvironment | UsersEnvironment", name: str, policy: Any) -> None:
    wanted, given = getattr(policy, "context_dim", None), getattr(env, "context_dim", None)
    if wanted is not None and wanted != given:
        raise ValueError(f"policies[{name!r}] must have context_dim = {given}, got {wanted}")


def _check_fixed_arms(env: "FixedArmsEnvironment | UsersEnvironment", name: str, policy: Any) -> None:
    if getattr(policy, "contextual_arms", False):
        raise ValueError(f"policies[{name!r}] must be built on arms in this environment, got a contextual policy")
    if isinstance(policy, Policy) and policy.n_arms != env.n_arms:
        raise ValueError(f"policies[{name!r}] must have the environment's {env.n_arms} arms, got {policy.n_arms}")


def _copy(policy: Any, seed: np.random.SeedSequence) -> Any:
    """A copy for one run; one that draws at random gets the run's own stream."""
    clone = policy.copy() if callable(getattr(policy, "copy", None)) else copy.deepcopy(policy)
    if callable(getattr(clone, "reseed", None)):
        own = getattr(getattr(policy, "state", None), "key", ())  # policies with different seeds draw different numbers
        clone.reseed(np.random.default_rng([*map(int, own), *map(int, seed.generate_state(4))]))
    return clone
