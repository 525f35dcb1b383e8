"""Facts about arms before the first round: sizes, norms, columns, copies, rays and the spectrum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.lab.advice.groups import blocks, copies, nearby
from sketchbandits.lab.advice.spectrum import Spectrum, spectrum
from sketchbandits.partition.partition import COARSE_TOLERANCE, TOLERANCE

NEAR_COPY = 1e-6  # of the median norm: arms closer than this differ by rounding, not by meaning


@dataclass(frozen=True, repr=False)
class ArmFacts:
    """Facts about ``n_arms`` arms of ``dim`` features; `remarks` puts what matters into words.

    ``copies``, ``near_copies`` and ``rays`` are labels, one per arm: arms that share one are equal, equal up to
    `NEAR_COPY`, or on one line through 0 (-1 for a zero arm). Column statistics stand in the order of ``features``.
    """

    n_arms: int
    dim: int
    dtype: str
    tolerance: float
    norms: Floats
    least: Floats
    largest: Floats
    means: Floats
    deviations: Floats
    copies: Ints
    near_copies: Ints
    rays: Ints
    spectrum: Spectrum
    features: tuple[str, ...] | None
    ids: tuple[str, ...] | None

    def column(self, index: int) -> str:
        """The name of a column in quotes, or its number."""
        return f"{index}" if self.features is None else repr(self.features[index])

    def arm(self, index: int) -> str:
        """The id of an arm in quotes, or its number."""
        return f"{index}" if self.ids is None else repr(self.ids[index])

    @property
    def rank(self) -> int:
        """The dimension of the arms' span, at least 1."""
        return max(1, self.spectrum.rank)

    @property
    def arm_norm(self) -> float:
        """The largest norm, ``L``; 1 where all arms are zero."""
        return float(self.norms.max()) or 1.0

    @property
    def n_rays(self) -> int:
        """How many lines through 0 the arms lie on, at least 1."""
        return max(1, int(self.rays.max()) + 1 if self.rays.size else 1)

    @property
    def ray_spread(self) -> float:
        """The logarithm of the largest ratio of the norms of two arms on one line through 0."""
        on, spread = self.rays >= 0, np.full((2, self.n_rays), -np.inf)
        logs = np.log(self.norms[on])
        for sign, most in zip((1.0, -1.0), spread, strict=True):
            np.maximum.at(most, self.rays[on], sign * logs)
        return float(spread.sum(axis=0).max(initial=0.0))


def examine(
    arms: NDArray[Any],
    *,
    features: Sequence[str] | None,
    ids: Sequence[str] | None,
    rng: np.random.Generator,
    show: Callable[[float, str], None],
) -> ArmFacts:
    """Examine arms; their entries are checked here."""
    n, d = arms.shape
    names = _names("features", features, d), _names("ids", ids, n)
    show(0.0, f"reading {n:,} arms")
    norms, (least, largest, means, deviations) = _statistics(arms)
    tolerance = COARSE_TOLERANCE.get(arms.dtype.name, TOLERANCE)
    show(0.1, "searching for copies")
    same, near = copies(arms), nearby(arms, NEAR_COPY * float(np.median(norms)))
    show(0.4, "searching for parallel arms")
    rays = _compact(nearby(arms, tolerance, rays=True))
    found = spectrum(arms, tolerance, rng, lambda share: show(0.6 + 0.4 * share, "the spectrum"))
    columns = (least, largest, means, deviations)
    return ArmFacts(n, d, arms.dtype.name, tolerance, norms, *columns, same, near, rays, found, *names)


def _statistics(arms: NDArray[Any]) -> tuple[Floats, Floats]:
    """Norms of the rows; least, largest, mean and standard deviation of every column."""
    n, d = arms.shape
    norms, columns = np.empty(n), np.zeros((4, d))
    columns[0], columns[1] = np.inf, -np.inf
    shift = np.asarray(arms[0], dtype=np.float64)  # near the mean: squares of differences do not cancel
    squares = np.zeros(d)
    for start, rows in blocks(arms):
        validate.entries("arms", rows, start)
        norms[start : start + len(rows)] = np.linalg.norm(rows, axis=1)
        columns[0], columns[1] = np.minimum(columns[0], rows.min(axis=0)), np.maximum(columns[1], rows.max(axis=0))
        columns[2] += (rows - shift).sum(axis=0)
        squares += ((rows - shift) ** 2).sum(axis=0)
    columns[2] /= n
    columns[3] = np.sqrt(np.maximum(squares / n - columns[2] ** 2, 0.0))
    columns[2] += shift
    return norms, columns


def _compact(labels: Ints) -> Ints:
    """Labels 0, 1, ... without gaps; -1 stays."""
    kept = labels >= 0
    result = np.full(labels.size, -1, np.int64)
    result[kept] = np.unique(labels[kept], return_inverse=True)[1]
    return result


def _names(name: str, given: Sequence[str] | None, size: int) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or len(given) != size:
        found = repr(given) if isinstance(given, str) else f"{len(given)}"
        raise ValueError(f"{name} must be a sequence of {size} names, got {found}")
    return tuple(map(str, given))
