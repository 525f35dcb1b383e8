"""What is learned instead of asked: the noise, the two ridges, and whether constants help, by marginal likelihood.

    ln p = -1/2 (ln det(A_0/rho) + sum ln det(A_a/c) + ln 1'V^-1 1) - (n + n_0 - 1)/2 ln(left + n_0 v) + prior

with v the variance of all rewards: the noise R, integrated out, starts from 20 rewards that scatter as all do, so that
nothing looks certain at the start; as there are more the 20 fade, ``n_0 = 400/(20 + n)``, since v counts what arms and
contexts differ by too. The centre has a flat prior: choices do not change when rewards are shifted.
``R^2 = (left + n_0 v)/(n + n_0)``. ln rho and ln c have broad normal priors, in units in which contexts and coordinates
have mean square 1.

**Search** A grid over c, around the last value once there are some rewards, and over rho; one eigen-decomposition per c
and cluster serves all rho. Then each constant is tried the other way, then c once more at half steps. A constant is an
intercept of each arm, or of what a context means for all arms: it costs regret where there is none. That of contexts is
kept where some of them are nearly zero, such as those of the users that a coding by indicators leaves out.
"""

import math
from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.hybrid.statistics import Spectra, Units, shared_fits

PRIOR_WEIGHT = 20.0
RIDGE_PRIOR = (math.log(10.0), 2.5)  # mean and standard deviation of ln rho
OWN_PRIOR = (math.log(100.0), 3.0)  # of ln c
STEP = math.sqrt(10.0)
RIDGES = STEP ** np.arange(-2.0, 11.0)
OWN_RIDGES = STEP ** np.arange(-2.0, 13.0, 2.0)
NARROW = 100  # rewards from which the search begins at the last value
SHORT = 0.01  # squared lengths of contexts, over their mean, that are nearly nothing
SMALLEST, LARGEST = 1e-6, 1e12  # ridges


def prior_weight(rewards: float) -> float:
    """How many rewards the broad prior of the noise counts as."""
    return PRIOR_WEIGHT**2 / (PRIOR_WEIGHT + rewards)


class Learned(NamedTuple):
    """What was learned; ``constants``: the scale, 0 or 1, of that of contexts and that of coordinates."""

    noise: float
    ridge: float
    own_ridge: float
    shift: float  # how far the centre is from the mean reward
    constants: tuple[float, float]
    evidence: float


class Question(NamedTuple):
    """The statistics, and what is given."""

    state: HybridState
    units: Units
    noise: float  # NaN: learned, as the next two
    ridge: float
    share: float

    def answer(self, constants: tuple[float, float], owns: Floats) -> Learned:
        """The most likely of these own ridges with any ridge."""
        seen, coordinates = self._with(constants)
        best: Learned | None = None
        for own in owns.tolist():
            fits = shared_fits(seen, coordinates, self.state.cluster, own)
            own_logdet = float(np.log1p(seen.singular**2 / own).sum())
            for ridge in self._ridges(own):
                products = sum(fit.products(ridge) for fit in fits.values())
                logdet = own_logdet + sum(fit.logdet(ridge) for fit in fits.values())
                found = self._judge(seen, np.asarray(products), logdet, (ridge, own), constants)
                if best is None or found.evidence > best.evidence:
                    best = found
        assert best is not None
        return best

    def _with(self, constants: tuple[float, float]) -> tuple[Spectra, Floats]:
        scale, coordinates = self.units.scale.copy(), self.state.coordinates
        scale[-1] = constants[0]
        if self.state.level["constant"][0]:
            coordinates = coordinates.copy()
            coordinates[:, -1] = constants[1]
        return Spectra.of(self.state, self.units._replace(scale=scale), coordinates), coordinates

    def _ridges(self, own: float) -> list[float]:
        if not math.isnan(self.ridge):
            return [self.ridge]
        if not math.isnan(self.share):
            return [own * self.share / (1.0 - self.share)]
        return RIDGES.tolist()

    def _judge(
        self,
        seen: Spectra,
        products: Floats,
        logdet: float,
        ridges: tuple[float, float],
        constants: tuple[float, float],
    ) -> Learned:
        shift = float(products[0, 1] / products[1, 1])
        left = seen.rest + float(products[0, 0]) - shift * float(products[0, 1])
        weight = prior_weight(seen.weight)
        squares = left + weight * seen.total / seen.weight
        counted = seen.weight + weight
        evidence = -0.5 * (logdet + math.log(products[1, 1]))
        for value, (mean, deviation) in zip(ridges, (RIDGE_PRIOR, OWN_PRIOR), strict=True):
            evidence -= 0.5 * ((math.log(value) - mean) / deviation) ** 2
        if math.isnan(self.noise):
            evidence -= 0.5 * (counted - 1.0) * math.log(squares)
            return Learned(math.sqrt(squares / counted), *ridges, shift, constants, evidence)
        return Learned(self.noise, *ridges, shift, constants, evidence - 0.5 * left / self.noise**2)


def learn(state: HybridState, units: Units) -> Learned:
    """The noise, ridges, centre and constants that are most likely, with those that were given."""
    level = state.level[0]
    given = [float(level[name]) for name in ("given_noise", "given_ridge", "given_share")]
    needed = _constant_is_needed(state, units)
    context = 1.0 if needed else float(state.scale[-1])
    now = (context, float(state.coordinates[0, -1]) if level["constant"] else 1.0)
    question = Question(state, units, *given)
    fixed = _fixed_own(*given[1:])
    owns = np.array([fixed]) if fixed is not None else OWN_RIDGES
    if fixed is None and level["samples"] >= NARROW:
        owns = np.clip(float(level["own_ridge"]) * STEP ** np.array([-2.0, 0.0, 2.0]), SMALLEST, LARGEST)
    best = question.answer(now, owns)
    # Without contexts a constant of all arms is the centre again.
    for constants in _others(now, not needed, len(units.scale) > 1 and bool(level["constant"])):
        best = max(best, question.answer(constants, np.array([best.own_ridge])), key=lambda one: one.evidence)
    if fixed is None:
        near = np.clip(best.own_ridge * STEP ** np.array([-1.0, 1.0]), SMALLEST, LARGEST)
        best = max(best, question.answer(best.constants, near), key=lambda one: one.evidence)
    return best


def _constant_is_needed(state: HybridState, units: Units) -> bool:
    """Whether there are contexts of which nothing is left without a constant: no arm would be explored for them."""
    if len(units.scale) == 1:
        return True
    return bool(state.level[0]["shortest"] * units.scale[0] ** 2 < SHORT)


def held(state: HybridState, units: Units) -> Learned:
    """The noise and the centre, with ridges and constants as they are."""
    level = state.level[0]
    ridge, own = float(level["ridge"]), float(level["own_ridge"])
    question = Question(state, units, float(level["given_noise"]), ridge, math.nan)
    constants = (float(state.scale[-1]), float(state.coordinates[0, -1]) if level["constant"] else 1.0)
    return question.answer(constants, np.array([own]))


def _fixed_own(ridge: float, share: float) -> float | None:
    """The own ridge that follows from a given ridge and share; none where one of them is learned."""
    if math.isnan(ridge) or math.isnan(share):
        return None
    return ridge * (1.0 - share) / share


def _others(now: tuple[float, float], context: bool, constant: bool) -> list[tuple[float, float]]:
    """The constants that may be switched, in all other ways."""
    first = (0.0, 1.0) if context else (now[0],)
    second = (0.0, 1.0) if constant else (now[1],)
    return [(u, z) for u in first for z in second if (u, z) != now]
