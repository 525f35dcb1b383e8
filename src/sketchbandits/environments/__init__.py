"""Where policies are tried: arm generators, linear rewards, labelled data and logged rewards as bandits, delays.

`simulate` plays any object that follows `Environment`, the protocol of the classes here.
"""

from sketchbandits.environments.contextual import ContextualEnvironment, rotation
from sketchbandits.environments.delays import fixed_delay, geometric_delay, heavy_tailed_delay
from sketchbandits.environments.generators import (
    correlated_arms,
    duplicated_arms,
    embedding_like_arms,
    heavy_tailed_arms,
    isotropic_parameter,
    low_rank_arms,
    one_hot_arms,
    subspace_arms,
    uniform_parameter,
)
from sketchbandits.environments.labelled import LabelledEnvironment
from sketchbandits.environments.linear import LinearEnvironment
from sketchbandits.environments.noise import truncated_gaussian
from sketchbandits.environments.protocol import (
    Environment,
    FixedArmsEnvironment,
    FreshArmsEnvironment,
    Rounds,
    UsersEnvironment,
)
from sketchbandits.environments.ratings import Ratings, ViewersEnvironment, item_factors, read_movielens
from sketchbandits.environments.replay import ReplayEnvironment

__all__ = [
    "ContextualEnvironment",
    "Environment",
    "FixedArmsEnvironment",
    "FreshArmsEnvironment",
    "LabelledEnvironment",
    "LinearEnvironment",
    "Ratings",
    "ReplayEnvironment",
    "Rounds",
    "UsersEnvironment",
    "ViewersEnvironment",
    "correlated_arms",
    "duplicated_arms",
    "embedding_like_arms",
    "fixed_delay",
    "geometric_delay",
    "heavy_tailed_arms",
    "heavy_tailed_delay",
    "isotropic_parameter",
    "item_factors",
    "low_rank_arms",
    "one_hot_arms",
    "read_movielens",
    "rotation",
    "subspace_arms",
    "truncated_gaussian",
    "uniform_parameter",
]
