"""Freeing removed arms of policies with clusters: a compact state of the arms that are kept.

What freed arms taught their cluster's fit is carried by a remainder (`policies.remainder`) of at most r arms in the
same cluster, which is as much a part of it as the arms were: the fits of all clusters stay what they were. The parts of
delta that clusters have stay too, and those of later ones are counted on from all that ever were: none is given out
twice.

A cluster none of whose arms is kept goes, with all it has learned: nothing that may be played is in it. The first one
stays, because parts of delta are counted from its. An arm that is added later to the span of one that is gone joins or
opens another cluster, which learns of it afresh.

**Guarantee** That of the policy: a cluster's fit holds all rewards of the arms that joined it, as before, and which
cluster a later arm joins is settled before its first reward. `repartition` would need the rewards of each arm by
itself, since clusters of other arms that were chosen after the rewards are known hold no longer all of their data.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb.coordinates import CoordinateState, coordinates_of, lay_out, refit, typed
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CAP,
    CLUSTER,
    COUNT,
    NONE,
    OFFSET,
    SLOT,
    Records,
    new_clusters,
)
from sketchbandits.policies.cslb.tournament import fill_tree
from sketchbandits.policies.remainder import Remainder, remainder_of
from sketchbandits.policies.rounds import LOST, SUM


class Plan(NamedTuple):
    """Who stays: arms and clusters by their old numbers, in order, and the internal arms that follow them."""

    kept: Ints
    clusters: Ints
    parts: list[Remainder]  # one per cluster that stays
    others: list[Remainder]  # of other scales: for clusters these are zero arms of the first
    labels: Ints  # the new cluster of every kept arm, then of those of ``parts``, then of ``others``


class Freed(NamedTuple):
    """What has gone since the partition was made: clusters, rays, and the rewards of single arms."""

    clusters: int
    rays: int
    rewards: int


NONE_FREED = Freed(0, 0, 0)


def make_plan(state: Any, labels: Ints, stay: NDArray[np.bool_], others: list[Remainder]) -> Plan:
    """Let the arms ``stay``, and the clusters that hold any of them."""
    kept, gone = np.flatnonzero(stay), np.flatnonzero(~stay)
    clusters = np.union1d([0], labels[kept])
    gone = gone[np.argsort(labels[gone], kind="stable")]
    ends = np.searchsorted(labels[gone], [clusters, clusters + 1])
    parts = [_remainder_in(state, int(c), gone[a:b]) for c, a, b in zip(clusters, *ends, strict=True)]
    sizes = [*(part.counts.size for part in parts), sum(part.counts.size for part in others)]
    internal = np.repeat([*range(clusters.size), 0], sizes)
    return Plan(kept, clusters, parts, others, np.concatenate([np.searchsorted(clusters, labels[kept]), internal]))


def _remainder_in(state: Any, c: int, arms: Ints) -> Remainder:
    """What these arms of cluster ``c`` taught it."""
    own, slots = state.clusters[c], state.place[SLOT, arms]
    Z = coordinates_of(own, state.fits)[:, slots - own["start"]]
    return remainder_of(Z, state.counts[slots], state.stats[SUM, slots] + state.stats[LOST, slots])


def compacted(state: Any, plan: Plan, scan: str, theta_norm: float) -> Any:
    """The state with the arms of ``plan`` and without free slots; every cluster is fitted again. O(N l + K l^3)."""
    sizes = np.bincount(plan.labels, minlength=plan.clusters.size)
    clusters = new_clusters(np.maximum(sizes, 1), state.clusters["rank"][plan.clusters], 0.0)
    for name in ("samples", "logdet", "share", "leak"):
        clusters[name] = state.clusters[name][plan.clusters]
    clusters["sentinel"] = clusters["uncapped"] = -np.inf
    control = state.control.copy()
    control["refit"] = NONE
    fits = np.zeros(lay_out(control, clusters, scan))
    fill_tree(control, clusters, fits)
    place = _place_of(plan, clusters)
    stats = _stats_in(state, plan, place, theta_norm)
    new = state._replace(control=control, clusters=clusters, place=place, stats=stats, fits=fits)
    new = typed(new) if isinstance(new, CoordinateState) else new
    slots = np.split(
        state.place[SLOT, plan.kept[np.argsort(plan.labels[: plan.kept.size], kind="stable")]], _ends(plan)
    )
    for c, part in enumerate(plan.parts):
        old, own = state.clusters[plan.clusters[c]], coordinates_of(new.clusters[c], fits)
        n, end = slots[c].size, slots[c].size + part.counts.size
        own[:, :n], own[:, n:end] = coordinates_of(old, state.fits)[:, slots[c] - old["start"]], part.columns
        refit(new, c)
    return new


def _ends(plan: Plan) -> Ints:
    """Where in a list of the kept arms by cluster one cluster ends and the next begins."""
    ends: Ints = np.cumsum(np.bincount(plan.labels[: plan.kept.size], minlength=plan.clusters.size))[:-1]
    return ends


def _place_of(plan: Plan, clusters: Records) -> Ints:
    """Arms in slots, sorted by cluster: of one cluster its kept arms, in order, then the internal ones."""
    n, labels = plan.labels.size, plan.labels
    order = np.argsort(labels, kind="stable")
    before = np.cumsum(np.bincount(labels, minlength=clusters.size)) - np.bincount(labels, minlength=clusters.size)
    place = np.full((4, int(clusters["size"].sum())), -1)
    place[SLOT, order] = clusters["start"][labels[order]] + np.arange(n) - before[labels[order]]
    place[CLUSTER, :n] = labels
    place[ARM_AT, place[SLOT, :n]] = np.arange(n)
    place[COUNT] = 0
    return place


def _stats_in(state: Any, plan: Plan, place: Ints, theta_norm: float) -> Floats:
    """The statistics of the kept arms as they were, those of internal ones, which may not be played, and all counts."""
    kept, first = state.place[SLOT, plan.kept], plan.kept.size
    stats = np.zeros((state.stats.shape[0], place.shape[1]))
    stats[OFFSET] = -np.inf
    stats[:, place[SLOT, :first]] = state.stats[:, kept]
    place[COUNT, place[SLOT, :first]] = state.counts[kept]
    for part in plan.parts:
        slots = place[SLOT, first : first + part.counts.size]
        place[COUNT, slots], stats[SUM, slots] = part.counts, part.sums
        stats[CAP, slots] = theta_norm * np.linalg.norm(part.columns, axis=0)
        first += part.counts.size
    return stats


def rows_of(plan: Plan, partition: Partition) -> Floats:
    """The features of the internal arms: those of remainders, and 0 for all others."""
    rows = np.zeros((plan.labels.size - plan.kept.size, partition.bases.shape[1]))
    first = 0
    for c, part in zip(plan.clusters.tolist(), plan.parts, strict=True):
        basis, end = partition.basis(c), first + part.counts.size
        rows[first:end] = part.columns[: len(basis)].T @ basis
        first = end
    return rows


def partition_of(partition: Partition, plan: Plan) -> Partition:
    """The clusters that stay, with the bases that they had."""
    bases = np.concatenate([partition.basis(c) for c in plan.clusters.tolist()])
    ranks = partition.ranks[plan.clusters]
    return Partition.from_arrays(plan.labels.copy(), ranks, bases, partition.sketch_size, partition.tolerance)
