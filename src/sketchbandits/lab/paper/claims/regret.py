"""Claims about regret on the paper's four data sets."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from sketchbandits.confidence import closed_information, ellipsoid_radius, theorem_bound
from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.experiments.study import Experiment, Study
from sketchbandits.lab.growth import LINEAR_ABOVE, slope_ratio
from sketchbandits.lab.intervals import NOTHING, Interval, interval, ratio
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.claims.readings import NO_OFUL, RADIUS, oful_readings
from sketchbandits.lab.verdict import (
    FAILS,
    HOLDS,
    UNDECIDED,
    VACUOUS,
    Claim,
    Finding,
    outcome_of,
    place_case,
    played,
)


def _lower(regret: Experiment, place: tuple[int, str], policy: str, rival: str, level: float) -> Interval:
    """How much more regret the rival has, paired by run."""
    return interval(regret[*place, rival].regret - regret[*place, policy].regret, level)


def _beats(
    study: Study, place: tuple[int, str], rivals: Sequence[str], case: Mapping[str, str], level: float
) -> Finding:
    regret = study["regret"]
    margins = [_lower(regret, place, "cslb", rival, level) for rival in rivals]
    outcome = outcome_of([margin.side(0.0) for margin in margins], good="above", bad="below")
    figures: dict[str, Any] = {"cslb": float(regret[*place, "cslb"].regret.mean())}
    names = (f"{rival.split(':')[0]} minus cslb" for rival in rivals)  # a reading is named in the case
    return Finding(case, outcome, figures | dict(zip(names, margins, strict=True)), margins)


def _lowest(study: Study, level: float) -> list[Finding]:
    return [
        _beats(study, place, (oful, "soful", "cbscfd"), place_case(place) | {RADIUS: radius}, level)
        for place in played(study["regret"], datasets=(1, 2))
        for radius, oful in oful_readings(study["regret"]).items()
    ]


def _beats_sketches(study: Study, level: float) -> list[Finding]:
    places = played(study["regret"])
    return [_beats(study, place, ("soful", "cbscfd"), place_case(place), level) for place in places]


def _no_convergence(study: Study, level: float) -> list[Finding]:
    """OFUL loses nothing: where its regret still seems linear, the horizon is too short to tell anything."""
    regret, findings = study["regret"], []
    for place, policy in product(played(regret, datasets=(1, 2)), ("soful", "cbscfd")):
        slopes = interval(slope_ratio(regret[*place, policy]), level)
        for radius, oful in oful_readings(regret).items():
            control = interval(slope_ratio(regret[*place, oful]), level)
            outcome = outcome_of([slopes.side(LINEAR_ABOVE)], good="above", bad="below")
            if outcome == HOLDS and control.side(LINEAR_ABOVE) != "below":
                outcome = UNDECIDED
            figures = {"late / middle slope": slopes, "OFUL's": control}
            case = {**place_case(place), "policy": policy, RADIUS: radius}
            findings.append(Finding(case, outcome, figures, [slopes]))
    return findings


def _sublinear(study: Study, level: float) -> list[Finding]:
    findings = []
    for place in played(study["regret"]):
        short, long = study["regret"][*place, "cslb"], study["long"][place]
        slopes = interval(slope_ratio(long), level)
        outcome = outcome_of([slopes.side(LINEAR_ABOVE)], good="below", bad="above")
        figures = {f"late / middle slope, T = {long.checkpoints[-1]:,}": slopes}
        figures[f"at T = {short.checkpoints[-1]:,}"] = interval(slope_ratio(short), level)
        findings.append(Finding(place_case(place), outcome, figures, [slopes]))
    return findings


def _beat_ucb1(study: Study, level: float) -> list[Finding]:
    regret, findings = study["regret"], []
    readings = [("oful", radius, name) for radius, name in oful_readings(regret).items()]
    for place in played(regret, datasets=(3, 4)):
        for policy, radius, name in (*readings, ("cslb", NO_OFUL, "cslb")):
            margin = _lower(regret, place, name, "ucb1", level)
            outcome = outcome_of([margin.side(0.0)], good="above", bad="below")
            case = {**place_case(place), "policy": policy, RADIUS: radius}
            findings.append(Finding(case, outcome, {f"ucb1 minus {policy}": margin}, [margin]))
    return findings


def _largest_gains(study: Study, level: float) -> list[Finding]:
    """The gain is the better sketch's regret over CS-LB's."""
    regret = study["regret"]
    findings = []
    for normalize in sorted({normalize for _, normalize in played(regret, datasets=(4,))}):
        gain = {number: _gain(regret, (number, normalize)) for number in (1, 2, 3, 4)}
        margins = {number: ratio(gain[4], gain[number], level) for number in (1, 2, 3)}
        outcome = outcome_of([margin.side(1.0) for margin in margins.values()], good="above", bad="below")
        figures: dict[str, Any] = {
            f"gain on ({number})": float(np.exp(np.log(np.maximum(values, NOTHING)).mean()))
            for number, values in gain.items()
        }
        figures |= {f"gain on (4) / on ({number})": margin for number, margin in margins.items()}
        findings.append(Finding({"normalisation": normalize}, outcome, figures, list(margins.values())))
    return findings


def _gain(regret: Experiment, place: tuple[int, str]) -> Floats:
    sketches = [regret[*place, policy].regret for policy in ("soful", "cbscfd")]
    return np.minimum(*sketches) / np.maximum(regret[*place, "cslb"].regret, NOTHING)


def bound(number: int, rounds: float, clusters: float) -> float:
    """The theorem's bound after so many rounds, with the radius of Eq. (2)."""
    n_arms, _, l, _ = paper.DATASETS[number]
    model = paper.model(l)
    assert model.arm_norm is not None
    rate = model.arm_norm**2 / model.ridge
    information = closed_information(rounds, float(l), rate)
    share = np.log(n_arms / (l * model.delta))
    beta = ellipsoid_radius(information, model.noise, np.sqrt(model.ridge) * model.theta_norm, share)
    return theorem_bound(
        int(rounds), sketch_size=l, n_clusters=int(clusters), radius=beta, arm_norm=model.arm_norm, ridge=model.ridge
    )


def _under_the_bound(study: Study, level: float) -> list[Finding]:
    findings = []
    for place in played(study["regret"]):
        runs = study["regret"][*place, "cslb"]
        T, K, gaps = float(runs.checkpoints[-1]), runs.fact("clusters"), runs.fact("largest_gap")
        bounds = np.array([[bound(place[0], float(t), k) for t in runs.checkpoints] for k in K])
        worst = float((runs.curves / bounds).max())
        against_trivial = float((bounds[:, -1] / (T * gaps)).min())
        outcome = FAILS if worst > 1.0 else VACUOUS if against_trivial >= 1.0 else HOLDS
        figures = {"largest regret / bound, any round": worst, "bound / (T x largest gap)": against_trivial}
        findings.append(Finding(place_case(place), outcome, figures))
    return findings


CLAIMS = (
    Claim(
        "lowest-regret",
        "CS-LB has the lowest regret of CS-LB, OFUL, SOFUL and CBSCFD on data sets (1) and (2).",
        "Final regret, paired by run. Holds where the simultaneous 95 % interval of the mean of (rival - CS-LB) is "
        "above 0 for all three rivals; fails where it is below 0 for one of them.",
        _lowest,
    ),
    Claim(
        "beats-sketches",
        "CS-LB consistently outperforms SOFUL and CBSCFD in cumulative regret.",
        "As lowest-regret, against SOFUL and CBSCFD, on all four data sets.",
        _beats_sketches,
    ),
    Claim(
        "sketches-do-not-converge",
        "SOFUL and CBSCFD do not converge on data sets (1) and (2).",
        "Regret gained in the last quarter over that gained in the second quarter. Holds where the simultaneous 95 % "
        f"interval of its mean is above {LINEAR_ABOVE} (linear regret gives 1, sqrt(T) 0.65, ln(T) 0.42); fails where "
        "it is below. Undecided instead where OFUL, which loses nothing, is not below it either: the horizon is too "
        "short.",
        _no_convergence,
    ),
    Claim(
        "cslb-sublinear",
        "CS-LB's regret is sublinear at a fixed sketch size.",
        "Slopes as in sketches-do-not-converge, over ten times as many rounds, since every curve begins straight. "
        f"Holds where the interval is below {LINEAR_ABOVE}, fails where it is above.",
        _sublinear,
    ),
    Claim(
        "linear-beats-ucb1",
        "OFUL and CS-LB have less regret than UCB1 on data sets (3) and (4).",
        "Final regret, paired by run. Holds where the simultaneous 95 % interval of the mean of (UCB1 - policy) is "
        "above 0, fails where it is below.",
        _beat_ucb1,
    ),
    Claim(
        "largest-gains-where-clustered",
        "The largest improvements over SOFUL and CBSCFD come where the arms cluster naturally.",
        "Gain: the better sketch's regret over CS-LB's. Data set (4), 20 directions of 10 arms, clusters most. Holds "
        "where the gain on (4) is larger than on each of (1), (2) and (3): simultaneous 95 % intervals of the paired "
        "ratios above 1; fails where one is below.",
        _largest_gains,
    ),
    Claim(
        "theorem-bound",
        "With probability 1 - delta, CS-LB's regret stays under the theorem's bound.",
        "Fails where a run's regret is above the bound at any checkpoint. Vacuous where the bound is not below "
        "T x largest gap, which no policy can exceed.",
        _under_the_bound,
    ),
)
