"""What freed arms taught a ridge fit, carried by few arms: at most as many as the fit has dimensions.

Arms ``z_i`` with counts ``n_i`` and sums of rewards ``s_i`` enter a ridge fit only through

    G = sum_i n_i z_i z_i' ,   h = sum_i s_i z_i

With the singular values ``sigma_k`` and the right singular vectors ``v_k`` of the rows ``sqrt(n_i) z_i'``, arms

    f_k = sigma_k/sqrt(m_k) v_k   with counts m_k and sums sqrt(m_k) t_k ,   t = U'(s_i/sqrt(n_i))

have the same ``G`` and ``h`` for any counts ``m_k``. Here they are whole, at least 1, near in proportion to
``sigma_k^2``, and add up to ``sum_i n_i``, so that what depends on the number of rewards stays too.

**Guarantee** A fit of *all* these arms is the fit of the arms that they stand for, and so is its confidence set. One of
them alone is not an observation: what it carries depends on all rewards of the others. A fit must hold all or none.
**Cost** O(n r^2) for n arms in r dimensions.
"""

from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import ROUNDING, SVD_NOISE, Floats, Ints


class Remainder(NamedTuple):
    """Arms, as columns, that teach what others taught; their counts and sums of rewards."""

    columns: Floats
    counts: Ints
    sums: Floats


def remainder_of(Z: Floats, counts: Ints, sums: Floats) -> Remainder:
    """The fewest arms with the ``G``, ``h`` and number of rewards of the columns of ``Z``; none without rewards.

    Columns that are all 0 leave one such column, for their number of rewards.
    """
    pulled = np.flatnonzero(counts)
    root = np.sqrt(counts[pulled].astype(np.float64))
    rows = root[:, None] * Z[:, pulled].T
    if not pulled.size or not rows.any():
        few = min(pulled.size, 1)
        return Remainder(np.zeros((len(Z), few)), np.full(few, counts.sum()), np.full(few, sums[pulled].sum()))
    U, sigma, V = np.linalg.svd(rows, full_matrices=False)
    rank = int((sigma > SVD_NOISE * sigma[0]).sum())
    sigma, V = sigma[:rank], V[:rank]
    # A coordinate at rounding level would teach about a direction that no freed arm had.
    V[np.abs(V) <= ROUNDING] = 0.0
    whole = _whole_counts(sigma, int(counts.sum()))
    target = np.einsum("ik,i->k", U[:, :rank], sums[pulled] / root)
    return Remainder(np.ascontiguousarray((V * (sigma / np.sqrt(whole))[:, None]).T), whole, np.sqrt(whole) * target)


def _whole_counts(sigma: Floats, total: int) -> Ints:
    """Whole numbers >= 1 near in proportion to ``sigma^2``, which is in descending order; they add up to ``total``."""
    weight = (sigma / sigma[0]) ** 2
    counts = 1 + np.floor((total - sigma.size) * (weight / weight.sum())).astype(np.int64)
    counts[0] += total - counts.sum()
    return counts
