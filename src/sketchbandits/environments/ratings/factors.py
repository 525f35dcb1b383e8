"""Arms from ratings: each item is described by the leading factors of a truncated SVD."""

from typing import Any

import numpy as np
import scipy  # submodules load on first use
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.environments.generators import normalized
from sketchbandits.environments.ratings.ratings import Ratings

START_SEED = 0  # of the vector that the iteration starts from: the same ratings give the same factors


def item_factors(
    ratings: Ratings, dim: int, *, items: ArrayLike | None = None, intercept: bool = True
) -> NDArray[np.float64]:
    """Arms of dimension ``dim``, one per item: items that the same users rated alike get similar arms.

    Formula: ``M`` (users x items) holds ``rating - mean of all ratings``, and 0 where there is none; of its truncated
    SVD ``U diag(s) V^T`` an item's factor is its row of ``V diag(s)``, strongest direction first. Then all arms are
    divided by the largest norm. The same ratings give the same arms: the iteration starts from a fixed vector, and the
    entry of largest magnitude of each factor, over all rated items, is positive.
    Cost: a few products with the sparse ``M`` for each factor.
    Reference: Sarwar, Karypis, Konstan, Riedl, "Application of Dimensionality Reduction in Recommender System", WebKDD
    2000.
    Departures, or choices made here: ratings are centred by one mean for all and not by each item's own, which would
    erase the differences that a bandit must find. The intercept is there because an average item pays far more
    than nothing, which no factor expresses. Items with few ratings have short factors: the unknown is taken as average.

    Parameters
    ----------
    ratings
        What the arms are made from. Pass the training part of a `Ratings.split`; otherwise the arms know the rewards.
    dim
        The length of an arm, at most one less than the number of users or items (with an intercept: that number).
    items
        Positions as in ``ratings.item``, each with at least one rating. Default: every rated item, in ascending order.
    intercept
        Whether the first entry of every arm is a constant, as long as the longest factor; ``dim - 1`` factors follow.

    """
    rated = ratings.rated_items()
    wanted = rated if items is None else ratings.checked_items(items)
    constants = int(validate.flag("intercept", intercept))
    matrix = _centred(ratings, rated)
    most = min(matrix.shape) - 1 + constants
    dim = validate.whole("dim", dim, least=1 + constants, most=most)
    factors = _leading_factors(matrix, dim - constants)[np.searchsorted(rated, wanted)]
    longest = np.linalg.norm(factors, axis=1).max()
    return normalized(np.column_stack([np.full((len(wanted), constants), longest), factors]), "max")


def _centred(ratings: Ratings, rated: NDArray[np.int64]) -> Any:
    """The sparse matrix of users and rated items."""
    users, rows = np.unique(ratings.user, return_inverse=True)
    if min(len(users), len(rated)) < 2:
        raise ValueError(f"ratings must be of at least 2 users and 2 items, got {len(users)} and {len(rated)}")
    centred = ratings.rating - ratings.rating.mean()
    if not centred.any():
        raise ValueError(f"ratings must not all be equal, got only {ratings.rating[0]:g}")
    columns = np.searchsorted(rated, ratings.item)
    return scipy.sparse.csr_array((centred, (rows, columns)), shape=(len(users), len(rated)))


def _leading_factors(matrix: Any, rank: int) -> NDArray[np.float64]:
    """``V diag(s)`` of the truncated SVD, largest singular value first."""
    start = np.random.default_rng(START_SEED).standard_normal(min(matrix.shape))
    _, values, rows = scipy.sparse.linalg.svds(matrix, k=rank, v0=start)
    factors = (values[:, None] * rows)[np.argsort(-values)].T
    largest = factors[np.abs(factors).argmax(axis=0), np.arange(rank)]
    return np.asarray(factors * np.where(largest < 0.0, -1.0, 1.0))
