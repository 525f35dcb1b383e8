"""The paper's experiments and those that its further claims need, as lists of runs.

Eight experiments, each a dictionary of keys and groups of runs; tables, figures and verdicts read them by these keys:

=============  =========================================  ======================================================
name           key                                        what
=============  =========================================  ======================================================
``regret``     (data set, normalize, policy)              the paper's four data sets, full horizon
``time``       (data set, normalize, policy)              the same, timed alone, in fewer runs
``long``       (data set, normalize)                      CS-LB alone, over ten times as many rounds
``arms``       (structure, N, normalize, policy)          the number of arms grows
``sizes``      (scene, l or radius, normalize)            CS-LB with several l, and OFUL with either radius
``blocks``     (data, d, policy)                          DBSLinUCB and OFUL on full-rank and on low-rank data
``growth``     (engine, d, l)                             a round of CS-LB in many dimensions
``search``     (data set, N, policy)                      all with N arms, sketches with four times as many too
=============  =========================================  ======================================================
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from sketchbandits import validate
from sketchbandits.environments.generators import NORMALIZATIONS
from sketchbandits.lab.experiments.scenes import Scene
from sketchbandits.lab.experiments.study import Group, Groups, Plan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.policies.registry import PolicySpec, parse_policies

QUICK: dict[str, Any] = {"rounds": 10_000, "runs": 3, "normalize": ("max",), "quick": True}  # a first impression
UNJUDGED = "not judged in a quick run"
# Intervals that hold together for all cases of a claim are wide: with the five runs of the paper more than twice as
# wide as with ten.
RUNS, TIMED_RUNS = 10, 5
SEEN = (0, 2026)  # seeds of full runs after whose results a rule was changed

# Policies as the paper prints them, which are slow: timed on a shorter run.
AS_PRINTED = {
    "cslb": PolicySpec("cslb", (("engine", "sketch"),)),
    "soful": PolicySpec("soful", (("shrink", "every-round"),)),
    "cbscfd": PolicySpec("cbscfd", (("shrink", "every-round"),)),
}

LONGER = 10
FAST = ("cslb", "ucb1", "multiscale")  # a microsecond a round or less: timed over all, or the clock would tell little
N_DIRECTIONS = 20
ARM_COUNTS = (20, 40, 80, 160)
STRUCTURES = ("20 directions", "general position")
SIZE_SCENES = {"1": paper.DATASETS[1], "4": paper.DATASETS[4], "crowd": (400, 20, 5, 1)}
SKETCH_SIZES = (1, 2, 5, 10, 20, 50)
DIMS, WIDTHS, TYPICAL_WIDTH, TYPICAL_DIM = (64, 256, 1024, 4096), (4, 8, 16, 32), 4, 256
ENGINES = ("coordinates", "sketch")
BLOCK_DIMS = (50, 100, 200)


@dataclass(frozen=True, kw_only=True)
class PaperPlan(Plan):
    """The paper's experiments; a field that is not allowed raises ``ValueError`` naming it."""

    policies: tuple[PolicySpec, ...] = field(default_factory=lambda: parse_policies(",".join(paper.SHOWN)))
    rounds: int = paper.HORIZON
    runs: int = RUNS
    seed: int = 8191  # not among those that were `SEEN`
    datasets: tuple[int, ...] = tuple(paper.DATASETS)
    normalize: tuple[str, ...] = NORMALIZATIONS
    quick: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for number in self.datasets or (0,):
            validate.whole("datasets", number, most=len(paper.DATASETS))
        for word in self.normalize or ("",):
            validate.option("normalize", word, NORMALIZATIONS)
        for name in ("datasets", "normalize"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise ValueError(f"{name} must be named once each, got {','.join(map(str, given))!r}")

    @property
    def unjudged(self) -> str:
        """A quick run is too short to judge anything."""
        return UNJUDGED if self.quick else ""

    def timed(self, scene: Scene, policy: PolicySpec, rounds: int) -> Group:
        """Runs that are timed alone, one after the other: no more than `TIMED_RUNS`, since times vary little."""
        return self.group(scene, policy, rounds, timed=True)[:TIMED_RUNS]

    @property
    def as_printed_rounds(self) -> int:
        """The length of a timed run of a policy as the paper prints it."""
        return max(10, self.rounds // 80)

    @cached_property
    def experiments(self) -> dict[str, Groups]:
        """Every experiment by its name."""
        builders: tuple[Callable[[PaperPlan], Groups], ...] = (
            _regret,
            _time,
            _long,
            _arms,
            _sizes,
            _blocks,
            _growth,
            _search,
        )
        return {builder.__name__.lstrip("_"): builder(self) for builder in builders}


def _regret(plan: PaperPlan) -> Groups:
    return {
        (number, normalize, str(policy)): plan.group(paper.dataset(number, normalize), policy)
        for number in plan.datasets
        for normalize in plan.normalize
        for policy in plan.policies
    }


def _time(plan: PaperPlan) -> Groups:
    groups: dict[tuple[Any, ...], Group] = {}
    for number, normalize, policy in product(plan.datasets, plan.normalize, plan.policies):
        scene = paper.dataset(number, normalize)
        lengths = {policy: plan.rounds if policy.name in FAST else plan.timed_rounds}
        if policy.name in AS_PRINTED:
            lengths[AS_PRINTED[policy.name]] = plan.as_printed_rounds
        for each, rounds in lengths.items():
            groups[number, normalize, str(each)] = plan.timed(scene, each, rounds)
    return groups


def _long(plan: PaperPlan) -> Groups:
    return {
        (number, normalize): plan.group(paper.dataset(number, normalize), PolicySpec("cslb"), LONGER * plan.rounds)
        for number in plan.datasets
        for normalize in plan.normalize
    }


def _arms(plan: PaperPlan) -> Groups:
    groups: dict[tuple[Any, ...], Group] = {}
    for structure in STRUCTURES:
        for n_arms in ARM_COUNTS:
            group_size = n_arms // N_DIRECTIONS if structure == STRUCTURES[0] else 1
            for normalize in plan.normalize:
                scene = paper.correlated(f"{structure}, N = {n_arms}", n_arms, 50, 5, group_size, normalize)
                for policy in (PolicySpec("ucb1"), PolicySpec("cslb"), *paper.OFUL_READINGS.values()):
                    key = (structure, n_arms, normalize, str(policy))
                    groups[key] = plan.group(scene, policy, max(1, plan.rounds // 2))
    return groups


def _sizes(plan: PaperPlan) -> Groups:
    groups: dict[tuple[Any, ...], Group] = {}
    for name, (n_arms, dim, sketch_size, group_size) in SIZE_SCENES.items():
        for normalize in plan.normalize:
            scene = paper.correlated(name, n_arms, dim, sketch_size, group_size, normalize)
            for radius, oful in paper.OFUL_READINGS.items():
                groups[name, radius, normalize] = plan.group(scene, oful)
            for l in SKETCH_SIZES:
                if l <= dim:
                    own = PolicySpec("cslb", (("sketch_size", l),))
                    groups[name, l, normalize] = plan.group(scene, own)
    return groups


def _blocks(plan: PaperPlan) -> Groups:
    groups: dict[tuple[Any, ...], Group] = {}
    for d in BLOCK_DIMS:
        for data, group_size in (("full rank", 1), ("rank 10", 2 * d // 10)):
            scene = paper.correlated(f"{data}, d = {d}", 2 * d, d, 5, group_size, "unit")
            for kind in ("dbslinucb", "oful"):
                groups[data, d, kind] = plan.timed(scene, PolicySpec(kind), plan.as_printed_rounds)
    return groups


def _growth(plan: PaperPlan) -> Groups:
    cells = [(d, TYPICAL_WIDTH) for d in DIMS] + [(TYPICAL_DIM, l) for l in WIDTHS]
    # A round of the cheap engine takes a tenth of a microsecond: it needs more of them to be measured.
    rounds = {"sketch": max(10, plan.rounds // 400), "coordinates": max(10, plan.rounds)}
    return {
        (engine, d, l): plan.timed(
            paper.correlated(f"d = {d}, l = {l}", 2 * l, d, l, 1, "unit"),
            PolicySpec("cslb", (("engine", engine),)),
            rounds[engine],
        )
        for engine in ENGINES
        for d, l in cells
    }


def _search(plan: PaperPlan) -> Groups:
    groups: dict[tuple[Any, ...], Group] = {}
    for number in (1, 2):
        n_arms, dim, sketch_size, group_size = paper.DATASETS[number]
        for n in (n_arms, 4 * n_arms):
            scene = paper.correlated(str(number), n, dim, sketch_size, group_size, "max")
            for kind in AS_PRINTED if n == n_arms else ("soful", "cbscfd"):
                for policy in (PolicySpec(kind), AS_PRINTED[kind]):
                    key = (number, n, str(policy))
                    groups[key] = plan.timed(scene, policy, plan.as_printed_rounds)
    return groups
