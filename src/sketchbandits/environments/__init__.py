"""Where policies are tried: arm generators, reward noise, linear environments and labelled data as bandits."""

from sketchbandits.environments.arms import (
    correlated_arms,
    heavy_tailed_arms,
    isotropic_parameter,
    subspace_arms,
    uniform_parameter,
)
from sketchbandits.environments.labelled import LabelledEnvironment
from sketchbandits.environments.linear import LinearEnvironment
from sketchbandits.environments.noise import truncated_gaussian

__all__ = [
    "LabelledEnvironment",
    "LinearEnvironment",
    "correlated_arms",
    "heavy_tailed_arms",
    "isotropic_parameter",
    "subspace_arms",
    "truncated_gaussian",
    "uniform_parameter",
]
