"""Compiled kernels are cached and never stale; start-up is lean; bad parameters are refused by name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import JIT

import sketchbandits
from sketchbandits import (
    CBRAP,
    CBSCFD,
    CSLB,
    OFUL,
    SOFUL,
    UCB1,
    DBSLinUCB,
    LinTS,
    LinUCB,
    MultiscaleCSLB,
    Partition,
)
from sketchbandits.kernels.compiled import STAMPED

FIRST_DECISIONS = """
import numpy as np
from numba.core import event
compiled = []
class Listener(event.Listener):
    def on_start(self, e): pass
    def on_end(self, e): compiled.append(str(e.data["dispatcher"].py_func.__name__))
with event.install_listener("numba:compile", Listener()):
    from sketchbandits import UCB1
    policy = UCB1(np.arange(12.0).reshape(4, 3) % 5)
    for t in range(30):
        policy.update(policy.select(), 1.0)
    policy.play_rounds(np.ones(4), np.zeros(4), np.ones(5))
    arms, rewards = np.array([0, 3], np.uint8), np.ones(2, np.float32)
    arms.setflags(write=False)
    policy.update_many(arms, rewards)
    before = len(compiled)
    policy.update_many([1, 2, 2], [1.0, 0.5, 2.0])
    policy.play((arms, rewards), learn="matches")
    assert len(compiled) == before, compiled[before:]
    print(len(compiled), policy.bounds()[1])
"""


def run(code, source, cache):
    env = {**os.environ, "PYTHONPATH": str(source), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    compiled, bound = done.stdout.split()
    return int(compiled), float(bound)


@pytest.mark.process
@pytest.mark.skipif(not JIT, reason="nothing is compiled")
def test_a_second_process_compiles_nothing_and_an_edited_callee_is_noticed(tmp_path):
    source = tmp_path / "source"
    shutil.copytree(
        Path(sketchbandits.__file__).parent, source / "sketchbandits", ignore=shutil.ignore_patterns("__pycache__")
    )
    first, bound = run(FIRST_DECISIONS, source, tmp_path / "cache")
    again, same = run(FIRST_DECISIONS, source, tmp_path / "cache")
    assert first > 5 and again == 0 and same == bound
    # The sum is inlined into UCB1's kernels, in another file.
    callee = source / "sketchbandits" / "kernels" / "linalg.py"
    text = callee.read_text()
    assert "    table[row, i] += value\n" in text
    callee.write_text(text.replace("    table[row, i] += value\n", "    table[row, i] += value + 1.0\n"))
    edited, larger = run(FIRST_DECISIONS, source, tmp_path / "cache")
    assert edited > 0 and larger > bound


@pytest.mark.process
def test_importing_the_library_loads_no_plotting_or_tables():
    code = (
        "import sys, sketchbandits; print([m for m in ('matplotlib', 'polars', 'rich', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ARMS = np.random.default_rng(0).normal(size=(7, 4))
SHARED = [
    ({"ridge": 0.0}, "ridge must be a number > 0"),
    ({"ridge": float("nan")}, "ridge must be a number > 0"),
    ({"noise": -1.0}, "noise must be a number >= 0"),
    ({"theta_norm": "1"}, "theta_norm must be a number > 0"),
    ({"arm_norm": 0.1}, "arm_norm must be at least the largest arm norm"),
    ({"delta": 1.0}, "delta must be a number strictly between 0 and 1, got 1.0"),
    ({"delta": 0}, "delta must be a number strictly between 0 and 1, got 0"),
    ({"radius": "wide"}, "radius must be one of"),
    ({"seed": -1}, "seed must be a whole number >= 0"),
]
SIZED = [
    ({"sketch_size": 0}, "sketch_size must be a whole number >= 1, got 0"),
    ({"sketch_size": 2.0}, "sketch_size must be a whole number >= 1, got 2.0"),
]
REFUSED = [
    *[(cls, bad) for cls in (CSLB, MultiscaleCSLB, OFUL, LinTS, SOFUL, CBSCFD, DBSLinUCB) for bad in SHARED],
    *[(cls, bad) for cls in (CSLB, MultiscaleCSLB, SOFUL, CBSCFD, DBSLinUCB, CBRAP) for bad in SIZED],
    (CSLB, ({"engine": "fast"}, "engine must be one of 'coordinates', 'sketch', got 'fast'")),
    (OFUL, ({"switching": 0}, "switching must be a number > 0")),
    (SOFUL, ({"shrink": "never"}, "shrink must be one of 'buffered', 'every-round', got 'never'")),
    (SOFUL, ({"shrink": "every-round", "sketch_size": 1}, "sketch_size with shrink='every-round' must be")),
    (SOFUL, ({"exploration": "eps"}, "exploration must be one of 'ucb', 'ts', got 'eps'")),
    (LinTS, ({"scale": -1.0}, "scale must be a number >= 0")),
    (LinTS, ({"horizon": 0}, "horizon must be a whole number >= 1")),
    (LinUCB, ({"alpha": -0.1}, "alpha must be a number >= 0")),
    (DBSLinUCB, ({"error": 0}, "error must be a number > 0")),
    (UCB1, ({"exploration": 0}, "exploration must be a number > 0")),
]


@pytest.mark.parametrize(("cls", "case"), REFUSED, ids=lambda value: getattr(value, "__name__", None))
def test_bad_parameters_are_named(cls, case):
    options, message = case
    if cls in (CSLB, SOFUL, CBSCFD, DBSLinUCB, CBRAP):
        options = {"sketch_size": 2, **options}
    with pytest.raises(ValueError, match=message):
        cls(ARMS, **options)


@pytest.mark.parametrize("cls", [OFUL, LinUCB, LinTS, SOFUL, CBSCFD, DBSLinUCB, CBRAP])
def test_contextual_parameters_are_named(cls):
    sized = {"sketch_size": 2} if cls in (SOFUL, CBSCFD, DBSLinUCB, CBRAP) else {}
    for bad in (0, -3, 2.5, None):
        with pytest.raises(ValueError, match="dim must be a whole number >= 1"):
            cls.contextual(dim=bad, **sized)
    with pytest.raises(ValueError, match="ridge must be"):
        cls.contextual(dim=4, ridge=-1.0, **sized)


def test_partition_refuses_bad_input():
    with pytest.raises(ValueError, match="sketch_size must be a whole number >= 1, got True"):
        Partition.first_fit(ARMS, sketch_size=True)
    with pytest.raises(ValueError, match="arms must be finite"):
        Partition.first_fit(np.full((2, 3), np.nan), sketch_size=1)
    partition = Partition.first_fit(ARMS, sketch_size=3)
    with pytest.raises(ValueError, match="cluster must be a whole number from 0 to 2, got 3"):
        partition.basis(3)
    with pytest.raises(ValueError, match="arms must have 7 rows, as partitioned, got 6"):
        partition.coordinates(ARMS[:6], 0)


def test_every_file_with_kernels_is_stamped():
    root = Path(sketchbandits.__file__).parent
    stamped = {path for pattern in STAMPED for path in root.glob(pattern)}
    with_kernels = {path for path in root.rglob("*.py") if "kernel\ndef " in path.read_text()}
    assert with_kernels and with_kernels <= stamped
