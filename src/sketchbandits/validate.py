"""Checks of what a caller passes: every refusal names the argument, what was given and what is allowed."""

import math
import numbers
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


def reward(name: str, value: Any) -> float:
    """A finite number; True counts as 1 and False as 0."""
    return float(value) if isinstance(value, (bool, np.bool_)) else number(name, value)


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


def _floats(name: str, value: Any, shape: str) -> NDArray[Any]:
    """An array of numbers from whatever a caller has: booleans count as 0 and 1, sparse matrices become dense."""
    if hasattr(value, "toarray") and hasattr(value, "nnz"):  # a sparse matrix of SciPy
        value = value.toarray()
    elif hasattr(type(value), "columns"):
        value = _frame_array(name, value, shape)
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} must be {shape}, got a ragged sequence") from None
    if np.ma.is_masked(value):
        raise ValueError(f"{name} must be {shape} without masked entries, got a masked array")
    if array.dtype.kind == "O" and array.size and isinstance(array.flat[0], np.ndarray | list | tuple):
        raise ValueError(f"{name} must be {shape}, got a ragged sequence")
    if array.dtype.kind == "O":
        array = _object_array(name, array, shape)
    if array.dtype.kind not in "iufb":
        raise ValueError(f"{name} must be {shape}, got an array of {array.dtype}")
    return array.astype(np.float64) if array.dtype.kind == "b" else array


def _object_array(name: str, array: NDArray[Any], shape: str) -> NDArray[Any]:
    """Python objects that are all numbers; the first that is none is named with its place and type."""
    for where, entry in np.ndenumerate(array):
        if not isinstance(entry, numbers.Real | np.bool_):
            place = f" at [{', '.join(map(str, where))}]" if where else ""
            raise ValueError(f"{name} must be {shape}, got {entry!r} of type {type(entry).__name__}{place}")
    return array.astype(np.float64)


def _frame_array(name: str, value: Any, shape: str) -> Any:
    """The columns of a data frame (pandas, polars, ...) as one array; a column that is not numeric is named."""
    import narwhals as nw  # loaded only where there is a data frame

    frame = nw.from_native(value, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        raise ValueError(f"{name} must be {shape}, got a {type(value).__name__}: call its collect() first")
    if not isinstance(frame, nw.DataFrame):
        return value
    columns = []
    for column in frame.iter_columns():
        label, dtype = column.name, column.dtype
        if not dtype.is_numeric() and dtype != nw.Boolean:
            raise ValueError(f"{name} must be {shape}, got the column {label!r} of type {dtype}")
        array = column.to_numpy() if not column.null_count() else column.cast(nw.Float64).to_numpy()
        if (bad := ~np.isfinite(array.astype(np.float64))).any():
            found = f"{int(bad.sum())} missing or infinite entries in the column {label!r} of type {dtype}"
            raise ValueError(f"{name} must be finite, got {found}, the first in row {int(bad.argmax())}")
        columns.append(array if array.dtype.kind in "iufb" else array.astype(np.float64))
    return np.stack(columns, axis=1) if columns else np.zeros((len(frame), 0))


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
    """A fresh float64 copy of a non-empty 2-D array of finite vectors, one per row."""
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
