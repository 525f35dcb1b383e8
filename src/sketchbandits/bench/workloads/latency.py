"""The worst rounds of CS-LB: how long a caller may wait for ``select`` and ``update``, round by round.

A round that refits its cluster or looks through all of its arms takes longer than the one before. On one very large
cluster the default, which keeps a shortlist of arms, stands beside a look at every arm in every round.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.bench import figures, games
from sketchbandits.bench.measure import compiled, interleaved, no_collector
from sketchbandits.bench.workload import Measured, Point, Session, Summary, Workload
from sketchbandits.environments import LinearEnvironment
from sketchbandits.experiments.drawing import two_digits
from sketchbandits.linalg import Floats
from sketchbandits.policies import CSLB
from sketchbandits.simulate import one_blas_thread

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
DEFAULT, FULL_SCAN = "default", "full"


class Sizes(NamedTuple):
    """Arms, dimension and sketch size of each game; rounds through the API, and of the compiled loop's mean."""

    typical: tuple[int, int, int]
    many: tuple[int, int, int]
    large: tuple[int, int, int]
    rounds: int
    full_rounds: int
    mean_rounds: int


FULL = Sizes((1000, 200, 10), (100_000, 32, 16), (1_000_000, 32, 32), 200_000, 60, 1_000_000)
QUICK = Sizes((1000, 200, 10), (5_000, 32, 16), (20_000, 32, 32), 5_000, 60, 5_000)


def points(sizes: Sizes) -> list[Point]:
    """The three games."""
    found = []
    for game in ("typical", "many clusters", "one cluster"):
        n, d, l = {"typical": sizes.typical, "many clusters": sizes.many, "one cluster": sizes.large}[game]
        shape: dict[str, Any] = {"game": game, "n_arms": n, "dim": d, "sketch_size": l, "rounds": sizes.rounds}
        if game == "one cluster":
            shape |= {"full_rounds": sizes.full_rounds, "mean_rounds": sizes.mean_rounds}
        found.append(Point(shape, 5e-6 * sizes.rounds + 2e-5 * n + 0.1))
    return found


def measure(shape: dict[str, Any], session: Session) -> dict[str, Any]:
    """Nanoseconds of every round as how often each value was seen, and the mean of a long compiled run."""
    large = shape["game"] == "one cluster"
    make = games.one_cluster if large else games.paper_game
    seed = session.seed
    env = make(shape["n_arms"], shape["dim"], seed)
    lengths = {DEFAULT: shape["rounds"]} | ({FULL_SCAN: shape["full_rounds"]} if large else {})
    scans = {DEFAULT: "auto", FULL_SCAN: "full"}
    with one_blas_thread():
        policies = {name: games.cslb(env.arms, shape["sketch_size"], scans[name]) for name in lengths}
        rounds = {
            name: timed_rounds(policies[name], env, games.noise_of(env, length, seed))
            for name, length in lengths.items()
        }
        found: dict[str, Any] = {"nanoseconds": {name: counted(values) for name, values in rounds.items()}}
        if large:
            found["compiled"] = compiled_means(policies, env, {**lengths, DEFAULT: shape["mean_rounds"]}, seed)
    return {**found, "clock": clock(), "clusters": policies[DEFAULT].partition.n_clusters}


def timed_rounds(policy: CSLB, env: LinearEnvironment, noise: Floats) -> Any:
    """The time of every ``select`` and ``update``, played by a copy."""
    means, now = env.means.tolist(), time.perf_counter_ns
    policy.copy().update(0, 0.0)  # the first call loads kernels
    policy, spent = policy.copy(), np.empty(noise.size, np.int64)
    with no_collector():
        for t, value in enumerate(noise.tolist()):
            started = now()
            arm = policy.select()
            policy.update(arm, means[arm] + value)
            spent[t] = now() - started
    return spent


def compiled_means(
    policies: Mapping[str, CSLB], env: LinearEnvironment, lengths: Mapping[str, int], seed: int
) -> dict[str, list[float]]:
    """Microseconds a round in the compiled loop, from the first round on."""
    contenders = {name: compiled(policies[name], env, games.noise_of(env, lengths[name], seed)) for name in policies}
    return interleaved(contenders, 3)


def counted(spent: Any) -> dict[str, list[int]]:
    """All samples, without their order: each value once, and how often it came."""
    values, counts = np.unique(spent, return_counts=True)
    return {"values": values.tolist(), "counts": counts.tolist()}


def clock() -> float:
    """Nanoseconds that taking the time itself adds to a round."""
    now = time.perf_counter_ns
    return float(np.median([-(now() - now()) for _ in range(1000)]))


def quantile(samples: Mapping[str, Sequence[int]], share: float) -> float:
    """The least number of microseconds that this share of all rounds kept to."""
    reached = np.cumsum(samples["counts"])
    return samples["values"][int(np.searchsorted(reached, share * reached[-1]))] / 1e3


def mean(samples: Mapping[str, Sequence[int]]) -> float:
    """Microseconds a round."""
    return float(np.average(samples["values"], weights=samples["counts"])) / 1e3


def summarise(measured: Sequence[Measured]) -> Summary:
    """One line a game and way to play it."""
    rows, curves, notes = [], [], []
    for shape, samples in measured:
        for name, values in samples["nanoseconds"].items():
            played = sum(values["counts"])
            # A share of rounds that would leave out less than one of them is no more than their maximum.
            found = {s: quantile(values, at) for s, at in SHARES.items() if at == 1.0 or (1 - at) * played >= 1.0}
            title = f"{shape['game']}, {name}" if len(samples["nanoseconds"]) > 1 else shape["game"]
            curve = {"title": title, "scan": name, **shape, "played": played, "mean": mean(values)}
            curves.append(curve | {"quantiles": found})
            times = [two_digits(curve["mean"]), *(two_digits(found[s]) if s in found else "-" for s in SHARES)]
            rows.append([title, f"{shape['n_arms']:,}", f"{samples['clusters']:,}", f"{curve['played']:,}", *times])
        if "compiled" in samples:
            notes.append(compared(shape, samples["compiled"]))
    headings = ("CS-LB, us/round", "N", "K", "rounds", "mean", *SHARES)
    facts = {"curves": curves, "compared": notes}
    texts = [note["text"] for note in notes]
    return Summary(headings, rows, texts, facts)


def compared(shape: dict[str, Any], means: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The default's mean over a long run beside that of a look at every arm."""
    default, every = (float(np.median(means[name])) for name in (DEFAULT, FULL_SCAN))
    rounds = f"{shape['mean_rounds']:,} and {shape['full_rounds']:,} rounds"
    text = f"one cluster, mean of the compiled loop over {rounds}: {two_digits(default)} us and "
    text += f"{two_digits(every)} us with every arm looked at, ratio {default / every:.2g}"
    return {"text": text, "default": default, "full": every, "ratio": default / every}


LATENCY = Workload(
    "latency", "The worst rounds of CS-LB", FULL, QUICK, points, measure, summarise, figures.slowest_rounds
)
