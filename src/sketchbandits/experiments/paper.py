"""The CS-LB paper's experiments: its data sets and parameters.

**Reference** Yang, Xie and Lian, "Efficient Linear Bandits via Cluster-Aware Sketching", "Experimental Setup".
**Departures** The paper prints neither ``delta`` nor the horizon: here 0.01 and 200,000 rounds. `correlated_arms` names
the gaps in its description of the arms.
"""

from dataclasses import dataclass
from typing import Any

from sketchbandits import validate
from sketchbandits.environments import LinearEnvironment, correlated_arms, uniform_parameter

RIDGE = NOISE = THETA_NORM = ARM_NORM = 1.0
DELTA = 0.01
HORIZON = 200_000  # rounds; below it the order of the policies is not yet the one that the paper claims


@dataclass(frozen=True)
class DataSet:
    """One of the paper's data sets; ``sketch_size`` is its ``l``, ``group_size`` its ``m^l``."""

    number: int
    n_arms: int
    dim: int
    sketch_size: int
    group_size: int

    def __str__(self) -> str:
        groups = f"groups of {self.group_size}"
        return f"data set {self.number} (N = {self.n_arms}, d = {self.dim}, l = {self.sketch_size}, {groups})"


DATASETS = {
    dataset.number: dataset
    for dataset in (
        DataSet(1, n_arms=60, dim=50, sketch_size=5, group_size=1),
        DataSet(2, n_arms=100, dim=50, sketch_size=10, group_size=1),
        DataSet(3, n_arms=100, dim=50, sketch_size=10, group_size=2),
        DataSet(4, n_arms=200, dim=50, sketch_size=5, group_size=10),
    )
}


def environment(dataset: DataSet, *, normalize: str = "max", seed: Any = None) -> LinearEnvironment:
    """Fresh arms and a fresh hidden parameter of a data set, both drawn from ``seed``."""
    rng = validate.generator(seed)
    arms = correlated_arms(
        n_arms=dataset.n_arms, dim=dataset.dim, group_size=dataset.group_size, normalize=normalize, seed=rng
    )
    return LinearEnvironment(arms, uniform_parameter(dataset.dim, norm=THETA_NORM, seed=rng), noise=NOISE)
