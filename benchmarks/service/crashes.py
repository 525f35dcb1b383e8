"""Kill the service under load, many times: nothing acknowledged may be lost, and no client may see that it was killed.

    python benchmarks/service/crashes.py [--kills 200] [--terms 20] [--seed 0] [--only kills|terms|disk|cuts]

Clients in a second process decide (with keys, batches, availability), reward (late, twice, in contradiction), add and
remove arms, take rewards back, free the memory of removed arms, make and delete bandits. After each ``kill -9``, some
of them during start-up and many during a snapshot:

- everything that was acknowledged is in the log as it was acknowledged (*lost* counts what is not);
- the state recovered from snapshot and log equals, bit for bit, that of a ledger that followed the log from its first
  record and never stopped; every tenth time also that of a fresh replay of the whole log;
- every decision in the log is the one that this ledger makes; so are the next that are asked of the restarted service;
- a key that was answered before gets the same answer (*mismatches* counts what differs).

The same with SIGTERM, where every request that reached the log must also have been answered and the exit code is 0;
with a full disk; and with the log cut at every byte of its end (`cuts.py`).
"""

import argparse
import contextlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from pathlib import Path

import cuts
import numpy as np
from clients import BANDITS, DIMENSION, FIRST_ARMS, RULES, Journal
from full_disk import full_disk
from servers import Served, free_port, write_arms
from uncrashed import Acknowledged, Crowd, Uncrashed, fingerprint

from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.recovery import recover
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.log import open_log

NEXT = 10  # decisions asked of a restarted service, of each bandit
SNAPSHOT_EVERY = 50
REPLAY_EVERY = 10


def ask(address, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


class Campaign:
    """A state folder, the service on it, the clients, and what must be true of them."""

    def __init__(self, folder, seed, state=None, limits=None):
        self.folder, self.state, self.rng, self.limits = folder, state or folder / "state", random.Random(seed), limits
        self.port = free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.arms = write_arms(folder / "arms.npy", FIRST_ARMS, DIMENSION, 3)
        self.journal = Journal(folder / "journal")
        self.acknowledged, self.uncrashed = Acknowledged(folder / "journal"), Uncrashed()
        self.totals, self.mismatches, self.exits = Counter(), [], Counter()
        self.unfinished, self.start_seconds = set(), 1.5
        self.service = self.start()
        self._create()
        self.crowd = Crowd(self.address, folder / "journal", "--seed", seed)

    def start(self, *, wait=True):
        flags = ("--arms", self.arms, *RULES, "--snapshot-every", SNAPSHOT_EVERY)
        service = Served(self.state, *flags, port=self.port, wait=wait, limits=self.limits)
        if wait:
            self.start_seconds = service.ready_seconds
        return service

    def _create(self):
        rows = np.load(self.arms).tolist()
        arms = [{"id": str(i), "features": row} for i, row in enumerate(rows)]
        for name, rules in BANDITS.items():
            if name != "default":
                ask(self.address, "/v1/bandits", {"name": name, "arms": arms, **rules})

    def cycle(self, how):
        """Load, an end, a check of what is left, a new start."""
        before = self.uncrashed.last
        self.crowd.send("go")
        time.sleep(self.rng.uniform(0.03, 0.6))
        self._end(self.service, how)
        self.crowd.send("pause")
        self.examine()
        if how == signal.SIGTERM:
            self.mismatches += [f"logged and not answered: {name}" for name in self.acknowledged.unanswered(before)]
        if how == signal.SIGKILL and self.rng.random() < 0.25:
            self._kill_at_start()
        self.service = self.start()
        self.ask_next()

    def _end(self, service, how):
        self.totals[signal.Signals(how).name] += 1
        code = service.stop(how)
        if code != (0 if how == signal.SIGTERM else -how):
            self.mismatches.append(f"exit code {code} after {signal.Signals(how).name}")

    def _kill_at_start(self):
        service = self.start(wait=False)
        time.sleep(self.rng.uniform(0.0, 1.1 * self.start_seconds))
        self._end(service, signal.SIGKILL)
        self.totals["during start-up"] += 1

    def examine(self):
        """Recover a copy of the folder and compare."""
        self.totals["checks"] += 1
        with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
            copy = Path(scratch) / "state"
            shutil.copytree(self.state, copy)
            self.unfinished |= {path.name for path in copy.glob("snapshots/*.part")}
            self.totals["interrupted snapshots"] = len(self.unfinished)
            with contextlib.closing(open_log(str(copy / "events.db"))) as log:
                self._compare(log, recover(log, Snapshots(copy / "snapshots")))
        self.acknowledged.check()

    def _compare(self, log, recovered):
        self.totals["torn tails"] += len(log.cuts)
        self.totals["recovered from a snapshot"] += recovered.snapshot.seq > 0
        records = list(log.read(self.uncrashed.last))
        for record in records:
            self.acknowledged.read(record)
        self.uncrashed.follow(records)
        expected = fingerprint(self.uncrashed.ledger)
        if fingerprint(recovered.ledger) != expected:
            self.mismatches.append(f"the state recovered at record {self.uncrashed.last} is another")
        if recovered.ledger.next_number < self.uncrashed.ledger.next_number:
            self.mismatches.append(f"recovered at record {self.uncrashed.last}, numbers would be used again")
        if self.totals["checks"] % REPLAY_EVERY == 1:
            fresh = Ledger()
            fresh.replay(log.read())
            self.totals["whole replays"] += 1
            if fingerprint(fresh) != expected:
                self.mismatches.append(f"a replay of all {self.uncrashed.last} records gives another state")

    def ask_next(self):
        """The next decisions of a restarted service; a deadline may pass first, which the log shows later."""
        for name, rules in BANDITS.items():
            body = {"bandit": name, "count": NEXT}
            answer = ask(self.address, "/v1/decisions", body)
            self.journal.write("decided", body, answer)
            if "deadline" in rules:
                continue
            made = [(d["arm"], d["bound"], d["probability"]) for d in answer["decisions"]]
            self.totals["next decisions"] += NEXT
            number = int(answer["decisions"][0]["decision_id"].partition("-")[0])
            if made != self.uncrashed.next_decisions(name, NEXT, number):
                self.mismatches.append(f"after record {self.uncrashed.last} bandit {name} decides otherwise: {made}")

    def finish(self):
        """Stop everything and check a last time."""
        statuses = self.crowd.stop()
        self._end(self.service, signal.SIGTERM)
        self.totals["checks"] = 0
        self.examine()
        return statuses

    def close(self):
        """End what still runs."""
        self.crowd.close()
        self.service.close()

    def report(self):
        """What happened, in lines; whether all is well."""
        seen, lost = self.acknowledged.seen, self.acknowledged.lost
        wrong = self.mismatches + self.uncrashed.differing + self.acknowledged.wrong
        events = sum(seen[what] for what in ("decided", "outcome", "added", "removed", "retracted", "deleted"))
        print(", ".join(f"{count} {what}" for what, count in self.totals.items() if what != "checks"))
        print(
            f"{self.uncrashed.last:,} records; {events:,} acknowledged answers: {seen['decided']:,} of decisions, "
            f"{seen['accepted']:,} rewards accepted, {seen['known']:,} known, {seen['conflict']:,} in conflict, "
            f"{seen['added'] + seen['removed']} changes of arms, {seen['retracted']} retractions, {seen['deleted']} "
            f"bandits deleted; {seen['repeated']} keys answered again; "
            f"{self.uncrashed.decisions:,} decisions made again"
        )
        print(f"lost: {len(lost)}   mismatches: {len(wrong)}", flush=True)
        for text in (lost + wrong)[:10]:
            print(f"  {text[:500]}")
        return not lost and not wrong


def _memory():
    """A folder in memory, where there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def progress(what, done, total, started):
    left = (time.monotonic() - started) / max(done, 1) * (total - done)
    print(f"\r{what}: {done} of {total}, {left / 60:.1f} minutes left   ", end="", file=sys.stderr, flush=True)


def kill_many(name, how, count, seed):
    """``count`` ends of a kind; whether nothing was lost."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        with contextlib.closing(Campaign(Path(folder), seed)) as campaign:
            try:
                while (done := campaign.totals[signal.Signals(how).name]) < count:
                    progress(name, done, count, started)
                    campaign.cycle(how)
            except KeyboardInterrupt:
                print(f"\ninterrupted; {name} so far:")
                campaign.report()
                raise
            statuses = campaign.finish()
            print(f"\r{name}: {time.monotonic() - started:.0f} s, statuses {statuses}")
            return campaign.report()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--terms", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("kills", "terms", "disk", "cuts"))
    options = parser.parse_args()
    parts = {
        "kills": lambda: kill_many("kill -9", signal.SIGKILL, options.kills, options.seed),
        "terms": lambda: kill_many("SIGTERM", signal.SIGTERM, options.terms, options.seed + 1),
        "disk": lambda: full_disk(Campaign, ask, options.seed + 2),
        "cuts": cuts.every_byte,
    }
    try:
        good = [part() for name, part in parts.items() if options.only in (None, name)]
    except KeyboardInterrupt:
        sys.exit(130)
    print("all good" if all(good) else "NOT GOOD")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
