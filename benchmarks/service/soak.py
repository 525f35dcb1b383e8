"""Random clients for minutes, bad ones among them, a crash and a restart in between; then the log is checked.

    python benchmarks/service/soak.py [--minutes 10] [--threads 8] [--seed 0] [--keep DIR]

Three bandits: multi-scale; UCB1 that explores and has a short deadline; OFUL. Clients in a second process decide,
reward late, twice, in contradiction or never, send bad requests, leave in the middle, add and remove arms. After a
third of the time the service gets ``kill -9``, after two thirds SIGTERM, and starts again. At the end:

- the log is consistent for `checker.py`, which knows nothing of the service's code;
- everything that clients saw acknowledged is in the log;
- what the service shows of its arms is what the checker has counted;
- no status above 499 was seen but 503, and none that a request should not get.
"""

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import checker
import numpy as np
from accounts import Inconsistent
from clients import BANDITS, DIMENSION, FIRST_ARMS, RULES
from servers import Served, free_port, write_arms
from uncrashed import Acknowledged, Crowd

from sketchbandits.service.log import open_log

SNAPSHOT_EVERY = 5_000


class Soak:
    """The service, its clients, and what they do in turn."""

    def __init__(self, folder, options):
        self.folder, self.state, self.port = folder, folder / "state", free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.arms = write_arms(folder / "arms.npy", FIRST_ARMS, DIMENSION, 3)
        self.faults = []
        self.service = self.start()
        rows = [{"id": str(i), "features": row} for i, row in enumerate(np.load(self.arms).tolist())]
        for name, rules in BANDITS.items():
            if name != "default":
                self.ask("/v1/bandits", {"name": name, "arms": rows, **rules})
        flags = ("--threads", options.threads, "--seed", options.seed, "--pause", 0.01, "--wild")
        self.crowd = Crowd(self.address, folder / "journal", *flags)

    def start(self):
        flags = ("--arms", self.arms, *RULES, "--snapshot-every", SNAPSHOT_EVERY)
        return Served(self.state, *flags, port=self.port)

    def ask(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def end(self, how):
        """Stop the service one way or another, with clients at it."""
        noise = self.service.text()
        code = self.service.stop(how)
        if code != (0 if how == signal.SIGTERM else -how):
            self.faults.append(f"exit code {code} after {how.name}: {noise[-1000:]}")
        if "Traceback" in noise:
            self.faults.append(f"the service's log has a stack trace: {noise[noise.index('Traceback') :][:1000]}")

    def run(self, seconds):
        """A third, a kill, a third, a good end, a third."""
        self.crowd.send("go")
        for how in (signal.SIGKILL, signal.SIGTERM, None):
            self._watch(seconds / 3.0)
            if how is not None:
                self.end(how)
                self.service = self.start()
        self.crowd.send("pause")
        return self.crowd.stop()

    def _watch(self, seconds):
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0.0:
            if self.service.process.poll() is not None:
                raise RuntimeError(f"the service has ended: {self.service.text()}")
            shown = self.ask("/v1/activity")["log"]["records"]
            print(f"\r{shown:,} records, {left:.0f} s to the next turn   ", end="", file=sys.stderr, flush=True)
            time.sleep(min(left, 1.0))

    def shown(self):
        """Pulls and means of all arms, and totals, as the service shows them."""
        arms, entries = {}, self.ask("/v1/bandits")["bandits"]
        for entry in entries:
            page = self.ask(f"/v1/arms?bandit={entry['name']}&limit=1000&sort=id")["arms"]
            arms[entry["name"]] = {arm["id"]: (arm["pulls"], arm["mean"], arm["active"]) for arm in page}
        return arms, {entry["name"]: entry for entry in entries}

    def close(self):
        self.crowd.close()
        self.service.close()


def compare_shown(checked, arms, entries):
    """What the service shows against the checker's accounts."""
    for name, account in checked.accounts.items():
        for i, arm in enumerate(account.ids):
            if i not in account.freed and account.index[arm] == i:
                yield from _compare_arm(account, i, f"bandit {name}, arm {arm}", arms[name][arm])
        for what, value in {"decisions": account.decisions, "outstanding": len(account.waiting)}.items():
            if entries[name][what] != value:
                yield f"bandit {name}: {entries[name][what]} {what} shown, {value} in the log"


def _compare_arm(account, i, name, shown):
    pulls, mean, active = shown
    n = int(account.counts[i])
    expected = (n, account.sums[i] / n if n else None, bool(account.active[i]))
    equal = mean == expected[1] or (mean is not None and n > 0 and account.close(mean, expected[1], 10.0))
    if (pulls, active) != (n, expected[2]) or not equal:
        yield f"{name}: shown {shown}, in the log {expected}"


def acknowledged_lost(state, journal):
    """What clients saw acknowledged and the log does not have; what clients found wrong; how much was compared."""
    found = Acknowledged(journal)
    with contextlib.closing(open_log(str(state / "events.db"), read_only=True)) as log:
        for record in log.read():
            found.read(record)
    found.check()
    return found


def judge(soak, statuses):
    """Everything that is wrong."""
    entries = None
    while entries is None or entries["coins"]["outstanding"]:  # the last deadlines pass
        time.sleep(0.2)
        _, entries = soak.shown()
    arms, entries = soak.shown()  # once more: what was shown before may be of a moment before the last was recorded
    soak.end(signal.SIGTERM)
    found = acknowledged_lost(soak.state, soak.folder / "journal")
    print(f"\rstatuses: {json.dumps(statuses, sort_keys=True)}")
    print(f"acknowledged and compared: {dict(found.seen)}")
    faults = soak.faults + found.lost + found.wrong
    faults += [f"status {status} was seen" for status in statuses if status.isdecimal() and int(status) not in ALLOWED]
    try:
        checked = checker.check(soak.state)
    except Inconsistent as error:
        return [*faults, f"the log is inconsistent: {error}"]
    print("\n".join(checker.summary(checked)))
    return faults + list(compare_shown(checked, arms, entries))


ALLOWED = {200, 201, 400, 404, 405, 409, 413, 415, 422, 503}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a new folder for the state and the clients' journal")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Soak(Path(folder), options)) as soak:
        try:
            faults = judge(soak, soak.run(60.0 * options.minutes))
        except KeyboardInterrupt:
            soak.close()
            faults = [*soak.faults, "interrupted: the log so far was checked, nothing else"]
            print("\n".join(checker.summary(checker.check(soak.state))))
        if options.keep:
            soak.close()
            shutil.copytree(folder, options.keep)
    print("consistent" if not faults else f"NOT CONSISTENT: {len(faults)} faults")
    for fault in faults[:10]:
        print(f"  {fault[:500]}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
