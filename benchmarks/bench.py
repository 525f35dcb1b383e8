"""Measure what the library costs: a table, a figure and a JSON file for each workload.

    python benchmarks/bench.py [WORKLOAD ...] [--quick] [--peers] [--seed N] [--fresh] [--out DIR]

Ctrl-C keeps measured points; the same command continues from them. Times are wall-clock: leave the machine alone.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sketchbandits.cli import terminal
from sketchbandits.progress import stages
from suite.run import BenchPlan, carry_out
from suite.show import show
from suite.workloads import WORKLOADS

INTERRUPTED = "interrupted: measured points are kept, the same command without --fresh continues from there"


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.py", description="Measure what the library costs.")
    names = f"some of {', '.join(WORKLOADS)} (default: all)"
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=names)
    parser.add_argument("--out", type=Path, default=Path("results/bench"), help="the folder for all results")
    parser.add_argument("--quick", action="store_true", help="under a minute: small sizes, to see that it runs")
    peers = "also other libraries, each installed into an environment in the folder"
    parser.add_argument("--peers", action="store_true", help=peers)
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same games")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    return parser


def main(given: Sequence[str] | None = None) -> None:
    """The command; ``given`` replaces the arguments of the process."""
    parser = arguments()
    options = parser.parse_args(given)
    plan = BenchPlan(tuple(options.workloads), options.quick, options.peers, options.seed)
    try:
        plan.check()
    except ValueError as error:
        parser.error(str(error))
    try:
        with stages() as watch, terminal.disk_errors_refused(options.out):
            options.out.mkdir(parents=True, exist_ok=True)
            reports = carry_out(plan, options.out, watch, fresh=options.fresh)
        show(reports, options.out)
    except KeyboardInterrupt:
        terminal.stop(terminal.INTERRUPTED, INTERRUPTED)
    except MemoryError as error:
        terminal.out_of_memory(error)


if __name__ == "__main__":
    sys.exit(main())
