"""The regret bound of every policy at a horizon, from facts about the arms alone.

A policy that keeps ellipsoids plays with ``regret_t <= 2 beta_t ||x_t||_{V^-1}``, so that by Cauchy-Schwarz and the
elliptical potential

    regret(T) <= 2 beta_T sqrt(c T I) ,   I = D ln(1 + T L^2/(D ridge)) >= sum over its fits of ln det(V/ridge)

for fits of ``D`` dimensions in all (concavity shares the rounds out), with ``c = 2`` or, where ``q = L^2/ridge`` is
large, ``q/ln(1 + q)``: then it holds for every ridge. No regret passes ``2 S L T``; a bound that says no less is
vacuous.

**Reference** Abbasi-Yadkori, Pal and Szepesvari, NeurIPS 2011, Lemma 11 and Theorem 3; the CS-LB paper, Theorem 1;
Auer, Cesa-Bianchi and Fischer 2002, Theorem 1; Abeille and Lazaric, AISTATS 2017, Theorem 1; Kuzborskij et al.,
AISTATS 2019.
"""

import dataclasses
import math
from dataclasses import dataclass

from sketchbandits.confidence import (
    closed_information,
    compensated_radius,
    ellipsoid_radius,
    mixture_radius,
    sketched_radius,
    theorem_bound,
)
from sketchbandits.kernels.linalg import TIE
from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.lab.advice.spectrum import Spectrum
from sketchbandits.policies.effective_rank import effective_rank, prior_variance
from sketchbandits.policies.multiscale.changing_scales import (
    LEAST_NEWS,
    MOST_NEWS,
    NEWS_PER_DIMENSION,
    SHARES,
    most_ridges,
    partition_share,
    ridge_share,
)
from sketchbandits.policies.multiscale.policy import MOST_ARMS_TO_DRAW, MOST_WORK_TO_DRAW
from sketchbandits.policies.multiscale.rays import RAY_PULLS
from sketchbandits.policies.multiscale.space import EVALUATION, PUBLICATION, ROW
from sketchbandits.policies.multiscale.space_basis import MOST_DIMENSIONS, ROUNDING_RANK

# Abeille and Lazaric's constants of a Gaussian draw: it is optimistic with this probability at least.
OPTIMISTIC = 1.0 / (4.0 * math.sqrt(math.e * math.pi))
DYADIC_ERROR = 1.0  # DBSLinUCB's default


@dataclass(frozen=True)
class Case:
    """A problem: arms as far as bounds see them, and the model. Letters as in the papers: R, S, L, lambda, delta."""

    n_arms: int
    dim: int
    rank: int
    n_rays: int
    ray_spread: float  # ln of the largest ratio of the norms of two arms on one ray
    spectrum: Spectrum
    arm_norm: float
    rounds: int
    noise: float
    theta_norm: float
    ridge: float
    delta: float

    @property
    def rate(self) -> float:
        """``L^2/ridge``."""
        return self.arm_norm**2 / self.ridge

    @property
    def trivial(self) -> float:
        """``2 S L T``: what no policy can exceed."""
        return 2.0 * self.theta_norm * self.arm_norm * self.rounds

    @property
    def potential(self) -> float:
        """The constant ``c`` of the elliptical potential."""
        return max(2.0, self.rate / math.log1p(self.rate))

    def information(self, dims: float) -> float:
        """``D ln(1 + T L^2/(D ridge))``."""
        return float(closed_information(float(self.rounds), float(dims), self.rate))

    @property
    def draws(self) -> bool:
        """Whether MultiscaleCSLB by itself makes random choices, for so many arms."""
        return self.n_arms <= MOST_ARMS_TO_DRAW and self.n_arms * self.dim**2 <= MOST_WORK_TO_DRAW

    @property
    def space_dims(self) -> int:
        """The dimensions of MultiscaleCSLB's fit of all arms; 0 where it keeps none."""
        values = self.spectrum.values
        dims = int((values > ROUNDING_RANK * values[0]).sum())
        return dims if dims <= MOST_DIMENSIONS else 0

    def effective_rank(self, space: bool = True) -> float:
        """The arms' effective rank as MultiscaleCSLB takes it: the number of features where it keeps no space."""
        if not space or not self.space_dims:
            return float(self.dim)
        moments = self.spectrum.values[: self.space_dims] ** 2 / self.spectrum.rows
        return effective_rank(moments, self._unit)

    def with_rank(self, rank: float) -> "Case":
        """The same with the ridge that MultiscaleCSLB gives to a fit of this effective rank."""
        return dataclasses.replace(self, ridge=rank * self._unit)

    @property
    def _unit(self) -> float:
        return prior_variance(self.noise, self.theta_norm, self.arm_norm)

    def radius(self, dims: float, share: float, *, mixture: bool = False) -> float:
        """The radius of one fit of so many dimensions after all rounds."""
        bias = math.sqrt(self.ridge) * self.theta_norm
        form = mixture_radius if mixture else ellipsoid_radius
        return float(form(self.information(dims), self.noise, bias, -math.log(share)))


def ellipsoids(case: Case, *, dims: int, total: int, share: float, mixture: bool = False) -> float:
    """Fits of ``dims`` dimensions at most, ``total`` in all, each failing with probability ``share`` at most."""
    radius = case.radius(dims, share, mixture=mixture)
    return 2.0 * radius * math.sqrt(case.potential * case.rounds * case.information(total))


def oful(case: Case) -> float:
    """One fit of the arms' span, ``radius="logdet"``: ``2 beta sqrt(2 r T ln(1 + T L^2/(r ridge)))``."""
    return ellipsoids(case, dims=case.rank, total=case.rank, share=case.delta)


def rarely_switching(case: Case, switching: float) -> float:
    """OFUL's, times ``sqrt(1 + C)``."""
    return math.sqrt(1.0 + switching) * oful(case)


def cslb_paper(case: Case, row: ClusterRow) -> float:
    """Theorem 1 with the radius of Eq. (2) at T, for ``ridge >= max(1, L^2)``; else with the larger potential."""
    l = min(row.sketch_size, case.rank) if case.n_arms < row.sketch_size else row.sketch_size
    share = case.delta / max(case.n_arms / l, row.fewest)
    bound = theorem_bound(
        case.rounds,
        sketch_size=l,
        n_clusters=row.fewest,
        radius=case.radius(l, share),
        arm_norm=case.arm_norm,
        ridge=case.ridge,
    )
    return bound * math.sqrt(case.potential / 2.0)


def cslb_logdet(case: Case, row: ClusterRow) -> float:
    """The same with each cluster's own determinant, and delta shared among the K clusters that there are."""
    dims = min(row.sketch_size, case.rank, row.total_rank)
    return ellipsoids(case, dims=dims, total=row.total_rank, share=case.delta / row.fewest)


def directions(case: Case) -> float:
    """Of MultiscaleCSLB's rays, by Lemma 2 of docs/math/multiscale.md: their set has no prior, but their arms have one.

    An arm of signed length s on a ray with information I has regret at most ``2 |s| min(S, h(I))``, with
    ``h(I)^2 = B (I + rho)/I^2`` and ``B = R^2 (ln(1 + I_T/rho) + 2 ln(1/delta'))``: two bounds of one width each. The
    square of the minimum falls with I, so that its sum over the rounds of a ray, weighted by s^2, is at most
    ``L^2 S^2`` more than its integral over I, and that is at most

        S^2 g + B (ln(1 + I_T/g) + rho/g)

    for every g > 0, best where ``h(g) = S``. Cauchy-Schwarz over the rounds of all rays, with ``I_T <= n L^2`` for a
    ray of n rounds and concavity, gives the sum. ``rho`` is `RAY_PULLS` times the squared length of the ray's first
    arm: at most that many times L^2, and ``1 + I_T/rho`` at most ``(1 + T/RAY_PULLS) e^(2 ray_spread)``.
    """
    S, L, R, T = case.theta_norm, case.arm_norm, case.noise, case.rounds
    rays, rho = min(case.n_rays, T), RAY_PULLS * L**2
    share = SHARES["direction"] * partition_share(1) * case.delta / (case.n_rays + 1)
    B = R**2 * (math.log1p(T / RAY_PULLS) + 2.0 * (case.ray_spread - math.log(share)))
    g = (B + math.sqrt(B**2 + 4.0 * S**2 * B * rho)) / (2.0 * S**2)
    each = S**2 * (L**2 + g) + B * (math.log1p(T * L**2 / (rays * g)) + rho / g)
    return 2.0 * math.sqrt(T * rays * each)


def clusters(case: Case, row: ClusterRow, space: bool = True) -> float:
    """`cslb_logdet` with MultiscaleCSLB's radius, ridge and share of delta (``space``: whether it keeps a space)."""
    share = SHARES["cluster"] * partition_share(1) * case.delta / (row.fewest + 1)
    dims = min(row.sketch_size, case.rank, row.total_rank)
    own = case.with_rank(min(row.sketch_size, case.dim, case.effective_rank(space)))
    return ellipsoids(own, dims=dims, total=row.total_rank, share=share, mixture=True)


def space(case: Case) -> float:
    """Of one fit of the arms' span that is never short of operations, as in Theorem 3 of docs/math/multiscale.md.

    A new fit is published in the round in which the determinant may have grown by ``e^nu`` since the last, so that
    whenever an arm is chosen its width is at most ``sqrt(e^nu)`` times the current one. ``nu`` is that of random
    choices, the larger one.
    """
    dims = case.space_dims
    if not dims:
        return math.inf
    news = min(MOST_NEWS, max(LEAST_NEWS, NEWS_PER_DIMENSION * dims))
    rank = case.effective_rank()
    own, share = case.with_rank(rank), SHARES["space"] * ridge_share(1, most_ridges(rank, case.dim)) * case.delta
    return math.exp(0.5 * news) * ellipsoids(own, dims=dims, total=dims, share=share, mixture=True)


def enough_operations(case: Case, row: ClusterRow) -> int:
    """The budget of operations per round with which the space's fit is never short, whatever is played.

    Every round pays for a row and a publication, so that a batch, at most one row for each round since the last, is
    paid for when it is frozen; and for the bound of every arm, each with a comparison of its cluster and of sentinels.
    """
    squared = case.space_dims**2
    every_arm = case.n_arms * (EVALUATION * squared + row.largest + row.fewest)
    return math.ceil((ROW + PUBLICATION) * squared + every_arm)


def multiscale(case: Case, row: ClusterRow, budget: int) -> float:
    """Of MultiscaleCSLB with ``explore="optimism"``: the least of its scales, since each one's argument holds.

    Ties may cost ``2 S L`` times their tolerance per round. The space counts only where ``budget`` is never short:
    with less, old bounds of the space only help, and nothing is claimed of them. Random choices: `CAUTION` times this.
    """
    scales = [directions(case), clusters(case, row, budget > 0)]
    if budget >= enough_operations(case, row):
        scales.append(space(case))
    return min(scales) + TIE * case.trivial


def ucb1(case: Case) -> float:
    """``2 R sqrt(32 N T ln T) + (1 + pi^2/3) 2 S L N``, in expectation, with ``exploration=8``.

    Theorem 1 of Auer et al. for R-sub-Gaussian noise pulls an arm of gap g at most ``32 R^2 ln T/g^2 + 1 + pi^2/3``
    times; gaps below ``R sqrt(32 N ln T/T)`` cost at most that per round.
    """
    n, T = case.n_arms, case.rounds
    pulls = 2.0 * case.noise * math.sqrt(32.0 * n * T * math.log(max(T, 2)))
    return pulls + (1.0 + math.pi**2 / 3.0) * 2.0 * case.theta_norm * case.arm_norm * n


def lints(case: Case) -> float:
    """Abeille and Lazaric's Theorem 1 for Gaussian draws in the arms' span, ``delta' = delta/(4T)``."""
    r, T, share = case.rank, case.rounds, case.delta / (4.0 * case.rounds)
    beta = case.radius(r, share)
    gamma = beta * math.sqrt(2.0 * r * math.log(2.0 * r / share))
    widths = math.sqrt(case.potential * T * case.information(r))
    drift = math.sqrt(8.0 * T * case.rate * math.log(4.0 / case.delta))
    return (beta + gamma * (1.0 + 4.0 / OPTIMISTIC)) * widths + 4.0 * gamma / OPTIMISTIC * drift


def soful(case: Case, size: int) -> float:
    """``V' >= V/(1 + rho/ridge)``: widths grow by that root, in addition to what the radius pays.

    ``rho`` is estimated, as though all arms were played equally often.
    """
    return _shrunken(case, min(case.dim, 2 * size), case.rounds * case.spectrum.shrunk(size))


def dyadic(case: Case, size: int) -> float:
    """SOFUL's with ``rho`` at most DBSLinUCB's default error, 0 where the first block holds the rank."""
    return _shrunken(case, case.dim, DYADIC_ERROR if size < case.rank else 0.0)


def cbscfd(case: Case, size: int) -> float:
    """``V' >= V``: only the radius pays for ``rho``, estimated as for SOFUL."""
    rows, rho = min(case.dim, 2 * size), case.rounds * case.spectrum.shrunk(size)
    model = (float(case.dim), case.noise, case.theta_norm, case.ridge, -math.log(case.delta))
    beta = float(compensated_radius(case.information(rows), case.ridge + rho, *model))
    return 2.0 * beta * math.sqrt(case.potential * case.rounds * case.information(case.rank))


def _shrunken(case: Case, rows: int, rho: float) -> float:
    model = (float(case.dim), case.noise, case.theta_norm, case.ridge, -math.log(case.delta))
    beta = float(sketched_radius(case.information(rows), rho, *model))
    growth = case.potential * (1.0 + rho / case.ridge)
    return 2.0 * beta * math.sqrt(growth * case.rounds * case.information(case.rank))
