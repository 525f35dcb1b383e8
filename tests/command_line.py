"""Commands run in this process: what a refusal or a table looks like needs no process of its own."""

import contextlib
import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from sketchbandits.cli.main import main


class Finished(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, cwd: Path | None = None) -> Finished:
    """The command with its exit code and its output; an exception that it lets through is the caller's."""
    stdout, stderr, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr), eighty_columns(), chdir(cwd):
        try:
            main(list(map(str, arguments)))
        except SystemExit as end:
            code = end.code or 0
    return Finished(code, stdout.getvalue(), stderr.getvalue())


def eighty_columns() -> contextlib.AbstractContextManager[object]:
    return mock.patch.dict(os.environ, {"COLUMNS": "80"})


@contextlib.contextmanager
def chdir(folder: Path | None) -> Iterator[None]:
    with contextlib.chdir(folder or "."):
        yield
