"""`--help` and `--version`: every flag in 80 columns, and nothing loaded that they do not need."""

import subprocess
import sys

import pytest
import typer.main
from command_line import run, run_in_child

from sketchbandits import __version__
from sketchbandits.cli.main import app


def commands(group, *path):
    """Every command with the words that call it."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *path, name)
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_names_every_flag_in_80_columns(words):
    shown = run(*words, "--help")
    assert shown.returncode == 0 and all(len(line) <= 80 for line in shown.stdout.splitlines())
    parameters = [parameter for parameter in COMMANDS[words].params if parameter.name != "help"]
    for parameter in parameters:
        assert (parameter.opts[0] if parameter.opts[0].startswith("--") else parameter.metavar) in shown.stdout
    assert COMMANDS[words].help.split(".")[0].split(":")[0][:30] in " ".join(shown.stdout.split())


def test_without_a_command_help_lists_all_of_them():
    shown = run()
    assert shown.returncode == 2
    assert all(words[0] in shown.stdout + shown.stderr for words in COMMANDS)


@pytest.mark.process
def test_the_installed_command_starts():
    assert run_in_child("--version") == (0, f"sketchbandits {__version__}\n", "")


@pytest.mark.process
def test_help_loads_no_plots_no_tables_and_nothing_of_the_service():
    extras = {"matplotlib", "polars", "starlette", "uvicorn", "pydantic", "psycopg", "httpx", "prometheus_client"}
    code = f"import sys, sketchbandits.cli.main; print(*{extras!r} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == ""
