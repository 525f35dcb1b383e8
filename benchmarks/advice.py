"""What `advise` says against what is played: the tables of docs/advice.md.

Times: microseconds per round that `advise` measures in a few hundred rounds against the mean of 3,000 rounds, both
through `select` and `update` from Python, in the processor time of this thread and with one BLAS thread. With
``--regret``: what is recommended against the best size of other policies.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits import advise, simulate
from sketchbandits.environments import LinearEnvironment, correlated_arms, isotropic_parameter, subspace_arms
from sketchbandits.kernels.threads import one_blas_thread

ROUNDS = 3_000
CASES = {
    "N=60, d=50": (lambda: correlated_arms(n_arms=60, dim=50, seed=0), 5),
    "N=1,000, d=20": (lambda: correlated_arms(n_arms=1000, dim=20, seed=0), 4),
    "N=1,000, d=200": (lambda: correlated_arms(n_arms=1000, dim=200, seed=0), 10),
    "N=400 in 5 subspaces, d=30": (
        lambda: subspace_arms(n_arms=400, dim=30, n_subspaces=5, rank=4, shuffle=True, seed=0),
        4,
    ),
    "N=20,000, d=16": (lambda: correlated_arms(n_arms=20_000, dim=16, seed=0), 8),
}


def measured(policy: Any, env: LinearEnvironment, rounds: int) -> float:
    """Microseconds per round, the mean of a whole run."""
    noise, means = env.draw_noise(np.random.default_rng(1), rounds).tolist(), env.means.tolist()
    policy.copy().update(0, 0.5)  # kernels are loaded before the clock runs
    with one_blas_thread():
        start = time.thread_time()
        for value in noise:
            arm = policy.select()
            policy.update(arm, means[arm] + value)
        return 1e6 * (time.thread_time() - start) / rounds


def rows(arms: Any, sketch_size: int, quick: bool) -> list[dict[str, Any]]:
    """One row per policy, at one sketch size."""
    env = LinearEnvironment(arms, isotropic_parameter(arms.shape[1], seed=2))
    rounds = 20 if quick else ROUNDS
    advice = advise(arms, rounds=rounds, sketch_sizes=[sketch_size], progress=False)
    return [
        {"policy": each.name, "advised": each.microseconds, "measured": measured(each.build(arms), env, rounds)}
        for each in advice.finalists
    ]


def played(arms: Any, rounds: int) -> dict[str, tuple[float, float]]:
    """Bound and mean regret of three runs, of what is recommended within 20 us and of the best size of some others."""
    advice = advise(arms, rounds=rounds, budget_us=20.0, progress=False)
    best = {found.name: found for found in advice.finalists}
    others = [best[name] for name in ("UCB1", "OFUL", "OFUL, rare", "CSLB", "CSLB, log-det")]
    found = {f"* {advice.choice.call}": advice.choice, **{each.call: each for each in others}}
    env = LinearEnvironment(arms, isotropic_parameter(arms.shape[1], seed=5))
    policies = {name: each.build(arms) for name, each in found.items()}
    result = simulate(env, policies, rounds=rounds, runs=3, seed=0, progress=False)
    return {name: (found[name].bound or 0.0, float(result.mean(name)[-1])) for name in policies}


def print_regrets(quick: bool) -> None:
    rounds = 200 if quick else 50_000
    for name in ("N=60, d=50", "N=1,000, d=20", "N=400 in 5 subspaces, d=30"):
        print(f"\n{f'{name}, {rounds:,} rounds':<72}{'bound':>10}{'regret':>10}")
        for call, (bound, regret) in played(CASES[name][0](), rounds).items():
            print(f"  {call:<70}{bound:>10,.0f}{regret:>10,.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="What advise says against what is played.")
    parser.add_argument("--regret", action="store_true", help="play what is recommended against others instead")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to see that it runs")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything to PATH")
    options = parser.parse_args()
    if options.regret:
        print_regrets(options.quick)
        return
    report = {}
    for name, (make, sketch_size) in CASES.items():
        report[name] = rows(make(), sketch_size, options.quick)
        print(f"\n{f'{name}, l={sketch_size}':<36}{'advised':>10}{'measured':>10}{'ratio':>8}")
        for row in report[name]:
            ratio = row["advised"] / row["measured"]
            print(f"  {row['policy']:<34}{row['advised']:>10.3g}{row['measured']:>10.3g}{ratio:>8.2f}", flush=True)
    ratios = [math.log(row["advised"] / row["measured"]) for part in report.values() for row in part]
    typical, worst = math.exp(float(np.median(np.abs(ratios)))), math.exp(max(map(abs, ratios)))
    within = np.mean(np.abs(ratios) <= math.log(2.0))
    print(f"\ntypical error: a factor of {typical:.2f}; worst: {worst:.2f}; within a factor of two: {within:.0%}")
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
