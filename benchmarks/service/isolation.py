"""One bandit's latency while others are created, listed, asked for much, refused and snapshotted, against that alone.

    python benchmarks/service/isolation.py [--seconds 10] [--connections 16] [--pause 0] [--json FILE]
        [--against DIR]

The watched bandit has 60 arms in 50 dimensions (multi-scale) and a closed loop of decisions and rewards from a process
of its own. Another process does to bandits of 50,000 arms what `disturb.py` says, one thing at a time and then all
together; a third asks for ``/healthz`` 20 ms after each answer. All that takes place twice: with no compiled kernel in
the cache, and then with all of them.

*alone* is measured before each disturbance and after the last, and counts as one: a machine that has other work to do
shows there too. In the phases *snapshots* and *together* the service keeps a snapshot of everything after 5,000
records. A phase lasts until all that it began is done.

Targets: the p99 of every phase is at most twice that alone, and no ``/healthz`` takes longer than 100 ms. The exit code
is 1 where one is missed.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import disturb
from servers import HERE, Served, write_arms

sys.path.append(str(HERE.parent))
from suite import checkouts

N_ARMS, DIM = 60, 50
RULES = ("--policy", "multiscale:sketch_size=5", "--pending", "1000")  # explicit, since defaults differ by version
BIG = {"policy": "multiscale", "options": {"sketch_size": 5}, "pending": 1000}
NO_SNAPSHOTS, MANY_SNAPSHOTS = 1_000_000_000, 5_000  # records between two
HEALTH_PAUSE = 0.02
MOST_SECONDS = 300.0  # that a phase may take to end what it began
AT_MOST, HEALTH_MS = 2.0, 100.0  # the targets
PHASES = (("created", ["create"]), ("listed", ["list"]), ("count=1000", ["count"]), ("refused", ["refuse"]))
TOGETHER = ["create", "list", "count", "refuse"]


class Child:
    """`watch.py` or `disturb.py` in a process of its own, which is asked in lines."""

    def __init__(self, script, *arguments):
        command = [sys.executable, HERE / script, *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([*map(str, command)], text=True, **pipes)

    def tell(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self):
        """The next line, as it is read."""
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.process.args[1]} has ended with code {self.process.wait()}")
        return line

    def ask(self):
        self.tell()
        return json.loads(self.answer())

    def close(self):
        self.process.kill()
        self.process.wait()


class Run:
    """All phases on one checkout with one kernel cache."""

    def __init__(self, checkout, cache, folder, options):
        self.options, self.state = options, folder / "state"
        _, self.environment = checkout.command((), cache)
        self.arms = write_arms(folder / "arms.npy", N_ARMS, DIM, 1)
        self.found = {}  # phase -> samples
        self.begin = time.perf_counter()

    def all(self):
        """Every phase."""
        with self._service(NO_SNAPSHOTS) as service:
            for name, actions in PHASES:
                self._phase(service, "alone")
                self._phase(service, name, actions)
                if name == "created":
                    self._make_big(service)
            self._phase(service, "alone")
        with self._service(MANY_SNAPSHOTS) as service:
            before = self._snapshot(service)
            self._phase(service, "snapshots")
            if self._snapshot(service) == before:
                raise RuntimeError("no snapshot was written")
            self._phase(service, "together", TOGETHER)
        return {name: _summary(samples) for name, samples in self.found.items()}

    @contextlib.contextmanager
    def _service(self, snapshot_every):
        flags = ("--arms", self.arms, *RULES, "--snapshot-every", snapshot_every)
        service = Served(self.state, *flags, environment=self.environment)
        self.load = Child("watch.py", service.address, "load", self.options.connections, 1e-3 * self.options.pause)
        self.health = Child("watch.py", service.address, "health", 1, HEALTH_PAUSE)
        try:
            time.sleep(1.0)
            yield service
            self.load.close()
            self.health.close()
            service.stop()
        finally:
            self.load.close()
            self.health.close()
            service.close()

    def _phase(self, service, name, actions=()):
        disturbers = Child("disturb.py", service.address, *actions) if actions else None
        try:
            if disturbers is not None:
                disturbers.answer()  # its bodies are made
                disturbers.tell()
            self.load.ask(), self.health.ask()
            time.sleep(self.options.seconds if actions else self.options.seconds / 2.0)
            done = None
            if disturbers is not None:
                done = _within(disturbers.ask, MOST_SECONDS, disturbers.process)
            sample = {"load": self.load.ask(), "health": self.health.ask(), "done": done}
        finally:
            if disturbers is not None:
                disturbers.close()
        self.found.setdefault(name, []).append(sample)
        note = "" if done is None else f": {json.dumps(done['statuses'])}"
        print(f"{time.perf_counter() - self.begin:5.0f} s  {name}{note}", file=sys.stderr, flush=True)

    def _make_big(self, service):
        body = disturb.bandit(disturb.BIG, BIG)
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{service.address}/v1/bandits", body, headers)
        with urllib.request.urlopen(request, timeout=MOST_SECONDS):
            pass

    def _snapshot(self, service):
        return json.loads(service.get("/v1/activity"))["log"]["snapshot"]


def _within(function, seconds, process):
    """What a function returns; the process on whose answer it waits is killed after so many seconds."""
    with subprocess.Popen([sys.executable, "-c", _KILLER, str(process.pid), str(seconds)]) as killer:
        try:
            return function()
        finally:
            killer.kill()


_KILLER = "import os, sys, time; time.sleep(float(sys.argv[2])); os.kill(int(sys.argv[1]), 9)"


def _summary(samples):
    """Latencies of one phase, all its samples counting as one."""
    waited = sorted(ms for sample in samples for ms in sample["load"]["ms"])
    health = [ms for sample in samples for ms in sample["health"]["ms"]]
    longest = {}
    for sample in samples:
        longest |= (sample["done"] or {}).get("longest", {})
    return {
        "per_second": len(waited) / sum(sample["load"]["seconds"] for sample in samples),
        "p50_ms": _quantile(waited, 0.5),
        "p99_ms": _quantile(waited, 0.99),
        "longest_ms": waited[-1] if waited else float("inf"),
        "failed": sum(sample[what]["failed"] for sample in samples for what in ("load", "health")),
        "health_p50_ms": statistics.median(health) if health else float("inf"),
        "health_longest_ms": max(health, default=float("inf")),
        "requests_longest_s": longest,
    }


def _quantile(ordered, share):
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else float("inf")


def show(title, found):
    """A table; whether the targets are reached."""
    alone, good = found["alone"], True
    print(f"\n{title}")
    print("phase         requests/s   p50 ms   p99 ms  x alone  longest ms  healthz  failed")
    for name, at in found.items():
        ratio = at["p99_ms"] / alone["p99_ms"]
        good &= ratio <= AT_MOST and at["health_longest_ms"] <= HEALTH_MS
        print(
            f"{name:12} {at['per_second']:11,.0f} {at['p50_ms']:8.2f} {at['p99_ms']:8.2f} {ratio:8.2f} "
            f"{at['longest_ms']:11,.0f} {at['health_longest_ms']:8,.0f} {at['failed']:7,}"
        )
    worst = max(at["p99_ms"] for at in found.values()) / alone["p99_ms"]
    health = max(at["health_longest_ms"] for at in found.values())
    print(f"p99 at most {worst:.2f} x that alone (target {AT_MOST:.0f}): {'yes' if worst <= AT_MOST else 'NO'}")
    print(
        f"longest /healthz {health:,.0f} ms (aim {HEALTH_MS:.0f}): {'yes' if health <= HEALTH_MS else 'NO'}", flush=True
    )
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0, help="of each phase")
    parser.add_argument("--connections", type=int, default=16, help="of the watched bandit's clients")
    parser.add_argument("--pause", type=float, default=0.0, help="milliseconds before each of their requests")
    parser.add_argument("--json", type=Path)
    checkouts.add_argument(parser)
    options = parser.parse_args()
    kept, good = {}, True
    print(f"{N_ARMS} x {DIM} watched, others of {disturb.N_ARMS:,} x {disturb.DIM}; {os.cpu_count()} processors")
    for checkout in checkouts.chosen(options.against):
        with tempfile.TemporaryDirectory() as cache:
            for temperature in ("cold", "warm"):
                with tempfile.TemporaryDirectory() as folder:
                    found = Run(checkout, Path(cache), Path(folder), options).all()
                kept[f"{checkout.name}, {temperature}"] = found
                reached = show(f"{checkout.name}, {temperature} kernel cache", found)
                good &= reached or checkout.name != checkouts.THIS
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
