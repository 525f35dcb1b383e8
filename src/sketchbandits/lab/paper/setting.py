"""The CS-LB paper's data sets and parameters.

**Reference** Yang, Xie and Lian, "Efficient Linear Bandits via Cluster-Aware Sketching", "Experimental Setup".
**Departures** The paper prints neither ``delta`` nor the horizon: here 0.01 and 200,000 rounds. `correlated_arms` names
the gaps in its description of the arms; ``normalize`` holds both readings of its scaling, `OFUL_READINGS` both of the
radius of OFUL.
"""

from sketchbandits import validate
from sketchbandits.lab.experiments.scenes import Model, Scene
from sketchbandits.policies.registry import PolicySpec

HORIZON = 200_000  # rounds; below it the order of the policies is not yet the one that the paper claims
POLICIES = ("cslb", "oful", "soful", "cbscfd", "ucb1")
OFUL_READINGS = {"closed": PolicySpec("oful"), "logdet": PolicySpec("oful", (("radius", "logdet"),))}
# What is played by default: also the other reading of OFUL, and what the paper leaves as future work.
SHOWN = (*POLICIES, str(OFUL_READINGS["logdet"]), "multiscale")

# Its number: N, d, l and m^l.
DATASETS = {1: (60, 50, 5, 1), 2: (100, 50, 10, 1), 3: (100, 50, 10, 2), 4: (200, 50, 5, 10)}


def model(sketch_size: int) -> Model:
    """``L = S = R = ridge = 1``."""
    return Model(sketch_size, ridge=1.0, noise=1.0, theta_norm=1.0, arm_norm=1.0, delta=0.01)


def correlated(name: str, n_arms: int, dim: int, sketch_size: int, group_size: int, normalize: str) -> Scene:
    """Arms of the paper's generator under its parameters."""
    options = (("n_arms", n_arms), ("dim", dim), ("group_size", group_size))
    return Scene(name, model(sketch_size), "correlated", options, normalize)


def dataset(number: int, normalize: str = "max") -> Scene:
    """One of the paper's four data sets."""
    number = validate.whole("datasets", number, most=len(DATASETS))
    return correlated(str(number), *DATASETS[number], normalize)


def title(scene: Scene) -> str:
    """What the paper calls a data set: its sizes."""
    sizes = dict(scene.options)
    group = f", m = {sizes['group_size']}" if sizes["group_size"] > 1 else ""
    return f"N = {sizes['n_arms']}, d = {sizes['dim']}, l = {scene.model.sketch_size}{group}"
