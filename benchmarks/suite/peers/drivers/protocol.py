"""The game that every driver plays: the same arms, the same rewards and the same clock for each library.

    python NAME_driver.py PROBLEM OUTPUT --seconds SECONDS

``PROBLEM`` is a file of arrays (`Problem`), ``OUTPUT`` gets one line of JSON per variant as soon as it has played.
The clock runs in `Player.select` and `Player.update` only: drawing rewards and adding up regret are off it, and so is
what a library lets its user prepare ahead. The library's lazy imports and first calls are paid by a player that is
thrown away.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
REHEARSAL = 2  # rounds of the player that is thrown away: many libraries do other things at the second update


class Player(Protocol):
    """A library at play. ``prepare(arm, reward)``, where it has one, is called off the clock before each update."""

    def select(self) -> int:
        """The arm of this round."""

    def update(self, arm: int, reward: float) -> None:
        """Learn from this round."""


@dataclass(frozen=True)
class Problem:
    """N fixed arms, their expected rewards, and the noise of every round, which all libraries meet alike."""

    arms: Floats
    means: Floats
    noise: Floats
    seed: int  # for libraries that draw at random

    def save(self, path: Path) -> None:
        """Write for `load`."""
        np.savez(path, arms=self.arms, means=self.means, noise=self.noise, seed=self.seed)

    @classmethod
    def load(cls, path: Path) -> "Problem":
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(arrays["arms"], arrays["means"], arrays["noise"], int(arrays["seed"]))


@dataclass(frozen=True)
class Variant:
    """One way to use a library."""

    name: str
    model: str  # in words: what is learned, and how arms are explored
    comparable: bool  # rewards linear in one parameter that all arms share: its regret may be compared with OFUL's
    make: Callable[[Problem], Player]


def play(player: Player, problem: Problem, seconds: float) -> dict[str, Any]:
    """Play until the noise or the time on the clock is used up; regret is kept at rounds 1, 2, 4, 8, ... and the last.

    The last round is played to its end, however long it takes.
    """
    clock, means, gaps = time.perf_counter, problem.means.tolist(), (problem.means.max() - problem.means).tolist()
    prepare: Callable[[int, float], None] = getattr(player, "prepare", lambda arm, reward: None)
    played, spent, regret = 0, 0.0, 0.0
    marks: list[tuple[int, float]] = []
    for played, noise in enumerate(problem.noise.tolist(), start=1):
        started = clock()
        arm = player.select()
        spent += clock() - started
        reward = means[arm] + noise
        prepare(arm, reward)
        started = clock()
        player.update(arm, reward)
        spent += clock() - started
        regret += gaps[arm]
        if played & (played - 1) == 0:
            marks.append((played, regret))
        if spent >= seconds:
            break
    marks += [(played, regret)] if not marks or marks[-1][0] < played else []
    return {"rounds": played, "seconds": spent, "regret": regret, "regret_at": marks}


def measure(variant: Variant, problem: Problem, seconds: float) -> dict[str, Any]:
    """One line of the output; a variant that fails says why and keeps no other from playing."""
    about = {"name": variant.name, "model": variant.model, "comparable": variant.comparable}
    try:
        rehearsal = Problem(problem.arms, problem.means, problem.noise[:REHEARSAL], problem.seed)
        play(variant.make(problem), rehearsal, seconds)
        started = time.perf_counter()
        player = variant.make(problem)
        warmup = time.perf_counter() - started
        return about | play(player, problem, seconds) | {"warmup_seconds": warmup}
    except Exception as error:
        return about | {"failed": f"{type(error).__name__}: {error}"}


def main(package: str, variants: Sequence[Variant]) -> None:
    """A driver's command line."""
    parser = argparse.ArgumentParser(description=f"Rounds of {package}.")
    parser.add_argument("problem", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, required=True, help="for each variant, on the clock")
    options = parser.parse_args()
    problem = Problem.load(options.problem)
    for variant in variants:
        line = json.dumps(measure(variant, problem, options.seconds) | {"version": version(package)})
        with options.output.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
