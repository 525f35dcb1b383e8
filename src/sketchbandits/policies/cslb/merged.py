"""Arms that stand for each other although they differ: on one span or one ray up to a rounding tolerance.

Whether that is harmless depends on what a difference may be worth, S times its length, compared with the noise. Where
it is not, one warning says so.
"""

import warnings
from typing import Any

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.partition.partition import Partition
from sketchbandits.policies.cslb.layout import NEGLIGIBLE

MATTERS = 1e-3  # of the noise: what is worth less is seen after a million rewards at the soonest
ROUNDING = 1e-13  # of an arm's norm


def warn_of_merged(off: float, settings: dict[str, Any]) -> None:
    """One warning where arms count as parts of a span, or as parallel, although what sets them apart is worth a lot.

    ``off``: how far, in units of the features, an arm is from what stands for it. Up to S times that its mean can be
    off too, which no bound knows of.
    """
    cost = settings["theta_norm"] * off
    if cost > MATTERS * settings["noise"]:
        warnings.warn(
            f"arms: some that differ by less than {NEGLIGIBLE:g} of their norms are treated as parallel, or as parts "
            f"of one span, although their means can differ by theta_norm * {off:.3g} = {cost:.3g}, with "
            f"noise={settings['noise']:g}; the bounds do not allow for that: centre the features, scale them alike",
            stacklevel=3,
        )


def may_matter(tolerance: float, settings: dict[str, Any]) -> bool:
    """Whether arms within ``tolerance`` of what stands for them can differ from it by what is worth looking for."""
    size: float = settings["theta_norm"] * settings["arm_norm"]
    return size * tolerance > MATTERS * settings["noise"]


def off_spans(arms: Floats, partition: Partition, settings: dict[str, Any]) -> float:
    """The largest distance of an arm from its cluster's span that no bound allows for; 0 for rounding errors."""
    if partition.tolerance > NEGLIGIBLE or not may_matter(partition.tolerance, settings):
        return 0.0
    off = partition.residuals(arms)
    return float((off * np.linalg.norm(arms, axis=1))[off > ROUNDING].max(initial=0.0))
