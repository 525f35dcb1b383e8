"""What the arms' factors say, without a difference of large numbers: singular values, fits and residuals.

With ``T = U S W'`` the factor of an arm (scaled contexts) and c its own ridge, ``d = c/(s^2 + c)``:

    H = W diag(s^2 d) W'                     what the arm tells its cluster
    A_0 = rho I + sum H x zz'                the cluster's precision, one eigen-decomposition for all rho
    left = sum d (U't - s W'm)^2 + rho |phi|^2 + rest        the least penalised sum of squares, m = Phi z

Arms that came with requests and were dropped have left rows ``sqrt(d) (U't, s W' x z)``, whose squares are added.

All are sums of positive terms. The centre of the rewards has a flat prior: every target comes twice, as rewards and as
ones, and the centre is the multiple of the ones that leaves least.
"""

from typing import NamedTuple, Self

import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.hybrid.layout import HybridState

DUST = 1e-14  # what rounding leaves in directions that an arm has never seen, as a share of its largest


class Units(NamedTuple):
    """What contexts are multiplied by, the mean reward, and how much contexts vary: 0 not at all, 1 around 0."""

    scale: Floats
    mean: float
    variety: float


def units_of(factors: Floats) -> Units:
    """Contexts without their constant get mean square 1. The constant's own scale is left to the learning."""
    p = factors.shape[1] - 1
    squares = np.einsum("nij,nij->j", factors[:, :, :p], factors[:, :, :p])
    weight, others = float(squares[p - 1]), float(squares[: p - 1].sum())
    scale = np.ones(p)
    if weight == 0.0:
        return Units(scale, 0.0, 0.0)
    variety = 0.0
    if others > 0.0:
        scale[: p - 1] = np.sqrt(weight / others)
        means = np.einsum("nij,ni->j", factors[:, :, : p - 1], factors[:, :, p - 1]) / weight
        variety = max(0.0, 1.0 - float(means @ means) / (others / weight))
    return Units(scale, float(np.einsum("ni,ni->", factors[:, :, p - 1], factors[:, :, p]) / weight), variety)


def all_factors(state: HybridState) -> Floats:
    """The factors of all arms, those that were dropped together as one more."""
    return np.concatenate([state.factors, state.moments[None]]) if state.moments.size else state.factors


def scatter_of(factors: Floats, counts: Ints) -> float:
    """The standard deviation of rewards if every arm with any had the same share of them."""
    own = factors[counts > 0]
    weights = (own[:, :, -2] ** 2).sum(axis=1)
    own, weights = own[weights > 0.0], weights[weights > 0.0]
    if not weights.size:
        return 0.0
    squares = (own[:, :, -1] ** 2).sum(axis=1) / weights
    means = np.einsum("ni,ni->n", own[:, :, -2], own[:, :, -1]) / weights
    return float(np.sqrt(max(0.0, squares.mean() - means.mean() ** 2)))


class Spectra(NamedTuple):
    """The arms with rewards, by the singular values of their factors."""

    arms: Ints
    singular: Floats  # (m, p)
    right: Floats  # (m, p, p), W': its rows are directions
    targets: Floats  # (2, m, p), U' times the columns of rewards, less their mean, and of ones
    rest: float  # the squares that no coefficients explain
    total: float  # the squares of all rewards, less their mean
    weight: float  # how many rewards
    gone: Floats  # (g, p r), what dropped arms tell the shared part
    gone_targets: Floats  # (2, g)

    @classmethod
    def of(cls, state: HybridState, units: Units, coordinates: Floats) -> Self:
        """From the factors, in units of ``units`` and for these ``coordinates``."""
        p, arms = units.scale.size, np.flatnonzero(state.counts)
        chosen = state.factors[arms]
        left, singular, right = np.linalg.svd(chosen[:, :p, :p] * units.scale)
        singular[singular < DUST * singular[:, :1]] = 0.0
        ones = chosen[:, :p, p - 1]
        rewards = chosen[:, :p, p] - units.mean * ones
        targets = np.stack([np.einsum("nij,ni->nj", left, column) for column in (rewards, ones)])
        rest = float((chosen[:, p, p] ** 2).sum())
        everything = all_factors(state)
        weight = float((everything[:, :, p - 1] ** 2).sum())
        total = float(((everything[:, :, p] - units.mean * everything[:, :, p - 1]) ** 2).sum())
        gone, gone_targets = _gone(state, units, coordinates)
        return cls(arms, singular, right, targets, rest, total, weight, gone, gone_targets)

    def within(self, rows: Floats) -> Self:
        """Some of the arms."""
        return self._replace(
            arms=self.arms[rows],
            singular=self.singular[rows],
            right=self.right[rows],
            targets=self.targets[:, rows],
        )


def _gone(state: HybridState, units: Units, coordinates: Floats) -> tuple[Floats, Floats]:
    """The rows of dropped arms in present units, and their targets."""
    r = coordinates.shape[1]
    s = units.scale.size * r
    if not state.gone.size:
        return np.zeros((0, s)), np.zeros((2, 0))
    columns = np.full(r, float(state.level[0]["unit"]))
    columns[-1] = coordinates[0, -1]  # the constant, the same for all arms
    rows, ones = state.gone[:, :s] * np.kron(units.scale, columns), state.gone[:, s]
    return rows, np.stack([state.gone[:, s + 1] - units.mean * ones, ones])


def weighted_squares(rows: Floats, weights: Floats) -> Floats:
    """``W' diag(weights) W`` of every arm."""
    result: Floats = (rows * weights[:, :, None]).transpose(0, 2, 1) @ rows
    return result


def _sum_of_products(H: Floats, z: Floats) -> Floats:
    """``sum H x zz'``, index by index: context outside, coordinates inside. Never more memory than H and z take."""
    (m, p, _), r = H.shape, z.shape[1]
    if r < p:
        squares = (z[:, :, None] * z[:, None, :]).reshape(m, r * r)
        cross = (H.reshape(m, p * p).T @ squares).reshape(p, p, r, r)
        return np.ascontiguousarray(cross.transpose(0, 2, 1, 3)).reshape(p * r, p * r)
    sums = np.empty((p, r, p, r))
    for i in range(p):
        for j in range(i + 1):
            sums[i, :, j] = z.T @ (H[:, i, j, None] * z)
            sums[j, :, i] = sums[i, :, j]
    return sums.reshape(p * r, p * r)


class SharedFit(NamedTuple):
    """What the arms of one cluster tell it, for one own ridge and every ridge of the shared coefficients."""

    seen: Spectra
    coordinates: Floats
    damp: Floats  # (m, p), c/(s^2 + c)
    values: Floats  # eigenvalues of sum H x zz'
    vectors: Floats
    along: Floats  # (2, p r): what the targets pull, along the eigenvectors

    @classmethod
    def of(cls, seen: Spectra, coordinates: Floats, own_ridge: float) -> Self:
        """O(m p^2 r^2 + (p r)^3)."""
        damp = own_ridge / (seen.singular**2 + own_ridge)
        H = weighted_squares(seen.right, seen.singular**2 * damp)
        values, vectors = np.linalg.eigh(_sum_of_products(H, coordinates) + seen.gone.T @ seen.gone)
        pulls = np.einsum("nki,nk,tnk->tni", seen.right, damp * seen.singular, seen.targets)
        along = (np.einsum("tni,nj->tij", pulls, coordinates).reshape(2, -1) + seen.gone_targets @ seen.gone) @ vectors
        return cls(seen, coordinates, damp, np.maximum(values, 0.0), vectors, along)

    def coefficients(self, ridge: float) -> Floats:
        """The shared coefficients (2, p, r) that fit rewards and ones."""
        phi = (self.along / (self.values + ridge)) @ self.vectors.T
        return phi.reshape(2, -1, self.coordinates.shape[1])

    def inverse(self, ridge: float) -> Floats:
        """The inverse of ``A_0``."""
        result: Floats = (self.vectors / (self.values + ridge)) @ self.vectors.T
        return result

    def factor(self, ridge: float) -> Floats:
        """The triangular factor of ``A_0``."""
        root = np.sqrt(self.values + ridge)[:, None] * self.vectors.T
        return np.asarray(np.linalg.qr(root, mode="r"))

    def products(self, ridge: float) -> Floats:
        """The 2 x 2 products of what the fit leaves of rewards and ones."""
        phi = self.coefficients(ridge)
        means = np.einsum("nj,tij->tni", self.coordinates, phi)
        off = self.seen.targets - self.seen.singular * np.einsum("nki,tni->tnk", self.seen.right, means)
        left, flat = (off * np.sqrt(self.damp)).reshape(2, -1), phi.reshape(2, -1)
        gone = self.seen.gone_targets - flat @ self.seen.gone.T
        result: Floats = left @ left.T + gone @ gone.T + ridge * (flat @ flat.T)
        return result

    def logdet(self, ridge: float) -> float:
        """``ln det(A_0/rho)``."""
        return float(np.log1p(self.values / ridge).sum())


def shared_fits(seen: Spectra, coordinates: Floats, cluster: Ints, own_ridge: float) -> dict[int, SharedFit]:
    """Of every cluster that has rewards."""
    labels = cluster[seen.arms]
    fits = {}
    for k in [0] if len(seen.gone) else np.unique(labels).tolist():  # arms that come with requests are one cluster
        part = seen.within(labels == k)
        fits[k] = SharedFit.of(part, coordinates[part.arms], own_ridge)
    return fits
