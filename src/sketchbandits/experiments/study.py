"""A set of runs with names: what was played, arranged for tables, figures and verdicts."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from sketchbandits.experiments.runs import Outcome, Task
from sketchbandits.linalg import Floats, Ints

Group = tuple[Task, ...]  # the runs of one policy in one scene, in order


class NotPlayedError(LookupError):
    """A claim or figure asks for runs that were not part of the experiment."""


@dataclass(frozen=True)
class Runs:
    """The runs of one policy in one scene; arrays have one row a run."""

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
        """Play time a round."""
        return np.array([1e6 * outcome.seconds / outcome.rounds for outcome in self.outcomes])

    @property
    def warmup_seconds(self) -> Floats:
        """Time before the first round."""
        return np.array([outcome.warmup_seconds for outcome in self.outcomes])

    def fact(self, name: str) -> Floats:
        """Something counted in every run, see `sketchbandits.experiments.runs.Task`."""
        return np.array([outcome.facts[name] for outcome in self.outcomes])


class Experiment(Mapping[Any, Runs]):
    """Groups by key, looked up in the outcomes; a key that was not played raises `NotPlayedError`."""

    def __init__(self, groups: Mapping[Hashable, Group], outcomes: Mapping[Task, Outcome]) -> None:
        self.groups, self._outcomes = groups, outcomes

    def __getitem__(self, key: Any) -> Runs:
        if key not in self.groups:
            raise NotPlayedError(", ".join(map(str, key)))
        return Runs([self._outcomes[task] for task in self.groups[key]])

    def __iter__(self) -> Any:
        return iter(self.groups)

    def __len__(self) -> int:
        return len(self.groups)
