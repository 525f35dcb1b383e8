"""Logged rewards as a bandit: a pull draws one of the rewards that were logged for the arm."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.environments.noise import checked_generator, checked_size
from sketchbandits.environments.protocol import Rounds


class ReplayEnvironment:
    """Fixed arms whose rewards are drawn, with replacement, from what was logged for them.

    Formula: ``reward`` of arm ``i`` is uniform on the log's rewards of ``i``; its mean is theirs, so that regret is
    against the arm with the best logged mean.
    Cost: ``O(n log n)`` once for ``n`` logged rewards, ``O(1)`` per reward.
    Reference: the bootstrap, Efron, "Bootstrap Methods: Another Look at the Jackknife", Annals of Statistics 7(1),
    1979.
    Departures, or choices made here: replaying the log event by event, ``Policy.play(learn="matches")``, is unbiased
    only where arms were logged uniformly at random. People choose what they rate, so here the log is taken as a
    population: a mean is of those who chose the arm, and nothing is said of the others. The means are in general not
    linear in the arms, so the confidence bounds of linear policies carry no guarantee. Rewards in an interval of length
    ``h`` are ``h/2``-sub-Gaussian (Hoeffding 1963): with rewards in [0, 1] policies take ``noise=0.5``.

    `reward` draws from the arm's own rewards. `simulate` adds one noise value to the mean whatever the arm, so there
    `draw_noise` draws from the deviations of all logged rewards from their arm's mean: means and regret are the same,
    only the spread is pooled.

    Parameters
    ----------
    arms
        One arm per row.
    logged_arms
        The arm (row of ``arms``) of every logged decision; each arm must occur.
    logged_rewards
        The reward of every logged decision.

    Attributes
    ----------
    arms, n_arms, dim
        As passed in; arrays are read-only copies.
    means
        The mean of the rewards that were logged for each arm.
    gaps
        The regret of one pull of each arm, never negative.
    best_arm
        The arm with the largest mean, of several the first.
    n_logged
        How many rewards were logged for each arm.

    """

    contextual: Final = False
    context_dim: Final = None

    def __init__(self, arms: ArrayLike, logged_arms: ArrayLike, logged_rewards: ArrayLike) -> None:
        self.arms = validate.matrix("arms", arms)
        self.n_arms, self.dim = self.arms.shape
        rewards = validate.vector("logged_rewards", logged_rewards)
        played = _checked_log(logged_arms, len(rewards), self.n_arms)
        self.n_logged = np.bincount(played, minlength=self.n_arms)
        if not self.n_logged.all():
            missing = int(np.argmin(self.n_logged))
            raise ValueError(f"logged_arms must have every arm from 0 to {self.n_arms - 1}, got none of {missing}")
        # By arm, then by size: round for round, two policies with equal generators then have equally good luck.
        order = np.lexsort((rewards, played))
        self._rewards = rewards[order]
        self._starts = np.cumsum(self.n_logged) - self.n_logged
        self.means: NDArray[np.float64] = np.add.reduceat(self._rewards, self._starts) / self.n_logged
        self._deviations = self._rewards - self.means[played[order]]
        self.best_arm = int(self.means.argmax())
        self.gaps: NDArray[np.float64] = self.means[self.best_arm] - self.means
        for array in (self.arms, self.n_logged, self.means, self.gaps):
            array.setflags(write=False)

    def reward(self, arm: int, generator: np.random.Generator) -> float:
        """One of the arm's own logged rewards; the generator advances by one uniform whatever the arm."""
        arm = validate.whole("arm", arm, least=0, most=self.n_arms - 1)
        drawn = int(checked_generator(generator).random() * self.n_logged[arm])
        return float(self._rewards[self._starts[arm] + drawn])

    def rounds(self, generator: np.random.Generator, first: int, size: int) -> Rounds:
        """Rounds in which every arm pays one of its own logged rewards; ``first`` changes nothing."""
        luck = checked_generator(generator).random((size, 1))
        rewards = self._rewards[self._starts + (luck * self.n_logged).astype(np.int64)]
        return Rounds(np.ones((size, 1)), np.broadcast_to(self.means, rewards.shape), rewards, None)

    def draw_noise(self, generator: np.random.Generator, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Deviations of logged rewards from their arm's mean; drawing in chunks gives the same numbers."""
        uniforms = checked_generator(generator).random(checked_size(size))
        return np.asarray(self._deviations[(uniforms * self._deviations.size).astype(np.int64)])


def _checked_log(logged_arms: ArrayLike, size: int, n_arms: int) -> NDArray[np.int64]:
    played = np.asarray(logged_arms)
    allowed = f"logged_arms must be {size} whole numbers from 0 to {n_arms - 1}, one for each of logged_rewards"
    if played.shape != (size,) or played.dtype.kind not in "iu":
        raise ValueError(f"{allowed}, got shape {played.shape} of {played.dtype}")
    if (bad := played[(played < 0) | (played >= n_arms)]).size:
        raise ValueError(f"{allowed}, got {bad[0]}")
    return played.astype(np.int64)
