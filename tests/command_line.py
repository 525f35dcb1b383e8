"""Commands run in this process: what a refusal or a table looks like needs no process of its own."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from sketchbandits.cli.main import main

# Started commands run compiled even where the tests do not: the result is the same, and plain Python takes minutes.
ENV = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8", "NUMBA_DISABLE_JIT": "0"}


class Finished(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, cwd: Path | None = None) -> Finished:
    """The command in this process; an exception that it lets through is the caller's."""
    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    with (
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        contextlib.chdir(cwd or "."),
        mock.patch.dict(os.environ, {"COLUMNS": "80"}),
    ):
        try:
            main(list(map(str, arguments)))
        except SystemExit as end:
            code = end.code or 0
    return Finished(code, stdout.getvalue(), stderr.getvalue())


def run_in_child(*arguments: object, **options: object) -> Finished:
    """The command in a process of its own, as users start it."""
    full = [sys.executable, "-m", "sketchbandits", *map(str, arguments)]
    done = subprocess.run(
        full, capture_output=True, text=True, encoding="utf-8", timeout=300, **{"env": ENV, **options}
    )
    return Finished(done.returncode, done.stdout, done.stderr)


def start(*arguments: str) -> subprocess.Popen[str]:
    """The command in a process group of its own, as a shell starts it; SIGINT is heard even if pytest ignores it."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code += "from sketchbandits.cli.main import main; main()"
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=ENV, text=True, start_new_session=True, **streams
    )


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
