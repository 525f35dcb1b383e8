"""The pool: finds low-dimensional spans in a stream of vectors, from features alone, whatever their order.

It keeps unit vectors ``p_i`` that are independent: ``p_i = sum_j T_ji q_j`` with orthonormal ``q_j`` and triangular T.
A newcomer u that no cluster holds is written by them,

    u = sum_i c_i p_i ,   T c = Q u ,

which is unique, as they are independent. If its own subspace has as many vectors in the pool as dimensions, only those
have ``c_i != 0``: taken by falling ``|c_i|``, they hold u after a few, and their span opens a cluster. If u is not in
the span of the pool it joins; if it is, but few vectors do not do, or if the pool is full, the pool is emptied and
rests, each time longer until something is found, so that a stream without structure costs next to nothing.

**Finds** every subspace whose vectors, with those of all others that come meanwhile, are independent and fit the pool:
a union of subspaces whose dimensions sum to at most its rows, within one filling of the pool; a larger one when chance
has put enough vectors of one subspace into one filling.
**Cost** O(P d) for a vector that no cluster holds, with P <= d vectors in the pool; O(l^2 d) where a span is found.
**Reference** Writing a vector by few others of its own subspace is sparse subspace clustering (Elhamifar and Vidal,
TPAMI 2013).
**Departures** The others are independent, so that their weights need no optimisation; vectors come one at a time.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import ROUNDING, Floats, assign, remove_projection, scale
from sketchbandits.kernels.triangular import solve_upper

POOL = np.dtype(
    [
        ("size", np.int64),  # vectors held
        ("most", np.int64),  # how many there may be
        ("pause", np.int64),  # newcomers to ignore
        ("fruitless", np.int64),  # failures in a row
    ]
)


class Pool(NamedTuple):
    """Independent unit vectors, one per row, with preallocated rows for more."""

    vectors: Annotated[Floats, "p d"]
    basis: Annotated[Floats, "p d"]
    mix: Annotated[Floats, "p p"]  # T, by columns
    control: Annotated[NDArray[Any], "1", POOL]

    @staticmethod
    def of(dim: int, rows: int, most: int) -> "Pool":
        """An empty pool with ``rows`` preallocated rows, which may become ``most``."""
        control = np.zeros(1, POOL)
        control["most"] = most
        return Pool(np.zeros((rows, dim)), np.zeros((rows, dim)), np.zeros((rows, rows)), control)

    def grown(self) -> "Pool":
        """The same with twice the rows, or the most."""
        rows, dim = self.vectors.shape
        more = Pool.of(dim, min(2 * rows, int(self.control["most"][0])), 0)
        more.vectors[:rows], more.basis[:rows], more.mix[:rows, :rows] = self.vectors, self.basis, self.mix
        return more._replace(control=self.control)


def pool_bytes(dim: int, rows: int) -> int:
    """What a pool takes."""
    return 8 * (rows * (2 * dim + rows) + 4)


@kernel
def span_of_few(vectors: Floats, weights: Floats, most: int, u: Floats, tolerance: float, span: Floats) -> int:
    """Orthonormalise vectors by falling weight until their span holds u; its rank, or 0 where ``most`` do not do."""
    order = np.argsort(-np.abs(weights), kind="mergesort")  # stable: equal weights keep their order
    residual, coordinates = np.empty(u.size), np.empty(most)
    rank = 0
    for k in range(min(most, order.size)):
        row = span[rank]
        assign(row, vectors[order[k]])
        left = remove_projection(span[:rank], rank, row, coordinates)
        if left <= ROUNDING:
            continue
        scale(row, 1.0 / left)
        rank += 1
        assign(residual, u)
        if remove_projection(span, rank, residual, coordinates) <= tolerance:
            return rank
    return 0


@kernel
def meet(vectors: Floats, basis: Floats, mix: Floats, control: Any, u: Floats, tolerance: float, span: Floats) -> int:
    """Let a unit vector that no cluster holds meet the pool; the rank of the span found, written to ``span``, or 0.

    A span has no more dimensions than ``span`` has rows, and at least two: a vector on the line of another is passed
    over.
    """
    if control["pause"] > 0:
        control["pause"] -= 1
        return 0
    size = control["size"]
    residual, coordinates, weights = u.copy(), np.empty(size), np.empty(size)
    left = remove_projection(basis, size, residual, coordinates)
    if left > tolerance and size < control["most"]:
        scale(residual, 1.0 / left)
        assign(vectors[size], u)
        assign(basis[size], residual)
        assign(mix[:size, size], coordinates)
        mix[size, size] = left
        control["size"] += 1
        return 0
    rank = 0
    if left <= tolerance:
        solve_upper(mix[:size, :size], coordinates, weights)
        rank = span_of_few(vectors[:size], weights, span.shape[0], u, tolerance, span)
    if rank == 0:
        control["fruitless"] += 1
        control["pause"] = control["fruitless"] * size * size // u.size  # what it has cost, in bounds of the space
        control["size"] = 0
        return 0
    if rank == 1:
        return 0
    control["fruitless"] = 0
    return rank
