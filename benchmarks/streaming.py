"""Streams of contexts: where clusters found in them help, and where OFUL is better. The table of docs/streaming.md.

Every policy plays the same contexts and noise (`simulate`, some runs, mean final regret). Microseconds per round are
`select` and `update` from Python after the last round, on the time of this thread alone: the least of a few blocks.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sketchbandits import OFUL, SOFUL, MultiscaleCSLB, simulate
from sketchbandits.environments.noise import truncated_gaussian
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.snapshot import leaves

NOISE, OFFERED, BLOCKS = 0.1, 10, 5


class Stream:
    """Each round offers a few unit vectors of a union of random subspaces, each ``off`` away from its own subspace."""

    contextual = True
    n_arms = OFFERED

    def __init__(self, dim: int, subspaces: int, rank: int, off: float = 0.0, seed: int = 0) -> None:
        generator = np.random.default_rng(seed)
        self.dim, self.rank, self.off = dim, rank, off
        self.bases = np.linalg.qr(generator.normal(size=(subspaces, dim, rank)))[0].transpose(0, 2, 1)
        theta = np.einsum("kr,krd->d", generator.normal(size=(subspaces, rank)), self.bases)
        self.theta = theta / np.linalg.norm(theta)

    def contexts(self, generator: np.random.Generator) -> Any:
        bases = self.bases[generator.integers(len(self.bases), size=OFFERED)]
        rows = np.einsum("nr,nrd->nd", generator.normal(size=(OFFERED, self.rank)), bases)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        if self.off:
            rows += self.off * generator.normal(size=rows.shape) / math.sqrt(self.dim)
        return rows, rows @ self.theta

    def draw_noise(self, generator: np.random.Generator, size: int) -> Any:
        return truncated_gaussian(generator, size, scale=NOISE)


class Fields(Stream):
    """Each round offers a few combinations of the values of some fields, one-hot: structure, but no subspaces."""

    def __init__(self, fields: int, values: int, seed: int = 0) -> None:
        super().__init__(fields * values, 1, fields * values, seed=seed)
        self.fields, self.values = fields, values

    def contexts(self, generator: np.random.Generator) -> Any:
        drawn = generator.integers(self.values, size=(OFFERED, self.fields)) + np.arange(self.fields) * self.values
        rows = np.eye(self.dim)[drawn].sum(axis=1) / math.sqrt(self.fields)
        return rows, rows @ self.theta


class Case(NamedTuple):
    name: str
    env: Stream
    rounds: int
    options: dict[str, Any]  # of multi-scale CS-LB


def cases() -> list[Case]:
    return [
        Case("10 subspaces of dimension 8, d=256", Stream(256, 10, 8), 5_000, {}),
        Case("30 subspaces of dimension 4, d=256", Stream(256, 30, 4), 5_000, {}),
        Case("the same in 1.25 MiB", Stream(256, 30, 4), 5_000, {"memory": 2**20 + 2**18}),
        Case("10 subspaces of dimension 8, d=784", Stream(784, 10, 8), 2_000, {}),
        Case("10 near subspaces (0.001), d=256", Stream(256, 10, 8, 1e-3), 5_000, {"tolerance": 0.02}),
        Case("40 subspaces of dimension 4, d=20", Stream(20, 40, 4), 5_000, {}),
        Case("3 fields of 20 values, d=60", Fields(3, 20), 5_000, {}),
        Case("general position, d=20", Stream(20, 1, 20), 5_000, {}),
        Case("general position, d=100", Stream(100, 1, 100), 5_000, {}),
    ]


def policies(case: Case) -> dict[str, Any]:
    common: dict[str, Any] = {"dim": case.env.dim, "noise": NOISE}
    return {
        "multi-scale": MultiscaleCSLB.contextual(**common, **case.options),
        "OFUL": OFUL.contextual(**common, radius="logdet"),
        "OFUL, ridge d R^2/S^2": OFUL.contextual(**common, radius="logdet", ridge=case.env.dim * NOISE**2),
        "SOFUL, l=16": SOFUL.contextual(**common, radius="logdet", sketch_size=16),
        "SOFUL, l=80": SOFUL.contextual(**common, radius="logdet", sketch_size=80),
    }


def microseconds(policy: Any, env: Stream, block: int) -> float:
    """A round of a policy that has played."""
    generator, best = np.random.default_rng(1), math.inf
    with one_blas_thread():
        for _ in range(BLOCKS):
            offers = [env.contexts(generator) for _ in range(block)]
            start = time.thread_time()
            for contexts, expected in offers:
                choice = policy.select(contexts)
                policy.update(contexts[choice], float(expected[choice]))
            best = min(best, time.thread_time() - start)
    return 1e6 * best / block


def measured(case: Case, rounds: int, runs: int) -> dict[str, Any]:
    """Everything about one case; curves are means over runs."""
    rows: dict[str, Any] = {}

    def measure(name: str, run: int, policy: Any) -> None:
        if run == 0:
            clusters = getattr(policy, "n_clusters", None)
            size = sum(part.nbytes for _, part in leaves(policy.state)) / 2**10
            rows[name] = {
                "clusters": clusters,
                "KiB": size,
                "microseconds": microseconds(policy.copy(), case.env, min(rounds, 40)),
            }

    result = simulate(case.env, policies(case), rounds=rounds, runs=runs, seed=0, after=measure, progress=False)
    for name, row in rows.items():
        row["regret"] = float(result.final_regret[name].mean())
        row["curve"] = result.regret[name].mean(axis=0).tolist()
    return {"rounds": result.checkpoints.tolist(), "policies": rows}


def draw(report: dict[str, Any], path: Path) -> None:
    """Regret curves of a stream with subspaces and of one without."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = ["30 subspaces of dimension 4, d=256", "general position, d=20"]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, name in zip(axes, names, strict=True):
        found = report[name]
        for policy, row in found["policies"].items():
            label = f"{policy} ({row['microseconds']:.0f} µs)"
            style = "--" if policy.startswith("SOFUL") else "-"  # a large enough sketch lies on OFUL's curve
            width = 2.4 if policy == "multi-scale" else 1.2
            axis.plot(found["rounds"], row["curve"], style, label=label, linewidth=width)
        axis.set(title=name, xlabel="round", ylabel="regret", ylim=(0, None), xlim=(0, found["rounds"][-1]))
        worst = max(row["regret"] for key, row in found["policies"].items() if key != "SOFUL, l=16")
        axis.set_ylim(0, 1.3 * worst)  # a sketch that is too small leaves the picture
        axis.legend(frameon=False, fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description="Regret and cost on streams of contexts.")
    parser.add_argument("--quick", action="store_true", help="a few rounds, to see that it runs")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything to PATH")
    parser.add_argument("--figure", type=Path, metavar="PATH", help="draw two of the cases to PATH")
    options = parser.parse_args()
    report = {}
    for case in cases():
        rounds, runs = (2, 1) if options.quick else (case.rounds, options.runs)
        report[case.name] = measured(case, rounds, runs)
        print(f"\n{f'{case.name}, {rounds:,} rounds':<50}{'regret':>9}{'us':>7}{'KiB':>8}{'clusters':>10}")
        for name, row in report[case.name]["policies"].items():
            clusters = "" if row["clusters"] is None else row["clusters"]
            print(
                f"  {name:<48}{row['regret']:>9.1f}{row['microseconds']:>7.0f}{row['KiB']:>8.0f}{clusters:>10}",
                flush=True,
            )
    if options.json is not None:
        options.json.write_text(json.dumps(report))
    if options.figure is not None:
        draw(report, options.figure)


if __name__ == "__main__":
    main()
