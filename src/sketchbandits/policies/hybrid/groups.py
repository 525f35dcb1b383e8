"""The coordinates of arms in the hybrid model: one cluster of full rank where that is affordable, else CS-LB's."""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.partition.partition import Partition

MOST = 512  # numbers in a shared fit, p r, up to which one cluster holds all arms
ROUNDING = 1e-9  # singular values below this share of the largest, and distances from a span, are none


class Groups(NamedTuple):
    """Every arm's cluster and coordinates, of mean square 1; ``constant``: whether the last one is a constant 1."""

    cluster: Ints
    coordinates: Floats
    constant: bool


def groups_of(arms: Floats, p: int, sketch_size: int | None, *, as_given: bool = False) -> Groups:
    """The groups of these arms for contexts of length ``p`` (with their constant).

    ``as_given``: neither scaled nor with a constant, so that norms are those of the user's own coefficients.
    """
    finish = _as_given if as_given else _with_constant
    if sketch_size is None:
        # A guarantee holds for short arms beside long ones: there every arm counts by its direction.
        _, sigma, directions = np.linalg.svd(_unit(arms) if as_given else arms, full_matrices=False)
        rank = int((sigma > ROUNDING * sigma[0]).sum()) if sigma.size and sigma[0] > 0.0 else 0
        if p * (rank + 1) <= MOST or rank <= 1:
            return finish(np.zeros(len(arms), np.int64), arms @ directions[:rank].T)
        sketch_size = max(1, MOST // p - 1)
    partition = Partition.first_fit(arms, sketch_size=sketch_size)
    coordinates = np.zeros((len(arms), int(partition.ranks.max(initial=0))))
    for k, rank in enumerate(partition.ranks.tolist()):
        own = partition.labels == k
        coordinates[own, :rank] = arms[own] @ partition.basis(k).T
    return finish(partition.labels.astype(np.int64), coordinates)


def _unit(arms: Floats) -> Floats:
    norms = np.linalg.norm(arms, axis=1, keepdims=True)
    return np.divide(arms, norms, out=np.zeros_like(arms), where=norms > 0.0)


def _as_given(cluster: Ints, coordinates: Floats) -> Groups:
    none = coordinates.shape[1] == 0  # all arms are zero
    return Groups(cluster, np.zeros((len(cluster), 1)) if none else np.ascontiguousarray(coordinates), False)


def _with_constant(cluster: Ints, coordinates: Floats) -> Groups:
    """Scaled, and with a constant where the coordinates of the clusters do not span one."""
    square = float((coordinates**2).sum(axis=1).mean())
    if square > 0.0:
        coordinates = coordinates / np.sqrt(square)
    if all(_spans_one(coordinates[cluster == k]) for k in np.unique(cluster).tolist()):
        return Groups(cluster, np.ascontiguousarray(coordinates), False)
    switchable = coordinates.shape[1] > 0  # without features the constant is all that arms share
    return Groups(cluster, np.column_stack([coordinates, np.ones(len(cluster))]), switchable)


def _spans_one(rows: Floats) -> bool:
    if rows.shape[1] == 0:
        return False
    fitted = rows @ np.linalg.lstsq(rows, np.ones(len(rows)))[0]
    return float(np.abs(fitted - 1.0).max()) < np.sqrt(ROUNDING)
