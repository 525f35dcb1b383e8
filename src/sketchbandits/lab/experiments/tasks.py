"""One run of one policy.

A `Task` is all that a run depends on; its key is a hash of that, of the library's sources and of the numerical
packages. After a change of a parameter or of a line of code, an old result is therefore never used.
"""

import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from sketchbandits.environments import LinearEnvironment
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.lab.experiments.changing_scenes import Advance as Advance
from sketchbandits.lab.experiments.changing_scenes import AnyScene, AvailableScene, LivingScene
from sketchbandits.lab.experiments.sources import machine, stamp
from sketchbandits.policies.base import Policy
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.simulate import simulate

N_LINEAR, N_EARLY = 200, 40  # checkpoints: evenly spaced, and evenly in the logarithm


@dataclass(frozen=True)
class Outcome:
    """What a run gave: cumulative regret at its checkpoints, play and warm-up time, and a few facts by name."""

    checkpoints: Ints
    regret: Floats
    seconds: float
    warmup_seconds: float
    facts: dict[str, float]

    @property
    def rounds(self) -> int:
        """The length of the run."""
        return int(self.checkpoints[-1])


@dataclass(frozen=True)
class Task:
    """One policy in one run. All policies of a run meet the same arms, hidden parameter and noise.

    A ``timed`` run is played alone, on an otherwise idle machine, and its key holds the machine too.
    """

    scene: AnyScene
    policy: PolicySpec
    rounds: int
    run: int
    seed: int
    timed: bool = False

    @functools.cached_property
    def key(self) -> str:
        """A hash of all that the outcome depends on."""
        what: dict[str, Any] = {"scene": self.scene.identity(), "policy": str(self.policy), "stamp": stamp()}
        what |= {"rounds": self.rounds, "run": self.run, "seed": self.seed}
        what["machine"] = machine() if self.timed else None
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:24]

    def seeds(self) -> tuple[int, int, int]:
        """Independent seeds of the run, for the environment, the policy and the noise: equal for all policies."""
        child = np.random.SeedSequence(self.seed, spawn_key=(self.run,))
        env, policy, noise = child.generate_state(3, np.uint64).tolist()
        return env, policy, noise

    def play(self, advance: Advance = lambda rounds: None, *, rounds: int | None = None) -> Outcome:
        """Play it (``rounds``: a shorter rehearsal)."""
        env_seed, policy_seed, noise_seed = self.seeds()
        arms, env = self.scene.draw(env_seed)
        with one_blas_thread():  # the warm-up is timed too
            first = arms[: self.scene.first] if isinstance(self.scene, LivingScene) else arms
            policy = self.policy.build(first, self.scene.model.parameters(), policy_seed)
        facts = {"largest_gap": float(env.gaps.max()), "mean_gap": float(env.gaps.mean())}
        # A stop at every checkpoint would show in the time of a policy whose round takes a tenth of a microsecond.
        points = [] if self.timed or rounds else checkpoints(self.rounds).tolist()
        points = [*points[:-1], rounds or self.rounds]
        if isinstance(self.scene, LivingScene | AvailableScene):
            with one_blas_thread():
                curve, spent = self.scene.play(env, policy, np.array(points), noise_seed, advance)
            return Outcome(np.array(points), curve, spent, policy.warmup_seconds, facts)
        return _simulated(env, policy, points, noise_seed, advance, facts)


def _simulated(
    env: LinearEnvironment, policy: Policy, points: list[int], seed: int, advance: Advance, facts: dict[str, float]
) -> Outcome:
    """A run on fixed arms; ``facts`` with what the policy says of itself afterwards."""

    def count(name: str, run: int, played: Any) -> None:
        if hasattr(played, "partition"):
            facts["clusters"] = played.partition.n_clusters
        if hasattr(played, "sketch_rank"):
            facts["sketch_rank"] = played.sketch_rank

    length: dict[str, Any] = {"rounds": points[-1], "checkpoints": points}
    result = simulate(env, {"it": policy}, **length, seed=seed, progress=advance, after=count)
    seconds, warmup = float(result.seconds["it"][0]), result.warmup_seconds["it"]
    return Outcome(result.checkpoints, result.regret["it"][0], seconds, warmup, facts)


def checkpoints(rounds: int) -> Ints:
    """Where regret is kept: evenly spaced rounds, for curves, and evenly spaced logarithms, for the early ones."""
    linear = np.linspace(0, rounds, min(N_LINEAR, rounds) + 1)[1:]
    early = np.geomspace(1, rounds, min(N_EARLY, rounds))
    return np.unique(np.concatenate([linear, early]).round().astype(np.int64))
