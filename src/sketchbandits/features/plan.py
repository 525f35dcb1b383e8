"""Where the outputs of columns and interactions stand in a vector, and how they get there."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from sketchbandits.features import interactions
from sketchbandits.features.column import Column
from sketchbandits.features.frames import Table, check_names
from sketchbandits.features.interactions import Interaction
from sketchbandits.kernels.linalg import Floats


class Plan:
    """The blocks of a schema, in the order of columns and then of interactions; made once, never changed."""

    def __init__(self, columns: Sequence[Column], groups: Sequence[Interaction], known: Sequence[str]) -> None:
        self.columns, self.known = columns, tuple(known)
        self.known_set = frozenset(known)
        self.outputs = {column.name: column.outputs for column in columns}
        starts = list(accumulate((len(names) for names in self.outputs.values()), initial=0))
        self.blocks = {name: slice(*ends) for name, *ends in zip(self.outputs, starts, starts[1:], strict=False)}
        self.products: list[tuple[list[slice], slice]] = []
        self.dim = starts[-1]
        for group in groups:
            blocks = [self.blocks[name] for name in group]
            size = int(np.prod([block.stop - block.start for block in blocks]))
            self.products.append((blocks, slice(self.dim, self.dim + size)))
            self.dim += size
        self.groups = groups
        self.writers: list[tuple[str, Callable[[Floats, Any], None]]] = [
            (column.name, column.writer(self.blocks[column.name].start)) for column in columns
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every output."""
        names = [name for block in self.outputs.values() for name in block]
        for group in self.groups:
            names += interactions.outputs([self.outputs[name] for name in group])
        return tuple(names)

    def vector(self, record: Mapping[str, Any]) -> Floats:
        """The outputs of one record."""
        if not record.keys() <= self.known_set:
            check_names("record", record, self.known)
        out = np.zeros(self.dim)
        get = record.get
        for name, write in self.writers:
            write(out, get(name))
        for blocks, target in self.products:
            interactions.multiply(out, blocks, target)
        return out

    def matrix(self, table: Table) -> Floats:
        """The outputs of every row: what `vector` gives for each of them, bit for bit."""
        table.check(self.known, self.outputs)
        out = np.zeros((table.rows, self.dim))
        for column in self.columns:
            column.fill(table, out, self.blocks[column.name].start)
        for blocks, target in self.products:
            interactions.multiply(out, blocks, target)
        return out


def total(columns: Sequence[Column], groups: Sequence[Interaction]) -> int:
    """The number of outputs, without making anything."""
    sizes = {column.name: len(column.outputs) for column in columns}
    products = [1] * len(groups)
    for i, group in enumerate(groups):
        for name in group:
            products[i] *= sizes[name]
    return sum(sizes.values()) + sum(products)
