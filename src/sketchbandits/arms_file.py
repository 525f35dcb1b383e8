"""A user's own arms, one per row, from a ``.npy``, ``.csv`` or ``.parquet`` file."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats

if TYPE_CHECKING:
    import polars

_CONTENTS = {
    ".npy": "a 2-D array of numbers in a .npy file as numpy.save writes it",
    ".csv": "a .csv file in UTF-8 with no row longer than the first and every quote closed",
    ".parquet": "an intact .parquet file",
}
_ROWS = "rows are counted from 1"


@dataclass(frozen=True)
class ArmFile:
    """Arms of shape (N, d), read-only, with a name for every row and every column.

    ``arms`` is float64, or float32 where a ``.npy`` file was: the tolerance of a partition depends on it.
    """

    arms: Floats
    ids: tuple[str, ...]
    features: tuple[str, ...]


def read_arms(path: str | Path, *, id_column: str | None = None, features: Sequence[str] | None = None) -> ArmFile:
    """Read arms, taking the columns ``features`` in the order given, or every column but ``id_column``.

    A ``.csv`` file is separated by commas, semicolons or tabs; it has no header if its first row holds only numbers.
    Booleans count as 1 and 0, in a ``.csv`` file a column of nothing but true and false.
    Columns without a name are called ``"0"``, ``"1"``, ..., and so are rows without an id.
    """
    path, ids, names = Path(path), None, None
    if (suffix := path.suffix.lower()) not in _CONTENTS:
        raise ValueError(f"arms must be a file that ends in .npy, .csv or .parquet, got {str(path)!r}")
    if suffix == ".npy":
        values = _array(path, id_column, features)
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
            raise ValueError(f"{name} must be left out for a .npy file, which has no column names, got {value!r}")
    values = read_npy(path)
    if values is None:
        raise _damaged(path)
    if values.ndim == 2 and values.dtype.kind == "f":
        _check_finite(values, _count(values.shape[1]), f"{_ROWS}, columns from 0")
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

    try:
        with path.open("rb"):  # polars would take a folder for one table in many files
            text = path.suffix.lower() == ".csv"
            table, note = _open_csv(path) if text else (polars.scan_parquet(path.absolute(), glob=False), _ROWS)
            names = _chosen(table.collect_schema().names(), id_column, features)
            wanted = names if id_column is None else (*names, id_column)
            frame = table.select(polars.selectors.by_name(*wanted)).collect()
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, csv.Error, UnicodeDecodeError):
        raise _damaged(path) from None
    ids = None if id_column is None else _ids(_cells(frame, id_column, text), note)
    columns = [_numbers(_cells(frame, name, text), note, text=text, chosen=features is not None) for name in names]
    values = polars.DataFrame(columns).to_numpy() if columns else np.empty((frame.height, 0))
    _check_finite(values, names, note)
    return values, ids, names


def _open_csv(path: Path) -> "tuple[polars.LazyFrame, str]":
    """All columns as text, so that ids keep their zeros and a bad cell can be shown."""
    import polars  # as in `_table`

    # Blank lines are stripped: at the end they would be arms without values.
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf").strip(b"\r\n")
    if not data:
        raise ValueError(f"arms must be a .csv file with a row for each arm, got the empty file {str(path)!r}")
    unquoted = re.sub(rb'"[^"]*"', b"", io.BytesIO(data).readline())
    # The comma last: it may also stand in decimals.
    separator = "\t" if b"\t" in unquoted else ";" if b";" in unquoted else ","
    row = next(csv.reader(io.TextIOWrapper(io.BytesIO(data), "utf-8", newline=""), delimiter=separator))
    names = [field.strip() for field in row]
    header = polars.Series(names).cast(float, strict=False).has_nulls()
    name, times = Counter(names).most_common(1)[0]
    if header and times > 1:
        raise ValueError(f"arms must have columns of distinct names, got {name!r} {times} times")
    frame = polars.read_csv(data, separator=separator, has_header=header, infer_schema_length=0)
    frame.columns = names if header else list(_count(len(names)))
    note = f"{_ROWS} below the header" if header else f"{_ROWS}, columns from 0"
    return frame.lazy(), note


def _chosen(present: Sequence[str], id_column: str | None, features: Sequence[str] | None) -> tuple[str, ...]:
    """The names of the feature columns."""
    allowed = f"the columns {_listed(map(repr, present))}"
    if id_column is not None and id_column not in present:
        raise ValueError(f"id_column must be one of {allowed}, got {id_column!r}")
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


def _cells(frame: "polars.DataFrame", name: str, text: bool) -> "polars.Series":
    """One column, with null for an empty cell of a text file."""
    column = frame.get_column(name)
    return column.str.strip_chars().replace("", None) if text else column


def _ids(column: "polars.Series", note: str) -> tuple[str, ...]:
    import polars  # as in `_table`

    if column.dtype.is_nested() or column.dtype == polars.Binary:
        raise ValueError(f"id_column must hold text or whole numbers, got {column.name!r} of type {column.dtype}")
    ids = (column.fill_nan(None) if column.dtype.is_float() else column).cast(str)
    missing = (ids.is_null() | (ids.str.strip_chars() == "")).arg_true()
    if len(missing):
        raise ValueError(f"id_column must hold an id in every row, got none in row {missing[0] + 1} ({note})")
    repeated = ids.filter(ids.is_duplicated())
    if len(repeated):
        rows = _listed((ids == repeated[0]).arg_true() + 1)
        raise ValueError(f"id_column must hold every id once, got {repeated[0]!r} in rows {rows} ({note})")
    return tuple(ids)


def _numbers(column: "polars.Series", note: str, *, text: bool, chosen: bool) -> "polars.Series":
    """One column in float64, booleans as 0 and 1; text, other types and missing values are refused."""
    who, advice = ("features", "") if chosen else ("arms", ": name that column with id_column or choose features")
    kind = "" if text else f" of type {column.dtype}"
    if not (text or column.dtype.is_numeric() or str(column.dtype) in ("Boolean", "Null")):
        rule = "columns of numbers or booleans"
        raise ValueError(f"{who} must be {rule}, got column {column.name!r}{kind}{advice}")
    numbers = _booleans(column) if text else column.cast(float, strict=False)
    odd = (numbers.is_null() & column.is_not_null()).arg_true()
    if len(odd):
        found = f"{column[odd[0]][:40]!r} in column {column.name!r}, row {odd[0] + 1} ({note})"
        raise ValueError(f"{who} must be columns of numbers, got {found}{advice}")
    if numbers.has_nulls():
        place = f"column {column.name!r}{kind}, row {numbers.is_null().arg_true()[0] + 1} ({note})"
        raise ValueError(f"arms must be finite numbers, got no value in {place}")
    return numbers


def _booleans(column: "polars.Series") -> "polars.Series":
    """Texts as numbers; a column of nothing but true and false, in any case, as 1 and 0."""
    words = column.str.to_lowercase()
    if column.is_not_null().any() and words.drop_nulls().is_in(["true", "false"]).all():
        return (words == "true").cast(float)
    return column.cast(float, strict=False)


def _check_finite(values: NDArray[Any], names: Sequence[str], note: str) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        row, column = map(int, np.unravel_index(np.argmin(finite), finite.shape))
        found = f"{values[row, column]} in column {names[column]!r}, row {row + 1} ({note})"
        raise ValueError(f"arms must be finite numbers, got {found}")


def _damaged(path: Path) -> ValueError:
    contents = _CONTENTS[path.suffix.lower()]
    return ValueError(f"arms must be {contents}, got {str(path)!r}, which is damaged or something else")


def _count(size: int) -> tuple[str, ...]:
    return tuple(map(str, range(size)))


def _listed(words: Iterable[Any]) -> str:
    """At most ten of them."""
    known = list(map(str, words))
    return ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")
