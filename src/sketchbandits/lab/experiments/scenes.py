"""Where policies are compared: arms, hidden parameter and noise, drawn anew from a seed for every run."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from sketchbandits import validate
from sketchbandits.arms_file import SchemaFile, read_arms
from sketchbandits.environments import (
    LinearEnvironment,
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
from sketchbandits.environments.generators import NORMALIZATIONS, normalized
from sketchbandits.kernels.linalg import Floats

GENERATORS: dict[str, Callable[..., Floats]] = {
    "correlated": correlated_arms,
    "heavy-tailed": heavy_tailed_arms,
    "subspaces": subspace_arms,
    "low-rank": low_rank_arms,
    "duplicated": duplicated_arms,
    "embedding-like": embedding_like_arms,
    "one-hot": one_hot_arms,
}
AS_THEY_ARE = "none"
PARAMETERS = ("uniform", "isotropic")


@dataclass(frozen=True)
class Model:
    """What is passed to every policy of an experiment: R, S, L (``None``: the largest arm norm), delta, ridge and l."""

    sketch_size: int
    ridge: float = 1.0
    noise: float = 1.0
    theta_norm: float = 1.0
    arm_norm: float | None = None
    delta: float = 0.01

    def __post_init__(self) -> None:
        validate.whole("sketch_size", self.sketch_size)
        for name in ("ridge", "noise", "theta_norm"):
            validate.positive(name, getattr(self, name))
        validate.probability("delta", self.delta)
        if self.arm_norm is not None:
            validate.positive("arm_norm", self.arm_norm)

    def parameters(self) -> dict[str, Any]:
        """As keywords of a policy."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Scene:
    """Arms from a generator and a hidden parameter, ``"uniform"`` (the paper's) or ``"isotropic"``."""

    name: str
    model: Model
    generator: str
    options: tuple[tuple[str, Any], ...]
    normalize: str = "max"
    parameter: str = "uniform"

    def __post_init__(self) -> None:
        validate.option("generator", self.generator, tuple(GENERATORS))
        validate.option("normalize", self.normalize, NORMALIZATIONS)
        validate.option("parameter", self.parameter, PARAMETERS)

    def draw(self, seed: Any) -> "Draw":
        """Fresh arms and a fresh hidden parameter."""
        rng = validate.generator(seed)
        arms = GENERATORS[self.generator](**dict(self.options), normalize=self.normalize, seed=rng)
        return _draw(arms, self.model, self.parameter, rng)

    def identity(self) -> dict[str, Any]:
        """All that the scene depends on."""
        return asdict(self)


@dataclass(frozen=True)
class FileScene:
    """A user's arms; a run draws the hidden parameter and the noise. ``digest`` tells whether the file has changed."""

    name: str
    model: Model
    path: str
    digest: str
    id_column: str | None = None
    features: tuple[str, ...] | SchemaFile | None = None
    theta: tuple[float, ...] | None = None  # known, or drawn for each run
    normalize: str = AS_THEY_ARE
    parameter: str = "isotropic"

    def __post_init__(self) -> None:
        validate.option("normalize", self.normalize, (AS_THEY_ARE, *NORMALIZATIONS))
        validate.option("parameter", self.parameter, PARAMETERS)

    def draw(self, seed: Any) -> "Draw":
        """The file's arms with a fresh hidden parameter, unless it is given."""
        arms = _file_arms(self.path, self.digest, self.id_column, self.features)
        if self.normalize != AS_THEY_ARE:
            arms = normalized(arms, self.normalize)
        if self.theta is not None:
            return Draw(arms, LinearEnvironment(arms, np.array(self.theta), noise=self.model.noise))
        return _draw(arms, self.model, self.parameter, validate.generator(seed))

    def identity(self) -> dict[str, Any]:
        """All that the scene depends on: the file, and a schema, by its content and not by its place."""
        features = self.features.identity if isinstance(self.features, SchemaFile) else self.features
        found = asdict(replace(self, features=None)) | {"features": features}
        return {name: value for name, value in found.items() if name != "path"}


class Draw(NamedTuple):
    """One run's arms, in their own precision (a partition's tolerance depends on it), and their environment."""

    arms: Floats
    env: LinearEnvironment


def _draw(arms: Floats, model: Model, parameter: str, rng: np.random.Generator) -> Draw:
    theta = uniform_parameter if parameter == "uniform" else isotropic_parameter
    env = LinearEnvironment(arms, theta(arms.shape[1], norm=model.theta_norm, seed=rng), noise=model.noise)
    return Draw(arms, env)


class ArmsChangedError(ValueError):
    """The file of arms is no longer the one that the plan was checked with."""


def file_digest(path: str) -> str:
    """A fingerprint of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.lru_cache(maxsize=1)  # every run of a process plays the same file
def _file_arms(path: str, digest: str, id_column: str | None, features: tuple[str, ...] | SchemaFile | None) -> Floats:
    if file_digest(path) != digest:
        raise ArmsChangedError(f"arms must not change while they are played, got another content of {path!r}")
    return read_arms(path, id_column=id_column, features=features).arms
