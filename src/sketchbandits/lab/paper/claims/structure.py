"""Claims about how regret depends on the number of arms, on the sketch size and on the partition."""

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np

from sketchbandits.lab.experiments.study import Runs, Study
from sketchbandits.lab.growth import exponent
from sketchbandits.lab.intervals import ratio
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.claims.readings import NO_OFUL, RADIUS, oful_readings
from sketchbandits.lab.paper.reproduce import ARM_COUNTS, SIZE_SCENES, SKETCH_SIZES, STRUCTURES
from sketchbandits.lab.verdict import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Claim,
    Finding,
    outcome_of,
    place_case,
    played,
)

LINEAR_POWER = 0.75  # between the square root and a straight line
ON_THE_LINE = 1e-9  # l sqrt(K) = d, as for l = d: nothing is predicted
SATURATED = 0.5  # of the regret of playing all arms alike, beyond which nothing can grow much


def _clusters(study: Study, level: float) -> list[Finding]:
    findings = []
    for place in played(study["regret"]):
        n_arms, _, l, _ = paper.DATASETS[place[0]]
        most, found = math.ceil(n_arms / l), study["regret"][*place, "cslb"].fact("clusters")
        outcome = HOLDS if (found <= most).all() else FAILS
        figures = {"K": f"{found.min():.0f} to {found.max():.0f}", "ceil(N / l)": most}
        figures["strictly below, as printed"] = bool((found < most).all())
        findings.append(Finding(place_case(place), outcome, figures))
    return findings


def _growth_in_arms(study: Study, level: float) -> list[Finding]:
    arms = study["arms"]
    oful = [("oful", radius, name) for radius, name in oful_readings(arms).items()]
    policies = (("ucb1", NO_OFUL, "ucb1"), ("cslb", NO_OFUL, "cslb"), *oful)
    findings = []
    for structure, normalize in product(STRUCTURES, sorted({key[2] for key in arms})):
        for policy, radius, name in policies:
            runs = [arms[structure, n, normalize, name] for n in ARM_COUNTS]
            case = {"arms": structure, "normalisation": normalize, "policy": policy, RADIUS: radius}
            findings.append(_growth_of(runs, case, level))
    return findings


def _growth_of(runs: Sequence[Runs], case: Mapping[str, str], level: float) -> Finding:
    """How regret grows with the number of arms, unless it is near that of uniform play for the most arms."""
    power = exponent(ARM_COUNTS, np.array([each.regret for each in runs]).T, level)
    good, bad = ("above", "below") if case["policy"] == "ucb1" else ("below", "above")
    outcome = outcome_of([power.side(LINEAR_POWER)], good=good, bad=bad)
    most = runs[-1]
    uniform = float((most.regret / (most.fact("mean_gap") * most.checkpoints[-1])).mean())
    figures = {"power of growth in N": power, f"over uniform play's, N = {ARM_COUNTS[-1]}": uniform}
    return Finding(case, UNDECIDED if uniform > SATURATED else outcome, figures, [power])


def _prediction(study: Study, level: float) -> list[Finding]:
    """Where l sqrt(K) < d CS-LB should win; elsewhere it should not."""
    sizes = study["sizes"]
    findings = []
    for scene, normalize in product(SIZE_SCENES, sorted({key[-1] for key in sizes})):
        dim = SIZE_SCENES[scene][1]
        for l in (l for l in SKETCH_SIZES if l <= dim):
            runs = sizes[scene, l, normalize]
            predictor = l * math.sqrt(runs.fact("clusters").mean()) / dim
            if abs(predictor - 1.0) < ON_THE_LINE:
                continue
            for radius in oful_readings(sizes):
                found = ratio(runs.regret, sizes[scene, radius, normalize].regret, level)
                wins = {"below": True, "above": False}.get(found.side(1.0))
                outcome = UNDECIDED if wins is None else HOLDS if wins == (predictor < 1.0) else FAILS
                figures = {"l sqrt(K) / d": predictor, "cslb / oful regret": found}
                case = {"data": _data(scene), "l": l, "normalisation": normalize, RADIUS: radius}
                findings.append(Finding(case, outcome, figures, [found]))
    return findings


def _data(scene: str) -> str:
    n_arms, dim, *_ = SIZE_SCENES[scene]
    return f"({scene})" if scene.isdigit() else f"N = {n_arms}, d = {dim}"


CLAIMS = (
    Claim(
        "clusters-at-most",
        "The warm-up gives K <= ceil(N / l) clusters (printed as <).",
        "Counted in every run; fails where it is larger in one.",
        _clusters,
    ),
    Claim(
        "ucb1-grows-with-arms",
        "UCB1's regret grows linearly with the number of arms, CS-LB's and OFUL's do not.",
        f"Slope of log regret against log N over N = {', '.join(map(str, ARM_COUNTS))}. Linear where its simultaneous "
        f"95 % interval is above {LINEAR_POWER}, not linear where it is below. Undecided where regret at the largest "
        f"N is above {SATURATED:.0%} of uniform play's, which no policy can outgrow. Arms in 20 directions, and in "
        "general position.",
        _growth_in_arms,
    ),
    Claim(
        "l-sqrt-k-predicts",
        "CS-LB has less regret than OFUL where l sqrt(K) < d, and not elsewhere.",
        "Paired ratio of final regrets for several l, K as found. Holds where its simultaneous 95 % interval is below "
        "1 and l sqrt(K) < d, or above 1 and l sqrt(K) > d; fails where it is on the other side. Where both are equal "
        "nothing is predicted.",
        _prediction,
    ),
)
