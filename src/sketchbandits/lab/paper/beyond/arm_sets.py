"""Sets of arms, drawn from families by a seed: a reader can draw others and play them.

Every family has a generator of `sketchbandits.environments`, ranges of its parameters, and a stream of its own, so that
a family that is added later leaves the sets of the others as they were. Whole numbers and shares are drawn evenly in
the logarithm. Normalisations alternate, beginning with ``"max"``. ``N d`` is at most `LARGEST`, which bounds what a
round of OFUL costs.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sketchbandits.environments.generators import NORMALIZATIONS
from sketchbandits.lab.experiments.changing_scenes import AnyScene, AvailableScene, LivingScene
from sketchbandits.lab.experiments.scenes import Scene
from sketchbandits.lab.paper import setting as paper
from sketchbandits.policies.multiscale.policy import SKETCH_SIZE

LARGEST = 32_000
MODEL = paper.model(SKETCH_SIZE)  # l of CS-LB; multi-scale takes at most as much
SHORTER = 20  # runs among available arms are played in Python, one decision at a time, and are so much shorter

Options = dict[str, Any]
Drawn = tuple[str, Options]  # a generator and its parameters


class ArmSet(NamedTuple):
    """One set of arms and where it comes from."""

    family: str
    scene: AnyScene

    @property
    def inner(self) -> Scene:
        """The scene of all its arms."""
        found = self.scene if isinstance(self.scene, Scene) else getattr(self.scene, "scene", None)
        assert isinstance(found, Scene)
        return found

    @property
    def options(self) -> Options:
        """The parameters of its generator."""
        return dict(self.inner.options)

    @property
    def is_fixed(self) -> bool:
        """Whether all arms can be chosen in all rounds."""
        return isinstance(self.scene, Scene)

    @property
    def shorter(self) -> int:
        """By what its runs are shorter than those of the others."""
        return SHORTER if isinstance(self.scene, AvailableScene) else 1


def whole(rng: np.random.Generator, low: float, high: float) -> int:
    """A whole number from ``low`` to ``high``, evenly in the logarithm."""
    return round(float(np.exp(rng.uniform(np.log(low), np.log(high)))))


def share(rng: np.random.Generator, low: float, high: float) -> float:
    """A number from ``low`` to ``high``, evenly in the logarithm, with three digits."""
    return float(f"{np.exp(rng.uniform(np.log(low), np.log(high))):.3g}")


def sizes(rng: np.random.Generator, n_arms: tuple[int, int], dim: tuple[int, int]) -> Options:
    """N and d, with d at most ``LARGEST / N``."""
    n = whole(rng, *n_arms)
    return {"n_arms": n, "dim": min(whole(rng, *dim), LARGEST // n)}


def _many_dimensions(rng: np.random.Generator) -> Drawn:
    return "heavy-tailed", {**sizes(rng, (300, 600), (50, 64)), "decay": 0.0}


def _few_dimensions(rng: np.random.Generator) -> Drawn:
    return "heavy-tailed", {**sizes(rng, (200, 2000), (4, 20)), "decay": 0.0}


def _low_rank(rng: np.random.Generator) -> Drawn:
    return "low-rank", {**sizes(rng, (200, 1500), (24, 64)), "rank": whole(rng, 3, 10), "noise": 0.0}


def _near_low_rank(rng: np.random.Generator) -> Drawn:
    return "low-rank", {**_low_rank(rng)[1], "noise": share(rng, 0.003, 0.1)}


def _few_arms(rng: np.random.Generator) -> Drawn:
    dim = whole(rng, 32, 64)
    return "heavy-tailed", {"n_arms": whole(rng, dim / 3, dim), "dim": dim, "decay": 0.0}


def _few_arms_near_low_rank(rng: np.random.Generator) -> Drawn:
    own = {"rank": whole(rng, 2, 6), "noise": share(rng, 0.003, 0.1)}
    return "low-rank", {**_few_arms(rng)[1], **own} | {"decay": None}


def _near_duplicates(rng: np.random.Generator) -> Drawn:
    own = {"n_centres": whole(rng, 10, 60), "spread": share(rng, 0.003, 0.1)}
    return "duplicated", {**sizes(rng, (200, 1500), (10, 50)), **own}


def _embeddings(rng: np.random.Generator) -> Drawn:
    own = {"decay": share(rng, 0.5, 2.0), "mean": share(rng, 0.3, 3.0), "norm_spread": share(rng, 0.1, 0.5)}
    return "embedding-like", {**sizes(rng, (200, 1500), (16, 64)), **own}


def _rays(rng: np.random.Generator) -> Drawn:
    return "correlated", {**sizes(rng, (60, 1500), (10, 50)), "group_size": whole(rng, 1, 20)}


def _one_hot(rng: np.random.Generator) -> Drawn:
    return "one-hot", {**sizes(rng, (100, 1000), (12, 48)), "n_fields": whole(rng, 2, 6)}


def _subspaces(rng: np.random.Generator) -> Drawn:
    own = {"n_subspaces": whole(rng, 2, 8), "rank": whole(rng, 2, 6), "noise": share(rng, 0.001, 0.03)}
    return "subspaces", {**sizes(rng, (200, 1500), (16, 50)), **own}


def _heavy_tail(rng: np.random.Generator) -> Drawn:
    return "heavy-tailed", {**sizes(rng, (100, 800), (30, 64)), "decay": share(rng, 0.3, 1.0)}


def _any_small(rng: np.random.Generator) -> Drawn:
    """A set of one of several families, small enough to be played one decision at a time."""
    makers = (_few_dimensions, _near_low_rank, _near_duplicates, _embeddings, _rays)
    generator, options = makers[int(rng.integers(len(makers)))](rng)
    return generator, {**options, **sizes(rng, (100, 300), (12, 24))}


def _any_growing(rng: np.random.Generator) -> Drawn:
    generator, options = _any_small(rng)
    return generator, {**options, **sizes(rng, (200, 1000), (12, 32))}


# Its number of sets, and how one is drawn.
FAMILIES: dict[str, tuple[int, Callable[[np.random.Generator], Drawn]]] = {
    "Gaussian, d >= 50": (3, _many_dimensions),
    "Gaussian, d <= 20": (4, _few_dimensions),
    "low rank": (4, _low_rank),
    "near low rank": (5, _near_low_rank),
    "N <= d": (2, _few_arms),
    "N <= d, near low rank": (3, _few_arms_near_low_rank),
    "near-duplicates": (4, _near_duplicates),
    "embedding-like": (4, _embeddings),
    "rays": (4, _rays),
    "one-hot": (2, _one_hot),
    "subspaces": (3, _subspaces),
    "heavy tail": (2, _heavy_tail),
    "arms come and go": (5, _any_growing),
    "some available": (4, _any_small),
}
LIVING, AVAILABLE = list(FAMILIES)[-2:]


def arm_sets(seed: int) -> list[ArmSet]:
    """All sets that this seed draws, family by family."""
    found = []
    for number, (family, (count, draw)) in enumerate(FAMILIES.items()):
        rng = np.random.default_rng([seed, number])
        for k in range(count):
            generator, options = draw(rng)
            given = tuple((name, value) for name, value in options.items() if value is not None)
            parameter = "uniform" if generator == "correlated" else "isotropic"
            normalize = NORMALIZATIONS[k % len(NORMALIZATIONS)]
            scene = Scene(f"{family} #{k + 1}", MODEL, generator, given, normalize, parameter)
            found.append(ArmSet(family, _around(family, scene, rng, k)))
    return found


def _around(family: str, scene: Scene, rng: np.random.Generator, k: int) -> AnyScene:
    """The scene itself, or its arms as they come and go, or some of them in each round."""
    if family == LIVING:
        first, portions = whole(rng, 4, 30), whole(rng, 5, 20)
        return LivingScene(scene, first, portions, leaving=share(rng, 0.01, 0.05) if k % 2 else 0.0)
    if family == AVAILABLE:
        often, rarely = share(rng, 0.3, 0.9), share(rng, 0.05, 0.3)
        return AvailableScene(scene, often, hidden=whole(rng, 3, 20), hidden_share=rarely)
    return scene
