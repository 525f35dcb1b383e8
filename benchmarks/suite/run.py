"""Carry a benchmark out: measure what the journal does not hold yet, then write and hand back what it says."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sketchbandits import validate
from sketchbandits.lab.journal import Journal
from sketchbandits.lab.outputs import render, write_together
from sketchbandits.progress import Watch
from suite.journal import key_of, measured
from suite.machine import machine
from suite.workload import Measured, Point, Session, Summary, Workload
from suite.workloads import PEERS, WORKLOADS

JOURNAL = "points.jsonl"
MEASURING = "measuring"


@dataclass(frozen=True)
class BenchPlan:
    """Which workloads (none: all), at which sizes, with or without other libraries, from which seed."""

    workloads: tuple[str, ...] = ()
    quick: bool = False
    peers: bool = False
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be measured, naming the argument."""
        validate.whole("seed", self.seed, least=0)
        for name in self.workloads:
            if name not in WORKLOADS and not (self.peers and name == PEERS.name):
                allowed = f"{', '.join(WORKLOADS)} (or {PEERS.name} with --peers)"
                raise ValueError(f"WORKLOAD must be some of {allowed}, got {name!r}")

    def chosen(self, catalogue: Mapping[str, Workload] = WORKLOADS) -> list[Workload]:
        """The workloads, in the order of the catalogue; other libraries come last."""
        wanted = self.workloads or tuple(catalogue)
        found = [workload for name, workload in catalogue.items() if name in wanted]
        return [*found, PEERS] if self.peers else found


@dataclass(frozen=True)
class Report:
    """A workload, what it says, and where it was measured."""

    workload: Workload
    summary: Summary
    machine: dict[str, str]


def carry_out(
    plan: BenchPlan, folder: Path, watch: Watch, *, fresh: bool = False, catalogue: Mapping[str, Workload] = WORKLOADS
) -> list[Report]:
    """Every workload in turn: its points from the journal where they are there, its files as soon as it is done."""
    described, reports = machine(), []
    journal = Journal(folder / JOURNAL)
    points = {workload.name: _points(plan, workload) for workload in plan.chosen(catalogue)}
    if fresh:
        journal.forget({key for part in points.values() for key in part})
    known = measured(journal)
    meter = _Meter(points, known, watch)
    for workload in plan.chosen(catalogue):
        points_of_it = []
        for key, point in points[workload.name].items():
            if key not in known:
                session = Session(plan.seed, folder / workload.name, meter.inside(workload, point))
                known[key] = workload.measure(point.parameters, session)
                entry = {"workload": workload.name, "parameters": point.parameters, "samples": known[key]}
                journal.append({"key": key, **entry})
                meter.done += point.seconds
            points_of_it.append(Measured(point.parameters, known[key]))
        summary = workload.summarise(points_of_it)
        write_together(folder, _files(plan, workload, summary, points_of_it, described))
        reports.append(Report(workload, summary, described))
    return reports


def _points(plan: BenchPlan, workload: Workload) -> dict[str, Point]:
    points = workload.points(workload.quick if plan.quick else workload.full)
    return {key_of(workload.name, p.parameters, quick=plan.quick, seed=plan.seed): p for p in points}


class _Meter:
    """How far all workloads are, as a share of the seconds expected."""

    def __init__(self, points: Mapping[str, Mapping[str, Point]], known: Mapping[str, Any], watch: Watch) -> None:
        missing = [point for part in points.values() for key, point in part.items() if key not in known]
        self.total, self.done, self.watch = sum(point.seconds for point in missing), 0.0, watch

    def inside(self, workload: Workload, point: Point) -> Callable[[str, float], None]:
        """Show that a point begins; call the result with what is being done and the share of the point that is done."""

        def show(what: str, share: float) -> None:
            done = self.done + point.seconds * min(max(share, 0.0), 1.0)
            self.watch(MEASURING, f"{workload.name}, {what}", done / self.total)

        show(point.label, 0.0)
        return show


def _files(
    plan: BenchPlan, workload: Workload, summary: Summary, measured: list[Measured], described: dict[str, str]
) -> dict[str, bytes]:
    """One JSON with everything, one figure in two formats."""
    report = {"workload": workload.name, "machine": described, "quick": plan.quick, "seed": plan.seed}
    table = {"headings": summary.headings, "rows": summary.rows, "notes": summary.notes}
    everything = {**report, **summary.facts, "table": table, "points": [each._asdict() for each in measured]}
    figure = render({workload.name: workload.draw(summary.facts)})
    return {f"{workload.name}.json": json.dumps(everything, indent=1).encode(), **figure}
