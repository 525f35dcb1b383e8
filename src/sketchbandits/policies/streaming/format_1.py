"""State files of contextual multi-scale CS-LB of version 0.1.0 (format 1): rows of numbers become records."""

import numpy as np

from sketchbandits.policies.streaming.clusters import LEVEL, SIZE
from sketchbandits.policies.streaming.pool import POOL
from sketchbandits.policies.streaming.rounds import METER, RULE
from sketchbandits.snapshot import Saved, take

# The name of each old array, that of its successor, and the fields that its columns became.
_ARRAYS = (
    ("state.clusters.level", "state.clusters.level", LEVEL),
    ("state.clusters.ticks", "state.clusters.size", SIZE),
    ("state.pool.ticks", "state.pool.control", POOL),
    ("state.rule", "state.rule", RULE),
    ("state.meter", "state.meter", METER),
)


def convert_records(saved: Saved) -> None:
    """Replace the arrays whose columns have names since."""
    for old, new, fields in _ARRAYS:
        rows = np.atleast_2d(take(saved, old))
        saved.arrays[new] = np.zeros(len(rows), fields)
        for name, column in zip(fields.names or (), rows.T, strict=False):  # later formats have more fields
            saved.arrays[new][name] = column
