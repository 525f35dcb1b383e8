"""The app: one file of this package per command.

Exit codes: 0 done, 1 a file or folder could not be read or written, 2 bad input, 130 interrupted; each of these is one
line on stderr. An error in the library itself is a traceback. Results go to stdout, progress to stderr.
"""

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from sketchbandits import __version__
from sketchbandits.cli import (
    beyond,
    features,
    inspect,
    keys,
    log,
    migrate,
    precompile,
    replay,
    reproduce,
    serve,
    simulate,
    terminal,
)
from sketchbandits.precompile import cache_advice

INTERRUPTED = "interrupted"

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
app.command("reproduce")(reproduce.command)
app.command("beyond")(beyond.command)
app.command("simulate")(simulate.command)
app.command("features")(features.command)
app.command("inspect")(inspect.command)
app.command("serve")(serve.command)
app.add_typer(keys.app, name="keys")
app.command("log")(log.command)
app.command("migrate")(migrate.command)
app.command("replay")(replay.command)
app.command("precompile")(precompile.command)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console entry; ``arguments`` replaces those of the process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± or µ is no reason to fail
    try:
        code = app(arguments, standalone_mode=False)
        if code == terminal.INTERRUPTED:  # what Typer makes of Ctrl-C that no command has answered
            terminal.stop(terminal.INTERRUPTED, INTERRUPTED)
        sys.exit(code)
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
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Linear bandits under a fixed compute budget."""
    if context.invoked_subcommand != "precompile" and (advice := cache_advice()):  # that one refuses
        print(advice, file=sys.stderr)
