"""Arms as they stand in a file: an array, or the columns of a table that hold numbers."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchbandits import validate
from sketchbandits.arms_file.encoded import SchemaFile, encoded
from sketchbandits.arms_file.tables import (
    CONTENTS,
    ROWS,
    check_id_column,
    damaged,
    ids_of,
    listed,
    numbers_of,
    opened,
)
from sketchbandits.kernels.linalg import Floats

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class ArmFile:
    """Arms of shape (N, d), read-only, with a name for every row and every column.

    ``arms`` is float64, or float32 where a ``.npy`` file was: the tolerance of a partition depends on it.
    """

    arms: Floats
    ids: tuple[str, ...]
    features: tuple[str, ...]


def read_arms(
    path: str | Path, *, id_column: str | None = None, features: Sequence[str] | SchemaFile | None = None
) -> ArmFile:
    """Read arms, taking the columns ``features`` in the order given, or every column but ``id_column``.

    A ``.csv`` file is separated by commas, semicolons or tabs; it has no header if its first row holds only numbers.
    Booleans count as 1 and 0, in a ``.csv`` file a column of nothing but true and false. With a schema as ``features``
    columns of any type are encoded, and its own column of ids is used unless there is an ``id_column``.
    Columns without a name are called ``"0"``, ``"1"``, ..., and so are rows without an id.
    """
    path, ids, names = Path(path), None, None
    if (suffix := path.suffix.lower()) not in CONTENTS:
        raise ValueError(f"arms must be a file that ends in .npy, .csv or .parquet, got {str(path)!r}")
    if suffix == ".npy":
        values = _array(path, id_column, features)
    elif isinstance(features, SchemaFile):
        values, ids, names = encoded(path, features, id_column)
    else:
        values, ids, names = _table(path, id_column, features)
    arms: NDArray[Any] = validate.matrix("arms", values)
    if values.dtype.kind == "f" and values.dtype.itemsize == 4:
        arms = arms.astype(np.float32)
    arms.flags.writeable = False
    return ArmFile(arms, ids or _count(len(arms)), names or _count(arms.shape[1]))


def _array(path: Path, id_column: Any, features: Any) -> NDArray[Any]:
    for name, value in (("id_column", id_column), ("features", features)):
        if value is not None:
            found = value.path if isinstance(value, SchemaFile) else value
            raise ValueError(f"{name} must be left out for a .npy file, which has no column names, got {found!r}")
    values = read_npy(path)
    if values is None:
        raise damaged(path)
    if values.ndim == 2 and values.dtype.kind == "f":
        _check_finite(values, _count(values.shape[1]), f"{ROWS}, columns from 0")
    return values


def read_npy(path: Path) -> NDArray[Any] | None:
    """The array of a ``.npy`` file, mapped and not yet read; none where it is not one. Never a pickle."""
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":  # such as an .npz archive under another name, or a pickle
            return None
    try:
        return cast(NDArray[Any], np.load(path, mmap_mode="r", allow_pickle=False))
    except OSError:
        raise
    except Exception:  # a damaged head fails anywhere from the tokenizer to the shape
        return None


def _table(path: Path, id_column: str | None, features: Sequence[str] | None) -> tuple[Any, Any, Any]:
    """Values, ids if there are any, and the names of the columns."""
    import polars  # only for tables: loading it takes a tenth of a second

    with opened(path) as table:
        names = _chosen(table.frame.collect_schema().names(), id_column, features)
        wanted = names if id_column is None else (*names, id_column)
        frame = table.frame.select(polars.selectors.by_name(*wanted)).collect()
    offer = f"; sketchbandits features {shlex.quote(str(path))} --out schema.json writes a schema that encodes it"
    ids = None if id_column is None else ids_of(table.cells(frame, id_column), table.note)
    columns = [
        _numbers(table.cells(frame, name), table.note, offer, text=table.text, chosen=features is not None)
        for name in names
    ]
    values = polars.DataFrame(columns).to_numpy() if columns else np.empty((frame.height, 0))
    _check_finite(values, names, table.note, offer)
    return values, ids, names


def _chosen(present: Sequence[str], id_column: str | None, features: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the feature columns."""
    allowed = f"the columns {listed(map(repr, present))}"
    check_id_column(id_column, present)
    if features is None:
        return tuple(name for name in present if name != id_column)
    if isinstance(features, str) or not len(features):
        raise ValueError(f"features must be a list of one or more of {allowed}, got {features!r}")
    for name, times in Counter(features).items():
        if name not in present:
            raise ValueError(f"features must be among {allowed}, got {name!r}")
        if times > 1:
            raise ValueError(f"features must be distinct ones of {allowed}, got {name!r} {times} times")
    if id_column in features:
        raise ValueError(f"features must be other columns than id_column, got {id_column!r} for both")
    return tuple(features)


def _numbers(column: "polars.Series", note: str, offer: str, *, text: bool, chosen: bool) -> "polars.Series":
    """One column in float64, booleans as 0 and 1; text, other types and missing values are refused."""
    who, advice = ("features", "") if chosen else ("arms", ": name that column with id_column or choose features")
    kind = "" if text else f" of type {column.dtype}"
    if not (text or column.dtype.is_numeric() or str(column.dtype) in ("Boolean", "Null")):
        rule = "columns of numbers or booleans"
        raise ValueError(f"{who} must be {rule}, got column {column.name!r}{kind}{advice}{offer}")
    numbers = numbers_of(column) if text else column.cast(float, strict=False)
    odd = (numbers.is_null() & column.is_not_null()).arg_true()
    if len(odd):
        found = f"{column[odd[0]][:40]!r} in column {column.name!r}, row {odd[0] + 1} ({note})"
        raise ValueError(f"{who} must be columns of numbers, got {found}{advice}{offer}")
    if numbers.has_nulls():
        place = f"column {column.name!r}{kind}, row {numbers.is_null().arg_true()[0] + 1} ({note})"
        raise ValueError(f"arms must be finite numbers, got no value in {place}{offer}")
    return numbers


def _check_finite(values: NDArray[Any], names: Sequence[str], note: str, offer: str = "") -> None:
    """``offer``: what a user may do about a value that is not a number."""
    finite = np.isfinite(values)
    if not finite.all():
        row, column = map(int, np.unravel_index(np.argmin(finite), finite.shape))
        found = f"{values[row, column]} in column {names[column]!r}, row {row + 1} ({note})"
        raise ValueError(f"arms must be finite numbers, got {found}{offer if np.isnan(values[row, column]) else ''}")


def _count(size: int) -> tuple[str, ...]:
    return tuple(map(str, range(size)))
