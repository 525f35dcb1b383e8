"""One run of one policy, and the journal that keeps finished ones: `reproduce` and `simulate` resume from it.

A `Task` is all that a run depends on; its key is a hash of that, of the library's sources and of the numerical
packages. A changed parameter or a changed line of code therefore never meets an old result.
"""

import functools
import hashlib
import json
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import sketchbandits
from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.lab.scenes import FileScene, Scene
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.simulate import simulate

Advance = Callable[[int], None]  # called with the number of rounds just played
N_LINEAR, N_EARLY = 200, 40  # checkpoints: evenly spaced, and evenly in the logarithm
# Sources that no run passes through: changing them leaves finished runs valid. Of the lab, only these two count.
_NOT_PLAYED = ("__main__.py", "bench", "checks.py", "cli", "client", "offline", "service")
_PLAYED_IN_LAB = ("lab/runs.py", "lab/scenes.py")


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

    scene: Scene | FileScene
    contender: PolicySpec
    rounds: int
    run: int
    seed: int
    timed: bool = False

    @functools.cached_property
    def key(self) -> str:
        """A hash of all that the outcome depends on."""
        what: dict[str, Any] = {"scene": self.scene.identity(), "policy": str(self.contender), "stamp": stamp()}
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
            policy = self.contender.build(arms, self.scene.model.parameters(), policy_seed)
        facts = {"largest_gap": float(env.gaps.max()), "mean_gap": float(env.gaps.mean())}
        if hasattr(policy, "partition"):
            facts["clusters"] = policy.partition.n_clusters
        # A stop at every checkpoint would show in the time of a policy whose round takes a tenth of a microsecond.
        points = [] if self.timed or rounds else checkpoints(self.rounds).tolist()
        name, rounds = str(self.contender), rounds or self.rounds

        def after(name: str, run: int, played: Any) -> None:
            if hasattr(played, "sketch_rank"):
                facts["sketch_rank"] = played.sketch_rank

        result = simulate(
            env,
            {name: policy},
            rounds=rounds,
            seed=noise_seed,
            checkpoints=[*points, rounds],
            progress=advance,
            after=after,
        )
        seconds, warmup = float(result.seconds[name][0]), result.warmup_seconds[name]
        return Outcome(result.checkpoints, result.regret[name][0], seconds, warmup, facts)


def checkpoints(rounds: int) -> Ints:
    """Where regret is kept: evenly spaced rounds, for curves, and evenly spaced logarithms, for the early ones."""
    linear = np.linspace(0, rounds, min(N_LINEAR, rounds) + 1)[1:]
    early = np.geomspace(1, rounds, min(N_EARLY, rounds))
    return np.unique(np.concatenate([linear, early]).round().astype(np.int64))


class Journal:
    """Finished runs, one JSON line each; a line that is torn or unknown is passed over, and its run played again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, tasks: Iterable[Task]) -> dict[Task, Outcome]:
        """Those of the tasks that are finished."""
        wanted = {task.key: task for task in tasks}
        found: dict[Task, Outcome] = {}
        if not self.path.exists():
            return found
        with open(self.path, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, outcome = _parse(line)
                if outcome is not None and key in wanted and outcome.rounds == wanted[key].rounds:
                    found[wanted[key]] = outcome
        return found

    def append(self, task: Task, outcome: Outcome) -> None:
        """Put a finished run on the disk, in one write."""
        line: dict[str, Any] = {
            "key": task.key,
            "scene": task.scene.name,
            "policy": str(task.contender),
            "run": task.run,
        }
        line |= {"timed": task.timed, "seconds": outcome.seconds, "warmup_seconds": outcome.warmup_seconds}
        line |= {"facts": outcome.facts, "checkpoints": outcome.checkpoints.tolist()}
        line["regret"] = outcome.regret.tolist()
        with open(self.path, "ab") as file:
            torn = file.tell() > 0 and not _ends_whole(self.path)
            file.write(b"\n" * torn + json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _ends_whole(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _parse(line: str) -> tuple[str, Outcome | None]:
    """A line's key and outcome, or none where anything in it is not what `Journal.append` writes."""
    try:
        entry = json.loads(line)
        points, regret = np.array(entry["checkpoints"], dtype=np.int64), np.array(entry["regret"], dtype=np.float64)
        times = [validate.number(name, entry[name], least=0.0) for name in ("seconds", "warmup_seconds")]
        facts, key = dict(entry["facts"]), entry["key"]
        for name, value in facts.items():
            validate.number(name, value)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        return "", None
    curve = points.ndim == 1 and points.size > 0 and points.shape == regret.shape and bool(np.isfinite(regret).all())
    whole = curve and isinstance(key, str)
    return (key, Outcome(points, regret, times[0], times[1], facts)) if whole else ("", None)


@functools.cache
def stamp() -> str:
    """A hash of every source file that a run passes through, and the versions of the numerical packages."""
    root = Path(sketchbandits.__file__).parent
    hashed = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root)
        played = inside.as_posix() in _PLAYED_IN_LAB if inside.parts[0] == "lab" else inside.parts[0] not in _NOT_PLAYED
        if played:
            hashed.update(path.read_bytes())
    hashed.update("".join(version(name) for name in ("numpy", "scipy", "numba")).encode())
    return hashed.hexdigest()


@functools.cache
def machine() -> str:
    """Processor, cores, system and Python, in words; no name of a computer or a person."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
