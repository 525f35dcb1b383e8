"""Advice on a made-up clock, so that it is the same every time."""

import numpy as np

from sketchbandits import advise

CALL, OPERATION = 2.5, 1e-3  # microseconds of the made-up clock
RNG = np.random.default_rng(7)
GENERAL = RNG.normal(size=(23, 6)) / 3


def made_up(policy, means, noise):
    """A clock that is the same every time: the calls, then arms and features, and the budget of operations."""
    budget = policy.settings.get("budget", 0)
    if budget == "auto":
        budget = float(policy.state.space["budget"][0])
    return CALL + OPERATION * (
        budget + policy.n_arms * policy.dim * (2 if type(policy).__name__ == "LinTS" else 1) / 10
    )


def ask(arms, **options):
    return advise(arms, **{"rounds": 5_000, "progress": False, **options})


def finalist(advice, policy):
    return next(found for found in advice.finalists if found.name == policy)
