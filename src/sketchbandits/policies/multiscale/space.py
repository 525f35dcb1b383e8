"""The space's fit in multi-scale CS-LB: rewards wait, become a batch, are processed row by row, and are published.

The fit is a triangular system, moved by Givens rotations (`triangular_step`), which need no refit. Bounds are computed
for one arm at a time, when it is about to be played. What each part costs is counted against a budget.
"""

import numpy as np

from sketchbandits.confidence import radius_value
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, assign
from sketchbandits.kernels.triangular import solve_upper, triangular_step
from sketchbandits.policies.cslb.layout import Record, Records
from sketchbandits.policies.multiscale.state import MADE, SHOWN, SPACE, SPACE_WIDTH, TARGET, THETA

LEAST_NEWS = 1.0 / 16.0  # summed growth of clusters' det V from which a new fit of the space is worth its work
ROW, EVALUATION, PUBLICATION = 3.0, 1.0, 1.5  # operations of each, in D^2


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
def publish(space: Record, factor: Floats) -> None:
    """The fit in the making becomes the one that bounds are from."""
    shown, made = factor[SHOWN], factor[MADE]
    for k in range(shown.shape[1] + 1):  # the factor's rows and the target
        assign(shown[k], made[k])
    solve_upper(shown, shown[TARGET], shown[THETA])
    space["logdet_shown"] = space["logdet_made"]
    space["version"] += 1


@kernel
def work_is_due(space: Record, d: int) -> bool:
    """Whether the space's fit has something to do and the means to do it."""
    if d == 0 or space["bank"] < ROW * d * d:
        return False
    return space["at"] < space["in_batch"] or (space["in_queue"] > 0 and space["news"] >= LEAST_NEWS)


@kernel
def process(space: Record, waiting: Records, features: Floats, factor: Floats) -> None:
    """Spend what was saved up on the batch's rows, freezing a new batch where there is enough to learn."""
    d, made = features.shape[1], factor[MADE]
    row = np.empty(d)
    while work_is_due(space, d):
        if space["at"] == space["in_batch"]:
            freeze(space, waiting)
        arm = waiting[space["at"]]["batch"]
        own = waiting[arm]
        weight = np.sqrt(float(own["n_batched"]))
        for i in range(d):
            row[i] = features[arm, i] * weight
        space["logdet_made"] += triangular_step(made, made[TARGET], row, own["sum_batched"] / weight)
        space["bank"] -= ROW * d * d
        space["at"] += 1
        if space["at"] == space["in_batch"]:
            space["bank"] -= PUBLICATION * d * d
            publish(space, factor)


@kernel
def bound_in_space(space: Record, features: Floats, factor: Floats, arm: int, stats: Floats, slot: int) -> None:
    """Give an arm its bound ``x.theta + beta ||x||_{V^-1}`` of the published fit, by one triangular solution."""
    d, R = features.shape[1], factor[SHOWN]
    x, theta, mean, total = features[arm].copy(), R[THETA], 0.0, 0.0
    for k in range(d):
        mean += x[k] * theta[k]
    for k in range(d):
        s = x[k] / R[k, k]
        total += s * s
        for i in range(k + 1, d):
            x[i] -= s * R[k, i]
    stats[SPACE_WIDTH, slot] = radius_value(space["radius"], 0.0, space["logdet_shown"]) * np.sqrt(total)
    stats[SPACE, slot] = mean + stats[SPACE_WIDTH, slot]
