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

import numpy as np

from sketchbandits.confidence import (
    closed_information,
    compensated_radius,
    ellipsoid_radius,
    mixture_radius,
    sketched_radius,
    theorem_bound,
)
from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.lab.advice.spectrum import Spectrum
from sketchbandits.policies.multiscale.policy import MOST_DIMENSIONS, SHARES, partition_share

# Abeille and Lazaric's constants of a Gaussian draw: it is optimistic with this probability at least.
OPTIMISTIC = 1.0 / (4.0 * math.sqrt(math.e * math.pi))
DYADIC_ERROR = 1.0  # DBSLinUCB's default
GROWTHS = np.geomspace(0.05, 10.0, 24)  # of det V between refreshes


@dataclass(frozen=True)
class Case:
    """A problem: arms as far as bounds see them, and the model. Letters as in the papers: R, S, L, lambda, delta."""

    n_arms: int
    dim: int
    rank: int
    n_rays: int
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
    def space_dims(self) -> int:
        """The dimensions of MultiscaleCSLB's fit of all arms; 0 where it keeps none."""
        dims = self.dim if self.n_arms > self.dim else self.rank
        return dims if dims < self.n_arms and dims <= MOST_DIMENSIONS else 0

    def radius(self, dims: float, share: float, *, mixture: bool = False) -> float:
        """The radius of one fit of so many dimensions after all rounds."""
        bias = math.sqrt(self.ridge) * self.theta_norm
        form = mixture_radius if mixture else ellipsoid_radius
        return float(form(self.information(dims), self.noise, bias, -math.log(share)))

    def scale(self, dims: int) -> "Case":
        """The same with the ridge that MultiscaleCSLB gives to a fit of so many dimensions."""
        ridge = dims * max(self.noise / self.theta_norm, 1e-3 * self.arm_norm) ** 2
        return dataclasses.replace(self, ridge=ridge)


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
    """A scalar fit for each ray: ``2 beta_1 sqrt(2 n T ln(1 + T L^2/(n ridge)))`` for n rays."""
    share = SHARES["direction"] * partition_share(1) * case.delta / (case.n_rays + 1)
    return ellipsoids(case.scale(1), dims=1, total=case.n_rays, share=share, mixture=True)


def clusters(case: Case, row: ClusterRow) -> float:
    """`cslb_logdet` with MultiscaleCSLB's radius, ridge and share of delta."""
    share = SHARES["cluster"] * partition_share(1) * case.delta / (row.fewest + 1)
    dims = min(row.sketch_size, case.rank, row.total_rank)
    own = case.scale(min(row.sketch_size, case.dim))
    return ellipsoids(own, dims=dims, total=row.total_rank, share=share, mixture=True)


def space(case: Case, interval: float) -> float:
    """One fit of the span that is refreshed every ``interval`` rounds; +inf where there is none.

    Between two refreshes det V grows by ``1 + C`` or more at most ``I/ln(1 + C)`` times, and each such time costs at
    most ``2 S L`` per round; at all others an old width is at most ``sqrt(1 + C)`` times the current one. The least
    over C.
    """
    if not case.space_dims or math.isinf(interval):
        return math.inf
    own = case.scale(case.space_dims)
    fresh = ellipsoids(own, dims=case.rank, total=case.rank, share=SHARES["space"] * case.delta, mixture=True)
    if interval <= 1.0:
        return fresh
    lost = 2.0 * case.theta_norm * case.arm_norm * interval * own.information(case.rank)
    return float((np.sqrt(1.0 + GROWTHS) * fresh + lost / np.log1p(GROWTHS)).min())


def multiscale(case: Case, row: ClusterRow, interval: float) -> float:
    """The least of the scales: every arm's bound is the tightest, so each scale's argument holds."""
    return min(directions(case), clusters(case, row), space(case, interval))


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
