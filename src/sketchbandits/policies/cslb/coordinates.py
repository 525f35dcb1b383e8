"""CS-LB's fast engine: every cluster's ridge fit in the coordinates of its span, O(r^2 + |C| r) per round.

All arms of a cluster lie in one subspace of dimension r <= l, known after warm-up. Means and squared widths of its arms
follow each pull by one rank-one step (`whitening.ridge_step`), in coordinates whitened by the data so far
(`whitening.whiten`). Equal to Algorithms 1-3 in exact arithmetic.

A cluster's block of ``fits`` holds its coordinates, its whitened coordinates, (rank x size) each, and its *core*. The
core of a cluster of at most 2 r arms (FEW) is the Gram matrix ``Z V^-1 Z'`` (size x size). That of a larger one (MANY)
is the inverse ``V^-1`` in whitened coordinates (rank x rank), the estimate, and the map to those coordinates: whichever
makes a round cheaper. That of a huge one (LISTED) is a fit with its shortlists (`shortlist`); there ``stats`` are those
of the last time that all arms were evaluated.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from sketchbandits.confidence import FIXED
from sketchbandits.kernels.borrowed import borrowed
from sketchbandits.kernels.compiled import inlined_kernel, kernel
from sketchbandits.kernels.linalg import MAX_GROWTH, MAX_STEP, MAX_STEPS, ROUNDING, Floats, Ints, identity
from sketchbandits.kernels.whitening import evaluate, gram, gram_step, ridge_step, whiten
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb.layout import (
    ARM_AT,
    CLUSTER_RECORD,
    CONTROL_RECORD,
    COUNT,
    FEW,
    LISTED,
    MANY,
    NONE,
    OFF_SPAN,
    Lists,
    Record,
    Records,
    new_clusters,
    new_control,
    new_place,
    new_stats,
    record,
)
from sketchbandits.policies.cslb.sentinel import next_slot
from sketchbandits.policies.cslb.shortlist import (
    LEAST_ARMS,
    core_length,
    evaluate_all,
    fit_of,
    start_lists,
    step_listed,
    whitened_of,
)
from sketchbandits.policies.cslb.tournament import fill_tree, n_leaves
from sketchbandits.policies.parameters import Shared
from sketchbandits.policies.rounds import (
    AFTER,
    BEFORE,
    CHOOSE,
    DONE,
    LOST,
    MEAN,
    PLAY,
    RENEW,
    SUM,
    WIDTH2,
    next_event,
    register,
)


class CoordinateState(NamedTuple):
    """CS-LB in coordinates; `layout` explains the arrays."""

    control: Annotated[Records, "1", CONTROL_RECORD]
    clusters: Annotated[Records, "k", CLUSTER_RECORD]
    place: Annotated[Ints, "4 s"]
    stats: Annotated[Floats, "7 s"]
    fits: Annotated[Floats, "f"]

    @property
    def choice(self) -> Ints:
        """The next arm."""
        choice: Ints = self.control["choice"]
        return choice

    @property
    def counts(self) -> Ints:
        """Per slot: rewards recorded."""
        return self.place[COUNT]


class ListedState(CoordinateState):
    """The same where some cluster keeps shortlists: a type of its own, for which kernels are compiled with them."""

    __slots__ = ()


def typed(state: CoordinateState) -> CoordinateState:
    """A state as the type that its clusters need."""
    listed = (state.clusters["form"] == LISTED).any()
    return (ListedState if listed else CoordinateState)(*state)


def lay_out(control: Records, clusters: Records, scan: str) -> int:
    """Say for each cluster how its statistics are kept and where; returns how many numbers ``fits`` must hold."""
    n, r = clusters["size"], clusters["rank"]
    least = {"auto": LEAST_ARMS, "shortlist": 1, "full": np.iinfo(np.int64).max}[scan]
    many = np.where((n >= least) & (r > 0), LISTED, MANY)
    clusters["form"] = np.where(n <= 2 * r, FEW, many)
    cores = np.where(clusters["form"] == FEW, n**2, 2 * r**2 + r)
    for c in np.flatnonzero(clusters["form"] == LISTED):
        cores[c] = core_length(int(n[c]), int(r[c]))
    lengths = 2 * n * r + cores
    clusters["block"] = np.cumsum(lengths) - lengths
    clusters["core"] = clusters["block"] + 2 * n * r
    control["tree"], control["leaves"] = lengths.sum(), n_leaves(clusters.size)
    control["work"] = control["tree"] + 4 * control["leaves"]
    return int(control["work"][0] + n.sum() + 2 * r.max() + 2)


class Setting(NamedTuple):
    """What the state of a policy with clusters is built from."""

    shared: Shared
    radius: Records
    capped: bool
    log_share: float
    scan: str
    rows: int  # of ``stats``


def build(arms: Floats, partition: Partition, setting: Setting) -> CoordinateState:
    """The state before the first reward."""
    control = new_control(setting.radius, capped=setting.capped)
    sizes = np.bincount(partition.labels, minlength=partition.n_clusters)
    clusters = new_clusters(sizes, partition.ranks, setting.log_share)
    place = new_place(partition)
    stats = new_stats(partition, arms, place, setting.shared, capped=setting.capped, rows=setting.rows)
    fits = np.zeros(lay_out(control, clusters, setting.scan))
    rows = np.concatenate([[0], np.cumsum(partition.ranks)])
    for c, own in enumerate(clusters):
        members = place[ARM_AT, own["start"] : own["start"] + own["size"]]
        coordinates_of(own, fits)[:] = partition.bases[rows[c] : rows[c + 1]] @ arms[members].T
        fit_without_rewards(own, stats, fits, float(setting.radius["ridge"][0]))
    fill_tree(control, clusters, fits)
    return typed(CoordinateState(control, clusters, place, stats, fits))


def coordinates_of(own: Record, fits: Floats) -> Floats:
    """A cluster's coordinates, (rank x size), for Python."""
    r, n = int(own["rank"]), int(own["size"])
    return fits[own["block"] : own["block"] + r * n].reshape(r, n)


def fit_without_rewards(own: Record, stats: Floats, fits: Floats, ridge: float) -> None:
    """What `refit_cluster` makes of a cluster without rewards, uncompiled: a first decision need not wait for it."""
    if own["rank"] == 0:
        return
    r, first, n = int(own["rank"]), int(own["start"]), int(own["size"])
    Z, start = coordinates_of(own, fits), int(own["core"])
    W = fits[start - r * n : start].reshape(r, n)
    W[:] = np.where(np.abs(Z) > ROUNDING * np.sqrt((Z**2).sum(axis=0)), Z / np.sqrt(ridge), 0.0)
    stats[MEAN, first : first + n], stats[WIDTH2, first : first + n] = 0.0, (W**2).sum(axis=0)
    if own["form"] == FEW:
        fits[start : start + n * n] = (W.T @ W).ravel()
        return
    fits[start : start + r * r] = np.eye(r).ravel()
    if own["form"] == MANY:
        frame_of(own, fits)[:] = np.eye(r) / np.sqrt(ridge)
    else:
        start_lists(own, fits, np.zeros(r))


@kernel
def estimate_of(own: Record, fits: Floats) -> Floats:
    """The estimate of a cluster of MANY arms, in whitened coordinates."""
    r = own["rank"]
    start = own["core"] + r * r
    return fits[start : start + r]


@kernel
def frame_of(own: Record, fits: Floats) -> Floats:
    """The map from the coordinates of a cluster of MANY arms to its whitened ones."""
    r = own["rank"]
    start = own["core"] + r * r + r
    return fits[start : start + r * r].reshape(r, r)


@kernel
def refit_cluster(control: Record, own: Record, place: Ints, stats: Floats, fits: Floats) -> None:
    """Statistics of a cluster from its per-arm counts and sums alone, in freshly whitened coordinates."""
    first, n, r, form = own["start"], own["size"], own["rank"], own["form"]
    own["growth"] = 1.0
    own["steps"] = 0
    if r == 0:
        return
    Z, W = fits[own["block"] : own["block"] + r * n].reshape(r, n), whitened_of(own, fits)
    if form == MANY:
        theta, frame = estimate_of(own, fits), frame_of(own, fits)
    else:
        theta, frame = fits[control["work"] : control["work"] + r], np.empty((r, r))
    arms, counts, ridge = stats[:, first : first + n], place[COUNT, first : first + n], control["radius"]["ridge"]
    own["logdet"] = whiten(Z, counts, arms[SUM], arms[LOST], ridge, W, theta, frame)
    evaluate(W, theta, arms[MEAN], arms[WIDTH2])
    start = own["core"]
    if form == FEW:
        gram(W, fits[start : start + n * n].reshape(n, n))
    elif form == MANY:
        identity(fits[start : start + r * r].reshape(r, r))
    else:
        start_lists(own, fits, theta)


@kernel
def refit(state: Any, c: int) -> None:
    """`refit_cluster` on a state."""
    refit_cluster(state.control[0], state.clusters[c], state.place, state.stats, state.fits)


def refit_due(state: Any) -> None:
    """The refit that a step has asked for; without one, of the first cluster, which changes nothing but last bits."""
    refit(state, max(0, int(state.control["refit"][0])))


def settled(state: Any) -> None:
    """A refit that was due, and the choice after it, are done."""
    state.control["refit"] = NONE


@kernel
def step_many(own: Record, stats: Floats, fits: Floats, work: int, slot: int, reward: float) -> float:
    """A pull in a cluster of many arms."""
    first, n, r, start = own["start"], own["size"], own["rank"], own["core"]
    A, theta = fits[start : start + r * r].reshape(r, r), estimate_of(own, fits)
    mean, width2 = stats[MEAN, first : first + n], stats[WIDTH2, first : first + n]
    error, u = reward - stats[MEAN, slot], fits[work : work + 2 * r + n]
    D = ridge_step(A, whitened_of(own, fits), mean, width2, u, slot - first, reward)
    if 1.0 <= D <= MAX_STEP:
        for k in range(r):
            theta[k] += u[k] * error / D
    return D


@kernel
def is_sound(own: Record, D: float) -> bool:
    """Count a step that multiplied det V by ``D``; False where the cluster needs a refit instead."""
    if not 1.0 <= D <= MAX_STEP:
        return False
    own["growth"] *= D
    own["steps"] += 1
    return own["growth"] <= MAX_GROWTH and own["steps"] < MAX_STEPS


@inlined_kernel
def step_cluster(
    control: Record, own: Record, stats: Floats, fits: Floats, slot: int, reward: float, lists: Lists
) -> float:
    """A pull in its cluster's fit; returns the factor by which det V grows."""
    own["leak"] += stats[OFF_SPAN, slot] ** 2
    first, work = own["start"], control["work"]
    if own["form"] == FEW:
        return gram_step(fits, own["core"], work, stats, first, own["size"], slot - first, reward)
    if lists is not None and own["form"] == LISTED:
        return step_listed(own, fits, whitened_of(own, fits), work, slot - first, reward)
    return step_many(own, stats, fits, work, slot, reward)


@inlined_kernel
def flat_step(
    control: Records, clusters: Records, place: Ints, stats: Floats, fits: Floats, arm: int, reward: float, lists: Lists
) -> int:
    """`rounds.general_step` on the state's fields: Python passes arrays in half the time that their tuple takes.

    Arm -1 stands for a choice without a reward. Where the radius is a user's function, Python asks it in between.
    """
    head = control[0]
    if arm >= 0:
        if head["refit"] != NONE:
            return BEFORE
        slot = record(head, clusters, place, stats, arm, reward)
        c = head["changed"]
        own = clusters[c]
        if not is_sound(own, step_cluster(head, own, stats, fits, slot, reward, lists)):
            head["refit"] = c
            return AFTER
        if head["radius"]["kind"] == FIXED:
            return DONE
    head["choice"] = place[ARM_AT, next_slot(head, clusters, stats, fits, lists)]
    return DONE


@kernel
def loop_with(
    state: Any, events: Records, payoffs: Floats, noise: Floats, total: Floats, mode: int, start: int, lists: Lists
) -> int:
    """`rounds.general_loop` with the round in line."""
    control, clusters, place = borrowed(state.control), borrowed(state.clusters), borrowed(state.place)
    stats, fits = borrowed(state.stats), borrowed(state.fits)
    head = control[0]
    for t in range(start, noise.size if mode == PLAY else events.size):
        arm, reward = next_event(head["choice"], events, payoffs, noise, total, mode, t)
        if arm < 0:
            continue
        code = flat_step(control, clusters, place, stats, fits, arm, reward, lists)
        if code != DONE:
            return t if code == BEFORE else t + 1
    return -1


@kernel
def evaluate_listed(own: Record, fits: Floats, stats: Floats) -> None:
    """Bring the columns of a cluster with shortlists up to date in ``stats``, a copy: nothing of the state changes."""
    first, n = own["start"], own["size"]
    arms = stats[:, first : first + n]
    evaluate_all(fit_of(own, fits), own["pulls"], whitened_of(own, fits), arms[MEAN], arms[WIDTH2], np.empty(n))


def current_stats(state: Any) -> Floats:
    """The statistics of every slot as of the last reward."""
    listed = np.flatnonzero(state.clusters["form"] == LISTED)
    if not listed.size:
        stats: Floats = state.stats
        return stats
    stats = state.stats.copy()
    for c in listed.tolist():
        evaluate_listed(state.clusters[c], state.fits, stats)
    return stats


def _register(state_type: type, lists: Lists) -> None:
    def step(state: CoordinateState, arm: int, reward: float, mode: int) -> int:
        control, clusters, place, stats, fits = state
        return flat_step(control, clusters, place, stats, fits, -1 if mode in (CHOOSE, RENEW) else arm, reward, lists)

    def loop(state: Any, *rounds: Any) -> int:
        result: int = loop_with(state, *rounds, lists)  # type: ignore[call-arg]
        return result

    register(state_type, refit=refit_due, settled=settled, step=step, loop=loop)


_register(CoordinateState, None)
_register(ListedState, True)
