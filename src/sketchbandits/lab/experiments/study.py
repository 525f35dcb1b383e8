"""What is to be played, as experiments of named groups of runs, and what was played, looked up by the same names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.lab.experiments.changing_scenes import AnyScene
from sketchbandits.lab.experiments.tasks import Outcome, Task
from sketchbandits.policies.registry import PolicySpec

Group = tuple[Task, ...]  # the runs of one policy in one scene, in order
Groups = Mapping[tuple[Any, ...], Group]
LONGEST, MOST_RUNS = 10**9, 1000


class NotPlayedError(KeyError):
    """A claim or figure asks for runs that were not part of the experiment."""

    def __str__(self) -> str:
        return str(self.args[0])  # a KeyError would quote it


@dataclass(frozen=True)
class Runs:
    """The runs of one policy in one scene; arrays have one row per run."""

    outcomes: Sequence[Outcome]

    @property
    def checkpoints(self) -> Ints:
        """The rounds at which regret was kept."""
        return self.outcomes[0].checkpoints

    @cached_property
    def curves(self) -> Floats:
        """Cumulative regret at every checkpoint."""
        return np.array([outcome.regret for outcome in self.outcomes])

    @property
    def regret(self) -> Floats:
        """Regret at the end."""
        return self.curves[:, -1]

    def regret_at(self, rounds: float) -> Floats:
        """Regret after so many rounds, between checkpoints by a straight line."""
        points = np.append(0, self.checkpoints)
        return np.array([np.interp(rounds, points, np.append(0.0, curve)) for curve in self.curves])

    @property
    def microseconds(self) -> Floats:
        """Play time per round."""
        return np.array([1e6 * outcome.seconds / outcome.rounds for outcome in self.outcomes])

    @property
    def positive_microseconds(self) -> Floats:
        """Play time per round, never 0, which has no logarithm: a coarse clock may measure 0 in a short run."""
        return np.maximum(self.microseconds, 1e-3)

    @property
    def warmup_seconds(self) -> Floats:
        """Time before the first round."""
        return np.array([outcome.warmup_seconds for outcome in self.outcomes])

    def fact(self, name: str) -> Floats:
        """Something counted in every run, see `sketchbandits.lab.experiments.tasks.Task`."""
        return np.array([outcome.facts[name] for outcome in self.outcomes])


class Experiment(Mapping[Any, Runs]):
    """Groups by key, looked up in the outcomes; a key that was not played raises `NotPlayedError`."""

    def __init__(self, groups: Groups, outcomes: Mapping[Task, Outcome]) -> None:
        self.groups, self._outcomes = groups, outcomes

    def __getitem__(self, key: Any) -> Runs:
        if key not in self.groups:
            raise NotPlayedError(f"({', '.join(map(str, key))})")
        return Runs([self._outcomes[task] for task in self.groups[key]])

    def __iter__(self) -> Iterator[Any]:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def places(self) -> list[tuple[Any, str]]:
        """The data sets and normalisations, in order."""
        return list(dict.fromkeys((key[0], key[1]) for key in self))

    @property
    def policies(self) -> list[PolicySpec]:
        """The policies, in order."""
        return list(dict.fromkeys(group[0].policy for group in self.groups.values()))

    def scene(self, place: tuple[Any, str]) -> AnyScene:
        """The scene that was played there."""
        return next(group[0].scene for key, group in self.groups.items() if (key[0], key[1]) == place)


Study = Mapping[str, Experiment]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to play: subclasses say in which `experiments`. A field not allowed raises ``ValueError`` naming it."""

    policies: tuple[PolicySpec, ...]
    rounds: int
    runs: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        validate.whole("rounds", self.rounds, least=100, most=LONGEST)
        validate.whole("runs", self.runs, most=MOST_RUNS)
        validate.whole("seed", self.seed, least=0)
        if not self.policies:
            raise ValueError("policies must name at least one, got none")

    @property
    def experiments(self) -> Mapping[str, Groups]:
        """Every experiment by its name."""
        raise NotImplementedError

    @property
    def unjudged(self) -> str:
        """Why no claim is judged, empty where claims are."""
        return ""

    @property
    def timed_rounds(self) -> int:
        """The length of a timed run: a sixteenth, since it is played alone."""
        return max(min(self.rounds, 1000), self.rounds // 16)

    def group(
        self, scene: AnyScene, policy: PolicySpec, rounds: int | None = None, *, runs: int = 0, timed: bool = False
    ) -> Group:
        """All runs of a policy in a scene, or another number of them."""
        length = rounds or self.rounds
        return tuple(Task(scene, policy, length, run, self.seed, timed) for run in range(runs or self.runs))

    def check(self) -> None:
        """Build every policy once, so that an option that is not allowed is refused before the first round."""
        for group in self.experiments["regret"].values():
            scene, policy = group[0].scene, group[0].policy
            arms, _ = scene.draw(group[0].seeds()[0])
            try:
                policy.build(arms, scene.model.parameters(), 0)
            except ValueError as error:
                raise ValueError(f"policies must have options that are allowed, got {str(policy)!r}: {error}") from None

    def tasks(self) -> list[Task]:
        """Every run; timed ones in an order that interleaves the policies, so that a slow minute meets all of them."""
        groups = [group for experiment in self.experiments.values() for group in experiment.values()]
        untimed = [task for group in groups for task in group if not task.timed]
        timed = [task for group in groups for task in group if task.timed]
        return untimed + sorted(timed, key=lambda task: task.run)

    def study(self, outcomes: Mapping[Task, Outcome]) -> dict[str, Experiment]:
        """The experiments with their outcomes."""
        return {name: Experiment(groups, outcomes) for name, groups in self.experiments.items()}
