"""Contexts of hundreds of dimensions: project them first, or let every arm keep a sketch of them?

    python benchmarks/embeddings.py            # twenty minutes of a core: the numbers of docs/howto/features.md
    python benchmarks/embeddings.py --quick    # seconds: shows that it runs, measures nothing well

Contexts stand for embeddings: the i-th eigenvalue of their covariance is about ``1/i`` or ``1/sqrt(i)``, in directions
of a random rotation, and their norm is 1. The mean reward of an arm is linear in them, with coefficients in the first 8
eigenvectors only (leading) or equally large in all (everywhere); over contexts it has standard deviation 1, the noise
has 1/2. Contenders, on the same contexts and rewards:

- exact disjoint LinUCB on whole contexts: the yardstick, which 1,536 dimensions make too slow;
- `HybridCSLB` as it comes, on contexts projected to k numbers, by a PCA of 2,000 earlier contexts or at random;
- exact disjoint LinUCB on the contexts projected by the PCA, which shows what is lost by the projection alone;
- disjoint LinUCB with a sketch of size l per arm (`suite.sketched_rivals`).

The LinUCBs know the noise, alpha = R, and have the best of three ridges in hindsight, for each column. Cells are regret
over that of the yardstick, in the last scene over that of choosing at random, which is why that row is 1 there; times
are processor time per round (a decision, its reward, projection and refits), memory is that of the arrays. The largest
k is played with the first seed only, and not with the most arms, since its refits are slow.
"""

import os

# Before NumPy is loaded: its libraries read these once. One thread for every contender.
os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "NUMBA")})

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from sketchbandits import HybridCSLB
from sketchbandits.features import Embedding
from sketchbandits.kernels.linalg import Floats
from suite.linear_rivals import LinUCBForUsers
from suite.sketched_rivals import SketchedLinUCBForUsers

NOISE, LEADING, RIDGES = 0.5, 8, (1 / 16, 1 / 4, 1.0)
EXACT, RANDOM_CHOICE = "exact disjoint LinUCB", "choosing at random"
PCA, DRAWN, PLAIN = "`HybridCSLB` on PCA", "`HybridCSLB` on random directions", "disjoint LinUCB on PCA"
SKETCH = "disjoint LinUCB on sketches"


class Scene(NamedTuple):
    """The length of contexts, the number of arms, eigenvalues ``i^-slope``, and where rewards depend on contexts."""

    p: int
    arms: int
    slope: float
    leading: bool
    exact: bool = True  # whether the yardstick plays

    def __str__(self) -> str:
        spectrum = "1/i" if self.slope == 1.0 else "1/√i"
        return f"p={self.p:,}, N={self.arms}, {spectrum}, {'leading' if self.leading else 'everywhere'}"


class Sizes(NamedTuple):
    """How much is played."""

    scenes: tuple[Scene, ...]
    projected: tuple[int, ...]
    sketches: tuple[int, ...]
    rounds: int
    seeds: int
    earlier: int


class Outcome(NamedTuple):
    """Of one game."""

    regret: float
    seconds: float
    bytes: int


class Game(NamedTuple):
    """Contexts of earlier days, then those of the rounds, what every arm would pay, and its mean."""

    earlier: Floats
    contexts: Floats
    rewards: Floats
    means: Floats

    def regret(self, chosen: Sequence[int] | Floats) -> float:
        """What choosing the best arm would have paid more on average."""
        return float((self.means.max(axis=1) - self.means[np.arange(len(self.means)), chosen]).sum())

    @property
    def random_choice(self) -> float:
        """The expected regret of choosing at random."""
        return float((self.means.max(axis=1) - self.means.mean(axis=1)).sum())


Outcomes = dict[str, list[list[Outcome]]]  # of every contender: for every ridge, for every seed


def full() -> Sizes:
    """The published run."""
    four = [Scene(384, 10, slope, leading) for slope in (1.0, 0.5) for leading in (True, False)]
    more = [Scene(384, 3, 1.0, False), Scene(384, 30, 1.0, False), Scene(1_536, 10, 1.0, False, exact=False)]
    return Sizes((*four, *more), (8, 16, 32, 64, 128), (8, 16, 32, 64), 5_000, 3, 2_000)


def quick() -> Sizes:
    """Every line of the code, in seconds."""
    scenes = (Scene(48, 3, 1.0, True), Scene(48, 4, 0.5, False), Scene(96, 3, 1.0, False, exact=False))
    return Sizes(scenes, (2, 4, 8), (4, 8), 120, 2, 100)


def drawn(scene: Scene, seed: int, sizes: Sizes) -> Game:
    """The game of one seed."""
    rng = np.random.default_rng([scene.p, scene.arms, round(2 * scene.slope), scene.leading, seed])
    turn = np.linalg.qr(rng.normal(size=(scene.p, scene.p)))[0]
    deviations = np.arange(1, scene.p + 1) ** (-scene.slope / 2)
    along = rng.normal(size=(sizes.earlier + sizes.rounds, scene.p)) * deviations
    along /= np.linalg.norm(along, axis=1)[:, None]
    coefficients = rng.normal(size=(scene.p, scene.arms))
    if scene.leading:
        coefficients[LEADING:] = 0.0
    means = along @ coefficients
    means = means[sizes.earlier :] / means.std(axis=0)
    contexts = along @ turn
    rewards = means + NOISE * rng.normal(size=means.shape)
    return Game(contexts[: sizes.earlier], contexts[sizes.earlier :].copy(), rewards, means)


def timed(game: Game, play: Callable[[], Any]) -> tuple[float, float]:
    """(regret, seconds) of one game."""
    start = time.process_time()
    chosen = play()
    return game.regret(chosen), time.process_time() - start


def short(game: Game, column: Embedding | None) -> Floats:
    """The contexts that a policy is given."""
    if column is None:
        return game.contexts
    rows, write = np.empty((len(game.contexts), column.size)), column.writer(0)
    for context, row in zip(game.contexts, rows, strict=True):
        write(row, context)
    return rows


def exact(game: Game, ridge: float, column: Embedding | None = None) -> Outcome:
    """A ridge other than 1 is that of contexts divided by its root."""
    arms, p = game.rewards.shape[1], game.contexts.shape[1] if column is None else column.size
    policy = LinUCBForUsers(np.zeros((arms, 1)), p, shared=False, alpha=NOISE)
    result = timed(game, lambda: policy.play_user_rounds(short(game, column) / ridge**0.5, game.rewards, None))
    return Outcome(*result, policy.fit.means.nbytes + policy.fit.spreads.nbytes + weight(column))


def sketched(game: Game, ridge: float, size: int) -> Outcome:
    arms, p = game.rewards.shape[1], game.contexts.shape[1]
    policy = SketchedLinUCBForUsers(arms, p, sketch_size=size, ridge=ridge, alpha=NOISE)
    return Outcome(*timed(game, lambda: policy.play_user_rounds(game.contexts, game.rewards)), policy.bytes)


def projected(game: Game, column: Embedding, seed: int) -> Outcome:
    policy = HybridCSLB(game.rewards.shape[1], context_dim=column.size, seed=seed)
    result = timed(game, lambda: policy.play_user_rounds(short(game, column), game.rewards, None))
    return Outcome(*result, sum(part.nbytes for part in policy.state) + weight(column))


def weight(column: Embedding | None) -> int:
    """The bytes of a projection."""
    return 0 if column is None else 8 * column.size * column.length


def contenders(scene: Scene, game: Game, seed: int, sizes: Sizes) -> Iterator[tuple[str, list[Outcome]]]:
    """The outcomes of every contender, one for every ridge where it has one."""
    most = max(other.arms for other in sizes.scenes)
    yield RANDOM_CHOICE, [Outcome(game.random_choice, 0.0, 0)]
    if scene.exact:
        yield EXACT, [exact(game, ridge) for ridge in RIDGES]
    for size in sizes.sketches:
        yield f"{SKETCH}, l={size}", [sketched(game, ridge, size) for ridge in RIDGES]
    for k in sizes.projected:
        if k < sizes.projected[-1] or (seed == 0 and scene.arms < most):
            column = Embedding.fit("context", game.earlier, k)
            yield f"{PCA}, k={k}", [projected(game, column, seed)]
            yield f"{PLAIN}, k={k}", [exact(game, ridge, column) for ridge in RIDGES]
            column = Embedding.random("context", scene.p, k, seed)
            yield f"{DRAWN}, k={k}", [projected(game, column, seed)]


def played(scene: Scene, sizes: Sizes) -> Outcomes:
    """All seeds of a scene."""
    outcomes: Outcomes = {}
    for seed in range(sizes.seeds):
        game = drawn(scene, seed, sizes)
        for name, found in contenders(scene, game, seed, sizes):
            rows = outcomes.setdefault(name, [[] for _ in found])
            for row, outcome in zip(rows, found, strict=True):
                row.append(outcome)
        print(f"{scene}, seed {seed}: {time.process_time():,.0f} s so far", file=sys.stderr, flush=True)
    return outcomes


def of_best_ridge(found: list[list[Outcome]]) -> list[Outcome]:
    return min(found, key=lambda row: sum(one.regret for one in row) / len(row))


def ratios(outcomes: Outcomes, name: str) -> tuple[float, list[float]]:
    """Regret over that of the yardstick: in all, and for every seed."""
    own = of_best_ridge(outcomes[name])
    yardstick = of_best_ridge(outcomes.get(EXACT, outcomes[RANDOM_CHOICE]))[: len(own)]
    single = [one.regret / other.regret for one, other in zip(own, yardstick, strict=True)]
    return sum(one.regret for one in own) / sum(one.regret for one in yardstick), single


def costs(outcomes: Outcomes, name: str, rounds: int) -> list[str]:
    """Microseconds per round and MiB, of the fastest seed."""
    if name == RANDOM_CHOICE or name not in outcomes:
        return ["", ""]
    own = of_best_ridge(outcomes[name])
    return [f"{min(one.seconds for one in own) / rounds * 1e6:,.0f}", f"{own[0].bytes / 2**20:.2f}"]


def table(results: dict[Scene, Outcomes], sizes: Sizes) -> Iterator[str]:
    scenes = list(results)
    ends = (scenes[0], scenes[-1])
    names = [f"{kind}, k={k}" for kind in (PCA, DRAWN, PLAIN) for k in sizes.projected]
    names += [f"{SKETCH}, l={l}" for l in sizes.sketches]
    heads = [*map(str, scenes), *(f"{what}, p={s.p:,}, N={s.arms}" for s in ends for what in ("µs per round", "MiB"))]
    yield "| contender | " + " | ".join(heads) + " |"
    yield "|---" + "|---:" * len(heads) + "|"
    spread = 0.0
    for name in (EXACT, RANDOM_CHOICE, *names):
        cells = []
        for scene in scenes:
            if name not in results[scene]:
                cells.append("")
                continue
            whole, single = ratios(results[scene], name)
            spread = max(spread, *(abs(one / whole - 1.0) for one in single))
            cells.append(f"{whole:.2f}")
        for scene in ends:
            cells += costs(results[scene], name, sizes.rounds)
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield f"\n{sizes.rounds:,} rounds, {sizes.seeds} seeds; the ratio of a single seed differs by up to {spread:.0%}."


def compile_all() -> None:
    """Compile all kernels before a clock runs."""
    sizes = Sizes((Scene(12, 2, 1.0, False), Scene(12, 3, 1.0, False)), (2, 3), (2,), 60, 1, 30)
    for _ in contenders(sizes.scenes[0], drawn(sizes.scenes[0], 0, sizes), 0, sizes):
        pass


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="seconds: shows that it runs")
    sizes = quick() if parser.parse_args(arguments).quick else full()
    compile_all()
    for line in table({scene: played(scene, sizes) for scene in sizes.scenes}, sizes):
        print(line)


if __name__ == "__main__":
    main()
