"""Durable requests per second of the service, beside a bare endpoint that stores one row a request.

    python benchmarks/service/throughput.py [--seconds 10] [--turns 3] [--connections 64] [--json FILE]

Load comes from a second process on loopback. The two take turns in one run; a decision and a reward count one each.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import HERE, Served, bare, write_arms

CASES = ((60, 50, 1), (1_000, 20, 10))


def load(address, kind, connections, seconds):
    command = [sys.executable, HERE / "load.py", address, kind, str(connections), str(seconds)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(case, folder, connections, seconds, turns):
    n_arms, dim, group = case
    arms = write_arms(folder / f"{n_arms}.npy", n_arms, dim, group)
    service = Served(folder / f"state-{n_arms}", "--arms", arms)
    samples = {"bandit": [], "bare": []}
    try:
        with bare(folder / f"bare-{n_arms}.db") as address:
            for kind, at in (("bandit", service.address), ("bare", address)):
                load(at, kind, connections, 1)
            for _ in range(turns):
                for kind, at in (("bandit", service.address), ("bare", address)):
                    samples[kind].append(load(at, kind, connections, seconds))
    finally:
        service.stop()
    return samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kept = {}
    print("arms x dim   connections  service/s     bare/s  ratio   p50 ms   p99 ms  p99.9 ms")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            samples = measure(case, Path(folder), options.connections, options.seconds, options.turns)
            middle = {
                kind: {name: statistics.median(sample[name] for sample in taken) for name in taken[0]}
                for kind, taken in samples.items()
            }
            ours, theirs = middle["bandit"], middle["bare"]
            ratio = ours["per_second"] / theirs["per_second"]
            print(
                f"{case[0]:5} x {case[1]:<5} {options.connections:11} {ours['per_second']:10,.0f} "
                f"{theirs['per_second']:10,.0f} {ratio:6.2f} {ours['p50_ms']:8.1f} {ours['p99_ms']:8.1f} "
                f"{ours['p999_ms']:9.1f}",
                flush=True,
            )
            kept["x".join(map(str, case))] = samples
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
