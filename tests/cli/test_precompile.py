"""`sketchbandits precompile`: a later process compiles nothing, and a cache that cannot be written is named."""

import os
import sys
from pathlib import Path

import numba
import pytest
from command_line import run, run_in_child
from conftest import JIT
from numba.core import caching

from sketchbandits import precompile as library
from sketchbandits.cli import precompile
from sketchbandits.kernels.compiled import kernel
from sketchbandits.policies.registry import POLICIES

compiled = pytest.mark.skipif(not JIT, reason="nothing is compiled")
FOUND = library.Kernels(("a.b", "c.d"), 5, (Path("x"),))


@pytest.fixture
def quick(monkeypatch, tmp_path):
    """No compiler: the names that it was asked for."""
    asked = []

    def fake(names, show):
        asked.append(names)
        show("CS-LB", 0.0)
        return FOUND

    monkeypatch.setattr(precompile, "precompile", fake)
    monkeypatch.setattr(precompile, "cache_folders", lambda: (tmp_path / "one", tmp_path / "two"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    return asked


def test_it_says_what_was_compiled_and_where_it_is(quick, tmp_path):
    done = run("precompile")
    assert done == (0, f"compiled 2 kernels, found 5 in the cache\n{tmp_path}\n", "compiling: CS-LB ...\n")
    assert run("precompile", "CS-LB", "oful").returncode == 0
    assert quick == [[], ["cslb", "oful"]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("greedy", "POLICY must be some of cslb, oful,"),
        ("cslb:sketch_size=2", "POLICY must be names without options, got 'cslb:sketch_size=2'"),
    ],
)
def test_anything_but_the_name_of_a_policy_is_refused(quick, name, message):
    refused = run("precompile", name)
    assert (refused.returncode, refused.stdout) == (2, "") and quick == []
    assert refused.stderr.startswith(message)


def test_a_cache_that_cannot_be_written_is_named(quick, monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/elsewhere")
    refused = run("precompile")
    expected = (
        f"must be a folder that can be written to, got '/elsewhere': kernels would be kept in '{tmp_path}' instead"
    )
    assert (refused.returncode, refused.stderr) == (1, f"NUMBA_CACHE_DIR {expected}\n")
    monkeypatch.setattr(precompile, "cache_folders", tuple)
    refused = run("precompile")
    assert refused.returncode == 1 and refused.stderr.endswith("nothing that is compiled would be kept\n")
    assert quick == []


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (OSError(28, "No space left on device"), 1)])
def test_an_interrupt_and_a_full_disk_are_one_line(quick, monkeypatch, error, code):
    def fail(names, show):
        raise error

    monkeypatch.setattr(precompile, "precompile", fail)
    done = run("precompile")
    assert (done.returncode, done.stdout) == (code, "") and done.stderr.count("\n") == 1


def test_unknown_names_are_refused_in_python_too():
    with pytest.raises(ValueError, match=r"policies must be some of cslb, .*, got 'CSLB'"):
        library.precompile(["CSLB"])


# Compiling every variant takes minutes, so that only plain Python goes through them all.
@pytest.mark.parametrize("name", ("ucb1", "oful") if JIT else POLICIES)
def test_every_policy_can_be_used_up(name):
    library.use_everything(POLICIES[name].policy)


@pytest.mark.process
@compiled
@pytest.mark.skipif(sys.platform == "win32", reason="the variable is read at start")
def test_a_second_process_finds_everything(monkeypatch, tmp_path):
    monkeypatch.setitem(os.environ, "NUMBA_CACHE_DIR", str(tmp_path))
    first, second = (run_in_child("precompile", "ucb1", env={**os.environ}) for _ in range(2))
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert not first.stdout.startswith("compiled 0 kernels")
    assert second.stdout.startswith("compiled 0 kernels, found ") and second.stdout.endswith(f"{tmp_path}\n")


@compiled
def test_a_kernel_that_cannot_be_kept_still_compiles(monkeypatch):
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", [])  # no folder can be written to
    doubled = kernel(lambda x: 2 * x)
    assert doubled(3) == 6 and doubled.stats.cache_path is None


@pytest.mark.parametrize(
    ("advice", "command", "shown"), [("set it", "simulate", True), ("set it", "precompile", False)]
)
def test_a_cache_that_cannot_be_kept_is_one_sentence_on_stderr(monkeypatch, advice, command, shown):
    monkeypatch.setattr("sketchbandits.cli.main.cache_advice", lambda: advice)
    done = run(command, "--help")
    assert done.returncode == 0 and (advice in done.stderr) == shown


def test_advice_is_given_only_where_something_is_compiled_and_nothing_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(library, "compiles", lambda: True)
    monkeypatch.setattr(library, "cache_folders", lambda: (tmp_path,))
    assert library.cache_advice() is None
    monkeypatch.setattr(library, "cache_folders", tuple)
    assert "set NUMBA_CACHE_DIR to a folder" in library.cache_advice()
    monkeypatch.setattr(library, "compiles", lambda: False)
    assert library.cache_advice() is None


@pytest.mark.process
@compiled
@pytest.mark.skipif(not hasattr(numba.config, "CACHE_LOCATOR_CLASSES"), reason="an older Numba")
def test_a_process_without_any_folder_for_a_cache_says_what_to_set_and_goes_on():
    # Numba then asks for no other folder, as though none could be written.
    env = {**os.environ, "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    env.pop("NUMBA_CACHE_DIR", None)
    done = run_in_child("inspect", "--help", env=env)
    assert done.returncode == 0 and "Usage" in done.stdout
    assert done.stderr.count("\n") == 1 and "set NUMBA_CACHE_DIR" in done.stderr
