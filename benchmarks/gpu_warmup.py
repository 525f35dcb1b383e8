"""Warm-up with a GPU compared with the CPU alone: seconds, and whether the partitions are bit-for-bit identical.

python benchmarks/gpu_warmup.py [--arms 1000000] [--dim 256] [--sketch-size 32] [--json PATH]
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch

import sketchbandits
from sketchbandits import Partition
from sketchbandits.partition.partition import MOST_WORKERS


def seconds(arms: np.ndarray, l: int, device: str, workers: int | None) -> tuple[float, Partition]:
    started = time.perf_counter()
    partition = Partition.first_fit(arms, sketch_size=l, device=device, workers=workers, progress=False)
    return time.perf_counter() - started, partition


def equal(a: Partition, b: Partition) -> bool:
    pairs = ((a.labels, b.labels), (a.ranks, b.ranks), (a.bases, b.bases))
    return all(np.array_equal(mine, other) for mine, other in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description="Warm-up with a GPU compared with the CPU alone.")
    parser.add_argument("--arms", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--sketch-size", type=int, default=32)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--workers", type=int, help="threads in addition to the GPU (default: one per core)")
    parser.add_argument("--json", type=Path, metavar="PATH")
    options = parser.parse_args()
    n, d, l = options.arms, options.dim, options.sketch_size
    arms = np.random.default_rng(0).standard_normal((n, d))
    for device in ("cpu", "cuda"):
        seconds(arms[: 50 * l], l, device, options.workers)  # kernels compiled, the GPU awake
    times: dict[str, list[float]] = {"cpu": [], "cuda": []}
    for _ in range(options.repetitions):
        spent, on_gpu = seconds(arms, l, "cuda", options.workers)
        times["cuda"].append(spent)
        print(f"cuda {spent:.2f} s, {on_gpu.n_clusters:,} clusters", flush=True)
    spent, on_cpu = seconds(arms, l, "cpu", options.workers)
    times["cpu"].append(spent)
    report = {
        "workload": f"N = {n:,}, d = {d}, l = {l}, general position",
        "seconds": times,
        "equal": equal(on_gpu, on_cpu),
        "gpu": torch.cuda.get_device_name(),
        "cores": os.cpu_count(),
        "workers": options.workers or min(MOST_WORKERS, os.cpu_count() or 1),
        "versions": f"Python {platform.python_version()}, NumPy {np.__version__}, PyTorch {torch.__version__}, "
        f"sketchbandits {sketchbandits.__version__}",
    }
    print(json.dumps(report, indent=1))
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
