"""One run and its journal: keys, seeds, outcomes, and a file that survives whatever happens to its last line."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from made_tasks import MODEL, SCENE, TASK, D, L, N, T, equal

from sketchbandits import CSLB, SOFUL, UCB1, LinTS, simulate
from sketchbandits.environments import LinearEnvironment, correlated_arms, uniform_parameter
from sketchbandits.lab.experiments import sources, tasks
from sketchbandits.lab.experiments.scenes import FileScene, Model, file_digest
from sketchbandits.lab.experiments.sources import machine, stamp
from sketchbandits.lab.experiments.tasks import Outcome, Task, checkpoints
from sketchbandits.policies.registry import PolicySpec

# --- keys ---


def other_tasks():
    """Tasks that differ from `TASK` in one thing each."""
    yield dataclasses.replace(TASK, rounds=T + 1)
    yield dataclasses.replace(TASK, run=3)
    yield dataclasses.replace(TASK, seed=8)
    yield dataclasses.replace(TASK, timed=True)
    for text in ("oful", "cslb:ridge=2", "cslb:ridge=3", "cslb:radius=logdet", "cslb:sketch_size=3"):
        yield dataclasses.replace(TASK, policy=PolicySpec.parse(text))
    for name, value in (("sketch_size", 5), ("ridge", 2.0), ("noise", 0.6), ("theta_norm", 2.0), ("delta", 0.02)):
        yield dataclasses.replace(
            TASK, scene=dataclasses.replace(SCENE, model=dataclasses.replace(MODEL, **{name: value}))
        )
    for options in ((14, 6, 2), (13, 7, 2), (13, 6, 1)):
        named = tuple(zip(("n_arms", "dim", "group_size"), options, strict=True))
        yield dataclasses.replace(TASK, scene=dataclasses.replace(SCENE, options=named))
    for change in ({"normalize": "unit"}, {"parameter": "isotropic"}, {"name": "other"}):
        yield dataclasses.replace(TASK, scene=dataclasses.replace(SCENE, **change))
    yield dataclasses.replace(TASK, scene=FileScene("tiny", MODEL, "/a.npy", "1" * 64))
    yield dataclasses.replace(TASK, scene=FileScene("tiny", MODEL, "/a.npy", "2" * 64))


def test_a_key_changes_with_all_that_a_run_depends_on():
    tasks = [TASK, *other_tasks()]
    keys = [task.key for task in tasks]
    assert len(set(keys)) == len(keys) == 23
    assert all(len(key) == 24 and set(key) <= set("0123456789abcdef") for key in keys)


def test_equal_tasks_have_equal_keys():
    copy = Task(dataclasses.replace(SCENE), PolicySpec.parse("CS-LB"), T, 2, 7)
    assert copy == TASK and copy is not TASK
    assert copy.key == TASK.key
    one, two = (
        dataclasses.replace(TASK, policy=PolicySpec.parse(f"cslb:{text}"))
        for text in ("ridge=2,delta=0.5", "delta=0.5,ridge=2")
    )
    assert one.key == two.key
    here, there = (dataclasses.replace(TASK, scene=FileScene("tiny", MODEL, path, "1" * 64)) for path in ("/a", "/b"))
    assert here.key == there.key


def test_only_a_timed_run_depends_on_the_machine(monkeypatch):
    before = [dataclasses.replace(TASK, timed=timed).key for timed in (False, True)]
    monkeypatch.setattr(tasks, "machine", lambda: "a faster one")
    after = [dataclasses.replace(TASK, timed=timed).key for timed in (False, True)]
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_the_machine_is_described_without_a_name():
    words = machine()
    assert f"{os.cpu_count()} cores" in words and "Python 3." in words
    assert os.uname().nodename not in words


CHILD = """
import sys
sys.path[:0] = {folders!r}
from test_runs import TASK, other_tasks
print(*(task.key for task in (TASK, *other_tasks())))
"""

PLAYED = """
import sys
from sketchbandits.policies.registry import PolicySpec
from sketchbandits.lab.experiments.tasks import Task
from sketchbandits.lab.experiments.scenes import Model, Scene
scene = Scene("tiny", Model(4), "correlated", (("n_arms", 13), ("dim", 6)))
Task(scene, PolicySpec("cslb"), 10, 0, 0).play()
print(*(m for m in sys.modules if m == "sketchbandits" or m.startswith("sketchbandits.")))
"""


def in_a_new_process(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.process
def test_keys_are_the_same_in_every_process():
    code = CHILD.format(folders=[str(folder) for folder in Path(__file__).parents[:2]])
    assert in_a_new_process(code, PYTHONHASHSEED="3") == [task.key for task in (TASK, *other_tasks())]


# --- the stamp of the sources ---


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """The package's sources in another folder, which the stamp then reads."""
    folder = tmp_path / "sketchbandits"
    shutil.copytree(sources.PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "PACKAGE", folder)
    return folder


def test_a_copy_elsewhere_has_the_same_stamp(copied):
    assert stamp.__wrapped__() == stamp()


@pytest.mark.process
def test_a_byte_of_any_source_that_a_run_passes_through_changes_the_stamp(copied):
    loaded = {name.removeprefix("sketchbandits").strip(".").replace(".", "/") for name in in_a_new_process(PLAYED)}
    sources_of = {path.relative_to(copied).as_posix() for path in copied.rglob("*.py")}
    hashed = {path.relative_to(copied).as_posix() for path in sources.played_sources()}
    for name in loaded:
        path = f"{name}.py" if f"{name}.py" in sources_of else f"{name}/__init__.py".lstrip("/")
        assert path in hashed or path.startswith("lab/")  # the package's own __init__ imports `advise`
    before, known = stamp.__wrapped__(), sources.played_sources()
    for path in (known[0], known[len(known) // 2], known[-1]):
        content = path.read_bytes()
        path.write_bytes(content + b"#")
        assert stamp.__wrapped__() != before
        path.write_bytes(content)
    assert stamp.__wrapped__() == before


def test_what_only_plans_judges_draws_and_shows_leaves_finished_runs_as_they_are(copied):
    played = {"lab/experiments/tasks.py", "lab/experiments/scenes.py"}
    hashed = {path.relative_to(copied).as_posix() for path in sources.played_sources()}
    assert {path for path in hashed if path.startswith("lab/")} == played
    before = stamp.__wrapped__()
    others = ("lab/report/pages.py", "lab/verdict.py", "cli/main.py", "__main__.py", "service/service.py")
    for name in others:
        (copied / name).write_bytes((copied / name).read_bytes() + b"#")
    assert not hashed & set(others) and stamp.__wrapped__() == before


def test_a_new_source_changes_the_stamp(copied):
    before = stamp.__wrapped__()
    (copied / "policies" / "another.py").write_text("x = 1\n")
    assert stamp.__wrapped__() != before


def test_versions_of_the_numerical_packages_change_the_stamp(monkeypatch):
    known = sources.version
    for package in ("numpy", "scipy", "numba"):
        monkeypatch.setattr(sources, "version", lambda name, package=package: "0.0" if name == package else known(name))
        assert stamp.__wrapped__() != stamp()
    monkeypatch.setattr(sources, "version", known)
    assert stamp.__wrapped__() == stamp()


def test_a_changed_stamp_changes_every_key(monkeypatch):
    monkeypatch.setattr(tasks, "stamp", lambda: "another")
    assert dataclasses.replace(TASK).key != TASK.key


# --- outcomes ---


def test_all_policies_of_a_run_share_its_seeds():
    child = np.random.SeedSequence(7).spawn(3)[2]
    assert list(TASK.seeds()) == child.generate_state(3, np.uint64).tolist()
    assert dataclasses.replace(TASK, policy=PolicySpec("ucb1"), timed=True, rounds=5).seeds() == TASK.seeds()
    seeds = {seed for run in range(20) for seed in dataclasses.replace(TASK, run=run).seeds()}
    assert len(seeds) == 60
    assert not seeds & set(dataclasses.replace(TASK, seed=8).seeds())


DIRECT = {
    "cslb": lambda arms, seed: CSLB(arms, sketch_size=L, noise=0.5),
    "cslb:ridge=2,sketch_size=3": lambda arms, seed: CSLB(arms, sketch_size=3, noise=0.5, ridge=2),
    "ucb1": lambda arms, seed: UCB1(arms, noise=0.5),
    "lints": lambda arms, seed: LinTS(arms, noise=0.5, seed=seed),
    "soful:sketch_size=2": lambda arms, seed: SOFUL(arms, sketch_size=2, noise=0.5),
}


@pytest.mark.parametrize("text", DIRECT)
@pytest.mark.parametrize("timed", [False, True])
def test_an_outcome_is_what_simulate_gives_for_these_seeds(text, timed):
    task = Task(SCENE, PolicySpec.parse(text), T, 2, 7, timed)
    env_seed, policy_seed, noise_seed = np.random.SeedSequence(7).spawn(3)[2].generate_state(3, np.uint64).tolist()
    rng = np.random.default_rng(env_seed)
    arms = correlated_arms(n_arms=N, dim=D, group_size=2, seed=rng)
    env = LinearEnvironment(arms, uniform_parameter(D, seed=rng), noise=0.5)
    policy = DIRECT[text](arms, policy_seed)
    kept = []
    points = [T] if timed else checkpoints(T)
    direct = simulate(
        env, {"x": policy}, rounds=T, seed=noise_seed, checkpoints=points, after=lambda *played: kept.append(played)
    )
    outcome = task.play()
    assert np.array_equal(outcome.checkpoints, points)
    assert np.array_equal(outcome.regret, direct.regret["x"][0])
    assert outcome.rounds == T and outcome.regret[-1] > 0
    assert 0 < outcome.seconds < 60 and 0 < outcome.warmup_seconds < 60
    expected = {"largest_gap": env.gaps.max(), "mean_gap": env.gaps.mean()}
    if text.startswith("cslb"):
        expected["clusters"] = policy.partition.n_clusters
        assert expected["clusters"] > 1
    if text.startswith("soful"):
        ((name, run, played),) = kept
        assert (name, run) == ("x", 0) and played.counts.sum() == T
        expected["sketch_rank"] = played.sketch_rank
        assert 1 <= played.sketch_rank <= D
    assert outcome.facts == expected
    assert equal(outcome, through_json(outcome))


def through_json(outcome):
    """The outcome as a journal keeps it: nothing in it may be a NumPy number."""
    fields = {"seconds": outcome.seconds, "warmup_seconds": outcome.warmup_seconds, "facts": outcome.facts}
    fields = json.loads(json.dumps(fields, allow_nan=False))
    return Outcome(outcome.checkpoints.copy(), outcome.regret.copy(), **fields)


def test_two_plays_are_equal_and_runs_differ():
    one, again, other = (dataclasses.replace(TASK, run=run).play().regret for run in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_a_file_keeps_its_precision_to_the_policy(tmp_path):
    # The second arm leaves the line of the first by more than float64's tolerance and less than float32's.
    arms = np.array([[1.0, 0.0, 0.0], [1.0, 3e-7, 0.0]])
    clusters = {}
    for dtype in (np.float32, np.float64):
        path = str(tmp_path / f"{np.dtype(dtype)}.npy")
        np.save(path, arms.astype(dtype))
        scene = FileScene("two", Model(1), path, file_digest(path))
        clusters[dtype] = Task(scene, PolicySpec("cslb"), 10, 0, 0).play().facts["clusters"]
    assert clusters == {np.float32: 1, np.float64: 2}


def test_progress_counts_every_round_once():
    for task in (TASK, dataclasses.replace(TASK, timed=True)):
        played = []
        task.play(played.append)
        assert sum(played) == T and min(played) > 0


def test_a_rehearsal_is_shorter_and_the_start_of_the_run():
    played = []
    short = TASK.play(played.append, rounds=57)
    assert short.checkpoints.tolist() == [57] and sum(played) == 57
    assert short.regret[-1] == pytest.approx(dataclasses.replace(TASK, rounds=57).play().regret[-1], rel=1e-12)


@pytest.mark.parametrize("length", [1, 2, 10, 39, 40, 41, 199, 200, 201, 12_345, 200_000])
def test_checkpoints(length):
    points = checkpoints(length)
    assert points.dtype == np.int64
    assert points[0] >= 1 and points[-1] == length
    assert (np.diff(points) > 0).all()
    assert set(np.linspace(0, length, min(200, length) + 1)[1:].round().astype(int)) <= set(points.tolist())
    if length <= 200:
        assert points.tolist() == list(range(1, length + 1))
    else:
        assert points[0] == 1 and len(points) <= 240
        early = points[points <= 0.005 * length]
        assert len(early) > 0.5 * 40 * np.log(0.005 * length) / np.log(length) - 2  # some before the first even one
