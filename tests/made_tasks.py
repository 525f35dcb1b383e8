"""Tiny tasks and made-up outcomes of them."""

import numpy as np
from conftest import rounds

from sketchbandits.lab.experiments.scenes import Model, Scene
from sketchbandits.lab.experiments.tasks import Outcome, Task
from sketchbandits.policies.registry import PolicySpec

N, D, L = 13, 6, 4
T = rounds(2_500, 130)
MODEL = Model(L, noise=0.5)
SCENE = Scene("tiny", MODEL, "correlated", (("n_arms", N), ("dim", D), ("group_size", 2)))
TASK = Task(SCENE, PolicySpec("cslb"), T, 2, 7)


def equal(one, two):
    """Whether two outcomes are bit-for-bit identical."""
    return (
        np.array_equal(one.checkpoints, two.checkpoints)
        and one.regret.tobytes() == two.regret.tobytes()
        and (one.checkpoints.dtype, one.regret.dtype) == (two.checkpoints.dtype, two.regret.dtype) == (np.int64, float)
        and (one.seconds, one.warmup_seconds, one.facts) == (two.seconds, two.warmup_seconds, two.facts)
    )


def made_up(task, *, regret=(0.1, 1 / 3, 12345.678901234567), **fields):
    """An outcome that nobody played, awkward in its last bits."""
    points = np.array([1, task.rounds // 2, task.rounds])
    facts = {"largest_gap": 0.1 + 0.2, "clusters": 4}
    return Outcome(points, np.array(regret), **{"seconds": 1 / 7, "warmup_seconds": 2e-7, "facts": facts, **fields})
