"""Ratings of items by users as a bandit: read them, split them by time, turn items into arms and ratings into rewards.

The reader, the table and the factors are part of the library, not of the example that uses them, so that they are
installed with it and work on a user's own ratings.
"""

from sketchbandits.environments.ratings.factors import item_factors
from sketchbandits.environments.ratings.movielens import read_movielens
from sketchbandits.environments.ratings.ratings import Ratings
from sketchbandits.environments.ratings.viewers import ViewersEnvironment

__all__ = ["Ratings", "ViewersEnvironment", "item_factors", "read_movielens"]
