"""Vowpal Wabbit: contextual bandits with action-dependent features, ``--cb_explore_adf -q ua --squarecb``.

The user is namespace u, an action is namespace a, ``-q ua`` adds the products of both. Everything else is its default,
apart from the range of costs, which its SquareCB needs to know. Arms are parsed once and the user's example is changed
in place; the line of the chosen arm, which gets the label, is parsed between choice and update, off the clock.
It chooses what it chooses where the text of all arms is parsed in every round.
"""

import random

import vowpalwabbit  # type: ignore[import-not-found]
from rounds_protocol import Setup, main  # type: ignore[import-not-found]

OPTIONS = "--cb_explore_adf -q ua --squarecb --quiet"


class SquareCB:
    """Predicts a distribution over the offered arms, draws from it, and learns from the cost of the drawn arm."""

    def __init__(self, setup: Setup) -> None:
        costs = f"--cb_min_cost={-setup.highest:g} --cb_max_cost={-setup.lowest:g}"
        self.workspace = vowpalwabbit.Workspace(f"{OPTIONS} {costs} --random_seed {setup.seed}")
        self.lines = [_line("a", arm) for arm in setup.arms.tolist()]
        self.arms = self.workspace.parse(self.lines)
        self.shared = self.workspace.parse(["shared |u"])[0]
        self.user, self.random = None, random.Random(setup.seed)

    def select(self, context, offered):
        """An arm drawn from the predicted distribution."""
        self._show(context)
        self.offered = offered.tolist()
        self.distribution = self.workspace.predict([self.shared, *(self.arms[arm] for arm in self.offered)])
        self.place = self.random.choices(range(len(self.offered)), self.distribution)[0]
        return self.offered[self.place]

    def _show(self, context):
        """The user's features, where they are not those of the round before."""
        if self.user is not None and (context == self.user).all():
            return
        self.shared.unsetup_example()
        if self.user is not None:
            self.shared.erase_namespace(ord("u"))
        self.user = context.copy()
        self.shared.push_features("u", [(str(number), value) for number, value in enumerate(context.tolist())])
        self.shared.setup_example()

    def prepare(self, arm, reward):
        """The chosen arm's example with its cost."""
        label = f"0:{-reward:.9g}:{self.distribution[self.place]:.9g}"
        self.labelled = self.workspace.parse([f"{label} {self.lines[arm]}"])[0]

    def update(self, context, arm, reward):
        """One step of online gradient descent."""
        examples = [self.arms[other] for other in self.offered]
        examples[self.place] = self.labelled
        self.workspace.learn([self.shared, *examples])
        self.workspace.finish_example([self.labelled])


def _line(namespace, values):
    """Numbers in the text format, numbered; zeros are left out."""
    return f"|{namespace} " + " ".join(f"{number}:{value:.9g}" for number, value in enumerate(values) if value != 0.0)


if __name__ == "__main__":
    main("vowpalwabbit", {"SquareCB": SquareCB})
