"""The paper's experiments and those that its further claims need, as lists of runs.

Six experiments, each a dictionary of keys and groups of runs; tables, figures and verdicts read them by these keys:

=============  =========================================  ======================================================
name           key                                        what
=============  =========================================  ======================================================
``regret``     (data set, normalize, policy)              the paper's four data sets, full horizon
``time``       (data set, normalize, policy)              the same, timed alone on the first rounds
``arms``       (structure, N, normalize, policy)          the number of arms grows
``sizes``      (scene, l, normalize) or (scene, normalize)  CS-LB with several l, beside OFUL
``blocks``     (data, policy)                             DBSLinUCB on full-rank and on low-rank data
``growth``     (engine, d, l)                             a round of CS-LB in many dimensions
``search``     (data set, N, policy)                      sketches with as many and with four times as many arms
=============  =========================================  ======================================================
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sketchbandits import validate
from sketchbandits.environments.arms import NORMALIZATIONS
from sketchbandits.experiments import paper
from sketchbandits.experiments.contenders import Contender, parse_policies
from sketchbandits.experiments.runs import Outcome, Task
from sketchbandits.experiments.scenes import Scene
from sketchbandits.experiments.study import Experiment, Group

LONGEST, MOST_RUNS = 10**9, 10**4
QUICK = {"rounds": 10_000, "runs": 3, "normalize": ("max",)}

# As the paper prints them, and slow: timed on a shorter run.
TWINS = {
    "cslb": Contender("cslb", (("engine", "sketch"),)),
    "soful": Contender("soful", (("shrink", "every-round"),)),
    "cbscfd": Contender("cbscfd", (("shrink", "every-round"),)),
}

N_DIRECTIONS = 20
ARM_COUNTS = (40, 80, 160, 320)
STRUCTURES = ("20 directions", "general position")
SIZE_SCENES = {"1": paper.DATASETS[1], "4": paper.DATASETS[4], "crowd": (400, 20, 5, 1)}
SKETCH_SIZES = (1, 2, 5, 10, 20, 50)
DIMS, WIDTHS, TYPICAL_WIDTH, TYPICAL_DIM = (64, 256, 1024, 4096), (4, 8, 16, 32), 8, 512
ENGINES = ("coordinates", "sketch")

Groups = Mapping[Hashable, Group]


@dataclass(frozen=True)
class Settings:
    """What to play; a field that is not allowed raises ``ValueError`` naming it."""

    rounds: int = paper.HORIZON
    runs: int = 5
    datasets: tuple[int, ...] = tuple(paper.DATASETS)
    policies: tuple[Contender, ...] = field(default_factory=lambda: parse_policies(",".join(paper.POLICIES)))
    normalize: tuple[str, ...] = NORMALIZATIONS
    seed: int = 0

    def __post_init__(self) -> None:
        validate.whole("rounds", self.rounds, least=100, most=LONGEST)
        validate.whole("runs", self.runs, most=MOST_RUNS)
        validate.whole("seed", self.seed, least=0)
        for number in self.datasets or (0,):
            validate.whole("datasets", number, most=len(paper.DATASETS))
        for word in self.normalize or ("",):
            validate.option("normalize", word, NORMALIZATIONS)
        for name in ("datasets", "normalize"):
            given = getattr(self, name)
            if len(set(given)) < len(given):
                raise ValueError(f"{name} must be named once each, got {','.join(map(str, given))!r}")

    @property
    def timed_rounds(self) -> int:
        """The length of a timed run: a quarter, since it is played alone."""
        return max(1, self.rounds // 4)

    @property
    def twin_rounds(self) -> int:
        """The length of a timed run of a slow twin."""
        return max(1, self.rounds // 40)

    def group(
        self, scene: Scene, contender: Contender, rounds: int | None = None, *, timed: bool = False
    ) -> tuple[Task, ...]:
        """All runs of a policy in a scene."""
        length = rounds or self.rounds
        return tuple(Task(scene, contender, length, run, self.seed, timed) for run in range(self.runs))

    @cached_property
    def experiments(self) -> dict[str, Groups]:
        """Every experiment by its name."""
        builders: tuple[Callable[[Settings], Groups], ...] = (_regret, _time, _arms, _sizes, _blocks, _growth, _search)
        return {builder.__name__.lstrip("_"): builder(self) for builder in builders}

    def tasks(self) -> list[Task]:
        """Every run; timed ones in an order that interleaves the policies, so that a slow minute meets all of them."""
        groups = [group for experiment in self.experiments.values() for group in experiment.values()]
        untimed = [task for group in groups for task in group if not task.timed]
        timed = [task for group in groups for task in group if task.timed]
        return untimed + sorted(timed, key=lambda task: task.run)

    def study(self, outcomes: Mapping[Task, Outcome]) -> dict[str, Experiment]:
        """The experiments with their outcomes."""
        return {name: Experiment(groups, outcomes) for name, groups in self.experiments.items()}


def _regret(settings: Settings) -> Groups:
    return {
        (number, normalize, str(contender)): settings.group(paper.dataset(number, normalize), contender)
        for number in settings.datasets
        for normalize in settings.normalize
        for contender in settings.policies
    }


def _time(settings: Settings) -> Groups:
    groups: dict[Hashable, Group] = {}
    for number, normalize, _ in _regret(settings):  # type: ignore[misc]
        scene = paper.dataset(number, normalize)
        for contender in settings.policies:
            lengths = {contender: settings.timed_rounds}
            if contender.kind in TWINS:
                lengths[TWINS[contender.kind]] = settings.twin_rounds
            for each, rounds in lengths.items():
                groups[number, normalize, str(each)] = settings.group(scene, each, rounds, timed=True)
    return groups


def _arms(settings: Settings) -> Groups:
    groups: dict[Hashable, Group] = {}
    for structure in STRUCTURES:
        for n_arms in ARM_COUNTS:
            group_size = n_arms // N_DIRECTIONS if structure == STRUCTURES[0] else 1
            for normalize in settings.normalize:
                scene = paper.correlated(f"{structure}, N = {n_arms}", n_arms, 50, 5, group_size, normalize)
                for kind in ("ucb1", "cslb", "oful"):
                    key = (structure, n_arms, normalize, kind)
                    groups[key] = settings.group(scene, Contender(kind), max(1, settings.rounds // 2))
    return groups


def _sizes(settings: Settings) -> Groups:
    groups: dict[Hashable, Group] = {}
    for name, (n_arms, dim, sketch_size, group_size) in SIZE_SCENES.items():
        for normalize in settings.normalize:
            scene = paper.correlated(name, n_arms, dim, sketch_size, group_size, normalize)
            groups[name, normalize] = settings.group(scene, Contender("oful"))
            for l in SKETCH_SIZES:
                if l <= dim:
                    own = Contender("cslb", (("sketch_size", l),))
                    groups[name, l, normalize] = settings.group(scene, own)
    return groups


def _blocks(settings: Settings) -> Groups:
    scenes = {
        "full rank": paper.correlated("full rank", 100, 50, 5, 1, "unit"),
        "rank 10": paper.correlated("rank 10", 100, 50, 5, 10, "unit"),
    }
    return {
        (name, kind): settings.group(scene, Contender(kind), settings.twin_rounds, timed=True)
        for name, scene in scenes.items()
        for kind in ("dbslinucb", "oful", "soful")
    }


def _growth(settings: Settings) -> Groups:
    cells = [(d, TYPICAL_WIDTH) for d in DIMS] + [(TYPICAL_DIM, l) for l in WIDTHS]
    # A round of the cheap engine takes a tenth of a microsecond: it needs more of them to be measured.
    rounds = {"sketch": max(10, settings.rounds // 400), "coordinates": max(10, settings.rounds // 4)}
    return {
        (engine, d, l): settings.group(
            paper.correlated(f"d = {d}, l = {l}", 2 * l, d, l, 1, "unit"),
            Contender("cslb", (("engine", engine),)),
            rounds[engine],
            timed=True,
        )
        for engine in ENGINES
        for d, l in cells
    }


def _search(settings: Settings) -> Groups:
    groups: dict[Hashable, Group] = {}
    for number in settings.datasets:
        n_arms, dim, sketch_size, group_size = paper.DATASETS[number]
        for n in (n_arms, 4 * n_arms):
            scene = paper.correlated(str(number), n, dim, sketch_size, group_size, "max")
            for kind in ("soful", "cbscfd"):
                for contender in (Contender(kind), TWINS[kind]):
                    key = (number, n, str(contender))
                    groups[key] = settings.group(scene, contender, settings.twin_rounds, timed=True)
    return groups
