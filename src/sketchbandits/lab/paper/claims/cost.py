"""Claims about running time, from the runs that were timed alone."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.experiments.study import Experiment, Study
from sketchbandits.lab.growth import exponent
from sketchbandits.lab.intervals import Interval, interval, ratio
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.claims.readings import RADIUS, oful_readings
from sketchbandits.lab.paper.reproduce import AS_PRINTED, BLOCK_DIMS, DIMS, TYPICAL_DIM, TYPICAL_WIDTH, WIDTHS
from sketchbandits.lab.verdict import Claim, Finding, outcome_of, place_case, played

# CS-LB and the sketches as their papers print them, or cheaper: CS-LB in coordinates (equal), sketches with a buffer of
# twice the rows (not equal, and no worse). OFUL and UCB1 have one form, which is incremental.
FORMS = {
    "as printed": {name: str(policy) for name, policy in AS_PRINTED.items()},
    "cheaper forms": {name: name for name in AS_PRINTED},
}
SLIGHTLY = 0.5  # a policy that takes less than half the time is not slightly faster
NEGLIGIBLE = 0.01
POWER_OF_D, POWER_OF_L, FREE_OF_D = 1.2, 2.4, 0.1
MORE_THAN_LINEAR = 1.5


def _ratio(study: Study, place: tuple[int, str], policy: str, rival: str, level: float) -> Interval:
    times = study["time"]
    return ratio(times[*place, policy].microseconds, times[*place, rival].microseconds, level)


def _faster_than_oful(study: Study, level: float) -> list[Finding]:
    findings = []
    for form, names in FORMS.items():
        for place, (radius, oful) in product(played(study["time"]), oful_readings(study["time"]).items()):
            times = _ratio(study, place, names["cslb"], oful, level)
            outcome = outcome_of([times.side(1.0)], good="below", bad="above")
            case = {"form": form, **place_case(place), RADIUS: radius}
            findings.append(Finding(case, outcome, {"cslb / oful": times}, [times]))
    return findings


def _slightly_faster(study: Study, level: float) -> list[Finding]:
    findings = []
    for form, names in FORMS.items():
        for place in played(study["time"], datasets=(1, 2)):
            ratios = {rival: _ratio(study, place, names["cslb"], names[rival], level) for rival in ("soful", "cbscfd")}
            sides = [times.inside(SLIGHTLY, 1.0) for times in ratios.values()]
            outcome = outcome_of(sides, good="inside", bad="outside")
            figures = {f"cslb / {rival}": times for rival, times in ratios.items()}
            findings.append(Finding({"form": form, **place_case(place)}, outcome, figures, list(ratios.values())))
    return findings


def _ucb1_fastest(study: Study, level: float) -> list[Finding]:
    findings = []
    places = played(study["time"], datasets=(3, 4))
    for (form, names), place in product(FORMS.items(), places):
        for radius, oful in oful_readings(study["time"]).items():
            rivals = {**names, "oful": oful}
            ratios = {rival: _ratio(study, place, "ucb1", name, level) for rival, name in rivals.items()}
            outcome = outcome_of([times.side(1.0) for times in ratios.values()], good="below", bad="above")
            figures = {f"ucb1 / {rival}": times for rival, times in ratios.items()}
            case = {"form": form, **place_case(place), RADIUS: radius}
            findings.append(Finding(case, outcome, figures, list(ratios.values())))
    return findings


def _warmup(study: Study, level: float) -> list[Finding]:
    findings = []
    for form, names in FORMS.items():
        for place in played(study["time"]):
            runs = study["time"][*place, names["cslb"]]
            T = float(study["regret"][*place, "cslb"].checkpoints[-1])
            share = {t: _warmup_share(runs.warmup_seconds, runs.microseconds, t) for t in (T / 100, T)}
            found = {t: interval(values, level) for t, values in share.items()}
            outcome = outcome_of([found[T].side(NEGLIGIBLE)], good="below", bad="above")
            figures: dict[str, Any] = {f"share of all time at T = {t:,.0f}": value for t, value in found.items()}
            per_round = 1e-6 * runs.microseconds.mean()
            figures["T from which it is below 1 %"] = round(runs.warmup_seconds.mean() * 99 / per_round)
            findings.append(Finding({"form": form, **place_case(place)}, outcome, figures, [found[T]]))
    return findings


def _warmup_share(warmup: Floats, microseconds: Floats, rounds: float) -> Floats:
    return warmup / (warmup + 1e-6 * microseconds * rounds)


def _search_saves(study: Study, level: float) -> list[Finding]:
    """Scanning N arms costs a line's slope in N; inside one cluster it would be the slope times its size."""
    findings = []
    for form, names in FORMS.items():
        for number in sorted({key[0] for key in study["search"]}):
            for rival in ("soful", "cbscfd"):
                case = {"form": form, "data set": f"({number})", "rival": rival}
                pair = (names["cslb"], names[rival])
                findings.append(_search_saves_here(study["search"], number, pair, case, level))
    return findings


def _search_saves_here(
    search: Experiment, number: int, pair: tuple[str, str], case: Mapping[str, str], level: float
) -> Finding:
    policy, rival = pair
    n_arms, _, l, _ = paper.DATASETS[number]
    own = search[number, n_arms, policy].microseconds
    few, many = (search[number, n, rival].microseconds for n in (n_arms, 4 * n_arms))
    by_search = (many - few) / (3 * n_arms) * (n_arms - l)
    saved, beyond_half = interval(few - own, level), interval(by_search - (few - own) / 2, level)
    outcome = outcome_of([saved.side(0.0), beyond_half.side(0.0)], good="above", bad="below")
    figures = {"us saved per round": saved, "us that searching l arms would save": interval(by_search, level)}
    return Finding(case, outcome, figures, [saved, beyond_half])


def _growth(study: Study, level: float) -> list[Finding]:
    in_d = ([(d, TYPICAL_WIDTH) for d in DIMS[-3:]], DIMS[-3:])
    in_l = ([(TYPICAL_DIM, l) for l in WIDTHS[-3:]], WIDTHS[-3:])
    findings = []
    for engine, letter, (cells, sizes), most in (
        ("sketch", "d", in_d, POWER_OF_D),
        ("sketch", "l", in_l, POWER_OF_L),
        ("coordinates", "d", in_d, FREE_OF_D),
    ):
        power = exponent(sizes, np.array([study["growth"][engine, *cell].microseconds for cell in cells]).T, level)
        sides = [power.side(most)] if engine == "sketch" else [power.inside(-most, most)]
        good, bad = ("below", "above") if engine == "sketch" else ("inside", "outside")
        outcome = outcome_of(sides, good=good, bad=bad)
        findings.append(Finding({"engine": engine, "growth in": letter}, outcome, {"power of growth": power}, [power]))
    return findings


def _fallback(study: Study, level: float) -> list[Finding]:
    findings = []
    for data, good, bad in (("full rank", "above", "below"), ("rank 10", "below", "above")):
        own, oful = ([study["blocks"][data, d, kind] for d in BLOCK_DIMS] for kind in ("dbslinucb", "oful"))
        power, rival = (exponent(BLOCK_DIMS, np.array([r.microseconds for r in runs]).T, level) for runs in (own, oful))
        held = [f"{runs.fact('sketch_rank').min():.0f} of {d}" for runs, d in zip(own, BLOCK_DIMS, strict=True)]
        figures = {
            "power of growth in d": power,
            "OFUL's": rival,
            "directions held": ", ".join(held),
            f"time / OFUL's, d = {BLOCK_DIMS[-1]}": ratio(own[-1].microseconds, oful[-1].microseconds, level),
        }
        outcome = outcome_of([power.side(MORE_THAN_LINEAR)], good=good, bad=bad)
        findings.append(Finding({"data": data}, outcome, figures, [power]))
    return findings


_PAIRED = "Geometric mean of the paired ratios of time per round, with its simultaneous 95 % interval. "
_FORMS = (
    "Cases: CS-LB and the sketches as printed (engine sketch, shrink every-round), and in cheaper forms (engine "
    "coordinates, shrink buffered); OFUL and UCB1 have one form, which is incremental."
)

CLAIMS = (
    Claim(
        "faster-than-oful",
        "CS-LB takes less time than OFUL.",
        f"{_PAIRED}Holds where CS-LB / OFUL is below 1, fails where it is above. {_FORMS}",
        _faster_than_oful,
    ),
    Claim(
        "slightly-faster-than-sketches",
        "CS-LB takes slightly less time than SOFUL and CBSCFD on data sets (1) and (2).",
        f"{_PAIRED}Holds where CS-LB / rival is between {SLIGHTLY} and 1 for both; fails where one is outside, on "
        f"whichever side. {_FORMS}",
        _slightly_faster,
    ),
    Claim(
        "ucb1-fastest",
        "UCB1 has the fastest running time on data sets (3) and (4).",
        f"{_PAIRED}Holds where UCB1 / rival is below 1 for all four rivals, fails where it is above for one. {_FORMS}",
        _ucb1_fastest,
    ),
    Claim(
        "search-saves-time",
        "CS-LB saves time against SOFUL and CBSCFD because it searches one cluster instead of all arms.",
        "A rival's time with N and with 4N arms gives the cost of scanning one arm; (N - l) of those is what searching "
        "l arms would save. Holds where CS-LB is faster and this is more than half of the difference; fails where it "
        f"is less than half, or where CS-LB is not faster. {_FORMS}",
        _search_saves,
    ),
    Claim(
        "warmup-negligible",
        "The warm-up is negligible at the horizon (the paper: when T is sufficiently large).",
        "Warm-up over warm-up plus play. Holds where the simultaneous 95 % interval of its mean at the horizon is "
        f"below {NEGLIGIBLE:.0%}, fails where it is above. {_FORMS}",
        _warmup,
    ),
    Claim(
        "round-cost",
        "A round of CS-LB costs O(l^2 d); in the cheaper form it does not depend on d.",
        "Slope of log time against log size over the three largest sizes, with its simultaneous 95 % interval. As "
        f"printed, an upper bound: holds where the slope is below {POWER_OF_D} in d and below {POWER_OF_L} in l, fails "
        f"where it is above. In coordinates: holds within {FREE_OF_D} of 0 in d, fails outside.",
        _growth,
    ),
    Claim(
        "dbslinucb-falls-back",
        "DBSLinUCB falls back to O(d^2) on full-rank data.",
        f"Slope of log time against log d over d = {', '.join(map(str, BLOCK_DIMS))}, 2 d arms. A fixed sketch costs "
        "O(l d), slope 1, a full one O(d^2), slope 2. Holds where its simultaneous 95 % interval is above "
        f"{MORE_THAN_LINEAR} on full-rank data and below it on data of rank 10; fails where it is on the other side.",
        _fallback,
    ),
)
