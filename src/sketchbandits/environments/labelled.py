"""Labelled data as a contextual bandit: find the instance of the target class."""

import reprlib
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.environments.generators import unit_rows
from sketchbandits.environments.noise import checked_generator, checked_size


class LabelledEnvironment:
    """Each round offers one random instance of every class; only the target class pays.

    Formula: ``reward = 1`` for the instance of class ``target``, else 0, without noise.
    Cost: ``O(k d)`` per round for ``k`` classes; the features are copied once.
    Reference: Kuzborskij, Cella, Cesa-Bianchi, "Efficient Linear Bandits through Matrix Sketching", AISTATS 2019,
    experiments.
    Departures, or choices made here: instances are drawn with replacement, uniformly within their class; the round's
    arms are shuffled, so that position tells nothing. The reward is in general not linear in the features, so that
    the policies' confidence bounds carry no guarantee here.

    Parameters
    ----------
    features
        One instance per row.
    labels
        The class of every instance: numbers or text, at least two distinct ones.
    target
        The class that pays. Default: the first in sorted order.
    normalize
        Whether every instance is scaled to unit norm (a zero instance stays zero), so that the policies' default
        ``arm_norm=1`` holds. Default: True.

    Attributes
    ----------
    classes
        The distinct labels, sorted.
    target, n_arms, dim
        The class that pays, the number of classes, the number of features.

    """

    contextual: Final = True

    def __init__(self, features: ArrayLike, labels: ArrayLike, *, target: Any = None, normalize: bool = True) -> None:
        rows = validate.matrix("features", features)
        rows = unit_rows(rows) if validate.flag("normalize", normalize) else rows
        self.classes, members = _classes(labels, len(rows))
        self.n_arms, self.dim = len(self.classes), rows.shape[1]
        self._target_class = 0 if target is None else _position(target, self.classes)
        self.target = self.classes[self._target_class]
        # One block of rows per class, so that drawing an instance is drawing an offset into its block.
        self._rows = rows[np.argsort(members, kind="stable")]
        self._counts = np.bincount(members)
        self._starts = np.cumsum(self._counts) - self._counts

    def contexts(self, generator: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """One round: the arms ``(n_arms, dim)`` and the expected reward, 0 or 1, of each."""
        order = checked_generator(generator).permutation(self.n_arms)
        drawn = self._starts + generator.integers(self._counts)
        return self._rows[drawn[order]], (order == self._target_class).astype(np.float64)

    def draw_noise(self, generator: np.random.Generator, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Zeros: a label leaves nothing to chance. The generator is not advanced."""
        checked_generator(generator)
        return np.zeros(checked_size(size))


def _classes(labels: ArrayLike, n_rows: int) -> tuple[tuple[Any, ...], NDArray[np.intp]]:
    """The distinct labels in sorted order, and for each row the position of its own."""
    allowed = f"a 1-D array of {n_rows} labels, one for each row of features, with at least 2 distinct values"
    try:
        array = np.asarray(labels)
        classes, members = np.unique(array, return_inverse=True)
    except (TypeError, ValueError):
        raise ValueError(f"labels must be {allowed}, got values that cannot be sorted") from None
    if array.shape != (n_rows,):
        raise ValueError(f"labels must be {allowed}, got shape {array.shape}")
    if np.not_equal(classes, classes).any():  # isnan takes no strings
        raise ValueError(f"labels must be {allowed}, none of them NaN, got NaN")
    if len(classes) < 2:
        raise ValueError(f"labels must be {allowed}, got only {classes[0]!r}")
    return tuple(classes.tolist()), members


def _position(target: Any, classes: tuple[Any, ...]) -> int:
    try:
        return classes.index(target)
    except ValueError:  # also what comparing with an array raises
        raise ValueError(f"target must be one of the labels {reprlib.repr(classes)}, got {target!r}") from None
