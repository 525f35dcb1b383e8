"""Whether ``noise`` and ``theta_norm`` can be right, by the rewards so far: tests that hold at all rounds together.

**Noise** For R-sub-Gaussian noise ``E exp(lambda e^2/R^2) <= (1 - 2 lambda)^(-1/2)`` for lambda < 1/2, so by Ville's
inequality, with probability ``1 - alpha'`` at all rounds n at once,

    lambda sum_t e_t^2 <= R^2 (n/2 ln(1/(1 - 2 lambda)) + ln(1/alpha'))

and the scatter within arms (`policies.scatter`) is at most ``sum_t e_t^2``, however arms were chosen. Each doubling of
n has a lambda and a share ``alpha/(j (j + 1))`` of its own. The *least noise* is the R that makes this an equality.

**Norm** ``||theta*||`` is at least the mean of an arm's own rewards, less its confidence width, over ``||x||``; and at
least the least norm in a confidence ellipsoid of all rewards. Both have the width that the larger of the noise given
and the noise seen makes, so that a wrong ``noise`` is not taken for a wrong ``theta_norm``.

**Guarantee** With right parameters each of the two ever looks violated with probability at most about `ALPHA`.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.validate import LARGEST

ALPHA = 1e-6
LEAST_FREEDOM = 30  # degrees of freedom below which nothing is claimed
ROUNDED = 1e-9  # scatter below this share of the rewards' size may be rounding
SMALL_RIDGE = 1e-9  # of the largest sum of a feature's squares: what a fit without the ridge keeps of it
DIGITS = 1e-13  # of the least sum of squares: rounding
ROOM = 1.25  # a suggested value is larger than what was seen by this factor
MOST_TRIES = 9  # to find a norm that fits
CHEAP, PER_REWARD = 3e7, 100.0  # operations that a check may take, at least and for each reward recorded


class AssumptionWarning(UserWarning):
    """``noise`` or ``theta_norm`` is too small for the rewards that were recorded, so the bounds may not hold."""


class Violation(NamedTuple):
    """A parameter that looks too small: what was given, what was seen, and a value that fits these rewards."""

    parameter: str
    given: float
    seen: float
    suggestion: float


class Diagnostics(NamedTuple):
    """What a policy's own rewards say of its parameters; None where nothing can be said, or nothing is assumed.

    ``rewards`` are those of the arms that there are. ``noise_seen`` is the standard deviation of rewards around their
    arm's mean (of contexts: around the fit), with ``freedom`` degrees of freedom. ``least_noise`` and
    ``least_theta_norm`` are confidence limits: the parameters are larger, or something very improbable has happened.
    Rewards of before a state file of an older format, or of before
    rewards were taken back in the service, do not count in ``freedom``.
    """

    rewards: int
    freedom: int
    noise: float | None
    noise_seen: float | None
    least_noise: float | None
    theta_norm: float | None
    least_theta_norm: float | None
    violated: tuple[Violation, ...]


class Evidence(NamedTuple):
    """What is known of the noise: the sum of squares, its degrees of freedom, and of how many rewards it is."""

    rewards: int
    squares: float
    freedom: int
    terms: float
    size: float  # of rewards, which says what may be rounding


class LeastSquares(NamedTuple):
    """A ridge fit of all rewards of contexts, ``V theta = target``, and its record of `policies.scatter`.

    Its least sum of squares is at most that of the noise and ``ridge ||theta*||^2``. Where that is much, a parameter
    larger than ``theta_norm`` would pass for noise, so the noise is judged by the fit with a far smaller ridge.
    """

    V: Floats
    theta: Floats
    target2: float  # target.theta
    ridge: float
    seen: Any

    def evidence(self, rewards: int, theta_norm: float) -> Evidence:
        """What is left over without the ridge, but for as much of it as keeps the digits."""
        least, count, firsts = (float(self.seen[name]) for name in ("squares", "freedom", "firsts"))
        freedom = max(0, int(count) - self.theta.size)
        size = math.sqrt(max(least + self.target2, 0.0) / max(count, 1.0))
        squares = self._squares(least, theta_norm) if freedom else 0.0
        if rewards != count + firsts:  # a sketch has lost some: its fit goes on, the sum of squares does not
            norm = max(theta_norm, float(np.linalg.norm(self.theta)))
            squares = min(squares, max(0.0, least - self.ridge * norm**2))
        return Evidence(rewards, squares, freedom, count + firsts, size)

    def _squares(self, least: float, theta_norm: float) -> float:
        """``least`` for the smaller ridge mu, less by ``(ridge - mu) theta.theta_mu``; 0 if rounding leaves nothing."""
        own, largest = self.ridge, float(self.V.diagonal().max()) - self.ridge
        ridge = min(own, max(SMALL_RIDGE * largest, 1e-12 * own))
        V = self.V.copy()
        V[np.diag_indices_from(V)] -= own - ridge
        if not (largest > 0.0 and np.isfinite(V).all() and np.isfinite(self.theta).all()):
            return 0.0
        try:
            theta = np.linalg.solve(V, self.V @ self.theta)
        except np.linalg.LinAlgError:
            return 0.0
        norm, rounding = max(theta_norm, float(np.linalg.norm(theta))), DIGITS * (1.0 + own / largest) * least
        squares = least - max(0.0, (own - ridge) * float(theta @ self.theta)) - ridge * norm**2 - rounding
        return max(0.0, squares) if math.isfinite(squares) else 0.0


class Norm(NamedTuple):
    """A lower confidence limit of the parameter's norm, and an estimate of it."""

    least: float
    shown: float


NO_NORM = Norm(0.0, 0.0)


def diagnose(evidence: Evidence, assumed: dict[str, float], norm: Callable[[float, float], Norm | None]) -> Diagnostics:
    """Compare the parameters ``assumed`` with what was seen; ``norm(noise, theta_norm)`` bounds the latter."""
    noise, theta_norm = assumed.get("noise"), assumed.get("theta_norm")
    least, seen = least_noise(evidence), None
    if evidence.freedom > 0:
        seen = math.sqrt(max(evidence.squares, 0.0) / evidence.freedom)
    found, violated, scale = None, [], None
    if noise is not None and least is not None and seen is not None:
        scale = max(noise, ROOM * seen)
        if least > noise + ROUNDED * evidence.size:
            violated.append(Violation("noise", noise, seen, rounded_up(ROOM * seen)))
    if scale is not None and theta_norm is not None:
        found = norm(scale, theta_norm)
        if found is not None and found.least > theta_norm * (1.0 + ROUNDED):
            suggestion = _fitting(found, lambda value: norm(scale, value))
            violated.append(Violation("theta_norm", theta_norm, found.least, suggestion))
    least_norm = None if found is None else found.least
    return Diagnostics(evidence.rewards, evidence.freedom, noise, seen, least, theta_norm, least_norm, tuple(violated))


def _fitting(found: Norm, norm: Callable[[float], Norm | None]) -> float:
    """A norm that the same rewards do not contradict; a larger one makes the ridge smaller, which may show more."""
    value = rounded_up(ROOM * max(found.least, found.shown))
    for _ in range(MOST_TRIES):
        again = norm(value)
        if again is None or again.least <= value:
            break
        value = rounded_up(ROOM * max(again.least, again.shown))
    return value


def least_noise(evidence: Evidence) -> float | None:
    """The lower confidence limit of the noise's scale, none with too few degrees of freedom."""
    if evidence.freedom < LEAST_FREEDOM or not math.isfinite(evidence.squares):
        return None
    doublings = math.floor(math.log2(evidence.terms))
    log_share = math.log(doublings * (doublings + 1.0) / ALPHA)
    rate = min(0.45, math.sqrt(log_share / 2.0**doublings))
    most = -0.5 * evidence.terms * math.log1p(-2.0 * rate) + log_share
    return math.sqrt(rate * max(evidence.squares, 0.0) / most)


def message(violation: Violation) -> str:
    """A violation in a sentence."""
    name, given, seen, suggestion = violation
    what = (
        f"rewards scatter with a standard deviation of {seen:.3g}"
        if name == "noise"
        else f"the rewards imply a parameter of norm {seen:.3g} or more"
    )
    return (
        f"{name}={given:g} looks too small, so that the bounds may not hold: {what}; {name}={suggestion:g} would fit "
        "these rewards (policy.diagnostics() says more)"
    )


def rounded_up(value: float) -> float:
    """The least number of two digits that is not below ``value``."""
    if not math.isfinite(value) or value <= 0.0:
        return value
    exponent = math.floor(math.log10(value)) - 1
    return float(f"{math.ceil(value / 10.0**exponent * (1 - 1e-12))}e{exponent}")


def norm_of_arms(norms: Floats, counts: Ints, sums: Floats, noise: float) -> Norm:
    """By each arm's own rewards: ``(mean - width)/||x||``, arm i with the share ``1/((i + 1)(i + 2))`` of alpha."""
    own = np.flatnonzero((counts > 0) & (norms > 0.0))
    if not own.size:
        return NO_NORM
    n, length = counts[own].astype(np.float64), norms[own]
    log_share = np.log((own + 1.0) * (own + 2.0) / ALPHA)
    width = noise * np.sqrt((n + 1.0) * (np.log1p(n) + 2.0 * log_share)) / n
    size = np.abs(sums[own]) / n
    least = (size - width - ROUNDED * size) / length
    best = int(least.argmax())
    return Norm(max(0.0, float(least[best])), float(size[best] / length[best]))


def norm_of_fit(rows: Floats, counts: Ints, sums: Floats, noise: float, theta_norm: float) -> Norm:
    """By a ridge fit of all rewards, given as counts and sums of the arms ``rows`` that have any."""
    if rows.shape[1] > rows.shape[0]:  # coordinates in the span of the arms
        rows = np.linalg.qr(rows.T).R.T
    V, target = rows.T @ (rows * counts[:, None]), rows.T @ sums
    ridge = max(min(noise / theta_norm, math.sqrt(LARGEST)) ** 2, 1e-6 * float((rows**2).sum(axis=1).max(initial=0.0)))
    if not (math.isfinite(ridge) and ridge > 0.0 and np.isfinite(V).all() and np.isfinite(target).all()):
        return NO_NORM
    V[np.diag_indices_from(V)] += ridge
    values, vectors = np.linalg.eigh(V)
    logdet = float(np.log(np.maximum(values / ridge, 1.0)).sum())
    beta = math.sqrt(noise**2 * (logdet - 2.0 * math.log(ALPHA)) + ridge * theta_norm**2)
    return _least_in_ellipsoid(values, (vectors.T @ target) / values, beta)


def least_norm(V: Floats, theta: Floats, beta: float) -> Norm:
    """The least norm in the ellipsoid ``||. - theta||_V <= beta``."""
    if not (np.isfinite(V).all() and np.isfinite(theta).all() and math.isfinite(beta)):
        return NO_NORM
    values, vectors = np.linalg.eigh(V)
    return _least_in_ellipsoid(values, vectors.T @ theta, beta)


def _least_in_ellipsoid(values: Floats, center: Floats, beta: float) -> Norm:
    """In the axes of the ellipsoid: ``theta_i = m v_i c_i/(1 + m v_i)``, with the m that puts it on the boundary."""
    if beta**2 >= float((values * center**2).sum()):
        return NO_NORM
    low, high = -80.0, 80.0  # ln m
    for _ in range(100):
        middle = 0.5 * (low + high)
        inside = float((values * center**2 / (1.0 + math.exp(middle) * values) ** 2).sum()) <= beta**2
        low, high = (low, middle) if inside else (middle, high)
    weight = math.exp(low) * values
    return Norm(float(np.linalg.norm(weight * center / (1.0 + weight))), float(np.linalg.norm(center)))
