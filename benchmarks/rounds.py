"""What a round costs: the library's compiled loops and Python API against each other and against `yardstick`.

    python benchmarks/rounds.py [--quick] [--json PATH]

Contenders of a workload take turns (A, B, A, B, ...), each time from a fresh policy and on the same seeded noise; a
ratio compares their medians, and their minima as a check. Only ratios of one run mean anything: a missed target is
reported, never an error.
"""

import os

# Before NumPy is loaded: its libraries read these once. One thread for every contender.
os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "NUMBA")})

import argparse
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
from yardstick import Floats, NumpyOFUL, TextbookUCB1

import sketchbandits
from sketchbandits import CSLB, OFUL, UCB1
from sketchbandits.environments import LinearEnvironment, correlated_arms, uniform_parameter

Contender = Callable[[], float]  # plays its rounds once; microseconds a round
Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Row:
    """One line of the table: a ratio and what it should be."""

    what: str
    ratio: float  # of medians
    ratio_of_minima: float
    target: str
    reached: str  # yes, NO; unsure where medians and minima disagree: the machine was busy


def environment(n_arms: int, dim: int, seed: int) -> LinearEnvironment:
    """The paper's setup: positive arms in general position, a parameter of norm 1."""
    arms = correlated_arms(n_arms=n_arms, dim=dim, seed=seed)
    return LinearEnvironment(arms, uniform_parameter(dim, seed=seed + 1))


def noise_of(env: LinearEnvironment, rounds: int) -> Floats:
    return env.draw_noise(np.random.default_rng(7), rounds)


def compiled(policy: Any, env: LinearEnvironment, noise: Floats) -> Contender:
    """All rounds inside one compiled kernel."""
    policy.copy().play(env.means, env.gaps, noise[:1])  # compiled, or loaded, before the clock runs

    def run() -> float:
        twin = policy.copy()
        started = time.perf_counter()
        twin.play(env.means, env.gaps, noise)
        return (time.perf_counter() - started) / noise.size * 1e6

    return run


def mean_of(parts: list[Contender]) -> Contender:
    """The mean over several contenders, as one."""
    return lambda: statistics.fmean(part() for part in parts)


def through_api(make: Callable[[], Any], env: LinearEnvironment, noise: Floats) -> Contender:
    """``select`` and ``update``, as a caller in Python does."""
    means, values = env.means.tolist(), noise.tolist()

    def run() -> float:
        policy = make()
        policy.update(0, 0.0)  # the first call loads kernels
        started = time.perf_counter()
        for value in values:
            arm = policy.select()
            policy.update(arm, means[arm] + value)
        return (time.perf_counter() - started) / noise.size * 1e6

    return run


def interleaved(contenders: dict[str, Contender], repetitions: int) -> Samples:
    """Every contender's samples, taken in turns so that a busy moment of the machine meets all alike."""
    samples: Samples = {name: [] for name in contenders}
    gc.collect()
    gc.disable()
    try:
        for turn in range(repetitions):
            order = list(contenders) if turn % 2 == 0 else list(contenders)[::-1]
            for name in order:
                samples[name].append(contenders[name]())
    finally:
        gc.enable()
    return samples


def at_most(what: str, samples: Samples, over: str, under: str, limit: float) -> Row:
    """``over / under`` should be at most ``limit``."""
    ratio, minima = _ratios(samples, over, under)
    return Row(what, ratio, minima, f"<= {limit:.3g}", _verdict(ratio <= limit, minima <= limit))


def at_least(what: str, samples: Samples, over: str, under: str, limit: float) -> Row:
    """``over / under`` should be at least ``limit``."""
    ratio, minima = _ratios(samples, over, under)
    return Row(what, ratio, minima, f">= {limit:.3g}", _verdict(ratio >= limit, minima >= limit))


def _verdict(by_medians: bool, by_minima: bool) -> str:
    return ("yes" if by_medians else "NO") if by_medians == by_minima else "unsure"


def _ratios(samples: Samples, over: str, under: str) -> tuple[float, float]:
    a, b = samples[over], samples[under]
    return statistics.median(a) / statistics.median(b), min(a) / min(b)


def against_ucb1(quick: bool) -> tuple[str, Samples, list[Row]]:
    """Dataset 1 in the compiled loop, over several draws: a scan takes longer the later its best arm stands."""
    draws = [environment(60, 50, seed=seed) for seed in range(1, 3 if quick else 9)]
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


def in_many_dimensions(quick: bool) -> tuple[str, Samples, list[Row]]:
    """The same arms in 64 and in 2048 dimensions: partitions, choices and rewards agree, so only d can differ."""
    low = environment(60, 64, seed=3)
    # Turned, not padded with zeros: all 2048 coordinates of every arm are in use. A rotation keeps all inner products.
    turn = np.linalg.qr(np.random.default_rng(4).standard_normal((2048, 64)))[0].T
    high = LinearEnvironment(low.arms @ turn, low.theta @ turn)
    other = environment(60, 2048, seed=5)  # a fresh draw: the same partition, other choices
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


def against_numpy(quick: bool) -> tuple[str, Samples, list[Row]]:
    """Many arms and dimensions: the compiled loops against NumPy."""
    env = environment(1000, 200, seed=6)
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


def through_python(quick: bool) -> tuple[str, Samples, list[Row]]:
    """Dataset 1, ``select`` and ``update`` called from Python."""
    env = environment(60, 50, seed=1)
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


def machine() -> dict[str, str]:
    """Where and with what this was measured."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")
    load = f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"
    return {
        "cpu": f"{os.cpu_count()} x {model or platform.processor() or platform.machine()}, one thread used",
        "load at the start": load,
        "system": platform.platform(),
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}, "
        f"sketchbandits {sketchbandits.__version__}",
    }


def print_report(report: dict[str, Any]) -> None:
    for key, value in report["machine"].items():
        print(f"{key}: {value}")
    for workload in report["workloads"]:
        print(f"\n{workload['what']}")
        print(f"  {'microseconds a round':<28}{'median':>10}{'least':>10}{'most':>10}")
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
    options = parser.parse_args()
    report: dict[str, Any] = {"machine": machine(), "quick": options.quick, "workloads": [], "targets": []}
    for workload in WORKLOADS:
        what, samples, rows = workload(options.quick)
        report["workloads"].append({"what": what, "microseconds": samples})
        report["targets"] += [asdict(row) for row in rows]
    print_report(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
