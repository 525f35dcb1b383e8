"""Tables of arms: ``.csv`` and ``.parquet`` files, the columns of the former as text or with the types they look like.

A column of a ``.csv`` file is boolean where it holds nothing but true and false in any case, numbers where each cell
is one and none is a code such as ``007``, and else text; an empty cell is missing.
"""

import contextlib
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import polars

CONTENTS = {
    ".npy": "a 2-D array of numbers in a .npy file as numpy.save writes it",
    ".csv": "a .csv file in UTF-8 with no row longer than the first and every quote closed",
    ".parquet": "an intact .parquet file",
}
ROWS = "rows are counted from 1"
_CODE = r"^[+-]?0\d"  # a number that is written with more zeros than it needs is a name


class TableFile(NamedTuple):
    """A table that was opened: ``text`` where all columns are text so far; ``note`` says how rows are counted."""

    frame: "polars.LazyFrame"
    text: bool
    note: str

    def cells(self, frame: "polars.DataFrame", name: str) -> "polars.Series":
        """One column, with null for an empty cell of a text file."""
        column = frame.get_column(name)
        return column.str.strip_chars().replace("", None) if self.text else column


@contextlib.contextmanager
def opened(path: Path) -> Iterator[TableFile]:
    """A table to be read inside the context, where errors of its contents are refused."""
    import polars  # only for tables: loading it takes a tenth of a second

    try:
        with path.open("rb"):  # polars would take a folder for one table in many files
            if path.suffix.lower() == ".csv":
                yield _open_csv(path)
            else:
                yield TableFile(polars.scan_parquet(path.absolute(), glob=False), False, ROWS)
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, csv.Error, UnicodeDecodeError):
        raise damaged(path) from None


def _open_csv(path: Path) -> TableFile:
    """All columns as text, so that ids keep their zeros and a bad cell can be shown."""
    import polars  # as in `opened`

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
    frame.columns = names if header else list(map(str, range(len(names))))
    note = f"{ROWS} below the header" if header else f"{ROWS}, columns from 0"
    return TableFile(frame.lazy(), True, note)


def typed(
    table: TableFile, names: Collection[str], *, numbers: Collection[str] = (), labels: Collection[str] = ()
) -> "polars.DataFrame":
    """These columns with the types that they look like.

    ``numbers``: columns that are wanted as numbers, also where they look like codes. ``labels``: columns that are
    wanted as text, whose numbers are therefore only taken for such where all are whole.
    """
    import polars  # as in `opened`

    frame = table.frame.select(polars.selectors.by_name(*names)).collect()
    columns = {name: table.cells(frame, name) for name in names}
    if table.text:
        columns = {n: _typed(cells, wanted=n in numbers, label=n in labels) for n, cells in columns.items()}
    return polars.DataFrame(columns)


def _typed(cells: "polars.Series", *, wanted: bool, label: bool) -> "polars.Series":
    if is_boolean(cells):
        return cells.str.to_lowercase() == "true"
    found = cells.cast(float, strict=False)
    if (found.is_null() & cells.is_not_null()).any() or not cells.is_not_null().any():
        return cells
    if not wanted and cells.str.contains(_CODE).any():
        return cells
    return cells if label and not (found == found.round()).all() else found


def is_boolean(cells: "polars.Series") -> bool:
    """Whether there is nothing but true and false, in any case."""
    words = cells.drop_nulls().str.to_lowercase()
    return words.len() > 0 and bool(words.is_in(["true", "false"]).all())


def numbers_of(cells: "polars.Series") -> "polars.Series":
    """Texts as numbers; a column of nothing but true and false, in any case, as 1 and 0."""
    return (cells.str.to_lowercase() == "true").cast(float) if is_boolean(cells) else cells.cast(float, strict=False)


def damaged(path: Path) -> ValueError:
    """The refusal of a file that is not what its name says."""
    contents = CONTENTS[path.suffix.lower()]
    return ValueError(f"arms must be {contents}, got {str(path)!r}, which is damaged or something else")


def listed(words: Iterable[Any]) -> str:
    """At most ten of them."""
    known = list(map(str, words))
    return ", ".join(known[:10]) + (f" and {len(known) - 10} more" if len(known) > 10 else "")


def check_id_column(id_column: str | None, present: Collection[str]) -> None:
    """Refuse the name of a column that is not there."""
    if id_column is not None and id_column not in present:
        raise ValueError(f"id_column must be one of the columns {listed(map(repr, present))}, got {id_column!r}")


def ids_of(column: "polars.Series", note: str) -> tuple[str, ...]:
    """The distinct names of all rows."""
    import polars  # as in `opened`

    if column.dtype.is_nested() or column.dtype == polars.Binary:
        raise ValueError(f"id_column must hold text or whole numbers, got {column.name!r} of type {column.dtype}")
    ids = (column.fill_nan(None) if column.dtype.is_float() else column).cast(str)
    missing = (ids.is_null() | (ids.str.strip_chars() == "")).arg_true()
    if len(missing):
        raise ValueError(f"id_column must hold an id in every row, got none in row {missing[0] + 1} ({note})")
    repeated = ids.filter(ids.is_duplicated())
    if len(repeated):
        rows = listed((ids == repeated[0]).arg_true() + 1)
        raise ValueError(f"id_column must hold every id once, got {repeated[0]!r} in rows {rows} ({note})")
    return tuple(ids)
