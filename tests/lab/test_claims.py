"""Verdicts on made-up runs: every claim where it must hold, where it must fail, and where nothing can be said."""

import dataclasses
import json
import math

import numpy as np
import pytest

from sketchbandits.lab import intervals
from sketchbandits.lab.experiments.study import Experiment, NotPlayedError, Runs
from sketchbandits.lab.experiments.tasks import Outcome
from sketchbandits.lab.growth import slope_ratio
from sketchbandits.lab.intervals import Interval, interval
from sketchbandits.lab.paper.claims import CLAIMS, judge
from sketchbandits.lab.paper.claims.regret import bound
from sketchbandits.lab.paper.reproduce import PaperPlan
from sketchbandits.lab.paper.setting import DATASETS
from sketchbandits.lab.verdict import Claim, Finding, Verdict, outcome_of

T, RUNS = 1_000, 5
POINTS = np.arange(5, T + 1, 5)
KEYS = {name: tuple(groups) for name, groups in PaperPlan(rounds=T).experiments.items()}
IDS = [claim.id for claim in CLAIMS]
AROUND = (0.5, 0.8, 1.0, 1.25, 2.0)  # factors whose intervals lie on both sides of 1


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(intervals, "RESAMPLES", 2_000)  # thousands of intervals, none of them close


@dataclasses.dataclass
class Made:
    """What a made-up run shows: regret ``final (t/T)^power``, times and counts."""

    final: float = 100.0
    power: float = 0.5
    microseconds: float = 1.0
    warmup: float = 0.0
    length: int = T
    clusters: int = 1
    largest_gap: float = 1_000.0
    mean_gap: float = 1_000.0
    sketch_rank: int = 10

    def outcome(self):
        points = POINTS * self.length // T
        curve = self.final * (points / self.length) ** self.power
        facts = {name: getattr(self, name) for name in ("clusters", "largest_gap", "mean_gap", "sketch_rank")}
        return Outcome(points, curve, 1e-6 * self.microseconds * self.length, self.warmup, facts)


# --- a world in which the paper is right ---


def regret_right(key, run):
    number, _, policy = key
    n_arms, _, l, _ = DATASETS[number]
    cslb = 20.0 if number == 4 else 100.0
    final = {"cslb": cslb, "oful": 150.0, "soful": 300.0, "cbscfd": 400.0, "ucb1": 1_000.0, "multiscale": 50.0}[policy]
    power = 1.0 if policy in ("soful", "cbscfd") else 0.5
    return Made(final, power, clusters=math.ceil(n_arms / l))


def time_right(key, run):
    times = {"ucb1": 0.1, "oful": 10.0, "cslb": 0.6, "soful": 0.8, "cbscfd": 0.9, "multiscale": 0.7}
    times |= {"cslb:engine=sketch": 3.0, "soful:shrink=every-round": 4.0, "cbscfd:shrink=every-round": 5.0}
    return Made(microseconds=times[key[2]], warmup=1e-6)


def long_right(key, run):
    return Made(power=0.5, length=10 * T)


def arms_right(key, run):
    _, n_arms, _, policy = key
    return Made(n_arms**1.0 if policy == "ucb1" else n_arms**0.5)


def sizes_right(key, run):
    if len(key) == 2:
        return Made(100.0)
    scene, l, _ = key
    n_arms, dim = {"1": (60, 50), "4": (200, 50), "crowd": (400, 20)}[scene]
    clusters = math.ceil(n_arms / l)
    return Made(50.0 if l * math.sqrt(clusters) < dim else 200.0, clusters=clusters)


def blocks_right(key, run):
    data, d, policy = key
    full = data == "full rank"
    return Made(microseconds=d**2 if full or policy == "oful" else d, sketch_rank=d if full else 10)


def growth_right(key, run):
    engine, d, l = key
    return Made(microseconds=d * l**2 if engine == "sketch" else l)


def search_right(key, run):
    number, n_arms, policy = key
    few = time_right((number, "max", policy), run).microseconds
    cslb = 3.0 if ":" in policy else 0.6
    # Three times N more arms cost three times the difference to CS-LB: all of it is search.
    return Made(microseconds=few if n_arms == DATASETS[number][0] else few + 3 * (few - cslb))


RIGHT = {
    "regret": regret_right, "time": time_right, "long": long_right, "arms": arms_right,
    "sizes": sizes_right, "blocks": blocks_right, "growth": growth_right, "search": search_right,
}  # fmt: skip


class World(dict):
    """All experiments, made where a claim looks at them; ``edit`` changes what a run shows."""

    def __init__(self, edit, runs, left_out):
        self.edit, self.runs, self.left_out = edit, runs, left_out

    def __missing__(self, name):
        keys = (key for key in KEYS[name] if not self.left_out(name, key))
        groups = {key: tuple((key, run) for run in range(self.runs)) for key in keys}
        outcomes = {}
        for key, run in (pair for group in groups.values() for pair in group):
            made = RIGHT[name](key, run)
            self.edit(name, key, run, made)
            outcomes[key, run] = made.outcome()
        self[name] = Experiment(groups, outcomes)
        return self[name]


def world(edit=lambda name, key, run, made: None, *, runs=RUNS, left_out=lambda name, key: False):
    return World(edit, runs, left_out)


def verdict(claim, edit=lambda name, key, run, made: None, **options):
    return judge(CLAIMS[IDS.index(claim)], world(edit, **options))


def outcomes(found):
    return {finding.outcome for finding in found.findings}


def test_the_experiments_hold_all_that_these_worlds_need():
    assert set(KEYS) == set(RIGHT)


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_holds_where_the_paper_is_right(claim):
    found = verdict(claim)
    assert found.text == "holds"
    assert outcomes(found) == {"holds"}


@pytest.mark.parametrize("claim", IDS)
def test_a_little_noise_does_not_change_it(claim):
    rng = np.random.default_rng(0)

    def noisy(name, key, run, made):
        made.final *= 1 + 0.01 * rng.standard_normal()
        made.microseconds *= 1 + 0.01 * rng.standard_normal()

    assert verdict(claim, noisy).text == "holds"


# --- worlds in which it is wrong, and in which nobody can say ---


def on(name, change, *, policy=None, place=None, spread=False):
    """An edit of one experiment (of one policy, of one data set): ``change(made, factor)``."""

    def edit(experiment, key, run, made):
        if experiment == name and policy in (None, key[-1]) and place in (None, key[0]):
            change(made, AROUND[run] if spread else 1.0)

    return edit


def scaled(field, value):
    return lambda made, factor: setattr(made, field, value * factor)


def sizes_wrong(name, key, run, made):
    if name == "sizes" and len(key) == 3:
        made.final = {50.0: 200.0, 200.0: 50.0}[made.final]


def sizes_unclear(name, key, run, made):
    if name == "sizes" and len(key) == 3:
        made.final = 100.0 * AROUND[run]


def gains_equal(name, key, run, made):
    if name == "regret" and key[2] == "cslb":
        made.final = 100.0 * (AROUND[run] if key[0] == 4 else 1.0)


def gains_small(name, key, run, made):
    if name == "regret" and key[2] == "cslb":
        made.final = 110.0 if key[0] == 4 else 100.0


def arms_all(power, spread=False):
    def edit(name, key, run, made):
        if name == "arms":
            made.final = key[1] ** (power(key[3]) * (AROUND[run] if spread else 1.0))

    return edit


def growth_of(power_d, power_l, coordinates, spread=0.0):
    def edit(name, key, run, made):
        if name == "growth":
            engine, d, l = key
            more = spread * (run - 2)
            made.microseconds = (
                d ** (power_d + more) * l ** (power_l + more) if engine == "sketch" else d ** (coordinates + more)
            )

    return edit


def blocks_of(full, low, spread=0.0):
    """DBSLinUCB's time grows with these powers of d."""

    def edit(name, key, run, made):
        if name == "blocks" and key[2] == "dbslinucb":
            made.microseconds = key[1] ** ((full if key[0] == "full rank" else low) + spread * (run - 2))

    return edit


def slopes(policies, power, spread=False):
    """Regret of these policies grows with that power; with ``spread`` with powers around it."""

    def edit(name, key, run, made):
        if (name == "regret" and key[2] in policies) or (name == "long" and "cslb" in policies):
            made.power = power + (0.15 * (run - 2) if spread else 0.0)

    return edit


def searching(share, spread=False):
    """This share of the difference between a rival and CS-LB is search, by the rule's own arithmetic."""

    def edit(name, key, run, made):
        if name == "search":
            number, n_arms, policy = key
            few, n = time_right((number, "max", policy), run).microseconds, DATASETS[number][0]
            cslb, l = (3.0 if ":" in policy else 0.6), DATASETS[number][2]
            wanted = share * (AROUND[run] if spread else 1.0)
            made.microseconds = few if n_arms == n else few + wanted * (few - cslb) * 3 * n / (n - l)

    return edit


def all_times(change):
    def edit(name, key, run, made):
        if name == "time":
            made.microseconds *= change(key, run)

    return edit


def is_cslb(key):
    return key[2].startswith("cslb")


WRONG = {
    "lowest-regret": on("regret", scaled("final", 90.0), policy="oful"),
    "beats-sketches": on("regret", scaled("final", 10.0), policy="cbscfd"),
    "sketches-do-not-converge": slopes(("soful", "cbscfd"), 0.5),
    "cslb-sublinear": slopes(("cslb",), 1.0),
    "linear-beats-ucb1": on("regret", scaled("final", 10.0), policy="ucb1"),
    "largest-gains-where-clustered": gains_small,
    "theorem-bound": on("regret", scaled("final", 1e6), policy="cslb"),
    "clusters-at-most": on("regret", scaled("clusters", 41), policy="cslb"),
    "ucb1-grows-with-arms": arms_all(lambda policy: 0.5 if policy == "ucb1" else 1.0),
    "l-sqrt-k-predicts": sizes_wrong,
    "faster-than-oful": on("time", scaled("microseconds", 0.05), policy="oful"),
    "slightly-faster-than-sketches": all_times(lambda key, run: 0.1 if is_cslb(key) else 1.0),
    "ucb1-fastest": on("time", scaled("microseconds", 20.0), policy="ucb1"),
    "search-saves-time": searching(0.25),
    "warmup-negligible": on("time", scaled("warmup", 1.0)),
    "round-cost": growth_of(1.5, 3.0, 0.5),
    "dbslinucb-falls-back": blocks_of(1.0, 2.0),
}

UNCLEAR = {
    "lowest-regret": on("regret", scaled("final", 100.0), policy="oful", spread=True),
    "beats-sketches": on(
        "regret", lambda made, factor: setattr(made, "final", 300.0 * factor**2), policy="cslb", spread=True
    ),
    "sketches-do-not-converge": slopes(("soful", "cbscfd"), 0.75, spread=True),
    "cslb-sublinear": slopes(("cslb",), 0.75, spread=True),
    "linear-beats-ucb1": on("regret", scaled("final", 120.0), policy="ucb1", spread=True),
    "largest-gains-where-clustered": gains_equal,
    "ucb1-grows-with-arms": arms_all(lambda policy: 0.75, spread=True),
    "l-sqrt-k-predicts": sizes_unclear,
    "faster-than-oful": all_times(
        lambda key, run: AROUND[run] * {"cslb": 10 / 0.6}.get(key[2], 10 / 3) if is_cslb(key) else 1.0
    ),
    "slightly-faster-than-sketches": all_times(lambda key, run: AROUND[run] if is_cslb(key) else 1.0),
    "ucb1-fastest": on("time", scaled("microseconds", 0.6), policy="ucb1", spread=True),
    "search-saves-time": searching(0.5, spread=True),
    "warmup-negligible": lambda name, key, run, made: setattr(
        made, "warmup", 1e-8 * made.microseconds * T * AROUND[run]
    ),
    "round-cost": growth_of(1.2, 2.4, 0.1, spread=0.02),
    "dbslinucb-falls-back": blocks_of(1.5, 1.5, spread=0.1),
}


@pytest.mark.parametrize("claim", IDS)
def test_a_claim_fails_where_the_paper_is_wrong(claim):
    found = verdict(claim, WRONG[claim])
    assert found.text == "fails"
    assert outcomes(found) == {"fails"}


@pytest.mark.parametrize("claim", UNCLEAR)
def test_nothing_is_claimed_where_intervals_lie_on_both_sides(claim):
    found = verdict(claim, UNCLEAR[claim])
    assert outcomes(found) <= {"undecided", "holds"} and "undecided" in outcomes(found)
    assert found.word == "undecided"


def test_what_is_counted_and_not_estimated_is_always_decided():
    assert set(IDS) - set(UNCLEAR) == {"theorem-bound", "clusters-at-most"}


# --- the lines between them ---


def ratio_of(power):
    """Late over middle slope of t^power."""
    return (1 - 0.75**power) / (0.5**power - 0.25**power)


def power_of(ratio):
    """The power whose slopes have this ratio."""
    low, high = 0.01, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio_of(middle) < ratio else (low, middle)
    return low


def ratios(name_of_first, ratio):
    """Times with this ratio of CS-LB (or UCB1) to each rival."""
    return lambda name, key, run, made: setattr(
        made, "microseconds", ratio if name == "time" and key[2].startswith(name_of_first) else 1.0
    )


def warm(share):
    def edit(name, key, run, made):
        made.warmup = share / (1 - share) * 1e-6 * made.microseconds * T

    return edit


def one_run(name, field, value, where):
    """The last of five runs, in the cases ``where`` says."""

    def edit(experiment, key, run, made):
        if experiment == name and run == RUNS - 1 and where(key):
            setattr(made, field, value)

    return edit


FORM = "depends on form: holds for as printed; fails for cheaper forms (4 hold, 4 fail)"
ENGINE = "depends on engine: holds for sketch; fails for coordinates (2 hold, 1 fail)"
DATA = "depends on data: holds for full rank; fails for rank 10 (1 hold, 1 fail)"
LINES = [
    ("sketches-do-not-converge", slopes(("soful", "cbscfd"), power_of(0.81)), "holds"),
    ("sketches-do-not-converge", slopes(("soful", "cbscfd"), power_of(0.79)), "fails"),
    ("sketches-do-not-converge", slopes(("oful",), power_of(0.79)), "holds"),
    ("sketches-do-not-converge", slopes(("oful",), power_of(0.81)), "undecided"),  # all are linear at this horizon
    ("sketches-do-not-converge", slopes(("oful", "soful", "cbscfd"), power_of(0.79)), "fails"),
    ("sketches-do-not-converge", slopes(("oful",), 0.75, spread=True), "undecided"),
    ("cslb-sublinear", slopes(("cslb",), power_of(0.79)), "holds"),
    ("cslb-sublinear", slopes(("cslb",), power_of(0.81)), "fails"),
    ("lowest-regret", on("regret", scaled("final", 101.0), policy="cbscfd"), "holds"),
    ("lowest-regret", on("regret", scaled("final", 99.0), policy="cbscfd"), "fails"),
    ("beats-sketches", on("regret", scaled("final", 10.0), policy="oful"), "holds"),  # no rival here
    ("linear-beats-ucb1", on("regret", scaled("final", 151.0), policy="ucb1"), "holds"),
    ("faster-than-oful", ratios("cslb", 0.99), "holds"),
    ("faster-than-oful", ratios("cslb", 1.01), "fails"),
    ("slightly-faster-than-sketches", ratios("cslb", 0.51), "holds"),
    ("slightly-faster-than-sketches", ratios("cslb", 0.49), "fails"),
    ("slightly-faster-than-sketches", ratios("cslb", 0.99), "holds"),
    ("slightly-faster-than-sketches", ratios("cslb", 1.01), "fails"),
    ("ucb1-fastest", ratios("ucb1", 0.99), "holds"),
    ("ucb1-fastest", ratios("ucb1", 1.01), "fails"),
    ("search-saves-time", searching(0.51), "holds"),
    ("search-saves-time", searching(0.49), "fails"),
    ("search-saves-time", on("search", scaled("microseconds", 1.01 * 0.9), policy="cslb"), FORM),  # it is not faster
    ("warmup-negligible", warm(0.0099), "holds"),
    ("warmup-negligible", warm(0.0101), "fails"),
    ("ucb1-grows-with-arms", arms_all(lambda policy: 0.76 if policy == "ucb1" else 0.74), "holds"),
    ("ucb1-grows-with-arms", arms_all(lambda policy: 0.74 if policy == "ucb1" else 0.76), "fails"),
    ("ucb1-grows-with-arms", on("arms", scaled("mean_gap", 0.325)), "holds"),  # 160 of 325: uniform play's
    ("ucb1-grows-with-arms", on("arms", scaled("mean_gap", 0.315)), "undecided (8 hold, 4 undecided)"),
    ("round-cost", growth_of(0.1, 0.2, -0.09), "holds"),  # no lower bound as printed
    ("round-cost", growth_of(1.19, 2.39, 0.09), "holds"),
    ("round-cost", growth_of(0.1, 0.2, -0.11), ENGINE),
    ("round-cost", growth_of(1.19, 2.39, 0.11), ENGINE),
    ("round-cost", growth_of(1.21, 2.41, 0.11), "fails"),
    ("clusters-at-most", lambda name, key, run, made: setattr(made, "clusters", 10), "holds"),
    ("clusters-at-most", one_run("regret", "clusters", 41, lambda key: key[2] == "cslb"), "fails"),
    ("dbslinucb-falls-back", blocks_of(1.51, 1.49), "holds"),
    ("dbslinucb-falls-back", blocks_of(1.49, 1.51), "fails"),
    ("dbslinucb-falls-back", blocks_of(2.0, 2.0), DATA),
    ("theorem-bound", one_run("regret", "final", 1e6, lambda key: key[2] == "cslb"), "fails"),
]


@pytest.mark.parametrize(("claim", "edit", "expected"), LINES)
def test_a_rule_draws_its_line_where_it_says(claim, edit, expected):
    assert verdict(claim, edit).text == expected


def test_figures_of_the_search():
    found = verdict("search-saves-time", searching(0.75))
    assert [tuple(finding.case.values()) for finding in found.findings[:2]] == [
        ("as printed", "(1)", "soful"),
        ("as printed", "(1)", "cbscfd"),
    ]
    saved, by_search = found.findings[0].figures.values()
    assert saved == pytest.approx((1.0, 1.0, 1.0))  # 4 microseconds instead of 3
    assert by_search == pytest.approx((0.75, 0.75, 0.75))


def test_growth_is_measured_over_the_three_largest_sizes():
    def edit(name, key, run, made):
        if name == "growth" and (key[1] == 64 or key[2] == 4):
            made.microseconds *= 1.0 if key[1] in (256, 1024, 4096) and key[2] == 4 else 50.0

    found = verdict("round-cost", edit)
    assert found.text == "holds"
    assert [finding.figures["power of growth"].mean for finding in found.findings] == pytest.approx([1.0, 2.0, 0.0])


def test_one_rival_is_enough_to_refute_the_lowest_regret():
    for rival in ("oful", "soful", "cbscfd"):
        assert verdict("lowest-regret", on("regret", scaled("final", 99.0), policy=rival)).text == "fails"


def test_one_rival_is_enough_to_refute_the_fastest():
    for rival, form in (("cslb", "cheaper forms"), ("soful:shrink=every-round", "as printed")):
        found = verdict("ucb1-fastest", on("time", scaled("microseconds", 0.09), policy=rival))
        other = ({"as printed", "cheaper forms"} - {form}).pop()
        assert found.text == f"depends on form: holds for {other}; fails for {form} (4 hold, 4 fail)"
    assert verdict("ucb1-fastest", on("time", scaled("microseconds", 0.09), policy="oful")).text == "fails"


@pytest.mark.parametrize("number", [1, 2, 3])
def test_one_data_set_is_enough_to_refute_the_largest_gain(number):
    def edit(name, key, run, made):
        if name == "regret" and key[0] == number and key[2] == "cslb":
            made.final = 19.0  # the gain on (4) is 300 / 20

    found = verdict("largest-gains-where-clustered", edit)
    assert found.text == "fails"
    figures = found.findings[0].figures
    assert figures["gain on (4)"] == pytest.approx(15.0)
    assert figures[f"gain on ({number})"] == pytest.approx(300 / 19)
    assert figures[f"gain on (4) / on ({number})"].mean == pytest.approx(19 / 20)


def test_the_gain_is_over_the_better_sketch():
    def edit(name, key, run, made):
        if name == "regret" and key[0] == 4 and key[2] == "cbscfd":
            made.final = 30.0

    found = verdict("largest-gains-where-clustered", edit)
    assert found.findings[0].figures["gain on (4)"] == pytest.approx(1.5)
    assert found.text == "fails"


def test_figures_of_the_fallback():
    edit = one_run("blocks", "sketch_rank", 9, lambda key: key[:2] == ("rank 10", 100))
    found = verdict("dbslinucb-falls-back", edit)
    full, low = (finding.figures for finding in found.findings)
    assert [figures["power of growth in d"].mean for figures in (full, low)] == pytest.approx([2.0, 1.0])
    assert [figures["OFUL's"].mean for figures in (full, low)] == pytest.approx([2.0, 2.0])
    assert full["directions held"] == "50 of 50, 100 of 100, 200 of 200"
    assert low["directions held"] == "10 of 50, 9 of 100, 10 of 200"  # the fewest of any run
    assert [figures["time / OFUL's, d = 200"].mean for figures in (full, low)] == pytest.approx([1.0, 1 / 200])


def test_the_prediction_is_judged_by_clusters_as_found():
    # l sqrt(K) < d by K: with one cluster every l below d is predicted to win, and nothing is for l = d.
    def edit(name, key, run, made):
        if name == "sizes" and len(key) == 3:
            made.clusters = 2 if key[0] == "1" else 1
            made.final = 50.0 if key[1] < (20 if key[0] == "crowd" else 50) else 101.0

    found = verdict("l-sqrt-k-predicts", edit)
    assert found.text == "holds"
    predictors = {(f.case["data"], f.case["l"]): f.figures["l sqrt(K) / d"] for f in found.findings}
    assert predictors["(4)", 10] == 0.2 and predictors["(1)", 50] == pytest.approx(math.sqrt(2))
    assert ("(4)", 50) not in predictors and ("N = 400, d = 20", 20) not in predictors
    assert ("N = 400, d = 20", 50) not in predictors


CASES = {
    "lowest-regret": 4,
    "beats-sketches": 8,
    "sketches-do-not-converge": 8,
    "cslb-sublinear": 8,
    "linear-beats-ucb1": 8,
    "largest-gains-where-clustered": 2,
    "theorem-bound": 8,
    "clusters-at-most": 8,
    "ucb1-grows-with-arms": 12,
    "l-sqrt-k-predicts": 32,  # 400 clusters of one arm are on the line at d = 20
    "faster-than-oful": 16,
    "slightly-faster-than-sketches": 8,
    "ucb1-fastest": 8,
    "search-saves-time": 8,
    "warmup-negligible": 16,
    "round-cost": 3,
    "dbslinucb-falls-back": 2,
}


@pytest.mark.parametrize("claim", IDS)
def test_every_case_is_judged_once(claim):
    found = verdict(claim)
    cases = [json.dumps(finding.case) for finding in found.findings]
    assert len(set(cases)) == len(cases) == CASES[claim]
    assert len({tuple(finding.case) for finding in found.findings}) == 1  # the same properties, in the same order


def test_cases_are_named_for_people():
    found = verdict("beats-sketches")
    pairs = [(finding.case["data set"], finding.case["normalisation"]) for finding in found.findings]
    assert pairs == [(f"({number})", normalize) for number in (1, 2, 3, 4) for normalize in ("max", "unit")]
    figures = verdict("cslb-sublinear").findings[0].figures
    assert list(figures) == ["late / middle slope, T = 10,000", "at T = 1,000"]
    assert [finding.case["growth in"] for finding in verdict("round-cost").findings] == ["d", "l", "d"]


def test_runs_are_paired():
    # Regret differs by decades between runs, the difference to the rival by little.
    def edit(name, key, run, made):
        if name == "regret":
            made.final = 10.0**run + {"cslb": 0.0, "oful": 1.0 + 0.1 * run}.get(key[2], 5.0)

    found = verdict("lowest-regret", edit)
    assert found.text == "holds"
    margin = found.findings[0].figures["oful minus cslb"]
    assert margin == pytest.approx(interval([1.0, 1.1, 1.2, 1.3, 1.4]))
    assert found.findings[0].figures["cslb"] == pytest.approx(2222.2)


# --- what it depends on ---


def test_a_claim_that_holds_under_one_normalisation_depends_on_it():
    def edit(name, key, run, made):
        if name == "regret" and key[1] == "unit" and key[2] == "oful":
            made.final = 50.0

    expected = "depends on normalisation: holds for max; fails for unit (2 hold, 2 fail)"
    assert verdict("lowest-regret", edit).text == expected


def test_a_claim_that_holds_on_one_data_set_depends_on_it():
    edit = on("regret", scaled("final", 50.0), policy="oful", place=2)
    assert verdict("lowest-regret", edit).text == "depends on data set: holds for (1); fails for (2) (2 hold, 2 fail)"


def test_a_claim_that_holds_in_one_form_depends_on_it():
    edit = on("time", scaled("microseconds", 11.0), policy="cslb:engine=sketch")
    expected = "depends on form: holds for cheaper forms; fails for as printed (8 hold, 8 fail)"
    assert verdict("faster-than-oful", edit).text == expected


def test_only_the_longer_run_tells_whether_regret_is_sublinear():
    assert verdict("cslb-sublinear", on("long", scaled("power", 1.0))).text == "fails"
    found = verdict("cslb-sublinear", on("regret", scaled("power", 1.0), policy="cslb"))
    assert found.text == "holds"
    assert found.findings[0].figures["at T = 1,000"].mean == pytest.approx(1.0)


# --- how findings become a verdict ---

CLAIM = Claim("some", "Something is so.", "It holds where it holds.", lambda study: [])


def judged(*findings):
    """A verdict on findings written as ``(outcome, property=value, …)``."""
    return Verdict(CLAIM, [Finding(case, outcome, {}) for outcome, case in findings])


@pytest.mark.parametrize(
    ("words", "word", "text"),
    [
        ("holds", "holds", "holds"),
        ("holds holds", "holds", "holds"),
        ("fails fails", "fails", "fails"),
        ("undecided", "undecided", "undecided"),
        ("undecided undecided", "undecided", "undecided"),
        ("holds undecided holds", "undecided", "undecided (2 hold, 1 undecided)"),
        ("fails undecided", "fails", "fails (1 fail, 1 undecided)"),
        ("vacuous vacuous", "vacuous", "vacuous"),
        ("vacuous holds", "holds", "holds (1 hold, 1 vacuous)"),
        ("vacuous undecided", "undecided", "undecided (1 undecided, 1 vacuous)"),
        ("holds fails", "depends", "depends on place: holds for 0; fails for 1 (1 hold, 1 fail)"),
        ("vacuous fails", "depends", "depends on place: holds for 0; fails for 1 (1 fail, 1 vacuous)"),
        (
            "undecided fails holds vacuous undecided undecided",
            "depends",
            "depends on place: holds for 2, 3; fails for 1 (1 hold, 1 fail, 3 undecided, 1 vacuous)",
        ),
        ("holds fails holds fails", "depends", "depends on place: holds for 0, 2; fails for 1, 3 (2 hold, 2 fail)"),
        ("holds fails holds fails fails", "depends", "depends on place (2 hold, 3 fail)"),
    ],
)
def test_outcomes_of_cases_become_a_verdict(words, word, text):
    found = judged(*((outcome, {"place": i}) for i, outcome in enumerate(words.split())))
    assert (found.word, found.text) == (word, text)


def test_the_one_property_that_explains_it_is_named():
    cases = [
        (outcome, {"data set": number, "normalisation": normalize, "policy": "cslb"})
        for normalize, outcome in (("max", "holds"), ("unit", "fails"))
        for number in ("(1)", "(2)")
    ]
    assert judged(*cases).text == "depends on normalisation: holds for max; fails for unit (2 hold, 2 fail)"


def test_an_undecided_case_is_not_generalised_over():
    cases = [
        ("undecided", {"data set": "(1)", "normalisation": "max"}),
        ("holds", {"data set": "(2)", "normalisation": "max"}),
        ("fails", {"data set": "(1)", "normalisation": "unit"}),
        ("fails", {"data set": "(2)", "normalisation": "unit"}),
    ]
    where = "depends on data set and normalisation: holds for (2) max; fails for (1) unit, (2) unit"
    assert judged(*cases).text == f"{where} (1 hold, 2 fail, 1 undecided)"


def test_two_properties_are_named_where_one_is_not_enough():
    cases = [
        ("holds" if (a == "x") == (b == "p") else "fails", {"first": a, "idle": c, "second": b})
        for a in "xy"
        for b in "pq"
        for c in "mn"
    ]
    where = "depends on first and second: holds for x p, y q; fails for x q, y p"
    assert judged(*cases).text == f"{where} (4 hold, 4 fail)"


def test_cases_that_nothing_tells_apart():
    found = judged(("holds", {"a": 1}), ("fails", {"a": 1}))
    assert found.text == "depends on what was not varied here (1 hold, 1 fail)"


def test_no_case_is_not_judged():
    assert judged().word == "not judged"
    assert judged().text.startswith("not judged: ")


@pytest.mark.parametrize(
    ("sides", "expected"),
    [
        (["above", "above"], "holds"),
        (["above", "unclear"], "undecided"),
        (["unclear"], "undecided"),
        (["above", "below"], "fails"),
        (["unclear", "below"], "fails"),
    ],
)
def test_sides_of_rivals_become_an_outcome(sides, expected):
    assert outcome_of(sides, good="above", bad="below") == expected


# --- what was not played ---


def without(policies=(), datasets=()):
    def left_out(name, key):
        if name in ("regret", "time"):
            return key[0] in datasets or key[2].split(":")[0] in policies
        return name == "long" and key[0] in datasets

    return left_out


@pytest.mark.parametrize(
    ("left_out", "lost"),
    [
        (
            without(policies=("oful",)),
            {
                "lowest-regret": "(1, max, oful)",
                "sketches-do-not-converge": "(1, max, oful)",
                "linear-beats-ucb1": "(3, max, oful)",
                "faster-than-oful": "(1, max, oful)",
                "ucb1-fastest": "(3, max, oful)",
            },
        ),
        (without(policies=("ucb1",)), {"linear-beats-ucb1": "(3, max, ucb1)", "ucb1-fastest": "(3, max, ucb1)"}),
        (
            without(policies=("cbscfd",)),
            {
                "lowest-regret": "(1, max, cbscfd)",
                "beats-sketches": "(1, max, cbscfd)",
                "sketches-do-not-converge": "(1, max, cbscfd)",
                "largest-gains-where-clustered": "(1, max, cbscfd)",
                "slightly-faster-than-sketches": "(1, max, cbscfd:shrink=every-round)",
                "ucb1-fastest": "(3, max, cbscfd:shrink=every-round)",
            },
        ),
        (without(datasets=(4,)), {"largest-gains-where-clustered": "data set 4"}),
        (
            without(datasets=(3, 4)),
            {
                "largest-gains-where-clustered": "data set 4",
                "linear-beats-ucb1": "data set 3 or 4",
                "ucb1-fastest": "data set 3 or 4",
            },
        ),
        (
            without(datasets=(1, 2)),
            {
                "lowest-regret": "data set 1 or 2",
                "sketches-do-not-converge": "data set 1 or 2",
                "slightly-faster-than-sketches": "data set 1 or 2",
                "largest-gains-where-clustered": "(1, max, soful)",
            },
        ),
    ],
)
def test_what_was_not_played_is_said_and_the_rest_is_judged(left_out, lost):
    study = world(left_out=left_out)
    for claim in CLAIMS:
        found = judge(claim, study)
        if claim.id in lost:
            assert found.word == "not judged" and not found.findings
            assert found.text.startswith("not judged: ") and found.text.endswith(f"{lost[claim.id]} was not played")
        else:
            assert found.text == "holds"


def test_one_data_set_is_judged_alone():
    found = verdict("lowest-regret", left_out=without(datasets=(2, 3, 4)))
    assert found.text == "holds"
    assert {finding.case["data set"] for finding in found.findings} == {"(1)"}


# --- what is written down ---


def test_claims_are_told_apart_and_declared():
    assert len(set(IDS)) == len(IDS) == len(CASES) == 17
    assert len({claim.statement for claim in CLAIMS}) == len(IDS)
    for claim in CLAIMS:
        assert claim.id == claim.id.lower() and " " not in claim.id
        assert claim.statement.endswith(".") and claim.rule.endswith(".")


THRESHOLDS = {
    "lowest-regret": ["above 0", "below 0", "95 %"],
    "beats-sketches": ["As lowest-regret"],
    "sketches-do-not-converge": ["above 0.8", "95 %", "Undecided instead where OFUL"],
    "cslb-sublinear": ["below 0.8", "as in sketches-do-not-converge", "ten times as many rounds"],
    "linear-beats-ucb1": ["above 0", "95 %"],
    "largest-gains-where-clustered": ["above 1", "95 %"],
    "theorem-bound": ["above the bound", "T x largest gap"],
    "clusters-at-most": ["every run", "larger"],
    "ucb1-grows-with-arms": ["above 0.75", "20, 40, 80, 160", "95 %", "above 50% of uniform play's"],
    "l-sqrt-k-predicts": ["below 1 and l sqrt(K) < d", "95 %"],
    "faster-than-oful": ["below 1", "95 %"],
    "slightly-faster-than-sketches": ["between 0.5 and 1", "95 %"],
    "ucb1-fastest": ["below 1", "95 %"],
    "search-saves-time": ["more than half"],
    "warmup-negligible": ["below 1%", "95 %"],
    "round-cost": ["below 1.2 in d", "below 2.4 in l", "within 0.1 of 0", "95 %"],
    "dbslinucb-falls-back": ["d = 50, 100, 200", "above 1.5", "rank 10", "95 %"],
}


@pytest.mark.parametrize("claim", CLAIMS, ids=IDS)
def test_a_rule_says_where_its_line_is(claim):
    for words in THRESHOLDS[claim.id]:
        assert words in claim.rule


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_verdicts_are_valid_json_without_nan(runs):
    study = world(runs=runs)
    for claim in CLAIMS:
        found = judge(claim, study)
        text = json.dumps(found.as_json(), allow_nan=False)
        entry = json.loads(text)
        assert (entry["id"], entry["statement"], entry["rule"]) == (claim.id, claim.statement, claim.rule)
        assert entry["verdict"] == found.text
        assert len(entry["evidence"]) == CASES[claim.id]
        assert {evidence["outcome"] for evidence in entry["evidence"]} == outcomes(found)
        assert outcomes(found) == ({"undecided"} if runs == 1 and claim.id in UNCLEAR else {"holds"})


def test_evidence_holds_cases_and_intervals():
    (evidence, *_) = verdict("lowest-regret").as_json()["evidence"]
    assert evidence == {
        "data set": "(1)", "normalisation": "max", "outcome": "holds", "cslb": 100.0,
        "oful minus cslb": [50.0] * 3, "soful minus cslb": [200.0] * 3, "cbscfd minus cslb": [300.0] * 3,
    }  # fmt: skip
    figures = {"a": Interval(1.0, math.nan, math.nan), "b": 2, "c": "three"}
    (evidence,) = Verdict(CLAIM, [Finding({"place": 1}, "undecided", figures)]).as_json()["evidence"]
    assert evidence == {"place": 1, "outcome": "undecided", "a": [1.0, None, None], "b": 2, "c": "three"}


def test_figures_of_the_warm_up():
    # Half a millisecond before rounds of 0.6 and 3 microseconds.
    found = verdict("warmup-negligible", on("time", scaled("warmup", 5e-4)))
    by_form = {finding.case["form"]: finding.figures for finding in found.findings}
    for form, microseconds in (("as printed", 3.0), ("cheaper forms", 0.6)):
        for rounds in (10, 1_000):
            share = 5e-4 / (5e-4 + 1e-6 * microseconds * rounds)
            assert by_form[form][f"share of all time at T = {rounds:,}"].mean == pytest.approx(share)
        rounds = by_form[form]["T from which it is below 1 %"]
        assert 5e-4 / (5e-4 + 1e-6 * microseconds * rounds) == pytest.approx(0.01, rel=1e-3)


def test_figures_of_the_clusters():
    found = verdict("clusters-at-most", one_run("regret", "clusters", 2, lambda key: key[0] == 1))
    figures = [finding.figures for finding in found.findings]
    assert figures[0] == {"K": "2 to 12", "ceil(N / l)": 12, "strictly below, as printed": False}
    assert figures[-1] == {"K": "40 to 40", "ceil(N / l)": 40, "strictly below, as printed": False}
    below = verdict("clusters-at-most", on("regret", scaled("clusters", 9)))
    assert {finding.figures["strictly below, as printed"] for finding in below.findings} == {True}


# --- the theorem's bound ---


def papers_bound(number, t, clusters):
    """Theorem 1 with Eq. (2), written out: L = S = R = ridge = 1, delta = 0.01."""
    n_arms, _, l, _ = DATASETS[number]
    L = S = R = lam = 1.0
    beta = R * np.sqrt(l * np.log(1 + t * L**2 / (l * lam)) + 2 * np.log(n_arms / (l * 0.01))) + S * np.sqrt(lam)
    return 2 * beta * np.sqrt(2 * l * clusters * t * np.log(1 + t * L**2 / (lam * l)))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_bound_is_the_papers(number):
    for t in (1, 17, 1_000, 200_000, 10**9):
        for clusters in (1, 7, 40):
            assert bound(number, t, clusters) == pytest.approx(papers_bound(number, t, clusters), rel=1e-12)


@pytest.mark.parametrize(("factor", "expected"), [(0.999, "holds"), (1.001, "fails")])
def test_one_checkpoint_above_the_bound_is_enough(factor, expected):
    # Constant regret from the first checkpoint on: there the bound is smallest.
    def edit(name, key, run, made):
        if name == "regret" and key[2] == "cslb":
            made.final, made.power = 1.0, 0.0
            if run == 3:
                made.final = factor * papers_bound(key[0], POINTS[0], made.clusters)

    found = verdict("theorem-bound", edit)
    assert found.text == expected
    figure = found.findings[0].figures["largest regret / bound, any round"]
    assert figure == pytest.approx(factor)


@pytest.mark.parametrize(("factor", "expected"), [(0.999, "vacuous"), (1.001, "holds")])
def test_a_bound_that_no_policy_could_exceed_is_vacuous(factor, expected):
    def edit(name, key, run, made):
        if name == "regret":
            made.largest_gap = factor * papers_bound(key[0], T, made.clusters) / T

    found = verdict("theorem-bound", edit)
    assert found.text == expected
    assert found.findings[-1].figures["bound / (T x largest gap)"] == pytest.approx(1 / factor)


# --- curves ---


def curves(*functions, points=None):
    points = POINTS if points is None else points
    return Runs([Outcome(points, function(points.astype(float)), 0.002, 0.5, {"x": 3.0}) for function in functions])


def test_slopes_of_known_curves():
    linear, root, logarithm = slope_ratio(curves(lambda t: 3 * t, lambda t: 7 * np.sqrt(t), lambda t: 2 * np.log(t)))
    assert linear == pytest.approx(1.0, abs=1e-12)
    assert root == pytest.approx((1 - math.sqrt(0.75)) / (math.sqrt(0.5) - 0.5))
    assert root == pytest.approx(0.647, abs=5e-4)
    assert logarithm == pytest.approx(math.log(4 / 3) / math.log(2))
    assert logarithm == pytest.approx(0.415, abs=5e-4)


def test_slopes_of_curves_that_stand_still():
    still, late = slope_ratio(curves(lambda t: np.full(t.shape, 5.0), lambda t: np.where(t > 900, 1.0, 0.0)))
    assert still == 0.0
    assert late > 1e6


def test_regret_between_checkpoints_is_a_straight_line_from_zero():
    runs = curves(lambda t: t**2, lambda t: t, points=np.array([10, 20, 40]))
    for rounds, expected in ((0, [0, 0]), (5, [50, 5]), (10, [100, 10]), (25, [700, 25]), (40, [1600, 40])):
        assert runs.regret_at(rounds).tolist() == expected
    assert runs.regret.tolist() == [1600, 40]
    assert runs.curves.shape == (2, 3)
    assert runs.microseconds.tolist() == [50.0, 50.0]  # 2 ms for 40 rounds
    assert runs.warmup_seconds.tolist() == [0.5, 0.5]
    assert runs.fact("x").tolist() == [3.0, 3.0]
    assert runs.checkpoints.tolist() == [10, 20, 40]


# --- experiments ---


def test_an_experiment_is_a_mapping_and_says_what_was_not_played():
    experiment = world()["regret"]
    assert len(experiment) == len(list(experiment)) == 4 * 2 * 6
    assert experiment[1, "max", "oful"].regret.tolist() == [150.0] * 5
    with pytest.raises(NotPlayedError, match=r"1, max, linucb"):
        experiment[1, "max", "linucb"]


def test_an_experiment_can_be_asked_for_a_key():
    experiment = world()["regret"]
    assert (1, "max", "oful") in experiment
    assert (1, "max", "linucb") not in experiment
    assert experiment.get((1, "max", "linucb")) is None
