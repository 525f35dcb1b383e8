"""Made-up outcomes of the paper's experiments: a world in which the paper is right, and changes to it."""

import dataclasses
import math

import numpy as np

from sketchbandits.lab.experiments.study import Experiment
from sketchbandits.lab.experiments.tasks import Outcome
from sketchbandits.lab.paper.claims import CLAIMS, judge
from sketchbandits.lab.paper.reproduce import PaperPlan
from sketchbandits.lab.paper.setting import DATASETS
from sketchbandits.lab.verdict import Claim

T, RUNS = 1_000, 5
POINTS = np.arange(5, T + 1, 5)
KEYS = {name: tuple(groups) for name, groups in PaperPlan(rounds=T).experiments.items()}
IDS = [claim.id for claim in CLAIMS]
OFUL = ("oful", "oful:radius=logdet")  # both readings
AROUND = (0.5, 0.8, 1.0, 1.25, 2.0)  # factors whose intervals lie on both sides of 1


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
    final = {"cslb": cslb, "oful": 150.0, "soful": 300.0, "cbscfd": 400.0, "ucb1": 1_000.0, "multiscale": 50.0}
    final = final[policy.split(":")[0]]
    power = 1.0 if policy in ("soful", "cbscfd") else 0.5
    return Made(final, power, clusters=math.ceil(n_arms / l))


def time_right(key, run):
    times = {"ucb1": 0.1, OFUL[0]: 10.0, OFUL[1]: 10.0, "cslb": 0.6, "soful": 0.8, "cbscfd": 0.9, "multiscale": 0.7}
    times |= {"cslb:engine=sketch": 3.0, "soful:shrink=every-round": 4.0, "cbscfd:shrink=every-round": 5.0}
    return Made(microseconds=times[key[2]], warmup=1e-6)


def long_right(key, run):
    return Made(power=0.5, length=10 * T)


def arms_right(key, run):
    _, n_arms, _, policy = key
    return Made(n_arms**1.0 if policy == "ucb1" else n_arms**0.5)


def sizes_right(key, run):
    scene, l, _ = key
    if isinstance(l, str):  # the radius of OFUL
        return Made(100.0)
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


def on(name, change, *, policy=None, place=None, spread=False):
    """An edit of one experiment (of one policy or several, of one data set): ``change(made, factor)``."""

    def edit(experiment, key, run, made):
        chosen = policy is None or key[-1] in ((policy,) if isinstance(policy, str) else policy)
        if experiment == name and chosen and place in (None, key[0]):
            change(made, AROUND[run] if spread else 1.0)

    return edit


def scaled(field, value):
    return lambda made, factor: setattr(made, field, value * factor)


def sizes_wrong(name, key, run, made):
    if name == "sizes" and isinstance(key[1], int):
        made.final = {50.0: 200.0, 200.0: 50.0}[made.final]


def sizes_unclear(name, key, run, made):
    if name == "sizes" and isinstance(key[1], int):
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
            made.final = key[1] ** (power(key[3].split(":")[0]) * (AROUND[run] if spread else 1.0))

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


def one_run(name, field, value, where):
    """The last of five runs, in the cases ``where`` says."""

    def edit(experiment, key, run, made):
        if experiment == name and run == RUNS - 1 and where(key):
            setattr(made, field, value)

    return edit


CASES = {
    "lowest-regret": 8,
    "beats-sketches": 8,
    "sketches-do-not-converge": 16,
    "cslb-sublinear": 8,
    "linear-beats-ucb1": 12,
    "largest-gains-where-clustered": 2,
    "theorem-bound": 8,
    "clusters-at-most": 8,
    "ucb1-grows-with-arms": 16,
    "l-sqrt-k-predicts": 64,  # 400 clusters of one arm are on the line at d = 20
    "faster-than-oful": 32,
    "slightly-faster-than-sketches": 8,
    "ucb1-fastest": 16,
    "search-saves-time": 8,
    "warmup-negligible": 16,
    "round-cost": 3,
    "dbslinucb-falls-back": 2,
}
CLAIM = Claim("some", "Something is so.", "It holds where it holds.", lambda study, level: [])
