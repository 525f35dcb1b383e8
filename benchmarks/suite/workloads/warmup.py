"""What CS-LB's warm-up costs: `Partition.first_fit` on arms in general position, where every arm meets every cluster.

It is compared with ONE NumPy product of the arms (N x d) with as many vectors as there are clusters (d x N/l): what
probing every arm against one vector of every cluster takes. For few arms it is also compared with
first-fit as the paper prints it, with a singular value decomposition for each arm and cluster.
"""

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.partition.partition import Partition
from suite import figures, games, growth, peak_memory
from suite.measure import interleaved, seconds
from suite.targets import Target, at_least, at_most, bounded
from suite.workload import Measured, Point, Session, Summary, Workload

WARM_UP, PRODUCT, SVD = "warm-up", "product", "by SVD"
Shape = tuple[int, int, int]  # arms, dimension, sketch size


class Sizes(NamedTuple):
    """Shapes whose warm-up is timed, those of them also measured with an SVD first-fit, those whose memory is taken."""

    timed: tuple[Shape, ...]
    svd: tuple[Shape, ...]
    memory: tuple[Shape, ...]
    repetitions: int


FULL = Sizes(
    timed=(
        *((n, 256, 16) for n in (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000)),
        *((n, 512, 32) for n in (6_000, 12_500, 25_000, 50_000, 100_000)),
    ),
    svd=tuple((n, 256, 16) for n in (250, 500, 1_000, 2_000)),
    memory=tuple((n, 128, 32) for n in (62_500, 125_000, 250_000, 500_000, 1_000_000)),
    repetitions=5,
)
QUICK = Sizes(
    timed=tuple((n, 64, 8) for n in (125, 250, 500, 1_000, 2_000)),
    svd=tuple((n, 64, 8) for n in (125, 250)),
    memory=((4_000, 32, 16),),
    repetitions=3,
)

# The targets, by shape: the largest share of the product's time, the least gain over SVD first-fit, the most memory.
PRODUCT_TARGETS = {(20_000, 256, 16): 1.0, (100_000, 512, 32): 0.5}
SVD_TARGETS = {(2_000, 256, 16): 1000.0}
MEMORY_TARGETS = {(1_000_000, 128, 32): 1.5}


def points(sizes: Sizes) -> list[Point]:
    """Timed shapes first, then those measured in processes of their own."""
    found = []
    for kind, shapes in (("time", sizes.timed), ("memory", sizes.memory)):
        for n, d, l in shapes:
            product = 2e-11 * n * n / l * d  # seconds, about
            svd = kind == "time" and (n, d, l) in sizes.svd
            repetitions = sizes.repetitions if product < 2 else 3
            options = {"svd": svd, "repetitions": repetitions} if kind == "time" else {}
            expected = 2 * repetitions * product + 1e-4 * svd * n * n / l if kind == "time" else 0.5 * product + 2
            shape = {"kind": kind, "n_arms": n, "dim": d, "sketch_size": l, **options}
            found.append(Point(f"{n:,} arms", shape, 0.05 + expected))
    return found


def measure(shape: dict[str, Any], session: Session) -> dict[str, Any]:
    """Seconds of every repetition; or seconds and the peak of memory in a new process."""
    n, d, l, seed = shape["n_arms"], shape["dim"], shape["sketch_size"], session.seed
    if shape["kind"] == "memory":
        return in_new_process(n, d, l, seed)
    arms, probes = games.general_arms(n, d, seed), games.general_arms(d, math.ceil(n / l), seed + 1)
    Partition.first_fit(arms[: 2 * l], sketch_size=l, progress=False)  # compiled before the clock runs
    contenders = {
        WARM_UP: lambda: seconds(lambda: Partition.first_fit(arms, sketch_size=l, progress=False)),
        PRODUCT: lambda: seconds(lambda: arms @ probes),
    }
    samples = interleaved(contenders, shape["repetitions"])
    if shape["svd"]:
        samples |= interleaved({SVD: lambda: seconds(lambda: svd_first_fit(arms, l))}, 1)
    return {"seconds": samples}


def svd_first_fit(arms: Floats, sketch_size: int) -> Ints:
    """The paper's Algorithm 2, literally: the rank of a cluster with the arm is that of an SVD."""
    clusters: list[list[int]] = []
    labels = np.empty(len(arms), np.int64)
    for i in range(len(arms)):
        fitting = (c for c, members in enumerate(clusters) if svd_rank(arms[[*members, i]]) <= sketch_size)
        labels[i] = next(fitting, len(clusters))
        if labels[i] == len(clusters):
            clusters.append([])
        clusters[labels[i]].append(i)
    return labels


def svd_rank(rows: Floats) -> int:
    """The number of singular values that are not rounding errors of the largest."""
    values = np.linalg.svd(rows, compute_uv=False)
    return int((values > values[0] * max(rows.shape) * np.finfo(float).eps).sum())


def in_new_process(n_arms: int, dim: int, sketch_size: int, seed: int) -> dict[str, Any]:
    """Seconds, and peak of extra memory over that of the arms: nothing else has left its traces there."""
    command = [sys.executable, "-m", peak_memory.__name__, *map(str, (n_arms, dim, sketch_size, seed))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # the child finds what this process finds
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise MemoryError(f"the warm-up of {n_arms:,} arms of dimension {dim} did not end well: {last}")
    found: dict[str, float] = json.loads(done.stdout)
    return {"seconds": {WARM_UP: [found["seconds"]]}, "extra": found["extra"] / (8 * n_arms * dim)}


def summarise(measured: Sequence[Measured]) -> Summary:
    """One line per shape and comparison."""
    rows, facts = [], []
    for shape, samples in measured:
        place = (shape["n_arms"], shape["dim"], shape["sketch_size"])
        for target in comparisons(place, samples):
            times = samples["seconds"]
            other = f"{statistics.median(times[target.what]):.3g}" if target.what in times else ""
            shown = [f"{statistics.median(times[WARM_UP]):.3g}", other, target.shown, target.target, target.reached]
            rows.append([target.what, figures.short(place[0]), str(place[1]), str(place[2]), *shown])
            facts.append({"n_arms": place[0], "dim": place[1], "sketch_size": place[2], **asdict(target)})
    headings = ("against", "N", "d", "l", "warm-up s", "it s", "ratio", "target", "reached")
    notes = ["Ratios of medians (of minima). Product: warm-up / product. By SVD: first-fit by SVD / warm-up."]
    notes.append("Memory: what the warm-up took beyond the arms, as a share of their size.")
    return Summary(headings, rows, notes, {"ratios": facts, "curves": curves(measured)})


def comparisons(place: Shape, samples: dict[str, Any]) -> list[Target]:
    """What this shape's warm-up is compared with; without a target where none is set."""
    times, found = samples["seconds"], []
    if PRODUCT in times:
        found.append(at_most(PRODUCT, times, WARM_UP, PRODUCT, PRODUCT_TARGETS.get(place)))
    if SVD in times:
        found.append(at_least(SVD, times, SVD, WARM_UP, SVD_TARGETS.get(place)))
    if "extra" in samples:
        found.append(bounded("memory", samples["extra"], MEMORY_TARGETS.get(place)))
    return found


def curves(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    """Seconds against N, of everything measured at one dimension and sketch size, with exponents where they fit."""
    found: dict[tuple[int, int, str], list[tuple[int, list[float]]]] = {}
    for shape, samples in measured:
        for name, times in samples["seconds"].items():
            found.setdefault((shape["dim"], shape["sketch_size"], name), []).append((shape["n_arms"], times))
    drawn = []
    for (dim, l, name), values in found.items():
        sizes, times = [n for n, _ in values], [sample for _, sample in values]
        power = growth.exponent(sizes, times)._asdict() if len(sizes) >= growth.FEWEST else None
        medians = [statistics.median(each) for each in times]
        curve = {"dim": dim, "sketch_size": l, "what": name, "sizes": sizes, "medians": medians, "exponent": power}
        drawn.append(curve)
    return drawn


WARMUP = Workload(
    "warmup", "What CS-LB's warm-up costs", FULL, QUICK, points, measure, summarise, figures.growth_of_warmup
)
