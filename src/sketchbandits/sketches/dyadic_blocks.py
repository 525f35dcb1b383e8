"""Dyadic blocks: Frequent Directions whose size doubles when it would lose too much.

    block i keeps l_i = 2^i l_0 rows (buffer 2 l_i); it is closed before a row x when  mass + ||x||^2 > error l_0/2
    and the rank of what it received would exceed l_i and l_i <= d ;  S stacks the rows of all blocks

A block of mass M loses at most ``M/(l_i + 1)``, and one whose rank is at most ``l_i`` loses nothing, so the total loss
is at most ``sum_i error/2^(i+1) <= error``. Past ``l_i >= d`` it is lossless.

**Bound** ``0 <= X'X - S'S <= rho I`` with ``rho <= error``.
**Cost** O(l_i d) per row, amortised for the open block; O(d^2) on full-rank data, where the size grows to d. Memory for
8 d^2 numbers is reserved at the start and touched as blocks open.
**Reference** Wen, Yin, Zhang, Zhao, Zhang and Wei, 2024 (not read; structure from secondary notes, bound derived).
**Departures** The closing rule is ours, chosen so that the bound above holds.
"""

from sketchbandits import validate
from sketchbandits.sketches.sizes import block_count, dyadic_state
from sketchbandits.sketches.sketch import Sketch


class DyadicBlocks(Sketch):
    """``V = S'S + ridge I`` (``compensated=True``: ``+ (ridge + shrunk_mass) I``) with ``shrunk_mass <= error``."""

    def __init__(
        self, dim: int, *, sketch_size: int, error: float = 1.0, ridge: float = 1.0, compensated: bool = False
    ) -> None:
        super().__init__(dim, sketch_size, ridge)
        self.error = validate.positive("error", error)
        compensated = validate.flag("compensated", compensated)
        self.state = dyadic_state(self.dim, self.sketch_size, self.ridge, self.error, compensated=compensated)

    @property
    def n_blocks(self) -> int:
        """How many blocks have been opened."""
        return block_count(self.state, self.sketch_size)
