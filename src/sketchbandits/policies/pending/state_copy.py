"""Pending pulls recorded as rewards equal to the mean, in a copy of a policy's state: for fits without a cheaper way.

A sketch may lose or add mass on the way. No width grows here, and none shrinks by more than a pull can shrink it.
"""

from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.policies.pending.rule import ARM_AT, GROUP, MEAN, WIDTH2, PendingBounds, grow, register_model
from sketchbandits.policies.rounds import absorb
from sketchbandits.snapshot import copy_state


class StateCopy(NamedTuple):
    """A state of which every array that `absorb` writes is a copy."""

    state: Any


def copied_state(state: Any, *shared: str) -> StateCopy:
    """A copy of a state, but for the arrays that `absorb` only reads."""
    kept = {name: getattr(state, name) for name in shared}
    return StateCopy(copy_state(state._replace(**dict.fromkeys(shared, np.zeros(0))))._replace(**kept))


@kernel
def discount(model: StateCopy, pending: PendingBounds, slot: int) -> None:
    """Record the mean of ``slot`` in the copy; the widths of its group follow."""
    group, stats = pending.place[GROUP, slot], model.state.stats
    width2, D = pending.stats[WIDTH2], 1.0 + pending.stats[WIDTH2, slot]
    grow(pending, group, D)
    absorb(model.state, pending.place[ARM_AT, slot], stats[MEAN, slot])
    for i in range(pending.start[group], pending.start[group + 1]):
        width2[i] = min(width2[i], max(stats[WIDTH2, i], width2[i] / D))


register_model(StateCopy, discount=discount)
