"""The log cut at every byte of its last records, as a crash of the machine may leave it; a part of `crashes.py`.

    python benchmarks/service/cuts.py [--commits 2] [--pages 3]

Recovery must give exactly the state after some record, the last that is whole, and must say that it cut something. The
write-ahead log is cut behind its last commits, with and without SQLite's index in shared memory; the main
file, with everything in it, at the bytes of its last pages. Some of these are also served.
"""

import argparse
import contextlib
import random
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from servers import Served
from uncrashed import fingerprint

from sketchbandits.environments import correlated_arms
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.operations import plan_operation
from sketchbandits.service.bandits.planning import Facts, plan_group
from sketchbandits.service.bandits.recovery import recover
from sketchbandits.service.bandits.requests import CreateBandit, Decide, Reward
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.log import LogDamaged, open_log

PAGE = 4096
ARMS = correlated_arms(n_arms=9, dim=3, normalize="max", seed=1)
SERVED = 3  # of the cut logs of each kind, by a real service


class Written:
    """A log of decisions and rewards, the state after each of its records, and where its commits end."""

    def __init__(self, folder, groups):
        self.path = folder / "events.db"
        self.log, self.ledger = open_log(str(self.path)), Ledger()
        self.ends, self.states = [], {}
        ids = tuple(f"a{i}" for i in range(len(ARMS)))
        create = CreateBandit("default", BanditConfig(policy="ucb1", reward_range=None), ids, ARMS)
        self._append([plan_operation(self.ledger, create, 1e9)[0]])
        waiting, rng = [], random.Random(0)
        for t in range(groups):
            requests = [Decide("default", None, f"key {t}", 1 + t % 3)]
            requests += [Reward("default", ((waiting.pop(0), rng.gauss(0.0, 1.0)),)) for _ in range(len(waiting) // 2)]
            plan = plan_group(self.ledger, requests, Facts({}, {}), 1e9 + t)
            self._append(plan.changes)
            waiting += [decision["decision_id"] for decision in plan.answers[0]["decisions"]]
        twin = Ledger()
        for record in self.log.read():
            twin.replay([record])
            self.states[record.seq] = fingerprint(twin)

    def _append(self, changes):
        records = self.log.append([change.event() for change in changes])
        self.ledger.apply(zip((record.seq for record in records), changes, strict=True))
        self.ends.append((self.wal.stat().st_size if self.wal.exists() else 0, records[-1].seq))

    @property
    def wal(self):
        return self.path.with_name("events.db-wal")


def write(folder, groups):
    """A log, closed; and its files as they were before it was closed, as after ``kill -9``."""
    folder.mkdir()
    written = Written(folder, groups)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    written.log.close()
    return written, files


class Tally:
    """What recovery made of the cuts."""

    def __init__(self):
        self.cuts = self.prefixes = self.refused = self.served = 0
        self.wrong = []

    def __str__(self):
        kinds = f"{self.prefixes:,} exact prefixes, {self.refused} left to a person, {len(self.wrong)} wrong"
        return f"{self.cuts:,} cuts: {kinds}; {self.served} of them served by a real service"


def recovered(state):
    """The ledger that recovery gives, how many records, and whether it said that it cut something."""
    with contextlib.closing(open_log(str(state / "events.db"))) as log:
        found = recover(log, Snapshots(state / "snapshots"))
        return fingerprint(found.ledger), log.last.seq, bool(found.notes)


def _cut(files, name, offset, state):
    """A folder with the files, one of them cut."""
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    for file, data in files.items():
        (state / file).write_bytes(data[:offset] if file == name else data)


def try_cut(files, name, offset, folder, judge, tally):
    """Cut one of the files at an offset, recover, and judge."""
    _cut(files, name, offset, folder / "state")
    tally.cuts += 1
    try:
        fault = judge(offset, *recovered(folder / "state"))
    except LogDamaged as error:
        tally.refused += 1
        fault = judge(offset, None, -1, str(error))
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    tally.prefixes += fault is None
    if fault is not None:
        tally.wrong.append(f"cut at byte {offset}: {fault}")


def cut_wal(folder, commits, *, index):
    """At every byte of the last commits."""
    written, files = write(folder / "log", 12)
    if not index:
        files = {name: data for name, data in files.items() if not name.endswith("-shm")}
    name, tally = written.wal.name, Tally()
    size, first = len(files[name]), written.ends[-1 - commits][0]

    def judge(offset, state, last, notice):
        expected = max((seq for end, seq in written.ends if end <= offset), default=0)
        if last != expected or state != written.states[last]:
            return f"{last} records were recovered instead of {expected} ({notice})"
        silent = offset == size or (not index and any(end == offset for end, _ in written.ends))
        return None if bool(notice) != silent else f"what was cut was {'not ' * (not notice)}reported"

    for offset in _watched(range(first, size + 1), f"write-ahead log {'with' if index else 'without'} its index"):
        try_cut(files, name, offset, folder, judge, tally)
    serve_some(files, name, range(first + 1, size), folder, tally)
    return tally


def cut_main(folder, pages):
    """At every byte of the last pages."""
    written, _ = write(folder / "log", 40)
    files, name, tally = {written.path.name: written.path.read_bytes()}, written.path.name, Tally()
    size = len(files[name])

    def judge(offset, state, last, notice):
        if last < 0:
            return f"refused: {notice}"
        if state != written.states.get(last):
            return f"the state after {last} records is another"
        if offset < size and not notice:
            return "nothing was reported"
        return None if offset < size or last == max(written.states) else "records are missing from a whole file"

    for offset in _watched(range(max(size - pages * PAGE, 0), size + 1), "main file"):
        try_cut(files, name, offset, folder, judge, tally)
    serve_some(files, name, range(size - PAGE, size), folder, tally)
    return tally


def serve_some(files, name, offsets, folder, tally):
    """A real service starts on a cut log, says so, shows its bandit, and stops as it should."""
    for offset in random.Random(1).sample(offsets, SERVED):
        _cut(files, name, offset, folder / "state")
        with contextlib.closing(Served(folder / "state")) as service:
            good = "cut back" in service.text() and b"default" in service.get("/v1/bandits")
            if not good or service.stop(signal.SIGTERM) != 0:
                tally.wrong.append(f"served after a cut at byte {offset}: {service.text()}")
        tally.served += 1


def _watched(offsets, what):
    started = time.monotonic()
    for done, offset in enumerate(offsets):
        if done and done % 2_000 == 0:
            left = (time.monotonic() - started) / done * (len(offsets) - done)
            print(f"cuts of the {what}: {done:,} of {len(offsets):,}, {left:.0f} s left", file=sys.stderr, flush=True)
        yield offset


PARTS = {
    "write-ahead log": lambda folder, commits, pages: cut_wal(folder, commits, index=True),
    "write-ahead log without its index": lambda folder, commits, pages: cut_wal(folder, commits, index=False),
    "main file": lambda folder, commits, pages: cut_main(folder, pages),
}


def cut(part, commits, pages):
    """One part, in a folder of its own."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        return PARTS[part](Path(folder), commits, pages)


def every_byte(commits=2, pages=3):
    """Cut everywhere, two parts at a time; whether recovery is right everywhere."""
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        tallies = {name: pool.submit(cut, name, commits, pages) for name in PARTS}
        for name, tally in tallies.items():
            print(f"{name}: {tally.result()}")
            for text in tally.result().wrong[:5]:
                print(f"  {text[:300]}")
    return not any(tally.result().wrong for tally in tallies.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=2)
    parser.add_argument("--pages", type=int, default=3)
    options = parser.parse_args()
    sys.exit(0 if every_byte(options.commits, options.pages) else 1)


if __name__ == "__main__":
    main()
