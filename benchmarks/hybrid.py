"""What a decision for a user costs: HybridCSLB against the hybrid LinUCB of Li et al. in NumPy and Vowpal Wabbit.

    python benchmarks/hybrid.py                   # four minutes; without --peers no Vowpal Wabbit
    python benchmarks/hybrid.py --peers FOLDER    # its environment is made in FOLDER once (`suite.peers.venvs`)
    python benchmarks/hybrid.py --quick           # seconds: shows that it runs, measures nothing well

A round is one decision and one reward: 1,000 arms of rank 8, contexts of length 10. HybridCSLB learns noise and ridges
as it comes and appends constants, so that it fits 11 x 9 shared and 11 own coefficients per arm where the others have
10 x 8 and 10; it is timed without refits (in the middle of a game) and, over 10,000 rounds from the first on, with all
of them. Contenders take turns in one thread and processor time; ratios are of medians, in brackets of minima. Growth is
the exponent over the upper half of the sizes, with that of the stated complexity beside it. One table in Markdown.
"""

import os

# Before NumPy is loaded: its libraries read these once. One thread for every contender.
os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "NUMBA")})

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np

from sketchbandits import HybridCSLB
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.hybrid import refit
from sketchbandits.policies.hybrid.choice import decide
from sketchbandits.policies.hybrid.record import record
from suite import growth, hybrid_linucb
from suite.hybrid_linucb import HybridLinUCB
from suite.machine import machine
from suite.measure import Contender, Samples, interleaved
from suite.peers import venvs
from suite.targets import Target, at_most, three_digits

N, P, RANK, NEVER = 1_000, 10, 8, 2**62
FEATURES = (8, 64, 512)  # in which the arms of rank 8 lie
PRINTED, STACKED, VW = "Algorithm 2 in NumPy, arm by arm as printed", "Algorithm 2 in NumPy, all arms stacked", "VW"
LOOP, CALLS = "HybridCSLB, compiled loop", "HybridCSLB, select + update"
Row = tuple[str, str, str, str, str]


class Sizes(NamedTuple):
    """Repetitions, rounds of a repetition (ours, theirs), rounds of a whole game, and the sizes that grow."""

    turns: int
    own: int
    other: int
    whole: int
    seconds: float  # of Vowpal Wabbit
    arms: tuple[int, ...]
    contexts: tuple[int, ...]
    ranks: tuple[int, ...]


FULL = Sizes(9, 1_000, 40, 10_000, 2.0, (100, 300, 1_000, 3_000, 10_000), (2, 5, 10, 20, 40), (2, 4, 8, 16))
QUICK = Sizes(2, 50, 4, 300, 0.2, (100, 200, 400), (2, 4, 8), (2, 4, 8))


class Game(NamedTuple):
    """Arms, contexts, and what every arm would pay in every round."""

    arms: Floats
    contexts: Floats
    rewards: Floats


def drawn(n: int, p: int, rank: int, rounds: int) -> Game:
    """Rewards of the hybrid model: a shared part, and deviations of every arm."""
    rng = np.random.default_rng([n, p, rank])
    arms, theta, own = rng.normal(size=(n, rank)), rng.normal(size=(p, rank)), 0.3 * rng.normal(size=(p, n))
    contexts = rng.normal(size=(rounds, p)) / np.sqrt(p)
    return Game(arms, contexts, contexts @ (theta @ arms.T / np.sqrt(rank) + own) + rng.normal(size=(rounds, n)))


def lifted(arms: Floats, q: int) -> Floats:
    """The same arms in ``q`` dimensions, turned: inner products stay."""
    return arms @ np.linalg.qr(np.random.default_rng(q).normal(size=(q, arms.shape[1])))[0].T


def begun(game: Game, arms: Floats) -> HybridCSLB:
    """In the middle of a game, with no refit to come."""
    policy = HybridCSLB(arms, context_dim=game.contexts.shape[1], explore="ucb")
    policy.play_user_rounds(game.contexts, game.rewards, None)
    policy.state.level["due"] = NEVER
    return policy


def compiled(policy: HybridCSLB, game: Game, rounds: int) -> Contender:
    """Rounds in one kernel."""
    contexts, rewards = game.contexts[:rounds], game.rewards[:rounds]

    def run() -> float:
        twin = policy.copy()
        started = time.thread_time()
        twin.play_user_rounds(contexts, rewards, None)
        return (time.thread_time() - started) / rounds * 1e6

    return run


def called(policy: HybridCSLB, game: Game, rounds: int) -> Contender:
    """``select`` and ``update`` from Python."""

    def run() -> float:
        twin = policy.copy()
        started = time.thread_time()
        for x, rewards in zip(game.contexts[:rounds], game.rewards, strict=False):
            arm = twin.select(x)
            twin.update(arm, rewards[arm], context=x)
        return (time.thread_time() - started) / rounds * 1e6

    return run


def rival(game: Game, arms: Floats, rounds: int, *, stacked: bool) -> Contender:
    """Algorithm 2 from its start: what a trial costs does not depend on what was learned."""

    def run() -> float:
        policy = HybridLinUCB(arms, game.contexts.shape[1], stacked=stacked)
        started = time.thread_time()
        for x, rewards in zip(game.contexts[:rounds], game.rewards, strict=False):
            arm = policy.select(x)
            policy.update(arm, rewards[arm], x)
        return (time.thread_time() - started) / rounds * 1e6

    return run


def whole(game: Game, rounds: int) -> Contender:
    """A game from the first reward on, with all refits."""
    contexts, rewards = game.contexts[:rounds], game.rewards[:rounds]

    def run() -> float:
        policy = HybridCSLB(game.arms, context_dim=contexts.shape[1], explore="ucb")
        started = time.thread_time()
        policy.play_user_rounds(contexts, rewards, None)
        return (time.thread_time() - started) / rounds * 1e6

    return run


def vowpal_wabbit(game: Game, folder: Path, scratch: Path, seconds: float) -> Contender:
    """In its own environment and process; `venvs.NotInstalledError` where it cannot be had."""
    python = venvs.Venvs(folder).python("vowpalwabbit")
    problem, output = scratch / "problem.npz", scratch / "found.json"
    np.savez(problem, arms=game.arms, contexts=game.contexts, rewards=game.rewards)
    command = [str(python), hybrid_linucb.__file__, str(problem), str(output), "--seconds", str(seconds)]

    def run() -> float:
        log = scratch / "vowpalwabbit.log"
        if venvs.run(command, log, seconds=60 * seconds + 60) != 0:
            raise RuntimeError(venvs.last_line(log))
        return float(json.loads(output.read_text())["microseconds"])

    return run


def rounds_rows(sizes: Sizes, peers: Path | None, scratch: Path) -> Iterator[Row]:
    """What a round costs, everybody in turns."""
    game = drawn(N, P, RANK, sizes.whole)
    policies = {q: begun(game, game.arms if q == RANK else lifted(game.arms, q)) for q in FEATURES}
    contenders: dict[str, Contender] = {
        f"{LOOP}, q = {q}": compiled(policy, game, sizes.own) for q, policy in policies.items()
    }
    contenders[f"{CALLS}, q = 8"] = called(policies[RANK], game, sizes.own)
    contenders[f"{LOOP}, from the first round, with refits"] = whole(game, sizes.whole)
    contenders[PRINTED] = rival(game, game.arms, sizes.other, stacked=False)
    contenders[STACKED] = rival(game, game.arms, 5 * sizes.other, stacked=True)
    contenders[f"{STACKED}, q = 64"] = rival(game, lifted(game.arms, 64), 2, stacked=True)
    missing = "not asked for" if peers is None else ""
    if peers is not None:
        try:
            contenders[VW] = vowpal_wabbit(game, peers, scratch, sizes.seconds)
        except venvs.NotInstalledError as error:
            missing = f"not installed: {error}"
    samples = interleaved(contenders, sizes.turns)
    for name, values in samples.items():
        yield name, f"{shown(statistics.median(values))} ({shown(min(values))})", "", "", ""
    if missing:
        yield VW, missing, "", "", ""
    yield from map(ratio_row, targets(samples))


def targets(samples: Samples) -> list[Target]:
    """The ratios, and what they should be."""
    loop, calls, all_of_it = f"{LOOP}, q = 8", f"{CALLS}, q = 8", f"{LOOP}, from the first round, with refits"
    found = [
        at_most("compiled loop / as printed", samples, loop, PRINTED, 1 / 20),
        at_most("select + update / as printed", samples, calls, PRINTED, 1 / 20),
        at_most("with refits / as printed", samples, all_of_it, PRINTED, 1 / 20),
        at_most("compiled loop / stacked", samples, loop, STACKED, 1 / 20),
        at_most("compiled loop / stacked, both q = 64", samples, f"{LOOP}, q = 64", f"{STACKED}, q = 64", 1 / 20),
        at_most("with / without refits", samples, all_of_it, loop, None),
        *(at_most(f"q = {q} / q = 8", samples, f"{LOOP}, q = {q}", loop, 1.05) for q in FEATURES[1:]),
    ]
    if VW in samples:
        found += [at_most(f"{what} / VW", samples, name, VW, 1.0) for what, name in (("loop", loop), ("calls", calls))]
    return found


def shown(microseconds: float) -> str:
    """In microseconds, three digits."""
    return three_digits(microseconds)


def ratio_row(target: Target) -> Row:
    return target.what, "", target.shown, target.target, target.reached


# --------------------------------------------------------------------------------------------------------------- growth
@numba.njit
def decisions(state: Any, contexts: Floats) -> int:
    """One decision per context."""
    n, pick, total = state.counts.size, np.empty(1, np.int64), 0
    for t in range(len(contexts)):
        decide(state, contexts[t], t, np.zeros(n), np.ones(n, np.bool_), pick)
        total += pick[0]
    return total


@numba.njit
def recorded(state: Any, contexts: Floats, arms: Ints, rewards: Floats) -> None:
    """One reward per context."""
    for t in range(len(contexts)):
        record(state, arms[t], contexts[t], rewards[t])


def filled(n: int, p: int, rank: int) -> HybridCSLB:
    """As after more rewards per arm than it has coefficients; they are put in at once."""
    rng = np.random.default_rng([n, p, rank])
    policy = HybridCSLB(rng.normal(size=(n, rank)), context_dim=p, explore="ucb")
    rows = rng.normal(size=(n, p + 5, p + 2))
    rows[:, :, p] = 1.0
    policy.state.factors[:] = np.linalg.qr(rows, mode="r")
    policy.state.counts[:], policy.state.level["samples"] = p + 5, n * (p + 5)
    refit.refit(policy.state)
    policy.state.level["due"] = NEVER
    return policy


def part_contenders(n: int, p: int, rank: int, work: int) -> dict[str, Contender]:
    """A decision, a reward and a refit at this shape; ``work``: how many arms a repetition goes through."""
    policy, rng = filled(n, p, rank), np.random.default_rng(0)
    size = max(3, work // n)
    contexts = np.column_stack([rng.normal(size=(size, p)), np.ones(size)])
    arms, rewards = rng.integers(0, n, size), rng.normal(size=size)

    def timed(action: Callable[[], Any], times: int) -> Contender:
        action()

        def run() -> float:
            started = time.thread_time()
            action()
            return (time.thread_time() - started) / times * 1e6

        return run

    twin = policy.copy()
    return {
        "decision": timed(lambda: decisions(policy.state, contexts), size),
        "reward": timed(lambda: recorded(twin.state, contexts, arms, rewards), size),
        "refit": timed(lambda: refit.refit(policy.state), 1),
    }


def costs(n: int, p: int, rank: int) -> dict[str, float]:
    """The stated complexities; both constants count."""
    p, r = p + 1, rank + 1
    return {
        "decision": n * p**2,
        "reward": (p * r) ** 2 + n * p * (p + r),
        "refit": n * p**3 + (p * r) ** 3 + n * p**2 * r**2,
    }


def growth_rows(sizes: Sizes) -> Iterator[Row]:
    """How the parts of a round grow with N, p and r."""
    for name, shapes in (
        ("N", [(n, P, RANK) for n in sizes.arms]),
        ("p", [(N, p, RANK) for p in sizes.contexts]),
        ("r", [(N, P, rank) for rank in sizes.ranks]),
    ):
        grown = {"N": sizes.arms, "p": sizes.contexts, "r": sizes.ranks}[name]
        work = 4 * N if sizes is QUICK else 200 * N
        parts = [part_contenders(*shape, work) for shape in shapes]
        for part in ("decision", "reward", "refit"):
            turns = min(sizes.turns, 3) if part == "refit" else sizes.turns
            samples = interleaved({i: each[part] for i, each in enumerate(parts)}, turns)
            middle = [statistics.median(samples[i]) for i in range(len(grown))]
            found = growth.exponent(grown, [samples[i] for i in range(len(grown))])
            stated = growth.stated(grown, lambda shape, part=part: costs(*shape)[part], shapes)
            between = f"{growth.shown(found.mean)} ({growth.shown(found.low)} to {growth.shown(found.high)})"
            what = f"{part}, {name} = {', '.join(f'{each:,}' for each in grown)}"
            yield what, ", ".join(map(shown, middle)), between, growth.shown(stated), ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="where Vowpal Wabbit is, or is to be installed")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    for key, value in machine().items():
        print(f"{key}: {value}", file=sys.stderr)
    print("| what | microseconds, median (least) | ratio (of minima) or exponent | target or formula | reached |")
    print("|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        for rows in (rounds_rows(sizes, options.peers, Path(scratch)), growth_rows(sizes)):
            for row in rows:
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
