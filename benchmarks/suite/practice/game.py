"""One run: a world drawn by a seed, a policy or a peer in it, and what came of it."""

import functools
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sketchbandits import AssumptionWarning
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.user_rounds import UserRounds
from suite.practice.contenders import CONTENDERS
from suite.practice.peers import VARIANTS, Peer
from suite.worlds import World, worlds

FIRST = 32  # rounds of the first piece of a trial, which compiles; each later one is twice as long
SHORT = 800  # rounds that a trial has in any world, if there is time
TRIAL_SEED = 0
PEERS = {variant.label: variant for variant in VARIANTS}


class Task(NamedTuple):
    """A run to play; ``scale`` in the contender's unit, None where it has none; ``python`` is a peer's."""

    world: str
    policy: str
    scale: float | None
    seed: int
    share: float = 1.0  # of the world's rounds
    films: str | None = None  # the folder
    python: str | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """What names the run, wherever it is played."""
        return {name: getattr(self, name) for name in ("world", "policy", "scale", "seed", "share")}


@functools.lru_cache(maxsize=1)
def drawn(world: str, films: str | None, seed: int) -> World:
    """The world of a seed; worlds of films take half a second to read."""
    return worlds(Path(films) if films else None)[world](np.random.default_rng([seed, 1]))


class Table:
    """A policy or a peer that has taken its place; a context manager."""

    def __init__(self, task: Task) -> None:
        self.world = drawn(task.world, task.films, task.seed)
        if task.python is None:
            self.policy = CONTENDERS[task.policy].built(self.world, task.scale, task.seed)
        else:
            self.policy = Peer(Path(task.python), PEERS[task.policy], task.world, self.world, task.seed)
        self.rounds = UserRounds(self.world.env, self.policy, np.random.default_rng([task.seed, 2]), None)

    def play(self, size: int) -> tuple[float, float]:
        """So many more rounds: their regret, and the seconds in the policy (of a peer, without messages)."""
        before = getattr(self.policy, "seconds", None)
        regret, seconds = self.rounds.play(np.zeros(size))
        return regret, seconds if before is None else self.policy.seconds - before

    def __enter__(self) -> "Table":
        return self

    def __exit__(self, *error: object) -> None:
        if isinstance(self.policy, Peer):
            self.policy.__exit__(*error)


def play(task: Task) -> dict[str, Any]:
    """Regret, that of the second half, mean reward, microseconds per round; or ``failed``, the reason."""
    started = time.perf_counter()
    try:
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)
            with Table(task) as table:
                half = max(1, int(task.share * table.world.rounds) // 2)
                first, before = table.play(half)
                second, after = table.play(half)
    except Exception as error:  # one policy that fails must not end hours of others
        return {"failed": f"{type(error).__name__}: {error}"}
    outcome = {"regret": first + second, "second": second, "reward": table.rounds.reward / (2 * half)}
    outcome |= {"microseconds": 1e6 * (before + after) / (2 * half), "seconds": time.perf_counter() - started}
    return outcome | {"version": getattr(table.policy, "version", None)}


def try_out(task: Task, patience: float) -> dict[str, Any]:
    """How long a whole run should take, from its first rounds: until ``patience`` seconds or a fiftieth have passed.

    Played with a seed that is not reported. The last of the pieces counts: the first rounds are slower.
    """
    try:
        with one_blas_thread(), warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)
            with Table(task._replace(seed=TRIAL_SEED)) as table:
                table.play(FIRST)
                started, size, took = time.perf_counter(), 2 * FIRST, 0.0
                most = max(SHORT, table.world.rounds // 50)
                while time.perf_counter() - started < patience and table.rounds.played < most:
                    piece = time.perf_counter()
                    table.play(size)
                    took, size = (time.perf_counter() - piece) / size, 2 * size
    except Exception as error:
        return {"failed": f"{type(error).__name__}: {error}"}
    return {"seconds": took * task.share * table.world.rounds}
