"""Tables that people have, read alike: data frames of pandas, polars or Arrow (narwhals), and lists of dicts."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sketchbandits.features.values import unknown
from sketchbandits.kernels.linalg import Floats

ALLOWED = "a data frame (pandas, polars, Arrow) or a list of dicts"


class Table(Protocol):
    """Rows of named values."""

    @property
    def rows(self) -> int:
        """How many rows there are."""

    @property
    def names(self) -> list[str]:
        """The names of the columns, in their order."""

    def values(self, name: str) -> Sequence[Any]:
        """The values of a column as Python objects; missing ones as None, NaN or the like."""

    def floats(self, name: str) -> Floats | None:
        """The values of a column that holds only numbers, NaN for missing ones; None for other columns."""

    def check(self, known: Collection[str], needed: Iterable[str]) -> None:
        """Refuse columns that are not ``known``, and the lack of one that is ``needed``."""


class FrameTable:
    """A data frame, behind narwhals."""

    def __init__(self, frame: Any) -> None:
        self.frame = frame
        self.rows: int = len(frame)
        self.names: list[str] = list(frame.columns)
        for name in self.names:
            if not isinstance(name, str):
                raise ValueError(f"frame must have columns whose names are text, got {name!r}")

    def values(self, name: str) -> Sequence[Any]:
        """A list of Python objects; lists of numbers as arrays, which are read ten times as fast."""
        import narwhals as nw  # loaded only where there is a data frame

        series = self.frame.get_column(name)
        if series.dtype == nw.Array:
            series = series.cast(nw.List(series.dtype.inner))
        if series.dtype == nw.List and series.dtype.inner.is_float():
            return list(series.to_numpy())
        return list(series.to_list())

    def floats(self, name: str) -> Floats | None:
        """Whole numbers and floats; decimals are left to `values`, whose conversion rounds correctly."""
        import narwhals as nw  # loaded only where there is a data frame

        series = self.frame.get_column(name)
        if not (series.dtype.is_integer() or series.dtype.is_float()):
            return None
        array = series.cast(nw.Float64).to_numpy()
        return np.asarray(array) if array.dtype == np.float64 else None

    def check(self, known: Collection[str], needed: Iterable[str]) -> None:
        """Every column has to be known, and every needed one has to be there."""
        check_names("frame", self.names, known)
        for name in needed:
            if name not in self.names:
                raise ValueError(f"frame must have the column {name!r}, got only {', '.join(map(repr, self.names))}")


class RecordTable:
    """A list of dicts. A key that is absent is a missing value."""

    def __init__(self, records: Sequence[Any]) -> None:
        for row, record in enumerate(records):
            if not isinstance(record, Mapping):
                raise ValueError(f"frame must be {ALLOWED}, got a {type(record).__name__} in row {row}")
        self.records: Sequence[Mapping[str, Any]] = records
        self.rows = len(records)

    @property
    def names(self) -> list[str]:
        """Every key of any record, in the order in which they appear."""
        names = list(dict.fromkeys(key for record in self.records for key in record))
        for name in names:
            if not isinstance(name, str):
                raise ValueError(f"frame must have keys that are text, got {name!r}")
        return names

    def values(self, name: str) -> Sequence[Any]:
        """The values, None where the key is absent."""
        return [record.get(name) for record in self.records]

    def floats(self, name: str) -> Floats | None:
        """Floats without a gap; other numbers are left to `values`."""
        values = self.values(name)
        return np.array(values) if values and all(type(value) is float for value in values) else None

    def check(self, known: Collection[str], needed: Iterable[str]) -> None:
        """Every key of every record has to be known."""
        for row, record in enumerate(self.records):
            if not record.keys() <= set(known):
                check_names(f"row {row} of frame", record, known)


def check_names(argument: str, names: Iterable[Any], known: Collection[str]) -> None:
    """Refuse the first name that is not known."""
    for name in names:
        if name not in known:
            raise unknown(argument, name, known)


def read_table(frame: Any) -> Table:
    """The table that a caller passes as ``frame``."""
    if isinstance(frame, (list, tuple)):
        return RecordTable(frame)
    if isinstance(frame, Mapping):
        raise ValueError(f"frame must be {ALLOWED}, got one dict: put it into a list, or call vector(record)")
    import narwhals as nw  # loaded only where there is a data frame

    try:
        known = nw.from_native(frame, pass_through=True)
    except nw.exceptions.NarwhalsError as error:
        raise ValueError(f"frame must be {ALLOWED} whose columns have distinct names: {error}") from None
    if isinstance(known, nw.LazyFrame):
        raise ValueError(f"frame must be {ALLOWED}, got a {type(frame).__name__}: call its collect() first")
    if not isinstance(known, nw.DataFrame):
        raise ValueError(f"frame must be {ALLOWED}, got a {type(frame).__name__}")
    return FrameTable(known)
