"""What a comparison came to: one row per set of arms, the ablations, the living pairs, and the targets.

A set's ratio at a horizon is mean regret over the *least* mean regret of the rivals with a guarantee that play there:
whichever of them happens to suit the set. Its upper end is that of a 90 % bootstrap over paired runs, with the best
rival found anew in every resample.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.experiments.study import Experiment, Study
from sketchbandits.lab.paper.beyond.arm_sets import ArmSet
from sketchbandits.lab.paper.beyond.plan import (
    ABLATED,
    FAIR,
    GUARANTEED,
    HORIZONS,
    OURS,
    SAMPLING,
    VARIANTS,
    living_pairs,
)
from sketchbandits.policies.registry import PolicySpec

RESAMPLES, SEED, LEVEL = 10_000, 20_261_116, 0.9
NO_REGRET = 1e-12  # a short run may have none, which has no logarithm
MOST_MEAN, MOST_RATIO, MOST_UPPER, MOST_TIME = 0.85, 1.15, 1.25, 0.5  # what the table is held against
MOST_SAMPLING_MEAN, MOST_SAMPLING_RATIO = 0.9, 1.5
MOST_GROWN, MOST_HIDDEN = 1.05, 1.2


class Reach(NamedTuple):
    """A set at one horizon."""

    rounds: int
    regrets: Mapping[str, float]  # mean, by policy
    best: str  # the rival with a guarantee whose mean is the least
    ratio: float
    upper: float
    sampling: float  # the ratio to `SAMPLING`; not a number where that does not play


class Row(NamedTuple):
    """A line of the table; ``times`` is multi-scale's time per round over OFUL's, where that was measured."""

    family: str
    scene: str
    normalize: str
    n_arms: int
    dim: int
    reaches: tuple[Reach, ...]
    times: float


def table(study: Study, sets: Iterable[ArmSet], policy: PolicySpec = OURS) -> list[Row]:
    """Every set's row, in order; ``policy`` is the variant that is compared."""
    return [_row(study, each, policy) for each in sets]


def _row(study: Study, each: ArmSet, policy: PolicySpec) -> Row:
    place, regret, time = (each.scene.name, each.scene.normalize), study["regret"], study["time"]
    times = np.nan
    if policy == OURS and (*place, str(FAIR)) in time:
        own, theirs = (float(np.median(time[*place, str(which)].microseconds)) for which in (OURS, FAIR))
        times = own / theirs
    reaches = tuple(_reach(regret, place, policy, part) for part in HORIZONS)
    n_arms, dim = int(each.options["n_arms"]), int(each.options["dim"])
    return Row(each.family, *place, n_arms, dim, reaches, times)


def _reach(regret: Experiment, place: tuple[str, str], policy: PolicySpec, part: int) -> Reach:
    rounds = int(regret[*place, str(policy)].checkpoints[-1]) // part
    values = {key[2]: regret[key].regret_at(rounds) for key in regret if key[:2] == place}
    rivals = {str(rival): values[str(rival)] for rival in GUARANTEED if str(rival) in values}
    own, means = values[str(policy)], {name: float(each.mean()) for name, each in values.items()}
    best = min(rivals, key=lambda name: means[name])
    sampling = np.nan
    if str(SAMPLING) in values:  # on the runs that both have
        theirs = values[str(SAMPLING)]
        sampling = _ratio(own[: theirs.size].mean(), theirs.mean())
    return Reach(rounds, means, best, _ratio(own.mean(), means[best]), upper_end(own, list(rivals.values())), sampling)


def _ratio(own: float, other: float) -> float:
    return max(float(own), NO_REGRET) / max(other, NO_REGRET)


def upper_end(own: Floats, rivals: Sequence[Floats]) -> float:
    """The upper end of the paired bootstrap of the ratio to the best rival."""
    chosen = np.random.default_rng(SEED).integers(own.size, size=(RESAMPLES, own.size))
    least = np.min([values[chosen].mean(axis=1) for values in rivals], axis=0)
    ratios = np.maximum(own[chosen].mean(axis=1), NO_REGRET) / np.maximum(least, NO_REGRET)
    return float(np.quantile(ratios, (1 + LEVEL) / 2))


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers."""
    return float(np.exp(np.log(list(values)).mean()))


class Target(NamedTuple):
    """A number and what it was to be at most."""

    name: str
    value: float
    limit: float

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} (at most {self.limit:g}: {'yes' if self.value <= self.limit else 'NO'})"


def targets(rows: Sequence[Row]) -> list[Target]:
    """All targets of a table: three per horizon, time, and the comparison with Thompson sampling."""
    found = []
    for k in range(len(HORIZONS)):
        at, when = [row.reaches[k] for row in rows], f"after {max(row.reaches[k].rounds for row in rows):,} rounds"
        found.append(Target(f"{when}: geometric mean of ratios", geometric_mean(r.ratio for r in at), MOST_MEAN))
        found.append(Target("largest ratio", max(r.ratio for r in at), MOST_RATIO))
        found.append(Target("largest upper end", max(r.upper for r in at), MOST_UPPER))
        sampling = [r.sampling for r in at if not np.isnan(r.sampling)]
        found.append(Target("to LinTS (scale 1), geometric mean", geometric_mean(sampling), MOST_SAMPLING_MEAN))
        found.append(Target("to LinTS (scale 1), largest", max(sampling), MOST_SAMPLING_RATIO))
    times = [row.times for row in rows if not np.isnan(row.times)]
    if times:
        found.append(Target("largest time over OFUL's where N >= 1000", max(times), MOST_TIME))
    return found


def sentence(rows: Sequence[Row], policy: PolicySpec = OURS) -> str:
    """All targets with the limits that they were to reach."""
    return f"{policy.label} on {len(rows)} sets: " + "; ".join(map(str, targets(rows))) + "."


class Ablation(NamedTuple):
    """One policy on the subset of sets, at the end of its runs; ratios are to the best rival with a guarantee."""

    policy: PolicySpec
    mean: float
    largest: float


def ablation(study: Study) -> list[Ablation]:
    """Multi-scale and every variant without one of its parts, on the sets that all of them played."""
    experiment, found = study["ablation"], []
    for policy in (OURS, *ABLATED):
        ratios = []
        for place in experiment.places:
            least = min(float(experiment[*place, str(rival)].regret.mean()) for rival in GUARANTEED)
            ratios.append(_ratio(experiment[*place, str(policy)].regret.mean(), least))
        found.append(Ablation(policy, geometric_mean(ratios), max(ratios)))
    return found


class Living(NamedTuple):
    """Regret where arms changed, and where the same arms did not have to."""

    name: str
    policy: PolicySpec
    changed: float
    plain: float

    @property
    def target(self) -> Target:
        """The ratio with its limit."""
        limit = MOST_GROWN if self.name.startswith("E") else MOST_HIDDEN
        return Target(self.name, _ratio(self.changed, self.plain), limit)


def living(study: Study) -> list[Living]:
    """Every pair of `plan.living_pairs`, for every variant."""
    found, runs = [], study["living"]
    for name in living_pairs():
        for policy in VARIANTS:
            means = [float(runs[name, which, str(policy)].regret.mean()) for which in ("changed", "plain")]
            found.append(Living(name, policy, *means))
    return found
