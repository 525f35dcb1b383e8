"""In a process of its own: how long one warm-up takes and how far memory rises meanwhile; prints JSON.

python -m suite.peak_memory N_ARMS DIM SKETCH_SIZE SEED
"""

import json
import sys
from pathlib import Path

from sketchbandits import Partition
from suite.games import general_arms
from suite.measure import seconds

_STATUS = Path("/proc/self/status")


def memory(field: str) -> int:
    """Bytes of resident memory: ``VmRSS`` now, ``VmHWM`` at its peak."""
    if not _STATUS.exists():
        import resource  # where there is no /proc: the peak stands for both, since arms come first

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    (line,) = (line for line in _STATUS.read_text().splitlines() if line.startswith(f"{field}:"))
    return 1024 * int(line.split()[1])


def main(n_arms: int, dim: int, sketch_size: int, seed: int) -> dict[str, float]:
    """Seconds, and bytes beyond those of the arms and the compiled kernels."""
    Partition.first_fit(general_arms(4 * sketch_size, dim, seed), sketch_size=sketch_size, progress=False)
    arms = general_arms(n_arms, dim, seed)
    before = memory("VmRSS")
    spent = seconds(lambda: Partition.first_fit(arms, sketch_size=sketch_size, progress=False))
    return {"seconds": spent, "extra": memory("VmHWM") - before}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*map(int, sys.argv[1:]))))
