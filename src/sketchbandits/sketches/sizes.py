"""Empty sketches of each kind, and the checks of a loaded one: how many rows a sketch keeps, holds and reserves."""

import math
from typing import Any

import numpy as np

from sketchbandits import validate
from sketchbandits.sketches.base import BLOCK_LIMIT, KEEP, SketchState, new_state
from sketchbandits.snapshot import Saved, within


def fixed_size_state(dim: int, sketch_size: int, ridge: float, shrink: str, *, compensated: bool) -> SketchState:
    """Frequent Directions with a buffer of 2l rows (``"buffered"``), or of l rows (``"every-round"``)."""
    validate.option("shrink", shrink, ("buffered", "every-round"))
    if shrink == "buffered":
        keep, capacity = sketch_size, 2 * sketch_size
    else:
        keep, capacity = validate.whole("sketch_size with shrink='every-round'", sketch_size, least=2) - 1, sketch_size
    return new_state(dim, keep=keep, capacity=capacity, total=capacity, ridge=ridge, compensated=compensated)


def _dyadic_rows(dim: int, keep: int) -> int:
    """The rows of a block that keeps ``keep`` of them and of all blocks that may follow."""
    total = 2 * keep
    while keep < dim:
        keep *= 2
        total += 2 * keep
    return total


def dyadic_state(dim: int, sketch_size: int, ridge: float, error: float, *, compensated: bool) -> SketchState:
    """Blocks of size l, 2l, 4l, ... until one is at least d; memory for all of them is reserved, not touched."""
    total = _dyadic_rows(dim, sketch_size)
    state = new_state(
        dim, keep=sketch_size, capacity=2 * sketch_size, total=total, ridge=ridge, compensated=compensated
    )
    state.level[BLOCK_LIMIT] = error * sketch_size / 2
    return state._replace(block=np.zeros((dim, dim)))


def block_count(state: SketchState, sketch_size: int) -> int:
    """How many dyadic blocks have been opened."""
    return int(math.log2(state.size[KEEP] // sketch_size)) + 1


def rows_of(settings: dict[str, Any], dim: int) -> int:
    """How many rows the sketch of a policy with these settings can hold."""
    size = int(settings["sketch_size"])
    if "error" in settings:
        return _dyadic_rows(dim, size)
    return size if settings["shrink"] == "every-round" else 2 * size


def check_sizes(saved: Saved, sketch: SketchState) -> None:
    """Refuse a loaded sketch whose counters would lead compiled code out of bounds."""
    (rows, dim), (most_rank, _), (block, _) = sketch.rows.shape, sketch.basis.shape, sketch.block.shape
    held, closed, rank, keep, capacity, block_rank, _ = sketch.size.tolist()
    within(saved, "state.sketch.basis, its rows", most_rank, min(rows, dim), min(rows, dim))
    within(saved, "state.sketch.block, its rows", block, dim if block else 0, dim)
    within(saved, "state.sketch.size[KEEP]", keep, 1, rows)
    within(saved, "state.sketch.size[CAPACITY]", capacity, keep + 1, rows - closed)
    within(saved, "state.sketch.size[CLOSED]", closed, 0, held)
    within(saved, "state.sketch.size[ROWS]", held, closed, closed + capacity - 1)
    within(saved, "state.sketch.size[RANK]", rank, 0, most_rank)
    if not block or block_rank != keep + 1:  # which says that the open block has received more than it keeps
        within(saved, "state.sketch.size[BLOCK_RANK]", block_rank, 0, block)
    if block:
        within(saved, "state.sketch.size[CAPACITY]", capacity, 2 * keep, 2 * keep)
        within(saved, "state.sketch.rows, those of all later blocks", rows - closed, _dyadic_rows(dim, keep), rows)
