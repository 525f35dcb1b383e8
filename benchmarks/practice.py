"""HybridCSLB as it comes, and rivals with the best of five scales in hindsight, in the worlds of `suite.worlds`.

    python benchmarks/practice.py                       # seeds 100 to 109, on which nobody has tuned
    python benchmarks/practice.py --films FOLDER        # with MovieLens-100k, as the recbole package carries it
    python benchmarks/practice.py --films FOLDER --peers    # with other libraries, installed there
    python benchmarks/practice.py --estimate --films FOLDER --peers    # how long that will take; plays no reported seed
    python benchmarks/practice.py --quick               # a few seconds per world: shows that it runs

Tables and a figure go to the folder of ``--out``, and every run to a journal there as soon as it is played: after
Ctrl-C the same command continues. Runs of other code, even of an earlier version of one policy, are played again.
"""

import argparse
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from sketchbandits.cli import terminal
from sketchbandits.lab.journal import Journal
from sketchbandits.lab.outputs import write_together
from sketchbandits.progress import stages
from suite.machine import machine
from suite.practice import report
from suite.practice.contenders import CONTENDERS
from suite.practice.figure import drawable, figure_of
from suite.practice.game import PEERS, Task
from suite.practice.peers import VARIANTS
from suite.practice.plan import Pair, Plan, known_worlds
from suite.practice.runs import Kept, play_all, try_all
from suite.practice.stamps import commit
from suite.practice.summary import Results

JOURNAL = "practice.jsonl"
MADE, QUICKLY_MADE = Path("results/practice"), Path("results/practice-quick")
PNG_DPI = 110


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="practice.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--films", type=Path, help="a folder with MovieLens-100k, as recbole carries it")
    parser.add_argument("--seeds", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--first-seed", type=int, default=100, help="the first of them (default 100)")
    parser.add_argument("--only", nargs="+", metavar="WORLD", help="worlds by name")
    parser.add_argument("--policies", nargs="+", metavar="POLICY", help="policies by name")
    parser.add_argument("--peers", action="store_true", help="also other libraries, installed into the folder")
    seconds = "for one of them in one world, all seeds together (default 40); slower ones play fewer seeds, or none"
    parser.add_argument("--peer-seconds", type=float, default=40.0, help=seconds)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--out", type=Path, help=f"the folder for everything (default {MADE})")
    parser.add_argument("--estimate", action="store_true", help="print how long it should take, and stop")
    parser.add_argument("--quick", action="store_true", help="seed 0, a hundredth of the rounds")
    return parser


def planned(parser: argparse.ArgumentParser, options: argparse.Namespace, folder: Path) -> Plan:
    """The plan, or an error that names the flag."""
    for name, least in (("seeds", 1), ("first_seed", 0), ("jobs", 1)):
        if getattr(options, name) < least:
            flag = name.replace("_", "-")
            parser.error(f"--{flag} must be at least {least}, got {getattr(options, name)}")
    if not options.peer_seconds > 0.0:
        parser.error(f"--peer-seconds must be above 0, got {options.peer_seconds:g}")
    if options.films is not None and not options.films.is_dir():
        parser.error(f"--films must be a folder, got {str(options.films)!r}")
    worlds, peers = known_worlds(options.films), list(PEERS) if options.peers else []
    for name, allowed in (("only", worlds), ("policies", [*CONTENDERS, *peers])):
        if unknown := [each for each in getattr(options, name) or [] if each not in allowed]:
            parser.error(f"--{name} must be among {', '.join(allowed)}; got {', '.join(unknown)}")
    chosen = [name for name in worlds if name in (options.only or worlds)]
    policies = [name for name in [*CONTENDERS, *peers] if name in (options.policies or [*CONTENDERS, *peers])]
    seeds = range(1) if options.quick else range(options.first_seed, options.first_seed + options.seeds)
    more = {"films": options.films, "quick": options.quick, "peer_seconds": options.peer_seconds}
    return Plan.made(chosen, policies, seeds, peers=options.peers, folder=folder, **more)


def main(given: Sequence[str] | None = None) -> None:
    """The command; ``given`` replaces the arguments of the process."""
    parser = arguments()
    options = parser.parse_args(given)
    folder = options.out or (QUICKLY_MADE if options.quick else MADE)
    kept = None
    try:
        with terminal.disk_errors_refused(folder):
            folder.mkdir(parents=True, exist_ok=True)
            plan = planned(parser, options, folder)
            kept = Kept(Journal(folder / JOURNAL))
            results = carry_out(plan, kept, jobs=options.jobs, only_estimate=options.estimate)
            if results is not None:
                write(results, plan, folder)
    except KeyboardInterrupt:
        number = 0 if kept is None else len(kept.by_key)
        again = "the same command continues from there"
        terminal.stop(terminal.INTERRUPTED, f"interrupted: {number} entries are kept in {folder / JOURNAL}, {again}")


def carry_out(plan: Plan, kept: Kept, *, jobs: int, only_estimate: bool) -> Results | None:
    """Try everything out, say how long it will take, and play what the journal does not have."""
    tasks, notes = plan.tasks(), {}
    expected = dict.fromkeys(tasks, 1.0)
    with stages() as watch:
        if not plan.quick:
            trials = try_all(tasks, kept, jobs=jobs, watch=watch)
            tasks, notes = plan.thinned(tasks, trials)
            expected = {task: trials[task.world, task.policy]["seconds"] for task in tasks}
    if not plan.quick:
        print_times(tasks, expected, jobs, kept)
    if only_estimate:
        return None
    if stale := kept.stale(tasks):
        print(f"{stale} runs in the journal are of other code and are played again", file=sys.stderr)
    with stages() as watch:
        play_all(tasks, expected, kept, jobs=jobs, watch=watch)
    return gathered(plan, tasks, kept, notes)


def print_times(tasks: Sequence[Task], expected: dict[Task, float], jobs: int, kept: Kept) -> None:
    """A table of the expected seconds, and the minutes on the wall."""
    runs: dict[Pair, int] = {}
    for task in tasks:
        runs[task.world, task.policy] = runs.get((task.world, task.policy), 0) + 1
    seconds = {(task.world, task.policy): expected[task] for task in tasks}
    print(report.times(seconds, runs), file=sys.stderr)
    for what, peers in (("this library and yardsticks", False), ("other libraries", True)):
        group = [task for task in tasks if (task.python is not None) == peers]
        left = [task for task in group if kept.get(task) is None]
        whole, rest = (sum(expected[task] for task in some) / jobs / 60 for some in (group, left))
        line = f"{what}: about {whole:.0f} minutes in all with {jobs} processes, {rest:.0f} of them left"
        print(line, file=sys.stderr)


def gathered(plan: Plan, tasks: Sequence[Task], kept: Kept, notes: dict[Pair, str]) -> Results:
    """Every outcome, and why others are missing."""
    results = Results()
    results.absent, results.notes = dict(plan.notes), notes
    for task in tasks:
        outcome = kept.get(task)
        assert outcome is not None
        results.add(task.world, task.policy, task.scale, task.seed, outcome)
        if outcome.get("version"):
            results.versions[PEERS[task.policy].package] = outcome["version"]
    return results


def about(plan: Plan, results: Results) -> list[str]:
    """What was played, by what, where."""
    described = machine()
    first, last = plan.seeds[0], plan.seeds[-1]
    lines = [f"seeds {first} to {last}" + ", a hundredth of the rounds: only shows that it runs" * plan.quick]
    lines.append(f"commit {commit()}" + " (with changes since)" * commit().endswith("+"))
    lines.append(", ".join(f"{name} {value}" for name, value in described.items() if isinstance(value, str)))
    versions = results.versions
    lines += [f"{one.label} {versions[one.package]}: {one.how}" for one in VARIANTS if one.package in versions]
    lines.append("times are of processes that ran side by side, without drawing the rounds, in peers without messages")
    if plan.pythons:
        lines.append(f"a peer plays fewer seeds where all would take more than {plan.peer_seconds:g} s in a world")
    return lines


def write(results: Results, plan: Plan, folder: Path) -> None:
    """The page and the figure into the folder; the page also on standard output."""
    page = report.page(results, plan.worlds, about(plan, results))
    image = io.BytesIO()
    if drawable(results, plan.worlds):
        figure_of(results, plan.worlds).savefig(image, format="png", dpi=PNG_DPI)
    files = {"practice.md": page.encode()} | ({"practice.png": image.getvalue()} if image.getvalue() else {})
    write_together(folder, files)
    print(page)
    print(f"written to {folder}: {', '.join(files)}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
