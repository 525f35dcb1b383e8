"""How long the service takes from the start of its process to its first answer, with a million events in its log.

    python benchmarks/service/restart.py [--events 1000000] [--behind 100000] [--turns 3] [--folder DIR]

Writes the log without HTTP: decisions and rewards of 200 arms in 50 dimensions, default policy, committed in groups,
with the snapshots that a service leaves. The last one is ``--behind`` records older than the log, by default as much as
it ever is when a service is killed. Then starts it with snapshots and without, in turns.
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from servers import Served

from sketchbandits.environments import correlated_arms
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.operations import plan_operation
from sketchbandits.service.bandits.planning import Facts, plan_group
from sketchbandits.service.bandits.requests import CreateBandit, Decide, Reward
from sketchbandits.service.bandits.snapshots import Snapshots, frozen
from sketchbandits.service.log import open_log

N_ARMS, DIMENSION = 200, 50
GROUP = 500
SNAPSHOT_EVERY = 100_000  # the service's default


class Writer:
    """Plans, stores and applies as the service does, in its own process."""

    def __init__(self, state):
        self.log, self.ledger = open_log(str(state / "events.db")), Ledger()
        self.snapshots, self.kept = Snapshots(state / "snapshots"), 0  # the record of the newest
        self.now = time.time() - 86_400.0
        arms = correlated_arms(n_arms=N_ARMS, dim=DIMENSION, group_size=10, normalize="max", seed=0)
        ids = tuple(f"a{i}" for i in range(N_ARMS))
        create = CreateBandit("default", BanditConfig(reward_range=None), ids, arms)
        self.store([plan_operation(self.ledger, create, self.now)[0]])

    def store(self, changes):
        """Commit, then apply."""
        records = self.log.append([change.event() for change in changes])
        self.ledger.apply(zip((record.seq for record in records), changes, strict=True))

    def serve(self, requests):
        """Answers to a group."""
        self.now += 0.05
        plan = plan_group(self.ledger, requests, Facts({}, {}), self.now)
        self.store(plan.changes)
        return plan.answers

    def keep_snapshot(self):
        """As of now."""
        self.kept = self.log.last.seq
        self.snapshots.write(frozen(self.ledger, self.log.last))


def write(state, events, behind):
    """A log of this many events and a newest snapshot that is so many older."""
    writer, rng, started = Writer(state), random.Random(0), time.monotonic()
    due = list(range(events - behind, 0, -SNAPSHOT_EVERY))
    while (done := writer.log.last.seq) < events:
        count = max(1, min(GROUP, (events - done) // 2))
        answers = writer.serve([Decide("default")] * count)
        made = [answer["decisions"][0]["decision_id"] for answer in answers]
        writer.serve([Reward("default", ((decision, rng.gauss(0.2, 0.5)),)) for decision in made])
        if due and writer.log.last.seq >= due[-1]:
            due.pop()
            writer.keep_snapshot()
        left = (time.monotonic() - started) / writer.log.last.seq * (events - writer.log.last.seq)
        print(f"\rwriting: {writer.log.last.seq:,} events, {left:.0f} s left   ", end="", file=sys.stderr, flush=True)
    writer.log.close()
    seconds = time.monotonic() - started
    print(f"\rwritten: {writer.log.last.seq:,} events in {seconds:.0f} s; newest snapshot {writer.kept:,}")


def size_of(path):
    """Bytes of a file, or of all files in a folder."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)


def start(state):
    """Seconds until it is ready, and what it says of its recovery; killed, so that it leaves everything as it was."""
    service = Served(state)
    said = next(line for line in service.text().splitlines() if line.startswith("recovered"))
    seconds = service.ready_seconds
    service.stop(signal.SIGKILL)
    return seconds, said


def measure(state, turns):
    """Both ways, in turns."""
    taken = {"with snapshots": [], "without": []}
    folder, aside = state / "snapshots", state / "aside"
    for turn in range(turns):
        for how, seconds in taken.items():
            if how == "without" and folder.exists():
                folder.rename(aside)
            try:
                found, said = start(state)
            finally:
                if aside.exists():
                    shutil.rmtree(folder, ignore_errors=True)
                    aside.rename(folder)
            seconds.append(found)
            print(f"turn {turn + 1}, {how}: ready after {found:.2f} s ({said})", flush=True)
    return taken


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--behind", type=int, default=SNAPSHOT_EVERY)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder where left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        state = Path(folder)
        os.chmod(state, 0o700)
        write(state, options.events, options.behind)
        log, kept = size_of(state / "events.db"), size_of(state / "snapshots")
        print(f"on disk: log {log / 1e6:.1f} MB, snapshots {kept / 1e6:.2f} MB", flush=True)
        taken = measure(state, options.turns)
    middle = {how: statistics.median(seconds) for how, seconds in taken.items()}
    print(f"ready with snapshots after {middle['with snapshots']:.2f} s, without after {middle['without']:.2f} s")


if __name__ == "__main__":
    main()
