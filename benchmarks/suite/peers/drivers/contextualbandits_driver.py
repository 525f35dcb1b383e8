"""contextualbandits: a ridge regression for each arm on a context that all arms share.

Its online policies have no place for arm features, so that the context is the constant 1 and each arm learns its own
mean. It documents rewards of 0 and 1; its linear regressions take any number, and get the game's.
"""

from functools import partial
from typing import Any

import numpy as np
from contextualbandits.online import LinTS, LinUCB  # type: ignore[import-not-found]
from protocol import Problem, Variant, main  # type: ignore[import-not-found]


class Disjoint:
    """Arms are numbers; the context is an array, made once. The constant context takes the intercept's place."""

    def __init__(self, policy: Any, problem: Problem) -> None:
        self.context = np.ones((1, 1))
        seed = problem.seed + 1  # it refuses 0
        self.bandit = policy(nchoices=len(problem.arms), fit_intercept=False, random_state=seed)

    def select(self) -> int:
        """The predicted arm; one at random before the first reward."""
        return self.bandit.predict(self.context)[0]

    def update(self, arm: int, reward: float) -> None:
        """A Sherman-Morrison step, its default."""
        self.bandit.partial_fit(self.context, np.array([arm]), np.array([reward]))


MODEL = "a ridge regression for each arm, here on the constant context 1: arm features are not used; "
VARIANTS = [
    Variant(
        "contextualbandits LinUCB", f"{MODEL}upper confidence bounds with alpha = 1", False, partial(Disjoint, LinUCB)
    ),
    Variant("contextualbandits LinTS", f"{MODEL}Thompson sampling", False, partial(Disjoint, LinTS)),
]

if __name__ == "__main__":
    main("contextualbandits", VARIANTS)
