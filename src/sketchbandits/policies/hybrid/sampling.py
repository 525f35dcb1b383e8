"""Thompson sampling from the joint posterior: one draw of every cluster's coefficients, then of each arm's own part.

    Phi~ = Phi + R T^-1 xi ,   A_0 = T'T ,      score_a = u . own_a + R (c g . (Phi~ - Phi) z_a / R + sqrt(u . g) xi_a)

with ``g = A_a^-1 u``. Arms of one cluster share its draw: independent draws of every arm's score would be another rule.
A decision has `SAMPLES` samples, and one more number says which of them decides: an arm's propensity is its share of
the samples, exactly, and above zero for the arm that was chosen. All are functions of (seed, decision, position).
O(K (p r)^2 + N p (p + r)) per sample; choosing takes one.
"""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.counter import normals, philox
from sketchbandits.kernels.linalg import Floats
from sketchbandits.kernels.triangular import solve_upper
from sketchbandits.policies.hybrid.layout import HybridState
from sketchbandits.policies.pending.rule import draw_round

SAMPLES = 64


@kernel
def sample_round(decision: int, position: int, sample: int) -> int:
    """The round of the counter for one sample; ``SAMPLES`` itself is the number that chooses among them."""
    return draw_round(decision, position * (SAMPLES + 1) + sample)


@kernel
def drawn_sample(state: HybridState, decision: int, position: int) -> int:
    """Which sample decides."""
    words = np.empty(4, np.uint64)
    philox(state.key, np.uint64(0), np.uint64(sample_round(decision, position, SAMPLES)), words)
    return int(words[0] >> np.uint64(32)) * SAMPLES >> 32


@kernel
def sampled(state: HybridState, x: Floats, units: Floats, round_: int, scores: Floats) -> None:
    """Every arm's score above the centre under one sample; ``units``: R of each arm."""
    (k, p, r), n = state.shared.shape, scores.size
    s, c = p * r, state.level[0]["own_ridge"]
    xi, moved, u, g = np.empty(k * s + n), np.empty((k, p * r)), np.empty(p), np.empty(p)
    normals(state.key, round_, xi)
    for i in range(k):
        solve_upper(state.shared_factor[i], xi[i * s : (i + 1) * s], moved[i])
    for i in range(p):
        u[i] = x[i] * state.scale[i]
    for a in range(n):
        mean, own, shift, delta = 0.0, 0.0, 0.0, moved[state.cluster[a]]
        for i in range(p):
            g[i] = np.dot(state.inverse[a, i], u)
            mean += u[i] * state.own[a, i]
            own += u[i] * g[i]
        for i in range(p):
            shift += g[i] * np.dot(delta[i * r : (i + 1) * r], state.coordinates[a])
        scores[a] = mean + units[a] * (c * shift + np.sqrt(max(own, 0.0)) * xi[k * s + a])
