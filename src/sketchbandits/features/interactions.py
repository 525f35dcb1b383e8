"""Products of columns: each output of one times each output of another, so that a linear model can combine them."""

from collections.abc import Sequence
from itertools import product
from typing import Any

from sketchbandits.features.column import Column
from sketchbandits.features.values import unknown
from sketchbandits.kernels.linalg import Floats

TIMES = " × "  # noqa: RUF001 - the sign, not the letter
Interaction = tuple[str, ...]


def checked(interactions: Any, columns: Sequence[Column]) -> tuple[Interaction, ...]:
    """Pairs or triples of names of different columns, each set of columns once."""
    allowed = "pairs or triples of names of columns"
    if not isinstance(interactions, (list, tuple)):
        raise ValueError(f"interactions must be a list of {allowed}, got {interactions!r}")
    names, seen = [column.name for column in columns], set()
    for i, group in enumerate(interactions):
        if not isinstance(group, (list, tuple)) or not 2 <= len(group) <= 3:
            raise ValueError(f"interactions must be {allowed}, got {group!r} at [{i}]")
        for name in group:
            if name not in names:
                raise unknown(f"interactions[{i}]", name, names)
        if len(set(group)) < len(group) or frozenset(group) in seen:
            raise ValueError(f"interactions must be of different columns, each once, got {tuple(group)!r} at [{i}]")
        seen.add(frozenset(group))
    return tuple(map(tuple, interactions))


def outputs(blocks: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """The name of every product; that of the last block changes fastest."""
    return tuple(TIMES.join(names) for names in product(*blocks))


def multiply(out: Floats, blocks: Sequence[slice], target: slice) -> None:
    """Write the products of some blocks of the rows of ``out`` (or of a vector) into another block of it."""
    result = out[..., blocks[0]]
    for block in blocks[1:]:
        products = result[..., :, None] * out[..., None, block]
        result = products.reshape(*out.shape[:-1], products.shape[-2] * products.shape[-1])
    out[..., target] = result
