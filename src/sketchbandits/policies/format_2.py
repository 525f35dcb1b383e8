"""State files of format 2, which said nothing of how rewards scatter (`policies.scatter`).

What was recorded before the conversion stays unknown: rewards are seen from now on, compared with the means that the
arms, or the fit, have from before. Files of format 1 come here after their own conversion.
"""

from typing import Any

import numpy as np

from sketchbandits.policies.scatter import nothing_seen
from sketchbandits.snapshot import Saved, take


def begin_to_watch(saved: Saved, known: int) -> None:
    """A state with the record as an array of its own; ``known`` means are from rewards of before."""
    saved.arrays["state.seen"] = nothing_seen()
    saved.arrays["state.seen"]["firsts"] = known


def begin_to_watch_in(saved: Saved, name: str, dtype: np.dtype[Any], known: int) -> None:
    """A state with the record inside the array ``name``, whose other fields stay."""
    old, new = take(saved, name), None
    new = np.zeros(old.shape, dtype)
    for field in set(old.dtype.names or ()) & set(dtype.names or ()):
        new[field] = old[field]
    new["seen"]["firsts"] = known
    saved.arrays[name] = new


def arms_with_rewards(saved: Saved, name: str = "state.counts") -> int:
    """How many arms have rewards in a file."""
    return int((np.asarray(saved.arrays[name]) > 0).sum())
