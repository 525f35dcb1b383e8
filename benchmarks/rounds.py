"""What a round costs: the library's compiled loops and Python API against each other and against `yardstick`.

    python benchmarks/rounds.py [--quick] [--json PATH] [--against DIR]

Contenders of a workload take turns (A, B, A, B, ...), each time from a fresh policy and on the same seeded noise; a
ratio compares their medians, and their minima as a check. Only ratios of one run mean anything: a missed target is
reported, never an error. ``--against`` compares every policy with that of another checkout of the library instead.
"""

import os

# Before NumPy is loaded: its libraries read these once. One thread for every contender.
os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "NUMBA")})

import argparse
import json
import statistics
import textwrap
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits import CSLB, OFUL, UCB1
from sketchbandits.environments import LinearEnvironment
from sketchbandits.kernels.linalg import Floats
from suite import checkouts, games, round_ratios
from suite.games import paper_game, turned
from suite.machine import machine
from suite.measure import Samples, compiled, interleaved, mean_of, through_api
from suite.targets import Target, at_least, at_most
from suite.textbook_ucb1 import TextbookUCB1
from suite.yardstick import NumpyOFUL

Measured = tuple[str, Samples, list[Target]]


def noise_of(env: LinearEnvironment, rounds: int) -> Floats:
    return games.noise_of(env, rounds, seed=7)


def against_ucb1(quick: bool) -> Measured:
    """Dataset 1 in the compiled loop, over several draws: a scan takes longer the later its best arm stands."""
    draws = [paper_game(60, 50, seed=seed) for seed in range(1, 3 if quick else 9)]
    noise = noise_of(draws[0], 5_000 if quick else 100_000)
    policies: dict[str, Callable[[Floats], Any]] = {
        "CS-LB": lambda arms: CSLB(arms, sketch_size=5),
        "UCB1": UCB1,
        "UCB1 as printed": TextbookUCB1,
    }
    contenders = {
        name: mean_of([compiled(make(env.arms), env, noise) for env in draws]) for name, make in policies.items()
    }
    samples = interleaved(contenders, 3 if quick else 15)
    rows = [
        at_most("CS-LB / UCB1, dataset 1, compiled loop", samples, "CS-LB", "UCB1", 1.0),
        at_most("CS-LB / UCB1 with its bound as printed", samples, "CS-LB", "UCB1 as printed", 1.0),
    ]
    title = f"dataset 1 (N=60, d=50, l=5), {len(draws)} draws, compiled loop, {noise.size:,} rounds each"
    return title, samples, rows


def in_many_dimensions(quick: bool) -> Measured:
    """The same arms in 64 and in 2048 dimensions: partitions, choices and rewards agree, so only d can differ."""
    low = paper_game(60, 64, seed=3)
    high = turned(low, 2048, seed=4)
    other = paper_game(60, 2048, seed=5)  # a fresh draw: the same partition, other choices
    policies = {env: CSLB(env.arms, sketch_size=5) for env in (low, high, other)}
    labels = policies[low].partition.labels
    if any(not np.array_equal(labels, policy.partition.labels) for policy in policies.values()):
        raise RuntimeError("the arm sets of this comparison must have the same partition")
    noise = noise_of(low, 5_000 if quick else 20_000)
    contenders = {
        "d = 64": compiled(policies[low], low, noise),
        "d = 2048": compiled(policies[high], high, noise),
        "d = 2048, other arms": compiled(policies[other], other, noise),
    }
    samples = interleaved(contenders, 3 if quick else 151)  # many and short: 5 % must show
    rows = [
        at_most("CS-LB d=2048 / d=64, the same arms turned", samples, "d = 2048", "d = 64", 1.05),
        at_most("CS-LB d=2048 / d=64, arms drawn afresh", samples, "d = 2048, other arms", "d = 64", 1.05),
    ]
    return f"N=60, l=5, 12 clusters of 5 arms, compiled loop, {noise.size:,} rounds", samples, rows


def against_numpy(quick: bool) -> Measured:
    """Many arms and dimensions: the compiled loops against NumPy."""
    env = paper_game(1000, 200, seed=6)
    noise = noise_of(env, 200 if quick else 5_000)
    contenders = {
        "NumPy OFUL": through_api(lambda: NumpyOFUL(env.arms), env, noise),
        "OFUL": compiled(OFUL(env.arms), env, noise),
        "CS-LB": compiled(CSLB(env.arms, sketch_size=10), env, noise),
    }
    samples = interleaved(contenders, 3 if quick else 7)
    rows = [
        at_most("OFUL, compiled loop / NumPy OFUL", samples, "OFUL", "NumPy OFUL", 1.0),
        at_least("NumPy OFUL / CS-LB (l=10), compiled loop", samples, "NumPy OFUL", "CS-LB", 100.0),
    ]
    return f"N=1000, d=200, {noise.size:,} rounds", samples, rows


def through_python(quick: bool) -> Measured:
    """Dataset 1, ``select`` and ``update`` called from Python."""
    env = paper_game(60, 50, seed=1)
    noise = noise_of(env, 500 if quick else 2_000)
    start = CSLB(env.arms, sketch_size=5)
    contenders = {
        "CS-LB": through_api(start.copy, env, noise),
        "NumPy OFUL": through_api(lambda: NumpyOFUL(env.arms), env, noise),
        "OFUL": through_api(OFUL(env.arms).copy, env, noise),
    }
    samples = interleaved(contenders, 3 if quick else 51)
    rows = [at_most("CS-LB / NumPy OFUL, select + update", samples, "CS-LB", "NumPy OFUL", 1 / 3)]
    return f"dataset 1 (N=60, d=50, l=5), select + update in Python, {noise.size:,} rounds", samples, rows


WORKLOADS = (against_ucb1, in_many_dimensions, against_numpy, through_python)


def print_report(report: dict[str, Any]) -> None:
    for key, value in report["machine"].items():
        print(textwrap.fill(f"{key}: {value}", 80, subsequent_indent="  "))
    for workload in report["workloads"]:
        print(f"\n{workload['what']}")
        print(f"  {'microseconds per round':<28}{'median':>10}{'least':>10}{'most':>10}")
        for name, values in workload["microseconds"].items():
            print(f"  {name:<28}{statistics.median(values):>10.3f}{min(values):>10.3f}{max(values):>10.3f}")
    print(f"\n{'what':<41} | {'ratio':>6} {'(minima)':>8} | {'target':>8} | reached")
    print("-+-".join("-" * width for width in (41, 15, 8, 7)))
    for row in report["targets"]:
        ratios = f"{row['ratio']:>6.3g} {'(' + format(row['ratio_of_minima'], '.3g') + ')':>8}"
        print(f"{row['what']:<41} | {ratios} | {row['target']:>8} | {row['reached']}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What a round costs, as ratios.")
    parser.add_argument("--quick", action="store_true", help="a few seconds: shows that it runs, measures nothing well")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything, all samples included, to PATH")
    checkouts.add_argument(parser)
    parser.add_argument("--repetitions", type=int, default=15, help="turns of --against (default: 15)")
    options = parser.parse_args()
    if options.against is not None:
        report = round_ratios.compare(options.against, options.quick, options.repetitions)
        round_ratios.show(report)
    else:
        report = measured(options.quick)
        print_report(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))


def measured(quick: bool) -> dict[str, Any]:
    """Every workload in turn."""
    report: dict[str, Any] = {"machine": machine(), "quick": quick, "workloads": [], "targets": []}
    for workload in WORKLOADS:
        what, samples, rows = workload(quick)
        report["workloads"].append({"what": what, "microseconds": samples})
        report["targets"] += [asdict(row) for row in rows]
    return report


if __name__ == "__main__":
    main()
