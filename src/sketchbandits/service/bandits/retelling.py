"""What a policy that learns the noise is told again after rewards were taken back.

A policy is then built anew from what was counted. Told every arm's mean again and again, one that learns how noisy
rewards are would find them without noise. Instead it is told ``mean +- s`` in turn, with the ``s`` for which the sum
of squares is that of the rewards left: all that a fit without contexts depends on, up to rounding. Arms take turns,
each at even distances, so that neither a policy that forgets nor one that watches for changes takes their order for
one.
"""

from collections.abc import Sequence

import numpy as np

from sketchbandits.kernels.linalg import Floats, Ints
from sketchbandits.policies.hybrid.policy import HybridCSLB
from sketchbandits.policies.hybrid.rounds import main_of
from sketchbandits.service.bandits.totals import Totals

ROUNDING = 1e-12  # of an arm's scatter: what is below it is unknown
SMALL = 1e-6  # of the usual scatter: what is below it may be unknown


def retold(
    policy: HybridCSLB, before: Totals, left: Totals, arms: Sequence[int], rewards: Sequence[float]
) -> tuple[Ints, Floats]:
    """Arms and rewards to learn anew, where ``rewards`` of ``arms`` are taken back from ``before`` and ``left`` is."""
    counts, scatter = left.counts, _scatter_left(policy, before, left, arms, rewards)
    means = _ratio(left.sums, counts)
    pairs = counts - counts % 2  # of an odd number one is the mean itself
    spread = np.sqrt(_ratio(scatter, pairs))
    arm = np.repeat(np.arange(counts.size), counts)
    turn = np.arange(arm.size) - np.repeat(np.cumsum(counts) - counts, counts)
    told = means[arm] + spread[arm] * np.where(turn % 2, 1.0, -1.0) * (turn < pairs[arm])
    order = np.lexsort((arm, (turn + 0.5) / counts[arm]))
    return arm[order], told[order]


def _scatter_left(
    policy: HybridCSLB, before: Totals, left: Totals, arms: Sequence[int], rewards: Sequence[float]
) -> Floats:
    """Every arm's sum of squared differences from its mean, without the rewards that are taken back.

    The factor of an arm without contexts is ``[[sqrt(n), sum/sqrt(n)], [0, sqrt(scatter)]]``; where rewards are
    forgotten all of it is discounted, and the scatter per reward is taken for that of all. Where a reward was so large
    that nothing can be told of the others', those scatter as the other arms' do.
    """
    factors, gone = main_of(policy.state).factors, np.unique(np.asarray(arms, np.int64))
    weights = factors[:, 0, 0] ** 2
    scatter = _ratio(factors[:, 1, 1] ** 2, weights) * before.counts
    slack = ROUNDING * scatter
    count, mean = before.counts.astype(np.float64), _ratio(before.sums, before.counts)
    for arm, reward in zip(arms, rewards, strict=True):
        count[arm] -= 1.0
        away, rest = reward - mean[arm], max(count[arm], 1.0)
        scatter[arm] -= away * away * (rest + 1.0) / rest
        mean[arm] -= away / rest
    others = np.setdiff1d(np.flatnonzero(left.counts > 1), gone)
    usual = float(scatter[others].sum() / max(1.0, float((left.counts[others] - 1).sum())))
    for arm in gone.tolist():
        typical = usual * max(0.0, count[arm] - 1.0)
        if scatter[arm] <= slack[arm]:
            scatter[arm] = typical if slack[arm] > SMALL * typical else 0.0
    return np.where(left.counts > 1, scatter, 0.0)


def _ratio(numbers: Floats, weights: Floats | Ints) -> Floats:
    """0 where there is no weight."""
    result: Floats = np.divide(numbers, weights, out=np.zeros(numbers.size), where=weights > 0)
    return result
