"""A refit: what is learned, then every fit from the arms' own factors, exactly. O(N p^3 + K (p r)^3 + N p^2 r^2)."""

import math

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.hybrid.layout import RANDOMISED, HybridState
from sketchbandits.policies.hybrid.learning import OWN_PRIOR, RIDGE_PRIOR, Learned, learn
from sketchbandits.policies.hybrid.statistics import Spectra, Units, scatter_of, shared_fits, units_of

BOLDNESS = 1.5  # the scale of draws where every round is the same
LESS_BOLD = 0.25  # where contexts vary around 0: they explore by themselves
EVERY = 8  # rewards after each of which a refit follows
PER_HALF_LIFE = 20
AT_A_TIME = 512  # arms
RENEWED = ("coordinates", "own", "spread", "inverse", "shared", "shared_inverse", "scale", "level")
SMALLEST = 1e-100  # what has faded below it is forgotten
GROWTH = 1.25  # of their number between later refits


def refit(state: HybridState) -> None:
    """Forget, learn, and fit; where rewards have not differed yet, what is given or the middle of the prior.

    All is computed on copies first: an interrupt leaves the fit that there was.
    """
    trial = state._replace(**{name: getattr(state, name).copy() for name in RENEWED})
    if np.isfinite(state.level["half_life"][0]):
        trial = trial._replace(factors=state.factors.copy())
    fade(trial)
    units = units_of(trial.factors)
    level = trial.level[0]
    known = learn(trial, units) if _differ(trial, units) else _prior(trial)
    units.scale[-1] = known.constants[0]
    level["noise"], level["ridge"], level["own_ridge"] = known.noise, known.ridge, known.own_ridge
    level["scatter"] = scatter_of(trial.factors, trial.counts) if math.isnan(level["given_noise"]) else 0.0
    level["centre"] = units.mean + known.shift
    if level["rule"] == RANDOMISED:
        level["boldness"] = BOLDNESS - LESS_BOLD * units.variety
    if level["constant"]:
        trial.coordinates[:, -1] = known.constants[1]
    trial.scale[:] = units.scale
    fit(trial, units, known.shift)
    for old, new in zip(state, trial, strict=True):
        if old is not new:
            old[...] = new


def settled(state: HybridState) -> None:
    """The refit is done: when the next one follows, at least `PER_HALF_LIFE` times per half-life."""
    level = state.level[0]
    n = int(level["samples"])
    due = n + 1 if n < EVERY else math.ceil(GROWTH * n)
    level["due"], level["waits"] = min(due, n + max(1.0, level["half_life"] / PER_HALF_LIFE)), 0


def fade(state: HybridState) -> None:
    """Let what was recorded count for less, by half for every half-life since the last time."""
    level = state.level[0]
    since = level["samples"] - level["faded"]
    if since > 0 and np.isfinite(level["half_life"]):
        state.factors[:] *= 2.0 ** (-0.5 * since / level["half_life"])
        state.factors[np.abs(state.factors) < SMALLEST] = 0.0
    level["faded"] = level["samples"]


def _differ(state: HybridState, units: Units) -> bool:
    seen = Spectra.of(state.factors, state.counts, units)
    return seen.total > 1e-24 * seen.weight * units.mean**2


def _prior(state: HybridState) -> Learned:
    level = state.level[0]
    noise, ridge, share = (float(level[name]) for name in ("given_noise", "given_ridge", "given_share"))
    ridge = math.exp(RIDGE_PRIOR[0]) if math.isnan(ridge) else ridge
    own = math.exp(OWN_PRIOR[0]) if math.isnan(share) else ridge * (1.0 - share) / share
    return Learned(0.0 if math.isnan(noise) else noise, ridge, own, 0.0, (1.0, 1.0), -math.inf)


def fit(state: HybridState, units: Units, shift: float) -> None:
    """Every arm's coefficients, their spread and its inverse precision, and every cluster's, for the present ridges."""
    rho, c = (float(state.level[0][name]) for name in ("ridge", "own_ridge"))
    seen = Spectra.of(state.factors, state.counts, units)
    p, r = state.shared.shape[1:]
    own_precision = seen.singular**2 + c
    state.inverse[:] = np.eye(p) / c
    state.inverse[seen.arms] = np.einsum("nki,nk,nkj->nij", seen.right, 1.0 / own_precision, seen.right)
    target = seen.targets[0] - shift * seen.targets[1]
    state.own[:] = 0.0
    state.own[seen.arms] = np.einsum("nki,nk->ni", seen.right, seen.singular * target / own_precision)
    state.shared[:], state.shared_inverse[:] = 0.0, np.eye(p * r) / rho
    for k, found in shared_fits(seen, state.coordinates, state.cluster, c).items():
        rewards, ones = found.coefficients(rho)
        state.shared[k], state.shared_inverse[k] = rewards - shift * ones, found.inverse(rho)
    for k in range(len(state.shared)):
        _share(state, k, c)


def _share(state: HybridState, k: int, c: float) -> None:
    """What cluster ``k`` knows, passed on to its arms."""
    arms = state.members[state.starts[k] : state.starts[k + 1]]
    p, r = state.shared.shape[1:]
    whole = state.shared_inverse[k].reshape(p, r, p, r)
    for first in range(0, arms.size, AT_A_TIME):
        some = arms[first : first + AT_A_TIME]
        z, weights = state.coordinates[some], c * state.inverse[some]
        state.own[some] += np.einsum("nij,nj->ni", weights, z @ state.shared[k].T)
        between: Floats = np.einsum("na,iajb,nb->nij", z, whole, z, optimize=True)
        state.spread[some] = state.inverse[some] + weights @ between @ weights
