"""coba: its LinUCB learner on action features, as its documentation gives features to actions."""

from coba.learners import LinUCBLearner  # type: ignore[import-not-found]
from protocol import Problem, Variant, main  # type: ignore[import-not-found]


class LinUCB:
    """No context; actions are tuples of numbers, made once."""

    def __init__(self, problem: Problem) -> None:
        self.actions = [tuple(arm) for arm in problem.arms.tolist()]
        # `predict` hands back one of these very objects: looking its number up by identity costs nothing.
        self.numbers = {id(action): number for number, action in enumerate(self.actions)}
        # "a": the action's own features, without the intercept that coba adds by default.
        self.learner = LinUCBLearner(alpha=1, features=["a"], seed=problem.seed)

    def select(self) -> int:
        """The action with the largest upper confidence bound."""
        self.action, self.probability = self.learner.predict(None, self.actions)
        return self.numbers[id(self.action)]

    def update(self, arm: int, reward: float) -> None:
        """A Sherman-Morrison step."""
        self.learner.learn(None, self.action, reward, self.probability)


VARIANTS = [
    Variant(
        "coba LinUCB",
        "ridge regression on arm features shared by all arms; upper confidence bounds with alpha = 1",
        True,
        LinUCB,
    ),
]

if __name__ == "__main__":
    main("coba", VARIANTS)
