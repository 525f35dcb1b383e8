"""The space's fit in multi-scale CS-LB: rewards wait, become a batch, are worked off row by row, and are published.

The fit is a triangular system, moved by Givens rotations (`linalg.triangular_step`), which need no refit. Bounds are
asked for arm by arm. What each part costs is counted against a budget.
"""

import numpy as np

from sketchbandits.confidence import radius_value
from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, assign, scale, solve_upper, triangular_step
from sketchbandits.policies.multiscale.state import (
    AT,
    BANK,
    BATCH,
    IN_BATCH,
    IN_QUEUE,
    LOGDET_MADE,
    LOGDET_SHOWN,
    MADE,
    N_BATCHED,
    N_QUEUED,
    NEWS,
    QUEUE,
    QUEUED,
    SHOWN,
    SPACE,
    SPACE_WIDTH,
    SUM_BATCHED,
    SUM_QUEUED,
    VERSION,
)

LEAST_NEWS = 1.0 / 16.0  # summed growth of clusters' det V from which a new fit of the space is worth its work
ROW, EVALUATION, PUBLICATION = 3.0, 1.0, 1.5  # operations of each, in D^2


@kernel
def queue(waiting: Ints, owed: Floats, ticks: Ints, arm: int, reward: float) -> None:
    """Let a reward wait for the next batch of the space's fit."""
    if waiting[QUEUED, arm] == 0:
        waiting[QUEUED, arm] = 1
        waiting[QUEUE, ticks[IN_QUEUE]] = arm
        ticks[IN_QUEUE] += 1
    waiting[N_QUEUED, arm] += 1
    owed[SUM_QUEUED, arm] += reward


@kernel
def freeze(waiting: Ints, owed: Floats, meter: Floats, ticks: Ints) -> None:
    """What waits becomes a batch: all rewards up to this round."""
    for k in range(ticks[IN_QUEUE]):
        arm = waiting[QUEUE, k]
        waiting[BATCH, k], waiting[N_BATCHED, arm] = arm, waiting[N_QUEUED, arm]
        owed[SUM_BATCHED, arm] = owed[SUM_QUEUED, arm]
        waiting[QUEUED, arm] = waiting[N_QUEUED, arm] = 0
        owed[SUM_QUEUED, arm] = 0.0
    ticks[IN_BATCH], ticks[AT], ticks[IN_QUEUE] = ticks[IN_QUEUE], 0, 0
    meter[NEWS] = 0.0


@kernel
def publish(factor: Floats, target: Floats, theta: Floats, meter: Floats, ticks: Ints) -> None:
    """The fit in the making becomes the one that bounds are from."""
    for k in range(theta.size):
        assign(factor[SHOWN, k], factor[MADE, k])
    assign(target[SHOWN], target[MADE])
    solve_upper(factor[SHOWN], target[SHOWN], theta)
    meter[LOGDET_SHOWN] = meter[LOGDET_MADE]
    ticks[VERSION] += 1


@kernel
def work_is_due(meter: Floats, ticks: Ints, d: int) -> bool:
    """Whether the space's fit has something to do and the means to do it."""
    if d == 0 or meter[BANK] < ROW * d * d:
        return False
    return ticks[AT] < ticks[IN_BATCH] or (ticks[IN_QUEUE] > 0 and meter[NEWS] >= LEAST_NEWS)


@kernel
def work_off(
    features: Floats,
    factor: Floats,
    target: Floats,
    theta: Floats,
    waiting: Ints,
    owed: Floats,
    meter: Floats,
    ticks: Ints,
) -> None:
    """Spend what was saved up on the batch's rows, freezing a new batch where there is enough to learn."""
    d = theta.size
    cost = ROW * d * d
    row = np.empty(0)
    while meter[BANK] >= cost:
        if ticks[AT] == ticks[IN_BATCH]:
            if ticks[IN_QUEUE] == 0 or meter[NEWS] < LEAST_NEWS:
                return
            freeze(waiting, owed, meter, ticks)
        if row.size == 0:
            row = np.empty(d)
        arm = waiting[BATCH, ticks[AT]]
        weight = np.sqrt(float(waiting[N_BATCHED, arm]))
        assign(row, features[arm])
        scale(row, weight)
        meter[LOGDET_MADE] += triangular_step(factor[MADE], target[MADE], row, owed[SUM_BATCHED, arm] / weight)
        meter[BANK] -= cost
        ticks[AT] += 1
        if ticks[AT] == ticks[IN_BATCH]:
            meter[BANK] -= PUBLICATION * d * d
            publish(factor, target, theta, meter, ticks)


@kernel
def ask_space(
    stats: Floats,
    slot: int,
    features: Floats,
    factor: Floats,
    theta: Floats,
    space: Floats,
    logdet: float,
    arm: int,
) -> None:
    """Give an arm its bound ``x.theta + beta ||x||_{V^-1}`` of the published fit, by one triangular solution."""
    d, R = theta.size, factor[SHOWN]
    x, mean, total = features[arm].copy(), 0.0, 0.0
    for k in range(d):
        mean += x[k] * theta[k]
    for k in range(d):
        s = x[k] / R[k, k]
        total += s * s
        for i in range(k + 1, d):
            x[i] -= s * R[k, i]
    stats[SPACE_WIDTH, slot] = radius_value(space, 0.0, logdet) * np.sqrt(total)
    stats[SPACE, slot] = mean + stats[SPACE_WIDTH, slot]
