"""Before and after in one run: this checkout and another one, measured by the same code and in turns.

What is measured runs in child processes whose ``PYTHONPATH`` names the sources of one of the two. They use only names
that both versions have: the public ones of the library, and `suite.games` and `suite.measure`.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

BENCHMARKS = Path(__file__).parents[1]
THIS, OTHER = "here", "other"
THREADS = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "NUMBA")}


class Checkout(NamedTuple):
    """A name for tables, and the folder that holds ``src/sketchbandits``."""

    name: str
    folder: Path

    def command(self, arguments: Sequence[str], cache: Path | None = None) -> tuple[list[str], dict[str, str]]:
        """A Python process with this version of the library: command and environment; ``cache`` for its kernels."""
        paths = os.pathsep.join(map(str, (self.folder / "src", BENCHMARKS)))
        environment = os.environ | THREADS | {"PYTHONPATH": paths}
        if cache is not None:
            environment["NUMBA_CACHE_DIR"] = str(cache)
        return [sys.executable, *arguments], environment

    def run(self, *arguments: str, cache: Path | None = None) -> str:
        """What a process prints; its own stderr explains a failure."""
        command, environment = self.command(arguments, cache)
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout


def add_argument(parser: argparse.ArgumentParser) -> None:
    text = "measure the checkout in DIR as well, in turns with this one, and print ratios"
    parser.add_argument("--against", type=_checkout, metavar="DIR", help=text)


def chosen(against: Path | None) -> list[Checkout]:
    """This checkout, and the other one where there is one."""
    here = [Checkout(THIS, BENCHMARKS.parent)]
    return here if against is None else [*here, Checkout(OTHER, against)]


def _checkout(text: str) -> Path:
    folder = Path(text).absolute()
    if not (folder / "src" / "sketchbandits" / "__init__.py").exists():
        raise argparse.ArgumentTypeError(f"DIR must be a checkout with src/sketchbandits in it, got {text!r}")
    return folder
