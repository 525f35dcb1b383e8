"""What every kind of column does: name its outputs, write the values of one record, fill the rows of a table."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from sketchbandits.features.frames import Table
from sketchbandits.features.values import words
from sketchbandits.kernels.linalg import Floats

# Writes one value into a vector of zeros; where in it, the writer knows.
Writer = Callable[[Floats, Any], None]

MOST_OUTPUTS = 65_536


@dataclass(frozen=True)
class Column(ABC):
    """A named column of a table, and how its values become outputs. Immutable."""

    kind: ClassVar[str]

    name: str

    def __post_init__(self) -> None:
        self._set("name", words("name", self.name))

    @property
    @abstractmethod
    def outputs(self) -> tuple[str, ...]:
        """The name of every output."""

    @abstractmethod
    def writer(self, at: int) -> Writer:
        """A function that writes the outputs of one value into a vector of zeros, from the place ``at`` on."""

    @property
    @abstractmethod
    def summary(self) -> str:
        """What is done to a value, in a few words."""

    def fill(self, table: Table, out: Floats, at: int) -> None:
        """Write the outputs of a whole column into the rows of ``out``, from the place ``at`` on."""
        write = self.writer(at)
        for row, value in enumerate(table.values(self.name)):
            try:
                write(out[row], value)
            except ValueError as error:
                raise ValueError(f"{error} in row {row}") from None

    def to_dict(self) -> dict[str, Any]:
        """Everything about the column, in types that JSON has."""
        entries = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"kind": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in entries.items()}}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """The column that `to_dict` described; the constructor checks every entry."""
        known = [field.name for field in fields(cls)]
        for entry in entries:
            if entry not in known:
                raise ValueError(f"{entry} must be left out: {cls.kind} columns have {', '.join(known)}")
        return cls(**{"name": None, **entries})

    def _set(self, field: str, value: Any) -> None:
        """Assign a checked value to a field of a frozen dataclass, while it is made."""
        object.__setattr__(self, field, value)
