"""Ratings as decisions for users: each round offers a user some of the items that they have rated."""

from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.environments.noise import checked_generator
from sketchbandits.environments.protocol import Rounds
from sketchbandits.environments.ratings.ratings import Ratings


class ViewersEnvironment:
    """Users and items with real ratings: the reward of an item is the user's own rating of it, scaled to [0, 1].

    Formula: each round draws a user uniformly and, without repeats, ``offered`` of the items that this user has rated
    (all of them where there are fewer); ``reward = (rating - lowest) / (highest - lowest)``, without noise.
    Cost: ``O(N)`` per round for N items; a table of users times items.
    Reference: Harper, Konstan, "The MovieLens Datasets: History and Context", ACM TiiS 5(4), 2015, for the data.
    Departures, or choices made here: people choose what they rate, so nothing is said of the items they did not.

    Parameters
    ----------
    ratings
        Who rated what, as `read_movielens` gives it.
    items
        Positions of the items that are the arms.
    contexts
        One row per user of ``ratings.user_ids``: what is known of them.
    offered
        How many items a round offers at most (default 20).
    least
        Users with fewer ratings of ``items`` never ask (default 5).

    Attributes
    ----------
    n_arms, context_dim
        How many items, and the length of a user's context.
    users
        Positions of the users who may ask.

    """

    contextual: Final = False

    def __init__(
        self, ratings: Ratings, items: ArrayLike, contexts: ArrayLike, *, offered: int = 20, least: int = 5
    ) -> None:
        wanted = ratings.checked_items(items)
        known = validate.matrix("contexts", contexts)
        if len(known) != len(ratings.user_ids):
            raise ValueError(f"contexts must have one row per user, {len(ratings.user_ids)}, got {len(known)} rows")
        self.n_arms, self.context_dim = wanted.size, known.shape[1]
        self._offered = validate.whole("offered", offered)
        table = np.full((len(ratings.user_ids), wanted.size), np.nan)
        rows = np.isin(ratings.item, wanted)
        arms, rewards = ratings.rewards(wanted)
        table[ratings.user[rows], arms] = rewards
        self.users = np.flatnonzero((~np.isnan(table)).sum(axis=1) >= validate.whole("least", least))
        if not self.users.size:
            raise ValueError(f"least must leave at least one user, got {least}")
        self._contexts, self._rewards = known[self.users], table[self.users]

    def rounds(self, generator: np.random.Generator, first: int, size: int) -> Rounds:
        """The rounds ``first`` to ``first + size - 1``; drawing them in chunks gives the same rounds."""
        uniforms = checked_generator(generator).random((size, 1 + self.n_arms))
        user = (uniforms[:, 0] * self.users.size).astype(np.int64)
        rewards = self._rewards[user]
        rated = ~np.isnan(rewards)
        keys = np.where(rated, uniforms[:, 1:], np.inf)
        places = keys.argsort(axis=1).argsort(axis=1)
        available: NDArray[np.bool_] = rated & (places < self._offered)
        known: NDArray[Any] = np.where(rated, rewards, 0.0)
        return Rounds(self._contexts[user], known, known, available)
