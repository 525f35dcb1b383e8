"""State files of CS-LB of version 0.1.0 (format 1): rows of numbers become the records and blocks of `layout`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.policies.cslb.coordinates import lay_out
from sketchbandits.policies.cslb.layout import CLUSTER_RECORD, LISTED, NONE, Record, Records, new_control
from sketchbandits.policies.cslb.shortlist import STATS, capacity, fit_length
from sketchbandits.policies.cslb.tournament import fill_tree, n_leaves
from sketchbandits.policies.format_1 import radius_of
from sketchbandits.snapshot import Saved, take

# Columns of what were the arrays ``shape`` and ``level``; the rest of ``shape`` said where a cluster's numbers stood.
_SHAPE = ("start", "rank", "samples", "best", "steps", "form")
_COORDINATES, _CORE, _LISTS = 6, 7, 8
_LEVEL = ("logdet", "growth", "beta", "sentinel", "uncapped", "share", "leak")


def convert_clusters(saved: Saved, engine: str, scan: str) -> None:
    """Replace the arrays of a policy with clusters, of either engine."""
    shape, clock = take(saved, "state.shape"), take(saved, "state.clock")
    control = new_control(radius_of(take(saved, "state.radius")), capped=bool(clock[2]))
    control["round"], control["changed"] = clock[:2]
    control["first_clusters"], control["partitions"], control["refit"] = clock[3], clock[4], NONE
    if engine != "sketch":
        control["choice"] = take(saved, "state.choice")
    clusters = _clusters(shape, take(saved, "state.level"))
    place = take(saved, "state.place")
    saved.arrays["state.place"] = np.concatenate([place, take(saved, "state.counts")[None]])
    for name in ("state.tree", "state.work"):
        take(saved, name)
    saved.arrays.update({"state.control": control, "state.clusters": clusters})
    if engine == "sketch":
        saved.arrays["state.fits"] = _scratch(control, clusters, place.shape[1])
    else:
        saved.arrays["state.fits"] = _fits(saved, control, clusters, shape, scan)
    fill_tree(control, clusters, saved.arrays["state.fits"])


def _clusters(shape: NDArray[np.int64], level: NDArray[np.float64]) -> Records:
    clusters = np.zeros(len(level), CLUSTER_RECORD)
    for column, name in enumerate(_SHAPE):
        clusters[name] = shape[:-1, column]
    for column, name in enumerate(_LEVEL):
        clusters[name] = level[:, column]
    clusters["size"] = np.diff(shape[:, 0])
    clusters["best"] = np.maximum(clusters["best"], clusters["start"])  # 0 where it was not needed
    return clusters


def _scratch(control: Records, clusters: Records, slots: int) -> NDArray[np.float64]:
    """The tournament and scratch space of the literal engine."""
    control["leaves"] = n_leaves(clusters.size)
    control["work"] = 4 * control["leaves"]
    return np.zeros(int(control["work"][0]) + slots + 2)


def _fits(saved: Saved, control: Records, clusters: Records, shape: NDArray[np.int64], scan: str) -> Any:
    """The blocks of every cluster: coordinates, whitened coordinates, core."""
    fits = np.zeros(lay_out(control, clusters, scan))
    parts = {name: take(saved, f"state.{name}") for name in ("coordinates", "whitened", "core", "listed")}
    for own, row, after in zip(clusters, shape, shape[1:], strict=False):
        a, b = row[_COORDINATES], after[_COORDINATES]
        start = own["block"]
        fits[start : start + b - a] = parts["coordinates"][a:b]
        fits[start + b - a : start + 2 * (b - a)] = parts["whitened"][a:b]
        core, listed = parts["core"][row[_CORE] : after[_CORE]], parts["listed"][row[_LISTS] : after[_LISTS]]
        if own["form"] == LISTED:
            _convert_lists(own, fits, core, listed)
        else:
            fits[own["core"] : own["core"] + core.size] = core
    return fits


def _convert_lists(own: Record, fits: Any, core: NDArray[np.float64], listed: NDArray[np.int64]) -> None:
    """The fit of a cluster with shortlists; the slots of each list now stand behind its numbers."""
    n, r = int(own["size"]), int(own["rank"])
    own["pulls"], own["outer"], own["inner"] = listed[:3]
    at, to, slots = fit_length(r), int(own["core"]) + fit_length(r), 3
    fits[own["core"] : to] = core[:at]
    for k in range(2):
        m = capacity(n, k)
        length = r * r + r + 4 + m * (STATS + r)
        fits[to : to + length] = core[at : at + length]
        fits[to + length : to + length + m] = listed[slots : slots + m]
        at, to, slots = at + length, to + length + m, slots + m
