"""What starting costs: imports, the first decision in processor seconds, and whether a second process compiles.

    python benchmarks/startup.py [--against DIR] [--repetitions 7] [--cold 1] [--no-second-process] [--json PATH]

Every number comes from a fresh process. With an empty kernel cache a process compiles what it uses, which is what a new
container pays at its first start unless `sketchbandits precompile` ran while its image was built. Processor seconds are
user and system time of the process, which other work on the machine disturbs least.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from suite import checkouts
from suite.checkouts import Checkout

IMPORTS = {
    "numpy": "import time; t = time.process_time(); import numpy; print(time.process_time() - t)",
    "numba, beyond numpy": "import time, numpy; t = time.process_time(); import numba; print(time.process_time() - t)",
    "sketchbandits, beyond numpy": (
        "import time, numpy; t = time.process_time(); import sketchbandits; print(time.process_time() - t)"
    ),
}
# Each prints the processor seconds since its start at the first decision, and at the one after the first reward.
DECISION = """
import resource
def spent():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
import numpy
from sketchbandits import {policy}
arms = numpy.random.default_rng(0).random((60, 50)) / 50
policy = {policy}(arms{options})
arm = policy.select()
first = spent()
{more}
policy.update(arm, 0.5)
policy.select()
print(first, spent())
"""
PENDING = "policy.add_arms(arms[:1] / 2)\narm = policy.select(pending=[arm, 0])"
# Name: policy, options, what comes between the first decision and the reward, and the most seconds to its end.
DECISIONS = {
    "CSLB": ("CSLB", ", sketch_size=5", "", None),
    "OFUL": ("OFUL", "", "", 4.0),
    "MultiscaleCSLB": ("MultiscaleCSLB", "", "", 10.0),
    "MultiscaleCSLB, pending, an added arm": ("MultiscaleCSLB", "", PENDING, 10.0),
}
SECOND_PROCESS = """
import json
from sketchbandits.precompile import precompile
found = precompile()
print(json.dumps({"compiled": len(found.compiled), "found": found.found, "names": found.compiled}))
"""
Samples = dict[str, dict[str, list[list[float]]]]  # what is measured, by checkout: the numbers of every process


def numbers(checkout: Checkout, code: str, cache: Path | None = None) -> list[float]:
    """The numbers that ``code`` prints in a new process."""
    return [float(word) for word in checkout.run("-W", "error", "-c", code, cache=cache).split()]


def imports(versions: list[Checkout], repetitions: int) -> Samples:
    """Processor seconds to import NumPy, and Numba and the library beyond it."""
    samples: Samples = {name: {version.name: [] for version in versions} for name in IMPORTS}
    for turn in range(repetitions + 1):  # the first only fills the cache of the disk
        for name, code in IMPORTS.items():
            for version in versions:
                found = numbers(version, code)
                if turn > 0:
                    samples[name][version.name].append(found)
    return samples


def decisions(versions: list[Checkout], repetitions: int, cold: int) -> tuple[Samples, Samples]:
    """Processor seconds to the first and the second decision, with an empty kernel cache and with the one it left."""
    empty: Samples = {name: {version.name: [] for version in versions} for name in DECISIONS}
    filled: Samples = {name: {version.name: [] for version in versions} for name in DECISIONS}
    for name, (policy, options, more, _) in DECISIONS.items():
        code = DECISION.format(policy=policy, options=options, more=more)
        for turn in range(cold):
            for version in versions[:: 1 if turn % 2 == 0 else -1]:
                with tempfile.TemporaryDirectory() as folder:
                    empty[name][version.name].append(numbers(version, code, Path(folder)))
                    again = 1 + (repetitions - 1) // cold
                    filled[name][version.name] += [numbers(version, code, Path(folder)) for _ in range(again)]
    return empty, filled


def second_process(here: Checkout) -> dict[str, Any]:
    """Every policy used in every way by two processes that share a cache, and the size of that cache after each."""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first process", "second process"):
            found = json.loads(here.run("-c", SECOND_PROCESS, cache=Path(folder)))
            files = [file for file in Path(folder).rglob("*") if file.is_file()]
            size = {"files": len(files), "megabytes": sum(file.stat().st_size for file in files) / 1e6}
            result[name] = found | size
    return result


def print_samples(title: str, samples: Samples, at: int, limits: dict[str, float | None] | None = None) -> None:
    """The medians of one of the numbers, by checkout, with their ratio, or the target where there is one checkout."""
    names = list(next(iter(samples.values())))
    last = "ratio" if len(names) > 1 else "target" if limits else ""
    print(f"\n{title:<50}" + "".join(f"{name:>10}" for name in names) + f"{last:>10}")
    for name, found in samples.items():
        middles = [statistics.median(each[at] for each in found[version]) for version in names]
        limit = (limits or {}).get(name)
        end = f"{middles[0] / middles[1]:>10.2f}" if len(names) > 1 else ""
        if limit is not None:
            end += f"{f'< {limit:g}':>10} {'yes' if middles[0] < limit else 'NO'}"
        print(f"  {name:<48}" + "".join(f"{middle:>10.3f}" for middle in middles) + end)


def print_report(report: dict[str, Any]) -> None:
    limits = {name: limit for name, (*_, limit) in DECISIONS.items()}
    print_samples("processor seconds to import", report["imports"], 0)
    print_samples("empty cache: to the first decision", report["empty cache"], 0)
    print_samples("empty cache: to the one after a reward", report["empty cache"], 1, limits)
    print_samples("filled cache: to the one after a reward", report["filled cache"], 1)
    if "second process" not in report:
        return
    print(f"\n{'every policy in two processes, one cache':<42}{'compiled':>10}{'found':>8}{'files':>8}{'MB':>8}")
    for name, counts in report["second process"].items():
        shown = f"{counts['compiled']:>10}{counts['found']:>8}{counts['files']:>8}{counts['megabytes']:>8.1f}"
        print(f"  {name:<40}{shown}")
    again = report["second process"]["second process"]["names"]
    print(f"compiled again in the second process: {', '.join(again) or 'nothing'}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What starting costs.")
    parser.add_argument("--repetitions", type=int, default=7, help="processes for each median (default: 7)")
    parser.add_argument("--cold", type=int, default=1, help="how often kernels are compiled for a median (default: 1)")
    skipped = "leave out the two processes that use every policy: minutes"
    parser.add_argument("--no-second-process", action="store_true", help=skipped)
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything to PATH")
    checkouts.add_argument(parser)
    options = parser.parse_args()
    versions = checkouts.chosen(options.against)
    report: dict[str, Any] = {"imports": imports(versions, options.repetitions)}
    report["empty cache"], report["filled cache"] = decisions(versions, options.repetitions, options.cold)
    if not options.no_second_process:
        report["second process"] = second_process(versions[0])
    print_report(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
