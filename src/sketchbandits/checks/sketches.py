"""Checks of matrix sketches."""

from collections.abc import Callable
from functools import partial

import numpy as np

from sketchbandits.checks.tools import DIM, N_ARMS, Make, refuses


def sketch_bounds_its_loss(make: Make) -> None:
    """``0 <= X'X - S'S <= rho I`` at every row, with the measured ``rho``."""
    sketch, rows = make(DIM), np.random.default_rng(0).normal(size=(120, DIM))
    for t, row in enumerate(rows, start=1):
        sketch.update(row)
        exact, kept = rows[:t].T @ rows[:t], sketch.matrix.T @ sketch.matrix
        lost = np.linalg.eigvalsh(exact - kept)
        slack = 1e-9 * np.trace(exact)
        assert lost[0] >= -slack, "S'S must not exceed X'X"
        assert lost[-1] <= sketch.shrunk_mass + slack, "X'X - S'S must stay below the shrunk mass"


def sketch_inverts_itself(make: Make) -> None:
    """`inverse_norms` is that of ``S'S + alpha I``."""
    sketch, generator = make(DIM), np.random.default_rng(1)
    queries = generator.normal(size=(N_ARMS, DIM))
    for _ in range(60):
        sketch.update(generator.normal(size=DIM))
        V = sketch.matrix.T @ sketch.matrix + sketch.alpha * np.eye(DIM)
        expected = np.sqrt((queries * np.linalg.solve(V, queries.T).T).sum(axis=1))
        assert np.allclose(sketch.inverse_norms(queries), expected, rtol=1e-9), "inverse_norms must match S'S + alpha I"


def sketch_refuses_bad_rows(make: Make) -> None:
    """Bad rows are refused by name and change nothing; a zero row changes nothing."""
    sketch = make(DIM)
    sketch.update(np.arange(1.0, DIM + 1))
    before = sketch.matrix
    for bad in (np.full(DIM, np.nan), np.ones(DIM + 1), np.eye(DIM), "row"):
        refuses(partial(sketch.update, bad), "x", "a bad row")
    sketch.update(np.zeros(DIM))
    assert np.array_equal(before, sketch.matrix), "refused and zero rows must change nothing"


SKETCH_CHECKS: tuple[Callable[[Make], None], ...] = (
    sketch_bounds_its_loss,
    sketch_inverts_itself,
    sketch_refuses_bad_rows,
)
