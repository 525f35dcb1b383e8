"""What a round of CS-LB costs, and its memory, against d, N, l and K: one of them grows, the others stay.

N grows inside a fixed number of clusters, once with the default and once with every arm of the cluster looked at in
every round. N, K and the size of a cluster are tied, so K grows with N at a fixed size. Refits are part of the time;
the first rounds, in which there is one every few rounds, are not.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sketchbandits.bench import figures, games, growth
from sketchbandits.bench.measure import compiled, interleaved
from sketchbandits.bench.workload import Measured, Point, Session, Summary, Workload
from sketchbandits.environments import LinearEnvironment
from sketchbandits.experiments.drawing import two_digits
from sketchbandits.simulate import one_blas_thread

DEFAULT, FULL_SCAN = "round", "full scan"
BYTES = ("state", "partition", "arms")


class Sizes(NamedTuple):
    """Values of each size, repetitions, and multiplications that one repetition may take."""

    dims: tuple[int, ...]
    arms: tuple[int, ...]
    ranks: tuple[int, ...]
    clusters: tuple[int, ...]
    repetitions: int
    work: float


FULL = Sizes(
    dims=(64, 128, 256, 512, 1024, 2048, 4096, 8192),
    arms=(100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    ranks=(4, 8, 16, 32, 64, 128),
    clusters=(10, 30, 100, 300, 1_000, 3_000, 10_000, 25_000),
    repetitions=7,
    work=1e8,
)
QUICK = Sizes((64, 512, 4096), (300, 3_000, 30_000), (4, 16, 64), (10, 60, 360), 3, 2e6)


def points(sizes: Sizes) -> list[Point]:
    """All sweeps, from small to large."""
    found = []
    for dim in sizes.dims:
        found.append({"sweep": "d", "size": dim, "n_arms": 240, "dim": dim, "rank": 8, "clusters": 30})
    for n in sizes.arms:
        found.append({"sweep": "N", "size": n, "n_arms": n, "dim": 32, "rank": 8, "clusters": 4})
    for k in sizes.clusters:
        shape = {"n_arms": k * games.CLUSTER_SIZE, "dim": games.ROOM, "rank": games.RANK}
        found.append({"sweep": "K", "size": k, **shape, "clusters": k})
    for l in sizes.ranks:
        found.append({"sweep": "l", "size": l, "n_arms": 2048, "dim": 2 * max(sizes.ranks), "rank": l, "clusters": 4})
    return [_point(shape, sizes) for shape in found]


def _point(shape: dict[str, Any], sizes: Sizes) -> Point:
    rounds = int(min(max(sizes.work / (_multiplications(shape) + 50), 50), 100_000))
    before = shape["clusters"] * pulls_before(shape["rank"])
    expected = 1e-9 * (sizes.repetitions * rounds + before) * (_multiplications(shape) + 300) + 1e-6 * shape["n_arms"]
    options = {"before": before, "rounds": rounds, "repetitions": sizes.repetitions}
    return Point({**shape, **options}, 0.1 + expected)


def pulls_before(rank: int) -> int:
    """Pulls of a cluster before its rounds count.

    A refit costs about ``rank`` rounds, and after n pulls the next is some ``9 n / rank`` pulls away (that is when the
    determinant has grown ten thousand times): from here on refits are about a tenth of all that a round costs.
    """
    return 2 + rank**2 * 4 // 3


def _multiplications(shape: dict[str, Any]) -> float:
    """The stated cost of a round, up to a factor: r^2 + |C| r + log K."""
    rank, n_clusters = shape["rank"], shape["clusters"]
    return rank**2 + shape["n_arms"] / n_clusters * rank + math.log2(n_clusters)


# What is measured, by name: what is stated, and that as a function of a point's parameters.
STATED: dict[str, tuple[str, Callable[[dict[str, Any]], float]]] = {
    DEFAULT: ("r² + |C|r + log K", _multiplications),
    FULL_SCAN: ("r² + |C|r + log K", _multiplications),
    "state": ("N l", lambda shape: shape["n_arms"] * shape["rank"]),
    "partition": ("N + K l d", lambda shape: shape["n_arms"] + shape["clusters"] * shape["rank"] * shape["dim"]),
    "arms": ("N d", lambda shape: shape["n_arms"] * shape["dim"]),
}


def game(shape: dict[str, Any], seed: int) -> LinearEnvironment:
    """The arm set in which only this sweep's size differs."""
    if shape["sweep"] == "d":
        return games.turned(games.paper_game(shape["n_arms"], 64, seed), shape["dim"], seed)
    if shape["sweep"] == "K":
        return games.many_clusters(shape["clusters"], seed)
    return games.few_clusters(shape["n_arms"], shape["clusters"], shape["rank"], shape["dim"], seed)


def measure(shape: dict[str, Any], session: Session) -> dict[str, Any]:
    """Microseconds a round of every repetition, and bytes."""
    seed, env = session.seed, game(shape, session.seed)
    noise = games.noise_of(env, shape["rounds"], seed)
    scans = {DEFAULT: "auto", FULL_SCAN: "full"} if shape["sweep"] == "N" else {DEFAULT: "auto"}
    with one_blas_thread():
        policies = {name: games.cslb(env.arms, shape["rank"], scan) for name, scan in scans.items()}
        for policy in policies.values():
            policy.play_rounds(env.means, env.gaps, games.noise_of(env, shape["before"], seed + 1))
        contenders = {name: compiled(policy, env, noise) for name, policy in policies.items()}
        samples = interleaved(contenders, shape["repetitions"])
    partition, policy = policies[DEFAULT].partition, policies[DEFAULT]
    bases = (partition.labels, partition.ranks, partition.bases)
    arrays = {"state": policy.state, "partition": bases, "arms": (policy.arms,)}
    sizes = {name: sum(array.nbytes for array in part) for name, part in arrays.items()}
    return {"microseconds": samples, "bytes": sizes, "clusters": partition.n_clusters}


def summarise(measured: Sequence[Measured]) -> Summary:
    """One line a sweep and quantity: its ends, its exponent, and that of the stated complexity."""
    curves = []
    for sweep in dict.fromkeys(each.parameters["sweep"] for each in measured):
        part = [each for each in measured if each.parameters["sweep"] == sweep]
        curves += [_curve(sweep, quantity, part) for quantity in (*part[0].samples["microseconds"], *BYTES)]
    return Summary(
        headings=("what", "grows", "from", "to", "first", "last", "exponent (95 %)", "stated"),
        rows=[_row(curve) for curve in curves],
        notes=NOTES,
        facts={"curves": curves},
        left=2,
        group=1,
    )


NOTES = (
    "d: the same arms, turned into more dimensions.",
    "N: arms of 4 subspaces of rank 8, so that clusters grow; a full scan looks at every arm of a cluster.",
    f"K: clusters of {games.CLUSTER_SIZE} arms and rank {games.RANK}, so that N grows with K.",
    "l: 4 clusters of 512 arms whose rank is l.",
    "Exponents are slopes over the upper sizes, stated ones those of r² + |C| r + log K for a round, N l for its "
    "state, N + K l d for the partition and N d for the arms.",
)


def _curve(sweep: str, quantity: str, part: Sequence[Measured]) -> dict[str, Any]:
    sizes = [each.parameters["size"] for each in part]
    if quantity in BYTES:
        samples = [[float(each.samples["bytes"][quantity])] for each in part]
    else:
        samples = [each.samples["microseconds"][quantity] for each in part]
    found = growth.exponent(sizes, samples)
    text, cost = STATED[quantity]
    expected = growth.stated(sizes, cost, [each.parameters for each in part])
    medians = [statistics.median(each) for each in samples]
    curve = {
        "sweep": sweep,
        "quantity": quantity,
        "sizes": sizes,
        "medians": medians,
        "minima": list(map(min, samples)),
    }
    return curve | {"exponent": found._asdict(), "stated": text, "stated_exponent": expected}


def _row(curve: dict[str, Any]) -> list[str]:
    found, show = curve["exponent"], in_bytes if curve["quantity"] in BYTES else in_microseconds
    ends = [show(curve["medians"][0]), show(curve["medians"][-1])]
    sizes = [figures.short(curve["sizes"][0]), figures.short(curve["sizes"][-1])]
    middle, low, high, expected = map(growth.shown, (*found.values(), curve["stated_exponent"]))
    exponents = [f"{middle} ({low}, {high})", expected]
    return [curve["quantity"], curve["sweep"], *sizes, *ends, *exponents]


def in_microseconds(value: float) -> str:
    """0.12 µs."""
    return f"{two_digits(value)} us"


def in_bytes(value: float) -> str:
    """1.2 MB."""
    for size, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= size:
            return f"{two_digits(value / size)} {unit}"
    return f"{value:,.0f} B"


ROUNDS = Workload(
    "rounds", "What a round of CS-LB costs", FULL, QUICK, points, measure, summarise, figures.growth_of_rounds
)
