"""Checks of what a caller hands in: every refusal names the argument, what was given and what is allowed."""

import math
import operator
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Squares and inverses of what passes these limits stay far from overflow and underflow in float64.
LARGEST = 1e100
SMALLEST = 1e-100


def number(name: str, value: Any, *, least: float = -LARGEST, above: float | None = None) -> float:
    """A finite real number with ``least <= value`` (or ``above < value``)."""
    low = f"> {above:g}" if above is not None else f">= {least:g}"
    allowed = f"a number {low} and <= {LARGEST:g}"
    if isinstance(value, (bool, np.bool_, str, bytes)) or value is None:
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be {allowed}, got {value!r}") from None
    too_low = result <= above if above is not None else result < least
    if not math.isfinite(result) or too_low or result > LARGEST:
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return result


def positive(name: str, value: Any) -> float:
    """A finite number above zero whose square and inverse are representable."""
    result = number(name, value, above=0.0)
    if result < SMALLEST:
        raise ValueError(f"{name} must be a number >= {SMALLEST:g} and <= {LARGEST:g}, got {value!r}")
    return result


def probability(name: str, value: Any) -> float:
    """A number strictly between 0 and 1."""
    try:
        result = number(name, value, above=0.0)
    except ValueError:
        raise ValueError(f"{name} must be a number strictly between 0 and 1, got {value!r}") from None
    if result >= 1.0:
        raise ValueError(f"{name} must be a number strictly between 0 and 1, got {value!r}")
    return result


def whole(name: str, value: Any, *, least: int = 1, most: int | None = None) -> int:
    """A whole number in ``[least, most]``; booleans and floats are refused."""
    allowed = f"a whole number >= {least}" if most is None else f"a whole number from {least} to {most}"
    if isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    try:
        result = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} must be {allowed}, got {value!r}") from None
    if result < least or (most is not None and result > most):
        raise ValueError(f"{name} must be {allowed}, got {value!r}")
    return result


def option(name: str, value: Any, allowed: Collection[str]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that merely counts as one of them."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise ValueError(f"{name} must be True or False, got {value!r}")


def _floats(name: str, value: ArrayLike, shape: str) -> NDArray[np.floating[Any]]:
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be {shape}, got a ragged sequence") from None
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must be {shape} without masked entries, got a masked array")
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be {shape}, got an array of {array.dtype}")
    return array


def entries(name: str, array: NDArray[Any], first: int = 0) -> None:
    """Refuse NaN, infinite, and vectors whose squared norm would overflow or vanish; ``array`` starts at row first."""
    if not np.isfinite(array).all():
        bad = np.argwhere(~np.isfinite(array))[0]
        where = ", ".join(map(str, [first + bad[0], *bad[1:]]))
        raise ValueError(f"{name} must be finite, got {array[tuple(bad)]} at [{where}]")
    largest = np.abs(array).max(axis=-1) if array.size else np.zeros(0)
    if np.any(largest > LARGEST) or np.any((largest > 0) & (largest < SMALLEST)):
        raise ValueError(
            f"{name} must be vectors that are zero or whose largest entry is between {SMALLEST:g} and {LARGEST:g} "
            f"in absolute value, got one with {largest[(largest > LARGEST) | (largest < SMALLEST)].max():g}"
        )


def vectors(name: str, value: ArrayLike, *, columns: int | None = None) -> NDArray[Any]:
    """A non-empty 2-D array of numbers, as it is: no copy, and its entries are still to be checked by `entries`."""
    shape = "a non-empty 2-D array of numbers" + (f" with {columns} columns" if columns is not None else "")
    array = _floats(name, value, shape)
    if array.ndim != 2 or 0 in array.shape or (columns is not None and array.shape[1] != columns):
        raise ValueError(f"{name} must be {shape}, got shape {array.shape}")
    return array


def matrix(name: str, value: ArrayLike, *, columns: int | None = None) -> NDArray[np.float64]:
    """A fresh float64 copy of a non-empty 2-D array of finite vectors, one a row."""
    result = np.array(vectors(name, value, columns=columns), dtype=np.float64, order="C")
    entries(name, result)
    return result


def vector(name: str, value: ArrayLike, *, size: int | None = None) -> NDArray[np.float64]:
    """A fresh float64 copy of a 1-D array of finite numbers."""
    shape = "a 1-D array of numbers" + (f" of length {size}" if size is not None else "")
    array = _floats(name, value, shape)
    if array.ndim != 1 or array.size == 0 or (size is not None and array.size != size):
        raise ValueError(f"{name} must be {shape}, got shape {array.shape}")
    result = np.array(array, dtype=np.float64)
    entries(name, result)
    return result


def generator(seed: Any) -> np.random.Generator:
    """A NumPy generator from a seed: a whole number, a ``SeedSequence``, a ``Generator`` or ``None``."""
    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        allowed = "a whole number >= 0, a SeedSequence, a Generator or None"
        raise ValueError(f"seed must be {allowed}, got {seed!r}") from None
