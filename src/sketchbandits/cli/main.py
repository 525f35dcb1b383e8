"""The command line: ``sketchbandits reproduce``, ``simulate``, ``inspect``, and the service's commands.

Exit codes: 0 done, 1 a file or folder could not be read or written, 2 bad input, 130 interrupted. Whatever goes wrong
is one line on stderr. Results go to stdout, progress to stderr.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from sketchbandits import __version__, validate
from sketchbandits.arms_file import read_arms
from sketchbandits.cli import service as cli_service
from sketchbandits.cli import terminal
from sketchbandits.cli.flags import bad_values_refused, flag, number, whole, wholes, words
from sketchbandits.environments.generators import NORMALIZATIONS
from sketchbandits.lab import figures, outputs, own_case, report
from sketchbandits.lab.advice import advise
from sketchbandits.lab.advice.report import advice_files
from sketchbandits.lab.paper import beyond
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.claims import CLAIMS, Claim, judge
from sketchbandits.lab.paper.reproduce import QUICK, PaperPlan
from sketchbandits.lab.pool import WRITING, play_all, usable_cores
from sketchbandits.lab.runs import Journal
from sketchbandits.lab.scenes import Model
from sketchbandits.lab.study import Plan
from sketchbandits.policies.registry import POLICIES, parse_policies

DEFAULTS, BEYOND = PaperPlan(), beyond.BeyondPlan()
JOURNAL = "runs.jsonl"
INTERRUPTED = "interrupted: finished runs are kept, the same command goes on from there"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """The console entry."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± or µ is no reason to fail
    try:
        sys.exit(app(standalone_mode=False))
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, INTERRUPTED)
    except Exception as error:
        # Typer's own refusals, such as an unknown option. Their class differs: some versions bring their own Click.
        if not hasattr(error, "format_message"):
            raise
        terminal.stop(terminal.BAD_INPUT, error.format_message())


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"sketchbandits {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Linear bandits under a fixed compute budget."""


_POLICIES = f"Some of {', '.join(POLICIES)}, or all; name:option=value gives one its own options."
_JOBS = flag("N", "Processes that play at the same time; times are taken alone.", "all cores")


# Values arrive as text and are checked by the plan; None stands for the default, which --quick changes.
@app.command("reproduce")
def reproduce_command(
    rounds: Annotated[str | None, flag("N", "The length of every run.", f"{DEFAULTS.rounds:,}")] = None,
    runs: Annotated[str | None, flag("N", "Runs, each with new arms, parameter and noise.", DEFAULTS.runs)] = None,
    datasets: Annotated[str | None, flag("1,2,3,4", "The paper's data sets.", "all four")] = None,
    policies: Annotated[str | None, flag("NAME,NAME", _POLICIES, ",".join(paper.SHOWN))] = None,
    normalize: Annotated[str | None, flag("max|unit|both", "How arms are scaled.", "both")] = None,
    seed: Annotated[str | None, flag("N", "The same seed gives the same regrets.", DEFAULTS.seed)] = None,
    jobs: Annotated[str | None, _JOBS] = None,
    out: Annotated[str, flag("DIR", "The folder for all results.", "results/paper")] = "results/paper",
    quick: Annotated[bool, typer.Option("--quick", help="A first look: fewer and shorter runs, max norm.")] = False,
) -> None:
    """Reproduce the CS-LB paper: four experiments, figures, a verdict on every claim.

    Ctrl-C keeps finished runs; the same command goes on from them. Times are wall-clock: leave the machine alone.
    """
    both = ",".join(NORMALIZATIONS) if normalize == "both" else normalize
    given: dict[str, Any] = dict(QUICK) if quick else {}
    with bad_values_refused():
        texts: dict[str, Callable[[str], Any]] = {"rounds": whole, "runs": whole, "seed": whole}
        texts |= {"datasets": wholes, "policies": parse_policies, "normalize": words}
        values = (rounds, runs, seed, datasets, policies, both)
        given |= {name: texts[name](value) for name, value in zip(texts, values, strict=True) if value is not None}
        plan = PaperPlan(**given)
        plan.check()
    _carry_out(plan, _Kind(CLAIMS, figures.paper_figures, report.paper_report, terminal.wide_table), out, jobs)


@app.command("beyond")
def beyond_command(
    rounds: Annotated[str, flag("N", "The length of every run.", f"{BEYOND.rounds:,}")] = str(BEYOND.rounds),
    runs: Annotated[str, flag("N", "Runs, each with new arms, parameter and noise.", BEYOND.runs)] = str(BEYOND.runs),
    seed: Annotated[str, flag("N", "The same seed gives the same regrets.", BEYOND.seed)] = str(BEYOND.seed),
    jobs: Annotated[str | None, _JOBS] = None,
    out: Annotated[str, flag("DIR", "The folder for all results.", "results/beyond")] = "results/beyond",
) -> None:
    """Hold multi-scale CS-LB against the best of its rivals on nine data sets: the table of docs/multiscale.md.

    Ctrl-C keeps finished runs; the same command goes on from them. Times are wall-clock: leave the machine alone.
    """
    with bad_values_refused():
        plan = beyond.BeyondPlan(rounds=whole(rounds), runs=whole(runs), seed=whole(seed))
    with _playing(plan, out, jobs) as (folder, study):
        rows = beyond.table(study)
        files = {"table.md": beyond.markdown(rows).encode()}
        files |= figures.render({"frontier": beyond.frontier_figure(study)})
        outputs.write_together(folder, files)
    terminal.beyond_table(rows)
    print(f"Wrote {', '.join(files)}, to\n{folder}")


@app.command("simulate")
def simulate_command(
    policies: Annotated[str, flag("NAME,NAME", _POLICIES, "cslb,oful,ucb1")] = "cslb,oful,ucb1",
    arms: Annotated[str | None, flag("FILE", "Your arms, one a row: .npy, .csv or .parquet.")] = None,
    id_column: Annotated[str | None, flag("NAME", "The column of the file that names the arms.")] = None,
    features: Annotated[str | None, flag("NAME,NAME", "The columns that are features.", "all others")] = None,
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
    sketch_size: Annotated[str, flag("L", "For policies that have one and are not given their own.", 5)] = "5",
    ridge: Annotated[str, flag("X", "The ridge, lambda.", 1)] = "1",
    noise: Annotated[str, flag("X", "The scale R of the truncated Gaussian noise.", 1)] = "1",
    theta_norm: Annotated[str, flag("X", "The bound S on the parameter's norm.", 1)] = "1",
    delta: Annotated[str, flag("X", "The failure probability.", 0.01)] = "0.01",
    rounds: Annotated[str, flag("N", "The length of every run.", "20,000")] = "20000",
    runs: Annotated[str, flag("N", "Runs, each with a new parameter and new noise.", 5)] = "5",
    seed: Annotated[str, flag("N", "The same seed gives the same regrets.", 0)] = "0",
    jobs: Annotated[str | None, _JOBS] = None,
    out: Annotated[str, flag("DIR", "The folder for all results.", "results/simulate")] = "results/simulate",
) -> None:
    """Compare policies on your own arms, or on generated ones.

    The policy named first is judged against the others. The files are those of `reproduce`.
    """
    sizes = {"n_arms": n_arms, "dim": dim, "group_size": group_size, "n_subspaces": n_subspaces, "rank": rank}
    options: dict[str, Any] = {name: whole(text) for name, text in sizes.items() if text is not None}
    if decay is not None:
        options["decay"] = number(decay)
    with bad_values_refused():
        numbers = {"ridge": ridge, "noise": noise, "theta_norm": theta_norm, "delta": delta}
        model = Model(whole(sketch_size), **{name: number(text) for name, text in numbers.items()})
        if arms is None:
            _refuse_without_arms(id_column=id_column, features=features, theta=theta)
            scene: Any = own_case.generated_scene(model, generator or "correlated", options, normalize or "max")
        else:
            _refuse_with_arms(generator=generator, **options)
            columns = None if features is None else words(features)
            with terminal.unreadable_files_refused():
                scene = own_case.file_scene(model, arms, id_column, columns, theta, normalize or "none")
        specs = parse_policies(policies)
        plan = own_case.OwnPlan(scene=scene, policies=specs, rounds=whole(rounds), runs=whole(runs), seed=whole(seed))
        plan.check()
    shown = _Kind(own_case.claims(plan), figures.own_figures, report.own_report, terminal.long_table)
    _carry_out(plan, shown, out, jobs)


@app.command("inspect")
def inspect_command(
    arms: Annotated[str, typer.Argument(metavar="ARMS", help="Your arms, one a row: .npy, .csv or .parquet.")],
    rounds: Annotated[str, flag("N", "How long will be played.", f"{paper.HORIZON:,}")] = str(paper.HORIZON),
    budget_us: Annotated[str | None, flag("X", "Microseconds that a round may take on average.", "no limit")] = None,
    id_column: Annotated[str | None, flag("NAME", "The column of the file that names the arms.")] = None,
    features: Annotated[str | None, flag("NAME,NAME", "The columns that are features.", "all others")] = None,
    sketch_sizes: Annotated[str | None, flag("L,L", "Sketch sizes to try.", "small ones, doublings, the rank")] = None,
    ridge: Annotated[str, flag("X", "The ridge, lambda.", 1)] = "1",
    noise: Annotated[str, flag("X", "The scale R of the noise.", 1)] = "1",
    theta_norm: Annotated[str, flag("X", "The bound S on the parameter's norm.", 1)] = "1",
    delta: Annotated[str, flag("X", "The failure probability.", 0.01)] = "0.01",
    seed: Annotated[str, flag("N", "Draws samples where arms are too many.", 0)] = "0",
    out: Annotated[str | None, flag("DIR", "A folder for the report, its numbers and a figure.", "none")] = None,
) -> None:
    """Look at arms before the first round: what they are like, which policy suits them.

    Spectrum, copies, parallel arms, clusters for every sketch size, and what each policy would cost and guarantee.
    """
    given = {"budget_us": budget_us, "ridge": ridge, "noise": noise, "theta_norm": theta_norm, "delta": delta}
    options: dict[str, Any] = {name: number(text) for name, text in given.items() if text is not None}
    options |= {"rounds": whole(rounds), "seed": whole(seed)}
    if sketch_sizes is not None:
        options["sketch_sizes"] = wholes(sketch_sizes)
    try:
        with bad_values_refused(argument="arms"), terminal.progress() as watch:
            with terminal.unreadable_files_refused():
                table = read_arms(arms, id_column=id_column, features=None if features is None else words(features))
            options |= {"features": table.features, "ids": table.ids}
            advice = advise(table.arms, progress=lambda share, what: watch("inspecting", what, share), **options)
        print(advice.text(), end="")
        if out is not None:
            folder = _folder(out)
            with terminal.disk_errors_refused(folder):
                outputs.write_together(folder, advice_files(advice))
            terminal.wrote_advice(folder)
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, "interrupted: nothing was written")


app.command("serve")(cli_service.serve_command)
app.add_typer(cli_service.keys_app, name="keys")
app.command("log")(cli_service.log_command)
app.command("replay")(cli_service.replay_command)


class _Kind(NamedTuple):
    """What differs between the two commands once their plan is made."""

    claims: tuple[Claim, ...]
    figures: Callable[..., Any]
    report: Callable[..., bytes]
    table: Callable[..., None]


def _carry_out(plan: Plan, kind: _Kind, out: str, jobs: str | None) -> None:
    """Play, judge, write, show."""
    with _playing(plan, out, jobs) as (folder, study):
        verdicts = [judge(claim, study) for claim in kind.claims]
        drawn = figures.render(kind.figures(plan, study))
        files = outputs.table_files(study, verdicts) | drawn
        files["report.html"] = kind.report(plan, study, verdicts, drawn)
        outputs.write_together(folder, files)
    _show(plan, kind, study, verdicts)
    terminal.wrote(folder, list(files))


@contextlib.contextmanager
def _playing(plan: Plan, out: str, jobs: str | None) -> Iterator[tuple[Path, Any]]:
    """The folder and the played study; what is written inside is under the same care as the play."""
    with bad_values_refused():
        processes = usable_cores() if jobs is None else validate.whole("jobs", whole(jobs), most=1024)
    try:
        folder = _folder(out)
        with terminal.progress() as watch, terminal.disk_errors_refused(folder):
            with bad_values_refused():  # such as a file of arms that changes while it is played
                outcomes = play_all(plan.tasks(), Journal(folder / JOURNAL), jobs=processes, watch=watch)
            watch(WRITING, "figures, tables, report", 1.0)
            yield folder, plan.study(outcomes)
    except KeyboardInterrupt:  # not in `main` alone: Typer would turn it into a silent exit
        terminal.stop(terminal.INTERRUPTED, INTERRUPTED)
    except BrokenProcessPool:
        message = "a process was killed, perhaps for want of memory: finished runs are kept; try fewer --jobs"
        terminal.stop(terminal.IO_ERROR, message)


def _show(plan: Plan, kind: _Kind, study: Any, verdicts: Any) -> None:
    runs = "1 run" if plan.runs == 1 else f"{plan.runs} runs"
    print(f"{plan.rounds:,} rounds, {runs}, seed {plan.seed}")
    kind.table(study)
    terminal.verdict_table(verdicts)
    if isinstance(plan, PaperPlan) and plan.rounds < paper.HORIZON:
        print(f"A short run can flatter sketches: the paper's claims need about {paper.HORIZON:,} rounds.")


def _folder(out: str) -> Path:
    """The folder, there and writable: better refused now than after the last round."""
    if not out:
        terminal.stop(terminal.BAD_INPUT, "--out must be the path of a folder, got ''")
    folder = Path(out)
    with terminal.disk_errors_refused(folder):
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    return folder


def _refuse_without_arms(**flags: Any) -> None:
    for name, value in flags.items():
        if value is not None:
            raise ValueError(f"{name} must come with --arms, got {value!r} without")


def _refuse_with_arms(**flags: Any) -> None:
    for name, value in flags.items():
        if value is not None:
            raise ValueError(f"{name} must be left out where --arms is given, got {value!r}")
