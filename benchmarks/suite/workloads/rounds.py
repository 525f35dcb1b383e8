"""What a round of CS-LB costs, and its memory, against d, N, l and K: one of them grows, the others stay.

N grows inside a fixed number of clusters, once with the default and once with every arm of the cluster scanned in
every round. N, K and the size of a cluster are tied, so K grows with N at a fixed size. Refits are part of the time;
the first rounds, in which there is one every few rounds, are not.
"""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sketchbandits.environments import LinearEnvironment
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.lab.drawing import two_digits
from sketchbandits.policies import CSLB
from suite import figures, games, growth
from suite.measure import Contender, compiled, interleaved, play
from suite.workload import Measured, Point, Session, Summary, Workload

DEFAULT, FULL_SCAN = "round", "full scan"
SCANS = {DEFAULT: "auto", FULL_SCAN: "full"}
BYTES = ("state", "partition", "arms")
FEWEST, MOST = 50, 20_000  # rounds of a repetition


class Sizes(NamedTuple):
    """Values of each size, repetitions, multiplications that one may take, and the fewest rounds of the default."""

    dims: tuple[int, ...]
    arms: tuple[int, ...]
    ranks: tuple[int, ...]
    clusters: tuple[int, ...]
    repetitions: int
    work: float
    fewest: int


FULL = Sizes(
    dims=(64, 128, 256, 512, 1024, 2048, 4096, 8192),
    arms=(100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    ranks=(4, 8, 16, 32, 64, 128),
    clusters=(10, 30, 100, 300, 1_000, 3_000, 10_000, 25_000),
    repetitions=25,
    work=3e7,
    fewest=1000,
)
QUICK = Sizes((64, 512, 4096), (300, 3_000, 30_000), (4, 16, 64), (10, 60, 360), 7, 1e7, 200)


def points(sizes: Sizes) -> list[Point]:
    """One point per sweep: all of its sizes take turns, so that a busy moment does not bend the curve."""
    sweeps = {
        "d": [(dim, {"n_arms": 240, "dim": dim, "rank": 8, "clusters": 30}) for dim in sizes.dims],
        "N": [(n, {"n_arms": n, "dim": 32, "rank": 8, "clusters": 4}) for n in sizes.arms],
        "K": [(k, {"n_arms": k * games.CLUSTER_SIZE, "dim": games.DIM, "rank": games.RANK, "clusters": k})
              for k in sizes.clusters],
        "l": [(l, {"n_arms": 2048, "dim": 2 * max(sizes.ranks), "rank": l, "clusters": 4}) for l in sizes.ranks],
    }  # fmt: skip
    return [_point(sweep, shapes, sizes) for sweep, shapes in sweeps.items()]


def _point(sweep: str, sized: list[tuple[int, dict[str, Any]]], sizes: Sizes) -> Point:
    shapes, expected = [], 0.1
    for size, shape in sized:
        scanned = int(min(max(sizes.work / (_multiplications(shape) + 50), FEWEST), MOST))
        rounds = max(scanned, sizes.fewest)  # a shortlist is drawn anew now and then: few rounds would miss that
        before = shape["clusters"] * pulls_before(shape["rank"])
        expected += 1e-9 * (sizes.repetitions * rounds + before) * (_multiplications(shape) + 300)
        shapes.append({"size": size, **shape, "before": before, "rounds": {DEFAULT: rounds, FULL_SCAN: scanned}})
    parameters = {"sweep": sweep, "repetitions": sizes.repetitions, "shapes": shapes}
    return Point(f"{sweep} grows", parameters, expected)


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


def game(sweep: str, shape: dict[str, Any], seed: int) -> LinearEnvironment:
    """The arm set in which only this sweep's size differs."""
    if sweep == "d":
        return games.turned(games.paper_game(shape["n_arms"], 64, seed), shape["dim"], seed)
    if sweep == "K":
        return games.many_clusters(shape["clusters"], seed)
    return games.few_clusters(shape["n_arms"], shape["clusters"], shape["rank"], shape["dim"], seed)


def measure(parameters: dict[str, Any], session: Session) -> dict[str, Any]:
    """By quantity and size: microseconds per round of every repetition, and bytes."""
    sweep, shapes = parameters["sweep"], parameters["shapes"]
    contenders: dict[tuple[str, int], Contender] = {}
    sizes: dict[str, list[int]] = {name: [] for name in BYTES}
    with one_blas_thread():
        for i, shape in enumerate(shapes):
            session.show(f"{sweep} = {shape['size']:,}", 0.5 * i / len(shapes))
            env = game(sweep, shape, session.seed)
            for name, scan in SCANS.items() if sweep == "N" else [(DEFAULT, "auto")]:
                policy = prepared(env, shape, scan, session.seed)
                noise = games.noise_of(env, shape["rounds"][name], session.seed)
                contenders[name, shape["size"]] = compiled(policy, env, noise)
                if name == DEFAULT:
                    for part, size in memory(policy).items():
                        sizes[part].append(size)
        session.show(f"{sweep}, all sizes in turns", 0.5)
        found = interleaved(contenders, parameters["repetitions"])
    names = dict.fromkeys(name for name, _ in contenders)
    return {"microseconds": {n: [found[n, shape["size"]] for shape in shapes] for n in names}, "bytes": sizes}


def prepared(env: LinearEnvironment, shape: dict[str, Any], scan: str, seed: int) -> CSLB:
    """A policy whose first rounds are over, on the clusters that its shape promises."""
    policy = CSLB(env.arms, sketch_size=shape["rank"], scan=scan)
    if policy.partition.n_clusters != shape["clusters"]:
        raise RuntimeError(f"a game of {shape['clusters']} clusters has {policy.partition.n_clusters}")
    play(policy, env, games.noise_of(env, shape["before"], seed + 1))
    return policy


def memory(policy: CSLB) -> dict[str, int]:
    """Bytes of the state, of the partition and of the arms."""
    part = policy.partition
    arrays = {"state": policy.state, "partition": (part.labels, part.ranks, part.bases), "arms": (policy.arms,)}
    return {name: sum(array.nbytes for array in found) for name, found in arrays.items()}


def summarise(measured: Sequence[Measured]) -> Summary:
    """One line per sweep and quantity: its ends, its exponent, and that of the stated complexity."""
    curves = []
    for parameters, samples in measured:
        curves += [_curve(parameters, name, values) for name, values in samples["microseconds"].items()]
        curves += [_curve(parameters, name, [[size] for size in values]) for name, values in samples["bytes"].items()]
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
    "N: arms of 4 subspaces of rank 8, so that clusters grow; a full scan evaluates every arm of a cluster.",
    f"K: clusters of {games.CLUSTER_SIZE} arms and rank {games.RANK}, so that N grows with K.",
    "l: 4 clusters of 512 arms whose rank is l.",
    "Exponents are slopes over the upper sizes, stated ones those of r² + |C| r + log K for a round, N l for its "
    "state, N + K l d for the partition and N d for the arms.",
)


def _curve(parameters: dict[str, Any], quantity: str, samples: Sequence[Sequence[float]]) -> dict[str, Any]:
    shapes = parameters["shapes"]
    sizes = [shape["size"] for shape in shapes]
    text, cost = STATED[quantity]
    curve = {"sweep": parameters["sweep"], "quantity": quantity, "sizes": sizes}
    curve |= {"medians": list(map(statistics.median, samples)), "minima": list(map(min, samples))}
    curve |= {"exponent": growth.exponent(sizes, samples)._asdict(), "stated": text}
    return curve | {"stated_exponent": growth.stated(sizes, cost, shapes)}


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
