"""bayesianbandits: one `NormalRegressor` shared by all arms through an arm featurizer, under two of its policies."""

from functools import partial
from typing import Any

import numpy as np
from bayesianbandits import (  # type: ignore[import-not-found]
    Arm,
    FunctionArmFeaturizer,
    LipschitzContextualAgent,
    NormalRegressor,
    ThompsonSampling,
    UpperConfidenceBound,
)
from protocol import Floats, Problem, Variant, main  # type: ignore[import-not-found]


class Agent:
    """The agent for arms with features; the context is empty but for its one row."""

    def __init__(self, policy: Any, problem: Problem) -> None:
        # (contexts, features, arms), as the featurizer wants it; laid out so that its transposition copies nothing.
        cube = np.ascontiguousarray(problem.arms).T[None]
        everything = len(problem.arms)

        def features(context: Floats, tokens: list[int]) -> Floats:
            return cube if len(tokens) == everything else cube[:, :, tokens]

        self.context = np.ones((1, 1))
        self.agent = LipschitzContextualAgent(
            arms=[Arm(number, learner=None) for number in range(everything)],
            policy=policy(),
            arm_featurizer=FunctionArmFeaturizer(features),
            learner=NormalRegressor(alpha=1.0, beta=1.0),  # the precision of the prior, and of the noise
            random_seed=problem.seed,
        )

    def select(self) -> int:
        """The arm that the policy pulls; the agent remembers it for the update."""
        return self.agent.pull(self.context)[0]

    def update(self, arm: int, reward: float) -> None:
        """An exact conjugate step, with a fresh Cholesky factor."""
        self.agent.update(self.context, np.array([reward]))


MODEL = "Bayesian ridge regression on arm features shared by all arms; "
VARIANTS = [
    Variant(
        "bayesianbandits UCB",
        f"{MODEL}the 0.68 quantile of 1,000 posterior draws an arm, its defaults",
        True,
        partial(Agent, UpperConfidenceBound),
    ),
    Variant("bayesianbandits TS", f"{MODEL}Thompson sampling", True, partial(Agent, ThompsonSampling)),
]

if __name__ == "__main__":
    main("bayesianbandits", VARIANTS)
