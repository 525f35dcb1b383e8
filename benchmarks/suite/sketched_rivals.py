"""Disjoint LinUCB for long contexts, where every arm keeps a sketch of its contexts: for `benchmarks/embeddings.py`.

    argmax_a  u . theta_a + width sqrt(u' V_a^-1 u) ,   theta_a = V_a^-1 b_a ,   V_a = S_a'S_a + alpha_a I

``S_a`` is the library's `SpectralCompensation` of the contexts that arm a was played for, ``b_a`` the exact sum of
reward times context: CBSCFD (Chen et al., IJCAI 2020) with one parameter per arm. The sketch keeps an orthonormal basis
Q of its rows and the inverse A of V in it, which is what Woodbury's identity would give, without cancellation in A:

    u' V^-1 u = p'A p + (u.u - p.p)/alpha ,   p = Q u

O(N p l) per decision, O(p l) per reward, amortised, for contexts of length p; 4 p l numbers per arm, since the sketch
holds up to 2 l rows and a basis of them. With l >= p nothing is lost: `tests/core/test_embeddings_benchmark.py`
compares it with exact disjoint LinUCB. The radius is a constant, as that of `linear_rivals`: no guarantee is claimed.
"""

import numba
import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints, assign, dot, matvec
from sketchbandits.sketches import SpectralCompensation
from sketchbandits.sketches.base import ALPHA, RANK, SketchState, insert
from sketchbandits.sketches.queries import solve


# Not cached on disk: Numba would not notice that a kernel of the library, which these call, has changed.
@numba.njit(nogil=True, error_model="numpy")
def _sketch_of(sketches: SketchState, arm: int) -> SketchState:
    """One arm's sketch: views of its part of every array."""
    return SketchState(
        sketches.rows[arm],
        sketches.basis[arm],
        sketches.inverse[arm],
        sketches.block[arm],
        sketches.size[arm],
        sketches.level[arm],
        sketches.work[arm],
    )


@numba.njit(nogil=True, error_model="numpy")
def _squared_width(sketch: SketchState, u: Floats, square: float, p: Floats) -> float:
    """``u' V^-1 u``, where ``square = u.u``; ``p`` is overwritten."""
    rank = sketch.size[RANK]
    matvec(sketch.basis[:rank], u, p)
    inside = 0.0
    for i in range(rank):
        inside += p[i] * dot(sketch.inverse[i, :rank], p[:rank])
    rest = square - dot(p[:rank], p[:rank])
    return max(inside, 0.0) + max(rest, 0.0) / sketch.level[ALPHA]


@numba.njit(nogil=True, error_model="numpy")
def _play(sketches: SketchState, sums: Floats, theta: Floats, contexts: Floats, rewards: Floats, width: float) -> Ints:
    chosen, p = np.empty(len(contexts), np.int64), np.empty(sketches.basis.shape[1])
    for t in range(chosen.size):
        u, best, arm = contexts[t], -np.inf, 0
        square = dot(u, u)
        for a in range(len(theta)):
            value = dot(u, theta[a]) + width * np.sqrt(_squared_width(_sketch_of(sketches, a), u, square, p))
            if value > best:
                best, arm = value, a
        chosen[t] = arm
        sketch = _sketch_of(sketches, arm)
        insert(sketch, u)
        for i in range(u.size):
            sums[arm, i] += rewards[t, arm] * u[i]
        assign(theta[arm], sums[arm])
        solve(sketch, theta[arm])
    return chosen


class SketchedLinUCBForUsers:
    """One LinUCB per arm on a sketch of its contexts; ``alpha``: the factor of widths."""

    def __init__(self, arms: int, p: int, *, sketch_size: int, ridge: float, alpha: float) -> None:
        empty = SpectralCompensation(p, sketch_size=sketch_size, ridge=ridge).state
        self.sketches = SketchState(*(np.stack([part] * arms) for part in empty))
        self.sums, self.theta, self.alpha = np.zeros((arms, p)), np.zeros((arms, p)), float(alpha)

    def play_user_rounds(self, contexts: Floats, rewards: Floats, available: None = None) -> Ints:
        """Choose among all arms and learn in rounds, one per row."""
        rows, paid = np.ascontiguousarray(contexts), np.ascontiguousarray(rewards)
        chosen: Ints = _play(self.sketches, self.sums, self.theta, rows, paid, self.alpha)
        return chosen

    @property
    def bytes(self) -> int:
        """The memory of what is learned."""
        return sum(part.nbytes for part in (*self.sketches, self.sums, self.theta))
