"""What starting costs: imports, the time to the first decision, and whether a second process compiles anything.

    python benchmarks/startup.py [--repetitions 7] [--json PATH]

Every number comes from a fresh process. The compiled kernels go to a temporary folder, which the first process fills
and the second finds: there Numba's own event "numba:compile" is recorded while every public policy is built, updated,
asked, saved, loaded, replayed and played. It is raised for each compilation and never for a kernel read from disk.
"""

import argparse
import inspect
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NUMPY = "import time; t = time.perf_counter(); import numpy; print(time.perf_counter() - t)"
LIBRARY = "import time; import numpy; t = time.perf_counter(); import sketchbandits; print(time.perf_counter() - t)"
NUMBA = "import time; import numpy; t = time.perf_counter(); import numba; print(time.perf_counter() - t)"
DECISION = """
import time
started = time.perf_counter()
import numpy
from sketchbandits import CSLB
arms = numpy.random.default_rng(0).random((60, 50))
policy = CSLB(arms, sketch_size=5)
policy.select()
decided = time.perf_counter()
policy.update(policy.select(), 0.5)
policy.select()
print(decided - started, time.perf_counter() - started)
"""


def fresh(code: str, cache: Path | None = None) -> list[float]:
    """The numbers that ``code`` prints in a new process."""
    environment = os.environ | ({"NUMBA_CACHE_DIR": str(cache)} if cache is not None else {})
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def imports(repetitions: int) -> dict[str, list[float]]:
    """Seconds to import NumPy, and Numba and the library beyond NumPy; in turns."""
    codes = {"numpy": NUMPY, "numba, beyond numpy": NUMBA, "sketchbandits, beyond numpy": LIBRARY}
    samples: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(repetitions + 1):
        for name, code in codes.items():
            samples[name] += fresh(code)
    return {name: values[1:] for name, values in samples.items()}  # the first only fills the disk cache


def decisions(repetitions: int) -> dict[str, Any]:
    """Seconds to CS-LB's first and second decision, imports included: with an empty cache (once) and a filled one."""
    with tempfile.TemporaryDirectory() as folder:
        empty = fresh(DECISION, Path(folder))
        filled = [fresh(DECISION, Path(folder)) for _ in range(repetitions)]
    return {
        "empty cache": {"first": empty[0], "second": empty[1]},
        "filled cache": {
            "first": statistics.median(first for first, _ in filled),
            "second": statistics.median(second for _, second in filled),
        },
    }


def tour() -> dict[str, Any]:
    """In a child: use every public policy in every way, and say what was compiled and what was read from disk."""
    from numba.core import event

    with event.install_recorder("numba:compile") as compiled:
        n_policies = use_everything()
    started = [e.data["dispatcher"].py_func for _, e in compiled.buffer if e.is_start]
    names = sorted(f"{function.__module__}.{function.__qualname__}" for function in started)
    return {"policies": n_policies, "compiled": len(names), "loaded": count_loaded(), "names": names}


def count_loaded() -> int:
    """How many kernels the library's modules have read from disk."""
    from numba.core.dispatcher import Dispatcher

    modules = [module for name, module in sys.modules.items() if name.startswith("sketchbandits")]
    kernels = {id(k): k for module in modules for k in vars(module).values() if isinstance(k, Dispatcher)}
    return sum(sum(kernel.stats.cache_hits.values()) for kernel in kernels.values())


def use_everything() -> int:
    """Build, update, ask, save, load, play and simulate every public policy; return how many."""
    import numpy as np

    from sketchbandits import simulate
    from sketchbandits.environments import LinearEnvironment, correlated_arms, uniform_parameter

    arms = correlated_arms(n_arms=23, dim=7, group_size=2, seed=0)
    env = LinearEnvironment(arms, uniform_parameter(7, seed=1))
    policies = build_all(arms)
    with tempfile.TemporaryDirectory() as folder:
        for policy in policies.values():
            exercise(policy, Path(folder) / "state.npz", env)
    simulate(env, policies, rounds=50, runs=2, progress=False)
    contexts = np.random.default_rng(2).random((5, 7)) / 7
    for policy in build_contextual().values():
        policy.update(contexts[policy.select(contexts)], 0.5)
        policy.update_many(contexts, np.zeros(5))
        policy.bounds(contexts)
    return len(policies)


def exercise(policy: Any, path: Path, env: Any) -> None:
    """What a caller may do with a policy on fixed arms."""
    import numpy as np

    for _ in range(30):  # long enough for sketches to fill and for refits
        policy.update(policy.select(), 0.5)
    policy.bounds()
    policy.save(path)
    loaded = type(policy).load(path, radius=settings_radius(policy))
    loaded.update(loaded.select(), 0.5)
    loaded.copy().update(0, 0.5)
    loaded.update_many([0, 1], [0.5, 0.5])
    loaded.play((np.arange(3, dtype=np.uint8), np.zeros(3, np.float32)), learn="matches")
    if policy.runs_compiled:
        loaded.play_rounds(env.means, env.gaps, np.zeros(30))
        loaded.play_rounds(env.means.copy(), env.gaps.copy(), np.zeros(30))  # writable arrays are another type to Numba


def settings_radius(policy: Any) -> Any:
    """The user's radius function, which a snapshot cannot hold."""
    radius = policy.settings.get("radius")
    return radius if callable(radius) else None


def flat_radius(samples: int, logdet: float) -> float:
    return 1.0


def variants(cls: type) -> list[dict[str, Any]]:
    """Keyword arguments that reach a policy's different kernels, from its signature: new policies are found as well."""
    known = inspect.signature(cls.__init__).parameters
    base = {"sketch_size": 3} if "sketch_size" in known else {}
    choices: dict[str, tuple[Any, ...]] = {
        "radius": ("logdet", flat_radius),
        "engine": ("sketch",),
        "scan": ("shortlist",),
        "switching": (0.5,),
        "exploration": ("ts",) if "scale" in known else (),
        "shrink": ("every-round",),
        "compensated": (True,),
    }
    return [base] + [base | {name: value} for name, values in choices.items() if name in known for value in values]


def public_policies() -> dict[str, type]:
    import sketchbandits
    from sketchbandits.policies.base import Policy

    public = {name: getattr(sketchbandits, name) for name in sketchbandits.__all__}
    return {name: cls for name, cls in public.items() if isinstance(cls, type) and issubclass(cls, Policy)}


def build_all(arms: Any) -> dict[str, Any]:
    return {
        f"{name} {options}": cls(arms, seed=0, **options)
        for name, cls in public_policies().items()
        for options in variants(cls)
    }


def build_contextual() -> dict[str, Any]:
    built = {}
    for name, cls in public_policies().items():
        if make := getattr(cls, "contextual", None):
            size = {"sketch_size": 3} if "sketch_size" in inspect.signature(make).parameters else {}
            built[name] = make(dim=7, seed=0, **size)
    return built


def compilations() -> dict[str, Any]:
    """The tour in two processes that share a cache folder, and the size of that folder after each."""
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first process", "second process"):
            command = [sys.executable, __file__, "--tour"]
            environment = os.environ | {"NUMBA_CACHE_DIR": folder}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            files = [file for file in Path(folder).rglob("*") if file.is_file()]
            size = {"files": len(files), "megabytes": sum(file.stat().st_size for file in files) / 1e6}
            result[name] = json.loads(done.stdout) | size
    return result


def print_report(report: dict[str, Any]) -> None:
    print(f"{'seconds to import (median of fresh processes)':<60}{'median':>10}{'least':>10}")
    for name, values in report["imports"].items():
        print(f"  {name:<58}{statistics.median(values):>10.3f}{min(values):>10.3f}")
    print(f"\n{'seconds to a decision of CS-LB, imports included':<60}{'first':>10}{'second':>10}")
    for name, values in report["decisions"].items():
        print(f"  {name:<58}{values['first']:>10.3f}{values['second']:>10.3f}")
    if "compilations" not in report:
        return
    print(f"\n{'every policy, two processes, one cache':<40}{'compiled':>10}{'from disk':>10}{'files':>10}{'MB':>10}")
    for name, counts in report["compilations"].items():
        shown = f"{counts['compiled']:>10}{counts['loaded']:>10}{counts['files']:>10}{counts['megabytes']:>10.1f}"
        print(f"  {name + ', ' + str(counts['policies']) + ' policies':<38}{shown}")
    second = report["compilations"]["second process"]
    print(f"compiled again in the second process: {', '.join(second['names']) or 'nothing'}")


def main() -> None:
    parser = argparse.ArgumentParser(description="What starting costs.")
    parser.add_argument("--repetitions", type=int, default=7, help="fresh processes for each median (default: 7)")
    parser.add_argument("--no-tour", action="store_true", help="leave out the tour, which compiles everything: minutes")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write everything to PATH")
    parser.add_argument("--tour", action="store_true", help=argparse.SUPPRESS)  # what the child processes run
    options = parser.parse_args()
    if options.tour:
        print(json.dumps(tour()))
        return
    report: dict[str, Any] = {
        "imports": imports(options.repetitions),
        "decisions": decisions(options.repetitions),
    }
    if not options.no_tour:
        report["compilations"] = compilations()
    print_report(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
