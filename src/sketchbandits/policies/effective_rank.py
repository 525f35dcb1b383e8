"""How many directions of a set of arms matter, from the features alone, and the ridge that follows from it.

With information g in each of r directions the mixture radius has ``beta^2 = R^2 r ln(1 + g/ridge) + ridge S^2`` up to a
constant, least where the derivative vanishes. For arms of unequal directions, with eigenvalues lambda_i of their second
moment ``X'X/N`` and n rounds spread over them, that is

    ridge = (R/S)^2 sum_i n lambda_i / (n lambda_i + ridge) ,

where the sum is the *effective rank*: a direction counts as far as n rounds can teach it more than the prior knows.
For arms in general position it is nearly the rank; for arms that lie near a plane it is nearly 2.
"""

import math

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats

PLANNED_ROUNDS = 10_000.0  # n above; the ridge changes with its logarithm only
_STEPS = 200  # halvings of the bracket of a fixed point: more than float64 can tell


def prior_variance(noise: float, theta_norm: float, arm_norm: float) -> float:
    """``(R/S)^2``, kept from extremes: without noise any ridge is valid, and a small one forgets the prior soon."""
    return min(max(noise / theta_norm, 1e-3 * arm_norm), math.sqrt(validate.LARGEST)) ** 2


def effective_rank(moments: Floats, unit: float) -> float:
    """The effective rank of arms with these eigenvalues of ``X'X/N``, where the ridge is ``unit`` times it.

    At least 1. The sum falls as the ridge grows, so there is one fixed point, found by bisection.
    """
    taught = PLANNED_ROUNDS / unit * np.maximum(moments, 0.0)
    low, high = 1.0, max(1.0, float(moments.size))
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        if float((taught / (taught + middle)).sum()) > middle:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * high:
            break
    return high


def suited_ridge(features: Floats, noise: float, theta_norm: float, arm_norm: float) -> float:
    """The ridge of one fit of all arms, the rows of ``features``: its effective rank times ``(R/S)^2``. O(N d^2)."""
    unit = prior_variance(noise, theta_norm, arm_norm)
    moments = np.linalg.eigvalsh(features.T @ features / len(features)) if features.shape[1] else np.zeros(0)
    return unit * effective_rank(np.asarray(moments, np.float64), unit)
