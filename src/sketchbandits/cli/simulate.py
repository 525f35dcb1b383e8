"""``sketchbandits simulate``: policies compared on the user's own arms, or on generated ones."""

from typing import Annotated, Any

from sketchbandits.cli import terminal
from sketchbandits.cli.experiment import Presentation, carry_out
from sketchbandits.cli.flags import (
    DELTA,
    FEATURES,
    ID_COLUMN,
    JOBS,
    POLICY_NAMES,
    RIDGE,
    SEED,
    THETA_NORM,
    bad_values_refused,
    features_of,
    flag,
    number,
    whole,
)
from sketchbandits.cli.tables import own_table
from sketchbandits.lab import own_case, report
from sketchbandits.lab.experiments.scenes import Model
from sketchbandits.lab.report import figures
from sketchbandits.policies.registry import parse_policies


def command(
    policies: Annotated[str, flag("NAME,NAME", POLICY_NAMES, "cslb,oful,ucb1")] = "cslb,oful,ucb1",
    arms: Annotated[str | None, flag("FILE", "Your arms, one per row: .npy, .csv or .parquet.")] = None,
    id_column: Annotated[str | None, ID_COLUMN] = None,
    features: Annotated[str | None, FEATURES] = None,
    theta: Annotated[str | None, flag("FILE", "The true parameter, .npy; else drawn for each run.")] = None,
    normalize: Annotated[str | None, flag("none|max|unit", "How arms are scaled.", "none; max if generated")] = None,
    generator: Annotated[
        str | None, flag("NAME", "Without a file: correlated, heavy-tailed or subspaces.", "correlated")
    ] = None,
    n_arms: Annotated[str | None, flag("N", "Arms to generate.", 60)] = None,
    dim: Annotated[str | None, flag("D", "Their dimension.", 50)] = None,
    group_size: Annotated[str | None, flag("M", "correlated: arms that share a direction.", 1)] = None,
    decay: Annotated[str | None, flag("X", "heavy-tailed: how fast the spectrum falls.", 0.5)] = None,
    n_subspaces: Annotated[str | None, flag("K", "subspaces: how many.", 5)] = None,
    rank: Annotated[str | None, flag("R", "subspaces: the dimension of each.", 4)] = None,
    sketch_size: Annotated[str, flag("L", "Of policies that have one; multi-scale CS-LB chooses its own.", 5)] = "5",
    ridge: Annotated[str, RIDGE] = "1",
    noise: Annotated[str, flag("X", "The scale R of the truncated Gaussian noise.", 1)] = "1",
    theta_norm: Annotated[str, THETA_NORM] = "1",
    delta: Annotated[str, DELTA] = "0.01",
    rounds: Annotated[str, flag("N", "The length of every run.", "20,000")] = "20000",
    runs: Annotated[str, flag("N", "Runs, each with a new parameter and new noise.", 5)] = "5",
    seed: Annotated[str, SEED] = "0",
    jobs: Annotated[str | None, JOBS] = None,
    out: Annotated[str, flag("DIR", "The folder for all results.", "results/simulate")] = "results/simulate",
) -> None:
    """Compare policies on your own arms, or on generated ones.

    The policy named first is judged against the others. The files are those of `reproduce`.
    """
    sizes = {"n_arms": n_arms, "dim": dim, "group_size": group_size, "n_subspaces": n_subspaces, "rank": rank}
    options: dict[str, Any] = {name: whole(text) for name, text in sizes.items() if text is not None}
    options |= {} if decay is None else {"decay": number(decay)}
    with bad_values_refused():
        numbers = {"ridge": ridge, "noise": noise, "theta_norm": theta_norm, "delta": delta}
        model = Model(whole(sketch_size), **{name: number(text) for name, text in numbers.items()})
        if arms is None:
            _refuse("must come with --arms", id_column=id_column, features=features, theta=theta)
            scene: Any = own_case.generated_scene(model, generator or "correlated", options, normalize or "max")
        else:
            _refuse("must be left out where --arms is given", generator=generator, **options)
            with terminal.unreadable_files_refused():
                scene = own_case.file_scene(model, arms, id_column, features_of(features), theta, normalize or "none")
        wanted = {"policies": parse_policies(policies), "rounds": whole(rounds), "runs": whole(runs)}
        plan = own_case.OwnPlan(scene=scene, seed=whole(seed), **wanted)
        plan.check()
    shown = Presentation(own_case.claims(plan), figures.own_figures, report.own_report, own_table)
    carry_out(plan, shown, out, jobs)


def _refuse(rule: str, **flags: Any) -> None:
    for name, value in flags.items():
        if value is not None:
            raise ValueError(f"{name} {rule}, got {value!r}")
