"""Which columns to encode, and how: a proposal from the values of a table, each decision with its reason."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sketchbandits.features.categorical import Categorical
from sketchbandits.features.column import Column
from sketchbandits.features.embedding import Embedding, vector
from sketchbandits.features.frames import Table
from sketchbandits.features.hashed import LISTS, Hashed
from sketchbandits.features.numeric import Numeric
from sketchbandits.features.values import NUMBER, missing, number, shown, text, unknown
from sketchbandits.kernels.linalg import ROUNDING, Floats
from sketchbandits.validate import LARGEST, SMALLEST

SKEWED = 2.0  # the skewness from which a logarithm is considered: that of an exponential distribution
LEAST_ROWS = 20  # below this many values skewness is noise
SENTENCE = 3.0  # words in an average text that is cut into words


@dataclass(frozen=True)
class Sizes:
    """The largest list of values, and the lengths of hashed and of projected columns."""

    most_values: int
    hash_size: int
    embedding_size: int


@dataclass
class Proposal:
    """The parts of a schema; ``notes`` has the reason for every column, encoded or not."""

    columns: list[Column] = field(default_factory=list)
    id_column: str | None = None
    ignored: list[str] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)


def propose(table: Table, id_column: str | None, ignore: Collection[str], sizes: Sizes) -> Proposal:
    """A proposal for all columns of a table."""
    names = table.names
    for argument, given in (("ignore", ignore), ("id_column", () if id_column is None else (id_column,))):
        for name in given:
            if name not in names:
                raise unknown(argument, name, names)
    result = Proposal(id_column=id_column)
    result.notes.update(dict.fromkeys(ignore, "ignored as asked"))
    if id_column is None:
        result.id_column = _id_column(table, [name for name in names if name not in ignore])
    if result.id_column is not None:
        result.notes[result.id_column] = "names the rows" + (": all values differ" if id_column is None else "")
    for name in names:
        if name not in result.notes:
            column, result.notes[name] = _column(name, table, sizes)
            if column is not None:
                result.columns.append(column)
                continue
        if name != result.id_column:
            result.ignored.append(name)
    return result


def _id_column(table: Table, names: Sequence[str]) -> str | None:
    """A column that is called id, or else the first one ..._id, whose values are there and differ."""
    called = sorted((name for name in names if name.lower() == "id"), key=names.index)
    called += [name for name in names if name.lower().endswith("_id")]
    for name in called:
        ids = [text(value) for value in table.values(name)]
        if None not in ids and len(set(ids)) == len(ids):
            return name
    return None


def _column(name: str, table: Table, sizes: Sizes) -> tuple[Column | None, str]:
    """The column to encode, or None, and the reason."""
    x = table.floats(name)
    if x is not None and not np.isnan(x).all():
        return _numeric(name, x)
    values = table.values(name)
    present = [value for value in values if not missing(value)]
    if not present:
        return None, "no values"
    gaps = len(present) < len(values)
    kinds = {_kind(value) for value in present}
    if kinds == {"boolean"}:
        return _listed(name, present, gaps, "true or false", other=False)
    if kinds <= {"boolean", "number"}:
        return _numeric(name, np.array([number(value) for value in values], dtype=np.float64))
    if kinds == {"text"}:
        return _text(name, present, gaps, sizes)
    if kinds == {"tags"}:
        return Hashed(name, sizes.hash_size, missing=gaps), "lists of texts"
    if kinds == {"vector"}:
        return _embedding(name, present, gaps, sizes)
    if len(kinds) == 1:
        return None, f"{type(present[0]).__name__} values are not encoded: make numbers or texts of them"
    odd = next(row for row, value in enumerate(values) if not missing(value) and _kind(value) != _kind(present[0]))
    found = f"{shown(present[0])} and, in row {odd}, {shown(values[odd])}"
    raise ValueError(f"frame must hold values of one kind in the column {name!r}, got {found}: list it in ignore")


def _kind(value: Any) -> str:
    """What a value that is there is taken for."""
    if isinstance(value, str):
        return "text"
    if isinstance(value, (bool, np.bool_)):
        return "boolean"
    if number(value) is not None:
        return "number"
    if isinstance(value, LISTS):
        if all(isinstance(entry, str) for entry in value):
            return "tags"
        return "vector" if vector(value) is not None else "other"
    return "other"


def _listed(name: str, present: list[Any], gaps: bool, why: str, *, other: bool) -> tuple[Column | None, str]:
    """One output for each value, the most frequent first."""
    counts = Counter(map(text, present))
    if len(counts) == 1 and not gaps:
        return None, "the same value in every row"
    values = sorted(counts, key=lambda value: (-counts[value], value or ""))
    return Categorical(name, tuple(map(str, values)), other), why


def _text(name: str, present: list[Any], gaps: bool, sizes: Sizes) -> tuple[Column | None, str]:
    different = len(set(present))
    length = sum(len(value.split()) for value in present) / len(present)
    if length >= SENTENCE and 2 * different > len(present):
        return Hashed(name, sizes.hash_size, words=True, missing=gaps), f"texts of {length:.0f} words on average"
    if different <= sizes.most_values:
        return _listed(name, present, gaps, f"{different} different values", other=True)
    return Hashed(name, sizes.hash_size, words=length >= SENTENCE, missing=gaps), f"{different:,} different values"


def _numeric(name: str, values: Floats) -> tuple[Column | None, str]:
    """Standardised numbers, from those that are there; NaN where one is missing."""
    if (large := np.abs(values) > LARGEST).any():
        row = int(large.argmax())
        raise ValueError(f"the column {name!r} must hold {NUMBER}, got {values[row]:g} in row {row}")
    x = values[~np.isnan(values)]
    gaps = x.size < values.size
    mean, deviation, top = float(x.mean()), float(x.std()), float(np.abs(x).max())
    if deviation < SMALLEST or deviation <= ROUNDING * top:
        if not gaps:
            return None, "the same value in every row"
        return Numeric(name, mean, missing=True), "either one value or missing"
    why = "numbers, some missing" if gaps else "numbers"
    logs = np.log1p(np.abs(x))
    if x.min() >= 0.0 and x.size >= LEAST_ROWS and _skewness(x) > max(SKEWED, 2.0 * abs(_skewness(logs))):
        return Numeric(name, float(logs.mean()), float(logs.std()), gaps, log=True), f"{why}, a few much larger"
    return Numeric(name, mean, deviation, gaps), why


def _skewness(x: Floats) -> float:
    """The mean cube of standardised values."""
    deviation = float(x.std())
    return float((((x - x.mean()) / deviation) ** 3).mean()) if deviation > 0.0 else 0.0


def _embedding(name: str, present: list[Any], gaps: bool, sizes: Sizes) -> tuple[Column | None, str]:
    lengths = {len(value) for value in present}
    if len(lengths) > 1:
        return None, f"lists of {min(lengths)} to {max(lengths)} numbers: they need one length"
    data = np.array(present, dtype=np.float64)
    length = data.shape[1]
    if len(data) <= sizes.embedding_size < length:
        column = Embedding.random(name, length, sizes.embedding_size, missing=gaps)
        return column, f"vectors of {length} numbers, too few for a PCA"
    fitted = Embedding.fit_at_most(name, data, sizes.embedding_size, missing=gaps)
    return fitted, f"vectors of {length} numbers" if fitted else "the same vector in every row"
