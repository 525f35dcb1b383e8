"""The only loop that plays a policy in an environment.

`simulate` keeps the environment and plays *copies* of the policies, each for the same rounds against the same noise
(a paired comparison): in round t of a run every policy meets the same noise value, and in a contextual environment the
same contexts. Runs are independent streams spawned from one seed. The whole loop of a library policy on fixed arms runs
inside one compiled kernel, `Policy.play_rounds`; any other object with ``select`` and ``update`` plays in the same
rounds, uncompiled. Rewards may be late and decisions taken in batches: then too every policy meets the same delays.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.players import Contextual, Delay, FixedCompiled, FixedPlain, LateContextual, LateFixed, Outstanding
from sketchbandits.policies.base import Policy
from sketchbandits.progress import Bar
from sketchbandits.results import Result

CHUNK = 16_384  # rounds between two looks at the clock and at Ctrl-C
N_CHECKPOINTS = 200


class Environment(Protocol):
    """What `simulate` needs of an environment; see `sketchbandits.environments`."""

    contextual: bool
    n_arms: int
    dim: int

    def draw_noise(self, generator: np.random.Generator, size: int) -> Floats:
        """The next ``size`` values of a run's noise."""


class _Progress:
    """Counts rounds, for a bar or for a user's function."""

    def __init__(self, wanted: bool | Callable[[int], None] | None, total: int) -> None:
        self.report = wanted if callable(wanted) else None
        self.bar = Bar(False if callable(wanted) else wanted)
        self.total, self.done = total, 0

    def advance(self, rounds: int, what: str) -> None:
        """So many more rounds are played; ``what`` is playing."""
        self.done += rounds
        if self.report is not None:
            self.report(rounds)
        self.bar.show(self.done / self.total, what)

    def __enter__(self) -> Self:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.__exit__(*error)


def simulate(
    env: Environment,
    policies: Mapping[str, Any],
    *,
    rounds: int,
    runs: int = 1,
    seed: Any = 0,
    checkpoints: ArrayLike | None = None,
    progress: bool | Callable[[int], None] | None = None,
    after: Callable[[str, int, Any], None] | None = None,
    delay: Delay | None = None,
    batch: int = 1,
    pending: bool = True,
) -> Result:
    """Play every policy for ``rounds`` rounds, ``runs`` times; see `sketchbandits.results.Result`.

    ``checkpoints`` are the rounds at which regret is kept (default: 200, evenly spaced; the last round always).
    ``progress``: a bar with the time left, by default where a terminal is there and it takes longer than a second; or a
    function, called now and then with the number of rounds played since its last call.
    ``after`` is called with (name, run, policy) when a run has ended: the copy that played, with all it has learned.
    The policies passed in are not changed; one that draws at random gets a stream a run, made from its own seed and
    ``seed`` (CBRAP keeps its projection); one that has learned already starts every run from what it knows. BLAS is
    held to one thread meanwhile.

    ``delay`` makes rewards late (`sketchbandits.environments.delays`, or any object with its ``draw``); ``batch``
    decisions are taken at once, and none of their rewards comes before the last of them. ``pending=True`` tells a
    policy which decisions are outstanding (`Policy.select_many`), False lets it repeat itself. Regret counts every
    decision when it is taken; rewards that are outstanding at the end are dropped.
    """
    rounds, runs = validate.whole("rounds", rounds), validate.whole("runs", runs)
    points = _checkpoints(checkpoints, rounds)
    late = _lateness(env, delay, batch, pending)
    players = {name: _player(env, name, policy, late) for name, policy in _named(policies).items()}
    streams = _streams(seed, runs)
    regret = {name: np.zeros((runs, points.size)) for name in players}
    seconds = {name: np.zeros(runs) for name in players}
    with one_blas_thread(), _Progress(progress, rounds * runs * len(players)) as bar:
        for run, stream in enumerate(streams):
            noise_seed, context_seed, policy_seed, delay_seed = stream.spawn(4)
            for name, player in players.items():
                policy = _copy(policies[name], policy_seed)
                outstanding = [Outstanding(delay, np.random.default_rng(delay_seed), batch)] if late else []
                playing = player(env, policy, np.random.default_rng(context_seed), *outstanding)
                noise = np.random.default_rng(noise_seed)
                for i, (curve, spent) in enumerate(_curve(env, playing, noise, points, bar, f"{name}, run {run + 1}")):
                    regret[name][run, i] = curve
                    seconds[name][run] = spent
                if after is not None:
                    after(name, run, policy)
    warmup = {name: float(getattr(policy, "warmup_seconds", 0.0)) for name, policy in policies.items()}
    return Result(points, regret, seconds, warmup, seed)


def _curve(
    env: Environment, playing: Any, noise: np.random.Generator, points: Ints, bar: _Progress, what: str
) -> Iterator[tuple[float, float]]:
    """Cumulative regret and play time at each checkpoint."""
    played, total, seconds = 0, 0.0, 0.0
    for point in points:
        while played < point:
            size = int(min(CHUNK, point - played))
            regret, spent = playing.rounds(env.draw_noise(noise, size))
            played, total, seconds = played + size, total + regret, seconds + spent
            bar.advance(size, what)
        yield total, seconds


def _streams(seed: Any, runs: int) -> list[np.random.SeedSequence]:
    """One independent stream a run; the same for the same seed, also when a ``SeedSequence`` is handed in twice."""
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


def _named(policies: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(policies, Mapping) or not policies:
        raise ValueError(f"policies must be a non-empty dictionary of name: policy, got {policies!r}")
    for name, policy in policies.items():
        if not callable(getattr(policy, "select", None)) or not callable(getattr(policy, "update", None)):
            raise ValueError(f"policies[{name!r}] must have select and update, got {policy!r}")
    return policies


def _lateness(env: Environment, delay: Any, batch: int, pending: bool) -> str:
    """How decisions are ahead of rewards: not at all (empty), ``"told"`` to the policy, or ``"naive"``."""
    if delay is not None and not callable(getattr(delay, "draw", None)):
        raise ValueError(f"delay must be None or have draw(generator, size), got {delay!r}")
    told = validate.flag("pending", pending)
    if validate.whole("batch", batch) == 1 and delay is None:
        return ""
    if told and env.contextual:
        raise ValueError(f"pending must be False in a contextual environment with delay or batch, got {pending!r}")
    return "told" if told else "naive"


def _player(env: Environment, name: str, policy: Any, late: str = "") -> Any:
    """How this policy plays in this environment."""
    fixed = isinstance(policy, Policy)
    if env.contextual:
        if fixed:
            raise ValueError(f"policies[{name!r}] must be contextual in this environment: use its .contextual(dim=…)")
        if getattr(policy, "dim", env.dim) != env.dim:
            raise ValueError(f"policies[{name!r}] must have dim = {env.dim}, got {policy.dim}")
        return LateContextual if late else Contextual
    if getattr(policy, "contextual_arms", False):
        raise ValueError(f"policies[{name!r}] must be built on arms in this environment, got a contextual policy")
    if fixed and policy.n_arms != env.n_arms:
        raise ValueError(f"policies[{name!r}] must have the environment's {env.n_arms} arms, got {policy.n_arms}")
    if late == "told" and not callable(getattr(policy, "select_many", None)):
        raise ValueError(f"policies[{name!r}] must have select_many, or pending must be False, got {policy!r}")
    if late:
        return partial(LateFixed, told=late == "told")
    return FixedCompiled if fixed and policy.runs_compiled else FixedPlain


def _copy(policy: Any, seed: np.random.SeedSequence) -> Any:
    """A copy for one run; one that draws at random gets the run's own stream."""
    twin = policy.copy() if callable(getattr(policy, "copy", None)) else copy.deepcopy(policy)
    if callable(getattr(twin, "reseed", None)):
        own = getattr(getattr(policy, "state", None), "key", ())  # two policies with other seeds draw otherwise
        twin.reseed(np.random.default_rng([*map(int, own), *map(int, seed.generate_state(4))]))
    return twin
