"""Durable requests per second of the service, compared with a bare endpoint that stores one row per request.

    python benchmarks/service/throughput.py [--seconds 10] [--turns 3] [--connections 64] [--json FILE] [--against DIR]

Load comes from a second process on loopback. All sides take turns in one run; a decision and a reward count one each.
``--against`` measures the service of another checkout of the library as well, with the same rules.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from servers import HERE, Served, bare, cpu_seconds, write_arms

sys.path.append(str(HERE.parent))
from suite import checkouts

CASES = ((60, 50, 1), (1_000, 20, 10))
RULES = ("--policy", "multiscale:sketch_size=5", "--pending", "1000")  # explicit, since defaults differ by version


def load(address, pid, kind, connections, seconds):
    command = [sys.executable, HERE / "load.py", address, kind, str(connections), str(seconds)]
    before = cpu_seconds(pid)
    sample = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return sample | {"cpu_us": 1e6 * (cpu_seconds(pid) - before) / sample["requests"]}


def measure(case, folder, options):
    n_arms, dim, group = case
    arms = write_arms(folder / f"{n_arms}.npy", n_arms, dim, group)
    with contextlib.ExitStack() as stack:
        sides = {}
        for checkout in checkouts.chosen(options.against):
            _, environment = checkout.command(())
            state = folder / f"{checkout.name}-{n_arms}"
            service = Served(state, "--arms", arms, *RULES, environment=environment)
            stack.callback(service.stop)
            sides[checkout.name] = ("bandit", service.address, service.process.pid)
        sides["bare"] = ("bare", *stack.enter_context(bare(folder / f"bare-{n_arms}.db")))
        samples = {name: [] for name in sides}
        for kind, address, pid in sides.values():
            load(address, pid, kind, options.connections, 1)
        for turn in range(options.turns):
            # Every other turn backwards: on a busy machine, the place within a turn makes a difference.
            for name, (kind, address, pid) in list(sides.items())[:: -1 if turn % 2 else 1]:
                samples[name].append(load(address, pid, kind, options.connections, options.seconds))
    return samples


def show(case, samples):
    """One line per side; ratios are those of this checkout to the side of the line."""
    middle = {
        name: {field: statistics.median(sample[field] for sample in taken) for field in taken[0]}
        for name, taken in samples.items()
    }
    here = middle[checkouts.THIS]
    for name, at in middle.items():
        ratios = f"{here['per_second'] / at['per_second']:8.2f}  {at['cpu_us'] / here['cpu_us']:.2f}"
        print(
            f"{case[0]:4} x {case[1]:<4} {name:8} {at['per_second']:9,.0f} {at['cpu_us']:8.0f} {at['p50_ms']:7.1f} "
            f"{at['p99_ms']:7.1f} {at['p999_ms']:9.1f}{ratios if name != checkouts.THIS else ''}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--json", type=Path)
    checkouts.add_argument(parser)
    options = parser.parse_args()
    kept = {}
    print("arms x dim  who      requests/s  CPU us  p50 ms  p99 ms  p99.9 ms   ratio  (CPU)")
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            kept["x".join(map(str, case))] = samples = measure(case, Path(folder), options)
            show(case, samples)
    if options.json:
        options.json.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
