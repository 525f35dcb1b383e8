"""Peers at the table: each plays its rounds in a process of its own Python (`drivers`), asked in pieces."""

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from suite.peers import venvs
from suite.practice.drivers import rounds_protocol
from suite.worlds import World

DRIVERS = Path(rounds_protocol.__file__).parent
SETS = ("clicks", "reversal", "no reversal", "films", "films, shuffled", "films with users")  # rewards are in [0, 1]


class Variant(NamedTuple):
    """One way to use a library."""

    package: str
    name: str  # what its driver calls it
    how: str  # in words, for the table

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{SPELLED[self.package]} {self.name}"

    @property
    def driver(self) -> Path:
        """The script that plays it."""
        return DRIVERS / f"{self.package}_driver.py"


SPELLED = {"vowpalwabbit": "Vowpal Wabbit", "bayesianbandits": "bayesianbandits", "mabwiser": "MABWiser"}
VARIANTS = (
    Variant("vowpalwabbit", "SquareCB", "`--cb_explore_adf -q ua --squarecb`, told the range of costs"),
    Variant("bayesianbandits", "TS", "`NormalRegressor` on context x arm, told R"),
    Variant("bayesianbandits", "empirical Bayes", "`EmpiricalBayesNormalRegressor` on context x arm"),
    Variant("mabwiser", "LinUCB", "one regression per arm, alpha = R"),
    Variant("mabwiser", "LinTS", "one regression per arm, alpha = R"),
    Variant("mabwiser", "UCB1", "no contexts, alpha = R"),
)


class PeerFailedError(RuntimeError):
    """A peer's process ended early; the message is the last line of what it printed."""


class Peer:
    """A peer as `UserRounds` takes it; a context manager that ends the process."""

    def __init__(self, python: Path, variant: Variant, world: str, game: World, seed: int) -> None:
        self.seconds, self.version = 0.0, ""
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        command = [str(python), str(variant.driver), variant.name]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.process = subprocess.Popen(command, env=venvs.surroundings(), **pipes)
        lowest, highest = (0.0, 1.0) if world in SETS else (-1.0, 1.0)
        known = {"context_dim": game.env.context_dim or 1, "noise": game.noise, "lowest": lowest, "highest": highest}
        self.version = str(self._ask(arms=game.arms, **known, seed=seed)["version"])

    def play_user_rounds(
        self, contexts: NDArray[np.float64], rewards: NDArray[np.float64], available: NDArray[np.bool_] | None
    ) -> NDArray[np.int64]:
        """Choose and learn in rounds, one per row."""
        among = np.ones((1, rewards.shape[1]), np.bool_) if available is None else available
        answer = self._ask(contexts=contexts, rewards=rewards, available=among)
        self.seconds += float(answer["seconds"])
        return cast(NDArray[np.int64], answer["chosen"])

    def _ask(self, **arrays: Any) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            rounds_protocol.send(self.process.stdin, **arrays)
            answer = rounds_protocol.receive(self.process.stdout)
        except BrokenPipeError:
            answer = None
        if answer is None:
            self.process.wait()
            self.log.seek(0)
            lines = self.log.read().decode(errors="replace").split("\n")
            raise PeerFailedError(([line.strip() for line in lines if line.strip()] or ["no output"])[-1])
        return answer

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
