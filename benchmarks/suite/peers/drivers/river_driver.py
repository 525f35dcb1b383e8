"""river: `LinUCBDisjoint`, a Bayesian linear regression for each arm on a context that all arms share.

It has no place for arm features, so that the context is the constant 1 and each arm learns its own mean.
"""

from protocol import Problem, Variant, main  # type: ignore[import-not-found]
from river.bandit import LinUCBDisjoint  # type: ignore[import-not-found]


class Disjoint:
    """Arms are numbers; the context is a dictionary of features, made once."""

    def __init__(self, problem: Problem) -> None:
        self.arms = list(range(len(problem.arms)))
        self.context = {"constant": 1.0}
        self.policy = LinUCBDisjoint(alpha=1.0, beta=1.0, seed=problem.seed)

    def select(self) -> int:
        """The arm with the largest upper bound."""
        return self.policy.pull(self.arms, context=self.context)

    def update(self, arm: int, reward: float) -> None:
        """A step of the arm's own regression."""
        self.policy.update(arm, self.context, reward)


VARIANTS = [
    Variant(
        "river LinUCBDisjoint",
        "a Bayesian linear regression for each arm, here on the constant context 1: arm features are not used; "
        "mean plus one posterior deviation",
        False,
        Disjoint,
    ),
]

if __name__ == "__main__":
    main("river", VARIANTS)
