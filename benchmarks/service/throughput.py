"""Durable requests per second of the service, compared with a bare endpoint that stores one row per request.

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

from servers import HERE, Served, bare, cpu_seconds, write_arms

CASES = ((60, 50, 1), (1_000, 20, 10))


def load(address, pid, kind, connections, seconds):
    command = [sys.executable, HERE / "load.py", address, kind, str(connections), str(seconds)]
    before = cpu_seconds(pid)
    sample = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return sample | {"cpu_us": 1e6 * (cpu_seconds(pid) - before) / sample["requests"]}


def measure(case, folder, connections, seconds, turns):
    n_arms, dim, group = case
    arms = write_arms(folder / f"{n_arms}.npy", n_arms, dim, group)
    service = Served(folder / f"state-{n_arms}", "--arms", arms)
    samples = {"bandit": [], "bare": []}
    try:
        with bare(folder / f"bare-{n_arms}.db") as (address, pid):
            sides = {"bandit": (service.address, service.process.pid), "bare": (address, pid)}
            for kind, at in sides.items():
                load(*at, kind, connections, 1)
            for _ in range(turns):
                for kind, at in sides.items():
                    samples[kind].append(load(*at, kind, connections, seconds))
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
    print("arms x dim  who      requests/s  CPU us  p50 ms  p99 ms  p99.9 ms   ratio  (CPU)")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            samples = measure(case, Path(folder), options.connections, options.seconds, options.turns)
            middle = {
                kind: {name: statistics.median(sample[name] for sample in taken) for name in taken[0]}
                for kind, taken in samples.items()
            }
            for kind, at in middle.items():
                print(
                    f"{case[0]:4} x {case[1]:<4} {kind:8} {at['per_second']:9,.0f} {at['cpu_us']:8.0f} "
                    f"{at['p50_ms']:7.1f} {at['p99_ms']:7.1f} {at['p999_ms']:9.1f}",
                    end="\n" if kind == "bandit" else "",
                )
            ratio = middle["bandit"]["per_second"] / middle["bare"]["per_second"]
            print(f"{ratio:8.2f}  {middle['bare']['cpu_us'] / middle['bandit']['cpu_us']:.2f}", flush=True)
            kept["x".join(map(str, case))] = samples
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
