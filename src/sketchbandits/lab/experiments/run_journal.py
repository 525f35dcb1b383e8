"""Finished runs on the disk: what was played once is not played again."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from sketchbandits import validate
from sketchbandits.lab.experiments.tasks import Outcome, Task
from sketchbandits.lab.journal import Journal


class RunJournal:
    """The outcomes of finished tasks; an entry that is not a whole outcome is skipped, and its task played again."""

    def __init__(self, path: Path) -> None:
        self.path, self.entries = path, Journal(path)

    def read(self, tasks: Iterable[Task]) -> dict[Task, Outcome]:
        """The outcomes of those tasks that are finished."""
        wanted = {task.key: task for task in tasks}
        found: dict[Task, Outcome] = {}
        for entry in self.entries:
            task, outcome = wanted.get(entry["key"]), _outcome(entry)
            if task is not None and outcome is not None and outcome.rounds == task.rounds:
                found[task] = outcome
        return found

    def append(self, task: Task, outcome: Outcome) -> None:
        """Put a finished task on the disk."""
        self.entries.append(
            {
                "key": task.key,
                "scene": task.scene.name,
                "policy": str(task.policy),
                "run": task.run,
                "timed": task.timed,
                "seconds": outcome.seconds,
                "warmup_seconds": outcome.warmup_seconds,
                "facts": outcome.facts,
                "checkpoints": outcome.checkpoints.tolist(),
                "regret": outcome.regret.tolist(),
            }
        )


def _outcome(entry: dict[str, Any]) -> Outcome | None:
    """The outcome in an entry, or none where anything in it is not what `RunJournal.append` writes."""
    try:
        points, regret = np.array(entry["checkpoints"], dtype=np.int64), np.array(entry["regret"], dtype=np.float64)
        times = [validate.number(name, entry[name], least=0.0) for name in ("seconds", "warmup_seconds")]
        facts = dict(entry["facts"])
        for name, value in facts.items():
            validate.number(name, value)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return None
    curve = points.ndim == 1 and points.size > 0 and points.shape == regret.shape and bool(np.isfinite(regret).all())
    return Outcome(points, regret, times[0], times[1], facts) if curve else None
