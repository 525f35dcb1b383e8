"""``sketchbandits inspect``: facts about arms before the first round, and which policy suits them."""

import contextlib
from typing import Annotated, Any

import typer

from sketchbandits.arms_file import read_arms
from sketchbandits.cli import terminal
from sketchbandits.cli.flags import (
    DELTA,
    FEATURES,
    ID_COLUMN,
    THETA_NORM,
    bad_values_refused,
    features_of,
    flag,
    number,
    whole,
    wholes,
)
from sketchbandits.lab import outputs
from sketchbandits.lab.advice import Advice, advise
from sketchbandits.lab.advice.files import advice_files
from sketchbandits.lab.paper import setting as paper
from sketchbandits.progress import stages


def command(
    arms: Annotated[str, typer.Argument(metavar="ARMS", help="Your arms, one per row: .npy, .csv or .parquet.")],
    rounds: Annotated[str, flag("N", "How many rounds will be played.", f"{paper.HORIZON:,}")] = str(paper.HORIZON),
    budget_us: Annotated[str | None, flag("X", "Microseconds that a round may take on average.", "no limit")] = None,
    id_column: Annotated[str | None, ID_COLUMN] = None,
    features: Annotated[str | None, FEATURES] = None,
    sketch_sizes: Annotated[str | None, flag("L,L", "Sketch sizes to try.", "small ones, doublings, the rank")] = None,
    ridge: Annotated[str, flag("X", "The ridge, lambda, but for MultiscaleCSLB, which chooses its own.", 1)] = "1",
    noise: Annotated[str, flag("X", "The scale R of the noise.", 1)] = "1",
    theta_norm: Annotated[str, THETA_NORM] = "1",
    delta: Annotated[str, DELTA] = "0.01",
    seed: Annotated[str, flag("N", "Draws samples where arms are too many.", 0)] = "0",
    out: Annotated[str | None, flag("DIR", "A folder for the report, its numbers and a figure.", "none")] = None,
) -> None:
    """Inspect arms before the first round: what they are like, which policy suits them.

    Spectrum, copies, parallel arms, clusters for every sketch size, and what each policy would cost and guarantee.
    """
    given = {"budget_us": budget_us, "ridge": ridge, "noise": noise, "theta_norm": theta_norm, "delta": delta}
    options: dict[str, Any] = {name: number(text) for name, text in given.items() if text is not None}
    options |= {"rounds": whole(rounds), "seed": whole(seed)}
    options |= {} if sketch_sizes is None else {"sketch_sizes": wholes(sketch_sizes)}
    try:
        advice = _advice(arms, id_column, features, options)
        print(advice.text(), end="")
        if out is not None:
            folder = terminal.output_folder(out)
            with terminal.disk_errors_refused(folder):
                outputs.write_together(folder, advice_files(advice))
            print(f"\nWrote advice.txt, advice.json and advice.png, to\n{folder}")
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, "interrupted: nothing was written")
    except MemoryError as error:
        terminal.out_of_memory(error)


def _advice(arms: str, id_column: str | None, features: str | None, options: dict[str, Any]) -> Advice:
    with contextlib.ExitStack() as checks, stages() as watch:
        checks.enter_context(bad_values_refused(arms="ARMS"))
        with terminal.unreadable_files_refused():
            table = read_arms(arms, id_column=id_column, features=features_of(features))

        def show(share: float, what: str) -> None:
            checks.close()  # `advise` checks all values before it begins: a later error is one in the library
            watch("inspecting", what, share)

        return advise(table.arms, progress=show, features=table.features, ids=table.ids, **options)
