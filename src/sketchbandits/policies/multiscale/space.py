"""The space's fit in multi-scale CS-LB: rewards wait, become a batch, are processed row by row, and are published.

The fit is a triangular system, moved by Givens rotations (`triangular_step`), which need no refit. Where the largest
bound is played, an arm is looked at in a new fit when it is about to be played. A random choice needs all arms as of
the same fit: they are looked at together when it is published. What each part costs is counted against a budget.
"""

import numpy as np

from sketchbandits.confidence import radius_value
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, assign, dot
from sketchbandits.kernels.triangular import solve_upper, triangular_step
from sketchbandits.policies.cslb.layout import ARM_AT, Record, Records
from sketchbandits.policies.multiscale.state import (
    GUESS,
    MADE,
    SHOWN,
    SPACE,
    TARGET,
    THETA,
    UNLISTED,
    WIDTH,
    MultiscaleState,
)

ROW, EVALUATION, PUBLICATION = 3.0, 1.0, 1.5  # operations of each, in D^2
LOOK = 0.5  # and of an arm that is looked at together with all others
_LANES = 8  # arms at a time


@kernel
def queue(space: Record, waiting: Records, arm: int, reward: float) -> None:
    """Let a reward wait for the next batch of the space's fit."""
    own = waiting[arm]
    if own["queued"] == 0:
        own["queued"] = 1
        waiting[space["in_queue"]]["queue"] = arm
        space["in_queue"] += 1
    own["n_queued"] += 1
    own["sum_queued"] += reward


@kernel
def freeze(space: Record, waiting: Records) -> None:
    """What waits becomes a batch: all rewards up to this round."""
    for k in range(space["in_queue"]):
        arm = waiting[k]["queue"]
        waiting[k]["batch"] = arm
        own = waiting[arm]
        own["n_batched"], own["sum_batched"] = own["n_queued"], own["sum_queued"]
        own["queued"], own["n_queued"], own["sum_queued"] = 0, 0, 0.0
    space["in_batch"], space["at"], space["in_queue"] = space["in_queue"], 0, 0
    space["news"] = 0.0


@kernel
def publish(state: MultiscaleState) -> None:
    """The fit in the making becomes the one that bounds are from."""
    space, shown, made = state.space[0], state.factor[SHOWN], state.factor[MADE]
    for k in range(shown.shape[1] + 1):  # the factor's rows and the target
        assign(shown[k], made[k])
    solve_upper(shown, shown[TARGET], shown[THETA])
    space["logdet_shown"] = space["logdet_made"]
    space["beta"] = radius_value(space["radius"], 0.0, space["logdet_shown"])
    space["version"] += 1


@kernel
def work_is_due(space: Record, d: int) -> bool:
    """Whether the space's fit has something to do and the means to do it."""
    if d == 0 or space["bank"] < ROW * d * d:
        return False
    return space["at"] < space["in_batch"] or (space["in_queue"] > 0 and space["news"] >= space["least_news"])


@kernel
def process(state: MultiscaleState) -> None:
    """Spend what was saved up on the batch's rows, freezing a new batch where there is enough to learn."""
    space, waiting, made = state.space[0], state.waiting, state.factor[MADE]
    d = state.features.shape[1]
    row = np.empty(d)
    while work_is_due(space, d):
        if space["at"] == space["in_batch"]:
            freeze(space, waiting)
        arm = waiting[space["at"]]["batch"]
        own = waiting[arm]
        weight = np.sqrt(float(own["n_batched"]))
        for i in range(d):
            row[i] = state.features[arm, i] * weight
        space["logdet_made"] += triangular_step(made, made[TARGET], row, own["sum_batched"] / weight)
        space["bank"] -= ROW * d * d
        space["at"] += 1
        if space["at"] == space["in_batch"]:
            space["bank"] -= PUBLICATION * d * d
            publish(state)
            if space["draws"] == 1:
                space["bank"] -= LOOK * d * d * state.stats.shape[1]
                look_at_all(state)


@kernel
def look(features: Floats, factor: Floats, arm: int) -> tuple[float, float]:
    """An arm's estimate ``x.theta`` and width ``||x||_{V^-1}`` in the published fit, by one triangular solution."""
    d, R = features.shape[1], factor[SHOWN]
    x, theta, mean, total = features[arm].copy(), R[THETA], 0.0, 0.0
    for k in range(d):
        mean += x[k] * theta[k]
    for k in range(d):
        s = x[k] / R[k, k]
        total += s * s
        for i in range(k + 1, d):
            x[i] -= s * R[k, i]
    return mean, np.sqrt(total)


@kernel
def ask(state: MultiscaleState, arm: int, slot: int) -> None:
    """Give an arm its estimate, width and bound of the published fit; an older bound stays where it is smaller."""
    space, stats = state.space[0], state.stats
    stats[GUESS, slot], stats[WIDTH, slot] = look(state.features, state.factor, arm)
    stats[SPACE, slot] = min(stats[SPACE, slot], stats[GUESS, slot] + space["beta"] * stats[WIDTH, slot])
    state.waiting[arm]["stamp"], space["listed"] = space["version"], UNLISTED


@kernel
def look_at_all(state: MultiscaleState) -> None:
    """`ask` for all arms, some at a time: vector code. O(N D^2)."""
    space, stats, arm_at = state.space[0], state.stats, state.place[ARM_AT]
    d, n, beta = state.features.shape[1], arm_at.size, space["beta"]
    R = state.factor[SHOWN]
    theta, x, total = R[THETA], np.zeros((d, _LANES)), np.empty(_LANES)
    for first in range(0, n, _LANES):
        lanes = min(_LANES, n - first)
        for j in range(lanes):
            arm = max(arm_at[first + j], 0)
            for k in range(d):
                x[k, j] = state.features[arm, k]
            stats[GUESS, first + j] = dot(state.features[arm], theta)
        solve_lanes(R, x, total)
        for j in range(lanes):
            slot = first + j
            stats[WIDTH, slot] = np.sqrt(total[j])
            if arm_at[slot] >= 0 and state.waiting[arm_at[slot]]["stamp"] >= 0:
                stats[SPACE, slot] = min(stats[SPACE, slot], stats[GUESS, slot] + beta * stats[WIDTH, slot])
                state.waiting[arm_at[slot]]["stamp"] = space["version"]


@kernel
def solve_lanes(R: Floats, x: Floats, total: Floats) -> None:
    """``total[j] = x_j'(R'R)^-1 x_j`` for the columns of ``x``, which are used up."""
    d = x.shape[0]
    for j in range(_LANES):
        total[j] = 0.0
    for k in range(d):
        inverse = 1.0 / R[k, k]
        for j in range(_LANES):
            x[k, j] *= inverse
            total[j] += x[k, j] * x[k, j]
        for i in range(k + 1, d):
            r = R[k, i]
            for j in range(_LANES):
                x[i, j] -= r * x[k, j]
