"""Who plays in `benchmarks/practice.py`, and how each is made.

Yardsticks with a scale get five values of it: 0.1, 0.25, 0.5, 1 and 2 times the world's noise R, the same for LinUCB's
alpha, for LinTS's scale and for UCB1's noise. Epsilon-greedy gets five values of epsilon, 0.01 to 0.2. A table shows
the value that was best in hindsight, which favours the rival, and also 1 R, "R known". MultiscaleCSLB is told R.
HybridCSLB is made from arms and the length of a context, in every world alike.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sketchbandits import UCB1, HybridCSLB, MultiscaleCSLB
from suite.linear_rivals import DisjointLinTSForUsers, GreedyForUsers, LinUCBForUsers, SharedLinTSForUsers
from suite.worlds import World

MULTIPLES = (0.1, 0.25, 0.5, 1.0, 2.0)  # of R
EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2)
KNOWN = 1.0  # the multiple that is "R known"
HYBRID, RIVAL, PEER = "hybrid", "rival", "peer"

_ALL = ("kernels/**/*.py", "partition/**/*.py", "policies/*.py")  # in src/sketchbandits, what every policy rests on
_YARDSTICK = ("linear_rivals.py",)  # in benchmarks/suite

Make = Callable[[World, float, int], Any]  # from a world, a scale in its own units and a seed


class Contender(NamedTuple):
    """A policy, with the values of its scale (none: an empty tuple) and the files that its choices depend on."""

    name: str
    family: str
    make: Make
    scales: tuple[float, ...] = ()
    unit: str = ""  # of a scale: "R", or nothing
    library: tuple[str, ...] = ()  # globs in src/sketchbandits
    benchmark: tuple[str, ...] = ()  # globs in benchmarks/suite

    def built(self, world: World, scale: float | None, seed: int) -> Any:
        """The policy; a scale in R is multiplied by the world's noise."""
        value = 0.0 if scale is None else scale * (world.noise if self.unit == "R" else 1.0)
        return self.make(world, value, seed)

    def unavailable(self) -> str | None:
        """Why this version of the library cannot make it, in words; None where it can."""
        tiny = World(np.eye(3), _NoContexts(), 1, 1.0)
        try:
            self.built(tiny, self.scales[0] if self.scales else None, 0)
        except ValueError as error:
            return f"not available in this version: {error}"
        return None


class _NoContexts:
    """Stands in for an environment where a policy is only made."""

    context_dim = None


def _hybrid(**options: Any) -> Make:
    def make(world: World, _: float, seed: int) -> HybridCSLB:
        return HybridCSLB(world.arms, context_dim=world.env.context_dim, seed=seed, **options)

    return make


def _p(world: World) -> int:
    return world.env.context_dim or 1


def _hybrids() -> list[Contender]:
    options: dict[str, dict[str, Any]] = {
        "HybridCSLB": {},
        'HybridCSLB half_life="auto"': {"half_life": "auto"},
        "HybridCSLB ucb": {"explore": "ucb"},
        "HybridCSLB ts": {"explore": "ts"},
    }
    sources = (*_ALL, "policies/hybrid/**/*.py")
    return [Contender(name, HYBRID, _hybrid(**given), library=sources) for name, given in options.items()]


def _yardsticks() -> list[Contender]:
    makes: dict[str, Make] = {
        "LinUCB shared": lambda w, scale, _: LinUCBForUsers(w.arms, _p(w), shared=True, alpha=scale),
        "LinUCB disjoint": lambda w, scale, _: LinUCBForUsers(w.arms, _p(w), shared=False, alpha=scale),
        "LinTS shared": lambda w, scale, seed: SharedLinTSForUsers(w.arms, _p(w), scale=scale, seed=seed),
        "LinTS disjoint": lambda w, scale, seed: DisjointLinTSForUsers(w.arms, _p(w), scale=scale, seed=seed),
    }
    linear = [Contender(name, RIVAL, make, MULTIPLES, "R", benchmark=_YARDSTICK) for name, make in makes.items()]

    def greedy(world: World, scale: float, seed: int) -> GreedyForUsers:
        return GreedyForUsers(world.arms, _p(world), epsilon=scale, seed=seed)

    return [*linear, Contender("ε-greedy ridge", RIVAL, greedy, EPSILONS, benchmark=_YARDSTICK)]


def _of_the_library() -> list[Contender]:
    def multiscale(world: World, _: float, seed: int) -> MultiscaleCSLB:
        return MultiscaleCSLB(world.arms, noise=world.noise, seed=seed)

    def ucb1(world: World, scale: float, _: int) -> UCB1:
        return UCB1(world.arms, noise=scale)

    sources = (*_ALL, "policies/multiscale/**/*.py", "policies/cslb/**/*.py")
    return [
        Contender("MultiscaleCSLB", RIVAL, multiscale, library=sources),
        Contender("UCB1", RIVAL, ucb1, MULTIPLES, "R", library=_ALL),
    ]


CONTENDERS = {one.name: one for one in [*_hybrids(), *_yardsticks(), *_of_the_library()]}
