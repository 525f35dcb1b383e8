"""Which policy to play: the least predicted bound that fits the budget, said in one sentence."""

from collections.abc import Sequence

from sketchbandits.lab.advice.bounds import Case
from sketchbandits.lab.advice.predictions import ESTIMATED, NONE, Prediction

MULTISCALE = "MultiscaleCSLB"
# Bounds are loose by more than this: such a difference says nothing about regret. Between equals the policy that takes
# the least of several bounds in every round goes first, then the one that costs less.
TIE = 2.0
SAME = 1.05


def recommend(predictions: Sequence[Prediction]) -> Prediction:
    """The policy to play; where none fits the budget, the fastest that has a guarantee."""
    proven = [found for found in predictions if found.guarantee not in (NONE, ESTIMATED)]
    fitting = [found for found in proven if found.fits]
    if not fitting:
        return min(proven, key=lambda found: found.microseconds)
    least = min(_bound(found) for found in fitting)
    near = [found for found in fitting if _bound(found) <= TIE * least]
    own = [found for found in near if found.policy == MULTISCALE]
    return best_of(own) if own else min(near, key=_bound)


def best_of(predictions: Sequence[Prediction]) -> Prediction:
    """Of one policy at several sizes: the least bound, and the cheapest round where bounds are the same."""
    fitting = [found for found in predictions if found.fits] or list(predictions)
    least = min(_bound(found) for found in fitting)
    same = [found for found in fitting if _bound(found) <= SAME * least]
    return min(same, key=lambda found: (_work(found), _bound(found)))


def sentence(choice: Prediction, case: Case, budget_us: float | None) -> str:
    """The recommendation, with what it is expected to cost."""
    took = f"{'up to' if choice.policy == MULTISCALE else 'about'} {choice.microseconds:.3g} us a round"
    if budget_us is None:
        why = f"the least predicted regret bound, up to a factor of {TIE:g}"
    elif choice.fits:
        why = f"the least predicted regret bound within {budget_us:g} us, up to a factor of {TIE:g}"
    else:
        why = f"the fastest policy with a guarantee, though none fits {budget_us:g} us"
    value = f"{_bound(choice):,.0f} after {case.rounds:,} rounds"
    if choice.vacuous:
        value += f", which is no less than the trivial {case.trivial:,.0f}"
    return f"Play {choice.call}: {why} ({value}), taking {took}."


def _bound(found: Prediction) -> float:
    assert found.bound is not None
    return found.bound


def _work(found: Prediction) -> float:
    """Operations beside the budget, which is spent whatever the sketch size."""
    return found.operations - float(dict(found.options).get("budget", 0))
