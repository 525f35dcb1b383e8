"""Scenes whose arms come and go, or may not all be chosen in every round, and how a policy plays there.

`simulate` plays fixed arms. Here a `LivingScene` is played in compiled stretches between the rounds in which its arms
change; an `AvailableScene` one decision at a time, since every round has its own set of arms to choose from. What
changes when is a function of the scene and the run's seed: all policies of a run meet the same changes and noise.
Regret is that against the best arm that could have been chosen in the round.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits import validate
from sketchbandits.environments import LinearEnvironment
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.lab.experiments.scenes import Draw, FileScene, Model, Scene

Advance = Callable[[int], None]
CHUNK = 16_384  # rounds between two reports of progress
MASKS = 256  # rounds whose available arms are drawn together


@dataclass(frozen=True)
class _Around:
    """A scene made from another one: its arms in random order, with its name, model and normalisation."""

    scene: Scene

    @property
    def name(self) -> str:
        """The name of the scene inside."""
        return self.scene.name

    @property
    def model(self) -> Model:
        """What is passed to every policy."""
        return self.scene.model

    @property
    def normalize(self) -> str:
        """How arms are scaled."""
        return self.scene.normalize

    def draw(self, seed: Any) -> Draw:
        """All arms there will ever be, in random order: a generator may put similar ones next to each other."""
        rng = validate.generator(seed)
        arms, env = self.scene.draw(rng)
        order = rng.permutation(len(arms))
        return Draw(arms[order], LinearEnvironment(arms[order], env.theta, noise=env.noise_scale))

    def identity(self) -> dict[str, Any]:
        """All that the scene depends on."""
        return {"kind": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class LivingScene(_Around):
    """Policies are built with the ``first`` arms; the others arrive in ``portions``, evenly until ``until`` of the run.

    With every portion the best arm there is leaves, together with a share ``leaving`` of the others, if that is above
    0. ``best_removed`` arms, the best ones, leave before the first round. With ``until=0`` all portions arrive then.
    """

    first: int
    portions: int = 1
    until: float = 0.5
    leaving: float = 0.0
    best_removed: int = 0

    def events(self, n_arms: int, rounds: int) -> list[tuple[int, int]]:
        """The rounds before which portions arrive, and how many arms there are from then on."""
        steps = np.arange(1, self.portions + 1)
        sizes = self.first + np.round((n_arms - self.first) * steps / self.portions).astype(int)
        when = np.floor(self.until * rounds * steps / self.portions).astype(int)
        return list(zip(when.tolist(), sizes.tolist(), strict=True)) if n_arms > self.first else []

    def play(
        self, env: LinearEnvironment, policy: Any, points: Ints, seed: int, advance: Advance
    ) -> tuple[Floats, float]:
        """Cumulative regret at the last rounds of ``points``, and the seconds spent playing."""
        rounds, noise, draws = _streams(env, points, seed)
        events = self.events(env.n_arms, rounds)
        if self.best_removed:
            policy.remove_arms(np.argsort(-env.means[: policy.n_arms], kind="stable")[: self.best_removed])
        played, regret, seconds, kept = 0, 0.0, 0.0, {}
        for stop in sorted({*points.tolist(), *range(CHUNK, rounds, CHUNK), *(at for at, _ in events if at > 0)}):
            while events and events[0][0] <= played:
                self._change(env, policy, events.pop(0)[1], draws)
            means = np.ascontiguousarray(env.means[: policy.n_arms])
            gaps = means[policy.active].max() - means
            started = time.perf_counter()
            regret += policy.play_rounds(means, gaps, noise[played:stop])
            seconds += time.perf_counter() - started
            advance(stop - played)
            played, kept[stop] = stop, regret
        return np.array([kept[point] for point in points.tolist()]), seconds

    def _change(self, env: LinearEnvironment, policy: Any, size: int, draws: np.random.Generator) -> None:
        """Let arms leave, then let the next portion arrive."""
        if self.leaving > 0.0:
            there = np.flatnonzero(policy.active)
            best = there[env.means[there].argmax()]
            others = draws.permutation(there[there != best])
            policy.remove_arms(np.append(others[: int(self.leaving * others.size)], best)[: there.size - 1])
        if size > policy.n_arms:
            policy.add_arms(env.arms[policy.n_arms : size])


@dataclass(frozen=True)
class AvailableScene(_Around):
    """In every round each arm may be chosen with probability ``share``, the ``hidden`` best ones with another one."""

    share: float
    hidden: int = 0
    hidden_share: float = 0.0

    def play(
        self, env: LinearEnvironment, policy: Any, points: Ints, seed: int, advance: Advance
    ) -> tuple[Floats, float]:
        """Cumulative regret at the last rounds of ``points``, and the seconds spent playing."""
        rounds, noise, draws = _streams(env, points, seed)
        curve = np.zeros(rounds)
        started = time.perf_counter()
        for start in range(0, rounds, MASKS):
            masks = self._masks(env.means, min(MASKS, rounds - start), draws)
            for t, mask in enumerate(masks, start):
                arm = policy.select(available=mask)
                curve[t] = env.means[mask].max() - env.means[arm]
                policy.update(arm, float(env.means[arm] + noise[t]))
            advance(len(masks))
        return curve.cumsum()[points - 1], time.perf_counter() - started

    def _masks(self, means: Floats, rounds: int, draws: np.random.Generator) -> NDArray[np.bool_]:
        """Which arms may be chosen in each round; at least one, the one that came closest."""
        chance = np.full(means.size, self.share)
        chance[np.argsort(-means, kind="stable")[: self.hidden]] = self.hidden_share
        distance = draws.random((rounds, means.size)) / np.maximum(chance, np.finfo(float).tiny)
        masks: NDArray[np.bool_] = distance < 1.0
        masks[np.arange(rounds), distance.argmin(axis=1)] = True
        return masks


AnyScene = Scene | FileScene | LivingScene | AvailableScene


def _streams(env: LinearEnvironment, points: Ints, seed: int) -> tuple[int, Floats, np.random.Generator]:
    """The length of a run, its noise, and the generator of what changes."""
    noise, changes = np.random.SeedSequence(seed).spawn(2)
    rounds = int(points[-1])
    return rounds, env.draw_noise(np.random.default_rng(noise), rounds), np.random.default_rng(changes)
