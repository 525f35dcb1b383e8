"""Kernels are compiled in a child process: the one that serves only loads them, and one bad case does not stop it."""

import asyncio
import contextlib
import logging
import os
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest
from conftest import JIT
from service_tools import ARMS, run

from sketchbandits import snapshot
from sketchbandits.policies.changing_arms import ChangingArms
from sketchbandits.policies.registry import POLICIES
from sketchbandits.precompile import variants
from sketchbandits.service import compiling
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.children import ChildFailed
from sketchbandits.service.compiling import Compiler, CompilingFailed, NeedsCompiling, from_cache
from sketchbandits.service.exercise import Need, exercise, use_kernels

compiled = pytest.mark.skipif(not JIT, reason="nothing is compiled")


def need(policy="ucb1", n_arms=12, dim=5, **options):
    return Need.of(policy, BanditConfig(policy=policy, options=options).filled().options, n_arms, dim)


@compiled
def test_a_missing_kernel_is_refused_in_this_thread_alone_and_can_be_compiled_later():
    doubled = numba.njit(lambda x: 2 * x)
    with from_cache():
        with pytest.raises(NeedsCompiling, match=r"test_compiling\..*<lambda>"):
            doubled(1)
        other = []
        thread = threading.Thread(target=lambda: other.append(doubled(1)))
        thread.start()
        thread.join()
        assert other == [2] and doubled(4) == 8  # what another thread has compiled is there for all
        with pytest.raises(NeedsCompiling):
            doubled(1.5)
    assert doubled(1.5) == 3.0


@compiled
def test_threads_that_refuse_and_threads_that_compile_do_not_disturb_each_other():
    functions, missing = [numba.njit(lambda x, k=k: x + k) for k in range(4)], []

    def refuse():
        for function in functions * 20:
            try:
                with from_cache():
                    function(1.0)
            except NeedsCompiling:
                missing.append(function)

    threads = [threading.Thread(target=refuse) for _ in range(3)]
    threads += [threading.Thread(target=function, args=(1.0,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [function(1.0) for function in functions] == [1.0, 2.0, 3.0, 4.0]


def test_equal_needs_use_equal_kernels():
    assert need(n_arms=100, dim=9) == need(n_arms=10**6, dim=500) != need(n_arms=1, dim=9)
    assert need("oful") == need("oful", n_arms=12, dim=5) != need("oful", switching=0.5)
    assert Need.decoded(need("cslb", 5000, 60).encoded()) == need("cslb", 5000, 60)
    small, blocks, plans = need("multiscale", 200, 30), need("multiscale", 300, 30), need("multiscale", 3000, 30)
    assert [(n.blocks, n.plans) for n in (small, blocks, plans)] == [(False, False), (True, False), (True, True)]
    assert not need("cslb", 2000).lists and need("cslb", 2048).lists and not need("cslb", 2048, scan="full").lists


@pytest.mark.parametrize("name", ("ucb1",) if JIT else POLICIES)
def test_an_exercise_uses_a_copy_and_works_for_every_policy(name, tmp_path):
    policy = BanditConfig(policy=name).build(ARMS)
    before = [array.tobytes() for _, array in snapshot.leaves(policy.state)]
    exercise(policy, tmp_path)
    assert before == [array.tobytes() for _, array in snapshot.leaves(policy.state)]
    assert policy.n_arms == len(ARMS)
    for shape in ((1, 1), (1, 4), (4, 1), (30, 12)):
        use_kernels(need(name, *shape), tmp_path)


def serve(policy, folder):
    """What the service does with a policy, for so long that fits are made again."""
    rng = np.random.default_rng(1)
    policy.assumption_warnings = False  # as the service has it: some rewards are far too large
    for start in range(0, 3_000, 500):
        arms = rng.integers(0, policy.n_arms, 500)
        policy.update_many(arms, rng.normal(size=500) * (1_000.0 if start == 500 else 1.0))
        policy.select_many(20, available=policy.active, pending=[0, 0, 1])
        policy.update(policy.select(), 1.0)
    policy.save(folder / "served.npz")
    policy = type(policy).load(folder / "served.npz").copy()
    policy.assumption_warnings = False
    if isinstance(policy, ChangingArms):
        with contextlib.suppress(ValueError):  # a variant with a fixed set of arms
            for count in (1, 1, 7):
                policy.add_arms(rng.standard_normal((count, policy.dim)) / policy.dim**2)
            policy.remove_arms([0, policy.n_arms - 1])
    policy.update_many([1, 2], [0.0, 1.0])
    return policy.bounds().size + policy.estimates().size


ALL = [(name, options) for name, known in POLICIES.items() for options in variants(known.policy)]
ALL = [(name, options) for name, options in ALL if not callable(options.get("radius"))]


@compiled
@pytest.mark.parametrize(
    ("name", "options"),
    [("ucb1", {}), *(pytest.param(*case, marks=pytest.mark.slow) for case in ALL if case[0] != "ucb1")],
)
@pytest.mark.parametrize("shape", [(30, 7), (600, 40), (5_000, 6)])
def test_a_small_exercise_leaves_nothing_to_compile_for_a_large_policy(name, options, shape, tmp_path):
    n, d = shape
    use_kernels(need(name, n, d, **options), tmp_path)
    arms = np.random.default_rng(0).standard_normal(shape)
    arms[: n // 2, 2:] = 0.0  # a large cluster
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    with from_cache():
        assert serve(BanditConfig(policy=name, options=options).build(arms), tmp_path) > n


def test_options_that_a_policy_refuses_need_no_kernels():
    assert run(Compiler().ready(lambda: 7, need(noise=-1.0))) == 7
    assert run(Compiler().ready(lambda: 7, need("cslb", sketch_size="many"))) == 7


@pytest.fixture
def child(monkeypatch):
    """A cache that has a need's kernels once a child was asked for them ``child.works`` times."""

    class Child:
        asked, works, here, error = 0, 1, 0, None

        async def ask(self, children, request, read):
            await asyncio.sleep(0.01)
            self.asked += 1
            if self.error is not None:
                raise self.error
            return {"compiled": 3}

    found = Child()
    monkeypatch.setattr(compiling, "compiles", lambda: True)
    monkeypatch.setattr(compiling, "cache_folders", lambda: ("folder",))
    monkeypatch.setattr(compiling, "_load", lambda need: found.asked >= found.works)
    monkeypatch.setattr(compiling, "use_unless_refused", lambda need: setattr(found, "here", found.here + 1))
    monkeypatch.setattr(compiling.Children, "ask", lambda self, request, read: found.ask(self, request, read))
    return found


def test_a_child_is_asked_once_for_all_who_wait_and_never_again(child):
    async def many():
        compiler = Compiler()
        first = await asyncio.gather(*(compiler.ready(lambda k=k: k, need()) for k in range(5)))
        return first, await compiler.ready(lambda: "again", need())

    assert run(many()) == ([0, 1, 2, 3, 4], "again")
    assert (child.asked, child.here) == (1, 0)


def test_no_child_is_started_where_the_cache_has_everything(child):
    child.works = 0
    assert run(Compiler().ready(lambda: "done", need(), need("oful"))) == "done"
    assert child.asked == 0


def test_a_second_child_makes_up_for_an_index_that_another_process_wrote_over(child):
    child.works = 2
    assert run(Compiler().ready(lambda: "done", need())) == "done"
    assert child.asked == 2


@pytest.mark.parametrize("error", [None, ChildFailed("it ended with exit status -9")])
def test_what_a_child_cannot_compile_is_refused_while_others_are_served(child, error, caplog):
    child.works, child.error = 9, error
    with pytest.raises(CompilingFailed, match=r"the kernels of ucb1 .*(exit status -9|although a child)"):
        run(Compiler().ready(lambda: "never", need()))
    assert child.here == 0
    assert run(Compiler().ready(lambda: "done", need(), alone=True)) == "done"
    assert child.here == 1 and "they are compiled in the serving process" in caplog.text


def test_a_stop_ends_the_wait(child):
    child.error = ChildFailed("the service is stopping")
    compiler = Compiler()
    compiler.stop()
    with pytest.raises(CompilingFailed, match="stopping"):
        run(compiler.ready(lambda: "never", need(), alone=True))


def test_who_leaves_does_not_end_the_child_for_others(child):
    async def leave():
        compiler = Compiler()
        tasks = [asyncio.create_task(compiler.ready(lambda: "done", need())) for _ in range(2)]
        await asyncio.sleep(0.002)
        tasks[0].cancel()
        return await tasks[1]

    assert run(leave()) == "done" and child.asked == 1


def test_without_a_cache_kernels_are_compiled_here_with_a_warning(child, monkeypatch, caplog):
    monkeypatch.setattr(compiling, "cache_folders", tuple)
    assert run(Compiler().ready(lambda: "done", need())) == "done"
    assert (child.asked, child.here) == (0, 1) and "no cache can be written" in caplog.text


def test_without_a_compiler_there_is_nothing_to_do(child, monkeypatch):
    monkeypatch.setattr(compiling, "compiles", lambda: False)
    assert run(Compiler().ready(lambda: "done", need())) == "done"
    assert (child.asked, child.here) == (0, 0)


COLD = """
import asyncio, logging
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.compiling import Compiler, kernels_compiled_here
from sketchbandits.service.exercise import Need
from numpy.random import default_rng
logging.basicConfig(level=logging.INFO, format="%(message)s")
config, arms = BanditConfig(policy="ucb1"), default_rng(0).standard_normal((40, 6))
def serve(policy):
    policy.select_many(3, available=policy.active, pending=[1, 2])
    policy.update_many([0, 1], [0.5, 1.0])
    policy.add_arms(arms[:2]), policy.remove_arms([0]), policy.copy().update_many([1], [0.0])
    return policy.bounds().size
async def main():
    need = Need.of("ucb1", config.filled().options, *arms.shape)
    return await Compiler().ready(lambda: serve(config.build(arms)), need)
print(asyncio.run(main()), kernels_compiled_here())
"""


@pytest.mark.process
@compiled
def test_a_cold_cache_is_filled_by_a_child_and_a_warm_one_starts_none(tmp_path):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": path}
    done = [
        subprocess.run([sys.executable, "-c", COLD], env=env, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [each.stdout.split() for each in done] == [["42", "0"]] * 2
    assert "kernels of ucb1 in a child process" in done[0].stderr and "child" not in done[1].stderr
    assert "compiled in this process" not in done[0].stderr


@compiled
def test_a_kernel_compiled_here_is_counted(caplog):
    before = compiling.kernels_compiled_here()
    function = numba.njit(lambda x: x)
    function.py_func.__module__ = "sketchbandits.made_up"
    with from_cache():
        pass
    with caplog.at_level(logging.INFO):
        function(1)
    assert compiling.kernels_compiled_here() == before + 1 and "sketchbandits.made_up" in caplog.text
