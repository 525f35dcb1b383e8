"""Warnings about the arms: one sentence for each property that costs regret or time."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sketchbandits.kernels.linalg import Ints
from sketchbandits.lab.advice.bounds import Case
from sketchbandits.lab.advice.clusters import ClusterRow
from sketchbandits.lab.advice.facts import NEAR_COPY, ArmFacts

UNEVEN_NORMS, UNEVEN_COLUMNS = 100.0, 1000.0
NEAR_CONSTANT = 0.01  # of a column's own size
LARGE_RATE, SMALL_RATE = 4.0, 0.01  # of L^2/ridge
FEW_DIRECTIONS = 0.5  # of the rank: 99 % of the energy in so few is nearly low rank
MOST_NAMED = 3


def remarks(facts: ArmFacts, case: Case, table: Sequence[ClusterRow]) -> list[str]:
    """All sentences, those about single arms first."""
    return [
        *_arms(facts),
        *_norms(facts, case),
        *_columns(facts),
        *_dimensions(facts),
        *_order(table),
        *_rounds(facts, case),
    ]


def _arms(facts: ArmFacts) -> Iterator[str]:
    if facts.n_arms == 1:
        yield "There is one arm: nothing is to be chosen."
    zero = np.flatnonzero(facts.norms == 0.0)
    if zero.size:
        zeros = _count(zero.size, "arm is", "arms are")
        yield f"{zeros} zero ({_named(facts, zero)}): nothing can be learned from that."
    extra = facts.n_arms - len(np.unique(facts.copies))
    if extra:
        shown = _named(facts, _first_group(facts.copies))
        yield (
            f"{_count(extra, 'arm repeats another', 'arms repeat others')} exactly (arms {shown} are the same): leave "
            "them out, or UCB1 learns each on its own."
        )
    near = facts.n_arms - len(np.unique(facts.near_copies)) - extra
    if near > 0:
        yield (
            f"{_count(near, 'arm differs from another', 'arms differ from others')} by less than {NEAR_COPY:g} of the "
            "median norm: no reward tells them apart."
        )


def _norms(facts: ArmFacts, case: Case) -> Iterator[str]:
    positive = facts.norms[facts.norms > 0.0]
    if not positive.size:
        return
    low, high = float(positive.min()), float(positive.max())
    if high > UNEVEN_NORMS * low:
        yield (
            f"Norms are wildly different, from {low:.3g} to {high:.3g}, a factor of {high / low:,.0f}: every bound "
            "grows with the largest, and short arms are hardly ever worth a pull. Scale the features if the length of "
            "an arm does not mean a larger reward."
        )
    if case.rate > LARGE_RATE:
        yield (
            f"The largest norm, {high:.3g}, is large compared with the ridge, {case.ridge:g}: bounds assume a ridge of "
            f"at least its square. Divide the arms by {high:.3g} or take ridge={high**2:.3g}. MultiscaleCSLB chooses "
            "ridges that suit the arms."
        )
    if case.rate < SMALL_RATE:
        yield (
            f"The largest norm, {high:.3g}, is small compared with the ridge, {case.ridge:g}: it takes "
            f"{1 / case.rate:,.0f} pulls of an arm to outweigh it. Divide the arms by {high:.3g}."
        )


def _columns(facts: ArmFacts) -> Iterator[str]:
    constant = facts.least == facts.largest
    size = np.abs(facts.means)
    near = ~constant & (facts.deviations <= NEAR_CONSTANT * size)
    for which, words in ((constant & (size == 0.0), "zero"), (constant & (size > 0.0), "constant")):
        if which.any() and facts.n_arms > 1:
            advice = "leave them out" if words == "zero" else "they shift every reward alike; keep one at most"
            yield f"{_these(facts, which)} {words}: {advice}."
    if near.any():
        yield (
            f"{_these(facts, near)} almost constant (deviation below {NEAR_CONSTANT:.0%} of the mean): what tells arms "
            "apart there is small compared with what they share. Subtract the mean."
        )
    scales = np.sqrt(facts.means**2 + facts.deviations**2)[~(constant & (size == 0.0))]
    if scales.size and scales.max() > UNEVEN_COLUMNS * scales.min():
        yield (
            f"Columns have sizes from {scales.min():.3g} to {scales.max():.3g}: the ridge holds back the small ones. "
            "Bring them to one scale."
        )


def _dimensions(facts: ArmFacts) -> Iterator[str]:
    n, d, found = facts.n_arms, facts.dim, facts.spectrum
    if d > n:
        yield f"There are more features, {d:,}, than arms, {n:,}: only {facts.rank:,} directions matter."
    elif 0 < found.rank < d:
        yield (
            f"The features depend on each other: {d:,} columns span {found.rank:,} dimensions. radius='logdet' pays "
            "for those alone; the default of OFUL and of the sketches pays for every column."
        )
    close = found.dims_for(0.99)
    if found.rank > 3 and close <= FEW_DIRECTIONS * found.rank:
        yield (
            f"The arms are nearly of low rank: 99 % of the energy is in {close} of {found.rank} directions. No exact "
            f"cluster sees that; Partition.subspaces(arms, {close}, tolerance=...) may."
        )


def _order(table: Sequence[ClusterRow]) -> Iterator[str]:
    better = [row for row in table if row.subspaces is not None and 2 * row.subspaces <= row.clusters]
    if better:
        row = min(better, key=lambda row: row.score)
        yield (
            f"The order of the arms hides their subspaces: for l={row.sketch_size} first-fit makes {row.clusters:,} "
            f"clusters, Partition.subspaces {row.subspaces:,}."
        )


def _rounds(facts: ArmFacts, case: Case) -> Iterator[str]:
    if case.rounds < facts.n_rays:
        yield (
            f"There are fewer rounds, {case.rounds:,}, than directions, {facts.n_rays:,}: UCB1 cannot try every arm, "
            "and only a policy that shares rewards between arms can do better than chance."
        )


def _these(facts: ArmFacts, which: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> str:
    index = np.flatnonzero(which)
    names = _some((facts.column(int(i)) for i in index[:MOST_NAMED]), len(index))
    return f"Column {names} is" if len(index) == 1 else f"Columns {names} are"


def _named(facts: ArmFacts, index: Iterable[int]) -> str:
    found = list(index)
    return _some((facts.arm(int(i)) for i in found[:MOST_NAMED]), len(found))


def _some(names: Iterable[str], total: int) -> str:
    shown = list(names)
    rest = total - len(shown)
    return ", ".join(shown) + (f" and {rest:,} more" if rest else "")


def _count(number: int, one: str, many: str) -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def _first_group(labels: Ints) -> Ints:
    """The members of the group of several that begins first."""
    _, first, counts = np.unique(labels, return_index=True, return_counts=True)
    leader = labels[first[counts > 1].min()]
    return np.flatnonzero(labels == leader)
