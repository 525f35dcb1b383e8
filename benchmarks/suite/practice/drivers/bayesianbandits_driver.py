"""bayesianbandits: one Bayesian linear regression on ``context x arm``, shared by all arms, and Thompson sampling.

This is how its documentation gives features to arms: `LipschitzContextualAgent` with an arm featurizer. ``TS`` knows
the noise (`NormalRegressor`, prior precision 1); ``empirical Bayes`` learns noise and prior
(`EmpiricalBayesNormalRegressor` with its defaults). Where only some arms are offered, the best of them in the same draw
is played.
"""

from functools import partial

import numpy as np
from bayesianbandits import (  # type: ignore[import-not-found]
    Arm,
    EmpiricalBayesNormalRegressor,
    FunctionArmFeaturizer,
    LipschitzContextualAgent,
    NormalRegressor,
    ThompsonSampling,
)
from rounds_protocol import Setup, main  # type: ignore[import-not-found]


class Agent:
    """The agent for arms with features."""

    def __init__(self, learner, setup: Setup) -> None:
        columns = np.ascontiguousarray(setup.arms.T)
        self.n_arms = len(setup.arms)

        def features(context, tokens):  # (contexts, features, arms), as the featurizer wants it
            chosen = columns if len(tokens) == self.n_arms else columns[:, tokens]
            return np.einsum("tp,qn->tpqn", context, chosen).reshape(len(context), -1, len(tokens))

        self.agent = LipschitzContextualAgent(
            arms=[Arm(number, learner=None) for number in range(self.n_arms)],
            policy=ThompsonSampling(),
            arm_featurizer=FunctionArmFeaturizer(features),
            learner=learner(setup),
            random_seed=setup.seed,
        )

    def select(self, context, offered):
        """The best offered arm in one draw."""
        if offered.size == self.n_arms:
            return self.agent.pull(context[None])[0]
        allowed = set(offered.tolist())
        return next(arm for arm in self.agent.pull(context[None], top_k=self.n_arms)[0] if arm in allowed)

    def update(self, context, arm, reward):
        """A conjugate step."""
        self.agent.select_for_update(arm).update(context[None], np.array([reward]))


def told(setup: Setup):
    """The precisions of the prior, its documentation's, and of the noise."""
    return NormalRegressor(alpha=1.0, beta=1.0 / setup.noise**2)


def untold(setup: Setup):
    """Its defaults."""
    return EmpiricalBayesNormalRegressor()


if __name__ == "__main__":
    main("bayesianbandits", {"TS": partial(Agent, told), "empirical Bayes": partial(Agent, untold)})
