"""What a benchmark prints: the machine, then a table and remarks for each workload, in 80 columns."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from sketchbandits.cli.terminal import WIDTH, print_table
from suite.run import Report


def show(reports: Sequence[Report], folder: Path) -> None:
    """Everything that was measured, and where its files are."""
    for name, value in reports[0].machine.items():
        print(textwrap.fill(f"{name}: {value}", WIDTH, subsequent_indent="  "))
    for report in reports:
        _show_workload(report)
    files = ", ".join(f"{report.workload.name}.json" for report in reports)
    print(f"\nWrote {files}\nand figures as .png and .svg, to\n{folder}")


def _show_workload(report: Report) -> None:
    summary = report.summary
    print(f"\n{report.workload.name}: {report.workload.title[0].lower()}{report.workload.title[1:]}")
    print_table(summary.headings, summary.rows, summary.left, summary.group)
    for note in summary.notes:
        print(textwrap.fill(note, WIDTH))
