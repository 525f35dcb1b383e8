"""A block of arms in general position: all its clusters are orthonormalised in parallel, as if no arm joined any.

The plan is that the arms in no full cluster, in order, fill cluster after cluster. It is checked with the probes of the
planned clusters and followed up to the first arm for which it is wrong; `first_fit.settle` goes on from there. The
outcome is the same, bit for bit.
"""

import numpy as np

from sketchbandits.kernels.compiled import kernel
from sketchbandits.kernels.linalg import Floats, Ints, assign, remove_projection, scale
from sketchbandits.partition.draft import N_FULL, N_ROWS, OPEN_RANK, Draft, count_row, open_cluster


@kernel
def plan(draft: Draft, directions: Floats, todo: Ints, lefts: Floats, broken: Ints, first: int, last: int) -> None:
    """Orthonormalise clusters ``first : last`` of a block as if the arms ``todo`` filled them in order.

    Their basis vectors are written to their final rows, what is left of each arm to ``lefts``. ``broken[g]`` is set
    where cluster g meets an arm in its span: the plan holds up to that arm.
    """
    bases, rank = draft.bases, draft.rank
    held = draft.counters[OPEN_RANK]
    coordinates = np.empty(rank)
    for g in range(first, last):
        start = draft.counters[N_ROWS] - held + g * rank
        size = held if g == 0 else 0
        for k in range(g * rank - held + size, min((g + 1) * rank - held, todo.size)):
            x = bases[start + size]
            assign(x, directions[todo[k]])
            left = remove_projection(bases[start : start + size], size, x, coordinates)
            lefts[todo[k]] = left
            if left <= draft.tolerance:
                broken[g] = 1
                break
            scale(x, 1.0 / left)
            size += 1


@kernel
def find_suspects(
    draft: Draft, values: Floats, limit: float, todo: Ints, suspects: Ints, first: int, last: int
) -> None:
    """Mark the arms of a plan that pass the probe of a cluster planned before their own.

    ``values[k]`` are those of arm ``todo[k]`` for the probes of the planned clusters, ``limit`` a member's largest.
    """
    for k in range(first, last):
        passed = 0
        for g in range(min((draft.counters[OPEN_RANK] + k) // draft.rank, values.shape[1])):
            passed += abs(values[k, g]) <= limit
        suspects[todo[k]] = passed > 0


@kernel
def contained(draft: Draft, before: int, values: Floats, limit: float, x: Floats) -> bool:
    """Whether one of the clusters filled since there were ``before`` full ones contains x.

    ``values`` are those of x for their probes: only clusters whose probe it passes are asked.
    """
    rest, z = np.empty(x.size), np.empty(draft.rank)
    for g in range(min(draft.counters[N_FULL] - before, values.size)):
        if abs(values[g]) <= limit:
            assign(rest, x)
            if remove_projection(draft.bases[draft.starts[before + g] :], draft.rank, rest, z) <= draft.tolerance:
                return True
    return False


@kernel
def follow_plan(
    draft: Draft,
    directions: Floats,
    todo: Ints,
    lefts: Floats,
    suspects: Ints,
    values: Floats,
    limit: float,
    labels: Ints,
) -> int:
    """Give the arms ``todo`` of a block their clusters as planned; how many of them, before the plan is wrong.

    As long as the plan holds, only ``suspects`` can lie in a span of this block, and what is left of an arm is known.
    """
    before = draft.counters[N_FULL]
    for k in range(todo.size):
        i = todo[k]
        if lefts[i] <= draft.tolerance or (suspects[i] and contained(draft, before, values[k], limit, directions[i])):
            return k
        labels[i] = open_cluster(draft.counters, draft.starts)
        count_row(draft.counters, draft.ranks, draft.rank)
    return todo.size
