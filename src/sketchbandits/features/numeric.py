"""Numbers: centred and scaled, on a logarithmic scale where they are skewed, with an indicator of missing values."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from sketchbandits import validate
from sketchbandits.features.column import Column, Writer
from sketchbandits.features.frames import Table
from sketchbandits.features.values import NUMBER, number, refused
from sketchbandits.kernels.linalg import Floats
from sketchbandits.validate import LARGEST


@dataclass(frozen=True)
class Numeric(Column):
    """A number x becomes ``(x - mean) / deviation``. Booleans count as 1 and 0.

    Parameters
    ----------
    name
        The name of the column.
    mean, deviation
        What is subtracted (default 0), and what the difference is divided by, > 0 (default 1). With ``log=True`` they
        are those of the logarithms.
    missing
        Whether a value may be missing (default False: it is refused). If so, it counts as the mean, and a second
        output is 1 where it is missing and 0 elsewhere.
    log
        Replace x by ``sign(x) log(1 + |x|)`` first (default False): for prices, counts and whatever else has a few
        values much larger than the others.

    """

    kind: ClassVar[str] = "numeric"

    mean: float = 0.0
    deviation: float = 1.0
    missing: bool = False
    log: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("mean", validate.number("mean", self.mean))
        self._set("deviation", validate.positive("deviation", self.deviation))
        self._set("missing", validate.flag("missing", self.missing))
        self._set("log", validate.flag("log", self.log))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The name of the column and, where values may be missing, that of the indicator."""
        return (self.name, f"{self.name} is missing") if self.missing else (self.name,)

    @property
    def summary(self) -> str:
        """The formula."""
        x = "sign(x) log(1 + |x|)" if self.log else "x"
        return f"({x} - {self.mean:.4g}) / {self.deviation:.4g}"

    def writer(self, at: int) -> Writer:
        """A function that writes one number; see `Column.writer`."""
        name, mean, deviation, gaps, log = self.name, self.mean, self.deviation, self.missing, self.log

        def write(out: Floats, value: Any) -> None:
            x = value if type(value) is float else number(value)
            if x is None:
                raise refused(name, NUMBER, value)
            if gaps and x != x:
                out[at + 1] = 1.0
                return
            if not -LARGEST <= x <= LARGEST:  # NaN is not, either
                raise refused(name, NUMBER, value)
            if log:
                x = math.copysign(math.log1p(abs(x)), x)
            z = (x - mean) / deviation
            if not -LARGEST <= z <= LARGEST:
                raise refused(name, f"numbers within {LARGEST:g} deviations of the mean", value)
            out[at] = z

        return write

    def fill(self, table: Table, out: Floats, at: int) -> None:
        """As for every column; without a loop over the rows where an array holds only numbers that are taken."""
        values = table.floats(self.name)
        z = None if values is None else self._scaled(values)
        if values is None or z is None:
            super().fill(table, out, at)  # takes other types, and names the row of what is refused
            return
        gaps = np.isnan(values)
        out[:, at] = np.where(gaps, 0.0, z)
        if self.missing:
            out[:, at + 1] = gaps

    def _scaled(self, values: Floats) -> Floats | None:
        """What `writer` computes, operation by operation; None where it would refuse one of the values."""
        x = values
        if self.log:  # the logarithm of `writer`: that of NumPy may round differently
            x = np.copysign(np.fromiter(map(math.log1p, np.abs(values)), np.float64, values.size), values)
        with np.errstate(over="ignore", invalid="ignore"):  # infinities are refused below
            z: Floats = (x - self.mean) / self.deviation
        taken = (np.abs(values) <= LARGEST) & (np.abs(z) <= LARGEST)
        return z if (taken | np.isnan(values) if self.missing else taken).all() else None
