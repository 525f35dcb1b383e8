"""CBSCFD: as SOFUL, but what the sketch shrinks is kept on the diagonal (spectral compensation).

    V = S'S + alpha I ,  alpha = ridge + rho ;   argmax_i  x_i.V^-1 b + beta ||x_i||_{V^-1}

**Radius** ``R sqrt(q + 2 ln(1/delta) + d ln(alpha/ridge)) + S sqrt(alpha)``; ``"closed"`` (default):
``q = k ln(1 + n L^2/(k ridge))`` with k = min(d, rows held); ``"logdet"``: ``q = ln det(I + S S'/alpha)``; or a
function ``(n, logdet) -> beta``.
**Cost** as `soful`: O(N l + l d) a round plus O(l^2 d + N l^2) every l rounds.
**Guarantee** the ellipsoid covers theta* at every round with probability ``1 - delta``; regret can still be linear in T
on heavy-tailed spectra, since alpha then grows with T.
**Reference** Chen, Luo, Zhang, Yu and Lian, IJCAI 2020 (not read; public implementations agree; radius derived).
**Departures** The radius is our derivation for the measured alpha.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.policies.fits.contextual_sketched import ContextualSketch
from sketchbandits.policies.fits.sketched import SketchedPolicy
from sketchbandits.policies.parameters import Radius, check_radius, check_shared
from sketchbandits.sketches.base import fixed_size_state


class CBSCFD(SketchedPolicy):
    """CBSCFD on a fixed arm set; `contextual` for a fresh arm set each round. Nothing is random."""

    def __init__(
        self,
        arms: ArrayLike,
        *,
        sketch_size: int,
        ridge: float = 1.0,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        arm_norm: float | None = None,
        delta: float = 0.01,
        radius: Radius = "closed",
        shrink: str = "buffered",
        seed: Any = None,
    ) -> None:
        super().__init__(arms)
        sketch_size = validate.whole("sketch_size", sketch_size)
        shared = check_shared(ridge, noise, theta_norm, arm_norm, delta, self.arms)
        sketch = fixed_size_state(self.dim, sketch_size, shared.ridge, shrink, compensated=True)
        self.settings = {
            "sketch_size": sketch_size,
            **shared._asdict(),
            "radius": check_radius(radius),
            "shrink": shrink,
        }
        self._start(shared, radius, sketch, np.zeros(0), seed)

    @staticmethod
    def contextual(
        *,
        dim: int,
        sketch_size: int,
        ridge: float = 1.0,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        arm_norm: float | None = None,
        delta: float = 0.01,
        radius: Radius = "closed",
        shrink: str = "buffered",
        seed: Any = None,
    ) -> ContextualSketch:
        """CBSCFD for contexts that arrive each round: ``select(contexts)``, ``update(context, reward)``."""
        dim, sketch_size = validate.whole("dim", dim), validate.whole("sketch_size", sketch_size)
        shared = check_shared(ridge, noise, theta_norm, arm_norm, delta, None)
        sketch = fixed_size_state(dim, sketch_size, shared.ridge, shrink, compensated=True)
        settings = {"name": "CBSCFD", "sketch_size": sketch_size, "shrink": shrink}
        return ContextualSketch(
            settings=settings,
            shared=shared,
            radius=check_radius(radius),
            sketch=sketch,
            sampling=np.zeros(0),
            seed=seed,
        )
