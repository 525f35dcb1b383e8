"""`rounds.py --against DIR`: both versions play the same rounds in turns, each in a process of its own."""

import contextlib
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suite.checkouts import Checkout, chosen
from suite.targets import ratios

WORKER = str(Path(__file__).with_name("round_worker.py"))
ALLOWED = 1.05  # of the time of the other version


class Worker:
    """A version's process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.names: list[str] = json.loads(self._line())

    def play(self, name: str) -> float:
        """Microseconds per round of one repetition."""
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)
        return float(self._line())

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a version of the library ended with {self.process.wait()}; see above")
        return line


@contextlib.contextmanager
def started(checkout: Checkout, quick: bool) -> Iterator[Worker]:
    command, environment = checkout.command([WORKER, *(["--quick"] if quick else [])])
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        try:
            yield Worker(process)
        finally:
            process.kill()


def compare(against: Path, quick: bool, repetitions: int) -> dict[str, Any]:
    """The samples of both versions by contender, taken in turns: here, other, other, here, ..."""
    print("building and compiling both versions ...", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(started(checkout, quick)) for checkout in chosen(against)]
        names = [name for name in workers[0].names if name in workers[1].names]
        samples: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
        for turn in range(repetitions):
            print(f"turn {turn + 1} of {repetitions} ...", file=sys.stderr)
            for name in names:
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    samples[name][side].append(workers[side].play(name))
    return {"against": str(against), "quick": quick, "microseconds": samples}


def show(report: dict[str, Any]) -> None:
    print(f"{'microseconds per round, medians':<47}{'here':>8}{'other':>8}{'ratio':>7}{'minima':>8}")
    logs = []
    for name, (here, other) in report["microseconds"].items():
        ratio, minima = ratios(here, other)
        logs.append(ratio)
        note = " *" if ratio > ALLOWED and minima > ALLOWED else ""
        middle = f"{statistics.median(here):>8.3g}{statistics.median(other):>8.3g}"
        print(f"{name:<47}{middle}{ratio:>7.3f}{minima:>8.3f}{note}")
    print(f"geometric mean of the ratios of medians: {statistics.geometric_mean(logs):.3f}")
    print(f"* slower by more than {ALLOWED - 1:.0%}, by medians and by minima")
