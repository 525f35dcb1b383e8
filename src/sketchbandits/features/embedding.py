"""Vectors, such as embeddings of text or images: projected to a few dimensions, by a fitted PCA or a seeded matrix."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.features.column import Column, Writer
from sketchbandits.features.values import missing, refused
from sketchbandits.kernels.linalg import ROUNDING, Floats, matvec
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.validate import LARGEST

MOST_NUMBERS = 1_048_576  # of a projection: 8 MiB, whose random directions take about a second
RANK = 1e-10  # a variance below this share of the largest is rounding noise


@dataclass(frozen=True, eq=False)
class Embedding(Column):
    """A vector v becomes ``components @ (v - mean)``. Made by `fit`, from data, or by `random`, from a seed.

    Parameters
    ----------
    name
        The name of the column.
    length
        The length of the vectors.
    size
        The number of outputs, from 1 to ``length``.
    seed
        The projection is made from this seed, a whole number below 2⁶⁴: see `random` (default None: it is given).
    components, mean
        The projection, of shape (size, length), and what is subtracted before: see `fit`.
    missing
        Whether a value may be missing (default False: it is refused). If so, all outputs are 0 and a last one is 1.

    """

    kind: ClassVar[str] = "embedding"

    length: int = 1
    size: int = 1
    seed: int | None = None
    components: ArrayLike | None = None
    mean: ArrayLike | None = None
    missing: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("length", validate.whole("length", self.length, most=MOST_NUMBERS))
        self._set("size", validate.whole("size", self.size, most=min(self.length, MOST_NUMBERS // self.length)))
        self._set("missing", validate.flag("missing", self.missing))
        given = self.components is not None, self.mean is not None
        if self.seed is None and not all(given):
            raise ValueError("components must be given with mean, or else a seed, got none")
        if self.seed is not None and any(given):
            raise ValueError(f"seed must be left out where there are components or a mean, got {self.seed!r}")
        rows, mean = self._seeded() if self.seed is not None else self._given()
        for field, array in (("components", rows), ("mean", mean)):
            array.setflags(write=False)
            self._set(field, array)

    @classmethod
    def fit(cls, name: str, matrix: ArrayLike, size: int, *, missing: bool = False) -> Self:
        """The projection to the ``size`` directions in which the rows of ``matrix`` differ most (PCA).

        Outputs are scaled by one factor, so that their mean squared norm over these rows is 1.
        """
        data = validate.matrix("matrix", matrix)
        column = cls.fit_at_most(name, data, validate.whole("size", size, most=data.shape[1]), missing=missing)
        if column is None or column.size < size:
            rank = 0 if column is None else column.size
            raise ValueError(f"size must be at most the rank of the centred matrix, {rank}, got {size}")
        return column

    @classmethod
    def fit_at_most(cls, name: str, data: Floats, size: int, *, missing: bool = False) -> Self | None:
        """As `fit`, in fewer directions where rows differ in fewer; None where they are all the same."""
        mean = data.mean(axis=0)
        unit = float(np.abs(data - mean).max())  # squares of large numbers would overflow
        centred = (data - mean) / (unit or 1.0)
        with one_blas_thread():
            variances, directions = np.linalg.eigh(centred.T @ centred / len(data))
        kept = np.flatnonzero(variances > max(RANK * variances[-1], 0.0))[::-1][:size]
        if not kept.size or unit <= ROUNDING * float(np.abs(data).max()):
            return None
        rows = _signed(directions[:, kept].T) / (unit * variances[kept].sum() ** 0.5)
        return cls(name, data.shape[1], kept.size, components=rows, mean=mean, missing=missing)

    @classmethod
    def random(cls, name: str, length: int, size: int, seed: int = 0, *, missing: bool = False) -> Self:
        """The projection to ``size`` orthonormal directions made from a seed, which needs no data.

        It is scaled by ``sqrt(length / size)``: averaged over seeds, an output has the squared norm of the vector,
        which is 1 for most embeddings. The same seed gives the same directions on every machine, but for rounding.
        """
        return cls(name, length, size, seed=seed, missing=missing)

    def _seeded(self) -> tuple[Floats, Floats]:
        rows = orthonormal(self.size, self.length, validate.whole("seed", self.seed, least=0, most=2**64 - 1))
        return rows * (self.length / self.size) ** 0.5, np.zeros(self.length)

    def _given(self) -> tuple[Floats, Floats]:
        rows = validate.matrix("components", cast(ArrayLike, self.components), columns=self.length)
        if len(rows) != self.size:
            raise ValueError(f"components must have {self.size} rows, as size says, got {len(rows)}")
        return rows, validate.vector("mean", cast(ArrayLike, self.mean), size=self.length)

    @property
    def outputs(self) -> tuple[str, ...]:
        """One for each direction and, where values may be missing, that of the indicator."""
        return (*(f"{self.name}~{i}" for i in range(self.size)), *[f"{self.name} is missing"] * self.missing)

    @property
    def summary(self) -> str:
        """The lengths before and after."""
        how = "PCA" if self.seed is None else f"random directions, seed {self.seed}"
        return f"{self.length} numbers projected to {self.size}, {how}"

    def writer(self, at: int) -> Writer:
        """A function that writes the projection of one vector; see `Column.writer`."""
        rows, mean = cast(Floats, self.components), cast(Floats, self.mean)
        name, length, stop, gaps = self.name, self.length, at + self.size, self.missing
        allowed = f"vectors of {length} finite numbers"

        def write(out: Floats, value: Any) -> None:
            x = vector(value)
            if x is None or x.size != length:
                if not missing(value) or not gaps:
                    raise refused(name, allowed, value)
                out[stop] = 1.0
                return
            matvec(rows, x - mean, out[at:stop])

        return write

    def to_dict(self) -> dict[str, Any]:
        """As for every column: a random projection as its seed, a fitted one as the bytes of its arrays in base64."""
        entries = {"kind": self.kind, "name": self.name, "length": self.length, "size": self.size}
        if self.seed is not None:
            return {**entries, "seed": self.seed, "missing": self.missing}
        arrays = {field: _to_text(cast(Floats, getattr(self, field))) for field in ("mean", "components")}
        return {**entries, **arrays, "missing": self.missing}

    @classmethod
    def from_dict(cls, entries: Mapping[str, Any]) -> Self:
        """The column that `to_dict` described."""
        arrays = {field: _from_text(field, entries[field]) for field in ("mean", "components") if field in entries}
        if "components" in arrays:
            length = validate.whole("length", entries.get("length"))
            if arrays["components"].size % length:
                raise ValueError(f"components must be rows of {length} numbers, got {arrays['components'].size} in all")
            arrays["components"] = arrays["components"].reshape(-1, length)
        return super().from_dict({**entries, **arrays})

    def __eq__(self, other: object) -> bool:
        return self.to_dict() == other.to_dict() if isinstance(other, Embedding) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.name, self.length, self.size, self.seed))


def orthonormal(size: int, length: int, seed: int) -> Floats:
    """``size`` orthonormal rows: those of Q in the factorisation QR of raw Philox draws, with a positive diagonal of R.

    Raw draws, mapped to [-1, 1), are the same in every version of NumPy, and the signs make Q unique.
    """
    raw = np.random.Philox(key=seed).random_raw(size * length).astype(np.uint64)
    draws = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0
    with one_blas_thread():  # others would wait for each other, on a busy machine for seconds
        q, r = np.linalg.qr(draws.reshape(size, length).T)
    return np.ascontiguousarray((q * np.where(np.diag(r) < 0.0, -1.0, 1.0)).T)


def _signed(rows: Floats) -> Floats:
    """Rows whose largest entry is positive: eigenvectors are found up to their sign."""
    largest = np.abs(rows).argmax(axis=1)[:, None]
    return rows * np.sign(np.take_along_axis(rows, largest, axis=1))


def vector(value: Any) -> Floats | None:
    """A fresh vector of finite numbers, None for anything else."""
    try:
        array: NDArray[Any] = np.asarray(value)
    except (TypeError, ValueError):  # a ragged list
        return None
    if array.dtype.kind not in "iufb" or array.ndim != 1 or not array.size or np.ma.is_masked(value):
        return None
    result = array.astype(np.float64)
    return result if np.abs(result).max() <= LARGEST else None


def _to_text(array: Floats) -> str:
    return base64.b64encode(array.astype("<f8").tobytes()).decode("ascii")


def _from_text(field: str, text: Any) -> Floats:
    """The numbers that `_to_text` wrote."""
    allowed = f"{field} must be float64 numbers, little-endian, in base64"
    if not isinstance(text, str):
        raise ValueError(f"{allowed}, got {text!r}")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise ValueError(f"{allowed}, got text that is not base64") from None
    if len(data) % 8 or not data:
        raise ValueError(f"{allowed}, got {len(data)} bytes, no multiple of 8")
    return np.frombuffer(data, "<f8").astype(np.float64)
