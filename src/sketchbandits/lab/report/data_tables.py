"""The tables of a page: regret, time, the leading policy at each horizon, and a user's own arms."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sketchbandits.kernels.linalg import Floats
from sketchbandits.lab.experiments.scenes import Scene
from sketchbandits.lab.experiments.study import Runs, Study
from sketchbandits.lab.intervals import interval
from sketchbandits.lab.own_case import OwnPlan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.reproduce import PaperPlan
from sketchbandits.lab.report.page import Cell, Table, Tables
from sketchbandits.lab.report.wording import SCALES, interval_cell, listed, mean_of, number, place_name, times
from sketchbandits.policies.registry import PolicySpec

SHARES = {"T/100": 0.01, "T/10": 0.1, "T/2": 0.5, "T": 1.0}


def regret_table(plan: PaperPlan, study: Study) -> Tables:
    """Regret at the end: one row per setting, one column per policy."""
    policies = study["regret"].policies
    rows: list[list[str | Cell]] = []
    for place in study["regret"].places:
        found = [interval(study["regret"][*place, str(policy)].regret) for policy in policies]
        least = min(value.mean for value in found)
        scene = study["regret"].scene(place)
        assert isinstance(scene, Scene)
        cells = [interval_cell(value, best=value.mean == least) for value in found]
        title = paper.title(scene).replace(" = ", "\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}")
        rows.append([f"({place[0]}) {title}", place[1], *cells])
    caption = (
        f"Regret after {plan.rounds:,} rounds: {mean_of(plan, ' and its 95 % interval')}; the least in bold. {SCALES}"
    )
    headings = ["data set", "norm", *(policy.label for policy in policies)]
    return Tables([Table(caption, headings, rows, text_columns=2)])


def time_tables(plan: PaperPlan, study: Study) -> Tables:
    """Time per round and warm-up: one row per policy, one column per setting."""
    played = f"{mean_of(plan, '')}, timed alone"
    rounds = _time_table(f"Microseconds per round: {played}; the least in bold.", study, lambda runs: runs.microseconds)
    before = "Warm-up in milliseconds, before the first round: the mean; the least in bold."
    return Tables([rounds, _time_table(before, study, lambda runs: 1e3 * runs.warmup_seconds)])


def _time_table(caption: str, study: Study, measure: Callable[[Runs], Floats]) -> Table:
    shown, policies = study["time"].places, study["time"].policies
    means = np.array([[measure(study["time"][*place, str(policy)]).mean() for place in shown] for policy in policies])
    rows: list[list[str | Cell]] = []
    for policy, line in zip(policies, means, strict=True):
        best = line <= means.min(axis=0)
        cells = [Cell(number(float(mean)), best=bool(b)) for mean, b in zip(line, best, strict=True)]
        rows.append([policy.label, *cells])
    return Table(caption, ["policy", *map(place_name, shown)], rows)


def own_table(plan: OwnPlan, study: Study) -> Tables:
    """Regret and time on a user's own arms, one row per policy."""
    rows: list[list[str | Cell]] = []
    for key, runs in sorted(study["regret"].items(), key=lambda item: item[1].regret.mean()):
        timed = study["time"][key]
        label = study["regret"].groups[key][0].policy.label
        measured = (runs.regret, timed.microseconds, 1e3 * timed.warmup_seconds)
        rows.append([label, *(interval_cell(interval(values)) for values in measured)])
    caption = f"From the least regret: {mean_of(plan, ' and its 95 % interval')}."
    headings = ["policy", f"regret after {plan.rounds:,} rounds", "microseconds per round", "warm-up, milliseconds"]
    return Tables([Table(caption, headings, rows)])


def horizon_table(plan: PaperPlan, study: Study) -> Tables:
    """The leading policy after a hundredth, a tenth and half of the rounds, and at the end."""
    settings = study["regret"].places
    leaders = {place: [leaders_after(study, place, share) for share in SHARES.values()] for place in settings}
    changed = sum(not set(found[0]) & set(found[-1]) for found in leaders.values())
    sentence = (
        f"In {changed} of {len(settings)} settings the policy that leads after T/100 rounds does not lead after T."
    )
    own = PolicySpec("cslb")
    if own in study["regret"].policies:
        counts = [sum(own.label in found[i] for found in leaders.values()) for i in range(len(SHARES))]
        sentence += f" CS-LB leads in {listed(counts)} of {len(settings)} after {listed(SHARES)}."
    rows: list[list[str | Cell]] = [
        [place_name(place), *(_leader_cell(study, place, share) for share in SHARES.values())] for place in settings
    ]
    rounds = [f"{name} = {plan.rounds * share:,.10g}" for name, share in SHARES.items()]
    caption = "The policy with the least mean regret after so many rounds; below it CS-LB's mean over the best other's."
    return Tables([Table(caption, ["setting", *rounds], rows)], sentence)


def _leader_cell(study: Study, place: tuple[Any, str], share: float) -> Cell:
    means = mean_regrets(study, place, share)
    own = means.pop(PolicySpec("cslb"), None)
    ratio = f"CS-LB / best other {times(min(means.values()), own)}" if means and own is not None else ""
    return Cell(listed(leaders_after(study, place, share)), ratio)


def leaders_after(study: Study, place: tuple[Any, str], share: float) -> list[str]:
    """The policies with the least mean regret after a share of the rounds: one, or several that are equal."""
    means = mean_regrets(study, place, share)
    return [policy.label for policy, mean in means.items() if mean <= min(means.values())]


def mean_regrets(study: Study, place: tuple[Any, str], share: float) -> dict[PolicySpec, float]:
    """The mean regret of each policy after a share of the rounds."""
    found = {}
    for policy in study["regret"].policies:
        runs = study["regret"][*place, str(policy)]
        found[policy] = float(runs.regret_at(share * float(runs.checkpoints[-1])).mean())
    return found
