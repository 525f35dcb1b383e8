"""State files of multi-scale CS-LB of formats 1 and 2: they go on by the largest bound, with the radii they had.

Their space has the coordinates that it had: those of all features, those of the span of fewer arms than dimensions, or
none, where the arms were independent.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from sketchbandits.confidence import radius_value
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.cslb.layout import ARM_AT
from sketchbandits.policies.multiscale.state import (
    GUESS,
    N_ROWS,
    OUTSIDE,
    RAY_RECORD,
    SHOWN,
    SPACE_RECORD,
    THETA,
    UNLISTED,
    WIDTH,
)
from sketchbandits.snapshot import Saved, take


def convert_space(saved: Saved) -> None:
    """Records with today's fields, every arm's estimate and width in the published fit, and the space's basis."""
    saved.settings.setdefault("explore", "optimism")
    space = _with_fields(take(saved, "state.space"), SPACE_RECORD)
    rays = _with_fields(take(saved, "state.rays"), RAY_RECORD)
    rays["ridge"] = space["direction"]["ridge"][0]
    _convert_shares(space, rays[: space["n_rays"][0]], saved)
    arms, features = saved.arrays["arms"], saved.arrays["state.features"]
    space["ridges"] = space["most_ridges"] = 1  # a ridge for which no share of delta was set aside is never used
    space["arms_seen"], space["least_news"] = len(arms), 1.0 / 16.0
    stamps, d = saved.arrays["state.waiting"]["stamp"][: len(arms)], features.shape[1]
    space["outside"], space["listed"] = int((stamps == OUTSIDE).sum()), UNLISTED
    space["beta"] = radius_value(space["radius"][0], 0.0, float(space["logdet_shown"][0])) if d else 1.0
    saved.arrays.update({"state.space": space, "state.rays": rays, "basis": _basis(arms, features)})
    _convert_stats(saved, features)


def _convert_shares(space: NDArray[Any], rays: NDArray[Any], saved: Saved) -> None:
    """Let rays without a reward share what they had; the k-th later ray had 1/(k(k + 1)) of one further share."""
    if not rays.size:
        return
    untaught, shares = rays["information"] == 0.0, np.exp(-rays["share"])
    freed = saved.arrays.get("freed", np.zeros(0))  # clusters, rays, rewards; checked later
    later = max(0, rays.size + (int(freed.flat[1]) if freed.size == 3 else 0) - int(space["first_rays"][0]))
    space["untaught"] = untaught.sum()
    space["ray_left"] = shares[untaught].sum() + shares.max() / (later + 1)
    space["ray_share"] = np.log((untaught.sum() + 1 + later) / space["ray_left"])


def _with_fields(old: NDArray[Any], dtype: np.dtype[np.void]) -> NDArray[Any]:
    """The records with the fields of ``dtype``, 0 where they had none."""
    new = np.zeros(old.shape, dtype)
    for name in set(old.dtype.names or ()) & set(dtype.names or ()):
        new[name] = old[name]
    return new


def _basis(arms: Floats, features: Floats) -> Floats:
    """The basis in which the features are the arms' coordinates."""
    p, d = features.shape[1], arms.shape[1]
    if p in (0, d):
        return np.eye(d)[:p]
    return np.ascontiguousarray(np.linalg.lstsq(features[: len(arms)], arms, rcond=None)[0])


def _convert_stats(saved: Saved, features: Floats) -> None:
    old, factor, waiting = (saved.arrays[f"state.{name}"] for name in ("stats", "factor", "waiting"))
    stats, p = np.zeros((N_ROWS, old.shape[1])), features.shape[1]
    stats[:GUESS] = old[:GUESS]
    slots = np.flatnonzero(saved.arrays["state.place"][ARM_AT] >= 0)
    arms = saved.arrays["state.place"][ARM_AT, slots]
    slots, arms = slots[waiting["stamp"][arms] != OUTSIDE], arms[waiting["stamp"][arms] != OUTSIDE]
    stats[GUESS, slots] = features[arms] @ factor[SHOWN, THETA]
    stats[WIDTH, slots] = np.linalg.norm(solve_triangular(factor[SHOWN, :p], features[arms].T, trans="T"), axis=0)
    saved.arrays["state.stats"] = stats
