"""Public conformance checks: what every policy and every sketch must obey.

    check_policy(lambda arms: MyPolicy(arms, …))          # fixed arms: select(), update(arm, reward), bounds(), …
    check_contextual_policy(lambda dim: MyPolicy(dim))    # select(contexts), update(context, reward), bounds(contexts)
    check_sketch(lambda dim: MySketch(dim))               # update(x), matrix, shrunk_mass, inverse_norms(X)

Each raises ``AssertionError`` with a sentence on the first rule that is broken. The library runs them over all its own
classes; run them over yours. ``estimates``, ``save``, ``load``, ``copy``, ``free_arms`` and, together, ``update_many``
and ``play`` are checked where they exist.
"""

import functools
import warnings
from collections.abc import Callable

from sketchbandits.checks.batches import batches_are_single_updates, refused_batches_change_nothing, replays_are_loops
from sketchbandits.checks.changing_arms import freed_arms_are_not_missed
from sketchbandits.checks.contexts import CONTEXTUAL_CHECKS as _CONTEXTUAL_CHECKS
from sketchbandits.checks.fixed_arms import (
    bad_arms_are_refused,
    bounds_have_one_value_per_arm,
    copies_are_independent,
    estimates_are_means,
    input_is_not_aliased,
    memory_is_bounded,
    reading_is_pure,
    refused_calls_change_nothing,
    rewards_may_be_late,
    same_seed_same_arms,
    saving_continues_bit_for_bit,
    selects_valid_arms,
)
from sketchbandits.checks.sketches import SKETCH_CHECKS
from sketchbandits.checks.tools import Make
from sketchbandits.policies.assumptions import AssumptionWarning

__all__ = [
    "CONTEXTUAL_CHECKS",
    "POLICY_CHECKS",
    "SKETCH_CHECKS",
    "check_contextual_policy",
    "check_policy",
    "check_sketch",
]


def _with_made_up_rewards(check: Callable[[Make], None]) -> Callable[[Make], None]:
    """A check whose rewards fit no policy's ``noise`` and ``theta_norm``: that this is reported is no failure."""

    @functools.wraps(check)
    def quiet(make: Make) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)
            check(make)

    return quiet


_POLICY_CHECKS: tuple[Callable[[Make], None], ...] = (
    selects_valid_arms,
    reading_is_pure,
    bounds_have_one_value_per_arm,
    estimates_are_means,
    input_is_not_aliased,
    same_seed_same_arms,
    rewards_may_be_late,
    refused_calls_change_nothing,
    bad_arms_are_refused,
    memory_is_bounded,
    saving_continues_bit_for_bit,
    copies_are_independent,
    batches_are_single_updates,
    replays_are_loops,
    refused_batches_change_nothing,
    freed_arms_are_not_missed,
)

POLICY_CHECKS = tuple(map(_with_made_up_rewards, _POLICY_CHECKS))
CONTEXTUAL_CHECKS = tuple(map(_with_made_up_rewards, _CONTEXTUAL_CHECKS))


def check_policy(make: Make) -> None:
    """Run every check of a policy on fixed arms; ``make(arms)`` builds one, the same each time."""
    for check in POLICY_CHECKS:
        check(make)


def check_contextual_policy(make: Make) -> None:
    """Run every check of a policy on contexts; ``make(dim)`` builds one, the same each time."""
    for check in CONTEXTUAL_CHECKS:
        check(make)


def check_sketch(make: Make) -> None:
    """Run every check of a matrix sketch; ``make(dim)`` builds one."""
    for check in SKETCH_CHECKS:
        check(make)
