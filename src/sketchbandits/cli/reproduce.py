"""``sketchbandits reproduce``: the paper's experiments and a verdict on each of its claims."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from sketchbandits.cli.experiment import Presentation, carry_out
from sketchbandits.cli.flags import JOBS, POLICY_NAMES, bad_values_refused, flag, whole, wholes, words
from sketchbandits.cli.tables import paper_tables
from sketchbandits.environments.generators import NORMALIZATIONS
from sketchbandits.lab import report
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.claims import CLAIMS
from sketchbandits.lab.paper.reproduce import QUICK, TIMED_RUNS, PaperPlan
from sketchbandits.lab.report import figures
from sketchbandits.policies.registry import parse_policies

DEFAULTS = PaperPlan()


# Values arrive as text and are checked by the plan; None stands for the default, which --quick changes.
def command(
    rounds: Annotated[str | None, flag("N", "The length of every run.", f"{DEFAULTS.rounds:,}")] = None,
    runs: Annotated[
        str | None, flag("N", f"Runs, each with new arms, parameter and noise; {TIMED_RUNS} are timed.", DEFAULTS.runs)
    ] = None,
    datasets: Annotated[str | None, flag("1,2,3,4", "The paper's data sets.", "all four")] = None,
    policies: Annotated[str | None, flag("NAME,NAME", POLICY_NAMES, ",".join(paper.SHOWN))] = None,
    normalize: Annotated[str | None, flag("max|unit|both", "How arms are scaled.", "both")] = None,
    seed: Annotated[str | None, flag("N", "The same seed gives the same regrets.", DEFAULTS.seed)] = None,
    jobs: Annotated[str | None, JOBS] = None,
    out: Annotated[str, flag("DIR", "The folder for all results.", "results/paper")] = "results/paper",
    quick: Annotated[
        bool, typer.Option("--quick", help="A preview: fewer and shorter runs, max norm, no verdicts.")
    ] = False,
) -> None:
    """Reproduce the CS-LB paper: four experiments, figures, a verdict on every claim.

    Ctrl-C keeps finished runs; the same command continues from them. Times are wall-clock: leave the machine alone.
    """
    both = ",".join(NORMALIZATIONS) if normalize == "both" else normalize
    given: dict[str, Any] = dict(QUICK) if quick else {}
    with bad_values_refused():
        readers: dict[str, Callable[[str], Any]] = {"rounds": whole, "runs": whole, "seed": whole}
        readers |= {"datasets": wholes, "policies": parse_policies, "normalize": words}
        texts = (rounds, runs, seed, datasets, policies, both)
        given |= {name: readers[name](text) for name, text in zip(readers, texts, strict=True) if text is not None}
        plan = PaperPlan(**given)
        plan.check()
    carry_out(plan, Presentation(CLAIMS, figures.paper_figures, report.paper_report, paper_tables), out, jobs)
