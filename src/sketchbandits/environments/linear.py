"""A fixed arm set with linear rewards."""

from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sketchbandits import validate
from sketchbandits.environments.noise import truncated_gaussian


class LinearEnvironment:
    """Fixed arms whose expected rewards are linear in a hidden parameter.

    Formula: ``reward = x . theta + noise``, the noise a Gaussian of scale ``noise`` truncated to +-3 scales.
    Cost: ``O(N d)`` once, ``O(1)`` per reward.
    Reference: the CS-LB paper, "Experimental Setup".

    Parameters
    ----------
    arms
        One arm per row.
    theta
        The hidden parameter, as long as an arm; `uniform_parameter` and `isotropic_parameter` draw one.
    noise
        The scale of the noise before truncation; policies take the same number as their ``noise``. Default: 1.

    Attributes
    ----------
    arms, theta, noise_scale, n_arms, dim
        As passed in; arrays are read-only copies.
    means
        The expected reward of every arm.
    gaps
        The regret of one pull of each arm, never negative.
    best_arm
        The arm with the largest mean, of several the first.

    """

    contextual: Final = False

    def __init__(self, arms: ArrayLike, theta: ArrayLike, *, noise: float = 1.0) -> None:
        self.arms = validate.matrix("arms", arms)
        self.n_arms, self.dim = self.arms.shape
        self.theta = validate.vector("theta", theta, size=self.dim)
        self.noise_scale = validate.number("noise", noise, least=0.0)
        self.means: NDArray[np.float64] = self.arms @ self.theta
        self.best_arm = int(self.means.argmax())
        self.gaps: NDArray[np.float64] = self.means[self.best_arm] - self.means
        for array in (self.arms, self.theta, self.means, self.gaps):
            array.setflags(write=False)

    def draw_noise(self, generator: np.random.Generator, size: int | tuple[int, ...]) -> NDArray[np.float64]:
        """Noise of ``size`` rewards; drawing in chunks gives the same numbers as drawing all together."""
        return truncated_gaussian(generator, size, scale=self.noise_scale)

    def reward(self, arm: int, generator: np.random.Generator) -> float:
        """One noisy reward of ``arm``, for a loop of your own."""
        arm = validate.whole("arm", arm, least=0, most=self.n_arms - 1)
        return float(self.means[arm] + self.draw_noise(generator, 1)[0])
