"""A state folder for `flips.py`, what is true of it, and copies of it with one bit flipped."""

import asyncio
import contextlib
import itertools
import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from uncrashed import fingerprint

from sketchbandits.environments import correlated_arms
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.recovery import recover
from sketchbandits.service.bandits.requests import CreateBandit, Decide, Reward
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.folder import CLOCK, KEYS, LOG_FILE, SNAPSHOTS
from sketchbandits.service.keys import ADMIN, CLIENT, Key, KeyRing
from sketchbandits.service.log import open_log
from sketchbandits.service.log.events import Kind, Record, parsed
from sketchbandits.service.service import Service, Settings

ARMS = correlated_arms(n_arms=12, dim=5, group_size=3, normalize="max", seed=2)
IDS = tuple(f"a{i}" for i in range(len(ARMS)))
BANDITS = {  # a deadline that is far away: a clock that is ahead would record defaults
    "coins": {"policy": "ucb1", "exploration": 0.2, "deadline": 86_400.0, "seed": 3},
    "linear": {"policy": "linucb"},
}
ROUNDS = (260, 40)  # before and after a restart: the former are in the log's file, the latter in the write-ahead log
SNAPSHOT_EVERY = 400
PAGE = 4096
_INDEX_PAGES = (2, 10)  # kinds of b-tree pages


class Keyed(NamedTuple):
    """A request with an idempotency key, the record with its decisions, and their ids and arms."""

    request: Decide
    seq: int
    decisions: list[tuple[str, str]]


class Outcome(NamedTuple):
    """A reward and the record that holds it."""

    bandit: str
    reward: float
    seq: int


class Truth(NamedTuple):
    """What the folder holds."""

    state: Path
    records: list[Record]
    keys: list[Key]
    texts: dict[str, bool]  # API keys: whether they are valid
    keyed: list[Keyed]
    outcomes: dict[str, Outcome]  # by decision
    numbers: int  # that were used

    @property
    def last(self) -> int:
        """The number of the last record."""
        return len(self.records)

    def ledger(self, last: int) -> Ledger:
        """As it was after a record."""
        ledger = Ledger()
        ledger.replay(self.records[:last])
        return ledger


def settings_of(state, **more):
    """Of a service that verifies its log as fast as it can."""
    return Settings(state, **{"scrub_rate": 1e9, "snapshot_every": SNAPSHOT_EVERY, **more})


async def prepared(state):
    """Write a state folder as a killed service leaves it; returns what is true of it."""
    state.mkdir()
    rules = {name: BanditConfig(**rules) for name, rules in BANDITS.items()}
    bandits = tuple(CreateBandit(name, config, IDS, ARMS) for name, config in rules.items())
    ring = KeyRing(state / KEYS)
    texts = {ring.create("shop", CLIENT): True, ring.create("deploy", ADMIN): True, ring.create("old", CLIENT): False}
    owners = [key.id for key in ring.all()]
    ring.revoke(owners[-1])
    keys, waiting, rng = ring.all(), [], np.random.default_rng(4)
    for rounds in ROUNDS:
        service = Service(settings_of(state, bandits=bandits))
        await service.start()
        while not service.ledger.keys_required:
            await asyncio.sleep(0.01)
        await _play(service.writer, rounds, rng, waiting, owners)
        if rounds is ROUNDS[-1]:  # as `kill -9` leaves it
            shutil.copytree(state, state.with_name("killed"))
        await service.stop()
    shutil.rmtree(state)
    return _truth(state.with_name("killed"), keys, texts)


async def _play(writer, rounds, rng, waiting, owners):
    """Groups of requests: keys of two API keys, batches, rewards in any order, some of them never."""
    for _ in range(rounds):
        by, key = owners[int(rng.integers(2))], f"order-{rng.integers(1 << 60)}"
        asked = [Decide(name, None, key, 1 + i, by) for i, name in enumerate(BANDITS)]
        asked += [Decide(name, IDS[2:9], None, 1, by) for name in BANDITS]
        due = [waiting.pop(int(rng.integers(len(waiting)))) for _ in range(min(5, len(waiting) // 2))]
        rewards = [Reward(bandit, ((decision, float(rng.uniform())),), by) for bandit, decision in due]
        answers = await asyncio.gather(*(writer.submit(request) for request in [*asked, *rewards]))
        for answer in answers[: len(asked)]:
            waiting += [(answer["bandit"], decision["decision_id"]) for decision in answer["decisions"]]


def _truth(state, keys, texts):
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(state, Path(scratch) / "state"))
        with contextlib.closing(open_log(str(copy / LOG_FILE))) as log:
            records, found = list(log.read()), recover(log, Snapshots(copy / SNAPSHOTS))
    keyed, outcomes, numbers = [], {}, 0
    for record in records:
        data = parsed(record.body)
        if record.kind == Kind.DECISION:
            numbers = max(numbers, data["n"] + len(data["arms"]) - 1)
            if "key" in data:
                ids = [f"{data['n'] + i}-{data['token']}" for i in range(len(data["arms"]))]
                request = Decide(data["bandit"], None, data["key"], len(ids), data["by"])
                keyed.append(
                    Keyed(request, record.seq, list(zip(ids, (IDS[arm] for arm in data["arms"]), strict=True)))
                )
        elif record.kind == Kind.REWARD:
            outcomes[data["id"]] = Outcome(data["bandit"], data["reward"], record.seq)
    truth = Truth(state, records, keys, texts, keyed, outcomes, numbers)
    if fingerprint(found.ledger) != fingerprint(truth.ledger(truth.last)) or not found.snapshot.seq:
        raise RuntimeError("the prepared folder is not what it should be")
    return truth


def places(state: Path) -> dict[str, list[tuple[str, int, int]]]:
    """Where bits may be flipped, by kind of file: path in the folder, first byte and how many."""
    pages = state.joinpath(LOG_FILE).read_bytes()
    kinds = [pages[k * PAGE + (100 if k == 0 else 0)] in _INDEX_PAGES for k in range(len(pages) // PAGE)]
    found: dict[str, list[tuple[str, int, int]]] = {"log": [], "index": []}
    for k, index in enumerate(kinds):
        found["index" if index else "log"].append((LOG_FILE, k * PAGE, PAGE))
    snapshots = [file for file in state.joinpath(SNAPSHOTS).glob("[0-9]*/*") if file.is_file()]
    for kind, files in {
        "write-ahead log": [state / f"{LOG_FILE}-wal"],
        "snapshots": [file for file in snapshots if not file.name.startswith(".")],
        "manifests": [file for file in snapshots if file.name.startswith(".")],
        "keys": [state / KEYS],
        "clock": [state / CLOCK],
    }.items():
        found[kind] = [(str(file.relative_to(state)), 0, file.stat().st_size) for file in files]
    return found


def damaged_copy(state: Path, copy: Path, flip: tuple[str, int, int] | None) -> Path:
    """A fresh copy of a folder, with one bit of one byte of one file flipped, or none."""
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(state, copy)
    if flip is not None:
        path, byte, bit = flip
        with (copy / path).open("r+b") as file:
            file.seek(byte)
            value = file.read(1)[0]
            file.seek(byte)
            file.write(bytes([value ^ 1 << bit]))
    return copy


def in_portions(items: Any, size: int) -> Any:
    """Lists of so many at most."""
    iterator = iter(items)
    while portion := list(itertools.islice(iterator, size)):
        yield portion
