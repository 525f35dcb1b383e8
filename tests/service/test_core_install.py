"""`log` and `replay` need none of the service's extra packages."""

import subprocess
import sys

import pytest
from service_tools import COMPILED
from test_old_log import old_state

__all__ = ["old_state"]

EXTRAS = ("pydantic", "pydantic_core", "starlette", "uvicorn", "httptools", "uvloop", "prometheus_client", "httpx")
COMMANDS = f"""
import builtins, sys
real = builtins.__import__

def refusing(name, globals=None, *rest):  # other packages may depend on some of these themselves
    importer = (globals or {{}}).get("__name__", "")
    if importer.startswith("sketchbandits") and name.partition(".")[0] in {EXTRAS}:
        raise ModuleNotFoundError(f"{{importer}} imports {{name}}", name=name)
    return real(name, globals, *rest)

builtins.__import__ = refusing
from sketchbandits.cli.main import main

def run(*words):
    sys.argv = ["sketchbandits", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)

state = sys.argv[1]
run("log", state)
run("replay", state, "--bandit", "multiscale-explores", "--policy", "ucb1")
run("log", state, "--cut", "900")
run("log", state)
"""


@pytest.mark.process
def test_log_and_replay_run_without_the_service_packages(old_state, tmp_path):
    state = tmp_path / "state"
    state.mkdir()
    (state / "events.db").write_bytes((old_state / "events.db").read_bytes())
    command = [sys.executable, "-c", COMMANDS, str(state)]
    done = subprocess.run(command, env=COMPILED, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "1,207 records, all good" in done.stdout and "899 records, all good" in done.stdout
    assert "ucb1 judged by 83 logged decisions" in done.stdout
