"""Pending pulls booked as rewards equal to the mean, in a copy of a policy's state: for fits without a cheaper way.

A sketch may lose or add mass on the way. No width grows here, and none shrinks by more than a pull can shrink it.
"""

from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.policies.pending.rule import ARM_AT, GROUP, MEAN, WIDTH2, Outlook, grow, register_outlook
from sketchbandits.policies.rounds import absorb
from sketchbandits.snapshot import copy_state


class Imagined(NamedTuple):
    """A state of which every array that `absorb` writes is a copy."""

    state: Any


def imagined(state: Any, *shared: str) -> Imagined:
    """A copy of a state, but for the arrays that `absorb` only reads."""
    kept = {name: getattr(state, name) for name in shared}
    return Imagined(copy_state(state._replace(**dict.fromkeys(shared, np.zeros(0))))._replace(**kept))


@kernel
def discount(model: Imagined, outlook: Outlook, slot: int) -> None:
    """Book the mean of ``slot`` into the copy; the widths of its group follow."""
    group, stats = outlook.place[GROUP, slot], model.state.stats
    width2, D = outlook.stats[WIDTH2], 1.0 + outlook.stats[WIDTH2, slot]
    grow(outlook, group, D)
    absorb(model.state, outlook.place[ARM_AT, slot], stats[MEAN, slot])
    for i in range(outlook.start[group], outlook.start[group + 1]):
        width2[i] = min(width2[i], max(stats[WIDTH2, i], width2[i] / D))


register_outlook(Imagined, discount=discount)
