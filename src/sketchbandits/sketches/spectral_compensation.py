"""Spectral compensation (SCFD): Frequent Directions that keeps what it shrinks on the diagonal.

    as Frequent Directions, and  alpha += cut ,   V = S'S + alpha I ,   alpha_0 = ridge

**Bound** ``X'X + ridge I <= V <= X'X + alpha I``, and V grows with every row (``V_t >= V_{t-1}``), which plain Frequent
Directions does not ensure.
**Cost** O(l d) per row, amortised, O(l d) memory.
**Reference** Chen, Luo, Zhang, Yu and Lian, IJCAI 2020 (not read; public implementations agree on the update).
**Departures** none known. RFD, which keeps half of the mass, is another method.
"""

from sketchbandits.sketches.sizes import fixed_size_state
from sketchbandits.sketches.sketch import Sketch


class SpectralCompensation(Sketch):
    """``V = S'S + alpha I``, ``alpha = ridge + shrunk_mass``."""

    def __init__(self, dim: int, *, sketch_size: int, ridge: float = 1.0, shrink: str = "buffered") -> None:
        super().__init__(dim, sketch_size, ridge)
        self.state = fixed_size_state(self.dim, self.sketch_size, self.ridge, shrink, compensated=True)
