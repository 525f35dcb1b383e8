"""DBSLinUCB: SOFUL on a sketch whose size doubles before it loses more than a given error.

    V = S'S + ridge I with S the stacked rows of all dyadic blocks (see `sketches.dyadic_blocks`)

**Radius** SOFUL's with the measured loss ``rho = sum rho_i <= error`` (``compensated=True``: CBSCFD's with
``alpha = ridge + rho``); q counts the rows of *all* blocks: with the first block's size alone the ellipsoid fails.
**Cost** O(N k + k d) per round for k stacked rows, plus a decomposition in O(k^2 d) every l_i rounds: on full-rank data
k grows to d and beyond, O(d^2). Memory for O(d^2) numbers is reserved at the start and touched as blocks open.
**Guarantee** the ellipsoid covers theta* at every round with probability ``1 - delta``, and regret is sublinear since
rho stays below ``error``.
**Reference** Wen, Yin, Zhang, Zhao, Zhang and Wei, 2024 (not read; structure from secondary notes, bounds derived).
**Departures** The closing rule and the radius are our derivations.
"""

from typing import Any

from numpy.typing import ArrayLike

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats
from sketchbandits.policies.fits.contextual_sketched import SketchedBothWays
from sketchbandits.policies.parameters import Radius, check_radius, check_shared
from sketchbandits.sketches.base import SketchState
from sketchbandits.sketches.sizes import block_count, dyadic_state


class DBSLinUCB(SketchedBothWays):
    """DBSLinUCB: SOFUL on a sketch whose size doubles before it drops more than ``error``.

    For many dimensions when it is not known how many matter: it starts as cheap as `SOFUL` and ends, on full-rank
    data, at the O(d^2) per round of `OFUL`, with sublinear regret throughout. With known low rank `CBSCFD` is
    cheaper. `contextual` is the form for contexts that arrive each round.

    Parameters
    ----------
    arms
        One row per arm: an array, a sparse matrix or a data frame of numbers. Copied.
    sketch_size
        l, the directions that the first block keeps; later blocks keep 2l, 4l, ... Start small.
    error
        The most that shrinking may take from any direction of V, > 0, in units of squared arm norm (default 1, one
        ridge). Smaller is closer to OFUL in regret and in cost.
    compensated
        Keep what is dropped on the diagonal, as `CBSCFD` does (default False).
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
    seed
        Accepted so that all policies can be built alike; nothing is random.

    """

    def __init__(
        self,
        arms: ArrayLike,
        *,
        sketch_size: int,
        error: float = 1.0,
        compensated: bool = False,
        ridge: float = 1.0,
        noise: float = 1.0,
        theta_norm: float = 1.0,
        arm_norm: float | None = None,
        delta: float = 0.01,
        radius: Radius = "closed",
        seed: Any = None,
    ) -> None:
        super().__init__(arms)
        shared = {"ridge": ridge, "noise": noise, "theta_norm": theta_norm, "arm_norm": arm_norm, "delta": delta}
        own = {"sketch_size": sketch_size, "error": error, "compensated": compensated}
        self._start(self._checked(self.arms, radius=radius, **own, **shared), seed)

    @classmethod
    def _checked(cls, arms: Floats | None, **given: Any) -> dict[str, Any]:
        own = {
            "sketch_size": validate.whole("sketch_size", given.pop("sketch_size")),
            "error": validate.positive("error", given.pop("error")),
            "compensated": validate.flag("compensated", given.pop("compensated")),
        }
        radius = check_radius(given.pop("radius"))
        return {**own, **check_shared(**given, arms=arms)._asdict(), "radius": radius}

    @classmethod
    def _sketch(cls, settings: dict[str, Any], dim: int) -> SketchState:
        size, error, compensated = settings["sketch_size"], settings["error"], settings["compensated"]
        return dyadic_state(dim, size, settings["ridge"], error, compensated=compensated)

    @property
    def n_blocks(self) -> int:
        """How many blocks have been opened."""
        return block_count(self.state.sketch, self.settings["sketch_size"])
