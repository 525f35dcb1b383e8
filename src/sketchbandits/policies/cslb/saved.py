"""What a saved state with clusters must obey beyond its layout: compiled code, which checks no index, trusts it."""

from typing import Any

import numpy as np

from sketchbandits.policies.cslb.coordinates import lay_out
from sketchbandits.policies.cslb.layout import ARM_AT, CLUSTER, COUNT, EVERY, LISTED, NONE, SLOT
from sketchbandits.policies.cslb.shortlist import REACH, capacity, list_of
from sketchbandits.policies.cslb.tournament import fill_tree, n_leaves
from sketchbandits.snapshot import Saved, within

_ANY = 2**62


def check_places(saved: Saved, state: Any, n_arms: int, dim: int) -> None:
    """Arms, slots and clusters name each other within bounds, and clusters divide the slots among them."""
    clusters, slots, k = state.clusters, state.stats.shape[1], state.clusters.size
    within(saved, "state.place[SLOT]", state.place[SLOT, :n_arms], 0, slots - 1)
    within(saved, "state.place[CLUSTER]", state.place[CLUSTER, :n_arms], 0, k - 1)
    within(saved, "state.place[ARM_AT]", state.place[ARM_AT], -1, n_arms - 1)
    within(saved, "state.place[COUNT]", state.place[COUNT], 0, _ANY)
    within(saved, "slots for all arms", slots - n_arms, 0, _ANY)
    _same(saved, "state.place[ARM_AT]", state.place[ARM_AT, state.place[SLOT, :n_arms]], np.arange(n_arms))
    within(saved, "state.clusters[size]", clusters["size"], 0, slots)
    within(saved, "state.clusters[rank]", clusters["rank"], 0, dim)
    _same(saved, "state.clusters[start]", clusters["start"], np.cumsum(clusters["size"]) - clusters["size"])
    _same(saved, "slots of all clusters", clusters["size"].sum(), slots)
    used = clusters[clusters["size"] > 0]
    within(saved, "state.clusters[best], from the first slot", used["best"] - used["start"], 0, slots - 1)
    within(saved, "state.clusters[best], from the last slot", used["start"] + used["size"] - used["best"], 1, slots)
    of_slots = np.repeat(np.arange(k), clusters["size"])
    _same(saved, "state.place[CLUSTER]", of_slots[state.place[SLOT, :n_arms]], state.place[CLUSTER, :n_arms])
    within(saved, "state.control[round]", state.control["round"], 1, _ANY)
    check_numbers(saved, state, "stats", "fits", "control", "clusters")
    within(saved, "state.control[changed]", state.control["changed"], EVERY, k - 1)
    within(saved, "state.control[refit]", state.control["refit"], NONE, k - 1)


def check_fits(saved: Saved, state: Any, scan: str) -> None:
    """Every cluster's block stands where its size, rank and form put it."""
    control, clusters = state.control.copy(), state.clusters.copy()
    length = lay_out(control, clusters, scan)
    for name in ("form", "block", "core"):
        _same(saved, f"state.clusters[{name}]", state.clusters[name], clusters[name])
    for name in ("tree", "leaves", "work"):
        _same(saved, f"state.control[{name}]", state.control[name], control[name])
    _same(saved, "length of state.fits", state.fits.size, length)
    _check_tree(saved, state)
    for own in state.clusters[clusters["form"] == LISTED]:
        first, n = int(own["start"]), int(own["size"])
        within(saved, "state.clusters[pulls]", own["pulls"], 0, _ANY)
        for k, name in enumerate(("outer", "inner")):
            within(saved, f"state.clusters[{name}]", own[name], 0, capacity(n, k))
            drawn = own[name] > 0 or list_of(own, state.fits, k).mark[REACH] == -np.inf
            if not drawn:
                raise ValueError(f"path must hold arms in every shortlist that is in use, got none in {saved.path!r}")
            within(saved, "shortlists", list_of(own, state.fits, k).slots[: own[name]], first, first + n - 1)


def check_literal(saved: Saved, state: Any) -> None:
    """The literal engine keeps the tournament and scratch space only."""
    leaves = n_leaves(state.clusters.size)
    _same(saved, "state.control[leaves]", state.control["leaves"], leaves)
    _same(saved, "state.control[tree]", state.control["tree"], 0)
    _same(saved, "state.control[work]", state.control["work"], 4 * leaves)
    _same(saved, "length of state.fits", state.fits.size, 4 * leaves + state.stats.shape[1] + 2)
    _check_tree(saved, state)
    within(saved, "state.clusters[form]", (state.clusters["form"] == LISTED).astype(np.int64), 0, 0)


def _check_tree(saved: Saved, state: Any) -> None:
    """The tournament is that of the clusters' sentinels: a search in another one could end anywhere."""
    start, leaves = int(state.control["tree"][0]), int(state.control["leaves"][0])
    expected = np.array(state.fits[: start + 4 * leaves])
    fill_tree(state.control, state.clusters, expected)
    _same(saved, "tournament in state.fits", state.fits[start : start + 4 * leaves], expected[start:])


def check_numbers(saved: Saved, state: Any, *names: str) -> None:
    """Refuse NaN, which no statistics of a policy ever become, in these arrays."""
    for name in names:
        if _has_nan(getattr(state, name)):
            raise ValueError(f"path must hold numbers in state.{name}, got NaN in {saved.path!r}")


def _has_nan(array: Any) -> bool:
    if array.dtype.names is not None:
        return any(_has_nan(array[name]) for name in array.dtype.names)
    return array.dtype.kind == "f" and bool(np.isnan(array).any())


def _same(saved: Saved, name: str, found: Any, expected: Any) -> None:
    if not np.array_equal(np.ravel(found), np.ravel(expected)):
        raise ValueError(f"path must hold {name} as its clusters imply, got another in {saved.path!r}")
