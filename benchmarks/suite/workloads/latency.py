"""The worst rounds of CS-LB: how long a caller may wait for ``select`` and ``update``, round by round.

A round that refits its cluster or evaluates all of its arms takes longer than the one before. On one very large
cluster the default, which keeps a shortlist of arms, is compared with evaluating every arm in every round. The same
rounds are played several times: what was slow every time is the policy's own, the rest is what else the machine did.
"""

import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.environments import LinearEnvironment
from sketchbandits.kernels.linalg import Floats
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.lab.drawing import two_digits
from sketchbandits.policies import CSLB
from suite import figures, games
from suite.measure import compiled, interleaved
from suite.workload import Measured, Point, Session, Summary, Workload

SHARES = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
AGAIN = "again"
GAMES = ("typical", "many clusters", "one cluster")
ONE_CLUSTER = GAMES[-1]
DEFAULT, FULL_SCAN = "default", "full"
SCANS = {DEFAULT: "auto", FULL_SCAN: "full"}


class Sizes(NamedTuple):
    """Arms, dimension and sketch size of each game; rounds through the API, and of the compiled loop's mean."""

    typical: tuple[int, int, int]
    many: tuple[int, int, int]
    large: tuple[int, int, int]
    rounds: tuple[int, int, int]  # of the games
    full_rounds: int  # that evaluate every arm
    mean_rounds: int
    runs: int


FULL = Sizes(
    typical=(1000, 200, 10),
    many=(100_000, 32, 16),
    large=(1_000_000, 32, 32),
    rounds=(200_000, 200_000, 100_000),
    full_rounds=60,
    mean_rounds=1_000_000,
    runs=3,
)
QUICK = Sizes((1000, 200, 10), (5_000, 32, 16), (50_000, 8, 8), (5_000, 5_000, 5_000), 60, 5_000, 3)


def points(sizes: Sizes) -> list[Point]:
    """The three games."""
    found = []
    shapes = zip(GAMES, (sizes.typical, sizes.many, sizes.large), sizes.rounds, strict=True)
    for game, (n, d, l), rounds in shapes:
        shape: dict[str, Any] = {"game": game, "n_arms": n, "dim": d, "sketch_size": l, "rounds": rounds}
        expected = 0.1 + 5e-6 * rounds * sizes.runs + 1e-5 * n
        if game == ONE_CLUSTER:
            shape |= {"full_rounds": sizes.full_rounds, "mean_rounds": sizes.mean_rounds}
            expected += 8e-5 * n + 3e-5 * sizes.mean_rounds  # lists of arms are drawn anew now and then
        found.append(Point(game, {**shape, "runs": sizes.runs}, expected))
    return found


def measure(shape: dict[str, Any], session: Session) -> dict[str, Any]:
    """Nanoseconds of every round as how often each value was seen, and the mean of a long compiled run."""
    large, seed = shape["game"] == ONE_CLUSTER, session.seed
    env = (games.one_cluster if large else games.paper_game)(shape["n_arms"], shape["dim"], seed)
    lengths = {DEFAULT: shape["rounds"]} | ({FULL_SCAN: shape["full_rounds"]} if large else {})
    with one_blas_thread():
        policies = {name: CSLB(env.arms, sketch_size=shape["sketch_size"], scan=SCANS[name]) for name in lengths}
        noise = {name: games.noise_of(env, length, seed) for name, length in lengths.items()}
        contenders = {name: functools.partial(timed_rounds, policies[name], env, noise[name]) for name in lengths}
        rounds = interleaved(contenders, shape["runs"])
        found: dict[str, Any] = {"nanoseconds": {name: counted(np.concatenate(r)) for name, r in rounds.items()}}
        found["slowest_again"] = {name: int(np.min(values, axis=0).max()) for name, values in rounds.items()}
        if large:
            lengths[DEFAULT] = shape["mean_rounds"]
            found["compiled"] = compiled_means(policies, env, lengths, seed)
    return {**found, "clock": clock(), "clusters": policies[DEFAULT].partition.n_clusters}


def timed_rounds(policy: CSLB, env: LinearEnvironment, noise: Floats) -> Any:
    """The time of every ``select`` and ``update``, played by a copy."""
    means, now = env.means.tolist(), time.perf_counter_ns
    policy.copy().update(0, 0.0)  # the first call loads kernels
    policy, spent = policy.copy(), np.empty(noise.size, np.int64)
    for t, value in enumerate(noise.tolist()):
        started = now()
        arm = policy.select()
        policy.update(arm, means[arm] + value)
        spent[t] = now() - started
    return spent


def compiled_means(
    policies: Mapping[str, CSLB], env: LinearEnvironment, lengths: Mapping[str, int], seed: int
) -> dict[str, list[float]]:
    """Microseconds per round in the compiled loop, from the first round on; once, since it is long."""
    contenders = {name: compiled(policies[name], env, games.noise_of(env, lengths[name], seed)) for name in policies}
    return interleaved(contenders, 1)


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
    """Microseconds per round."""
    return float(np.average(samples["values"], weights=samples["counts"])) / 1e3


def summarise(measured: Sequence[Measured]) -> Summary:
    """One line per game and way to play it."""
    curves = [_curve(each, name) for each in measured for name in each.samples["nanoseconds"]]
    means = [compared(shape, samples["compiled"]) for shape, samples in measured if "compiled" in samples]
    notes = [
        f"{AGAIN}: the slowest round by its least time over {measured[0].parameters['runs']} runs of the same rounds."
    ]
    headings = ("CS-LB, us/round", "N", "K", "rounds", "mean", *SHARES, AGAIN)
    facts = {"curves": curves, "compared": means}
    return Summary(headings, [_row(curve) for curve in curves], notes + [each["text"] for each in means], facts)


def _curve(measured: Measured, name: str) -> dict[str, Any]:
    shape, samples = measured
    values = samples["nanoseconds"][name]
    played = sum(values["counts"])
    # A share of rounds that would leave out less than one of them is no more than their maximum.
    found = {share: quantile(values, at) for share, at in SHARES.items() if at == 1.0 or (1 - at) * played >= 1.0}
    title = f"{shape['game']}, {name}" if len(samples["nanoseconds"]) > 1 else shape["game"]
    curve = {"title": title, "scan": name, **shape, "clusters": samples["clusters"], "played": played}
    return curve | {"mean": mean(values), "quantiles": {**found, AGAIN: samples["slowest_again"][name] / 1e3}}


def _row(curve: dict[str, Any]) -> list[str]:
    counts = [figures.short(curve[name]) for name in ("n_arms", "clusters", "played")]
    found = curve["quantiles"]
    times = [figures.brief(found[name]) if name in found else "-" for name in (*SHARES, AGAIN)]
    return [curve["title"], *counts, figures.brief(curve["mean"]), *times]


def compared(shape: dict[str, Any], means: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """The default's mean over a long run, and that of evaluating every arm."""
    default, every = (float(np.median(means[name])) for name in (DEFAULT, FULL_SCAN))
    rounds = f"{shape['mean_rounds']:,} and {shape['full_rounds']:,} rounds"
    text = f"one cluster, mean of the compiled loop over {rounds}: {two_digits(default)} us and "
    text += f"{two_digits(every)} us with every arm evaluated, ratio {default / every:.2g}"
    return {"text": text, "default": default, "full": every, "ratio": default / every}


LATENCY = Workload(
    "latency", "The worst rounds of CS-LB", FULL, QUICK, points, measure, summarise, figures.slowest_rounds
)
