"""The command line: ``sketchbandits reproduce``, ``simulate`` and ``bench``.

Exit codes: 0 done, 1 a file or folder could not be read or written, 2 bad input, 130 interrupted. Whatever goes wrong
is one line on stderr. Results go to stdout, progress to stderr.
"""

import contextlib
import io
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from sketchbandits import __version__, terminal, validate
from sketchbandits.bench.run import BenchPlan, carry_out
from sketchbandits.bench.workloads import WORKLOADS
from sketchbandits.environments.arms import NORMALIZATIONS
from sketchbandits.experiments import figures, outputs, own_case, paper, report
from sketchbandits.experiments.claims import CLAIMS, Claim, judge
from sketchbandits.experiments.contenders import KINDS, parse_policies
from sketchbandits.experiments.pool import WRITING, play_all, usable_cores
from sketchbandits.experiments.reproduce import QUICK, PaperPlan
from sketchbandits.experiments.runs import Journal
from sketchbandits.experiments.scenes import Model
from sketchbandits.experiments.study import Plan

DEFAULTS = PaperPlan()
JOURNAL = "runs.jsonl"
INTERRUPTED = "interrupted: finished runs are kept, the same command goes on from there"
POINTS_KEPT = "interrupted: measured points are kept, the same command without --fresh goes on from there"

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


def _flag(metavar: str, text: str, default: Any = "") -> Any:
    """An option that arrives as text: plans check all values, so that every refusal reads alike."""
    return typer.Option(metavar=metavar, help=text, show_default=str(default) if default != "" else False)


_POLICIES = f"Some of {', '.join(KINDS)}, or all; name:option=value gives one its own options."
_JOBS = _flag("N", "Processes that play at the same time; times are taken alone.", "all cores")


# Values arrive as text and are checked by the plan; None stands for the default, which --quick changes.
@app.command("reproduce")
def reproduce_command(
    rounds: Annotated[str | None, _flag("N", "The length of every run.", f"{DEFAULTS.rounds:,}")] = None,
    runs: Annotated[str | None, _flag("N", "Runs, each with new arms, parameter and noise.", DEFAULTS.runs)] = None,
    datasets: Annotated[str | None, _flag("1,2,3,4", "The paper's data sets.", "all four")] = None,
    policies: Annotated[str | None, _flag("NAME,NAME", _POLICIES, ",".join(paper.POLICIES))] = None,
    normalize: Annotated[str | None, _flag("max|unit|both", "How arms are scaled.", "both")] = None,
    seed: Annotated[str | None, _flag("N", "The same seed gives the same regrets.", DEFAULTS.seed)] = None,
    jobs: Annotated[str | None, _JOBS] = None,
    out: Annotated[str, _flag("DIR", "The folder for all results.", "results/paper")] = "results/paper",
    quick: Annotated[bool, typer.Option("--quick", help="A first look: fewer and shorter runs, max norm.")] = False,
) -> None:
    """Reproduce the CS-LB paper: four experiments, figures, a verdict on every claim.

    Ctrl-C keeps finished runs; the same command goes on from them. Times are wall-clock: leave the machine alone.
    """
    both = ",".join(NORMALIZATIONS) if normalize == "both" else normalize
    given: dict[str, Any] = dict(QUICK) if quick else {}
    with _bad_values_refused():
        texts: dict[str, Callable[[str], Any]] = {"rounds": _whole, "runs": _whole, "seed": _whole}
        texts |= {"datasets": _wholes, "policies": parse_policies, "normalize": _words}
        values = (rounds, runs, seed, datasets, policies, both)
        given |= {name: texts[name](value) for name, value in zip(texts, values, strict=True) if value is not None}
        plan = PaperPlan(**given)
        plan.check()
    _carry_out(plan, _Kind(CLAIMS, figures.paper_figures, report.paper_report, terminal.wide_table), out, jobs)


@app.command("simulate")
def simulate_command(
    policies: Annotated[str, _flag("NAME,NAME", _POLICIES, "cslb,oful,ucb1")] = "cslb,oful,ucb1",
    arms: Annotated[str | None, _flag("FILE", "Your arms, one a row: .npy, .csv or .parquet.")] = None,
    id_column: Annotated[str | None, _flag("NAME", "The column of the file that names the arms.")] = None,
    features: Annotated[str | None, _flag("NAME,NAME", "The columns that are features.", "all others")] = None,
    theta: Annotated[str | None, _flag("FILE", "The true parameter, .npy; else drawn for each run.")] = None,
    normalize: Annotated[str | None, _flag("none|max|unit", "How arms are scaled.", "none; max if generated")] = None,
    generator: Annotated[
        str | None, _flag("NAME", "Without a file: correlated, heavy-tailed or subspaces.", "correlated")
    ] = None,
    n_arms: Annotated[str | None, _flag("N", "Arms to generate.", 60)] = None,
    dim: Annotated[str | None, _flag("D", "Their dimension.", 50)] = None,
    group_size: Annotated[str | None, _flag("M", "correlated: arms that share a direction.", 1)] = None,
    decay: Annotated[str | None, _flag("X", "heavy-tailed: how fast the spectrum falls.", 0.5)] = None,
    n_subspaces: Annotated[str | None, _flag("K", "subspaces: how many.", 5)] = None,
    rank: Annotated[str | None, _flag("R", "subspaces: the dimension of each.", 4)] = None,
    sketch_size: Annotated[str, _flag("L", "For policies that have one and are not given their own.", 5)] = "5",
    ridge: Annotated[str, _flag("X", "The ridge, lambda.", 1)] = "1",
    noise: Annotated[str, _flag("X", "The scale R of the truncated Gaussian noise.", 1)] = "1",
    theta_norm: Annotated[str, _flag("X", "The bound S on the parameter's norm.", 1)] = "1",
    delta: Annotated[str, _flag("X", "The failure probability.", 0.01)] = "0.01",
    rounds: Annotated[str, _flag("N", "The length of every run.", "20,000")] = "20000",
    runs: Annotated[str, _flag("N", "Runs, each with a new parameter and new noise.", 5)] = "5",
    seed: Annotated[str, _flag("N", "The same seed gives the same regrets.", 0)] = "0",
    jobs: Annotated[str | None, _JOBS] = None,
    out: Annotated[str, _flag("DIR", "The folder for all results.", "results/simulate")] = "results/simulate",
) -> None:
    """Compare policies on your own arms, or on generated ones.

    The policy named first is judged against the others. The files are those of `reproduce`.
    """
    sizes = {"n_arms": n_arms, "dim": dim, "group_size": group_size, "n_subspaces": n_subspaces, "rank": rank}
    options: dict[str, Any] = {name: _whole(text) for name, text in sizes.items() if text is not None}
    if decay is not None:
        options["decay"] = _number(decay)
    with _bad_values_refused():
        numbers = {"ridge": ridge, "noise": noise, "theta_norm": theta_norm, "delta": delta}
        model = Model(_whole(sketch_size), **{name: _number(text) for name, text in numbers.items()})
        if arms is None:
            _refuse_without_arms(id_column=id_column, features=features, theta=theta)
            scene: Any = own_case.generated_scene(model, generator or "correlated", options, normalize or "max")
        else:
            _refuse_with_arms(generator=generator, **options)
            columns = None if features is None else _words(features)
            with terminal.unreadable_files_refused():
                scene = own_case.file_scene(model, arms, id_column, columns, theta, normalize or "none")
        contenders = parse_policies(policies)
        plan = own_case.OwnPlan(
            scene=scene, policies=contenders, rounds=_whole(rounds), runs=_whole(runs), seed=_whole(seed)
        )
        plan.check()
    shown = _Kind(own_case.claims(plan), figures.own_figures, report.own_report, terminal.long_table)
    _carry_out(plan, shown, out, jobs)


_WORKLOADS = f"Some of {', '.join(WORKLOADS)}; all where none is named."


@app.command("bench")
def bench_command(
    workloads: Annotated[list[str] | None, typer.Argument(metavar="WORKLOAD", help=_WORKLOADS)] = None,
    out: Annotated[str, _flag("DIR", "The folder for all results.", "results/bench")] = "results/bench",
    quick: Annotated[bool, typer.Option("--quick", help="Under a minute: small sizes, to see that it runs.")] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="Other libraries too, each installed into an environment in DIR.")
    ] = False,
    seed: Annotated[str, _flag("N", "The same seed gives the same games.", 0)] = "0",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure everything anew.")] = False,
) -> None:
    """Measure what the library costs: a table, a figure and a JSON file for each workload.

    Ctrl-C keeps measured points; the same command goes on from them. Times are wall-clock: leave the machine alone.
    """
    with _bad_values_refused():
        plan = BenchPlan(tuple(workloads or ()), quick, peers, _whole(seed))
        plan.check()
    try:
        folder = _folder(out)
        with terminal.progress() as watch, terminal.disk_errors_refused(folder):
            reports = carry_out(plan, folder, watch, fresh=fresh)
        terminal.bench_tables(reports)
        terminal.wrote_figures(folder, [report.workload.name for report in reports])
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, POINTS_KEPT)
    except MemoryError as error:
        terminal.stop(terminal.IO_ERROR, f"arms and policies must fit into memory: {error or 'they do not'}")


class _Kind(NamedTuple):
    """What differs between the two commands once their plan is made."""

    claims: tuple[Claim, ...]
    figures: Callable[..., Any]
    report: Callable[..., bytes]
    table: Callable[..., None]


def _carry_out(plan: Plan, kind: _Kind, out: str, jobs: str | None) -> None:
    """Play, judge, write, show."""
    with _bad_values_refused():
        processes = usable_cores() if jobs is None else validate.whole("jobs", _whole(jobs), most=1024)
    try:
        folder = _folder(out)
        with terminal.progress() as watch, terminal.disk_errors_refused(folder):
            with _bad_values_refused():  # such as a file of arms that changes while it is played
                outcomes = play_all(plan.tasks(), Journal(folder / JOURNAL), jobs=processes, watch=watch)
            watch(WRITING, "figures, tables, report", 1.0)
            study = plan.study(outcomes)
            verdicts = [judge(claim, study) for claim in kind.claims]
            drawn = figures.render(kind.figures(plan, study))
            files = outputs.table_files(study, verdicts) | drawn
            files["report.html"] = kind.report(plan, study, verdicts, drawn)
            outputs.write_together(folder, files)
        _show(plan, kind, study, verdicts)
        terminal.wrote(folder, list(files))
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


@contextlib.contextmanager
def _bad_values_refused() -> Iterator[None]:
    """Whatever a value brings about is one line; a plan's fields have the names of the flags."""
    try:
        yield
    except ValueError as error:
        name, _, rest = str(error).partition(" ")
        is_flag = name.isidentifier() and rest.startswith("must") and not name.isupper()  # WORKLOAD has no dashes
        flag = f"--{name.replace('_', '-')}" if is_flag else name
        terminal.stop(terminal.BAD_INPUT, f"{flag} {rest}")
    except MemoryError as error:
        terminal.stop(terminal.BAD_INPUT, f"arms and policies must fit into memory: {error or 'they do not'}")


def _refuse_without_arms(**flags: Any) -> None:
    for name, value in flags.items():
        if value is not None:
            raise ValueError(f"{name} must come with --arms, got {value!r} without")


def _refuse_with_arms(**flags: Any) -> None:
    for name, value in flags.items():
        if value is not None:
            raise ValueError(f"{name} must be left out where --arms is given, got {value!r}")


def _whole(text: str) -> Any:
    """The number, or the text itself for the plan to refuse."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        text = text.replace(",", "")
    with contextlib.suppress(ValueError):
        return int(text)
    return text


def _number(text: str) -> Any:
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _wholes(text: str) -> tuple[Any, ...]:
    return tuple(map(_whole, _words(text)))
