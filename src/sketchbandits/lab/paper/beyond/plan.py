"""What `beyond` plays: which policies meet on which sets, for how long, and what is timed.

One run of the full length gives regret at both horizons, a quarter of it and the whole: no policy here knows the
horizon. Runs of a set whose arms are not all available in every round are shorter (`arm_sets.SHORTER`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from sketchbandits import validate
from sketchbandits.lab.experiments.changing_scenes import AnyScene, AvailableScene, LivingScene
from sketchbandits.lab.experiments.scenes import Scene
from sketchbandits.lab.experiments.study import MOST_RUNS, Group, Groups, Plan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.beyond.arm_sets import MODEL, ArmSet, arm_sets
from sketchbandits.policies.registry import PolicySpec, parse_policies

VARIANTS = parse_policies("multiscale,multiscale:explore=optimism")  # what is compared, the default first
OURS = VARIANTS[0]
FAIR = PolicySpec.parse("oful:radius=mixture,ridge=none,cap=true")  # with all that multi-scale has and OFUL can use
GUARANTEED = (FAIR, *parse_policies("cslb:radius=logdet,cslb,ucb1:exploration=8"))  # each as good as its guarantee
SAMPLING = PolicySpec.parse("lints:scale=1")  # v = R, the usual choice, which has no guarantee
OTHERS = (*parse_policies("ucb1"), SAMPLING)  # shown, but without a guarantee for this noise
ABLATED = parse_policies(
    "multiscale:radius=logdet,multiscale:budget=0,multiscale:sketch_size=64,multiscale:explore=optimism,"
    "oful:radius=mixture,ridge=none,oful:radius=logdet"
)  # multi-scale without one of its parts (64: one cluster of all arms), OFUL without its cap, and as it was before
TIMED = tuple(spec for spec in parse_policies("all") if spec.name != "hybrid")  # that one: docs/practice.md
FIXED_ONLY = ("cslb", str(SAMPLING))  # their arms cannot change
ABLATION_RUNS, SAMPLING_RUNS, TIMED_RUNS = 5, 5, 5  # LinTS takes the longest, and is compared over all sets together
LIVING_MORE = 10  # times as many runs of the living pairs: two variants of one policy, whose regret differs by little
MANY_ARMS = 1000  # from here on time is measured
HORIZONS = (4, 1)  # regret is shown after these parts of a run
FRONTIER = {"(4)": (200, 50, 5, 10), "(6)": (1000, 20, 4, 10)}


@dataclass(frozen=True, kw_only=True)
class BeyondPlan(Plan):
    """All sets of ``seed``, which also seeds the runs; a field not allowed raises ``ValueError`` naming it.

    ``sets``: only the first so many of each family (default: all).
    """

    policies: tuple[PolicySpec, ...] = field(default=(*VARIANTS, *GUARANTEED, *OTHERS))
    rounds: int = paper.HORIZON
    runs: int = 10
    seed: int = 74_093  # nothing was played on it before
    sets: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sets is not None:
            validate.whole("sets", self.sets)

    @cached_property
    def arm_sets(self) -> list[ArmSet]:
        """What is played, in order."""
        found: dict[str, list[ArmSet]] = {}
        for each in arm_sets(self.seed):
            found.setdefault(each.family, []).append(each)
        return [each for family in found.values() for each in family[: self.sets]]

    @cached_property
    def experiments(self) -> dict[str, Groups]:
        """``regret``, ``ablation`` and ``time`` by (set, normalize, policy); ``living``, ``frontier``."""
        regret, ablation, time = {}, {}, {}
        for each in self.arm_sets:
            place, length = (each.scene.name, each.scene.normalize), max(100, self.rounds // each.shorter)
            for policy in players(each, self.policies):
                most = SAMPLING_RUNS if policy == SAMPLING else None
                regret[*place, str(policy)] = self._runs(each.scene, policy, length, most)
            if each in self._ablated:
                for policy in (OURS, *GUARANTEED, *ABLATED):
                    ablation[*place, str(policy)] = self._runs(each.scene, policy, length, ABLATION_RUNS)
            if each.is_fixed and each.options["n_arms"] >= MANY_ARMS:
                time[*place, str(OURS)] = self._timed(each.scene, OURS, self.rounds)
                time[*place, str(FAIR)] = self._timed(each.scene, FAIR, self.timed_rounds)
        other = {"living": dict(self._living()), "frontier": self._frontier()}
        return {"regret": regret, "ablation": ablation, "time": time, **other}

    @property
    def _ablated(self) -> list[ArmSet]:
        """The first set of each family with fixed arms."""
        first: dict[str, ArmSet] = {}
        for each in self.arm_sets:
            first.setdefault(each.family, each)
        return [each for each in first.values() if each.is_fixed]

    def _living(self) -> Iterator[tuple[tuple[Any, ...], Group]]:
        """Multi-scale with arms that come or go, and with the same arms built at once or removed for good."""
        for name, pair in living_pairs().items():
            length = self.rounds if name.startswith("E") else max(100, self.rounds // 20)
            for which, scene in zip(("changed", "plain"), pair, strict=True):
                for policy in VARIANTS:
                    runs = min(MOST_RUNS, LIVING_MORE * self.runs)
                    yield (name, which, str(policy)), self.group(scene, policy, length, runs=runs)

    def _frontier(self) -> Groups:
        groups: dict[tuple[Any, ...], Group] = {}
        for name, sizes in FRONTIER.items():
            scene = paper.correlated(name, *sizes, "max")
            for policy in TIMED:
                groups[name, "max", str(policy)] = self._timed(scene, policy, max(100, self.rounds // 10))
        return groups

    def _runs(self, scene: AnyScene, policy: PolicySpec, rounds: int, most: int | None = None) -> Group:
        return self.group(scene, policy, rounds)[:most]

    def _timed(self, scene: AnyScene, policy: PolicySpec, rounds: int) -> Group:
        return self.group(scene, policy, rounds, timed=True)[:TIMED_RUNS]


def players(each: ArmSet, policies: tuple[PolicySpec, ...]) -> list[PolicySpec]:
    """Those that can play there: where arms come and go, not those whose arms are fixed."""
    if not isinstance(each.scene, LivingScene):
        return list(policies)
    return [policy for policy in policies if str(policy) not in FIXED_ONLY]


def living_pairs() -> dict[str, tuple[AnyScene, AnyScene]]:
    """Per name a scene whose arms change, and one with the same arms in which they need not.

    E1, E2: built with a few arms, all others added before the first round; built with all. F: the ten best arms are
    hidden in every round; they are removed before the first.
    """
    found: dict[str, tuple[AnyScene, AnyScene]] = {}
    for name, n_arms, dim, first in (("E1", 500, 20, 15), ("E2", 1000, 10, 8)):
        scene = _gaussian(name, n_arms, dim)
        found[name] = (LivingScene(scene, first, until=0.0), LivingScene(scene, n_arms))
    scene = _gaussian("F", 500, 10)
    found["F"] = (AvailableScene(scene, 1.0, hidden=10), LivingScene(scene, 500, best_removed=10))
    return found


def _gaussian(name: str, n_arms: int, dim: int) -> Scene:
    options = (("n_arms", n_arms), ("dim", dim), ("decay", 0.0))
    return Scene(name, MODEL, "heavy-tailed", options, "max", "isotropic")
