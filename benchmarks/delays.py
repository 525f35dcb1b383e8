"""Regret when rewards are late or decisions come in batches, with and without passing pending decisions to the policy.

    python benchmarks/delays.py [--rounds N] [--seeds K] [--processes P] [--figure PATH] [--quick] [--only WORDS]
    python benchmarks/delays.py --times

Prints the tables of docs/delays.md: mean regret over seeds, each with arms, parameter, noise and delays of its own and
all policies paired; "without / with" are `simulate(pending=False)` and `simulate(pending=True)`. ``--times``: what a
decision costs with a thousand pending ones, and how many pending ones are discounted. ``--only multi-scale``: the
policies whose name holds this.
"""

import os

# Before NumPy is loaded: its libraries read these once.
os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "NUMBA")})

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from sketchbandits import CBRAP, CBSCFD, CSLB, OFUL, SOFUL, UCB1, DBSLinUCB, LinTS, LinUCB, MultiscaleCSLB, simulate
from sketchbandits.environments import (
    LinearEnvironment,
    correlated_arms,
    fixed_delay,
    geometric_delay,
    heavy_tailed_delay,
    uniform_parameter,
)
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.pending.rule import FULL, decide

POLICIES: dict[str, Callable[[Floats, int], Any]] = {
    "Multi-scale": lambda arms, l: MultiscaleCSLB(arms, sketch_size=l),
    "Multi-scale, optimism": lambda arms, l: MultiscaleCSLB(arms, sketch_size=l, explore="optimism"),
    "CS-LB": lambda arms, l: CSLB(arms, sketch_size=l),
    "CS-LB log-det": lambda arms, l: CSLB(arms, sketch_size=l, radius="logdet"),
    "OFUL log-det": lambda arms, l: OFUL(arms, radius="logdet"),
    "LinUCB": lambda arms, l: LinUCB(arms),
    "LinTS": lambda arms, l: LinTS(arms, seed=0),
    "SOFUL": lambda arms, l: SOFUL(arms, sketch_size=2 * l),
    "CBSCFD": lambda arms, l: CBSCFD(arms, sketch_size=2 * l),
    "DBSLinUCB": lambda arms, l: DBSLinUCB(arms, sketch_size=l),
    "CBRAP": lambda arms, l: CBRAP(arms, sketch_size=2 * l, seed=0),
    "UCB1": lambda arms, l: UCB1(arms),
}
# Arms, dimensions, sketch size, and the share of the rounds that are played: more arms take longer.
SETS = {"data set 1": (60, 50, 5, 1.0), "many arms": (500, 20, 4, 0.5)}
SETTINGS: dict[str, dict[str, Any]] = {
    "immediate": {},
    "delay 100": {"delay": fixed_delay(100)},
    "geometric, mean 100": {"delay": geometric_delay(100.0)},
    "heavy-tailed, mean 100": {"delay": heavy_tailed_delay(100.0)},
    "batches of 10": {"batch": 10},
    "batches of 100": {"batch": 100},
}
MODES = ("without", "with")

Regrets = dict[tuple[str, str, str], float]  # (setting, mode, policy)


def chosen(only: str) -> list[str]:
    """The policies whose name holds these words."""
    return [name for name in POLICIES if only.lower() in name.lower()]


def play(case: str, rounds: int, seed: int, only: str) -> Regrets:
    """Final regret of every chosen policy in every setting."""
    n, d, l, share = SETS[case]
    env = LinearEnvironment(correlated_arms(n_arms=n, dim=d, seed=seed), uniform_parameter(d, seed=seed))
    policies = {name: POLICIES[name](env.arms, l) for name in chosen(only)}
    regrets: Regrets = {}
    for setting, options in SETTINGS.items():
        for mode in MODES if options else MODES[:1]:
            kept = {"rounds": int(rounds * share), "seed": seed, "checkpoints": [1], "progress": False}
            result = simulate(env, policies, pending=mode == "with", **kept, **options)
            regrets |= {(setting, mode, name): float(values[0]) for name, values in result.final_regret.items()}
    return regrets


def mean_of(runs: list[Regrets]) -> Regrets:
    return {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}


def print_table(title: str, regrets: Regrets, names: list[str]) -> None:
    print(f"\n### {title}\n")
    print("| policy | " + " | ".join(SETTINGS) + " |")
    print("|---" * (1 + len(SETTINGS)) + "|")
    for name in names:
        cells = [" / ".join(f"{regrets[s, m, name]:,.0f}" for m in MODES if (s, m, name) in regrets) for s in SETTINGS]
        print(f"| {name} | " + " | ".join(cells) + " |")


def draw(results: dict[str, Regrets], path: Path, names: list[str]) -> None:
    """One panel per setting: two bars per policy, and a mark for its regret with immediate rewards."""
    late = [setting for setting, options in SETTINGS.items() if options]
    figure = Figure(figsize=(14, 3.6 * len(results)), layout="constrained")
    for row, (title, regrets) in enumerate(results.items()):
        for column, setting in enumerate(late):
            ax = figure.add_subplot(len(results), len(late), row * len(late) + column + 1)
            y = np.arange(len(names))
            for mode, colour, shift in (("without", "#B0B0B0", -0.2), ("with", "#0072B2", 0.2)):
                values = [regrets[setting, mode, name] for name in names]
                ax.barh(y + shift, values, height=0.38, color=colour, label=mode)
            immediate = [regrets["immediate", "without", name] for name in names]
            ax.plot(immediate, y, "|", color="#D55E00", markersize=14, markeredgewidth=2, label="immediate rewards")
            ax.set_yticks(y, names if column == 0 else [""] * len(names))
            ax.invert_yaxis()
            ax.set_title(setting if row == 0 else "", fontsize=10)
            if row + 1 == len(results):
                ax.set_xlabel("regret")
            if column == 0:
                ax.set_ylabel(title)
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    figure.savefig(path, dpi=110)


def microseconds(calls: list[Callable[[], Any]]) -> float:
    """The fastest of several calls: the others were disturbed."""
    spent = []
    for call in calls:
        started = time.perf_counter()
        call()
        spent.append(time.perf_counter() - started)
    return 1e6 * min(spent)


def costs(policy: Any) -> tuple[float, ...]:
    """A decision of a burst of 1,000, one more at 1,000 pending, the first after a reward, and `update` itself."""
    picks = policy.select_many(1001)
    twins = [policy.copy() for _ in range(21)]
    burst = microseconds([lambda twin=twin: twin.select_many(1000) for twin in twins[:7]]) / 1000
    first = microseconds([lambda twin=twin: twin.select(pending=picks) for twin in twins[7:14]])
    more = microseconds([lambda k=k: policy.select(pending=picks[:k]) for k in range(900, 1001)])
    return burst, more, first, microseconds([lambda twin=twin: twin.update(0, 0.0) for twin in twins[14:]])


def print_times() -> None:
    """Cold, and after rewards, when most pending pulls can be discounted."""
    columns = ("N, d, l", "policy", "rewards", "in a burst of 1,000", "one more at 1,000", "after a reward", "`update`")
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    for n, d, l in ((60, 50, 5), (1000, 200, 10)):
        env = LinearEnvironment(correlated_arms(n_arms=n, dim=d, seed=1), uniform_parameter(d, seed=1))
        for name in ("Multi-scale", "Multi-scale, optimism", "CS-LB", "CS-LB log-det", "OFUL log-det", "UCB1"):
            policy = POLICIES[name](env.arms, l)
            policy.copy().select_many(2)  # compile
            policy.copy().update(0, 0.0)
            for rewards in (0, 20_000 if n < 1000 else 3_000):
                policy.play_rounds(env.means, env.gaps, env.draw_noise(np.random.default_rng(0), rewards))
                cells = " | ".join(f"{value:,.1f}" if value < 10 else f"{value:,.0f}" for value in costs(policy))
                print(f"| {n}, {d}, {l} | {name} | {rewards:,} | {cells} |", flush=True)


def print_room() -> None:
    """How many of 100 simultaneous decisions are discounted before a group is full, after so many rewards."""
    rewards = (0, 300, 1_000, 3_000, 6_000, 20_000)
    print("\n| policy | " + " | ".join(f"{count:,} rewards" for count in rewards) + " |")
    print("|---" * (1 + len(rewards)) + "|")
    env = LinearEnvironment(correlated_arms(n_arms=60, dim=50, seed=1), uniform_parameter(50, seed=1))
    for name in ("Multi-scale, optimism", "CS-LB log-det", "OFUL log-det", "SOFUL"):
        policy, noise, cells = POLICIES[name](env.arms, 5), np.random.default_rng(0), []
        for before, count in zip((0, *rewards), rewards, strict=False):
            policy.play_rounds(env.means, env.gaps, env.draw_noise(noise, count - before))
            pending, picks = policy._pending_bounds(), policy.select_many(100)
            arms, picked = np.ones(env.n_arms, np.bool_), np.empty(1, np.int64)
            within = 0
            while within < 100 and not pending.level[FULL].any():
                decide(pending, picks[within : within + 1], arms, picked)
                within += not pending.level[FULL].any()
            cells.append(str(within))
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Regret with late rewards and batches.")
    parser.add_argument("--rounds", type=int, default=6_000, help="rounds on data set 1, half as many with many arms")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw the tables")
    parser.add_argument("--times", action="store_true", help="what a decision costs, in microseconds")
    parser.add_argument("--only", default="", metavar="WORDS", help="the policies whose name holds these words")
    parser.add_argument("--quick", action="store_true", help="300 rounds, one seed: shows that it runs")
    options = parser.parse_args()
    if options.times:
        print_times()
        print_room()
        return
    rounds, seeds = (300, 1) if options.quick else (options.rounds, options.seeds)
    names = chosen(options.only)
    cases = [(case, rounds, seed, options.only) for case in SETS for seed in range(1, seeds + 1)]
    with ProcessPoolExecutor(options.processes) as pool:
        found = list(pool.map(play, *zip(*cases, strict=True)))
    results: dict[str, Regrets] = {}
    for case, (n, d, l, share) in SETS.items():
        runs = [regrets for (name, *_), regrets in zip(cases, found, strict=True) if name == case]
        title = f"{case}: N={n}, d={d}, l={l}, {int(rounds * share):,} rounds, {seeds} seeds"
        results[case] = mean_of(runs)
        print_table(title, results[case], names)
    if options.figure is not None:
        draw(results, options.figure, names)


if __name__ == "__main__":
    main()
