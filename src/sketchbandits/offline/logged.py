"""The logged decisions of one bandit as arrays, which the estimators use."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from sketchbandits import validate
from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.inputs import checked_arms
from sketchbandits.policies.pending.rule import Mask

EVERY_ARM = -1  # in ``chosen_from``
_ROUNDING = 1e-9


@dataclass(frozen=True)
class LoggedDecisions:
    """Decisions in the order in which they were made; checked on construction.

    ``arms``: the arm that was played, by its index below ``n_arms``.
    ``probabilities``: the probability with which it was chosen.
    ``rewards``: its reward, NaN where none came.
    ``exploration``: the probability with which an arm was drawn uniformly from those available. Every probability is
    therefore ``exploration/n``, plus ``1 - exploration`` for the logging policy's own arm.
    ``sets``: the different sets of arms that were available; ``chosen_from[t]`` is the index of the set at decision t,
    `EVERY_ARM` for all ``n_arms``. Leave both out where every arm was always available.
    ``final``: whether a decision's reward can no longer change or arrive, since it was made at least one deadline
    before the log ended; None where rewards have no deadline.
    """

    arms: Ints
    probabilities: Floats
    rewards: Floats
    n_arms: int
    exploration: float
    sets: Sequence[Ints] = ()
    chosen_from: Ints | None = None
    final: Mask | None = None

    def __post_init__(self) -> None:
        validate.whole("n_arms", self.n_arms)
        if validate.number("exploration", self.exploration, least=0.0) > 1.0:
            raise ValueError(f"exploration must be a number from 0 to 1, got {self.exploration!r}")
        size = checked_arms(self.arms, self.n_arms).size
        for name in ("probabilities", "rewards", "chosen_from", "final"):
            array = getattr(self, name)
            if array is not None and np.shape(array) != (size,):
                raise ValueError(f"{name} must have one entry for each of {size} decisions, got {np.shape(array)}")
        if not (np.isnan(self.rewards) | (np.abs(self.rewards) <= validate.LARGEST)).all():
            raise ValueError("rewards must be finite, or NaN where none came, got an infinite one")
        if self.final is not None and (np.isnan(self.rewards) & self.final).any():
            t = int(np.argmax(np.isnan(self.rewards) & self.final))
            raise ValueError(f"rewards must be given for decisions that are final, got NaN at decision {t}")
        if self.chosen_from is not None:
            self._check_sets(self.chosen_from)
        self._check_probabilities()

    @cached_property
    def sizes(self) -> Ints:
        """How many arms each decision chose from."""
        if self.chosen_from is None:
            return np.full(self.arms.size, self.n_arms)
        return np.array([*map(len, self.sets), self.n_arms])[self.chosen_from]

    @cached_property
    def members(self) -> list[frozenset[int]]:
        """The sets as Python sets, which answer faster whether they contain an arm."""
        return [frozenset(chosen.tolist()) for chosen in self.sets]

    @property
    def first_missing(self) -> int:
        """The first decision without a reward."""
        missing = np.flatnonzero(np.isnan(self.rewards))
        return int(missing[0]) if missing.size else self.arms.size

    def _check_sets(self, chosen_from: Ints) -> None:
        if not ((chosen_from >= EVERY_ARM) & (chosen_from < len(self.sets))).all():
            raise ValueError(f"chosen_from must be from {EVERY_ARM} to {len(self.sets) - 1}, got one that is not")
        members = [
            checked_arms(chosen, self.n_arms, f"sets[{i}]") + i * self.n_arms for i, chosen in enumerate(self.sets)
        ]
        restricted = chosen_from != EVERY_ARM
        played = self.arms[restricted] + chosen_from[restricted] * self.n_arms
        outside = np.flatnonzero(~np.isin(played, np.concatenate([*members, np.zeros(0, np.int64)])))
        if outside.size:
            t = np.flatnonzero(restricted)[outside[0]]
            raise ValueError(f"arms must be among those available, got {self.arms[t]} at decision {t}, where it is not")

    def _check_probabilities(self) -> None:
        drawn = self.exploration / self.sizes
        own = drawn + (1.0 - self.exploration)
        matching = np.isclose(self.probabilities, drawn, rtol=_ROUNDING, atol=0.0)
        matching |= np.isclose(self.probabilities, own, rtol=_ROUNDING, atol=0.0)
        if not matching.all():
            t = int(np.argmin(matching))
            raise ValueError(
                f"probabilities must be {drawn[t]:g} or {own[t]:g} with exploration {self.exploration:g} among "
                f"{self.sizes[t]} arms, got {self.probabilities[t]:g} at decision {t}"
            )
