"""Arms of a request as the service works with them: ids, and a matrix with one row of features per arm."""

from typing import Any, NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.service.bandits.requests import Refusal


class Table(NamedTuple):
    """Ids and features; what `body_process` has read in another process is one already."""

    ids: tuple[str, ...]
    features: Floats


def table_of(arms: Any) -> Table:
    """The arms of a checked request, as a `Table`; unequal numbers of features are refused."""
    if isinstance(arms, Table):
        return arms
    sizes = {len(arm.features) for arm in arms}
    if len(sizes) > 1:
        found = f"{min(sizes)} and {max(sizes)}"
        raise Refusal("bad_value", f"arms must have equally many features, got {found}")
    return Table(tuple(arm.id for arm in arms), np.array([arm.features for arm in arms], np.float64))
