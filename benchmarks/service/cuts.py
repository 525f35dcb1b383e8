"""The log cut at every byte of its last records, as a crash of the machine may leave it; a part of `crashes.py`.

    python benchmarks/service/cuts.py [--commits 2] [--pages 3]

Recovery must give exactly the state after some record, the last that is whole, and must say that it cut something. The
write-ahead log is cut behind its last commits, with and without SQLite's index in shared memory beside it; the main
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
from pathlib import Path

from servers import Served
from uncrashed import fingerprint

from sketchbandits.environments import correlated_arms
from sketchbandits.service.config import BanditConfig
from sketchbandits.service.ledger import Facts, Ledger
from sketchbandits.service.log import LogDamaged, open_log
from sketchbandits.service.recovery import recover
from sketchbandits.service.requests import CreateBandit, Decide, Reward
from sketchbandits.service.snapshots import Snapshots

PAGE = 4096
ARMS = correlated_arms(n_arms=9, dim=3, normalize="max", seed=1)
SERVED = 6  # of the cut logs, by a real service


class Written:
    """A log of decisions and rewards, the state after each of its records, and where its commits end."""

    def __init__(self, folder, groups):
        self.path = folder / "events.db"
        self.log, self.ledger = open_log(str(self.path)), Ledger()
        self.ends, self.states = [], {}
        ids = tuple(f"a{i}" for i in range(len(ARMS)))
        create = CreateBandit("default", BanditConfig(policy="ucb1"), ids, ARMS)
        self._append([self.ledger.plan_operation(create, 1e9)[0]])
        waiting, rng = [], random.Random(0)
        for t in range(groups):
            requests = [Decide("default", None, f"key {t}", 1 + t % 3)]
            requests += [Reward("default", ((waiting.pop(0), rng.gauss(0.0, 1.0)),)) for _ in range(len(waiting) // 2)]
            plan = self.ledger.plan(requests, Facts({}, {}), 1e9 + t)
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
        self.cuts = self.prefixes = self.refused = 0
        self.wrong = []

    def __str__(self):
        kinds = f"{self.prefixes:,} exact prefixes, {self.refused} left to a person, {len(self.wrong)} wrong"
        return f"{self.cuts:,} cuts: {kinds}"


def recovered(state):
    """The ledger that recovery gives, how many records, and whether it said that it cut something."""
    with contextlib.closing(open_log(str(state / "events.db"))) as log:
        found = recover(log, Snapshots(state / "snapshots"))
        return fingerprint(found.ledger), log.last.seq, bool(found.notes)


def try_cut(files, name, offset, scratch, judge, tally, label):
    """Cut one file of some at an offset, recover, and judge."""
    state = scratch / "state"
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir()
    for file, data in files.items():
        (state / file).write_bytes(data[:offset] if file == name else data)
    tally.cuts += 1
    try:
        fault = judge(offset, *recovered(state))
    except LogDamaged as error:
        tally.refused += 1
        fault = judge(offset, None, -1, str(error))
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    tally.prefixes += fault is None
    if fault is not None:
        tally.wrong.append(f"{label}, cut at byte {offset}: {fault}")


def cut_wal(files, written, scratch, commits, *, index):
    """Behind each of the last commits and in the middle of them."""
    if not index:
        files = {name: data for name, data in files.items() if not name.endswith("-shm")}
    name, tally = written.wal.name, Tally()
    size, first = len(files[name]), written.ends[-1 - commits][0]

    def judge(offset, state, last, told):
        expected = max((seq for end, seq in written.ends if end <= offset), default=0)
        if last != expected or state != written.states[last]:
            return f"{last} records were recovered instead of {expected} ({told})"
        silent = offset == size or (not index and any(end == offset for end, _ in written.ends))
        return None if bool(told) != silent else f"what was cut was {'not ' * (not told)}told"

    for offset in _watched(range(first, size + 1), f"write-ahead log {'with' if index else 'without'} its index"):
        try_cut(files, name, offset, scratch, judge, tally, "write-ahead log")
    return tally


def cut_main(files, written, scratch, pages):
    """At every byte of the last pages."""
    tally = Tally()
    size = len(files[written.path.name])

    def judge(offset, state, last, told):
        if last < 0:
            return f"refused: {told}"
        if state != written.states.get(last):
            return f"the state after {last} records is another"
        if offset < size and not told:
            return "nothing was told"
        return None if offset < size or last == max(written.states) else "records are missing from a whole file"

    for offset in _watched(range(max(size - pages * PAGE, 0), size + 1), "main file"):
        try_cut(files, written.path.name, offset, scratch, judge, tally, "main file")
    return tally


def serve_some(cases, scratch):
    """A real service starts on a cut log, says so, and decides."""
    wrong, rng = [], random.Random(1)
    for files, name, offsets in cases:
        for offset in rng.sample(offsets, SERVED // len(cases)):
            state = scratch / "served"
            shutil.rmtree(state, ignore_errors=True)
            state.mkdir()
            for file, data in files.items():
                (state / file).write_bytes(data[:offset] if file == name else data)
            service = Served(state)
            if "cut back" not in service.text() or b"default" not in service.get("/v1/bandits"):
                wrong.append(f"{name} cut at byte {offset}: {service.text()}")
            if service.stop(signal.SIGTERM) != 0:
                wrong.append(f"{name} cut at byte {offset}: it does not stop as it should")
    return wrong


def _watched(offsets, what):
    started = time.monotonic()
    for done, offset in enumerate(offsets):
        if done % 500 == 0:
            left = (time.monotonic() - started) / max(done, 1) * (len(offsets) - done)
            text = f"\rcuts of the {what}: {done} of {len(offsets)}, {left:.0f} s left   "
            print(text, end="", file=sys.stderr, flush=True)
        yield offset


def every_byte(commits=2, pages=3):
    """Cut everywhere; whether recovery is right everywhere."""
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        folder = Path(folder)
        short, as_killed = write(folder / "killed", 12)
        long, _ = write(folder / "closed", 40)
        as_closed = {long.path.name: long.path.read_bytes()}
        tallies = {
            "write-ahead log": cut_wal(as_killed, short, folder, commits, index=True),
            "write-ahead log without its index": cut_wal(as_killed, short, folder, commits, index=False),
            "main file": cut_main(as_closed, long, folder, pages),
        }
        wal, main = short.wal.name, long.path.name
        end = len(as_closed[main])
        cases = (
            (as_killed, wal, range(short.ends[-1 - commits][0] + 1, len(as_killed[wal]))),
            (as_closed, main, range(end - PAGE, end)),
        )
        served = serve_some(cases, folder)
    for name, tally in tallies.items():
        print(f"\r{name}: {tally}")
        for text in tally.wrong[:5]:
            print(f"  {text[:300]}")
    print(f"{SERVED} cut logs served by a real service, {len(served)} wrong", *served, sep="\n  ")
    return not served and not any(tally.wrong for tally in tallies.values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--commits", type=int, default=2)
    parser.add_argument("--pages", type=int, default=3)
    options = parser.parse_args()
    sys.exit(0 if every_byte(options.commits, options.pages) else 1)


if __name__ == "__main__":
    main()
