"""DBSLinUCB: SOFUL on a sketch whose size doubles before it loses more than a given error.

    V = S'S + ridge I with S the stacked rows of all dyadic blocks (see `sketches.dyadic_blocks`)

**Radius** SOFUL's with the measured loss ``rho = sum rho_i <= error`` (``compensated=True``: CBSCFD's with
``alpha = ridge + rho``); q counts the rows of *all* blocks: with the first block's size alone the ellipsoid fails.
**Cost** O(N k + k d) a round for k stacked rows, plus a decomposition in O(k^2 d) every l_i rounds: on full-rank data k
grows to d and beyond, O(d^2). Memory for O(d^2) numbers is reserved at the start and touched as blocks open.
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
from sketchbandits.sketches.base import SketchState, block_count, dyadic_state


class DBSLinUCB(SketchedBothWays):
    """DBSLinUCB on a fixed arm set; `contextual` for a fresh arm set each round. Nothing is random.

    ``sketch_size`` is the size of the first block, ``error`` the most that shrinking may take from any direction.
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
