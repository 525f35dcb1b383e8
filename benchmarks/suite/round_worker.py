"""One version of the library under `rounds.py --against`: plays a contender each time its name arrives on stdin.

The first line that it prints is a JSON list of names; every later one is the microseconds per round of one repetition.
"""

import inspect
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import sketchbandits
from suite.games import noise_of, paper_game
from suite.measure import Contender, compiled, no_collector, through_api

# Arms, dimension, sketch size, rounds per repetition.
SETTINGS = {"N=60, d=50": (60, 50, 5, 20_000), "N=1000, d=200": (1000, 200, 10, 2_000)}
COMPILED = (
    "CSLB",
    "MultiscaleCSLB",
    "HybridCSLB",
    "OFUL",
    "LinUCB",
    "LinTS",
    "SOFUL",
    "CBSCFD",
    "DBSLinUCB",
    "CBRAP",
    "UCB1",
)
CALLED = ("CSLB", "MultiscaleCSLB", "OFUL", "UCB1")
CONTEXTUAL = ("MultiscaleCSLB", "OFUL")


def contenders(quick: bool) -> dict[str, Contender]:
    """Every policy in the compiled loop; the usual ones called from Python, on fixed arms and on contexts."""
    found: dict[str, Contender] = {}
    for setting, (n, d, l, full) in SETTINGS.items():
        env, rounds = paper_game(n, d, seed=1), 50 if quick else full
        policies = {
            name: _built(getattr(sketchbandits, name), env.arms, l) for name in COMPILED if hasattr(sketchbandits, name)
        }
        for name, policy in policies.items():
            found[f"{name}, {setting}, compiled loop"] = compiled(policy, env, noise_of(env, rounds, seed=7))
        for name in CALLED:
            noise = noise_of(env, min(rounds, 2_000), seed=7)
            found[f"{name}, {setting}, select + update"] = through_api(policies[name].copy, env, noise)
    return found | {f"{name}.contextual, 10 of d=50": _contextual(name, 50 if quick else 500) for name in CONTEXTUAL}


def _built(policy: Any, arms: Any, sketch_size: int) -> Any:
    sized = {"sketch_size": sketch_size} if "sketch_size" in inspect.signature(policy).parameters else {}
    return policy(arms, seed=0, **sized)


def _contextual(name: str, rounds: int) -> Contender:
    offers = np.random.default_rng(3).random((rounds, 10, 50)) / 50
    means = offers @ np.full(50, 1 / np.sqrt(50))
    make: Callable[..., Any] = getattr(sketchbandits, name).contextual

    def play() -> float:
        policy = make(dim=50, seed=0)
        policy.update(offers[0, policy.select(offers[0])], 0.0)  # the first call loads kernels
        started = time.thread_time()
        for contexts, expected in zip(offers, means, strict=True):
            choice = policy.select(contexts)
            policy.update(contexts[choice], float(expected[choice]))
        return (time.thread_time() - started) / rounds * 1e6

    return play


def main() -> None:
    """Answer until stdin is closed."""
    found = contenders(quick="--quick" in sys.argv)
    for play in found.values():
        play()
    print(json.dumps(list(found)), flush=True)
    for line in sys.stdin:
        with no_collector():
            print(found[line.strip()](), flush=True)


if __name__ == "__main__":
    main()
