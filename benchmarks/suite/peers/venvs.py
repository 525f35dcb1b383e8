"""One virtual environment per peer: their requirements contradict each other, and none of them is ours.

An environment is made once and reused from then on, at no cost; a marker in it says what it was made from. One that
cannot be made is listed with its reason; the next run tries again.
"""

import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

INSTALL_SECONDS = 1_800.0  # a peer without a wheel is compiled
MARKER = "installed.json"


@dataclass(frozen=True)
class Peer:
    """What to install, and what must then import."""

    requirements: tuple[str, ...]
    module: str


# NumPy where the peer does not bring it itself: the drivers read their arms with it.
PEERS = {
    "coba": Peer(("coba>=8.1", "numpy>=1.26"), "coba.learners"),
    "bayesianbandits": Peer(("bayesianbandits>=1.5",), "bayesianbandits"),
    "vowpalwabbit": Peer(("vowpalwabbit>=9.10", "numpy>=1.26"), "vowpalwabbit"),
    "mabwiser": Peer(("mabwiser>=2.7",), "mabwiser.mab"),
    "contextualbandits": Peer(("contextualbandits>=0.3.30",), "contextualbandits.online"),
    "river": Peer(("river>=0.21",), "river.bandit"),
}


class NotInstalledError(Exception):
    """A peer cannot be had here; the message is the reason, in one line."""


class Runner(Protocol):
    """As `run`; tests put another one in its place."""

    def __call__(self, command: Sequence[str], log: Path, *, seconds: float) -> int | None:
        """The exit status; None when time is up."""


def run(command: Sequence[str], log: Path, *, seconds: float) -> int | None:
    """Run a command, its output added to ``log``: the exit status, or None when time is up.

    Whatever ends the wait, Ctrl-C included, leaves no process behind: the command leads a group that is killed.
    """
    with log.open("ab") as sink:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=surroundings(), start_new_session=True
        )
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait()


def surroundings() -> dict[str, str]:
    """The environment variables of a peer's process: one thread, and nothing that shows it our own packages."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    threads = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "MKL", "OMP", "BLIS", "NUMEXPR")}
    return kept | threads | {"VECLIB_MAXIMUM_THREADS": "1", "PYTHONNOUSERSITE": "1"}


def last_line(log: Path) -> str:
    """What a log says of a failure: pip's last error where there is one, else the last line that is not empty."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    return (errors or lines or ["no output"])[-1]


class Venvs:
    """The peers' environments in one folder: ``folder/NAME``, what their making printed in ``folder/NAME.log``."""

    def __init__(self, folder: Path, peers: Mapping[str, Peer] = PEERS, runner: Runner = run) -> None:
        self.folder, self.peers, self._run = folder, peers, runner
        self._failed: dict[str, str] = {}

    def python(self, name: str) -> Path:
        """The peer's Python, its environment made if it is not there yet; `NotInstalledError` where it cannot be."""
        if name not in self._failed:
            try:
                return self._ready(name)
            except (NotInstalledError, OSError) as error:
                self._failed[name] = str(error)
        raise NotInstalledError(self._failed[name])

    def _ready(self, name: str) -> Path:
        place, peer = self.folder / name, self.peers[name]
        python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        made_from = {"requirements": list(peer.requirements), "python": platform.python_version()}
        marker = place / MARKER
        if not (python.exists() and marker.exists() and json.loads(marker.read_text()) == made_from):
            self._make(name, place, python)
            marker.write_text(json.dumps(made_from))
        return python

    def _make(self, name: str, place: Path, python: Path) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        log, peer = self.folder / f"{name}.log", self.peers[name]
        log.unlink(missing_ok=True)
        pip = [str(python), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", *peer.requirements]
        steps = {
            "python -m venv": [sys.executable, "-m", "venv", "--clear", str(place)],
            "pip install": pip,
            f"import {peer.module}": [str(python), "-c", f"import numpy, {peer.module}"],
        }
        for what, command in steps.items():
            status = self._run(command, log, seconds=INSTALL_SECONDS)
            if status is None:
                raise NotInstalledError(f"{what}: not done after {INSTALL_SECONDS:.0f} s")
            if status != 0:
                raise NotInstalledError(f"{what}: {last_line(log)}")
