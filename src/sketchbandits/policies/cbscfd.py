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

from numpy.typing import ArrayLike

from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.fits.contextual_sketched import SketchedBothWays
from sketchbandits.policies.parameters import Radius, check_sketched
from sketchbandits.sketches.base import SketchState, fixed_size_state


class CBSCFD(SketchedBothWays):
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
        shared = {"ridge": ridge, "noise": noise, "theta_norm": theta_norm, "arm_norm": arm_norm, "delta": delta}
        self._start(self._checked(self.arms, sketch_size=sketch_size, radius=radius, shrink=shrink, **shared), seed)

    @classmethod
    def _checked(cls, arms: Floats | None, **given: Any) -> dict[str, Any]:
        return check_sketched(arms, **given)

    @classmethod
    def _sketch(cls, settings: dict[str, Any], dim: int) -> SketchState:
        size = settings["sketch_size"]
        return fixed_size_state(dim, size, settings["ridge"], settings["shrink"], compensated=True)
