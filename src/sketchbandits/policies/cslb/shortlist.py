"""Exact search in huge clusters: shortlists, so that a round need not look at every arm.

At some moment s every arm's mean ``m_s`` and width ``w_s`` (the V_s^-1 norm) are known. Later, at t,

    m_t(i) + beta_t w_t(i)  <=  m_s(i) + (beta_t + ||theta_t - theta_s||_{V_s}) w_s(i)

by Cauchy-Schwarz and since widths only shrink. So keep the arms with the largest ``m_s + reach w_s`` for a ``reach``
a little above beta, and the largest such value of the others, ``rest``: as long as beta plus the estimate's way stays
within reach and the best bound of the list is above ``rest``, that is the best bound of *all* arms, ties included.

Two lists, one inside the other (1/16 and 1/256 of the arms): the inner one is kept up to date by a rank-one step a
pull; where it can no longer answer for the outer list, the outer list is evaluated and the inner one drawn anew; where
that cannot answer for the cluster, all arms are. The room between beta and reach adapts: wider after a list was left
behind by the estimate, narrower after its rest was reached. Where arms are so alike that lists never help (a million
duplicates), and in the first rounds, a round costs up to three times what a scan of the cluster does.

**Cost** O(r^2 + |C| r/256) a round while the lists hold; drawing them anew O(|C| r) after few pulls, O(|C| r^2) after
many. The estimate moves by about ``sqrt(r/t)`` a round, so that lists last for a share of t: O(ln t) draws in t rounds.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import (
    MAX_STEP,
    TILE,
    Floats,
    Ints,
    assign,
    combine,
    dot,
    downdate,
    spread,
    tie_threshold,
)
from sketchbandits.policies.cslb.layout import (
    A_START,
    CAP,
    CAPPED,
    L_START,
    OFFSET,
    RANK,
    START,
    TOP,
    UNCAPPED_TOP,
    Z_START,
    first_in,
)
from sketchbandits.policies.rounds import MEAN, WIDTH2

LEAST_ARMS = 4096  # clusters from this size on keep shortlists, unless asked otherwise
OUTER, INNER = 16, 256  # the lists hold at most this part of the arms
KEPT_PULLS = 4  # pulls that are applied to all arms one by one; after more the arms are evaluated afresh
SLACK, CHANGE = 0.05, 1.5  # room for the radius at the start, as a share of it, and how it adapts
SLACK_RANGE = (1e-4, 1.0)
REACH, ROOM, REST, REST_CAPPED = range(4)  # entries of a list's ``mark``
PULLS, SIZES = 0, 1  # entries of ``listed``: pulls since all arms were evaluated, sizes of the lists, then their slots
HEAD = 3
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
    W: Floats
    slots: Ints


@kernel
def capacity(n: int, k: int) -> int:
    """How many arms list ``k`` of a cluster of ``n`` may hold."""
    return max(1, n // (OUTER if k == 0 else INNER))


def room_for(n: int, r: int) -> tuple[int, int]:
    """How many floats and whole numbers the lists of a cluster take."""
    held = capacity(n, 0) + capacity(n, 1)
    fit = 2 * r * r + r + KEPT_PULLS * (r + 2)
    return fit + 2 * (r * r + r + 4) + held * (STATS + r), HEAD + held


@kernel
def fit_of(core: Floats, a: int, r: int) -> Fit:
    """Views of a cluster's fit, which starts at ``core[a]``."""
    b = a + r * r
    c = b + r * r
    d = c + r
    pulls = core[d : d + KEPT_PULLS * (r + 2)].reshape(KEPT_PULLS, r + 2)
    return Fit(core[a:b].reshape(r, r), core[b:c].reshape(r, r), core[c:d], pulls)


@kernel
def list_of(core: Floats, listed: Ints, a: int, l: int, n: int, r: int, k: int) -> List:
    """Views of list ``k``."""
    start = a + 2 * r * r + r + KEPT_PULLS * (r + 2)
    slot = l + HEAD
    if k == 1:
        start += r * r + r + 4 + capacity(n, 0) * (STATS + r)
        slot += capacity(n, 0)
    m, size = capacity(n, k), listed[l + SIZES + k]
    b = start + r * r
    c = b + r
    d = c + 4
    e = d + STATS * m
    return List(
        core[start:b].reshape(r, r),
        core[b:c],
        core[c:d],
        core[d:e].reshape(STATS, m),
        core[e : e + r * size].reshape(r, size),
        listed[slot : slot + m],
    )


@kernel
def start_lists(core: Floats, listed: Ints, a: int, l: int, n: int, r: int, theta: Floats) -> None:
    """A fresh fit, V = I in newly whitened coordinates, all arms evaluated; the lists are void until they are drawn."""
    fit = fit_of(core, a, r)
    for i in range(r):
        for j in range(r):
            fit.A[i, j] = fit.V[i, j] = 1.0 if i == j else 0.0
    assign(fit.theta, theta)
    listed[l + PULLS] = 0
    for k in range(2):
        listed[l + SIZES + k] = 0
        mark = list_of(core, listed, a, l, n, r, k).mark
        mark[REACH] = -np.inf
        if mark[ROOM] == 0.0:
            mark[ROOM] = SLACK


@kernel
def step_listed(
    shape: Ints, whitened: Floats, core: Floats, listed: Ints, work: Floats, c: int, slot: int, reward: float
) -> float:
    """A pull in a cluster with shortlists: the fit and the inner list follow. Returns det V's growth."""
    n, r, a, l = shape[c + 1, START] - shape[c, START], shape[c, RANK], shape[c, A_START], shape[c, L_START]
    fit, inner = fit_of(core, a, r), list_of(core, listed, a, l, n, r, 1)
    W = whitened[shape[c, Z_START] : shape[c + 1, Z_START]].reshape(r, n)
    u, w = work[:r], work[r : 2 * r]
    assign(w, W[:, slot - shape[c, START]])
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
    size = listed[l + SIZES + 1]
    g = work[2 * r : 2 * r + size]
    combine(u, inner.W, g)
    spread(inner.stats[MEAN, :size], inner.stats[WIDTH2, :size], g, error, scale)
    if listed[l + PULLS] < KEPT_PULLS:
        pull = fit.pulls[listed[l + PULLS]]
        assign(pull[:r], u)
        pull[r] = error
        pull[r + 1] = scale
    listed[l + PULLS] += 1
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
def draw(fit: Fit, beta: float, stats: Floats, W: Floats, slots: Ints, into: List, flat: Floats, keys: Floats) -> int:
    """Draw a list from arms whose statistics are up to date; return its size. ``flat`` is where its W stands."""
    n, r, most = keys.size, fit.theta.size, into.slots.size
    reach = beta * (1.0 + into.mark[ROOM])
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
            flat[k * size + i] = W[k, chosen[i]]
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
        near.mark[ROOM] = min(near.mark[ROOM] * CHANGE, SLACK_RANGE[1])
    return within


@kernel
def above_rest(near: List, top: float, uncapped: float) -> bool:
    """Whether no arm outside the list can be the first by (capped bound, uncapped bound, lowest index)."""
    rest, rest_capped = near.mark[REST], near.mark[REST_CAPPED]
    above = rest_capped < tie_threshold(top) or (rest_capped <= top and rest < tie_threshold(uncapped))
    if not above:
        near.mark[ROOM] = max(near.mark[ROOM] / CHANGE, SLACK_RANGE[0])
    return above


@kernel
def best_listed(
    stats: Floats,
    shape: Ints,
    clock: Ints,
    whitened: Floats,
    core: Floats,
    listed: Ints,
    work: Floats,
    c: int,
    beta: float,
) -> int:
    """The slot of cluster ``c`` with the largest bound; its value goes to ``work`` as `first_in` leaves it."""
    first, n, r = shape[c, START], shape[c + 1, START] - shape[c, START], shape[c, RANK]
    a, l, capped = shape[c, A_START], shape[c, L_START], clock[CAPPED]
    fit = fit_of(core, a, r)
    outer, inner = list_of(core, listed, a, l, n, r, 0), list_of(core, listed, a, l, n, r, 1)
    if in_reach(fit, outer, beta, work[:r]):
        slot, m = -1, listed[l + SIZES]
        if in_reach(fit, inner, beta, work[:r]):
            i = first_in(inner.stats, 0, listed[l + SIZES + 1], beta, capped, work)
            if above_rest(inner, work[TOP], work[UNCAPPED_TOP]):
                slot = inner.slots[i]
        if slot < 0:
            evaluate_in(fit, outer.W, outer.stats[MEAN, :m], outer.stats[WIDTH2, :m])
            slot = outer.slots[first_in(outer.stats, 0, m, beta, capped, work)]
            draw_inner(fit, beta, core, listed, a, l, n, r, work[:m])
        if above_rest(outer, work[TOP], work[UNCAPPED_TOP]):
            return slot
    W = whitened[shape[c, Z_START] : shape[c + 1, Z_START]].reshape(r, n)
    own = stats[:, first : first + n]
    evaluate_all(fit, listed[l + PULLS], W, own[MEAN], own[WIDTH2], work[:n])
    listed[l + PULLS] = 0
    best = first_in(stats, first, first + n, beta, capped, work)
    slots = np.arange(first, first + n)
    flat = core[list_end(a, n, r, 0) - r * capacity(n, 0) :]
    listed[l + SIZES] = draw(fit, beta, own, W, slots, outer, flat, work[:n])
    draw_inner(fit, beta, core, listed, a, l, n, r, work[: listed[l + SIZES]])
    return best


@kernel
def list_end(a: int, n: int, r: int, k: int) -> int:
    """Where list ``k``'s part of ``core`` ends."""
    end = a + 2 * r * r + r + KEPT_PULLS * (r + 2) + r * r + r + 4 + capacity(n, 0) * (STATS + r)
    return end if k == 0 else end + r * r + r + 4 + capacity(n, 1) * (STATS + r)


@kernel
def draw_inner(fit: Fit, beta: float, core: Floats, listed: Ints, a: int, l: int, n: int, r: int, keys: Floats) -> None:
    """Draw the inner list from the outer one, which is up to date."""
    outer, inner = list_of(core, listed, a, l, n, r, 0), list_of(core, listed, a, l, n, r, 1)
    flat = core[list_end(a, n, r, 1) - r * capacity(n, 1) :]
    listed[l + SIZES + 1] = draw(fit, beta, outer.stats, outer.W, outer.slots, inner, flat, keys)
