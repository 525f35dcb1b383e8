"""Exact search in huge clusters: shortlists, so that a round need not examine every arm.

At some moment s every arm's mean ``m_s`` and width ``w_s`` (the V_s^-1 norm) are known. Later, at t,

    m_t(i) + beta_t w_t(i)  <=  m_s(i) + (beta_t + ||theta_t - theta_s||_{V_s}) w_s(i)

by Cauchy-Schwarz and since widths only shrink. So keep the arms with the largest ``m_s + reach w_s`` for a ``reach``
a little above beta, and the largest such value of the others, ``rest``: as long as beta plus the estimate's way stays
within reach and the best bound of the list is above ``rest``, that is the best bound of *all* arms, ties included.

Two lists, one inside the other (1/16 and 1/256 of the arms): the inner one is kept up to date by one rank-one step per
pull; when it no longer proves the winner of the outer list, the outer list is evaluated and the inner one drawn again;
when that does not prove the winner of the cluster, all arms are evaluated. The margin between beta and reach adapts:
wider after a list was left behind by the estimate, narrower after its rest was reached. Where arms are so alike that
lists never help (a million duplicates), and in the first rounds, a round costs up to three times what a scan of the
cluster does.

**Cost** O(r^2 + |C| r/256) per round while the lists hold; drawing them again O(|C| r) after few pulls, O(|C| r^2)
after many. The estimate moves by about ``sqrt(r/t)`` per round, so that lists last for a share of t: O(ln t) draws in
t rounds.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import MAX_STEP, TILE, Floats, assign, combine, dot, downdate, tie_threshold
from sketchbandits.kernels.whitening import spread
from sketchbandits.policies.cslb.layout import (
    CAP,
    OFFSET,
    TOP,
    UNCAPPED_TOP,
    Record,
    first_capped_slot,
    first_slot,
)
from sketchbandits.policies.rounds import MEAN, WIDTH2

LEAST_ARMS = 4096  # clusters from this size on keep shortlists, unless asked otherwise
OUTER, INNER = 16, 256  # the lists hold at most this part of the arms
KEPT_PULLS = 4  # pulls that are applied to all arms one by one; after more the arms are evaluated afresh
SLACK, CHANGE = 0.05, 1.5  # how far reach begins above the radius, as a share of it, and how that adapts
SLACK_RANGE = (1e-4, 1.0)
REACH, MARGIN, REST, REST_CAPPED = range(4)  # entries of a list's ``mark``
STATS = 6  # rows of a list's statistics, as in the state's ``stats``


class Fit(NamedTuple):
    """A cluster's ridge fit in whitened coordinates: V and its inverse A, the estimate, and the latest pulls."""

    A: Floats
    V: Floats
    theta: Floats
    pulls: Floats  # per pull u = A w, then (reward - mean)/D and 1/D


class List(NamedTuple):
    """A shortlist: the fit at the moment it was drawn, its mark, and its arms."""

    V: Floats
    theta: Floats
    mark: Floats
    stats: Floats
    store: Floats  # what W is a part of
    W: Floats
    slots: Floats  # whole numbers


@kernel
def capacity(n: int, k: int) -> int:
    """How many arms list ``k`` of a cluster of ``n`` may hold."""
    return max(1, n // (OUTER if k == 0 else INNER))


@kernel
def fit_length(r: int) -> int:
    """How many numbers a `Fit` takes."""
    return 2 * r * r + r + KEPT_PULLS * (r + 2)


@kernel
def list_length(n: int, r: int, k: int) -> int:
    """How many numbers list ``k`` takes."""
    return r * r + r + 4 + capacity(n, k) * (STATS + r + 1)


def core_length(n: int, r: int) -> int:
    """How many numbers the fit and the lists of a cluster take."""
    return fit_length(r) + list_length(n, r, 0) + list_length(n, r, 1)


@kernel
def fit_of(own: Record, fits: Floats) -> Fit:
    """Views of a cluster's fit."""
    r, a = own["rank"], own["core"]
    b = a + r * r
    c = b + r * r
    d = c + r
    pulls = fits[d : d + KEPT_PULLS * (r + 2)].reshape(KEPT_PULLS, r + 2)
    return Fit(fits[a:b].reshape(r, r), fits[b:c].reshape(r, r), fits[c:d], pulls)


@kernel
def list_of(own: Record, fits: Floats, k: int) -> List:
    """Views of list ``k``."""
    n, r, size = own["size"], own["rank"], own["inner"] if k == 1 else own["outer"]
    start = own["core"] + fit_length(r)
    if k == 1:
        start += list_length(n, r, 0)
    m = capacity(n, k)
    b = start + r * r
    c = b + r
    d = c + 4
    e = d + STATS * m
    f = e + r * m
    return List(
        fits[start:b].reshape(r, r),
        fits[b:c],
        fits[c:d],
        fits[d:e].reshape(STATS, m),
        fits[e:f],
        fits[e : e + r * size].reshape(r, size),
        fits[f : f + m],
    )


@kernel
def start_lists(own: Record, fits: Floats, theta: Floats) -> None:
    """A fresh fit, V = I in newly whitened coordinates, all arms evaluated; the lists are void until they are drawn."""
    fit, r = fit_of(own, fits), own["rank"]
    for i in range(r):
        for j in range(r):
            fit.A[i, j] = fit.V[i, j] = 1.0 if i == j else 0.0
    assign(fit.theta, theta)
    own["pulls"] = own["outer"] = own["inner"] = 0
    for k in range(2):
        mark = list_of(own, fits, k).mark
        mark[REACH] = -np.inf
        if mark[MARGIN] == 0.0:
            mark[MARGIN] = SLACK


@kernel
def step_listed(own: Record, fits: Floats, W: Floats, work: int, j: int, reward: float) -> float:
    """A pull of column ``j`` in a cluster with shortlists: the fit and the inner list follow; the growth of det V."""
    r, size = own["rank"], own["inner"]
    fit, inner = fit_of(own, fits), list_of(own, fits, 1)
    u, w = fits[work : work + r], fits[work + r : work + 2 * r]
    assign(w, W[:, j])
    combine(w, fit.A, u)
    D = 1.0 + dot(w, u)
    if not 1.0 <= D <= MAX_STEP:
        return D
    scale = 1.0 / D
    error = (reward - dot(w, fit.theta)) * scale
    downdate(fit.A, u, scale)
    downdate(fit.V, w, -1.0)
    for k in range(r):
        fit.theta[k] += u[k] * error
    g = fits[work + 2 * r : work + 2 * r + size]
    combine(u, inner.W, g)
    spread(inner.stats[MEAN, :size], inner.stats[WIDTH2, :size], g, error, scale)
    if own["pulls"] < KEPT_PULLS:
        pull = fit.pulls[own["pulls"]]
        assign(pull[:r], u)
        pull[r] = error
        pull[r + 1] = scale
    own["pulls"] += 1
    return D


@kernel
def evaluate_in(fit: Fit, W: Floats, mean: Floats, width2: Floats) -> None:
    """Means and squared widths ``w'A w = ||F w||^2`` of whitened columns, ``F`` an upper triangle. Cost O(n r^2)."""
    r, n = W.shape
    F = np.ascontiguousarray(np.linalg.cholesky(fit.A).T)
    tile, row = np.empty((r, TILE)), np.empty(TILE)
    combine(fit.theta, W, mean)
    for first in range(0, n, TILE):
        size = min(TILE, n - first)
        for k in range(r):
            assign(tile[k, :size], W[k, first : first + size])
        for i in range(size):
            width2[first + i] = 0.0
        for k in range(r):
            combine(F[k, k:], tile[k:], row[:size])
            for i in range(size):
                width2[first + i] += row[i] * row[i]


@kernel
def evaluate_all(fit: Fit, pulls: int, W: Floats, mean: Floats, width2: Floats, g: Floats) -> None:
    """Bring means and squared widths of all arms up to date, ``pulls`` pulls after they were."""
    if pulls > KEPT_PULLS:
        evaluate_in(fit, W, mean, width2)
        return
    r = fit.theta.size
    for k in range(pulls):
        combine(fit.pulls[k, :r], W, g)
        spread(mean, width2, g, fit.pulls[k, r], fit.pulls[k, r + 1])


@kernel
def cut(keys: Floats, most: int) -> float:
    """A value that at most ``most`` keys reach, and not many fewer, unless more tie with the largest."""
    n = keys.size
    if most >= n:
        return -np.inf
    size = min(n, 1024)
    sample = np.empty(size)
    for i in range(size):
        sample[i] = keys[i * n // size]
    sample.sort()
    rank = size * most // n * 4 // 5
    while True:
        value, reached = sample[size - 1 - rank], 0
        for i in range(n):
            reached += keys[i] >= value
        if reached <= most or rank == 0:
            return value
        rank = rank * 3 // 4


@kernel
def draw(fit: Fit, beta: float, stats: Floats, W: Floats, slots: Floats, into: List, keys: Floats) -> int:
    """Draw a list from arms whose statistics are up to date; return its size."""
    n, r, most = keys.size, fit.theta.size, into.slots.size
    reach = beta * (1.0 + into.mark[MARGIN])
    for i in range(n):
        keys[i] = stats[MEAN, i] + reach * np.sqrt(stats[WIDTH2, i])
    least = cut(keys, most)
    size, rest, rest_capped = 0, -np.inf, -np.inf
    chosen = np.empty(most, np.int64)
    for i in range(n):
        if keys[i] >= least and size < most:
            chosen[size] = i
            size += 1
        else:
            rest = max(rest, keys[i])
            rest_capped = max(rest_capped, min(keys[i], stats[CAP, i]))
    for row in (MEAN, WIDTH2, CAP, OFFSET):
        for i in range(size):
            into.stats[row, i] = stats[row, chosen[i]]
    for k in range(r):
        for i in range(size):
            into.store[k * size + i] = W[k, chosen[i]]
    for i in range(size):
        into.slots[i] = slots[chosen[i]]
    into.mark[REACH], into.mark[REST], into.mark[REST_CAPPED] = reach, rest, rest_capped
    assign(into.theta, fit.theta)
    for k in range(r):
        assign(into.V[k], fit.V[k])
    return size


@kernel
def in_reach(fit: Fit, near: List, beta: float, change: Floats) -> bool:
    """Whether beta and the way of the estimate since the list was drawn stay within its reach."""
    r = fit.theta.size
    for k in range(r):
        change[k] = fit.theta[k] - near.theta[k]
    way2 = 0.0
    for k in range(r):
        way2 += change[k] * dot(near.V[k], change)
    within = beta + np.sqrt(max(way2, 0.0)) * (1.0 + 1e-9) <= near.mark[REACH]
    if not within and near.mark[REACH] > -np.inf:
        near.mark[MARGIN] = min(near.mark[MARGIN] * CHANGE, SLACK_RANGE[1])
    return within


@kernel
def above_rest(near: List, top: float, uncapped: float) -> bool:
    """Whether no arm outside the list can be the first by (capped bound, uncapped bound, lowest index)."""
    rest, rest_capped = near.mark[REST], near.mark[REST_CAPPED]
    above = rest_capped < tie_threshold(top) or (rest_capped <= top and rest < tie_threshold(uncapped))
    if not above:
        near.mark[MARGIN] = max(near.mark[MARGIN] / CHANGE, SLACK_RANGE[0])
    return above


@kernel
def first_of_list(control: Record, listed: List, size: int, beta: float, fits: Floats) -> int:
    """The place in a list of the arm with the largest bound."""
    if control["capped"] == 1:
        return first_capped_slot(listed.stats, 0, size, beta, fits, control["work"])
    return first_slot(listed.stats, 0, size, beta, fits, control["work"])


@kernel
def best_of_lists(control: Record, own: Record, fit: Fit, fits: Floats, beta: float) -> int:
    """The slot with the largest bound as far as the lists can tell; -1 where they cannot answer for the cluster."""
    outer, inner, work = list_of(own, fits, 0), list_of(own, fits, 1), control["work"]
    change = fits[work : work + own["rank"]]
    if not in_reach(fit, outer, beta, change):
        return -1
    slot, m = -1, own["outer"]
    if in_reach(fit, inner, beta, change):
        i = first_of_list(control, inner, own["inner"], beta, fits)
        if above_rest(inner, fits[TOP], fits[UNCAPPED_TOP]):
            slot = int(inner.slots[i])
    if slot < 0:
        evaluate_in(fit, outer.W, outer.stats[MEAN, :m], outer.stats[WIDTH2, :m])
        slot = int(outer.slots[first_of_list(control, outer, m, beta, fits)])
        own["inner"] = draw(fit, beta, outer.stats, outer.W, outer.slots, inner, fits[work : work + m])
    return slot if above_rest(outer, fits[TOP], fits[UNCAPPED_TOP]) else -1


@kernel
def best_listed(control: Record, own: Record, stats: Floats, fits: Floats, beta: float) -> int:
    """The slot of a cluster with the largest bound; its value goes to ``fits`` as `first_slot` leaves it."""
    fit = fit_of(own, fits)
    slot = best_of_lists(control, own, fit, fits, beta)
    if slot >= 0:
        return slot
    first, n, work = own["start"], own["size"], control["work"]
    W, arms = whitened_of(own, fits), stats[:, first : first + n]
    evaluate_all(fit, own["pulls"], W, arms[MEAN], arms[WIDTH2], fits[work : work + n])
    own["pulls"] = 0
    if control["capped"] == 1:
        best = first_capped_slot(stats, first, first + n, beta, fits, work)
    else:
        best = first_slot(stats, first, first + n, beta, fits, work)
    slots = np.empty(n)
    for i in range(n):
        slots[i] = first + i
    own["outer"] = draw(fit, beta, arms, W, slots, list_of(own, fits, 0), fits[work : work + n])
    outer = list_of(own, fits, 0)
    keys = fits[work : work + own["outer"]]
    own["inner"] = draw(fit, beta, outer.stats, outer.W, outer.slots, list_of(own, fits, 1), keys)
    return best


@kernel
def whitened_of(own: Record, fits: Floats) -> Floats:
    """A cluster's whitened coordinates, (rank x size)."""
    r, n = own["rank"], own["size"]
    start = own["block"] + r * n
    return fits[start : start + r * n].reshape(r, n)
