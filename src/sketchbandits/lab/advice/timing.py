"""What a round takes: candidates are played for a few hundred rounds on the arms themselves.

A round is a `select` and an `update` from Python. Its time is processor time of this thread with one BLAS thread, so
that other work on the machine counts little; compilation and the first rounds are not timed. Where there are too many
arms to build a policy quickly, a random sample of them is played, and half of it: time and memory are taken to grow
from the sample to all arms with the same power as from the half to the sample.

**Cost** for each policy that is timed, building it and at most about twice `SECONDS`.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sketchbandits.kernels.linalg import Floats
from sketchbandits.kernels.threads import one_blas_thread
from sketchbandits.lab.advice.bounds import Case, enough_operations
from sketchbandits.lab.advice.candidates import (
    MULTISCALE,
    NONE,
    OPTIMISM,
    RANDOMISED,
    Candidate,
    default_budget,
    multiscale,
    state_bytes,
)
from sketchbandits.lab.advice.clusters import ClusterRow, affordable
from sketchbandits.lab.advice.recommend import SAME, best_of, bound_of, groups, microseconds_of
from sketchbandits.lab.growth import power
from sketchbandits.policies.base import Policy

ROUNDS, CHUNK = 400, 20  # the clock is read after each chunk of rounds
SECONDS = 0.5  # for the warm-up, and for the rounds that are timed
MOST_ENTRIES = 2_000_000  # arms times features that a timed policy is built on
SMALLER_SIZES = 3  # tried, each at most half as large, where the best sketch size does not fit the budget


class Timing(NamedTuple):
    """Microseconds of a round, bytes that the policy keeps, and how many arms were sampled for it (0: all)."""

    microseconds: float
    memory: float
    sampled: int


@dataclasses.dataclass(frozen=True)
class Stopwatch:
    """Times candidates on arms, with rewards of a hidden parameter of norm S and noise of scale R."""

    arms: NDArray[Any]
    case: Case
    rng: np.random.Generator

    def timed(self, candidate: Candidate, budget_us: float | None) -> Candidate:
        """The candidate with what was measured, and whether it fits."""
        timing = self.time(candidate)
        fits = budget_us is None or timing.microseconds <= budget_us
        return candidate._replace(**timing._asdict(), fits=fits)

    def time(self, candidate: Candidate) -> Timing:
        """Play a candidate for a few hundred rounds."""
        n, count = len(self.arms), self._affordable(candidate)
        if count == n:
            return Timing(*self._play(candidate, self.arms), 0)
        chosen = self.rng.permutation(n)[:count]
        half, whole = (self._play(candidate, self.arms[np.sort(chosen[:part])]) for part in (count // 2, count))
        grown = [_grown(small, large, count, n) for small, large in zip(half, whole, strict=True)]
        return Timing(grown[0], grown[1], count)

    def _affordable(self, candidate: Candidate) -> int:
        n, d = self.arms.shape
        most = max(2, MOST_ENTRIES // d)
        return min(n, most, affordable(n, d, candidate.sketch_size)) if candidate.sketch_size else min(n, most)

    def _play(self, candidate: Candidate, arms: NDArray[Any]) -> tuple[float, float]:
        policy = candidate.build(arms, RANDOMISED if self.case.draws else OPTIMISM)
        rng = np.random.default_rng(0)
        theta = rng.standard_normal(self.case.dim)
        means = np.asarray(arms @ (self.case.theta_norm / np.linalg.norm(theta) * theta), dtype=np.float64)
        # Until every direction was played, rounds take longer: bounds change much, and fits are made anew.
        noise = self.case.noise * rng.standard_normal(CHUNK + 2 * self.case.rank + ROUNDS)
        return round_microseconds(policy, means, noise), float(state_bytes(policy))


def round_microseconds(policy: Policy, means: Floats, noise: Floats) -> float:
    """The mean time of the last `ROUNDS` rounds, or of as many as `SECONDS` allow; those before are a warm-up.

    ``means``: of every arm's reward; ``noise``: of every round's.
    """
    values, rewards, warm_up = noise.tolist(), means.tolist(), len(noise) - ROUNDS
    with one_blas_thread():
        _play_chunks(policy, rewards, values[:warm_up])
        played, seconds = _play_chunks(policy, rewards, values[warm_up:])
    return 1e6 * seconds / played


def _play_chunks(policy: Policy, means: Sequence[float], noise: Sequence[float]) -> tuple[int, float]:
    """Rounds played and their time: all of ``noise``, or the chunks that begin within `SECONDS`."""
    started, seconds, played = time.thread_time(), 0.0, 0
    while played < len(noise) and seconds <= SECONDS:
        for value in noise[played : played + CHUNK]:
            arm = policy.select()
            policy.update(arm, means[arm] + value)
        played = min(played + CHUNK, len(noise))
        seconds = time.thread_time() - started
    return played, seconds


def _grown(half: float, whole: float, sampled: int, n: int) -> float:
    """Carried on from the sample to all arms by the power of growth from half of it, between none and linear."""
    found = float(np.clip(power([sampled // 2, sampled], [half, whole]), 0.0, 1.0))
    return float(whole * (n / sampled) ** found)


def finalists(
    found: Sequence[Candidate],
    table: Sequence[ClusterRow],
    stopwatch: Stopwatch,
    budget_us: float | None,
    show: Callable[[float, str], None],
) -> list[Candidate]:
    """Every policy once, timed: at its best sketch size, or at a smaller one where only that fits the budget."""
    timed, named = [], groups(found)
    for i, (name, group) in enumerate(named.items()):
        show(i / len(named), f"timing {name}, kernels compile once")
        timed.append(_timed(group, table, stopwatch, budget_us))
    return timed


def _timed(
    group: Sequence[Candidate], table: Sequence[ClusterRow], stopwatch: Stopwatch, budget_us: float | None
) -> Candidate:
    rows = {row.sketch_size: row for row in table}

    def measured(found: Candidate) -> Candidate:
        if found.policy == MULTISCALE and budget_us is not None and stopwatch.case.space_dims:
            return _with_operations(found, rows[found.sketch_size or 0], stopwatch, budget_us)
        return stopwatch.timed(found, budget_us)

    first = smaller = measured(best_of(group))
    for _ in range(SMALLER_SIZES if first.guarantee != NONE else 0):
        left = [each for each in group if 2 * (each.sketch_size or 1) <= (smaller.sketch_size or 0)]
        if smaller.fits or not left:
            break
        smaller = measured(best_of(left))
    return smaller if smaller.fits else first


def _with_operations(found: Candidate, row: ClusterRow, stopwatch: Stopwatch, budget_us: float) -> Candidate:
    """With the default budget of operations, unless time is short, or time is left that makes the bound smaller."""
    case, optimism = stopwatch.case, "explore" in dict(found.options)
    plain = stopwatch.timed(found, budget_us)
    none = stopwatch.timed(multiscale(case, row, 0, optimism), budget_us)
    without = microseconds_of(none)
    left = (budget_us - without) * default_budget(case) / max(microseconds_of(plain) - without, 1e-3)
    # Two digits are as much as the clock knows; more than is ever needed has no use.
    budget = min(_two_digits(left), enough_operations(case, row))
    if plain.fits and SAME * bound_of(multiscale(case, row, budget, optimism)) > bound_of(plain):
        return plain
    for tried in (budget,) if plain.fits else (budget, _two_digits(0.5 * budget)):
        other = stopwatch.timed(multiscale(case, row, tried, optimism), budget_us)
        if other.fits:
            return other
    return none if none.fits and not plain.fits else plain


def _two_digits(value: float) -> int:
    if value < 1.0:
        return 0
    unit = 10 ** max(0, math.floor(math.log10(value)) - 1)
    return int(value // unit) * unit
