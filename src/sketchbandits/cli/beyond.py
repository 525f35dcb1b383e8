"""``sketchbandits beyond``: multi-scale CS-LB against the best rival with a guarantee."""

from typing import Annotated

from sketchbandits.cli.experiment import played
from sketchbandits.cli.flags import JOBS, bad_values_refused, flag, whole
from sketchbandits.cli.tables import beyond_table
from sketchbandits.lab import outputs
from sketchbandits.lab.paper.beyond.figures import frontier_figure, ratio_figure
from sketchbandits.lab.paper.beyond.plan import BeyondPlan
from sketchbandits.lab.paper.beyond.rows import table
from sketchbandits.lab.paper.beyond.tables import all_regrets, markdown

DEFAULTS = BeyondPlan()


def command(
    rounds: Annotated[str, flag("N", "The length of every run.", f"{DEFAULTS.rounds:,}")] = str(DEFAULTS.rounds),
    runs: Annotated[str, flag("N", "Runs, each with new arms, parameter and noise.", DEFAULTS.runs)] = str(
        DEFAULTS.runs
    ),
    seed: Annotated[str, flag("N", "Draws the sets and seeds the runs.", DEFAULTS.seed)] = str(DEFAULTS.seed),
    sets: Annotated[str | None, flag("N", "Only the first N sets of every family.", "all")] = None,
    jobs: Annotated[str | None, JOBS] = None,
    out: Annotated[str, flag("DIR", "The folder for all results.", "results/beyond")] = "results/beyond",
) -> None:
    """Compare multi-scale CS-LB with its best rival on sets of arms drawn by the seed: the table of docs/multiscale.md.

    Ctrl-C keeps finished runs; the same command continues from them. Times are wall-clock: leave the machine alone.
    """
    with bad_values_refused():
        most = None if sets is None else whole(sets)
        plan = BeyondPlan(rounds=whole(rounds), runs=whole(runs), seed=whole(seed), sets=most)
    with played(plan, out, jobs) as (folder, study):
        rows = table(study, plan.arm_sets)
        files = {"table.md": markdown(study, plan.arm_sets).encode(), "regrets.md": all_regrets(rows).encode()}
        files |= outputs.render({"ratios": ratio_figure(rows), "frontier": frontier_figure(study)})
        outputs.write_together(folder, files)
    beyond_table(rows)
    print(f"Wrote {', '.join(files)}, to\n{folder}")
