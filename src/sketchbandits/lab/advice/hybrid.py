"""When to take HybridCSLB instead, which has no bound to be compared: what it is for, its memory and its time."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sketchbandits.lab.advice.candidates import NONE, Candidate
from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.lab.advice.timing import Stopwatch
from sketchbandits.policies.hybrid.building import Shape, check_memory
from sketchbandits.policies.hybrid.groups import MOST

CONTEXT_DIMS = (None, 5, 20, 50)
_CANDIDATE = Candidate("HybridCSLB", (), None, None, NONE, False)


class Memory(NamedTuple):
    """The bytes of a state for contexts of some length, and whether a machine like this one has so many."""

    context_dim: int | None
    bytes: int
    fits: bool

    @property
    def text(self) -> str:
        """In MiB."""
        mib = self.bytes / 2**20
        size = f"{mib:,.0f}" if mib >= 10 else f"{mib:.2f}" if mib >= 0.01 else "below 0.01"
        case = "without contexts" if self.context_dim is None else f"with context_dim={self.context_dim}"
        return f"{size} MiB {case}{'' if self.fits else ' (more than this machine has)'}"


class HybridAdvice(NamedTuple):
    """What HybridCSLB would take on these arms; ``timed``: without contexts, as a candidate."""

    timed: Candidate
    memory: tuple[Memory, ...]

    @property
    def sentences(self) -> str:
        """One paragraph."""
        us = self.timed.microseconds or 0.0
        time = f"{'about ' if self.timed.sampled else ''}{f'{us:,.0f}' if us >= 100 else f'{us:.3g}'} us"
        lines = [
            "That holds among policies with a guarantee, for a noise that is known. For decisions with a context, or "
            "where the noise is not known, features explain rewards only in part or the world changes: "
            "HybridCSLB(arms, context_dim=...), which learns the noise and guarantees nothing.",
            f"Without contexts a round took {time} near the start, where it refits often.",
            f"Its memory for these arms: {', '.join(each.text for each in self.memory)}.",
        ]
        if not all(each.fits for each in self.memory):
            lines.append("A smaller sketch_size, or shorter contexts, need less.")
        lines.append("Millions of arms in microseconds are for CSLB.")
        return " ".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Plain numbers and texts."""
        return {
            "call": self.timed.call,
            "microseconds": self.timed.microseconds,
            "sampled": self.timed.sampled,
            "memory": [each._asdict() for each in self.memory],
        }


def hybrid_advice(n_arms: int, rank: int, table: Sequence[ClusterRow], stopwatch: Stopwatch) -> HybridAdvice:
    """Memory for contexts of several lengths, and the time of a round without any."""
    memory = tuple(_memory(shape_for(n_arms, rank, dim, table), dim) for dim in CONTEXT_DIMS)
    return HybridAdvice(stopwatch.timed(_CANDIDATE, None), memory)


def shape_for(n_arms: int, rank: int, context_dim: int | None, table: Sequence[ClusterRow]) -> Shape:
    """The largest arrays of the state; where arms are many clusters, of at most so many as they can have."""
    p = (context_dim or 0) + 1
    if p * (rank + 1) <= MOST or rank <= 1:
        return Shape(n_arms, 1, rank + 1, p, False, 1, False)
    size = max(1, MOST // p - 1)
    clusters = min(-(-n_arms // size), *(row.clusters for row in table if row.sketch_size <= size), n_arms)
    return Shape(n_arms, clusters, min(size, rank) + 1, p, False, 1, False)


def _memory(shape: Shape, context_dim: int | None) -> Memory:
    try:
        check_memory(shape, f"{shape.n} arms")
    except ValueError:
        return Memory(context_dim, 8 * shape.numbers, False)
    return Memory(context_dim, 8 * shape.numbers, True)
