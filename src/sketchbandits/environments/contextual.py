"""Users and arms: rewards that are bilinear in a context and an arm, with deviations of single arms and drift."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.environments.noise import FARTHEST, checked_generator
from sketchbandits.environments.protocol import Rounds

REWARDS = ("gaussian", "bernoulli")


class ContextualEnvironment:
    """Fixed arms whose expected rewards depend on who asks: bilinear, with a deviation of each arm's own.

    Formula: ``mean of arm a for context u = u . (theta v_a + w_a)``, ``v_a`` the arm's features and ``w_a`` its row of
    ``own``. Gaussian rewards add noise of scale ``noise``; Bernoulli rewards are 1 with that mean, cut to [0, 1], as
    probability.
    Cost: ``O(N p)`` per round for N arms and contexts of length p, ``O(N p q)`` once per parameter.
    Reference: the hybrid model of Li, Chu, Langford, Schapire, "A Contextual-Bandit Approach to Personalized News
    Article Recommendation", WWW 2010.

    Every round draws the same numbers whatever is chosen, and each arm's reward is made from the same luck (one noise
    value, or one uniform): policies with equal generators are compared in pairs.

    Parameters
    ----------
    arms
        The features of the arms, one arm per row, shape (N, q).
    theta
        What is shared: shape (p, q), or (q,) where there is no context (then p is 1 and the context always 1).
    own
        The deviations ``w_a`` of the arms, shape (N, p) (default: none).
    users
        The contexts that may ask, one per row, shape (m, p); each round draws one of them uniformly. Default: uniform
        on the unit sphere of R^p.
    noise
        The scale of Gaussian noise, in units of the reward (default 1).
    rewards
        ``"gaussian"`` (default) or ``"bernoulli"``.
    drift
        Pairs (round, theta): from that round on this theta holds. `rotation` makes pairs that turn slowly.
    arrivals
        For each arm the first round in which it may be chosen (default: all are there from the start).

    Attributes
    ----------
    arms, n_arms, dim
        The features, how many arms there are and how many features each has.
    context_dim
        The length p of a context; None where there is none.

    """

    contextual: Final = False

    def __init__(
        self,
        arms: ArrayLike,
        theta: ArrayLike,
        *,
        own: ArrayLike | None = None,
        users: ArrayLike | None = None,
        noise: float = 1.0,
        rewards: str = "gaussian",
        drift: Iterable[tuple[int, ArrayLike]] = (),
        arrivals: ArrayLike | None = None,
    ) -> None:
        self.arms = validate.matrix("arms", arms)
        self.n_arms, self.dim = self.arms.shape
        shape = np.shape(_numbers("theta", theta))
        self.context_dim = None if len(shape) == 1 else shape[0]
        self.own = None if own is None else self._checked("own", own, (self.n_arms, self.context_dim or 1))
        self.users = None if users is None else validate.matrix("users", users)
        if self.users is not None and self.users.shape[1] != self.context_dim:
            raise ValueError(f"users must have one column per row of theta, {self.context_dim}, got {self.users.shape}")
        self.noise_scale = validate.number("noise", noise, least=0.0)
        self.rewards = validate.option("rewards", rewards, REWARDS)
        self._coefficients = [(0, self._coefficients_of("theta", theta))]
        for start, later in drift:
            start = validate.whole("drift", start, least=self._coefficients[-1][0] + 1)
            self._coefficients.append((start, self._coefficients_of("drift", later)))
        self._arrivals = None if arrivals is None else self._checked_arrivals(arrivals)

    def _checked(self, name: str, values: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float64]:
        matrix = validate.matrix(name, values)
        if matrix.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, got {matrix.shape}")
        return matrix

    def _coefficients_of(self, name: str, theta: ArrayLike) -> NDArray[np.float64]:
        """The coefficients of every arm, one row per arm."""
        p = self.context_dim or 1
        matrix = self._checked(name, np.atleast_2d(_numbers(name, theta)), (p, self.dim))
        return self.arms @ matrix.T + (0.0 if self.own is None else self.own)

    def _checked_arrivals(self, arrivals: ArrayLike) -> NDArray[np.float64]:
        firsts = validate.vector("arrivals", arrivals, size=self.n_arms)
        if firsts.min() > 0.0:
            raise ValueError(f"arrivals must let at least one arm be there from round 0, got {firsts.min():g} as first")
        return firsts

    def rounds(self, generator: np.random.Generator, first: int, size: int) -> Rounds:
        """The rounds ``first`` to ``first + size - 1``; drawing them in chunks gives the same rounds."""
        wanted = 0 if self.context_dim is None else 1 if self.users is not None else self.context_dim
        uniforms = checked_generator(generator).random((size, wanted + 1))
        contexts, luck = self._contexts(uniforms[:, :wanted]), uniforms[:, -1:]
        means = np.empty((size, self.n_arms))
        for start, stop, coefficients in self._phases(first, first + size):
            own = slice(start - first, stop - first)
            # Not by BLAS, whose last digit depends on how many rows there are.
            np.einsum("tp,np->tn", contexts[own], coefficients, out=means[own])
        if self.rewards == "bernoulli":
            np.clip(means, 0.0, 1.0, out=means)
            rewards = (luck < means).astype(np.float64)
        else:
            rewards = means + self.noise_scale * _normal(luck)
        return Rounds(contexts, means, rewards, self._available(first, size))

    def _contexts(self, uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        if self.context_dim is None:
            return np.ones((len(uniforms), 1))
        if self.users is not None:
            return np.asarray(self.users[(uniforms[:, 0] * len(self.users)).astype(np.int64)])
        normals = _normal(uniforms)
        return normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.finfo(float).tiny)

    def _phases(self, first: int, end: int) -> Iterable[tuple[int, int, NDArray[np.float64]]]:
        """The spans of rounds between ``first`` and ``end`` in which nothing changes, with their coefficients."""
        starts = [start for start, _ in self._coefficients]
        for (start, coefficients), stop in zip(self._coefficients, [*starts[1:], end], strict=True):
            begin, until = max(start, first), min(stop, end)
            if begin < until:
                yield begin, until, coefficients

    def _available(self, first: int, size: int) -> NDArray[np.bool_] | None:
        if self._arrivals is None:
            return None
        mask: NDArray[np.bool_] = np.arange(first, first + size)[:, None] >= self._arrivals
        return mask


def _numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """A vector or a matrix of numbers."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.zeros(())
    if array.ndim not in (1, 2):
        raise ValueError(f"{name} must be a vector or a matrix of numbers, got {values!r}")
    return array


def _normal(uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standard normal numbers from uniform ones in [0, 1), never infinite."""
    result: NDArray[np.float64] = np.clip(scipy.special.ndtri(uniforms), -FARTHEST, FARTHEST)
    return result


def rotation(
    theta: ArrayLike, *, rounds: int, turn: float = 180.0, steps: int = 50, seed: Any = None
) -> list[tuple[int, NDArray[np.float64]]]:
    """Pairs for ``drift``: ``theta`` turned by ``turn`` degrees in a random plane, in ``steps`` equal steps.

    Formula: ``theta_k = |theta| (cos(k a) e_1 + sin(k a) e_2)``, ``e_1`` the direction of theta, ``e_2`` a random one
    orthogonal to it, ``a = turn / steps``; step k holds from round ``k rounds / (steps + 1)`` on.
    """
    start = np.asarray(theta, dtype=np.float64)
    length, flat = float(np.linalg.norm(start)), start.ravel()
    other = validate.generator(seed).standard_normal(flat.size)
    if length > 0.0:
        other -= flat * (flat @ other) / length**2
    other *= length / max(float(np.linalg.norm(other)), np.finfo(float).tiny)
    steps = validate.whole("steps", steps, most=validate.whole("rounds", rounds) - 1)
    angles = np.radians(turn) * np.arange(1, steps + 1) / steps
    turned = np.cos(angles)[:, None] * flat + np.sin(angles)[:, None] * other
    return [((k + 1) * rounds // (steps + 1), one.reshape(start.shape)) for k, one in enumerate(turned)]
