"""MABWiser: a ridge regression for each arm on a context that all arms share.

It has no place for arm features, so that the context is the constant 1 and each arm learns its own mean.
"""

from functools import partial
from typing import Any

import numpy as np
from mabwiser.mab import MAB, LearningPolicy  # type: ignore[import-not-found]
from protocol import Problem, Variant, main  # type: ignore[import-not-found]


class Disjoint:
    """Arms are numbers; the context is an array, made once."""

    def __init__(self, policy: Any, problem: Problem) -> None:
        self.context = np.ones((1, 1))
        self.bandit = MAB(list(range(len(problem.arms))), policy, seed=problem.seed)
        self.started = False

    def select(self) -> int:
        """The predicted arm; arm 0 in the first round, for nothing can be predicted before the first reward."""
        return self.bandit.predict(self.context) if self.started else 0

    def update(self, arm: int, reward: float) -> None:
        """The first call fits, the others update."""
        self.bandit.partial_fit([arm], [reward], self.context)
        self.started = True


MODEL = "a ridge regression for each arm, here on the constant context 1: arm features are not used; "
VARIANTS = [
    Variant(
        "MABWiser LinUCB",
        f"{MODEL}upper confidence bounds with alpha = 1",
        False,
        partial(Disjoint, LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0)),
    ),
    Variant(
        "MABWiser LinTS",
        f"{MODEL}Thompson sampling with alpha = 1",
        False,
        partial(Disjoint, LearningPolicy.LinTS(alpha=1.0, l2_lambda=1.0)),
    ),
]

if __name__ == "__main__":
    main("mabwiser", VARIANTS)
