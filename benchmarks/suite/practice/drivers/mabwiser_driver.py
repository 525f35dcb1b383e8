"""MABWiser: a ridge regression per arm on the context (LinUCB, LinTS), or UCB1 without contexts.

It has no place for arm features, and ``alpha`` is the noise, as for the rivals that know it. Where only some arms are
offered, the one with the largest of its expectations is played. Its UCB1 expects 0 of an arm without rewards, so such
arms are played first.
"""

from functools import partial

import numpy as np
from mabwiser.mab import MAB, LearningPolicy  # type: ignore[import-not-found]
from rounds_protocol import Setup, main  # type: ignore[import-not-found]


class Bandit:
    """Arms are numbers."""

    def __init__(self, policy, contextual: bool, setup: Setup) -> None:
        self.bandit = MAB(list(range(len(setup.arms))), policy(setup), seed=setup.seed)
        self.contextual, self.started = contextual, False
        self.new = np.ones(len(setup.arms), bool)

    def select(self, context, offered):
        """The largest expectation; nothing can be predicted before the first reward."""
        new = offered[self.new[offered]]
        if not self.started or (not self.contextual and new.size):
            return new[0]
        expected = self.bandit.predict_expectations(*[context[None]] * self.contextual)
        return max(offered.tolist(), key=expected.__getitem__)

    def update(self, context, arm, reward):
        """The first call fits, the others update."""
        self.bandit.partial_fit([arm], [reward], *[context[None]] * self.contextual)
        self.started, self.new[arm] = True, False


VARIANTS = {
    "LinUCB": partial(Bandit, lambda setup: LearningPolicy.LinUCB(alpha=setup.noise), True),
    "LinTS": partial(Bandit, lambda setup: LearningPolicy.LinTS(alpha=setup.noise), True),
    "UCB1": partial(Bandit, lambda setup: LearningPolicy.UCB1(alpha=setup.noise), False),
}

if __name__ == "__main__":
    main("mabwiser", VARIANTS)
