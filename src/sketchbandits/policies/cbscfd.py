"""CBSCFD: as SOFUL, but what the sketch shrinks is kept on the diagonal (spectral compensation).

    V = S'S + alpha I ,  alpha = ridge + rho ;   argmax_i  x_i.V^-1 b + beta ||x_i||_{V^-1}

**Radius** ``R sqrt(q + 2 ln(1/delta) + d ln(alpha/ridge)) + S sqrt(alpha)``; ``"closed"`` (default):
``q = k ln(1 + n L^2/(k ridge))`` with k = min(d, rows held); ``"logdet"``: ``q = ln det(I + S S'/alpha)``; or a
function ``(n, logdet) -> beta``.
**Cost** as `soful`: O(N l + l d) per round plus O(l^2 d + N l^2) every l rounds.
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
from sketchbandits.sketches.base import SketchState
from sketchbandits.sketches.sizes import fixed_size_state


class CBSCFD(SketchedBothWays):
    """CBSCFD: SOFUL whose sketch keeps what it drops as a multiple of the identity (spectral compensation).

    For many dimensions of which few matter, at `SOFUL`'s cost and usually with less regret. On heavy-tailed spectra
    regret can still become linear: there take `DBSLinUCB`, whose sketch grows, or `MultiscaleCSLB`, which drops
    nothing. `contextual` is the form for contexts that arrive each round.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    sketch_size
        l, the directions that the sketch keeps. Costs grow with l, and what it cannot hold widens the bounds: take
        the number of directions that carry most of the arms' energy.
    ridge
        The regulariser of the ridge fit, > 0 (default 1). It counts like ``ridge`` rewards of 0 in every direction.
        Keep 1 for arms of norm about 1; scale it with the squared norm otherwise.
    noise
        R, the scale of the reward noise, in units of the reward (default 1): the noise must be R-sub-Gaussian. 0.5
        is valid for every reward in [0, 1]. Too small and the bounds fail, too large and exploration is slow.
    theta_norm
        S, an upper bound on the norm of the unknown parameter, in units of the reward per unit of arm norm (default
        1).
    arm_norm
        L, an upper bound on the norms of the arms (default: the largest norm given; 1 for contexts).
    delta
        The probability with which the bounds may fail at any time, in (0, 1) (default 0.01).
    radius
        ``"closed"`` (default) grows with the number of rewards alone; ``"logdet"`` measures what was learned, is
        never larger and costs O(l^3) more per round; or a function ``(n, logdet) -> beta`` of your own.
    shrink
        ``"buffered"`` (default) decomposes once in l rounds; ``"every-round"`` is the printed algorithm, slower.
    seed
        Accepted so that all policies can be built alike; nothing is random.

    """

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
