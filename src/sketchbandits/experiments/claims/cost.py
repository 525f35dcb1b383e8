"""Claims about running time, from the runs that were timed alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sketchbandits.experiments import paper
from sketchbandits.experiments.claims.regret import _case
from sketchbandits.experiments.claims.verdict import FAILS, HOLDS, Claim, Finding, Study, outcome_of, played
from sketchbandits.experiments.intervals import Interval, exponent, interval, ratio
from sketchbandits.experiments.reproduce import DIMS, ENGINES, TWINS, TYPICAL_DIM, TYPICAL_WIDTH, WIDTHS
from sketchbandits.experiments.study import Experiment
from sketchbandits.linalg import Floats

# Both policies as the paper prints them, or both in their cheaper equal forms.
FORMS = {
    "as printed": {kind: str(twin) for kind, twin in TWINS.items()},
    "cheaper equal forms": {kind: kind for kind in TWINS},
}
SLIGHTLY = 0.5  # a policy that takes less than half the time is not slightly faster
NEGLIGIBLE = 0.01
EXPECTED_D, EXPECTED_L, FREE_OF_D = (0.8, 1.2), (1.6, 2.4), (-0.1, 0.1)


def _ratio(study: Study, place: tuple[int, str], policy: str, rival: str) -> Interval:
    times = study["time"]
    return ratio(times[*place, policy].microseconds, times[*place, rival].microseconds)


def _faster_than_oful(study: Study) -> list[Finding]:
    findings = []
    for form, names in FORMS.items():
        for place in played(study["time"]):
            times = _ratio(study, place, names["cslb"], "oful")
            outcome = outcome_of([times.side(1.0)], good="below", bad="above")
            findings.append(Finding({"form": form, **_case(place)}, outcome, {"cslb / oful": times}))
    return findings


def _slightly_faster(study: Study) -> list[Finding]:
    findings = []
    for form, names in FORMS.items():
        for place in played(study["time"], datasets=(1, 2)):
            ratios = {rival: _ratio(study, place, names["cslb"], names[rival]) for rival in ("soful", "cbscfd")}
            sides = [times.inside(SLIGHTLY, 1.0) for times in ratios.values()]
            outcome = outcome_of(sides, good="inside", bad="outside")
            figures = {f"cslb / {rival}": times for rival, times in ratios.items()}
            findings.append(Finding({"form": form, **_case(place)}, outcome, figures))
    return findings


def _ucb1_fastest(study: Study) -> list[Finding]:
    findings = []
    for form, names in FORMS.items():
        for place in played(study["time"], datasets=(3, 4)):
            ratios = {rival: _ratio(study, place, "ucb1", names.get(rival, rival)) for rival in (*TWINS, "oful")}
            outcome = outcome_of([times.side(1.0) for times in ratios.values()], good="below", bad="above")
            figures = {f"ucb1 / {rival}": times for rival, times in ratios.items()}
            findings.append(Finding({"form": form, **_case(place)}, outcome, figures))
    return findings


def _warmup(study: Study) -> list[Finding]:
    findings = []
    for form, names in FORMS.items():
        for place in played(study["time"]):
            runs = study["time"][*place, names["cslb"]]
            T = float(study["regret"][*place, "cslb"].checkpoints[-1])
            share = {t: interval(_warmup_share(runs.warmup_seconds, runs.microseconds, t)) for t in (T / 100, T)}
            outcome = outcome_of([share[T].side(NEGLIGIBLE)], good="below", bad="above")
            figures: dict[str, Any] = {f"share of all time at T = {t:,.0f}": value for t, value in share.items()}
            per_round = 1e-6 * runs.microseconds.mean()
            figures["T from which it is below 1 %"] = round(runs.warmup_seconds.mean() * 99 / per_round)
            findings.append(Finding({"form": form, **_case(place)}, outcome, figures))
    return findings


def _warmup_share(warmup: Floats, microseconds: Floats, rounds: float) -> Floats:
    return warmup / (warmup + 1e-6 * microseconds * rounds)


def _search_saves(study: Study) -> list[Finding]:
    """Scanning N arms costs a line's slope in N; inside one cluster it would be the slope times its size."""
    findings = []
    for form, names in FORMS.items():
        for number in sorted({key[0] for key in study["search"]}):
            for rival in ("soful", "cbscfd"):
                case = {"form": form, "data set": f"({number})", "rival": rival}
                findings.append(_search_saves_here(study["search"], number, names["cslb"], names[rival], case))
    return findings


def _search_saves_here(search: Experiment, number: int, policy: str, rival: str, case: Mapping[str, str]) -> Finding:
    n_arms, _, l, _ = paper.DATASETS[number]
    own = search[number, n_arms, policy].microseconds
    few, many = (search[number, n, rival].microseconds for n in (n_arms, 4 * n_arms))
    by_search = (many - few) / (3 * n_arms) * (n_arms - l)
    faster, beyond_half = interval(few - own).side(0.0), interval(by_search - (few - own) / 2).side(0.0)
    outcome = outcome_of([faster, beyond_half], good="above", bad="below")
    figures = {"us saved a round": interval(few - own), "us that searching l arms would save": interval(by_search)}
    return Finding(case, outcome, figures)


def _growth(study: Study) -> list[Finding]:
    growth = study["growth"]

    def power(engine: str, cells: list[tuple[int, int]], sizes: list[int]) -> Interval:
        return exponent(sizes, np.array([growth[engine, *cell].microseconds for cell in cells]).T)

    dims, widths = list(DIMS[-3:]), list(WIDTHS[-3:])
    findings = []
    for engine in ENGINES:
        in_d = power(engine, [(d, TYPICAL_WIDTH) for d in dims], dims)
        in_l = power(engine, [(TYPICAL_DIM, l) for l in widths], widths)
        sides = {
            "d": in_d.inside(*(EXPECTED_D if engine == "sketch" else FREE_OF_D)),
            "l": in_l.inside(*EXPECTED_L) if engine == "sketch" else "inside",
        }
        for letter, found in (("d", in_d), ("l", in_l)):
            if engine == "sketch" or letter == "d":
                outcome = outcome_of([sides[letter]], good="inside", bad="outside")
                figures = {"power of growth": found}
                findings.append(Finding({"engine": engine, "growth in": letter}, outcome, figures))
    return findings


def _fallback(study: Study) -> list[Finding]:
    blocks = study["blocks"]
    findings = []
    for data, expected in (("full rank", True), ("rank 10", False)):
        ranks = blocks[data, "dbslinucb"].fact("sketch_rank")
        reached = ranks >= 50
        outcome = HOLDS if (reached == expected).all() else FAILS
        figures = {
            "directions held, of d = 50": f"{ranks.min():.0f} to {ranks.max():.0f}",
            "time / OFUL's": ratio(blocks[data, "dbslinucb"].microseconds, blocks[data, "oful"].microseconds),
            "time / SOFUL's": ratio(blocks[data, "dbslinucb"].microseconds, blocks[data, "soful"].microseconds),
        }
        findings.append(Finding({"data": data}, outcome, figures))
    return findings


_PAIRED = "Geometric mean of the paired ratios of time a round, with its 95 % interval. "
_FORMS = (
    "Cases: as printed (engine sketch, shrink every-round) and in the cheaper equal forms (engine coordinates, shrink "
    "buffered)."
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
        "The warm-up becomes negligible as T grows.",
        "Warm-up over warm-up plus play. Holds where the 95 % interval of its mean at the horizon is below "
        f"{NEGLIGIBLE:.0%}, fails where it is above. {_FORMS}",
        _warmup,
    ),
    Claim(
        "round-cost",
        "A round of CS-LB costs O(l^2 d); in the cheaper equal form it does not depend on d.",
        "Slope of log time against log size over the three largest sizes. As printed: holds where its 95 % interval is "
        f"inside {EXPECTED_D} for d and inside {EXPECTED_L} for l; in coordinates: inside {FREE_OF_D} for d. Fails "
        "where it is outside.",
        _growth,
    ),
    Claim(
        "dbslinucb-falls-back",
        "DBSLinUCB falls back to O(d^2) on full-rank data.",
        "A round costs O(N k + k d) for k directions held. Holds where k reaches d = 50 in every run on full-rank "
        "data, and in none on data of rank 10.",
        _fallback,
    ),
)
