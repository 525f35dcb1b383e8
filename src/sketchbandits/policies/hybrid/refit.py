"""A refit: what is learned, then every fit from the arms' own factors, exactly. O(N p^3 + K (p r)^3 + N p^2 r^2).

Refits that also learn follow at numbers of rewards that grow by a quarter. Where rewards are forgotten there are at
least twenty refits per half-life, and every fourth of them learns: searching costs about twenty times a fit.
"""

import math

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.policies.hybrid.layout import RANDOMISED, THEORY, HybridState
from sketchbandits.policies.hybrid.learning import OWN_PRIOR, RIDGE_PRIOR, Learned, held, learn
from sketchbandits.policies.hybrid.statistics import (
    Spectra,
    Units,
    all_factors,
    scatter_of,
    shared_fits,
    units_of,
    weighted_squares,
)

# What a draw is at least, and what is added to it times a squared normal number: where every round is the same, and
# where contexts vary around 0. Most draws are near the least, since a wide range of draws costs more regret than a high
# mean. Rare large ones end a wrong preference; contexts that vary explore by themselves and need fewer of them.
FLOORS = 1.25, 1.5
BOLDNESS = 0.35, 0.2
EVERY = 8  # rewards after each of which a refit follows
GROWTH = 1.25  # of their number between later refits
PER_HALF_LIFE = 20
UNLEARNED = 3  # refits between two that learn, where rewards are forgotten
AT_A_TIME = 512  # arms
RECORDED = ("factors", "gone", "moments")
RENEWED = (
    *RECORDED,
    *("coordinates", "own", "spread", "inverse", "shared"),
    *("shared_inverse", "shared_factor", "logdet", "scale", "level"),
)
SMALLEST = 1e-60  # what has faded below it is forgotten


@one_blas_thread()
def refit(state: HybridState, old: HybridState | None = None) -> None:
    """Forget, learn, and fit; where rewards have not differed yet, what is given or the middle of the prior.

    All is computed on copies first: an interrupt leaves the fit that there was. ``old``: start from the statistics of
    this state instead, and learn from them.
    """
    trial = state._replace(**{name: getattr(state, name).copy() for name in RENEWED})
    level = trial.level[0]
    if old is not None:
        for name in RECORDED:
            getattr(trial, name)[:] = getattr(old, name)
        level["learns"], level["faded"] = level["samples"], old.level["faded"][0]
    fade(trial)
    if trial.gone.size:
        _unit(trial)
    units = _units(trial)
    known = _known(trial, units)
    units.scale[-1] = known.constants[0]
    level["noise"], level["ridge"], level["own_ridge"] = known.noise, known.ridge, known.own_ridge
    level["scatter"] = scatter_of(trial.factors, trial.counts) if math.isnan(level["given_noise"]) else 0.0
    level["centre"] = units.mean + known.shift
    if level["rule"] == RANDOMISED:
        for name, (same, varied) in (("floor", FLOORS), ("boldness", BOLDNESS)):
            level[name] = same + (varied - same) * units.variety
    if level["constant"]:
        trial.coordinates[:, -1] = known.constants[1]
    trial.scale[:] = units.scale
    fit(trial, units, known.shift)
    for present, renewed in zip(state, trial, strict=True):
        if present is not renewed:
            present[...] = renewed


def _unit(state: HybridState) -> None:
    """Features that come with requests get mean square 1 over the arms that are kept."""
    features = state.coordinates[:, :-1]
    kept = (state.counts > 0) & features.any(axis=1)
    square = float((features[kept] ** 2).sum(axis=1).mean()) if kept.any() else 0.0
    if square > 0.0:
        features /= np.sqrt(square)
        state.level["unit"] /= np.sqrt(square)


def _units(state: HybridState) -> Units:
    """A guarantee is about the user's own units: nothing is scaled or centred there, and contexts get no constant."""
    if state.level[0]["rule"] != THEORY:
        return units_of(all_factors(state))
    return Units(np.ones(state.scale.size), 0.0, 0.0)


def _known(state: HybridState, units: Units) -> Learned:
    level = state.level[0]
    if level["rule"] == THEORY:
        noise, ridge, own = (float(level[name]) for name in ("given_noise", "ridge", "own_ridge"))
        return Learned(noise, ridge, own, 0.0, (float(units.scale.size == 1), 1.0), 0.0)
    if not _differ(state, units):
        return _prior(state)
    if level["samples"] >= level["learns"] or level["unlearned"] >= UNLEARNED:
        return learn(state, units)
    return held(state, units)


def settled(state: HybridState) -> None:
    """The refit is done: when the next one follows, at least `PER_HALF_LIFE` times per half-life."""
    level = state.level[0]
    n, new = int(level["samples"]), int(level["samples"] - level["since"])
    if n >= level["learns"] or level["unlearned"] >= UNLEARNED:
        level["learns"], level["unlearned"] = n + 1 if new < EVERY else level["since"] + math.ceil(GROWTH * new), 0
    else:
        level["unlearned"] += 1
    sooner = math.inf if level["timed"] else n + max(1.0, level["half_life"] / PER_HALF_LIFE)
    level["due"], level["waits"] = min(level["learns"], sooner), 0


def fade(state: HybridState) -> None:
    """Let what was recorded count for less, by half for every half-life since the last time."""
    level = state.level[0]
    now = level["now"] if level["timed"] else float(level["samples"])
    if not np.isfinite(now):
        return  # no time was given yet
    since = now - level["faded"]
    if since > 0.0 and np.isfinite(level["half_life"]):
        for factors in (state.factors, state.gone[None], state.moments[None]):
            factors *= 2.0 ** (-0.5 * since / level["half_life"])
            factors[np.abs(factors).max(axis=(1, 2), initial=0.0) < SMALLEST] = 0.0
    level["faded"] = now


def _differ(state: HybridState, units: Units) -> bool:
    seen = Spectra.of(state, units, state.coordinates)
    return seen.weight > 0.0 and seen.total > 1e-24 * seen.weight * units.mean**2


def _prior(state: HybridState) -> Learned:
    level = state.level[0]
    noise, ridge, share = (float(level[name]) for name in ("given_noise", "given_ridge", "given_share"))
    ridge = math.exp(RIDGE_PRIOR[0]) if math.isnan(ridge) else ridge
    own = math.exp(OWN_PRIOR[0]) if math.isnan(share) else ridge * (1.0 - share) / share
    return Learned(float(level["noise"]) if math.isnan(noise) else noise, ridge, own, 0.0, (1.0, 1.0), -math.inf)


def fit(state: HybridState, units: Units, shift: float) -> None:
    """Every arm's coefficients, their spread and its inverse precision, and every cluster's, for the present ridges."""
    rho, c = (float(state.level[0][name]) for name in ("ridge", "own_ridge"))
    seen = Spectra.of(state, units, state.coordinates)
    p, r = state.shared.shape[1:]
    own_precision = seen.singular**2 + c
    state.inverse[:] = np.eye(p) / c
    state.inverse[seen.arms] = weighted_squares(seen.right, 1.0 / own_precision)
    target = seen.targets[0] - shift * seen.targets[1]
    state.own[:] = 0.0
    state.own[seen.arms] = np.einsum("nki,nk->ni", seen.right, seen.singular * target / own_precision)
    state.shared[:], state.shared_inverse[:] = 0.0, np.eye(p * r) / rho
    state.shared_factor[:], state.logdet[:] = np.sqrt(rho) * np.eye(p * r), 0.0
    for k, found in shared_fits(seen, state.coordinates, state.cluster, c).items():
        rewards, ones = found.coefficients(rho)
        state.shared[k], state.shared_inverse[k] = rewards - shift * ones, found.inverse(rho)
        state.logdet[k] = found.logdet(rho) + np.log1p(found.seen.singular**2 / c).sum()
        if len(state.shared_factor):
            state.shared_factor[k] = found.factor(rho)
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
