"""Free-form text, tags and values with too many variants to list: signed hashing into a fixed number of outputs."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np

from sketchbandits import validate
from sketchbandits.features.column import MOST_OUTPUTS, Column, Writer
from sketchbandits.features.values import TEXT, missing, refused, text
from sketchbandits.kernels.linalg import Floats

LISTS = (list, tuple, set, frozenset, np.ndarray)
CACHED = 200  # characters of the longest token that is remembered
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Hashed(Column):
    """A value becomes +1 or -1 at a place that a hash function chooses; a list of k values, ±1/√k at each place.

    Different values may share a place; as signs are as good as random, what they add cancels out on average. Inner
    products of encoded values are 1 for equal and on average 0 for different values. The hash function is BLAKE2b, the
    same on every machine. Values are compared as text, as in `Categorical`; repeated ones in a list count once.

    Parameters
    ----------
    name
        The name of the column.
    size
        How many places there are (default 32). More make collisions rarer, and vectors longer.
    seed
        Of the hash function, a whole number below 2⁶⁴ (default 0).
    words
        Cut text into words (runs of letters and digits, in lower case), and treat it as the list of them (default
        False: a text is one value, as it is). Elements of lists are never cut.
    missing
        Whether a value may be missing (default False: it is refused). If so, all places are 0 and a last output is 1.

    """

    kind: ClassVar[str] = "hashed"

    size: int = 32
    seed: int = 0
    words: bool = False
    missing: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._set("size", validate.whole("size", self.size, most=MOST_OUTPUTS - 1))
        self._set("seed", validate.whole("seed", self.seed, least=0, most=2**64 - 1))
        self._set("words", validate.flag("words", self.words))
        self._set("missing", validate.flag("missing", self.missing))

    @property
    def outputs(self) -> tuple[str, ...]:
        """One for each place and, where values may be missing, that of the indicator."""
        return (*(f"{self.name}#{i}" for i in range(self.size)), *[f"{self.name} is missing"] * self.missing)

    @property
    def summary(self) -> str:
        """What is hashed."""
        return f"{'words' if self.words else 'values'} hashed to {self.size} places"

    def writer(self, at: int) -> Writer:
        """A function that writes the hashes of one value; see `Column.writer`."""
        name, size, seed, cut, gaps = self.name, self.size, self.seed, self.words, self.missing

        def write(out: Floats, value: Any) -> None:
            if gaps and missing(value):
                out[at + size] = 1.0
                return
            tokens = _tokens(value, cut)
            if None in tokens:
                raise refused(name, f"{TEXT}, or a list of such", value)
            _add(out, at, tokens, size, seed)

        return write


def _tokens(value: Any, cut: bool) -> set[str | None]:
    """The different texts in a value, None among them where it holds something else."""
    if isinstance(value, LISTS):
        return {None} if isinstance(value, np.ndarray) and value.ndim != 1 else set(map(text, value))
    one = text(value)
    return {one} if one is None or not cut else set(WORD.findall(one.lower()))


def _add(out: Floats, at: int, tokens: Iterable[Any], size: int, seed: int) -> None:
    """Count signs at each place, which is exact in any order, and scale them by the number of tokens."""
    counts: dict[int, int] = {}
    many = 0
    for token in tokens:
        place, sign = (_remembered if len(token) <= CACHED else _place)(token, size, seed)
        counts[place] = counts.get(place, 0) + sign
        many += 1
    for place, count in counts.items():
        out[at + place] = count / many**0.5


def _place(token: str, size: int, seed: int) -> tuple[int, int]:
    """Where a token goes, and its sign: the last bit of eight bytes, the others modulo the number of places."""
    data = token.encode("utf-8", "surrogatepass")
    bits = int.from_bytes(blake2b(data, digest_size=8, key=seed.to_bytes(8, "little")).digest(), "little")
    return (bits >> 1) % size, 1 - 2 * (bits & 1)


_remembered = lru_cache(maxsize=65_536)(_place)
