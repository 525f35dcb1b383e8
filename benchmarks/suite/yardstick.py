"""What the library is measured against: a careful incremental OFUL in NumPy."""

import math

import numpy as np
from numpy.typing import ArrayLike


class NumpyOFUL:
    """OFUL on fixed arms, written as well as plain NumPy allows: O(d^2 + N d) per round, nothing allocated but views.

        u = V^-1 x_j ;  g = X u ;  D = 1 + g_j
        V^-1 -= u u'/D ;  mean += g (y - mean_j)/D ;  width2 -= g^2/D

    Means and squared widths of all arms follow each reward, so that a round has two matrix-vector products and one
    rank-one step, all into buffers. The forms are the fastest of those tried: the method ``a.dot(x, out)`` skips the
    dispatch of the function ``np.dot``, and a column times a row through BLAS beats ``np.multiply.outer``.
    """

    def __init__(
        self,
        arms: ArrayLike,
        *,
        ridge: float = 1.0,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        delta: float = 0.01,
    ) -> None:
        self.arms = np.array(arms, dtype=np.float64, order="C")
        n, d = self.arms.shape
        norms2 = (self.arms**2).sum(axis=1)
        self.inverse = np.eye(d) / ridge
        self.means = np.zeros(n)
        self.width2 = norms2 / ridge
        self.rewards = 0
        self.dim, self.noise, self.rate = d, noise, float(norms2.max()) / (ridge * d)
        self.share, self.bias = 2.0 * math.log(1.0 / delta), math.sqrt(ridge) * theta_norm
        self._u, self._row, self._outer = np.empty(d), np.empty((1, d)), np.empty((d, d))
        self._g, self._values = np.empty(n), np.empty(n)
        self._column = self._u.reshape(d, 1)  # the same numbers as a matrix, for the outer product

    def select(self) -> int:
        """The arm with the largest upper confidence bound, closed radius."""
        information = self.dim * math.log1p(self.rewards * self.rate)
        beta = self.noise * math.sqrt(information + self.share) + self.bias
        values = np.sqrt(self.width2, self._values)
        values *= beta
        values += self.means
        return int(values.argmax())

    def update(self, arm: int, reward: float) -> None:
        """Record a reward by one Sherman-Morrison step."""
        g, row, outer = self._g, self._row, self._outer
        self.inverse.dot(self.arms[arm], self._u)
        self.arms.dot(self._u, g)
        scale = 1.0 / (1.0 + float(g[arm]))
        np.multiply(self._u, scale, row[0])
        np.dot(self._column, row, outer)
        self.inverse -= outer
        self.means += np.multiply(g, (reward - float(self.means[arm])) * scale, self._values)
        g *= g
        g *= scale
        self.width2 -= g
        self.rewards += 1
