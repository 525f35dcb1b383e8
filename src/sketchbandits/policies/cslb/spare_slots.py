"""Preallocated slots for arms added later; `partition.growing_spans` says where a new arm belongs.

A free slot is an arm nobody can play: coordinates 0, bound -inf. Kernels need not know of it, and a cluster's numbers
stay where they are until its slots are used up; then their number doubles, and all clusters move, in O(N l): seldom
where arms keep coming to the same clusters, once per cluster where each gains one arm. A cluster that may still gain
rank has preallocated coordinates likewise, which are 0 for all its arms.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.cslb.coordinates import (
    CoordinateState,
    coordinates_of,
    estimate_of,
    frame_of,
    lay_out,
    refit,
    typed,
)
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CLUSTER,
    COUNT,
    FEW,
    LISTED,
    OFF_SPAN,
    OFFSET,
    SLOT,
    Record,
    new_clusters,
)
from sketchbandits.policies.cslb.shortlist import whitened_of
from sketchbandits.policies.cslb.tournament import fill_tree
from sketchbandits.policies.rounds import LOST, SUM

SPARE = 8  # one more cluster for so many, whenever a new one is needed


def with_slots(state: Any, sizes: Ints, ranks: Ints, scan: str) -> Any:
    """The same state with ``sizes[c]`` slots and ``ranks[c]`` coordinates for cluster c; new clusters at the end.

    Only clusters whose form changes (`layout.FEW` ...) are fitted again. O(N l), most of it copying.
    """
    old, control, n = state.clusters, state.control.copy(), int(sizes.sum())
    clusters = new_clusters(sizes, ranks, 0.0)
    clusters["sentinel"] = clusters["uncapped"] = -np.inf
    for name in old.dtype.names:
        if name not in ("start", "size", "rank"):
            clusters[name][: old.size] = old[name]
    fits = np.zeros(lay_out(control, clusters, scan))
    moved = np.arange(state.counts.size) + np.repeat(clusters["start"][: old.size] - old["start"], old["size"])
    clusters["best"][: old.size] = moved[old["best"]]
    stats = np.zeros((state.stats.shape[0], n))
    stats[OFFSET] = -np.inf
    stats[:, moved] = state.stats
    place = _moved_place(state.place, moved, n)
    new = state._replace(control=control, clusters=clusters, place=place, stats=stats, fits=fits)
    _move_clusters(state, new)
    fill_tree(control, clusters, fits)
    return typed(new) if isinstance(new, CoordinateState) else new


def _moved_place(place: Ints, moved: Ints, n: int) -> Ints:
    result = np.full((len(place), n), -1)
    known = place[SLOT] >= 0
    result[SLOT, : known.size][known] = moved[place[SLOT, known]]
    result[CLUSTER, : known.size] = place[CLUSTER]
    result[ARM_AT, moved] = place[ARM_AT]
    result[COUNT] = 0
    result[COUNT, moved] = place[COUNT]
    return result


def _move_clusters(old: Any, new: Any) -> None:
    """Copy the blocks of fits: in one piece between clusters that change, padded where one does."""
    k = old.clusters.size
    before, after = old.clusters, new.clusters[:k]
    # Shortlists name slots, which have moved: they are drawn anew.
    changed = (after["form"] == LISTED) | np.any([before[f] != after[f] for f in ("size", "rank", "form")], axis=0)
    ends = np.append(before["block"], old.control["tree"])
    start = 0
    for c in [*np.flatnonzero(changed).tolist(), k]:
        if c > start:
            length, to = ends[c] - ends[start], after["block"][start]
            new.fits[to : to + length] = old.fits[ends[start] : ends[c]]
        if c < k:
            _move_cluster(old, new, c)
        start = c + 1


def _move_cluster(old: Any, new: Any, c: int) -> None:
    """Copy one cluster into more slots; where its statistics take another form there, they are made again."""
    source, target = old.clusters[c], new.clusters[c]
    n, r, m, s = int(source["size"]), int(source["rank"]), int(target["size"]), int(target["rank"])
    for view in (coordinates_of, whitened_of):
        view(target, new.fits)[:r, :n] = view(source, old.fits)
    form = source["form"]
    if form != target["form"] or form == LISTED or r == 0:
        refit(new, c)
        return
    if form == FEW:
        core(target, new.fits, m)[:n, :n] = core(source, old.fits, n)
        return
    # Directions that no arm had: their part of V is the ridge, which is 1 in whitened coordinates.
    core(target, new.fits, s)[:] = np.eye(s)
    core(target, new.fits, s)[:r, :r] = core(source, old.fits, r)
    estimate_of(target, new.fits)[:r] = estimate_of(source, old.fits)
    frame_of(target, new.fits)[:] = np.eye(s) / np.sqrt(new.control["radius"]["ridge"][0])
    frame_of(target, new.fits)[:r, :r] = frame_of(source, old.fits)


def core(own: Record, fits: Floats, side: int) -> Floats:
    """The Gram matrix of a cluster of FEW arms, or the inverse of one of MANY."""
    start = int(own["core"])
    return fits[start : start + side * side].reshape(side, side)


def restore_rewards(state: Any, counts: Ints, sums: Floats, active: NDArray[np.bool_]) -> None:
    """Put every arm's count and sum (and what rounding lost of it) into a state without any, and fit it."""
    slots = state.place[SLOT, : counts.size]
    state.place[COUNT, slots] = counts
    state.stats[SUM, slots], state.stats[LOST, slots] = sums
    state.stats[OFFSET, slots[~active]] = -np.inf
    labels, k = state.place[CLUSTER, : counts.size], state.clusters.size
    state.clusters["samples"] = np.bincount(labels, counts, minlength=k)
    state.clusters["leak"] = np.bincount(labels, counts * state.stats[OFF_SPAN, slots] ** 2, minlength=k)
    state.control["round"] = 1 + counts.sum()
    for c in range(k):
        refit(state, c)
