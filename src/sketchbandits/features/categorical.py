"""One of a few listed values: one output each, and one for other values and for missing ones."""

from dataclasses import dataclass
from typing import Any, ClassVar

from sketchbandits import validate
from sketchbandits.features.column import MOST_OUTPUTS, Column, Writer
from sketchbandits.features.values import TEXT, listed, missing, refused, text, words
from sketchbandits.kernels.linalg import Floats


@dataclass(frozen=True)
class Categorical(Column):
    """A value becomes 1 at its place among the listed ones, and 0 elsewhere.

    Values are compared as text, exactly: 3, 3.0 and ``"3"`` are the same, and so are True and ``"true"``; ``"nl"`` and
    ``"NL"`` are not.

    Parameters
    ----------
    name
        The name of the column.
    values
        The values that have an output each: texts, whole numbers or booleans, at least one.
    other
        Whether there may be other values (default True): they share one output. If not, they are refused.
    missing
        Whether a value may be missing (default True): that has an output of its own. If not, it is refused.

    """

    kind: ClassVar[str] = "categorical"

    values: tuple[str, ...] = ()
    other: bool = True
    missing: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("values", _checked(self.values))
        self._set("other", validate.flag("other", self.other))
        self._set("missing", validate.flag("missing", self.missing))

    @property
    def outputs(self) -> tuple[str, ...]:
        """One for each value, then ``is other`` and ``is missing``."""
        rest = [f"{self.name} is other"] * self.other + [f"{self.name} is missing"] * self.missing
        return (*(f"{self.name}={value}" for value in self.values), *rest)

    @property
    def summary(self) -> str:
        """The values."""
        return f"one of {listed(self.values, 4)}"

    def writer(self, at: int) -> Writer:
        """A function that writes a 1 at the place of a value; see `Column.writer`."""
        name, gap = self.name, at + len(self.values) + self.other if self.missing else -1
        places = {value: at + i for i, value in enumerate(self.values)}
        other = at + len(self.values) if self.other else -1

        def write(out: Floats, value: Any) -> None:
            known = value if type(value) is str else text(value)
            if known is None:
                if not missing(value) or gap < 0:
                    raise refused(name, TEXT, value)
                out[gap] = 1.0
                return
            place = places.get(known, other)
            if place < 0:
                raise refused(name, f"one of {listed(places)}", value)
            out[place] = 1.0

        return write


def _checked(values: Any) -> tuple[str, ...]:
    """The distinct texts of listed values."""
    if not isinstance(values, (list, tuple)) or not 0 < len(values) <= MOST_OUTPUTS - 2:
        found = _length(values)
        raise ValueError(f"values must be a list of 1 to {MOST_OUTPUTS - 2:,} values, got {found}")
    known: dict[str, Any] = {}
    for i, value in enumerate(values):
        label = text(value)
        if label is None:
            raise ValueError(f"values must be text, whole numbers or booleans, got {value!r} at [{i}]")
        if label in known:
            raise ValueError(f"values must be distinct as text, got {known[label]!r} and {value!r}")
        known[words(f"values[{i}]", label) if label else label] = value
    return tuple(known)


def _length(values: Any) -> str:
    """A list by its length, anything else as it is."""
    return f"{len(values):,}" if isinstance(values, (list, tuple)) else repr(values)
