"""What the hybrid model remembers: per arm a triangular factor, per cluster the shared fit, and what was learned.

**Context** Kernels work on ``x``, the user's context with a constant 1 appended (only the constant where there is no
context), so that p here is one more than the policy's ``context_dim``. In the fit every entry of ``x`` is multiplied by
``scale``, and rewards are reduced by ``centre``: both are set at refits, from what was recorded.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats, Ints

RANDOMISED, UCB, TS, THEORY = range(4)

LEVEL = np.dtype(
    [
        ("samples", np.int64),  # rewards recorded
        ("due", np.int64),  # at how many a refit follows
        ("learns", np.int64),  # at how many the next refit also learns noise and ridges
        ("unlearned", np.int64),  # how many refits since then did not
        ("since", np.int64),  # from which reward on the world is taken to be as it is: 0, or later after a restart
        ("faded", np.float64),  # the number of rewards, or the time, to which the factors are discounted
        ("now", np.float64),  # the latest time that was given
        ("waits", np.int64),  # 1 while a refit is due
        ("rule", np.int64),  # RANDOMISED, UCB, TS or THEORY
        ("floor", np.float64),  # draws of RANDOMISED are at least this
        ("boldness", np.float64),  # the scale of draws, or of the square root of ln t
        ("shortest", np.float64),  # the least squared length of a context, without its constant
        ("constant", np.int64),  # 1 where the last coordinate is a constant that the features do not span
        ("unit", np.float64),  # what features that come with requests are multiplied by
        ("centre", np.float64),  # of the rewards
        ("noise", np.float64),  # R; 0 before rewards have differed
        ("scatter", np.float64),  # standard deviation of rewards, of which every arm has the same share
        ("ridge", np.float64),  # rho, of the shared coefficients
        ("own_ridge", np.float64),  # c, of the arms' own
        ("half_life", np.float64),  # in rewards or seconds; infinite where nothing is forgotten
        ("timed", np.int64),  # 1 where it is in seconds
        ("given_noise", np.float64),  # NaN: learned
        ("given_ridge", np.float64),
        ("given_share", np.float64),  # of the prior variance that is the arms' own: rho/(rho + c)
        ("delta", np.float64),  # the next three are THEORY's
        ("theta_norm", np.float64),
        ("own_norm", np.float64),
    ]
)


class HybridState(NamedTuple):
    """n arms in k clusters of rank at most r; contexts of length p, f = p + 1, s = p r.

    ``factors[a]`` is the triangular factor of the rows ``[x, reward]`` recorded for arm a, in their own units: its
    square is the sum of their outer products. All below it is computed from it at refits and moved along by rewards:
    ``own[a]`` the arm's coefficients, ``spread[a]`` their covariance over R^2, ``inverse[a]`` the inverse of the arm's
    own precision; ``shared[k]`` the cluster's coefficients (p, r), ``shared_inverse[k]`` the inverse of its precision.
    """

    choice: Annotated[Ints, "1"]
    counts: Annotated[Ints, "n"]
    cluster: Annotated[Ints, "n"]
    members: Annotated[Ints, "n"]  # the arms, cluster by cluster
    starts: Annotated[Ints, "k1"]  # where each cluster's members start, and the end
    coordinates: Annotated[Floats, "n r"]
    factors: Annotated[Floats, "n f f"]
    own: Annotated[Floats, "n p"]
    spread: Annotated[Floats, "n p p"]
    inverse: Annotated[Floats, "n p p"]
    shared: Annotated[Floats, "k p r"]
    shared_inverse: Annotated[Floats, "k s s"]
    shared_factor: Annotated[Floats, "t s s"]  # TS: the triangular factor of the cluster's precision; else t = 0
    logdet: Annotated[Floats, "k"]  # by how much ln det of the cluster's whole precision is above the prior's
    gone: Annotated[Floats, "g g"]  # arms that came with requests and were dropped: what they tell the shared part
    moments: Annotated[Floats, "h h"]  # and the factor of all their rows; both of size 0 where arms are fixed
    scale: Annotated[Floats, "p"]
    active: Annotated[NDArray[np.bool_], "n"]
    level: Annotated[NDArray[Any], "1", LEVEL]
    key: Annotated[NDArray[np.uint64], "2"]
