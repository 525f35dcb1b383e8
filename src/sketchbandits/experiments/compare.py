"""A short comparison of all policies on one of the paper's data sets: a table and a figure.

Every run draws new arms, a new hidden parameter and new noise, and all policies of a run meet the same ones. A run is
therefore its own `simulate` calls, one a policy, and `combine` puts their results together.
"""

import io
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sketchbandits import validate
from sketchbandits.environments.arms import NORMALIZATIONS
from sketchbandits.experiments.paper import (
    ARM_NORM,
    DATASETS,
    DELTA,
    NOISE,
    RIDGE,
    THETA_NORM,
    DataSet,
    environment,
)
from sketchbandits.linalg import Floats
from sketchbandits.policies import CBRAP, CBSCFD, CSLB, OFUL, SOFUL, UCB1, DBSLinUCB, LinTS, LinUCB
from sketchbandits.policies.base import Policy
from sketchbandits.results import Result
from sketchbandits.simulate import simulate

if TYPE_CHECKING:
    import polars
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COMPILING, PLAYING = "compiling kernels, once", "playing"
REHEARSAL = 2048  # rounds: fewer say little of a sketch that still grows
LONGEST, MOST_RUNS = 10**9, 10**4

# Called before each step with the stage, what is up next and the share of the stage that is done.
Watch = Callable[[str, str, float], None]


class Contender(NamedTuple):
    """How a policy is built from (arms, sketch size, seed), and how its curve always looks."""

    build: Callable[[Floats, int, Any], Policy]
    colour: str
    line: str = "-"


_SHARED: dict[str, Any] = {
    "ridge": RIDGE,
    "noise": NOISE,
    "theta_norm": THETA_NORM,
    "arm_norm": ARM_NORM,
    "delta": DELTA,
}

_RIGHT_OF_AXES: dict[str, Any] = {
    "loc": "center left",
    "bbox_to_anchor": (1.02, 0.5),
    "frameon": False,
    "handlelength": 2.6,
}

# Okabe and Ito's colours and three more; a log-det radius is dashed, a sketch dash-dotted.
CONTENDERS = {
    "cs-lb": Contender(lambda arms, l, _: CSLB(arms, sketch_size=l, **_SHARED), "#0072B2"),
    "cs-lb-logdet": Contender(
        lambda arms, l, _: CSLB(arms, sketch_size=l, radius="logdet", **_SHARED), "#56B4E9", "--"
    ),
    "oful": Contender(lambda arms, *_: OFUL(arms, **_SHARED), "#D55E00"),
    "oful-logdet": Contender(lambda arms, *_: OFUL(arms, radius="logdet", **_SHARED), "#E69F00", "--"),
    "linucb": Contender(lambda arms, *_: LinUCB(arms, ridge=RIDGE), "#009E73"),
    "lints": Contender(lambda arms, _, seed: LinTS(arms, seed=seed, **_SHARED), "#8C6D31"),
    "soful": Contender(lambda arms, l, _: SOFUL(arms, sketch_size=l, **_SHARED), "#CC79A7", "-."),
    "cbscfd": Contender(lambda arms, l, _: CBSCFD(arms, sketch_size=l, **_SHARED), "#882255", "-."),
    "dbslinucb": Contender(lambda arms, l, _: DBSLinUCB(arms, sketch_size=l, **_SHARED), "#6A51A3", "-."),
    "cbrap": Contender(lambda arms, l, seed: CBRAP(arms, sketch_size=l, ridge=RIDGE, seed=seed), "#999999", ":"),
    "ucb1": Contender(lambda arms, *_: UCB1(arms, noise=NOISE), "#000000"),
}


@dataclass(frozen=True)
class Plan:
    """What to compare; a field that is not allowed raises ``ValueError`` naming it."""

    dataset: int = 1
    normalize: str = "max"
    policies: tuple[str, ...] = tuple(CONTENDERS)
    rounds: int = 20_000
    runs: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        validate.whole("dataset", self.dataset, most=len(DATASETS))
        validate.option("normalize", self.normalize, NORMALIZATIONS)
        validate.whole("rounds", self.rounds, most=LONGEST)
        validate.whole("runs", self.runs, most=MOST_RUNS)
        validate.whole("seed", self.seed, least=0)
        for name in self.policies or ("",):
            validate.option("policies", name, tuple(CONTENDERS))
        if len(set(self.policies)) < len(self.policies):
            raise ValueError(f"policies must be named once each, got {','.join(self.policies)!r}")

    @property
    def data(self) -> DataSet:
        """The data set itself."""
        return DATASETS[self.dataset]

    def seeds(self, run: int) -> tuple[int, int, int]:
        """Independent seeds of a run, for the environment, the policies and the noise.

        Drawn from the child that ``SeedSequence(seed).spawn`` gives this run.
        """
        child = np.random.SeedSequence(self.seed, spawn_key=(run,))
        env, policies, noise = child.generate_state(3, np.uint64).tolist()
        return env, policies, noise

    def play(self, name: str, run: int, *, rounds: int) -> Result:
        """One policy in one run."""
        env_seed, policy_seed, noise_seed = self.seeds(run)
        env = environment(self.data, normalize=self.normalize, seed=env_seed)
        policy = CONTENDERS[name].build(env.arms, self.data.sketch_size, policy_seed)
        return simulate(env, {name: policy}, rounds=rounds, seed=noise_seed, progress=False)


class Standing(NamedTuple):
    """A policy's line in the table; ``half_width`` is of the 95 % band of mean regret, NaN with a single run."""

    policy: str
    regret: float
    half_width: float
    microseconds: float  # per round
    warmup_milliseconds: float


@dataclass(frozen=True)
class Comparison:
    """What came out: one `Result` of all policies for each run."""

    plan: Plan
    runs: Sequence[Result]

    @cached_property
    def result(self) -> Result:
        """All runs in one."""
        return combine(self.runs)

    def standings(self) -> list[Standing]:
        """The policies from the least mean regret to the largest."""
        return sorted(map(self._standing, self.result.policies), key=lambda standing: standing.regret)

    def _standing(self, name: str) -> Standing:
        result = self.result
        low, high = result.band(name)
        half_width = (high[-1] - low[-1]) / 2 if result.runs > 1 else np.nan
        microseconds = 1e6 * result.seconds[name].mean() / result.rounds
        return Standing(name, result.mean(name)[-1], half_width, microseconds, 1e3 * result.warmup_seconds[name])

    def summary(self) -> "polars.DataFrame":
        """One row a policy and run: dataset, normalize, policy, run, rounds, regret, seconds, warmup_seconds."""
        import polars  # a tenth of a second that `--help` need not wait

        plan = (polars.lit(self.plan.dataset).alias("dataset"), polars.lit(self.plan.normalize).alias("normalize"))
        rows = polars.concat(
            [result.summary().with_columns(polars.lit(run).alias("run")) for run, result in enumerate(self.runs)]
        )
        return rows.select(*plan, polars.all())

    def figure(self) -> "Figure":
        """Mean regret against rounds, its 95 % bands at the end beside; all from the highest curve to the lowest.

        Eleven bands along the curves would cover each other and everything else: a few runs give wide ones.
        """
        from matplotlib.figure import Figure  # half a second that `--help` need not wait

        figure = Figure(figsize=(9.0, 5.0), layout="constrained")
        curves, ends = figure.subplots(1, 2, sharey=True, width_ratios=(5, 1))
        standings = self.standings()[::-1]
        for place, standing in enumerate(standings):
            self._draw(curves, ends, place, standing)
        runs = "1 run" if self.plan.runs == 1 else f"mean of {self.plan.runs} runs"
        figure.suptitle(f"{self.plan.data}, {self.plan.normalize} norm, {runs}", fontsize=12)
        curves.set(xlabel="round", ylabel="cumulative regret", xlim=(0, self.plan.rounds), ylim=(0, None))
        curves.xaxis.set_major_formatter("{x:,.0f}")
        curves.yaxis.set_major_formatter("{x:,.0f}")
        band = "\n95 % band" if self.plan.runs > 1 else ""
        ends.set(xlabel=f"at the end{band}", xticks=[], xlim=(-1, len(standings)))
        for ax in (curves, ends):
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(alpha=0.25)
        ends.legend(*curves.get_legend_handles_labels(), **_RIGHT_OF_AXES)
        return figure

    def _draw(self, curves: "Axes", ends: "Axes", place: int, standing: Standing) -> None:
        name, regret, half_width, *_ = standing
        _, colour, line = CONTENDERS[name]
        x, y = np.append(0, self.result.checkpoints), np.append(0.0, self.result.mean(name))
        curves.plot(x, y, line, color=colour, linewidth=2.0, label=name)
        ends.errorbar(place, regret, half_width, color=colour, linewidth=2.0)
        ends.plot(place, regret, "o", color=colour, markersize=5, clip_on=False)  # whole even at zero

    def files(self) -> dict[str, bytes]:
        """The contents of ``summary.csv``, ``regret.png`` and ``regret.svg``."""
        import matplotlib  # as in `figure`

        png, svg = io.BytesIO(), io.BytesIO()
        figure = self.figure()
        figure.savefig(png, format="png", dpi=150)
        # Without a salt and with a date, the same numbers would give another file every time.
        with matplotlib.rc_context({"svg.hashsalt": "sketchbandits"}):
            figure.savefig(svg, format="svg", metadata={"Date": None})
        csv = self.summary().write_csv().encode()
        return {"summary.csv": csv, "regret.png": png.getvalue(), "regret.svg": svg.getvalue()}


def compare(plan: Plan, watch: Watch = lambda stage, what, share: None) -> Comparison:
    """Play every policy of the plan in every run."""
    expected, spent = _rehearse(plan, watch), 0.0
    runs = []
    for run in range(plan.runs):
        results = []
        for place, name in enumerate(plan.policies):
            left = sum(expected[p] * (plan.runs - run - (i < place)) for i, p in enumerate(plan.policies))
            watch(PLAYING, f"{name}, run {run + 1} of {plan.runs}", spent / (spent + left))
            results.append(plan.play(name, run, rounds=plan.rounds))
            expected[name] = float(results[-1].seconds[name][0])  # better than the rehearsal's, for the next run
            spent += expected[name]
        runs.append(combine(results))
    return Comparison(plan, runs)


def combine(results: Sequence[Result]) -> Result:
    """One result of several with equal checkpoints: their policies side by side, runs of one policy in order.

    Warm-up time, one number a policy, is the mean.
    """
    checkpoints = results[0].checkpoints
    if not all(np.array_equal(result.checkpoints, checkpoints) for result in results):
        raise ValueError("results must have equal checkpoints")
    parts = {name: [result for result in results if name in result.regret] for r in results for name in r.policies}
    return Result(
        checkpoints,
        {name: np.concatenate([part.regret[name] for part in parts[name]]) for name in parts},
        {name: np.concatenate([part.seconds[name] for part in parts[name]]) for name in parts},
        {name: float(np.mean([part.warmup_seconds[name] for part in parts[name]])) for name in parts},
    )


def write_together(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into ``folder``: each appears whole, and none before all of them are on the disk."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".unfinished-") as staging:
        for name, content in contents.items():
            (Path(staging) / name).write_bytes(content)
        for name in contents:
            os.replace(Path(staging) / name, folder / name)


def _rehearse(plan: Plan, watch: Watch) -> dict[str, float]:
    """Compile, or load, the kernels of every policy; returns the seconds that its first run should take."""
    expected = {}
    rounds = min(REHEARSAL, plan.rounds)
    for i, name in enumerate(plan.policies):
        watch(COMPILING, name, i / len(plan.policies))
        expected[name] = float(plan.play(name, 0, rounds=rounds).seconds[name][0]) * plan.rounds / rounds
    return expected
