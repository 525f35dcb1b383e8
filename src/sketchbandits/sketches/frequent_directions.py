"""Frequent Directions: a deterministic sketch of a matrix whose rows arrive one by one.

    append rows; when 2l are held:  S = U Sigma V' ,  cut = sigma_{l+1}^2 ,  S <- sqrt(Sigma^2 - cut) V' ,  rho += cut

**Bound** ``0 <= X'X - S'S <= rho I`` with the measured ``rho``, and
``rho <= min_{k<=l} ||X - X_k||_F^2 / (l + 1 - k)``: lossless up to rank l.
**Cost** O(l d) per row, amortised (``shrink="every-round"``, a buffer of l rows: O(l^2 d)), O(l d) memory.
**Reference** Ghashami, Liberty, Phillips and Woodruff, SIAM J. Computing 45, 2016.
**Departures** The buffered form shrinks by the (l+1)-th singular value, so that rank l is kept whole; ``"every-round"``
shrinks by the l-th, as Kuzborskij, Cella and Cesa-Bianchi (AISTATS 2019) print it, and keeps rank l - 1 whole.
"""

from sketchbandits.sketches.sizes import fixed_size_state
from sketchbandits.sketches.sketch import Sketch


class FrequentDirections(Sketch):
    """``V = S'S + ridge I`` with at most ``2 sketch_size`` rows (``"every-round"``: ``sketch_size``)."""

    def __init__(self, dim: int, *, sketch_size: int, ridge: float = 1.0, shrink: str = "buffered") -> None:
        super().__init__(dim, sketch_size, ridge)
        self.state = fixed_size_state(self.dim, self.sketch_size, self.ridge, shrink, compensated=False)
