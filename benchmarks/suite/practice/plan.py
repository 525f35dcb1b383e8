"""What `benchmarks/practice.py` will play: worlds, policies, scales and seeds, and what is left out for what reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suite.peers.venvs import PEERS as REQUIREMENTS
from suite.peers.venvs import NotInstalledError, Venvs
from suite.practice.contenders import CONTENDERS
from suite.practice.game import PEERS, Task
from suite.practice.runs import Outcome
from suite.worlds import worlds

QUICK = 0.01  # the share of rounds
LEAST = 3  # seeds that a peer plays, where it plays at all
GRACE = 10  # times the seconds that a peer is given, for these few seeds

Pair = tuple[str, str]  # a world and a policy


@dataclass(frozen=True)
class Plan:
    """Which worlds, policies and seeds; ``peer_seconds`` is the time of one peer in one world, over all its seeds."""

    worlds: tuple[str, ...]
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    films: Path | None = None
    quick: bool = False
    peer_seconds: float = 40.0
    pythons: Mapping[str, str] = field(default_factory=dict)  # of the peers that are installed, by package
    notes: Mapping[str, str] = field(default_factory=dict)  # policies that cannot play anywhere, with the reason

    @classmethod
    def made(
        cls,
        worlds_: Sequence[str],
        policies: Sequence[str],
        seeds: Sequence[int],
        *,
        peers: bool,
        folder: Path,
        **more: Any,
    ) -> "Plan":
        """With peers installed where they are wanted, and without what cannot be made."""
        notes = {name: reason for name in policies if name in CONTENDERS and (reason := CONTENDERS[name].unavailable())}
        pythons: dict[str, str] = {}
        if peers:
            made = Venvs(folder / "peers", {name: REQUIREMENTS[name] for name in _packages(policies)})
            for name in made.peers:
                try:
                    pythons[name] = str(made.python(name))
                except NotInstalledError as error:
                    notes |= {each: f"not installed: {error}" for each in policies if _package(each) == name}
        return cls(tuple(worlds_), tuple(policies), tuple(seeds), pythons=pythons, notes=notes, **more)

    def tasks(self) -> list[Task]:
        """Every run, nothing thinned out yet."""
        found = []
        for world in self.worlds:
            for policy in self.policies:
                if policy not in self.notes:
                    scales = (CONTENDERS[policy].scales if policy in CONTENDERS else ()) or (None,)
                    found += [self._task(world, policy, scale, seed) for seed in self.seeds for scale in scales]
        return found

    def _task(self, world: str, policy: str, scale: float | None, seed: int) -> Task:
        films = str(self.films) if "films" in world else None
        python = self.pythons[_package(policy)] if policy in PEERS else None
        return Task(world, policy, scale, seed, QUICK if self.quick else 1.0, films, python)

    def thinned(self, tasks: Sequence[Task], trials: Mapping[Pair, Outcome]) -> tuple[list[Task], dict[Pair, str]]:
        """The tasks that there is time for, and why others are not: only peers are held to a time."""
        kept, notes = [], {}
        for task in tasks:
            pair = (task.world, task.policy)
            trial = trials[pair]
            if "failed" in trial:
                notes[pair] = f"failed: {trial['failed']}"
                continue
            number = len(self.seeds) if task.python is None else self._affordable(trial["seconds"])
            if number == 0:
                notes[pair] = f"left out: about {trial['seconds']:,.0f} s per run"
            elif task.seed in self.seeds[:number]:
                kept.append(task)
                if number < len(self.seeds):
                    notes[pair] = f"{number} seeds: about {trial['seconds']:,.0f} s per run"
        return kept, notes

    def _affordable(self, seconds: float) -> int:
        """How many seeds a peer plays that takes so long for one."""
        number = min(len(self.seeds), max(LEAST, int(self.peer_seconds / seconds)))
        return number if number * seconds <= GRACE * self.peer_seconds else 0


def _package(policy: str) -> str:
    return PEERS[policy].package if policy in PEERS else ""


def _packages(policies: Sequence[str]) -> list[str]:
    return [*dict.fromkeys(_package(name) for name in policies if name in PEERS)]


def known_worlds(films: Path | None) -> list[str]:
    """The names of the worlds that can be drawn."""
    return list(worlds(films))
