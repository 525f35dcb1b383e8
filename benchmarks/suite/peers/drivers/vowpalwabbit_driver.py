"""Vowpal Wabbit: contextual bandits with action-dependent features (``--cb_explore_adf``), two explorations.

Text is parsed off the clock: the N arms once. A label cannot be taken off an example again, so the line of the chosen
arm is parsed anew with the round's cost, between choice and update. A user would have to pay for that; here it is free.
"""

import random
from functools import partial

import vowpalwabbit  # type: ignore[import-not-found]
from protocol import Problem, Variant, main  # type: ignore[import-not-found]

# Costs are negative rewards; with arms and parameter of norm 1 and noise cut off at 3 they are at most 4. No constant
# feature: the model is the game's.
OPTIONS = "--cb_explore_adf --noconstant --cb_min_cost=-4 --cb_max_cost=4 --quiet"


class ActionDependentFeatures:
    """Predicts a distribution over the arms, draws from it, and learns from the drawn arm's cost."""

    def __init__(self, exploration: str, problem: Problem) -> None:
        self.workspace = vowpalwabbit.Workspace(f"{OPTIONS} {exploration}")
        self.lines = [_line(arm) for arm in problem.arms.tolist()]
        self.examples = self.workspace.parse(self.lines)
        self.labelled = list(self.examples)  # the same, but for the example of the arm in play
        self.numbers, self.random = range(len(self.lines)), random.Random(problem.seed)
        self.last = 0

    def select(self) -> int:
        """An arm drawn from the predicted distribution."""
        self.distribution = self.workspace.predict(self.examples)
        return self.random.choices(self.numbers, self.distribution)[0]

    def prepare(self, arm: int, reward: float) -> None:
        """Put the cost on the chosen arm's example; take back the one of the round before."""
        if self.labelled[self.last] is not self.examples[self.last]:
            self.workspace.finish_example([self.labelled[self.last]])
            self.labelled[self.last] = self.examples[self.last]
        label = f"0:{-reward:.9g}:{self.distribution[arm]:.9g}"
        self.labelled[arm] = self.workspace.parse([f"{label} {self.lines[arm]}"])[0]
        self.last = arm

    def update(self, arm: int, reward: float) -> None:
        """One step of online gradient descent."""
        self.workspace.learn(self.labelled)


def _line(arm: list[float]) -> str:
    """An arm in the text format: a namespace and numbered features."""
    return "|a " + " ".join(f"{number}:{value:.9g}" for number, value in enumerate(arm))


MODEL = "linear regression on arm features shared by all arms, by adaptive online gradient steps in single precision; "
VARIANTS = [
    Variant("VW SquareCB", f"{MODEL}SquareCB exploration", True, partial(ActionDependentFeatures, "--squarecb")),
    Variant("VW RegCB", f"{MODEL}optimistic RegCB exploration", True, partial(ActionDependentFeatures, "--regcbopt")),
]

if __name__ == "__main__":
    main("vowpalwabbit", VARIANTS)
