"""SOFUL, sketched OFUL: the covariance is replaced by a Frequent Directions sketch of fixed size.

    V = S'S + ridge I ;   argmax_i  x_i.V^-1 b + beta ||x_i||_{V^-1}

**Radius** with the measured shrunk mass rho, ``R sqrt(q + 2 ln(1/delta) + d ln(1 + rho/ridge)) sqrt(1 + rho/ridge) +
S sqrt(ridge) (1 + rho/ridge)``; ``"closed"`` (default): ``q = k ln(1 + n L^2/(k ridge))`` with k = min(d, rows held);
``"logdet"``: the measured ``q = ln det(I + S S'/(ridge + rho))``; or a function ``(n, logdet) -> beta``.
**Sampling** ``exploration="ts"``: a Thompson draw ``V^-1(sqrt(ridge) Z_1 + S'Z_2)``, whose covariance is exactly
``V^-1``, scaled as in `lints`.
**Cost** O(N l + l d) per round plus a decomposition in O(l^2 d + N l^2 + N d) every l rounds (``shrink="every-round"``:
every round; also whenever a pull multiplies det V by more than 10). ``radius="logdet"`` adds O(l^3) per round, ``"ts"``
O(N d). Memory O(N l + N^2 + l d) for N <= 2048, else O(N (l + d)).
**Guarantee** the ellipsoid covers theta* at every round with probability ``1 - delta``; regret is linear in T when
the spectrum's tail is heavy, since rho then grows with T.
**Reference** Kuzborskij, Cella and Cesa-Bianchi, AISTATS 2019, Algorithms 1-3.
**Departures** The paper's q counts m rows where the buffer holds up to 2m: too small, corrected as above. rho is
measured, not bounded. The default shrinks when 2l rows are held; ``"every-round"`` is the paper's Algorithm 1.
"""

from typing import Any

from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.fits.contextual_sketched import SketchedBothWays
from sketchbandits.policies.lints import check_sampling, sampling_array
from sketchbandits.policies.parameters import Radius, check_sketched
from sketchbandits.sketches.base import SketchState
from sketchbandits.sketches.sizes import fixed_size_state


class SOFUL(SketchedBothWays):
    """SOFUL: OFUL on a Frequent Directions sketch of the data, O(N l + l d) per round instead of O(N d + d^2).

    For many dimensions of which few matter. What the sketch drops widens the bounds, so on heavy-tailed spectra
    regret becomes linear: there take `DBSLinUCB`, whose sketch grows, or `MultiscaleCSLB`, which drops nothing.
    `CBSCFD` keeps what is dropped on the diagonal and usually has the smaller regret. `contextual` is the form for
    contexts that arrive each round.

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
    exploration
        ``"ucb"`` (default) plays the largest bound; ``"ts"`` the best arm of a Thompson draw.
    scale, horizon
        With ``"ts"``, as in `LinTS`.
    seed
        Matters for ``"ts"`` only.

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
        exploration: str = "ucb",
        scale: float | None = None,
        horizon: int | None = None,
        seed: Any = None,
    ) -> None:
        super().__init__(arms)
        shared = {"ridge": ridge, "noise": noise, "theta_norm": theta_norm, "arm_norm": arm_norm, "delta": delta}
        own = {"shrink": shrink, "exploration": exploration, "scale": scale, "horizon": horizon}
        self._start(self._checked(self.arms, sketch_size=sketch_size, radius=radius, **own, **shared), seed)

    @classmethod
    def _checked(cls, arms: Floats | None, **given: Any) -> dict[str, Any]:
        sampling = check_sampling(given.pop("scale"), given.pop("horizon"))
        exploration = validate.option("exploration", given.pop("exploration"), ("ucb", "ts"))
        return {**check_sketched(arms, **given), "exploration": exploration, **sampling}

    @classmethod
    def _sketch(cls, settings: dict[str, Any], dim: int) -> SketchState:
        size = settings["sketch_size"]
        return fixed_size_state(dim, size, settings["ridge"], settings["shrink"], compensated=False)

    @classmethod
    def _sampling(cls, settings: dict[str, Any]) -> Floats:
        return sampling_array(settings) if settings["exploration"] == "ts" else super()._sampling(settings)
