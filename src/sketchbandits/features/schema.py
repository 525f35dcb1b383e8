"""`Features`: the columns of contexts or arms, and the vectors that they become."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from os import PathLike
from types import MappingProxyType
from typing import Any, Self

from sketchbandits import validate
from sketchbandits.features import described, document
from sketchbandits.features.column import MOST_OUTPUTS, Column
from sketchbandits.features.frames import Table, read_table
from sketchbandits.features.infer import Sizes, propose
from sketchbandits.features.interactions import TIMES, checked
from sketchbandits.features.plan import Plan, total
from sketchbandits.features.values import shown, text, unknown, words
from sketchbandits.kernels.linalg import Floats


@dataclass(frozen=True, repr=False)
class Features:
    """A schema that turns records and data frames into vectors, for the contexts or the arms of a policy.

    Each column becomes a block of outputs of similar size, whatever its unit; `names` says what each output is. Values
    that a column does not take, and columns that the schema does not know, are refused by name. A schema is immutable,
    may be shared by threads, and is saved as JSON. `infer` proposes one from data.

    A value is missing where it is None, NaN or NA, and where a dict has no such key. A data frame must have every
    column of the schema.

    Parameters
    ----------
    columns
        What is encoded, in this order: `Numeric`, `Categorical`, `Hashed` and `Embedding` columns of distinct names.
    interactions
        Pairs or triples of names of columns whose outputs are multiplied, each with each (default: none). Policies fit
        rewards that are linear in the outputs; that a price matters more to students needs the product of both columns.
    id_column
        The column that names a row, read by `ids` and never encoded (default None: rows are named by their number).
    ignored
        Columns that may be there and are not encoded (default: none). All others are refused.
    notes
        A sentence on any of the columns, shown by `describe` (default: none). `infer` gives its reasons. Schemas that
        differ only in notes are equal.

    """

    columns: Sequence[Column]
    _: KW_ONLY
    interactions: Sequence[Sequence[str]] = ()
    id_column: str | None = None
    ignored: Sequence[str] = ()
    notes: Mapping[str, str] = field(default_factory=dict, compare=False)
    _plan: Plan = field(init=False, compare=False)

    def __post_init__(self) -> None:
        encoded = _names(self.columns)
        groups = checked(self.interactions, self.columns)
        if self.id_column is not None and words("id_column", self.id_column) in encoded:
            raise ValueError(f"id_column must be a column that is not encoded, got {self.id_column!r}")
        named = encoded if self.id_column is None else [*encoded, self.id_column]
        known = [*named, *_ignored(self.ignored, named)]
        if (dim := total(self.columns, groups)) > MOST_OUTPUTS:
            raise ValueError(f"columns and interactions must have at most {MOST_OUTPUTS:,} outputs in all, got {dim:,}")
        self._set(columns=tuple(self.columns), interactions=groups, ignored=tuple(self.ignored))
        self._set(notes=_notes(self.notes, known), _plan=Plan(self.columns, groups, known))

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def infer(
        cls,
        frame: Any,
        *,
        id_column: str | None = None,
        ignore: Sequence[str] = (),
        interactions: Sequence[Sequence[str]] = (),
        most_values: int = 30,
        hash_size: int = 32,
        embedding_size: int = 16,
    ) -> Self:
        """Propose a schema from a data frame (pandas, polars, Arrow) or a list of dicts; `describe` tells the reasons.

        Numbers are standardised, those with a few values much larger than the others on a logarithmic scale. Texts of
        at most ``most_values`` different values are listed, others hashed to ``hash_size`` places; vectors of one
        length are projected to ``embedding_size`` dimensions by a PCA. Columns with one value in every row, dates, and
        those in ``ignore`` are ignored. Without ``id_column``, it is a column ``id`` or ``..._id`` whose values differ.
        """
        sizes = Sizes(
            validate.whole("most_values", most_values),
            validate.whole("hash_size", hash_size),
            validate.whole("embedding_size", embedding_size),
        )
        if not isinstance(ignore, (list, tuple)):
            raise ValueError(f"ignore must be a list of names of columns, got {ignore!r}")
        table = read_table(frame)
        found = propose(table, id_column, ignore, sizes)
        if not found.columns:
            raise ValueError(f"frame must have a column to encode, got {_reasons(found.notes)}")
        return cls(
            found.columns,
            interactions=interactions,
            id_column=found.id_column,
            ignored=found.ignored,
            notes=found.notes,
        )

    @property
    def dim(self) -> int:
        """The length of the vectors."""
        return self._plan.dim

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every output, such as ``age``, ``country=NL``, ``text#5`` or ``age × country=NL``."""
        return self._plan.names

    def vector(self, record: Mapping[str, Any]) -> Floats:
        """The vector of one record, a dict of values: of length `dim`."""
        if type(record) is not dict and not isinstance(record, Mapping):
            raise ValueError(f"record must be a dict of values, got {shown(record)}")
        return self._plan.vector(record)

    def transform(self, frame: Any) -> Floats:
        """The vectors of all rows of a data frame or a list of dicts, of shape (rows, `dim`).

        A row is bit-for-bit identical to what `vector` gives for it.
        """
        return self._plan.matrix(read_table(frame))

    def ids(self, frame: Any) -> list[str]:
        """The name of every row, as text: its value in ``id_column``, or else its number, from 0 on."""
        table = read_table(frame)
        if self.id_column is None:
            return list(map(str, range(table.rows)))
        if table.rows and self.id_column not in table.names:
            raise unknown("frame", self.id_column, table.names)
        return _ids(table, self.id_column)

    def describe(self) -> str:
        """A table of all columns, what becomes of them and why, at most 80 characters wide."""
        return f"{described.as_text(self._rows())}\n{self._total()}"

    def _repr_html_(self) -> str:
        """What a notebook shows: the table of `describe`."""
        return described.as_html(self._rows(), self._total())

    def __repr__(self) -> str:
        return f"Features({self._total()})"

    def _total(self) -> str:
        columns, groups = len(self.columns), len(self.interactions)
        return f"columns encoded: {columns}, interactions: {groups}, outputs: {self.dim:,}"

    def _rows(self) -> list[described.Row]:
        rows = []
        for column in self.columns:
            note = self.notes.get(column.name)
            why = f"{column.summary}; {note}" if note else column.summary
            rows.append((column.name, column.kind, f"{len(column.outputs):,}", why))
        for group, (_, block) in zip(self.interactions, self._plan.products, strict=True):
            rows.append((TIMES.join(group), "interaction", f"{block.stop - block.start:,}", "products of all outputs"))
        if self.id_column is not None:
            rows.append((self.id_column, "id", "0", self.notes.get(self.id_column, "names the rows")))
        return rows + [(name, "ignored", "0", self.notes.get(name, "")) for name in self.ignored]

    def to_dict(self) -> dict[str, Any]:
        """The schema in types that JSON has; `from_dict` makes an equal one of it."""
        return {
            "version": document.VERSION,
            "columns": [column.to_dict() for column in self.columns],
            "interactions": [list(group) for group in self.interactions],
            "id_column": self.id_column,
            "ignored": list(self.ignored),
            "notes": dict(self.notes),
        }

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """The schema that `to_dict` described. Fields besides ``version`` and ``columns`` may be left out."""
        document.check_fields(entries)
        columns = [document.read_column(f"columns[{i}]", column) for i, column in enumerate(entries["columns"])]
        rest = {name: value for name, value in entries.items() if name not in ("version", "columns")}
        return cls(columns, **rest)

    def to_json(self) -> str:
        """The schema as JSON, with a line for each column: people may read and edit it."""
        return document.write_text(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The schema that `to_json` wrote; what is wrong with the text is refused with its place."""
        return cls.from_dict(document.read_text(text))

    def save(self, path: str | PathLike[str]) -> None:
        """Write `to_json` to a file, which is replaced atomically."""
        document.write_file(path, self.to_json())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a schema that `save` wrote, or that was written by hand."""
        return cls.from_json(document.read_file(path))

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that are the same for equal schemas: what a log keeps of one."""
        entries = {name: value for name, value in self.to_dict().items() if name != "notes"}
        canonical = json.dumps(entries, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_dict, (self.to_dict(),)  # writers are functions, which pickle cannot copy


def _names(columns: Any) -> list[str]:
    """The distinct names of columns."""
    if not isinstance(columns, (list, tuple)) or not columns:
        raise ValueError(f"columns must be a list of at least one column, got {columns!r}")
    names: list[str] = []
    for i, column in enumerate(columns):
        if not isinstance(column, Column):
            kinds = ", ".join(kind.__name__ for kind in document.KINDS.values())
            raise ValueError(f"columns must be of the kinds {kinds}, got {column!r} at [{i}]")
        if column.name in names:
            raise ValueError(f"columns must have distinct names, got {column.name!r} twice")
        names.append(column.name)
    return names


def _ignored(ignored: Any, used: Sequence[str]) -> list[str]:
    if not isinstance(ignored, (list, tuple)):
        raise ValueError(f"ignored must be a list of names of columns, got {ignored!r}")
    names: list[str] = []
    for i, name in enumerate(ignored):
        if words(f"ignored[{i}]", name) in used or name in names:
            raise ValueError(f"ignored must hold columns that are not in use, each once, got {name!r}")
        names.append(name)
    return names


def _notes(notes: Any, known: Sequence[str]) -> Mapping[str, str]:
    if not isinstance(notes, Mapping):
        raise ValueError(f"notes must be a dict from columns to sentences, got {notes!r}")
    for name, note in notes.items():
        if name not in known:
            raise unknown("notes", name, known)
        words(f"notes[{name!r}]", note)
    return MappingProxyType(dict(notes))


def _reasons(notes: Mapping[str, str]) -> str:
    return ", ".join(f"{name!r} ({why})" for name, why in notes.items()) or "no columns"


def _ids(table: Table, name: str) -> list[str]:
    """The distinct texts of a column."""
    rows: dict[str, int] = {}
    for row, value in enumerate(table.values(name)):
        label = text(value)
        if label is None or not label.strip():
            raise ValueError(f"the column {name!r} must hold an id in every row, got {shown(value)} in row {row}")
        if label in rows:
            raise ValueError(f"the column {name!r} must hold every id once, got {label!r} in rows {rows[label]}, {row}")
        rows[label] = row
    return list(rows)
