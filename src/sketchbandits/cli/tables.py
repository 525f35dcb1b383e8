"""The tables that `reproduce`, `simulate` and `beyond` print."""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from sketchbandits.cli.terminal import WIDTH, print_table
from sketchbandits.lab.experiments.study import Experiment
from sketchbandits.lab.intervals import interval
from sketchbandits.lab.paper.beyond.plan import OURS
from sketchbandits.lab.paper.beyond.rows import Row, sentence
from sketchbandits.lab.paper.beyond.tables import number, short
from sketchbandits.lab.verdict import Verdict
from sketchbandits.policies.registry import PolicySpec


def paper_tables(study: Mapping[str, Experiment]) -> None:
    """One line per data set and normalisation, one column per policy: mean regret, then time per round."""
    policies = study["regret"].policies
    for name, heading in (("regret", "mean regret"), ("time", "us per round")):
        headings = [heading, *(policy.label for policy in policies)]
        rows = [[f"({d}) {n}", *_cells(study[name], (d, n), policies, name)] for d, n in study["regret"].places]
        print_table(headings, rows)


def _cells(experiment: Experiment, place: tuple[Any, str], policies: Sequence[PolicySpec], name: str) -> Iterator[str]:
    for policy in policies:
        runs = experiment[*place, str(policy)]
        yield f"{runs.regret.mean():,.0f}" if name == "regret" else f"{runs.microseconds.mean():,.2f}"


def own_table(study: Mapping[str, Experiment]) -> None:
    """One line per policy, from the least mean regret to the largest."""
    rows = []
    for key, runs in sorted(study["regret"].items(), key=lambda item: item[1].regret.mean()):
        band, timed = interval(runs.regret), study["time"][key]
        shown = "-" if np.isnan(band.low) else f"{band.low:,.1f} .. {band.high:,.1f}"
        times = [f"{timed.microseconds.mean():,.2f}", f"{1e3 * timed.warmup_seconds.mean():,.2f}"]
        rows.append([key[-1], f"{band.mean:,.1f}", shown, *times])
    print_table(["policy", "regret", "95 % interval", "us/round", "warm-up ms"], rows)


def beyond_table(rows: Sequence[Row]) -> None:
    """One line per set: regret of multi-scale, its best rival, the ratio and its upper end at the end; and time."""
    headings = ["set", "norm", "best rival", "multi-scale", "its regret", "ratio", "upper", "time"]
    shown = []
    for row in rows:
        at = row.reaches[-1]
        cells = [row.scene, row.normalize, short(at.best)]
        cells += [f"{at.regrets[name]:,.0f}" for name in (str(OURS), at.best)]
        shown.append([*cells, f"{at.ratio:.2f}", f"{at.upper:.2f}", number(row.times)])
    print_table(headings, shown, left=3)
    print(textwrap.fill(sentence(rows), WIDTH))


def verdict_table(verdicts: Iterable[Verdict]) -> None:
    """One line per claim, more where the verdict is long."""
    print_table(["claim", "verdict"], [[verdict.claim.id, verdict.text] for verdict in verdicts], left=2)
