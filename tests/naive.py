"""Slow, obvious twins of every algorithm: explicit d x d matrices, explicit inverses, explicit SVDs.

They are the definitions the fast code is tested against and share no code with it, except `plain_first_fit`, which asks
the library's one routine for residuals, so that it can be compared bit for bit. Letters are the papers':
N arms, d dimensions, l (or m) sketch size, K clusters, lam ridge, R noise scale, S bound on ||theta||, L on ||x||,
n rewards recorded, t = n + 1 the round.

Details the specification leaves open, as read here:
* a zero row is never held by a sketch, and a singular value within ROUNDOFF of zero *is* zero: otherwise "rows held",
  hence the closed radii, would depend on the last bit of an SVD;
* a shrink happens at once when the buffer is full, so between updates a buffered sketch holds at most 2m - 1 rows,
  and an every-round sketch at most m - 1;
* a sketch with no (m+1)-th singular value (m >= d; every-round: no m-th, m > d) shrinks by 0;
* CS-LB with N < l: l' replaces l in both terms of Eq. 2, "rank" is the rank of all arms, and l' is at least 1;
* the closed q of CBSCFD and of compensated dyadic blocks has the same lam as SOFUL's ("q as for SOFUL");
* dyadic blocks: a closed block keeps the rows it holds, unshrunk, and the blocks are always buffered sketches;
* rarely switching OFUL compares det V when a reward is recorded; its first choice is that of round 1;
* UCB1: an arm without rewards has mean 0; "widths" are 1/sqrt(n_i) and "the radius" is R sqrt(c ln t);
* LinTS: beta_t in v is OFUL's (named by `radius`), t = n + 1 in delta_t; the root of V^-1 is the symmetric one.
"""

from fractions import Fraction

import mpmath
import numpy as np

from sketchbandits.kernels.linalg import remove_projection
from sketchbandits.partition.first_fit import unit_rows

TIE = 1e-9  # slip 8
RANK_TOL = 1e-8  # the residual rule, float64 arms
ROUNDOFF = 1e-12  # what an SVD can not tell from zero, relative to the largest singular value


# ---------------------------------------------------------------------------------------------------------------- ties
def tied(values):
    """Indices of all values that tie with the largest: v >= v_max - 1e-9 |v_max|; +inf ties only with +inf."""
    values = np.asarray(values, dtype=float)
    top = values.max()
    return np.flatnonzero(values == top if np.isinf(top) else values >= top - TIE * abs(top))


def tied_argmax(values) -> int:
    """The lowest index among the tied."""
    return int(tied(values)[0])


def ordered_argmax(first, second) -> int:
    """Order by (first, second, lowest index), where equal means tied."""
    candidates = tied(first)
    return int(candidates[tied_argmax(np.asarray(second)[candidates])])


# ----------------------------------------------------------------------------------------------------- rank, partition
def extend(basis, x, tol=RANK_TOL):
    """The orthonormal rows `basis`, plus x's new direction unless ||x - QQ'x|| <= tol ||x|| (two passes)."""
    residual = x - basis.T @ (basis @ x)
    residual = residual - basis.T @ (basis @ residual)
    size = np.linalg.norm(residual)
    if size <= tol * np.linalg.norm(x):
        return basis
    return np.vstack([basis, residual / size])


def span(rows, tol=RANK_TOL):
    """Orthonormal basis of the rows, taken in order; its length is their rank."""
    basis = np.zeros((0, np.shape(rows)[1]))
    for x in rows:
        basis = extend(basis, x, tol)
    return basis


def first_fit(arms, sketch_size, tol=RANK_TOL):
    """Algorithm 2: each arm joins the first cluster whose rank with it stays <= l, else opens a new one."""
    bases = []
    return np.array([join(bases, x, sketch_size, tol) for x in np.array(arms, dtype=float)])


def join(bases, x, sketch_size, tol=RANK_TOL):
    """One arm's step of it: the number of the arm's cluster, whose basis then spans the arm too."""
    for label, basis in enumerate(bases):
        with_x = extend(basis, x, tol)
        if len(with_x) <= sketch_size:
            bases[label] = with_x
            return label
    bases.append(span([x], tol))
    return len(bases) - 1


def plain_first_fit(arms, sketch_size, tol=RANK_TOL):
    """The library's first-fit without blocks, probes or plans: every arm against every cluster, by its one residual
    routine. Labels, ranks and bases are the library's bit for bit."""
    rows = np.array(arms, dtype=float, order="C")
    directions, l = np.empty_like(rows), min(sketch_size, rows.shape[1])
    unit_rows(rows, directions, np.zeros(len(rows), np.int64), 0, len(rows))
    labels, bases = [], []
    for x in directions:
        for label in range(len(bases) + 1):
            if label == len(bases):
                bases.append(np.empty((0, x.size)))
            residual = x.copy()
            left = remove_projection(bases[label], len(bases[label]), residual, np.empty(l))
            if left <= tol or len(bases[label]) < l:
                break
        if left > tol:
            bases[label] = np.vstack([bases[label], residual * (1.0 / left)])
        labels.append(label)
    return np.array(labels), np.array([len(basis) for basis in bases]), np.vstack(bases)


# ----------------------------------------------------------------------------------------------------- the common part
class Ridge:
    """V = lam I + sum x x', b = sum y x, theta = V^-1 b; plays the arm of largest mean + radius * width."""

    def __init__(self, arms, *, ridge=1.0, noise=1.0, theta_norm=1.0, arm_norm=None, delta=0.01):
        self.arms = np.array(arms, dtype=float)
        self.N, self.d = self.arms.shape
        self.norms = np.linalg.norm(self.arms, axis=1)
        self.lam, self.R, self.S, self.delta = ridge, noise, theta_norm, delta
        self.L = self.norms.max() if arm_norm is None else arm_norm
        self.n = 0
        self.gram = np.zeros((self.d, self.d))
        self.b = np.zeros(self.d)

    def update(self, arm, reward):
        x = self.arms[arm]
        self.n += 1
        self.gram += np.outer(x, x)
        self.b += reward * x

    def V(self):
        return self.lam * np.eye(self.d) + self.gram

    def theta(self):
        return np.linalg.solve(self.V(), self.b)

    def means(self):
        return self.arms @ self.theta()

    def widths(self):
        return norms_under(self.arms, np.linalg.inv(self.V()))

    def radius_value(self):
        raise NotImplementedError

    def bounds(self):
        return self.means() + self.radius_value() * self.widths()

    def select(self) -> int:
        return tied_argmax(self.bounds())


def norms_under(rows, inverse):
    """||x||_{V^-1} of every row, from the explicit inverse."""
    return np.sqrt(np.maximum(((rows @ inverse) * rows).sum(axis=1), 0.0))


def logdet(matrix) -> float:
    return float(np.linalg.slogdet(matrix)[1])


# --------------------------------------------------------------------------------------------------------------- CS-LB
class CSLB(Ridge):
    """Algorithm 3; nothing is lost inside a cluster (Algorithm 1 mended), so V_C is simply lam I + its own data."""

    def __init__(self, arms, *, sketch_size, radius="paper", **common):
        super().__init__(arms, **common)
        self.sketch_size, self.radius = sketch_size, radius
        self.labels = first_fit(self.arms, sketch_size)
        self.K = self.labels.max() + 1
        self.members = [np.flatnonzero(self.labels == c) for c in range(self.K)]
        self.gram = np.zeros((self.K, self.d, self.d))
        self.b = np.zeros((self.K, self.d))
        self.sentinels = np.full(self.K, np.inf)
        self.uncapped = np.full(self.K, np.inf)  # of each cluster's chosen arm
        self.inverses = [np.eye(self.d) / self.lam for _ in range(self.K)]
        if radius != "paper":
            for c in range(self.K):
                self.refresh(c)

    def update(self, arm, reward):
        x, c = self.arms[arm], self.labels[arm]
        self.n += 1
        self.gram[c] += np.outer(x, x)
        self.b[c] += reward * x
        self.inverses[c] = np.linalg.inv(self.cluster_V(c))
        self.refresh(c)

    def select(self) -> int:
        second = self.sentinels if self.radius == "paper" else self.uncapped
        c = ordered_argmax(self.sentinels, second)
        return int(self.members[c][ordered_argmax(*self.cluster_bounds(c))])

    def refresh(self, c):
        """Set U(C), the largest (capped) bound in C."""
        capped, uncapped = self.cluster_bounds(c)
        self.sentinels[c] = capped.max()
        self.uncapped[c] = uncapped[ordered_argmax(capped, uncapped)]

    def cluster_bounds(self, c):
        """(capped, uncapped) bounds of the arms of C, now; "paper" has no cap."""
        uncapped = self.cluster_means(c) + self.cluster_radius(c) * self.cluster_widths(c)
        if self.radius == "paper":
            return uncapped, uncapped
        return np.minimum(self.S * self.norms[self.members[c]], uncapped), uncapped

    def cluster_V(self, c):
        return self.lam * np.eye(self.d) + self.gram[c]

    def cluster_theta(self, c):
        return self.inverses[c] @ self.b[c]

    def cluster_means(self, c):
        return self.arms[self.members[c]] @ self.cluster_theta(c)

    def cluster_widths(self, c):
        return norms_under(self.arms[self.members[c]], self.inverses[c])

    def cluster_radius(self, c):
        if self.radius == "paper":
            return self.radius_value()
        growth = logdet(np.eye(self.d) + self.gram[c] / self.lam)
        return self.R * np.sqrt(growth + 2 * np.log(self.K / self.delta)) + np.sqrt(self.lam) * self.S

    def radius_value(self):
        """Eq. 2 in round t; with radius="logdet" there is one radius a cluster: see cluster_radius."""
        if self.radius != "paper":
            raise ValueError("radius='logdet' has one radius a cluster: cluster_radius(c)")
        t, size, ratio = 1 + self.n, self.sketch_size, self.N / self.sketch_size
        if size > self.N:  # departure: the printed root can be negative
            size = max(1, min(size, len(span(self.arms))))
            ratio = max(self.N / size, self.K)
        dimension_term = size * np.log(1 + t * self.L**2 / (size * self.lam))
        return self.R * np.sqrt(dimension_term + 2 * np.log(ratio / self.delta)) + self.S * np.sqrt(self.lam)

    def per_arm(self, of_cluster):
        values = np.zeros(self.N)
        for c in range(self.K):
            values[self.members[c]] = of_cluster(c)
        return values

    def means(self):
        return self.per_arm(self.cluster_means)

    def widths(self):
        return self.per_arm(self.cluster_widths)

    def bounds(self):
        return self.per_arm(lambda c: self.cluster_bounds(c)[0])


# ----------------------------------------------------------------------------------------------------- exact baselines
class UCB1(Ridge):
    """Each arm once, then mean_i + R sqrt(c ln t / n_i)."""

    def __init__(self, arms, *, c=2.0, **common):
        super().__init__(arms, **common)
        self.c, self.counts, self.sums = c, np.zeros(self.N), np.zeros(self.N)

    def update(self, arm, reward):
        self.n += 1
        self.counts[arm] += 1
        self.sums[arm] += reward

    def means(self):
        return self.sums / np.maximum(self.counts, 1)

    def widths(self):
        return np.where(self.counts > 0, 1 / np.sqrt(np.maximum(self.counts, 1)), np.inf)

    def radius_value(self):
        return self.R * np.sqrt(self.c * np.log(1 + self.n))

    def bounds(self):
        finite = self.means() + self.radius_value() / np.sqrt(np.maximum(self.counts, 1))
        return np.where(self.counts > 0, finite, np.inf)


def effective_ridge(arms, ratio, planned=10_000.0):
    """The ridge with ``ridge = ratio^2 sum_i n lam_i/(n lam_i + ridge)``, the sum at least 1, by plain iteration."""
    moments = np.linalg.svd(arms, compute_uv=False) ** 2 / len(arms)
    ridge = ratio**2
    for _ in range(10_000):
        ridge = ratio**2 * max(1.0, (planned * moments / (planned * moments + ridge)).sum())
    return ridge


class OFUL(Ridge):
    """Ridge optimism with the self-normalised radius; switching=C keeps a choice until det V has grown by 1 + C.

    ridge=None is the one that suits the arms; cap=True caps bounds at S ||x||, ties by the bound without the cap.
    """

    def __init__(self, arms, *, radius="closed", switching=None, cap=False, **common):
        super().__init__(arms, **common)
        if self.lam is None:
            self.lam = effective_ridge(self.arms, max(self.R / self.S, 1e-3 * self.L))
        self.radius, self.switching, self.capped = radius, switching, cap
        self.switched_at = self.logdet()
        self.choice = tied_argmax(self.bounds())

    @property
    def cap(self):
        return self.S * self.norms if self.capped else np.full(self.N, np.inf)

    def logdet(self):
        """ln det(V / lam)."""
        return logdet(self.V() / self.lam)

    def radius_at(self, delta):
        if self.radius == "closed":
            q = self.d * np.log(1 + self.n * self.L**2 / (self.lam * self.d))
        else:
            q = self.logdet()
        if self.radius == "mixture":
            return np.sqrt(self.R**2 * (q + 2 * np.log(1 / delta)) + self.lam * self.S**2)
        return self.R * np.sqrt(q + 2 * np.log(1 / delta)) + np.sqrt(self.lam) * self.S

    def radius_value(self):
        return self.radius_at(self.delta)

    def bounds(self):
        return np.minimum(super().bounds(), self.cap)

    def update(self, arm, reward):
        super().update(arm, reward)
        if self.switching is not None and self.logdet() >= self.switched_at + np.log(1 + self.switching):
            self.switched_at = self.logdet()
            self.choice = tied_argmax(self.bounds())

    def select(self) -> int:
        return ordered_argmax(self.bounds(), super().bounds()) if self.switching is None else self.choice


class LinUCB(Ridge):
    """OFUL's form with a constant alpha."""

    def __init__(self, arms, *, alpha=1.0, **common):
        super().__init__(arms, **common)
        self.alpha = alpha

    def radius_value(self):
        return self.alpha


class CBRAP(LinUCB):
    """LinUCB on M x, M given (m x d). Its index is no confidence bound."""

    def __init__(self, arms, *, projection, alpha=1.0, **common):
        super().__init__(np.asarray(arms, dtype=float) @ np.asarray(projection).T, alpha=alpha, **common)


class LinTS(OFUL):
    """theta ~ theta_hat + v V^-1/2 eta; bounds() is OFUL's."""

    def __init__(self, arms, *, radius="closed", horizon=None, **common):
        super().__init__(arms, radius=radius, **common)
        self.horizon = horizon

    def covariance(self):
        """Of a draw with v = 1."""
        return np.linalg.inv(self.V())

    def scale_value(self):
        """v = beta_t(delta / (4 T)), or beta_t(delta / (t (t + 1))) without a horizon."""
        t = 1 + self.n
        return self.radius_at(self.delta / (t * (t + 1) if self.horizon is None else 4 * self.horizon))

    def sample(self, eta, v):
        """The draw for a standard normal eta of shape (d,), or one draw a row for (k, d)."""
        values, vectors = np.linalg.eigh(self.V())
        root = vectors @ np.diag(1 / np.sqrt(values)) @ vectors.T
        return self.theta() + v * np.asarray(eta) @ root

    def select(self, eta) -> int:
        return tied_argmax(self.arms @ self.sample(eta, self.scale_value()))


# ------------------------------------------------------------------------------------------------------------ sketches
class FrequentDirections:
    """Rows S with 0 <= X'X - S'S <= rho I. A full buffer is shrunk by one squared singular value, added to rho.

    "buffered": at 2m rows, by sigma_{m+1}^2. "every-round": at m rows, by sigma_m^2.
    """

    def __init__(self, dim, sketch_size, shrink="buffered"):
        self.capacity, self.cut = {
            "buffered": (2 * sketch_size, sketch_size),
            "every-round": (sketch_size, sketch_size - 1),
        }[shrink]
        self.matrix = np.zeros((0, dim))
        self.shrunk_mass = 0.0

    def update(self, x):
        if np.any(x):
            self.matrix = np.vstack([self.matrix, x])
        if len(self.matrix) == self.capacity:
            self.shrink()

    def shrink(self):
        _, sigma, Vt = np.linalg.svd(self.matrix, full_matrices=False)
        sigma[sigma <= ROUNDOFF * sigma[0]] = 0.0
        cut = sigma[self.cut] ** 2 if len(sigma) > self.cut else 0.0
        squares = sigma**2 - cut
        kept = squares > ROUNDOFF * sigma[0] * sigma
        self.matrix = np.sqrt(squares[kept])[:, None] * Vt[kept]
        self.shrunk_mass += cut


class DyadicBlocks:
    """Buffered sketches of sizes l_0, 2 l_0, 4 l_0, ... over consecutive rows, with sum rho_i <= eps.

    The active block closes when its mass would pass eps l_0 / 2, the rank of all it has received with the next row
    would exceed l_i, and l_i <= d.
    """

    def __init__(self, dim, sketch_size, eps):
        self.dim, self.size, self.limit = dim, sketch_size, eps * sketch_size / 2
        self.blocks = []
        self.open_block()

    def open_block(self):
        self.blocks.append(FrequentDirections(self.dim, self.size))
        self.mass, self.received = 0.0, np.zeros((0, self.dim))  # received: a basis of what the block was given

    def update(self, x):
        passes = self.mass + x @ x > self.limit
        if passes and len(extend(self.received, x)) > self.size and self.size <= self.dim:
            self.size *= 2
            self.open_block()
        self.mass += x @ x
        self.received = extend(self.received, x)
        self.blocks[-1].update(x)

    @property
    def matrix(self):
        return np.vstack([block.matrix for block in self.blocks])

    @property
    def shrunk_mass(self):
        return sum(block.shrunk_mass for block in self.blocks)


# --------------------------------------------------------------------------------------------------- sketched policies
class Sketched(Ridge):
    """V = S'S + lam I (SOFUL's radius), or, compensated, V = S'S + (lam + rho) I (CBSCFD's); b exact."""

    def __init__(self, arms, *, sketch, compensated, radius, **common):
        super().__init__(arms, **common)
        self.sketch, self.compensated, self.radius = sketch, compensated, radius

    def update(self, arm, reward):
        x = self.arms[arm]
        self.n += 1
        self.sketch.update(x)
        self.b += reward * x

    def V(self):
        rows, rho = self.sketch.matrix, self.sketch.shrunk_mass
        return rows.T @ rows + (self.lam + (rho if self.compensated else 0.0)) * np.eye(self.d)

    def q(self):
        rows, rho = self.sketch.matrix, self.sketch.shrunk_mass
        if self.radius == "logdet":
            return logdet(np.eye(len(rows)) + rows @ rows.T / (self.lam + rho))
        k = min(self.d, len(rows))
        return k * np.log(1 + self.n * self.L**2 / (k * self.lam)) if k else 0.0

    def radius_value(self):
        excess = 1 + self.sketch.shrunk_mass / self.lam  # also alpha / lam
        noise = self.R * np.sqrt(self.q() + 2 * np.log(1 / self.delta) + self.d * np.log(excess))
        if self.compensated:
            return noise + self.S * np.sqrt(self.lam * excess)
        return noise * np.sqrt(excess) + self.S * np.sqrt(self.lam) * excess


class SOFUL(Sketched):
    """OFUL on a Frequent Directions sketch."""

    def __init__(self, arms, *, sketch_size, shrink="buffered", radius="closed", **common):
        sketch = FrequentDirections(np.shape(arms)[1], sketch_size, shrink)
        super().__init__(arms, sketch=sketch, compensated=False, radius=radius, **common)


class CBSCFD(Sketched):
    """SOFUL that keeps the shrunk mass: alpha = lam + rho in place of lam."""

    def __init__(self, arms, *, sketch_size, shrink="buffered", radius="closed", **common):
        sketch = FrequentDirections(np.shape(arms)[1], sketch_size, shrink)
        super().__init__(arms, sketch=sketch, compensated=True, radius=radius, **common)


class DBSLinUCB(Sketched):
    """SOFUL, or with compensated=True CBSCFD, on dyadic blocks; sketch_size is l_0."""

    def __init__(self, arms, *, sketch_size, eps=1.0, compensated=False, radius="closed", **common):
        sketch = DyadicBlocks(np.shape(arms)[1], sketch_size, eps)
        super().__init__(arms, sketch=sketch, compensated=compensated, radius=radius, **common)


# -------------------------------------------------------------------------------------------------------------- oracles
def _sharp_inverse(rows, counts, ridge):
    d = rows.cols
    V = mpmath.mpf(float(ridge)) * mpmath.eye(d)
    for i, count in enumerate(counts):
        if count:
            V += mpmath.mpf(float(count)) * rows[i, :].T * rows[i, :]
    return V**-1


def sharp_widths(rows, counts, ridge, digits=80):
    """sqrt(x' (ridge I + sum n_i x_i x_i')^-1 x) of every row, in extended precision."""
    with mpmath.workdps(digits):
        rows = mpmath.matrix(np.asarray(rows, dtype=float).tolist())
        inverse = _sharp_inverse(rows, counts, ridge)
        return np.array([float(mpmath.sqrt((rows[i, :] * inverse * rows[i, :].T)[0])) for i in range(rows.rows)])


def sharp_means(rows, counts, sums, ridge, digits=80):
    """x' (ridge I + sum n_i x_i x_i')^-1 sum_i (reward sum)_i x_i of every row, in extended precision."""
    with mpmath.workdps(digits):
        rows = mpmath.matrix(np.asarray(rows, dtype=float).tolist())
        b = rows.T * mpmath.matrix([float(total) for total in sums])
        means = rows * (_sharp_inverse(rows, counts, ridge) * b)
        return np.array([float(mean) for mean in means])


def ellipsoid_error(theta_hat, theta, V) -> float:
    """||theta_hat - theta||_V."""
    gap = np.asarray(theta_hat) - np.asarray(theta)
    return float(np.sqrt(max(gap @ V @ gap, 0.0)))


# --------------------------------------------------------------------------------------------------- multi-scale CS-LB
class NaiveMultiscale(Ridge):
    """Every arm's bound is the least of prior, direction, cluster and space; every one but the space's from all data.

    The space's fit is that of the rewards up to some round. It is made arm by arm, where `budget` allows, and begun
    anew when it could have learned enough: the sum of ln(1 + w^2) over rewards, w the width of their arm in the fit as
    it was last asked. Where the largest bound is played only the arm that is about to be played is asked; for a
    random choice all are, as soon as a fit is published. D^2 operations are an evaluation, D the rank of all arms.
    """

    def __init__(
        self,
        arms,
        *,
        sketch_size=None,
        ridge=None,
        radius="mixture",
        budget="auto",
        noise=1.0,
        theta_norm=1.0,
        explore="randomised",
        seed=0,
        **common,
    ):
        super().__init__(arms, noise=noise, theta_norm=theta_norm, **common)
        self.given_ridge, self.radius, self.draws = ridge, radius, explore == "randomised"
        self.key = np.random.default_rng(seed).integers(0, 2**64, size=2, dtype=np.uint64)
        self.D = 0 if budget == 0 else int(np.linalg.matrix_rank(self.arms, tol=1e-10 * self.norms.max()))
        self.sketch_size = sketch_size or (max(1, min(16, self.D // 2)) if self.D else 16)
        self.labels = first_fit(self.arms, self.sketch_size)
        self.K = self.labels.max() + 1
        self.members = [np.flatnonzero(self.labels == c) for c in range(self.K)]
        self.order = np.concatenate(self.members)
        self.rooms = [of.size for of in self.members]  # what is looked at in each cluster
        self.rays = lines(self.arms)
        self.n_rays = self.rays.max() + 1
        self.cluster_shares = np.full(self.K, 0.9 * 0.1 * self.delta / (self.K + 1))
        self.ray_shares = np.full(self.n_rays, 0.9 * 0.5 * self.delta / (self.n_rays + 1))
        self.unit = max(noise / theta_norm, 1e-3 * self.L) ** 2
        self.effective = self.effective_rank(self.unit) if self.D else self.d
        self.rank = min(self.sketch_size, self.d, self.effective)
        growing = ridge is None and self.effective <= self.d / 2  # the ridge may be doubled later
        self.space_share = (0.75 if growing else 1.0) * 0.4 * self.delta
        self.given_budget = budget
        self.set_budget()
        self.active, self.counts, self.sums = np.ones(self.N, bool), np.zeros(self.N), np.zeros(self.N)
        self.bank, self.spent = 0.0, 0.0
        self.news, self.history, self.frozen, self.rows_left = 0.0, [], 0, 0
        self.version, self.published = 0, 0  # how many fits were published, and how many rewards the last is from
        self.space, self.stamps = np.full(self.N, np.inf), np.full(self.N, -1)  # -1: the space does not hold the arm
        self.guess, self.width = np.zeros(self.N), np.full(self.N, np.inf)
        self.beta = 1.0
        if self.D > 0:
            self.show()
            self.ask(np.arange(self.N))
        self.choice = self.best()

    def effective_rank(self, unit, rounds=10_000):
        """r = sum of n e/(n e + r u), e the eigenvalues of X'X/N, u = (R/S)^2; at least 1, and 1 for zero arms."""
        moments = np.linalg.eigvalsh(self.arms.T @ self.arms / self.N).clip(0)
        low, high = 1.0, max(1.0, float(self.D))
        for _ in range(200):
            r = (low + high) / 2
            more = np.sum(rounds * moments / (rounds * moments + r * unit)) > r
            low, high = (r, high) if more else (low, r)
        return high

    def set_budget(self):
        """Operations of a round, how many may be saved up, and the news from which a fit is worth its work."""
        auto = max(2048, 3 * self.D**2 + self.N * self.D // 2)
        self.budget = float(auto if self.given_budget == "auto" else self.given_budget)
        self.most = 16 * self.budget + 8 * self.D**2
        self.least_news = min(0.5, max(1 / 16, 0.01 * self.D)) if self.draws else 1 / 16

    # ------------------------------------------------------------------------------------------------------- the scales
    def ridge_of(self, rank):
        return self.given_ridge or rank * self.unit

    def fit(self, counts, sums, groups, rank, share, among=slice(None)):
        """x.theta and ||x||_{V^-1} of every arm, and beta: one ridge fit for each group of arms, from its own data."""
        arms, counts, sums, groups = self.arms[among], counts[among], sums[among], groups[among]
        ridge, E = self.ridge_of(rank), groups.max() + 1
        own = groups == np.arange(E)[:, None]
        V = ridge * np.eye(self.d) + arms.T @ ((own * counts)[:, :, None] * arms)
        inverse, theta = np.linalg.inv(V), np.linalg.solve(V, ((own * sums) @ arms)[:, :, None])[:, :, 0]
        squares = self.R**2 * (np.linalg.slogdet(V / ridge)[1] + 2 * np.log(1 / share))
        if self.radius == "mixture":
            beta = np.sqrt(squares + ridge * self.S**2)
        else:
            beta = np.sqrt(squares) + np.sqrt(ridge) * self.S
        means = (arms * theta[groups]).sum(axis=1)
        widths2 = ((arms[:, None, :] @ inverse[groups])[:, 0, :] * arms).sum(axis=1)
        return means, np.sqrt(np.maximum(widths2, 0.0)), beta[groups]

    def on_ray(self, own):
        """The signed lengths of a ray's arms, its information, the sum of n s^2, and its ridge."""
        first = own[np.argsort(self.labels[own], kind="stable")[0]]
        lengths = self.arms[own] @ self.arms[first] / self.norms[first]
        suited = 3.0 * self.norms[first] ** 2 if self.radius == "mixture" else self.unit
        return lengths, self.counts[own] @ lengths**2, self.given_ridge or suited

    def ray_interval(self, own, share):
        """Means and half-widths of the arms of one ray."""
        lengths, information, ridge = self.on_ray(own)
        V, reward = ridge + information, lengths @ self.sums[own]
        spread = self.R * np.sqrt(np.log(V / ridge) + 2 * np.log(1 / share))
        if self.radius != "mixture":
            return lengths * reward / V, np.abs(lengths) * (spread + np.sqrt(ridge) * self.S) / np.sqrt(V)
        if information == 0:
            return 0 * lengths, np.full(own.size, np.inf)
        return lengths * reward / information, np.abs(lengths) * spread * np.sqrt(V) / information

    def direction(self):
        """Means and half-widths; a zero arm has no ray, mean 0 and width 0."""
        fit = np.zeros((2, self.N))
        for ray in range(self.n_rays):
            own = np.flatnonzero(self.rays == ray)
            fit[:, own] = self.ray_interval(own, self.ray_shares[ray])
        return fit

    def cluster(self):
        means, widths, beta = self.fit(self.counts, self.sums, self.labels, self.rank, self.cluster_shares)
        return means, beta * widths

    def show(self):
        """Let the published fit be that of the first ``published`` rewards, for all arms there are."""
        counts, sums = np.zeros(self.N), np.zeros(self.N)
        for arm, reward in self.history[: self.published]:
            counts[arm] += 1
            sums[arm] += reward
        of_all = np.zeros(self.N, int)
        self.shown_means, self.shown_widths, beta = self.fit(counts, sums, of_all, self.effective, self.space_share)
        self.beta = beta[0]

    def ask(self, arms):
        """Give arms their estimates and widths in the published fit; the least bound so far is kept."""
        self.guess[arms], self.width[arms] = self.shown_means[arms], self.shown_widths[arms]
        self.space[arms] = np.minimum(self.space[arms], self.guess[arms] + self.beta * self.width[arms])
        self.stamps[arms] = self.version

    def scales(self):
        direct, cluster = self.direction(), self.cluster()
        return {
            "prior": self.S * self.norms,
            "direction": direct[0] + direct[1],
            "cluster": cluster[0] + cluster[1],
            "space": self.space,
        }

    def bounds(self):
        return np.min(list(self.scales().values()), axis=0)

    def uncapped(self):
        return np.min([bound for scale, bound in self.scales().items() if scale != "prior"], axis=0)

    def lower_bounds(self):
        fits = [self.direction(), self.cluster(), (self.guess, self.beta * self.width)]
        return np.max([-self.S * self.norms, *(mean - width for mean, width in fits)], axis=0)

    # -------------------------------------------------------------------------------------------------------- the round
    def update(self, arm, reward):
        self.absorb(arm, reward)
        self.choice = self.best()

    def absorb(self, arm, reward):
        if self.stamps[arm] >= 0:
            self.news += np.log(1 + self.width[arm] ** 2)
            self.history.append((arm, reward))
        self.counts[arm] += 1
        self.sums[arm] += reward
        self.bank = min(self.bank + self.budget, self.most)
        if self.D > 0:
            self.work_off()

    def pay(self, cost):
        self.bank -= cost
        self.spent += cost

    def work_off(self):
        while self.bank >= 3 * self.D**2:
            if self.rows_left == 0:
                waiting = self.history[self.frozen :]
                if not waiting or self.news < self.least_news:
                    return
                self.frozen, self.news = len(self.history), 0.0
                self.rows_left = len({arm for arm, _ in waiting})
            self.pay(3 * self.D**2)
            self.rows_left -= 1
            if self.rows_left == 0:
                self.pay(1.5 * self.D**2)
                self.published = self.frozen
                self.publish()

    def publish(self):
        self.version += 1
        self.show()
        if self.draws:
            self.pay(0.5 * self.D**2 * sum(self.rooms))
            self.ask(np.flatnonzero(self.stamps >= 0))

    def best(self):
        return self.drawn(self.active, []) if self.draws else self.best_by_bound()

    def best_by_bound(self):
        """The arm that leads, asked for its space bound as long as that is from an older fit and can be paid."""
        while True:
            uncapped = np.where(self.active, self.uncapped(), -np.inf)
            arm = self.leader(np.minimum(uncapped, self.S * self.norms), uncapped)
            cost = self.D**2 + self.rooms[self.labels[arm]] + len(self.rooms)
            if self.stamps[arm] in (-1, self.version) or self.bank < cost:
                return arm
            self.pay(cost)
            self.ask(arm)

    def leader(self, capped, uncapped):
        """In each cluster, then among clusters: the largest bound, then the largest without cap, then the first."""
        leading = tied([capped[of].max() for of in self.members])
        heads = [of[ordered_argmax(capped[of], uncapped[of])] for of in (self.members[c] for c in leading)]
        return int(heads[tied_argmax(uncapped[heads])])

    def drawn(self, allowed, pending):
        """The best of some arms under a random radius, unless it may cost more than 20 times its own uncertainty.

        If it has more pending decisions than rewards: the best under that radius of those that may be the best arm and
        have the fewest pending beyond their rewards.
        """
        fit = self.fit(self.counts, self.sums, self.labels, self.rank, self.cluster_shares)
        means, widths = fit[:2]  # an arm of which the space knows nothing has its cluster's
        guess = np.where(self.stamps < 0, means, self.guess)
        width = np.where(self.stamps < 0, widths, self.width)
        radius = 1.25 * self.R * abs(keyed_normal(self.key, int(self.counts.sum()) + (len(pending) << 40)))
        bounds = np.where(allowed, self.bounds(), -np.inf)
        values = guess + radius * width
        capped = np.minimum(values, bounds)
        arm = int(self.order[ordered_argmax(capped[self.order], values[self.order])])
        lower = self.lower_bounds()
        if bounds.max() - lower[arm] > 20 * (bounds[arm] - lower[arm]):
            if not len(pending) and np.array_equal(allowed, self.active):
                return self.best_by_bound()
            uncapped = self.uncapped()
            arm = int(self.order[ordered_argmax(bounds[self.order], uncapped[self.order])])
        excess = np.bincount(pending, minlength=self.N) - self.counts
        if excess[arm] <= 0:
            return arm
        most = lower[allowed].max()
        possible = allowed & (bounds >= most - TIE * abs(most))
        possible = possible if possible.any() else allowed
        spread = possible & (excess <= max(0, excess[possible].min()))
        capped = np.where(spread, capped, -np.inf)
        return int(self.order[ordered_argmax(capped[self.order], values[self.order])])

    def select(self) -> int:
        return self.choice


def keyed_normal(key, round_):
    """The first standard normal of a Philox stream, by Box and Muller."""
    counter = ((round_ << 64) - 1) % 2**256  # NumPy counts before it draws
    words = np.random.Philox(counter=counter, key=int(key[0]) + (int(key[1]) << 64)).random_raw(2)
    uniform, angle = ((int(words[0]) >> 11) + 1) * 2.0**-53, 2 * np.pi * (int(words[1]) >> 11) * 2.0**-53
    return np.sqrt(-2 * np.log(uniform)) * np.cos(angle)


def lines(arms, tol=RANK_TOL):
    """Number the lines through 0 that arms lie on, in order of their first arm; -1 for a zero arm."""
    numbers, units = [], np.zeros((0, np.shape(arms)[1]))
    for x in np.asarray(arms, dtype=float):
        if not x.any():
            numbers.append(-1)
            continue
        off = np.linalg.norm(x - (units @ x)[:, None] * units, axis=1)
        near = np.flatnonzero(off <= tol * np.linalg.norm(x))
        if not near.size:
            units = np.vstack([units, x / np.linalg.norm(x)])
        numbers.append(int(near[0]) if near.size else len(units) - 1)
    return np.array(numbers)


# --------------------------------------------------------------------------------------------------- pending decisions
def pending_select(policy, pending, allowed=None, C=1.0) -> int:
    """The choice with ``pending`` pulls outstanding: each returned its mean, in copies of V; policy is CSLB or OFUL.

    Groups are clusters, or all arms. The candidates stand in the order (cluster, arm), which settles ties.
    """
    if isinstance(policy, CSLB):
        groups = [(policy.members[c], policy.cluster_V(c), policy.cluster_radius(c)) for c in range(policy.K)]
    else:
        groups = [(np.arange(policy.N), policy.V(), policy.radius_value())]
    capped = isinstance(policy, CSLB) and policy.radius != "paper"
    cap = policy.S * policy.norms if capped else getattr(policy, "cap", np.full(policy.N, np.inf))
    group_of, limit = {arm: g for g, (members, *_) in enumerate(groups) for arm in members}, (1 + C) * (1 + TIE)
    V, full = [V for _, V, _ in groups], [False] * len(groups)

    def ratio(g, arm=None):
        more = 0.0 if arm is None else np.outer(policy.arms[arm], policy.arms[arm])
        return np.exp(logdet(V[g] + more) - logdet(groups[g][1]))

    for arm in pending:
        g = group_of[arm]
        full[g] = full[g] or ratio(g, arm) > limit
        if not full[g]:
            V[g] = V[g] + np.outer(policy.arms[arm], policy.arms[arm])
    factor = np.sqrt(max(ratio(g) for g in range(len(groups))))
    order = np.concatenate([members for members, *_ in groups])
    means = policy.means()
    upper, lower = np.zeros(policy.N), np.zeros(policy.N)
    for (members, observed, beta), imagined in zip(groups, V, strict=True):
        rows = policy.arms[members]
        upper[members] = means[members] + factor * beta * norms_under(rows, np.linalg.inv(imagined))
        lower[members] = means[members] - beta * norms_under(rows, np.linalg.inv(observed))
    lower = np.minimum(lower, cap)
    among = np.array([arm for arm in order if allowed is None or allowed[arm]])

    def first(among):
        return int(among[ordered_argmax(np.minimum(upper, cap)[among], upper[among])])

    best = first(among)
    if not full[group_of[best]] and ratio(group_of[best], best) <= limit:
        return best
    least = lower[among].max()
    plausible = among[np.minimum(upper, cap)[among] >= least - TIE * abs(least)]
    plausible = plausible if plausible.size else among
    pulls = np.bincount(pending, minlength=policy.N)[plausible]
    return first(plausible[pulls == pulls.min()])


def pending_ucb1(policy, pending, allowed=None) -> int:
    """UCB1 with pending pulls among the n_i."""
    counts = policy.counts + np.bincount(pending, minlength=policy.N)
    bounds = np.where(counts > 0, policy.means() + policy.radius_value() / np.sqrt(np.maximum(counts, 1)), np.inf)
    among = np.arange(policy.N) if allowed is None else np.flatnonzero(allowed)
    return int(among[tied_argmax(bounds[among])])


# --------------------------------------------------------------------------------------------------- streaming contexts
class StreamedCluster:
    """A span (orthonormal rows) with two ellipsoids in all d dimensions: its own fit, and an old one of the space."""

    def __init__(self, basis, ridge, log_share):
        d = basis.shape[1]
        self.basis, self.lam, self.log_share = basis, ridge, log_share
        self.V, self.b, self.leak = ridge * np.eye(d), np.zeros(d), 0.0
        self.view = None  # V, theta, beta of the space

    def holds(self, x, tol):
        return np.linalg.norm(x - self.inside(x)) <= tol * np.linalg.norm(x)

    def inside(self, x):
        part = self.basis.T @ (self.basis @ x)
        return part + self.basis.T @ (self.basis @ (x - part))

    def book(self, x, reward):
        part = self.inside(x)
        self.V += np.outer(part, part)
        self.b += reward * part
        self.leak += np.linalg.norm(x - part) ** 2

    def bound(self, x, R, S):
        part = self.inside(x)
        rest, inverse = S * np.linalg.norm(x - part), np.linalg.inv(self.V)
        beta = np.sqrt(R**2 * (logdet(self.V / self.lam) + 2 * self.log_share) + self.lam * S**2)
        own = part @ inverse @ self.b + (beta + S * np.sqrt(self.leak)) * np.sqrt(part @ inverse @ part) + rest
        if self.view is None:
            return own
        V, theta, beta = self.view
        return min(own, part @ theta + beta * np.sqrt(part @ np.linalg.inv(V) @ part) + rest)


class StreamingMultiscale:
    """Multi-scale CS-LB on contexts: the pool by least squares, every fit as a d x d matrix; `most` are (pool, K)."""

    def __init__(self, d, *, l, most, noise, theta_norm, delta, budget, tolerance=0.0, space=True):
        self.d, self.l, self.most, self.R, self.S, self.delta = d, min(l, d), most, noise, theta_norm, delta
        self.budget, self.tol, self.bank = budget, max(tolerance, RANK_TOL), 0.0
        self.clusters, self.pool, self.pause, self.fruitless = [], [], 0, 0
        self.unit = (noise / theta_norm) ** 2  # a fit's ridge, for each of its dimensions
        self.space = space
        self.V, self.b = d * self.unit * np.eye(d), np.zeros(d)

    def space_set(self):
        lam = self.d * self.unit
        information = logdet(self.V / lam) + 2 * np.log(1 / (0.1 * self.delta))
        return self.V.copy(), np.linalg.solve(self.V, self.b), np.sqrt(self.R**2 * information + lam * self.S**2)

    def uncapped(self, x):
        held = [c.bound(x, self.R, self.S) for c in self.clusters if c.holds(x, self.tol)]
        if held or not self.space:
            return min(held, default=np.inf)
        V, theta, beta = self.space_set()
        return x @ theta + beta * np.sqrt(x @ np.linalg.inv(V) @ x)

    def select(self, contexts):
        values = np.array([self.uncapped(x) for x in contexts])
        return ordered_argmax(np.minimum(values, self.S * np.linalg.norm(contexts, axis=1)), values)

    def update(self, x, reward):
        home = [c for c in self.clusters if c.holds(x, self.tol)]
        paid = self.space and (not home or self.pays(len(home[0].basis)))
        if paid:
            self.V += np.outer(x, x)
            self.b += reward * x
        home = home or self.seek(x / np.linalg.norm(x))
        for cluster in home:
            cluster.book(x, reward)
        if paid and home:
            home[0].view = self.space_set()

    def pays(self, rank):
        self.bank += self.budget
        cost = (4 + rank) * self.d**2
        if self.bank < cost:
            return False
        self.bank = min(self.bank - cost, cost)
        return True

    def seek(self, u):
        """The cluster that opens, in a list, or none."""
        most = self.l
        if self.space:
            left = self.d**2 - sum(len(c.basis) ** 2 for c in self.clusters)
            most = min(self.l, self.d - 1, int(np.sqrt(left)))
        if most < 2 or len(self.clusters) == self.most[1]:
            return []
        if self.pause:
            self.pause -= 1
            return []
        P = np.array(self.pool).reshape(-1, self.d)
        weights = np.linalg.lstsq(P.T, u, rcond=None)[0] if self.pool else np.zeros(0)
        if np.linalg.norm(u - weights @ P) > self.tol and len(P) < self.most[0]:
            self.pool.append(u)
            return []
        basis = self.span_of_few(P, weights, u, most) if np.linalg.norm(u - weights @ P) <= self.tol else None
        if basis is None:
            self.fruitless += 1
            self.pause, self.pool = self.fruitless * len(P) ** 2 // self.d, []
        if basis is None or len(basis) == 1:
            return []
        self.fruitless, k = 0, len(self.clusters) + 1
        self.clusters.append(StreamedCluster(basis, len(basis) * self.unit, np.log(k * (k + 1) / (0.9 * self.delta))))
        return self.clusters[-1:]

    def span_of_few(self, P, weights, u, most):
        basis = np.zeros((0, self.d))
        for i in np.argsort(-np.abs(weights))[:most]:
            basis = extend(basis, P[i], ROUNDOFF)
            if np.linalg.norm(u - basis.T @ (basis @ u)) <= self.tol:
                return basis
        return None


class Scatter:
    """How rewards scatter around the mean of their arm: every reward kept, in exact fractions."""

    def __init__(self, n_arms):
        self.rewards = [[] for _ in range(n_arms)]

    def record(self, arms, rewards):
        for arm, reward in zip(arms, rewards, strict=True):
            self.rewards[arm].append(Fraction(reward))

    @property
    def freedom(self):
        return sum(len(own) - 1 for own in self.rewards if own)

    @property
    def variance(self):
        squares = sum(sum((y - sum(own) / len(own)) ** 2 for y in own) for own in self.rewards if own)
        return float(squares / self.freedom)


class Hybrid:
    """The hybrid model as one dense ridge regression: shared coefficients of every cluster, and own ones of every arm.

    Contexts, coordinates and ridges are as the policy uses them; the rewards are kept one by one.
    """

    def __init__(self, coordinates, cluster, ridge, own_ridge):
        self.z, self.cluster = np.asarray(coordinates), np.asarray(cluster)
        self.ridge, self.own_ridge = ridge, own_ridge
        self.rows, self.arms, self.rewards = [], [], []

    def record(self, arm, u, reward):
        self.rows.append(np.asarray(u, float))
        self.arms.append(arm)
        self.rewards.append(reward)

    def features(self, arm, u):
        p, (n, r), k = len(u), self.z.shape, int(self.cluster.max()) + 1
        shared, own = np.zeros((k, p * r)), np.zeros((n, p))
        shared[self.cluster[arm]], own[arm] = np.kron(u, self.z[arm]), u
        return np.concatenate([shared.ravel(), own.ravel()])

    def design(self):
        F = np.array([self.features(arm, u) for arm, u in zip(self.arms, self.rows, strict=True)])
        own = self.z.shape[0] * len(self.rows[0])
        return F, np.concatenate([np.full(F.shape[1] - own, self.ridge), np.full(own, self.own_ridge)])

    def predict(self, u, centre):
        """Means, and standard deviations over R, of all arms."""
        F, penalty = self.design()
        inverse = np.linalg.inv(F.T @ F + np.diag(penalty))
        theta = inverse @ F.T @ (np.array(self.rewards) - centre)
        X = np.array([self.features(arm, u) for arm in range(len(self.z))])
        return centre + X @ theta, np.sqrt(np.einsum("nd,de,ne->n", X, inverse, X))

    def evidence(self, prior_weight):
        """``(ln p, centre, R)`` with R and the centre integrated out, from the covariance of the rewards."""
        F, penalty = self.design()
        y, ones = np.array(self.rewards), np.ones(len(self.rewards))
        V = np.eye(len(y)) + (F / penalty) @ F.T
        solved = np.linalg.solve(V, np.stack([y, ones], axis=1))
        centre = ones @ solved[:, 0] / (ones @ solved[:, 1])
        squares = (y - centre) @ np.linalg.solve(V, y - centre) + prior_weight * y.var()
        counted = len(y) + prior_weight
        value = -0.5 * (logdet(V) + np.log(ones @ solved[:, 1]) + (counted - 1) * np.log(squares))
        return value, centre, np.sqrt(squares / counted)
