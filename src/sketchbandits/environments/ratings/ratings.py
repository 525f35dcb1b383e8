"""A table of ratings: who rated what, how and when; split by time, and turned into rewards."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of items by users; `read_movielens` makes one. Arrays are read-only.

    Attributes
    ----------
    user, item, rating, timestamp
        One entry per rating: who rated what, how and when. ``user`` and ``item`` are positions in ``user_ids`` and
        ``item_ids``.
    user_ids, item_ids
        The ids of the file, as text.
    titles
        One per item.
    scale
        The lowest and the highest rating of the whole file. A `split` keeps it, the ids and the titles, so that a
        position means the same item in both parts.

    """

    user: NDArray[np.int64]
    item: NDArray[np.int64]
    rating: NDArray[np.float64]
    timestamp: NDArray[np.float64]
    user_ids: tuple[str, ...]
    item_ids: tuple[str, ...]
    titles: tuple[str, ...]
    scale: tuple[float, float]

    def __post_init__(self) -> None:
        for array in (self.user, self.item, self.rating, self.timestamp):
            array.setflags(write=False)

    def __len__(self) -> int:
        return len(self.rating)

    def __repr__(self) -> str:
        users, items = len(np.unique(self.user)), len(np.unique(self.item))
        return f"Ratings({len(self):,} ratings, {users:,} users, {items:,} items)"

    def split(self, share: float = 0.8) -> tuple[Self, Self]:
        """The earliest ``share`` of the ratings and the rest, each in order of time; ties stay as in the file."""
        share = validate.probability("share", share)
        cut = round(share * len(self))
        if not 0 < cut < len(self):
            raise ValueError(f"share must leave ratings on both sides, got {share:g} of {len(self)} ratings")
        order = np.argsort(self.timestamp, kind="stable")
        return self._part(order[:cut]), self._part(order[cut:])

    def _part(self, rows: NDArray[np.intp]) -> Self:
        return replace(
            self, user=self.user[rows], item=self.item[rows], rating=self.rating[rows], timestamp=self.timestamp[rows]
        )

    def rated_items(self, least: int = 1) -> NDArray[np.int64]:
        """The items with at least ``least`` ratings here, in ascending order."""
        least = validate.whole("least", least)
        return np.flatnonzero(np.bincount(self.item, minlength=len(self.item_ids)) >= least)

    def rewards(self, items: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Every rating of ``items`` as ``(arms, rewards)``: a position in ``items``, and the rating scaled to [0, 1].

        Formula: ``reward = (rating - lowest) / (highest - lowest)`` of ``scale``.
        """
        places = np.full(len(self.item_ids), -1)
        wanted = self.checked_items(items)
        places[wanted] = np.arange(len(wanted))
        lowest, highest = self.scale
        if not lowest < highest:
            raise ValueError(f"ratings must not all be equal, got only {lowest:g}")
        arms = places[self.item]
        return arms[arms >= 0], (self.rating[arms >= 0] - lowest) / (highest - lowest)

    def checked_items(self, items: ArrayLike) -> NDArray[np.int64]:
        """``items`` as an array, if they are distinct positions of items that have a rating here."""
        given = np.asarray(items)
        allowed = "items must be distinct positions, each of an item with a rating here"
        if given.ndim != 1 or given.size == 0 or given.dtype.kind not in "iu":
            raise ValueError(f"{allowed}, got shape {given.shape} of {given.dtype}")
        if (bad := np.setdiff1d(given, self.rated_items())).size:
            raise ValueError(f"{allowed}, got {bad[0]}, which has none")
        if len(np.unique(given)) < len(given):
            raise ValueError(f"{allowed}, got {len(given) - len(np.unique(given))} repeated")
        return given.astype(np.int64)
