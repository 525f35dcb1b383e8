"""Which policy to play: the least bound among those that fit the budget, in one sentence.

A bound for the worst case does not see what random choices save: that of MultiscaleCSLB as it plays by default is
`CAUTION` times that of its form with optimism, and its regret a fraction. So the form with optimism is compared with
other policies, and where it wins, the default is recommended.
"""

from collections.abc import Sequence

from sketchbandits.lab.advice.bounds import Case
from sketchbandits.lab.advice.candidates import ESTIMATED, MULTISCALE, NONE, Candidate
from sketchbandits.policies.multiscale.randomised import CAUTION

# Bounds are loose by more than this factor: such a difference says nothing about regret. Between equals
# `MultiscaleCSLB` goes first, since it uses the smallest of several bounds in each round.
TIE = 2.0
SAME = 1.05  # within this factor the sketch size makes no difference


def recommend(finalists: Sequence[Candidate]) -> Candidate:
    """The policy to play; where none fits the budget, the fastest that has a guarantee."""
    proven = [found for found in finalists if found.guarantee not in (NONE, ESTIMATED)]
    fitting = [found for found in proven if found.fits]
    if not fitting:
        return min(proven, key=microseconds_of)
    least = min(map(bound_of, fitting))
    near = [found for found in fitting if bound_of(found) <= TIE * least]
    if any(found.policy == MULTISCALE for found in near):
        near = [found for found in fitting if found.policy == MULTISCALE]
        near = [found for found in near if found.name == MULTISCALE] or near
    return min(near, key=bound_of)


def groups(candidates: Sequence[Candidate]) -> dict[str, list[Candidate]]:
    """The candidates of each policy, by its name."""
    found: dict[str, list[Candidate]] = {}
    for each in candidates:
        found.setdefault(each.name, []).append(each)
    return found


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """Of one policy at several sizes, the one with the least bound.

    The default of the class is taken up to a factor of `TIE`. Where other bounds are the same up to `SAME`, or there
    are none: the smallest size, whose rounds are cheapest.
    """
    least = min(map(bound_of, candidates))
    default = [found for found in candidates if found.is_default and bound_of(found) <= TIE * least]
    same = default or [found for found in candidates if bound_of(found) <= SAME * least]
    return min(same, key=lambda found: found.sketch_size or 0)


def sentence(choice: Candidate, case: Case, budget_us: float | None) -> str:
    """The recommendation, with the time that a round took."""
    if budget_us is None:
        why = f"the least regret bound, up to a factor of {TIE:g}"
    elif choice.fits:
        why = f"the least regret bound within {budget_us:g} us per round, up to a factor of {TIE:g}"
    else:
        why = f"the fastest policy with a guarantee, though none fits {budget_us:g} us"
    draws = case.draws and choice.name == MULTISCALE
    value = f"{bound_of(choice) / (CAUTION if draws else 1.0):,.0f} after {case.rounds:,} rounds"
    if draws:
        value += f" with explore='optimism', {CAUTION:g} times that with random choices"
    if choice.vacuous:
        value += f", which is no less than the trivial {case.trivial:,.0f}"
    return f"Play {choice.call}: {why} ({value}); a round took {microseconds_of(choice):.3g} us."


def bound_of(found: Candidate) -> float:
    """Its bound; 0 for a policy that has none, so that all its sizes count as equal."""
    return 0.0 if found.bound is None else found.bound


def microseconds_of(found: Candidate) -> float:
    """The time of a round of a candidate that was timed."""
    assert found.microseconds is not None
    return found.microseconds
