"""Every confidence radius, one function each.

A radius ``beta`` makes ``{theta : ||theta - theta_hat||_V <= beta}`` cover the true parameter at every round with
probability ``1 - delta``. All rest on the self-normalised bound of Abbasi-Yadkori, Pal and Szepesvari (NeurIPS 2011,
Theorem 2); they differ in how ``ln det(V/ridge)`` is bounded and in what a sketch has lost. ``log_share`` is
``ln(1/delta)`` for the share of ``delta`` that the ellipsoid may spend.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.compiled import kernel

# A policy's radius travels through kernels as one record. ``rate`` is L^2/ridge and ``bias`` is sqrt(ridge) S: a round
# need not compute them again. ``value`` is the radius itself where ``kind`` is FIXED, a constant or what a user's
# function last returned.
RADIUS = np.dtype(
    [
        (name, np.float64)
        for name in ("kind", "noise", "bias", "rate", "ridge", "log_share", "dim", "value", "theta_norm")
    ]
)
CLOSED, LOGDET, FIXED, MIXTURE, UNBIASED = range(5)

# How a Thompson draw is scaled: a free SCALE (NaN for the theory's), a HORIZON (0 for none), ln(1/delta).
SCALE, HORIZON, SAMPLING_SHARE = range(3)


@kernel
def closed_information(n: float, rank: float, rate: float) -> float:
    """``rank ln(1 + n L^2/(rank ridge)) >= ln det(V/ridge)`` for ``n`` vectors; ``rate`` is L^2/ridge."""
    return rank * np.log(1.0 + n * rate / rank) if rank > 0 else 0.0


@kernel
def ellipsoid_radius(information: float, noise: float, bias: float, log_share: float) -> float:
    """``R sqrt(information + 2 ln(1/delta)) + sqrt(ridge) S``: exact statistics; ``bias`` is the last term.

    With ``closed_information(t, l, L^2/ridge)`` and ``log_share = ln(N/(l delta))`` it is CS-LB's Eq. (2).
    """
    return noise * np.sqrt(information + 2.0 * log_share) + bias


@kernel
def mixture_radius(information: float, noise: float, bias: float, log_share: float) -> float:
    """``sqrt(R^2 (information + 2 ln(1/delta)) + ridge S^2)``: exact statistics, never above `ellipsoid_radius`.

    The likelihood ratio of theta' ~ N(0, R^2/ridge I) against theta* is a supermartingale; with Ville's inequality it
    bounds the whole of ``||theta_hat - theta*||_V``, where Theorem 2 of Abbasi-Yadkori et al. bounds the noise's part
    and adds the ridge's by the triangle inequality (Flynn, Reeb, Kandemir and Peters, NeurIPS 2023, their analytic
    martingale mixture; proof in docs/math/multiscale.md).
    """
    return np.sqrt(noise**2 * (information + 2.0 * log_share) + bias**2)


@kernel
def unbiased_width(information: float, ridge: float, noise: float, log_share: float) -> float:
    """Half-width ``R sqrt((I + ridge)(ln(1 + I/ridge) + 2 ln(1/delta)))/I`` around ``b/I``, for a scalar parameter.

    ``I = sum s^2 > 0``, ``b = sum s y``. The noise ``sum s eta`` alone is bounded, by the mixture over multiples of it
    (de la Pena, Klass and Lai 2004); no prior enters, so that any ``ridge > 0`` is valid whatever ``theta_norm`` is.
    """
    spread = (information + ridge) * (np.log1p(information / ridge) + 2.0 * log_share)
    return noise * np.sqrt(spread) / information


@kernel
def sketched_radius(
    information: float, shrunk: float, dim: float, noise: float, theta_norm: float, ridge: float, log_share: float
) -> float:
    """Frequent Directions has dropped mass ``rho = shrunk`` (Kuzborskij et al. 2019, with the measured ``rho``):

    ``R sqrt(q + 2 ln(1/delta) + d ln(1 + rho/ridge)) sqrt(1 + rho/ridge) + S sqrt(ridge) (1 + rho/ridge)``.
    """
    loss = shrunk / ridge
    root = np.sqrt(information + 2.0 * log_share + dim * np.log1p(loss))
    return noise * root * np.sqrt(1.0 + loss) + theta_norm * np.sqrt(ridge) * (1.0 + loss)


@kernel
def compensated_radius(
    information: float, alpha: float, dim: float, noise: float, theta_norm: float, ridge: float, log_share: float
) -> float:
    """The dropped mass is kept on the diagonal, ``V = S'S + alpha I`` (spectral compensation):

    ``R sqrt(q + 2 ln(1/delta) + d ln(alpha/ridge)) + S sqrt(alpha)``.
    """
    root = np.sqrt(information + 2.0 * log_share + dim * np.log(alpha / ridge))
    return noise * root + theta_norm * np.sqrt(alpha)


@kernel
def radius_at(radius: Any, n: float, logdet: float, log_share: float) -> float:
    """The radius that a `RADIUS` record describes, after ``n`` samples with ``ln det(V/ridge) = logdet``."""
    kind = radius["kind"]
    if kind == FIXED:
        return radius["value"]
    if kind == MIXTURE:
        return mixture_radius(logdet, radius["noise"], radius["bias"], log_share)
    information = logdet if kind == LOGDET else closed_information(n, radius["dim"], radius["rate"])
    return ellipsoid_radius(information, radius["noise"], radius["bias"], log_share)


@kernel
def radius_value(radius: Any, n: float, logdet: float) -> float:
    """`radius_at` the policy's own share of delta."""
    return radius_at(radius, n, logdet, radius["log_share"])


@kernel
def sampling_share(sampling: NDArray[np.float64], n: float) -> float:
    """``ln(1/delta')`` of a Thompson draw: ``delta' = delta/(4T)`` for a known horizon, else ``delta/(t(t+1))``."""
    horizon, log_share = sampling[HORIZON], sampling[SAMPLING_SHARE]
    if horizon > 0.0:
        return log_share + np.log(4.0 * horizon)
    return log_share + np.log((n + 1.0) * (n + 2.0))


def theorem_bound(
    rounds: int, *, sketch_size: int, n_clusters: int, radius: float, arm_norm: float, ridge: float
) -> float:
    """Theorem 1 of the CS-LB paper, ``2 beta_T sqrt(2 l K T ln(1 + T L^2/(ridge l)))`` for ``ridge >= max(1, L^2)``."""
    information = closed_information(float(rounds), float(sketch_size), arm_norm**2 / ridge)
    return float(2.0 * radius * np.sqrt(2.0 * n_clusters * rounds * information))
