"""The space of all arms: an orthonormal basis of their span, which grows when an arm leaves it, and the ridge it needs.

The space's fit works in coordinates of the basis: D numbers per arm, D the rank of all arms, whatever the dimension of
the features. An arm that is added later and leaves the span brings a direction in which V is still the ridge, so that
nothing changes for the others. The ridge follows the effective rank of the arms (`policies.effective_rank`). When
that has doubled since it was chosen, the next ridge of a fixed grid, ``2^j`` times the first, takes its place. Every
ridge of the grid has its own part of delta, set aside from the start: whatever made somebody add arms, the set in use
is one of those that hold together.
"""

import math
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from sketchbandits.confidence import radius_value
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.kernels.triangular import solve_upper, triangular_step
from sketchbandits.policies.cslb.layout import ARM_AT
from sketchbandits.policies.effective_rank import effective_rank
from sketchbandits.policies.multiscale.state import GUESS, OUTSIDE, SHOWN, SPACE, TARGET, THETA, WIDTH

MOST_DIMENSIONS = 1024  # of the space's fit, which takes their square in memory and time
ROUNDING_RANK = 1e-10  # singular values below this share of the largest are no direction
OFF_SPACE = 1e-8  # an arm that leaves the span by less, relative to its norm, is in it
MORE_ARMS = 1.1  # the ridge is looked at again when there are so many times as many arms
BASIS_BLOCK = 65_536  # arms whose triangular factor is taken at a time


def space_basis(arms: Floats, most: int, tolerance: float = ROUNDING_RANK) -> tuple[Floats, Floats]:
    """An orthonormal basis of the span of all arms, its rows, and the eigenvalues of ``X'X/N``. O(N d^2).

    No rows: the arms have more than ``most`` dimensions, or none. All d: the features are their own coordinates.
    """
    n, d = arms.shape
    factor: Floats = np.zeros((0, d))
    for start in range(0, n, BASIS_BLOCK):
        rows = np.vstack([factor, arms[start : start + BASIS_BLOCK]])
        factor = np.asarray(np.linalg.qr(rows, mode="r"), np.float64)
    _, sigma, directions = np.linalg.svd(factor, full_matrices=False)
    rank = int((sigma > tolerance * sigma[0]).sum()) if sigma[0] > 0.0 else 0
    if rank > most:
        return np.zeros((0, d)), np.zeros(0)
    basis = np.eye(d) if rank == d else np.ascontiguousarray(directions[:rank])
    return basis, sigma[:rank] ** 2 / n


def coordinates(arms: Floats, basis: Floats) -> tuple[Ints, Floats]:
    """Every arm's coordinates in a basis, and its stamp: `OUTSIDE`, with coordinates 0, where it is not in the span."""
    features = arms @ basis.T
    outside = np.linalg.norm(off_basis(arms, basis), axis=1) > OFF_SPACE * np.linalg.norm(arms, axis=1)
    outside |= len(basis) == 0
    features[outside] = 0.0
    return np.where(outside, OUTSIDE, 0), np.ascontiguousarray(features)


def off_basis(arms: Floats, basis: Floats) -> Floats:
    """What is left of every arm outside the span of the basis, in two passes."""
    rest = arms - (arms @ basis.T) @ basis
    return rest - (rest @ basis.T) @ basis


def grown_basis(basis: Floats, arms: Floats, most: int) -> Floats:
    """The basis with a further direction for every one of the arms that leaves the span, up to ``most``."""
    for arm in arms:
        if len(basis) == most:
            break
        rest = off_basis(arm[None], basis)[0]
        length = float(np.linalg.norm(rest))
        if length > OFF_SPACE * float(np.linalg.norm(arm)):
            basis = np.vstack([basis, rest / length])
    return basis


def widened(state: Any, dim: int) -> Any:
    """The state with ``dim`` coordinates of the space: new ones are 0 for all arms, and V is the ridge there."""
    old, ridge = state.features.shape[1], float(state.space["radius"]["ridge"][0])
    features = np.zeros((len(state.features), dim))
    features[:, :old] = state.features
    factor = np.zeros((2, dim + 2, dim))
    factor[:, :old, :old] = state.factor[:, :old]
    factor[:, range(old, dim), range(old, dim)] = math.sqrt(ridge)
    factor[:, TARGET, :old], factor[:, THETA, :old] = state.factor[:, TARGET], state.factor[:, THETA]
    return state._replace(features=features, factor=factor)


def doublings(ratio: float) -> int:
    """How often a ridge has to be doubled to come near ``ratio`` times itself, without exceeding it."""
    return max(0, math.floor(math.log2(ratio) + 1e-9)) if ratio > 0.0 else 0


def wanted_ridge(state: Any, n_arms: int, unit: float) -> float:
    """The ridge for which the effective rank of the arms asks now; 0, before there are clearly more than there were."""
    if n_arms < MORE_ARMS * int(state.space["arms_seen"][0]):
        return 0.0
    state.space["arms_seen"] = n_arms
    features = state.features[:n_arms]
    return unit * effective_rank(np.linalg.eigvalsh(features.T @ features / n_arms), unit)


def raise_ridge(state: Any, doublings: int, log_share: float) -> None:
    """Give the space's fits ``2^doublings`` times their ridge, by rows ``sqrt(more) e_k`` of reward 0, O(D^3).

    R'target is the sum of rewards times features before and after, so theta follows from the new R.
    """
    radius, space, d = state.space["radius"], state.space, state.features.shape[1]
    ridge = float(radius["ridge"][0])
    new = ridge * 2.0**doublings
    for which, name in enumerate(("logdet_shown", "logdet_made")):
        R = state.factor[which]
        for k in range(d):
            row = np.zeros(d)
            row[k] = math.sqrt(new - ridge)
            triangular_step(R, R[TARGET], row, 0.0)
        space[name] = 2.0 * np.log(np.abs(np.diag(R[:d]))).sum() - d * math.log(new)
    solve_upper(state.factor[SHOWN], state.factor[SHOWN, TARGET], state.factor[SHOWN, THETA])
    radius["ridge"], radius["log_share"] = new, log_share
    radius["bias"] = math.sqrt(new) * radius["theta_norm"]
    space["ridges"] += doublings
    space["version"] += 1
    ask_all(state, np.arange(state.stats.shape[1]))


def ask_all(state: Any, slots: Ints) -> None:
    """Estimate, width and bound of these slots in the published fit, together: O(D^2) each."""
    space, stats, d = state.space, state.stats, state.features.shape[1]
    beta = radius_value(space["radius"][0], 0.0, float(space["logdet_shown"][0]))
    space["beta"] = beta if d else 1.0
    slots = slots[state.place[ARM_AT, slots] >= 0]
    slots = slots[state.waiting["stamp"][state.place[ARM_AT, slots]] != OUTSIDE]
    arms = state.place[ARM_AT, slots]
    rows, R = state.features[arms], state.factor[SHOWN, :d]
    stats[GUESS, slots] = rows @ state.factor[SHOWN, THETA]
    stats[WIDTH, slots] = np.linalg.norm(solve_triangular(R, rows.T, trans="T"), axis=0)
    stats[SPACE, slots] = np.minimum(stats[SPACE, slots], stats[GUESS, slots] + beta * stats[WIDTH, slots])
    state.waiting["stamp"][arms] = space["version"][0]
