"""Arms encoded by a schema: tables with text, booleans and missing values; and the schema that a table suggests."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sketchbandits.arms_file.tables import ROWS, TableFile, check_id_column, ids_of, opened, typed
from sketchbandits.features import Categorical, Features, Hashed, Numeric

if TYPE_CHECKING:
    import polars

_ROW = re.compile(r" in rows? \d+(, \d+)*$")  # how refusals of a schema end, which count from 0
_DATE = r"^\d{4}-\d{2}-\d{2}"
_LABELS = (Categorical, Hashed)
LEAST_SHARE = 0.5  # of the cells of a text column: if so many are numbers, the others were hardly meant


@dataclass(frozen=True)
class SchemaFile:
    """A schema and the file that it was read from, as a user wrote its name."""

    path: str
    features: Features

    @classmethod
    def load(cls, path: str) -> Self:
        """Read a schema; a file that holds none is refused."""
        try:
            return cls(path, Features.load(path))
        except ValueError as error:
            rule = "a schema as sketchbandits features writes it"
            raise ValueError(f"features must be {rule}, got {path!r}: {error}") from None

    @property
    def identity(self) -> str:
        """What results depend on: the same for schemas that encode alike, wherever they lie."""
        return f"schema {self.features.digest}"


def encoded(path: Path, schema: SchemaFile, id_column: str | None) -> tuple[Any, tuple[str, ...] | None, Any]:
    """Values, ids if there is a column of them, and the names of the features."""
    features = schema.features
    own = features.id_column if id_column is None else id_column
    with opened(path) as table:
        present = table.frame.collect_schema().names()
        check_id_column(id_column, present)
        _check_columns(present, schema, own)
        frame = typed(table, _names(features), numbers=_names(features, Numeric), labels=_names(features, *_LABELS))
        _check_numbers(frame, schema, table)
        ids = None if own is None else _ids(table, own, features)
    with _refusals(table.note, repr(schema.path)):
        return features.transform(frame), ids, features.names


def _names(features: Features, *kinds: type) -> list[str]:
    """The columns that are encoded, or those of these kinds."""
    return [column.name for column in features.columns if not kinds or isinstance(column, kinds)]


def _ids(table: TableFile, name: str, features: Features) -> tuple[str, ...]:
    """The names of the arms; those of the schema's own column are the same as in Python."""
    import polars  # only where there is a table

    frame = table.frame.select(polars.selectors.by_name(name)).collect()
    cells = table.cells(frame, name)
    found = ids_of(cells, table.note)
    if name != features.id_column:
        return found
    with _refusals(table.note, "the schema"):
        return tuple(features.ids(polars.DataFrame([cells])))


def _check_columns(present: Sequence[str], schema: SchemaFile, own: str | None) -> None:
    """Refuse a column that the schema does not know, and the lack of one that it needs."""
    features = schema.features
    needed = [*(column.name for column in features.columns), *([] if own is None else [own])]
    for name in needed:
        if name not in present:
            found = ", ".join(map(repr, present))
            raise ValueError(f"arms must have the column {name!r}, which {schema.path!r} names, got only {found}")
    known = {*needed, *features.ignored, *([] if features.id_column is None else [features.id_column])}
    for name in present:
        if name not in known:
            what = f"which is new to {schema.path!r}: add it to its columns, or to what it lists as ignored"
            raise ValueError(f"arms must have columns that the schema knows, got {name!r}, {what}")


def _check_numbers(frame: "polars.DataFrame", schema: SchemaFile, table: TableFile) -> None:
    """Refuse the first cell of a text file that keeps a column of numbers from being one."""
    for name in _names(schema.features, Numeric) if table.text else ():
        cells = frame.get_column(name)
        if str(cells.dtype) == "String" and cells.is_not_null().any():
            row = int((cells.is_not_null() & cells.cast(float, strict=False).is_null()).arg_true()[0])
            found = f"the column {name!r} must hold numbers, got {cells[row][:40]!r} in row {row + 1} ({table.note})"
            raise ValueError(f"arms must be rows that {schema.path!r} can encode: {found}")


@contextmanager
def _refusals(note: str, schema: str) -> Iterator[None]:
    """What a schema refuses, as a refusal of the arms, with rows counted as for all tables."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"arms must be rows that {schema} can encode: {_recounted(str(error), note)}") from None


def _recounted(message: str, note: str) -> str:
    found = _ROW.search(message)
    if found is None:
        return message
    rows = re.sub(r"\d+", lambda number: str(int(number[0]) + 1), found[0])
    return f"{message[: found.start()]}{rows} ({note})"


def proposed(path: str | Path, *, id_column: str | None, ignore: Sequence[str]) -> tuple[Features, list[str]]:
    """The schema that `Features.infer` proposes for a table, and what a user may want to look at."""
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise ValueError(f"arms must be a table that ends in .csv or .parquet, got {os.fspath(path)!r}")
    with opened(path) as table:
        names = table.frame.collect_schema().names()
        check_id_column(id_column, names)
        frame = typed(table, names, labels=() if id_column is None else (id_column,))
    try:
        schema = Features.infer(frame, id_column=id_column, ignore=tuple(ignore))
    except ValueError as error:
        if re.match(r"(ignore|id_column) must ", str(error)):
            raise
        raise ValueError(f"arms must be a table that can be encoded: {_recounted(str(error), ROWS)}") from None
    return schema, [*_hints(frame, schema)] if table.text else []


def _hints(frame: "polars.DataFrame", schema: Features) -> Iterator[str]:
    """Columns of a text file that may not be what they look like."""
    unnamed = schema.id_column is None
    for name in _names(schema, *_LABELS):
        cells = frame.get_column(name)
        if str(cells.dtype) != "String":
            continue
        there = cells.drop_nulls()
        if there.str.contains(_DATE).all():
            yield f"The column {name!r} holds dates as text: list it in --ignore, or make it a number, such as of days."
            continue
        if unnamed and there.n_unique() == len(cells) and not there.str.contains(r"\s").any():
            unnamed = False
            yield f"The column {name!r} differs in every row: if it names the rows, pass --id-column {name}."
        odd = there.filter(there.cast(float, strict=False).is_null())
        if 0 < len(odd) <= LEAST_SHARE * len(there):
            yield (
                f"The column {name!r} is text because of cells such as {odd[0][:40]!r}; the other "
                f"{len(there) - len(odd):,} of {len(there):,} are numbers. Empty cells count as missing."
            )
