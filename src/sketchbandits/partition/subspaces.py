"""Low-dimensional subspaces in a set of arms, whatever their order: pursuit from a few arms, then least squares.

Arms are unit vectors x. A round takes a random sample of the arms that no subspace holds yet:

1. *Pursuit.* A few random arms (anchors) are written as combinations of others, which are taken one after the other,
   each time the one that leaves least:

       argmax_a  |a.r| / ||a - Q'Q a|| ,   r = x - Q'Q x ,   Q an orthonormal basis of those taken,

   until ``||r|| <= 2 tol`` (``20 tol`` is added to the denominator in square: less than that may be noise). Arms in
   general position need d steps, arms of a k-dimensional subspace k: an anchor that ends within ``l`` steps has found
   k + 1 dependent arms.
2. *Refinement.* The span of those k arms loses what hardly any of its members needs, grows in directions that bring
   many new members (with a tolerance the pursuit can end early), and becomes the least-squares fit of its members.
3. *Choice.* Greedily by the number of members; anchors that a chosen subspace already holds are skipped.
4. All arms still without a subspace go to the nearest chosen one within the tolerance; a subspace that holds no more
   arms than its dimension is dropped.

The search ends after two rounds in succession whose subspaces hold hardly more arms than their dimensions sum up to.

**Cost** O(A M d l) per round with A <= 128 anchors and M <= 16,384 arms in the sample, and O(N d l) for each subspace
found; memory O(M (d + A)) and blocks of arms, nothing of size N x N and no copy of the arms.
**Guarantee** What is returned is checked exactly: every subspace holds more arms than its dimension, within the
tolerance. That all subspaces are found is not guaranteed.
**Reference** You, Robinson and Vidal, "Scalable Sparse Subspace Clustering by Orthogonal Matching Pursuit", CVPR 2016.
**Departures** The denominator above (orthogonal least squares: Chen, Billings and Luo, Int. J. Control 1989) instead of
the 1 of matching pursuit: with it subspaces are found whose arms lie mostly along few directions. No graph of all arms
and no spectral clustering: the number of subspaces is not known, their dimensions are bounded, and what is found can be
checked exactly, so that a few pursuits and a count of members are enough.
**Why no library** scikit-learn has no clustering by linear subspaces (it has k-means, mixtures and spectral clustering
of a given affinity), pyclustering lists it as an open request (its issue 461), and the published codes of sparse
subspace clustering (that of the reference's authors among them) are research scripts on scikit-learn that need the
number of subspaces as input, hold one graph of all points, and neither bound dimensions nor leave points out.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.threads import Threads
from sketchbandits.partition.spans import (
    SCREEN,
    TILE,
    directions,
    least_squares,
    members,
    nearest,
    orthonormal,
    squared_parts,
    tiles,
    without,
)

SAMPLE = 2**14  # arms in the sample of a round, and most arms that a basis is fitted to
ANCHORS = (32, 128)  # of the first round, and at most: twice as many after every round that finds something
ROUNDS = 2  # in succession that bring little, then the search ends
LITTLE = 0.01  # of the arms left: a round must bring so many more than the dimensions of what it finds
WORTH = 0.1  # of the members: so many more must a dimension bring
DOUBT = 10.0  # times the reach: what is left of an arm may be mostly noise if it is not longer than that
FITS = 8  # most fits of a basis to its members, which go on while these become more


class Pursuit:
    """Orthogonal least squares of several anchors in parallel, by the rows of one sample.

    Rows parallel to an anchor are not used: a duplicate explains it and says nothing of its subspace.
    """

    def __init__(self, rows: Floats, anchors: Ints, reach: float, threads: Threads) -> None:
        self.rows, self.places, self.reach, self.threads = rows, anchors, reach, threads
        count, n = tiles(len(rows)), anchors.size
        self.free = np.empty((n, len(rows)))  # per anchor and row: ||a||^2 outside the span of the rows taken
        self.best, self.where = np.empty((count, n)), np.empty((count, n), np.int64)
        threads.over(count, self._start)

    def run(self, most: int) -> list[tuple[int, Ints]]:
        """For every anchor that at most ``most`` rows explain: its place among the rows, and theirs."""
        left = self.rows[self.places]
        n, d = left.shape
        picks, sizes, basis = np.zeros((n, most), np.int64), np.zeros(n, np.int64), np.zeros((n, most, d))
        for step in range(most):
            self.threads.over(len(self.best), self._scan, left, basis[:, step - 1])  # at first zero: nothing taken
            picks[:, step] = self.where[self.best.argmax(axis=0), np.arange(n)]
            basis[:, step] = _new_directions(basis[:, :step], self.rows[picks[:, step]])
            left = _without_spans(basis[:, : step + 1], left)
            sizes[(sizes == 0) & (np.linalg.norm(left, axis=1) <= self.reach)] = step + 1
            if sizes.all():
                break
        return [(self.places[i], picks[i, : sizes[i]]) for i in np.flatnonzero(sizes)]

    def _scan(self, left: Floats, taken: Floats, first: int, last: int) -> None:
        """Per tile and anchor the row outside its span that leaves least: ``(a.r)^2 / ||a - Q'Q a||^2`` is largest."""
        for k in range(first, last):
            own = slice(k * TILE, (k + 1) * TILE)
            products = np.square(np.vstack([left, taken]) @ self.rows[own].T)
            free, values = self.free[:, own], products[: len(left)]
            free -= products[len(left) :]
            values /= np.where(free > self.reach**2 + SCREEN, free + (DOUBT * self.reach) ** 2, np.inf)
            self.where[k] = values.argmax(axis=1)
            self.best[k] = values[np.arange(len(left)), self.where[k]]
            self.where[k] += k * TILE

    def _start(self, first: int, last: int) -> None:
        for k in range(first, last):
            own = slice(k * TILE, (k + 1) * TILE)
            sines = 1.0 - np.square(self.rows[self.places] @ self.rows[own].T)
            self.free[:, own] = np.where(sines > self.reach**2 + SCREEN, 1.0, np.inf)


def _without_spans(basis: Floats, x: Floats) -> Floats:
    """For every i, ``x[i]`` less its part in the span of ``basis[i]``; twice, for what rounding leaves of it."""
    for _ in range(2):
        x = x - ((basis @ x[:, :, None]).transpose(0, 2, 1) @ basis)[:, 0]
    return x


def _new_directions(basis: Floats, x: Floats) -> Floats:
    """The unit vector that ``x[i]`` adds to ``basis[i]``; zero where rounding is all that is left."""
    left = _without_spans(basis, x)
    size = np.linalg.norm(left, axis=1, keepdims=True)
    return np.where(size > SCREEN, left / np.where(size > SCREEN, size, 1.0), 0.0)


class Refinement:
    """From a few dependent rows of a sample to the subspace that they are of: dimension at most ``most``.

    ``fresh`` rows are in no subspace chosen so far; a direction is worth what it brings of them.
    """

    def __init__(self, rows: Floats, most: int, tolerance: float) -> None:
        self.rows, self.most, self.reach = rows, most, reach(tolerance)
        self.fresh = np.ones(len(rows), bool)

    def run(self, atoms: Ints) -> Floats:
        """The basis."""
        basis, count = self._grown(orthonormal(self.rows[self._needed(atoms)])), 0
        for _ in range(FITS):
            own = members(self.rows, basis, self.reach)
            if own.size <= max(count, len(basis)):
                break
            basis, count = least_squares(self.rows[own], basis), own.size
        return basis

    def _needed(self, atoms: Ints) -> Ints:
        """The atoms but for those, one after the other, that hardly any member of their span needs.

        A member ``x = sum c_i a_i`` is ``|c_i| / ||a*_i||`` from the span of the others; ``a*`` is the dual basis.
        """
        own = self.rows[members(self.rows, orthonormal(self.rows[atoms]), self.reach)]
        while atoms.size > 1:
            dual = np.linalg.pinv(self.rows[atoms])
            needs = np.abs(own @ dual) > self.reach * np.linalg.norm(dual, axis=0)
            least = needs.sum(axis=0).argmin()
            if needs[:, least].sum() > max(1.0, WORTH * len(own)):
                break
            own, atoms = own[~needs[:, least]], np.delete(atoms, least)
        return atoms

    def _grown(self, basis: Floats) -> Floats:
        """Add directions one after the other, and keep those up to the last that brought many members.

        With a tolerance the pursuit may end early, in a span that few others of the subspace are near, and only the
        last missing direction brings them all.
        """
        rows, near = self.rows[self.fresh], self.reach**2 + SCREEN
        squares = 1.0 - np.square(rows @ basis.T).sum(axis=1)  # of the distances
        kept, count = len(basis), np.sum(squares <= near)
        while len(basis) < self.most and (tried := self._worth_trying(squares)).size:
            steps = without(basis, rows[tried])
            steps /= np.linalg.norm(steps, axis=1, keepdims=True)
            parts = np.square(rows @ steps.T)
            held = np.sum(squares[:, None] - parts <= near, axis=0)
            best = held.argmax()
            basis, squares = np.vstack([basis, steps[best]]), squares - parts[:, best]
            if held[best] - count > len(basis) - kept + WORTH * count:
                kept, count = len(basis), held[best]
        return basis[:kept]

    def _worth_trying(self, squares: Floats) -> Ints:
        """Rows outside the span: the nearest of which little can be noise, then the 1st, 2nd, 4th, 8th, ... nearest.

        Near ones are likely of the same subspace; far ones show a direction with less noise.
        """
        order = np.argsort(squares, kind="stable")
        first = int(np.sum(squares <= self.reach**2 + SCREEN))
        clear = max(first, int(np.sum(squares <= min(DOUBT * self.reach, 0.5) ** 2)))
        places = np.array([clear, *(first - 1 + 2**k for k in range((order.size - first).bit_length()))])
        return order[places[places < order.size]]


def reach(tolerance: float) -> float:
    """How far from the span of a few arms others of the subspace may be: those few are off it themselves."""
    return min(2.0 * tolerance, 0.5 * (1.0 + tolerance))


def explore(rows: Floats, anchors: Ints, most: int, tolerance: float, threads: Threads) -> list[Floats]:
    """Bases of subspaces that hold more ``rows`` than their dimension, found from ``anchors``: greedily by coverage."""
    found = Pursuit(rows, anchors, reach(tolerance), threads).run(most)
    sizes, new = np.array([atoms.size for _, atoms in found]), np.empty((len(rows), len(found)), bool)
    if found:
        spans = [orthonormal(rows[atoms]) for _, atoms in found]
        threads.over(tiles(len(rows)), _mark, rows, spans, reach(tolerance), new)
    chosen, refinement = list[Floats](), Refinement(rows, most, tolerance)
    for _ in found:
        best = int((new.sum(axis=0) - sizes).argmax())
        anchor, atoms = found[best]
        if new[anchor, best]:
            basis = refinement.run(atoms)
            own = members(rows, basis, tolerance)
            if np.sum(refinement.fresh[own]) > len(basis):
                refinement.fresh[own] = new[own] = False
                chosen.append(basis)
        new[:, best] = False
    return chosen


def _mark(rows: Floats, bases: list[Floats], radius: float, near: NDArray[np.bool_], first: int, last: int) -> None:
    """``near[i, s]``: whether row i is about within the radius of span s."""
    for k in range(first, last):
        own = slice(k * TILE, (k + 1) * TILE)
        near[own] = 1.0 - squared_parts(rows[own], bases) <= radius**2 + SCREEN


def find_subspaces(
    arms: NDArray[Any],
    index: Ints,
    most: int,
    tolerance: float,
    generator: np.random.Generator,
    *,
    threads: Threads,
    show: Callable[[float], None],
) -> list[Floats]:
    """Bases of subspaces of dimension at most ``most`` of the arms ``index``, none of which is zero."""
    bases, left, poor, count = list[Floats](), index, 0, ANCHORS[0]
    while poor < ROUNDS and left.size > most:
        sample = np.sort(generator.choice(left, min(SAMPLE, left.size), replace=False))
        anchors = generator.choice(sample.size, min(count, sample.size), replace=False)
        found = explore(directions(arms, sample), anchors, most, tolerance, threads)
        own = nearest(arms, left, found, tolerance, threads)
        excess = np.bincount(own[own >= 0], minlength=len(found)) - np.array([len(basis) for basis in found], int)
        kept = np.append(excess > 0, False)  # the last one is for arms in none
        bases += [basis for basis, keep in zip(found, kept[:-1], strict=True) if keep]
        if excess[excess > 0].sum() > LITTLE * left.size:
            poor, count = 0, min(2 * count, ANCHORS[1])
        else:
            poor += 1
        left = left[~kept[own]]
        show(1.0 - left.size / index.size)
    return bases
