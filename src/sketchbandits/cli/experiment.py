"""Carrying out a plan, for `reproduce`, `beyond` and `simulate`: play, judge, write, show."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, NamedTuple

from sketchbandits import validate
from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, whole
from sketchbandits.cli.tables import verdict_table
from sketchbandits.lab import outputs
from sketchbandits.lab.experiments.pool import WRITING, play_all, usable_cores
from sketchbandits.lab.experiments.run_journal import RunJournal
from sketchbandits.lab.experiments.scenes import ArmsChangedError
from sketchbandits.lab.experiments.study import Plan
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.claims import Claim, judged
from sketchbandits.lab.paper.reproduce import PaperPlan
from sketchbandits.lab.report.result_files import table_files
from sketchbandits.progress import stages

JOURNAL = "runs.jsonl"
INTERRUPTED = "interrupted: finished runs are kept, the same command continues from there"
KILLED = "a process was killed, perhaps because memory ran out: finished runs are kept; try fewer --jobs"


class Presentation(NamedTuple):
    """What is judged, drawn, written and printed once a plan has been played."""

    claims: tuple[Claim, ...]
    figures: Callable[..., Any]
    report: Callable[..., bytes]
    table: Callable[..., None]


def carry_out(plan: Plan, shown: Presentation, out: str, jobs: str | None) -> None:
    """Play, judge, write, show."""
    with played(plan, out, jobs) as (folder, study):
        verdicts = judged(shown.claims, plan, study)
        drawn = outputs.render(shown.figures(plan, study))
        files = table_files(study, verdicts) | drawn
        files["report.html"] = shown.report(plan, study, verdicts, drawn)
        outputs.write_together(folder, files)
    print(f"{plan.rounds:,} rounds, {'1 run' if plan.runs == 1 else f'{plan.runs} runs'}, seed {plan.seed}")
    shown.table(study)
    verdict_table(verdicts)
    if plan.unjudged:
        print("A quick run is for a first impression: it judges no claim. Leave out --quick for verdicts.")
    elif isinstance(plan, PaperPlan) and plan.rounds < paper.HORIZON:
        print(f"A short run can flatter sketches: the paper's claims need about {paper.HORIZON:,} rounds.")
    print(f"Wrote {len(files)} files. The page to open in a browser:\n{folder / 'report.html'}")


@contextlib.contextmanager
def played(plan: Plan, out: str, jobs: str | None) -> Iterator[tuple[Path, Any]]:
    """The folder and the played study; errors of the disk are refused inside as well.

    The plan has been checked: a `ValueError` from here on is an error in the library and keeps its traceback.
    """
    with bad_values_refused():
        processes = usable_cores() if jobs is None else validate.whole("jobs", whole(jobs), most=1024)
    try:
        folder = terminal.output_folder(out)
        with stages() as watch, terminal.disk_errors_refused(folder):
            outcomes = play_all(plan.tasks(), RunJournal(folder / JOURNAL), jobs=processes, watch=watch)
            watch(WRITING, "figures, tables, report", 1.0)
            yield folder, plan.study(outcomes)
    except KeyboardInterrupt:  # not in `main` alone: Typer would turn it into a silent exit
        terminal.stop(terminal.INTERRUPTED, INTERRUPTED)
    except BrokenProcessPool:
        terminal.stop(terminal.IO_ERROR, KILLED)
    except ArmsChangedError as error:
        terminal.stop(terminal.BAD_INPUT, f"--{error}")
    except MemoryError as error:
        terminal.out_of_memory(error)
