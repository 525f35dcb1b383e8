"""The games that workloads are played on: arm sets that let one size grow while the others stay."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sketchbandits.environments import (
    LinearEnvironment,
    correlated_arms,
    isotropic_parameter,
    subspace_arms,
    uniform_parameter,
)

Floats = NDArray[Any]
# Clusters of a fixed size, as many as wanted: GROUP parallel arms in each of RANK directions.
GROUP, RANK, DIM = 10, 4, 8
CLUSTER_SIZE = GROUP * RANK


def paper_game(n_arms: int, dim: int, seed: int) -> LinearEnvironment:
    """The paper's setup: positive arms in general position, a parameter of norm 1."""
    arms = correlated_arms(n_arms=n_arms, dim=dim, seed=seed)
    return LinearEnvironment(arms, uniform_parameter(dim, seed=seed + 1))


def turned(env: LinearEnvironment, dim: int, seed: int) -> LinearEnvironment:
    """The same arms in more dimensions: partition, choices and rewards agree, so that only d differs.

    Turned, not padded with zeros: all coordinates of every arm are in use. A rotation keeps all inner products.
    """
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, env.dim)))[0].T
    return LinearEnvironment(env.arms @ turn, env.theta @ turn, noise=env.noise_scale)


def few_clusters(n_arms: int, n_clusters: int, rank: int, dim: int, seed: int) -> LinearEnvironment:
    """Arms of a few subspaces: with ``sketch_size=rank`` the number of clusters stays, whatever the number of arms."""
    arms = subspace_arms(n_arms=n_arms, dim=dim, n_subspaces=n_clusters, rank=rank, seed=seed)
    return LinearEnvironment(arms, isotropic_parameter(dim, seed=seed + 1))


def many_clusters(n_clusters: int, seed: int) -> LinearEnvironment:
    """Directions in general position: with ``sketch_size=RANK``, clusters of ``CLUSTER_SIZE`` arms each.

    ``GROUP`` arms per direction, so that a million arms make tens of thousands of clusters: more would be too slow
    to warm up.
    """
    arms = correlated_arms(n_arms=n_clusters * CLUSTER_SIZE, dim=DIM, group_size=GROUP, seed=seed)
    return LinearEnvironment(arms, uniform_parameter(DIM, seed=seed + 1))


def one_cluster(n_arms: int, rank: int, seed: int) -> LinearEnvironment:
    """Arms that fill all of ``rank`` dimensions: with ``sketch_size=rank``, a single cluster."""
    arms = np.random.default_rng(seed).standard_normal((n_arms, rank))
    arms /= np.linalg.norm(arms, axis=1).max()
    return LinearEnvironment(arms, isotropic_parameter(rank, seed=seed + 1))


def general_arms(n_arms: int, dim: int, seed: int) -> Floats:
    """Arms in general position and nothing else: one array, with no second one meanwhile."""
    return np.random.default_rng(seed).random((n_arms, dim))


def noise_of(env: LinearEnvironment, rounds: int, seed: int) -> Floats:
    """The noise of so many rounds, from a stream of its own."""
    return env.draw_noise(np.random.default_rng([seed, rounds]), rounds)
