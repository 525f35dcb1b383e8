"""Every policy of the library on equal terms: rounds per second in the compiled loop, and regret over the same rounds.

The yardstick, an OFUL in NumPy, plays the same rounds: the ratio to it says what compiling and sketching give.
"""

import inspect
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import sketchbandits
from sketchbandits.environments import LinearEnvironment
from sketchbandits.kernels.linalg import Floats
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.lab.drawing import thousands
from sketchbandits.lab.intervals import interval
from sketchbandits.lab.palette import COLOURS, GREY
from sketchbandits.policies import CSLB, registry
from sketchbandits.policies.base import Policy
from suite import figures, games
from suite.measure import interleaved
from suite.targets import at_least
from suite.workload import Measured, Point, Session, Summary, Workload
from suite.yardstick import NumpyOFUL

YARDSTICK = "NumPy OFUL"
TARGET, LEAST_GAIN = (1000, 200), 100.0  # arms and dimension; how many rounds of CS-LB a round of the yardstick's
Played = tuple[float, float]  # microseconds per round, regret


class Setting(NamedTuple):
    """Arms, their dimension, the sketch size of policies that have one, rounds of a run."""

    n_arms: int
    dim: int
    sketch_size: int
    rounds: int


class Sizes(NamedTuple):
    """Settings, and how often each is drawn."""

    settings: tuple[Setting, ...]
    draws: int


FULL = Sizes((Setting(60, 50, 5, 20_000), Setting(1000, 200, 10, 10_000)), 5)
QUICK = Sizes((Setting(60, 50, 5, 2_000), Setting(1000, 200, 10, 300)), 3)


def public_policies() -> dict[str, type[Policy]]:
    """Every policy among the library's public names: a new one is found as well."""
    public = {name: getattr(sketchbandits, name) for name in sketchbandits.__all__}
    return {name: cls for name, cls in public.items() if isinstance(cls, type) and issubclass(cls, Policy)}


def name_and_colour(policy: type) -> tuple[str, str]:
    """A policy's name in text and its colour, as everywhere."""
    known = {known.policy: (known.label, COLOURS[name]) for name, known in registry.POLICIES.items()}
    return known.get(policy, (policy.__name__, GREY))


def build(policy: Any, arms: Floats, sketch_size: int) -> Policy:
    """A policy with its defaults, whatever it is called with."""
    sized = {"sketch_size": sketch_size} if "sketch_size" in inspect.signature(policy).parameters else {}
    built: Policy = policy(arms, seed=0, **sized)
    return built


def points(sizes: Sizes) -> list[Point]:
    """One point per draw: all policies meet the same arms, parameter and noise."""
    found = []
    for draw in range(sizes.draws):
        for setting in sizes.settings:
            expected = 1e-9 * setting.rounds * setting.n_arms * setting.dim * len(public_policies()) / 2 + 0.1
            label = f"draw {draw + 1}, {setting.n_arms:,} arms"
            found.append(Point(label, {"draw": draw, **setting._asdict()}, expected))
    return found


def measure(shape: dict[str, Any], session: Session) -> dict[str, Any]:
    """Microseconds per round and regret of every policy and of the yardstick."""
    draw = 1000 * session.seed + 2 * shape["draw"]
    env = games.paper_game(shape["n_arms"], shape["dim"], draw)
    noise = games.noise_of(env, shape["rounds"], draw)
    with one_blas_thread():
        contenders: dict[str, Callable[[], Played]] = {
            name_and_colour(cls)[0]: _compiled(build(cls, env.arms, shape["sketch_size"]), env, noise)
            for cls in public_policies().values()
        }
        contenders[YARDSTICK] = _plain(env, noise)
        order = list(contenders)[:: 1 if shape["draw"] % 2 == 0 else -1]
        samples = interleaved({name: contenders[name] for name in order}, 1)
    found = {name: samples[name][0] for name in contenders}
    return {"microseconds": {n: v[0] for n, v in found.items()}, "regret": {n: v[1] for n, v in found.items()}}


def _compiled(policy: Policy, env: LinearEnvironment, noise: Floats) -> Callable[[], Played]:
    policy.copy().play_rounds(env.means, env.gaps, noise[:1])  # compiled, or loaded, before the clock runs

    def play() -> Played:
        twin, started = policy.copy(), time.perf_counter()
        regret = twin.play_rounds(env.means, env.gaps, noise)
        return 1e6 * (time.perf_counter() - started) / noise.size, regret

    return play


def _plain(env: LinearEnvironment, noise: Floats) -> Callable[[], Played]:
    means, gaps = env.means.tolist(), env.gaps.tolist()

    def play() -> Played:
        policy, regret, started = NumpyOFUL(env.arms), 0.0, time.perf_counter()
        for value in noise.tolist():
            arm = policy.select()
            regret += gaps[arm]
            policy.update(arm, means[arm] + value)
        return 1e6 * (time.perf_counter() - started) / noise.size, regret

    return play


def summarise(measured: Sequence[Measured]) -> Summary:
    """One line per policy and setting, the fastest first."""
    facts = []
    for place in dict.fromkeys((m.parameters["n_arms"], m.parameters["dim"]) for m in measured):
        part = [m for m in measured if (m.parameters["n_arms"], m.parameters["dim"]) == place]
        times, regrets = (_by_policy(part, what) for what in ("microseconds", "regret"))
        for name in sorted(times, key=lambda name: statistics.median(times[name])):
            what = f"{name} / {YARDSTICK} at N={place[0]}, d={place[1]}, rounds per second"
            limit = LEAST_GAIN if name == name_and_colour(CSLB)[0] and place == TARGET else None
            fact = {"n_arms": place[0], "dim": place[1], "policy": name, "colour": _colour(name)}
            fact |= {"rounds_per_second": [1e6 / time for time in times[name]], "regret": regrets[name]}
            facts.append(fact | {"target": at_least(what, times, YARDSTICK, name, limit)})
    headings = ("policy", "N", "d", "rounds/s", "best", "/ yardstick", "regret", "95 %")
    notes = [str(fact["target"]) for fact in facts if fact["target"].target]
    plain = [{**fact, "target": asdict(fact["target"])} for fact in facts]
    return Summary(headings, [_row(fact) for fact in facts], notes, {"policies": plain}, group=1)


def _colour(name: str) -> str:
    return dict(map(name_and_colour, public_policies().values())).get(name, GREY)


def _by_policy(part: Sequence[Measured], what: str) -> dict[str, list[float]]:
    return {name: [each.samples[what][name] for each in part] for name in part[0].samples[what]}


def _row(fact: dict[str, Any]) -> list[str]:
    speed, regret = fact["rounds_per_second"], interval(fact["regret"])
    place = [f"{fact['n_arms']:,}", str(fact["dim"])]
    speeds = [in_thousands(statistics.median(speed)), in_thousands(max(speed)), fact["target"].shown]
    band = f"{max(regret.low, 0.0):,.0f} .. {regret.high:,.0f}" if len(fact["regret"]) > 1 else "-"
    return [fact["policy"], *place, *speeds, f"{regret.mean:,.0f}", band]


def in_thousands(value: float) -> str:
    """Three digits: 12.3k."""
    return thousands(float(f"{value:.3g}"))


POLICIES = Workload(
    "policies", "Every policy of the library", FULL, QUICK, points, measure, summarise, figures.speed_and_regret
)
