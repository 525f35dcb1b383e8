"""HybridCSLB as it comes, in the worlds of `suite.worlds`, beside LinUCB that knows the noise, multi-scale and UCB1.

python benchmarks/practice.py                       # seeds 100 to 109, on which nobody has tuned
python benchmarks/practice.py --films FOLDER        # with MovieLens-100k, as the recbole package carries it
python benchmarks/practice.py --quick               # seconds: shows that it runs

Regret, its second half and the mean reward, with 95 % intervals of the mean over seeds. Policies without contexts
choose for everybody alike.
"""

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from sketchbandits import UCB1, AssumptionWarning, HybridCSLB, MultiscaleCSLB
from sketchbandits.progress import Bar
from sketchbandits.user_rounds import UserRounds
from suite.linear_rivals import LinUCBForUsers
from suite.worlds import World, worlds

SLOW = 400  # p q above which shared LinUCB, which costs its square per arm, is left out
Make = Callable[[World, int], Any]


def contenders(world: World) -> dict[str, Make]:
    """Every policy that can play here."""
    p = world.env.context_dim or 1
    found: dict[str, Make] = {
        "HybridCSLB": lambda world, seed: HybridCSLB(world.arms, context_dim=world.env.context_dim, seed=seed),
        "LinUCB shared": lambda world, _: LinUCBForUsers(world.arms, p, shared=True, alpha=world.noise),
        "LinUCB disjoint": lambda world, _: LinUCBForUsers(world.arms, p, shared=False, alpha=world.noise),
        "MultiscaleCSLB": lambda world, seed: MultiscaleCSLB(world.arms, noise=world.noise, seed=seed),
        "UCB1": lambda world, _: UCB1(world.arms, noise=world.noise),
    }
    if p * world.arms.shape[1] > SLOW:
        del found["LinUCB shared"]
    return found


def play(make: Make, draw: Callable[[np.random.Generator], World], seed: int, share: float) -> tuple[float, ...]:
    """Regret, that of the second half, and the mean reward of one run."""
    world = draw(np.random.default_rng([seed, 1]))
    half = max(1, int(share * world.rounds) // 2)
    player = UserRounds(world.env, make(world, seed), np.random.default_rng([seed, 2]), None)
    first, _ = player.play(np.zeros(half))
    second, _ = player.play(np.zeros(half))
    return first + second, second, player.reward / (2 * half)


def interval(values: np.ndarray) -> str:
    """Mean and half the width of its 95 % interval."""
    if len(values) < 2:
        return f"{values.mean():,.4g}"
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return f"{values.mean():,.4g} ± {half:.2g}"


def main() -> None:
    """Play, and print one table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--films", type=Path, help="a folder with MovieLens-100k, as recbole carries it")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--only", nargs="+", help="worlds by name")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    known = worlds(chosen.films)
    if chosen.only and (unknown := set(chosen.only) - set(known)):
        sys.exit(f"--only must be among {', '.join(known)}, got {', '.join(sorted(unknown))}")
    seeds = range(1) if chosen.quick else range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    share = 0.01 if chosen.quick else 1.0
    print("| world | policy | regret | second half | mean reward |\n|---|---|---:|---:|---:|")
    warnings.simplefilter("ignore", AssumptionWarning)
    names = chosen.only or list(known)
    with Bar() as bar:
        for done, name in enumerate(names):
            for policy, make in contenders(known[name](np.random.default_rng(0))).items():
                bar.show(done / len(names), f"{name}, {policy}")
                runs = np.array([play(make, known[name], seed, share) for seed in seeds])
                print(f"| {name} | {policy} | " + " | ".join(map(interval, runs.T)) + " |", flush=True)


if __name__ == "__main__":
    main()
