"""What a call from Python costs: ``select``, ``update``, both, and rewards in batches, compared with the yardstick's.

A batch pays for its checks and its way into compiled code once, so its time is given per reward or event.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.environments import LinearEnvironment
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.lab.drawing import two_digits
from sketchbandits.policies import CSLB, OFUL
from suite import figures, games
from suite.measure import Contender, interleaved, through_api
from suite.targets import ratios
from suite.workload import Measured, Point, Session, Summary, Workload
from suite.yardstick import NumpyOFUL

BOTH = "select + update"
YARDSTICK = "NumPy OFUL"


class Sizes(NamedTuple):
    """Arms, dimension and sketch size of each setting; rounds per repetition, rewards per batch, repetitions."""

    settings: tuple[tuple[int, int, int], ...]
    rounds: int
    batch: int
    repetitions: int


FULL = Sizes(((60, 50, 5), (1000, 200, 10)), 2_000, 1_000, 25)
QUICK = Sizes(((60, 50, 5), (1000, 200, 10)), 200, 100, 7)


def points(sizes: Sizes) -> list[Point]:
    """One point per setting."""
    found = []
    for n, d, l in sizes.settings:
        shape = {"n_arms": n, "dim": d, "sketch_size": l, "rounds": sizes.rounds}
        expected = 1e-9 * sizes.rounds * sizes.repetitions * (3 * n * d + 50_000)
        options = {"batch": sizes.batch, "repetitions": sizes.repetitions}
        found.append(Point(f"{n:,} arms", {**shape, **options}, expected))
    return found


def measure(shape: dict[str, Any], session: Session) -> dict[str, Any]:
    """Microseconds of every repetition, by policy and call."""
    env = games.paper_game(shape["n_arms"], shape["dim"], session.seed)
    noise = games.noise_of(env, shape["rounds"], session.seed)
    policies = {"CS-LB": CSLB(env.arms, sketch_size=shape["sketch_size"]), "OFUL": OFUL(env.arms)}
    with one_blas_thread():
        contenders: dict[tuple[str, str], Contender] = {}
        for name, policy in policies.items():
            calls = contenders_of(policy, env, noise, shape["batch"])
            contenders |= {(name, call): contender for call, contender in calls.items()}
        contenders[YARDSTICK, BOTH] = through_api(lambda: NumpyOFUL(env.arms), env, noise)
        samples = interleaved(
            {f"{name}: {call}": way for (name, call), way in contenders.items()}, shape["repetitions"]
        )
    return {"microseconds": samples}


def contenders_of(policy: Any, env: LinearEnvironment, noise: Floats, batch: int) -> dict[str, Contender]:
    """Each call by name, on the arms that the policy itself plays."""
    arms, rewards = log(policy.copy(), env, noise)
    batches = [(arms[i : i + batch], rewards[i : i + batch]) for i in range(0, arms.size, batch)]
    pairs = list(zip(arms.tolist(), rewards.tolist(), strict=True))

    def select(policy: Any) -> None:
        for _ in pairs:
            policy.select()

    def update(policy: Any) -> None:
        for arm, reward in pairs:
            policy.update(arm, reward)

    def update_many(policy: Any) -> None:
        for arms, rewards in batches:
            policy.update_many(arms, rewards)

    def play(policy: Any) -> None:
        for events in batches:
            policy.play(events)

    ways = {loop.__name__: timed(policy, loop, len(pairs)) for loop in (select, update)}
    ways[BOTH] = through_api(policy.copy, env, noise)
    return ways | {loop.__name__: timed(policy, loop, len(pairs)) for loop in (update_many, play)}


def timed(policy: Any, loop: Callable[[Any], None], calls: int) -> Contender:
    """Microseconds per call of a loop over them."""
    loop(policy.copy())  # compiled, or loaded, before the clock runs

    def run() -> float:
        twin = policy.copy()
        started = time.perf_counter()
        loop(twin)
        return (time.perf_counter() - started) / calls * 1e6

    return run


def log(policy: Any, env: LinearEnvironment, noise: Floats) -> tuple[Ints, Floats]:
    """The arms that a policy plays and the rewards it gets: what the batches hold."""
    arms, rewards = np.empty(noise.size, np.int64), np.empty(noise.size)
    for t, value in enumerate(noise):
        arms[t] = policy.select()
        rewards[t] = env.means[arms[t]] + value
        policy.update(int(arms[t]), float(rewards[t]))
    return arms, rewards


def summarise(measured: Sequence[Measured]) -> Summary:
    """One line per setting, policy and call, as a share of the yardstick's ``select`` and ``update``."""
    rows, facts = [], []
    for shape, samples in measured:
        times = samples["microseconds"]
        for key, values in times.items():
            name, call = key.split(": ", 1)
            share, least = ratios(values, times[f"{YARDSTICK}: {BOTH}"])
            middle = statistics.median(values)
            fact = {"n_arms": shape["n_arms"], "dim": shape["dim"], "policy": name, "call": call, "ratio": share}
            facts.append(fact | {"median": middle, "least": min(values), "ratio_of_minima": least})
            shown = [two_digits(middle), two_digits(min(values)), f"{share:.3g} ({least:.3g})"]
            rows.append([name, call, f"{shape['n_arms']:,}", str(shape["dim"]), *shown])
    headings = ("policy", "call", "N", "d", "us", "least", "/ NumPy OFUL's")
    notes = [
        f"update_many: time per reward; play: time per event, both in batches of {measured[0].parameters['batch']:,}."
    ]
    return Summary(headings, rows, notes, {"calls": facts}, left=2, group=2)


CALLS = Workload(
    "calls", "What a call from Python costs", FULL, QUICK, points, measure, summarise, figures.costs_of_calls
)
