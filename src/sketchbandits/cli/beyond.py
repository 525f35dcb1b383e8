"""``sketchbandits beyond``: multi-scale CS-LB against the best of its rivals."""

from typing import Annotated

from sketchbandits.cli.experiment import played
from sketchbandits.cli.flags import JOBS, SEED, bad_values_refused, flag, whole
from sketchbandits.cli.tables import beyond_table
from sketchbandits.lab import outputs
from sketchbandits.lab.paper import beyond

DEFAULTS = beyond.BeyondPlan()


def command(
    rounds: Annotated[str, flag("N", "The length of every run.", f"{DEFAULTS.rounds:,}")] = str(DEFAULTS.rounds),
    runs: Annotated[str, flag("N", "Runs, each with new arms, parameter and noise.", DEFAULTS.runs)] = str(
        DEFAULTS.runs
    ),
    seed: Annotated[str, SEED] = str(DEFAULTS.seed),
    jobs: Annotated[str | None, JOBS] = None,
    out: Annotated[str, flag("DIR", "The folder for all results.", "results/beyond")] = "results/beyond",
) -> None:
    """Compare multi-scale CS-LB with its best rival on nine data sets: the table of docs/multiscale.md.

    Ctrl-C keeps finished runs; the same command continues from them. Times are wall-clock: leave the machine alone.
    """
    with bad_values_refused():
        plan = beyond.BeyondPlan(rounds=whole(rounds), runs=whole(runs), seed=whole(seed))
    with played(plan, out, jobs) as (folder, study):
        rows = beyond.table(study)
        files = {"table.md": beyond.markdown(rows).encode()}
        files |= outputs.render({"frontier": beyond.frontier_figure(study)})
        outputs.write_together(folder, files)
    beyond_table(rows)
    print(f"Wrote {', '.join(files)}, to\n{folder}")
