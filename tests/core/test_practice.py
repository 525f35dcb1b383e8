"""`benchmarks/practice.py`: it resumes, replays what other code has played, refuses in one line, and sums up."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy
from conftest import JIT

import practice
from sketchbandits.lab.journal import Journal
from sketchbandits.policies.hybrid import policy as hybrid
from suite.peers.venvs import NotInstalledError
from suite.practice import game, plan, report, runs, stamps
from suite.practice.contenders import CONTENDERS
from suite.practice.drivers import rounds_protocol
from suite.practice.figure import figure_of
from suite.practice.game import Task
from suite.practice.peers import Peer, PeerFailedError, Variant
from suite.practice.plan import Plan
from suite.practice.summary import Results, estimate, mean, ratio
from suite.practice.targets import targets
from suite.worlds import World, worlds

FEW = ["--quick", "--jobs", "1", "--only", "segments", "--policies", "LinUCB disjoint", "UCB1"]
NUMBERS = {"regret": 2.0, "second": 1.0, "reward": 0.5, "microseconds": 3.0}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def play(out, *flags):
    practice.main([*(flags or FEW), "--out", str(out)])
    return [json.loads(line) for line in (out / practice.JOURNAL).read_text().splitlines()]


def test_it_writes_tables_and_a_figure_and_plays_nothing_twice(out, capsys, monkeypatch):
    entries = play(out)
    assert len(entries) == 10 and all(entry["seed"] == 0 for entry in entries)
    assert {"commit", "digest", "regret", "second", "reward", "microseconds"} <= entries[0].keys()
    page = (out / "practice.md").read_text()
    assert page in capsys.readouterr().out
    assert page.count("| segments | ") >= 2 and "best in hindsight" in page and "not played" in page
    assert (out / "practice.png").read_bytes().startswith(b"\x89PNG")
    monkeypatch.setattr(runs, "play", None)
    assert play(out) == entries


def test_ctrl_c_keeps_what_was_played(out, capsys, monkeypatch):
    played = []

    def interrupted(task):
        if len(played) == 4:
            raise KeyboardInterrupt
        played.append(task)
        return dict(NUMBERS)

    monkeypatch.setattr(runs, "play", interrupted)
    with pytest.raises(SystemExit) as ended:
        play(out)
    assert ended.value.code == 130
    (line,) = [each for each in capsys.readouterr().err.splitlines() if "interrupted" in each]
    assert "4 entries are kept" in line and "the same command continues" in line
    monkeypatch.setattr(runs, "play", lambda task: played.append(task) or dict(NUMBERS))
    assert len(play(out)) == len(set(played)) == len(played) == 10


def test_runs_of_other_code_are_played_again(out, capsys, monkeypatch):
    monkeypatch.setattr(runs, "play", lambda task: dict(NUMBERS))
    play(out)
    real = stamps.digest
    monkeypatch.setattr(runs, "digest", lambda policy, films: "other" if policy == "UCB1" else real(policy, films))
    capsys.readouterr()
    assert len(play(out)) == 15
    assert "5 runs in the journal are of other code and are played again" in capsys.readouterr().err


def test_the_digest_is_that_of_the_policys_own_files(tmp_path, monkeypatch):
    files = {tmp_path / "hybrid.py": "hybrid", tmp_path / "ucb1.py": "ucb1"}
    for path, text in files.items():
        path.write_text(text)
    monkeypatch.setattr(stamps, "PACKAGE", tmp_path)
    given = {
        name: CONTENDERS[name]._replace(library=(file,))
        for name, file in (("HybridCSLB", "hybrid.py"), ("UCB1", "ucb1.py"))
    }
    monkeypatch.setattr(stamps, "CONTENDERS", given)
    stamps.digest.cache_clear()
    before = {name: stamps.digest(name, None) for name in given}
    (tmp_path / "hybrid.py").write_text("hybrid, changed")
    stamps.digest.cache_clear()
    after = {name: stamps.digest(name, None) for name in given}
    stamps.digest.cache_clear()
    assert before["UCB1"] == after["UCB1"] and before["HybridCSLB"] != after["HybridCSLB"]


def test_every_file_of_the_hybrid_policy_is_in_its_digest():
    found = {path for pattern in CONTENDERS["HybridCSLB"].library for path in stamps.PACKAGE.glob(pattern)}
    assert Path(hybrid.__file__) in found
    assert all(list(stamps.PACKAGE.glob(pattern)) for one in CONTENDERS.values() for pattern in one.library)
    assert all(list(stamps.SUITE.glob(pattern)) for one in CONTENDERS.values() for pattern in one.benchmark)


def test_a_failure_is_told_and_tried_again(out, monkeypatch):
    monkeypatch.setattr(
        runs, "play", lambda task: {"failed": "ValueError: no"} if task.policy == "UCB1" else dict(NUMBERS)
    )
    play(out)
    assert "failed: ValueError: no" in (out / "practice.md").read_text()
    monkeypatch.setattr(runs, "play", lambda task: dict(NUMBERS))
    assert len(play(out)) == 15
    assert "failed" not in (out / "practice.md").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--only", "nowhere"], "--only must be among shared, nothing shared"),
        (["--only", "films"], "--only must be among"),
        (["--policies", "nobody"], "--policies must be among HybridCSLB"),
        (["--policies", "MABWiser UCB1"], "--policies must be among"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--first-seed", "-1"], "--first-seed must be at least 0, got -1"),
        (["--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["--peer-seconds", "nan"], "--peer-seconds must be above 0, got nan"),
        (["--films", "nowhere"], "--films must be a folder, got 'nowhere'"),
    ],
)
def test_bad_flags_are_refused_in_one_line(out, capsys, flags, said):
    with pytest.raises(SystemExit) as ended:
        practice.main(["--quick", "--out", str(out), *flags])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not (out / practice.JOURNAL).exists()


def test_a_peer_is_thinned_out_by_its_time_and_nobody_else():
    given = Plan(
        ("segments",), ("UCB1", "MABWiser UCB1"), tuple(range(10)), peer_seconds=10.0, pythons={"mabwiser": "python"}
    )
    for seconds, number in ((0.5, 10), (2.0, 5), (5.0, 3), (33.0, 3), (34.0, 0)):
        trials = {("segments", name): {"seconds": seconds} for name in given.policies}
        kept, notes = given.thinned(given.tasks(), trials)
        peers = [task.seed for task in kept if task.python]
        assert peers == list(range(number))
        assert sum(task.policy == "UCB1" for task in kept) == 50
        note = notes.get(("segments", "MABWiser UCB1"), "")
        assert note.startswith({10: "", 0: "left out: about 34 s"}.get(number, f"{number} seeds: about"))


def test_what_the_library_cannot_make_is_not_played(tmp_path, monkeypatch):
    def refused(world, scale, seed):
        raise ValueError("explore must be one of")

    monkeypatch.setitem(CONTENDERS, "HybridCSLB ts", CONTENDERS["HybridCSLB ts"]._replace(make=refused))
    given = Plan.made(["segments"], ["HybridCSLB ts", "UCB1"], [0], peers=False, folder=tmp_path)
    assert given.notes == {"HybridCSLB ts": "not available in this version: explore must be one of"}
    assert {task.policy for task in given.tasks()} == {"UCB1"}


def test_a_peer_that_cannot_be_installed_is_named_with_the_reason(out, monkeypatch):
    class NoNetwork:
        def __init__(self, folder, peers):
            self.peers = peers

        def python(self, name):
            if name == "mabwiser":
                raise NotInstalledError("no network")
            return Path(sys.executable)

    monkeypatch.setattr(plan, "Venvs", NoNetwork)
    monkeypatch.setattr(runs, "play", lambda task: dict(NUMBERS) | ({"version": "9.9"} if task.python else {}))
    names = ["UCB1", "Vowpal Wabbit SquareCB", "MABWiser UCB1", "MABWiser LinTS"]
    play(out, "--quick", "--jobs", "1", "--only", "segments", "--peers", "--policies", *names)
    page = (out / "practice.md").read_text()
    assert "| MABWiser UCB1 | not installed: no network |" in page
    assert "| MABWiser LinTS | not installed: no network |" in page
    assert "- Vowpal Wabbit SquareCB 9.9: " in page and "| segments | Vowpal Wabbit SquareCB |" in page


@pytest.mark.skipif(not JIT, reason="the policies take minutes in plain Python")
@pytest.mark.parametrize("name", ["LinTS shared", "LinTS disjoint", "HybridCSLB"])
def test_a_run_is_a_function_of_its_task(name):
    task = Task("deviations", name, CONTENDERS[name].scales[0] if CONTENDERS[name].scales else None, 2, share=0.02)
    first, second = game.play(task), game.play(task)
    assert "failed" not in first
    assert {key: first[key] for key in ("regret", "second", "reward")} == {
        key: second[key] for key in ("regret", "second", "reward")
    }
    assert 0.0 < first["second"] < first["regret"]


# ---- peers


DRIVER = """
import sys
sys.path.insert(0, {folder!r})
from rounds_protocol import main

class Last:
    def __init__(self, setup):
        print("to the log")
        self.setup, self.seen = setup, []
    def select(self, context, offered):
        return offered[-1]
    def update(self, context, arm, reward):
        if reward > 100.0:
            raise ValueError("too good")

main("numpy", {{"Last": Last}})
"""


@pytest.fixture
def peer(tmp_path, monkeypatch):
    script = tmp_path / "some_driver.py"
    script.write_text(DRIVER.format(folder=str(Path(rounds_protocol.__file__).parent)))
    variant = Variant("vowpalwabbit", "Last", "")
    monkeypatch.setattr(Variant, "driver", script)
    world = worlds(None)["segments"](np.random.default_rng(0))
    with Peer(Path(sys.executable), variant, "segments", World(world.arms[:4], world.env, 10, 0.2), 0) as player:
        yield player


@pytest.mark.process
def test_a_peer_plays_among_the_offered_arms_in_its_own_process(peer):
    available = np.array([[True, True, False, False], [True, False, True, True], [True, False, False, False]])
    contexts, rewards = np.ones((3, 6)), np.zeros((3, 4))
    assert peer.version == np.__version__
    assert peer.play_user_rounds(contexts, rewards, available).tolist() == [1, 3, 0]
    assert peer.play_user_rounds(contexts, rewards, None).tolist() == [3, 3, 3]
    assert peer.seconds > 0.0
    with pytest.raises(PeerFailedError, match="ValueError: too good"):
        peer.play_user_rounds(contexts, rewards + 101.0, None)


# ---- numbers


def test_the_interval_of_a_mean_is_students():
    column = np.array([3.0, 5.0, 4.0, 9.0])
    value, half = estimate(mean, column)
    assert value == 5.25
    assert half == pytest.approx(scipy.stats.t.ppf(0.975, 3) * column.std(ddof=1) / 2.0)
    assert np.isnan(estimate(mean, column[:1]).half)


def test_the_interval_of_a_ratio_knows_that_seeds_are_paired():
    theirs = np.random.default_rng(0).uniform(1.0, 9.0, 10)
    assert estimate(ratio, 2.0 * theirs, theirs) == pytest.approx((2.0, 0.0), abs=1e-12)
    ours = theirs * np.random.default_rng(1).uniform(0.9, 1.1, 10)
    deviations = (ours - ratio(ours, theirs) * theirs) / theirs.mean()  # the delta method
    assert estimate(ratio, ours, theirs).half == pytest.approx(2.262 * deviations.std(ddof=1) / np.sqrt(10), rel=0.1)


def filled(values):
    """Results with two seeds each, by (world, policy, scale): one quantity for all."""
    results = Results()
    for (world, policy, scale), value in values.items():
        for seed, factor in enumerate((0.9, 1.1)):
            results.add(world, policy, scale, seed, dict.fromkeys(NUMBERS, value * factor))
    return results


def test_the_best_scale_is_that_of_the_least_regret():
    results = filled({("clicks", "UCB1", 1.0): 5.0, ("clicks", "UCB1", 0.1): 3.0, ("clicks", "LinTS shared", 1.0): 4.0})
    assert results.best_scale("clicks", "UCB1") == 0.1
    assert results.best_rival("clicks") == ("UCB1", 0.1)
    table = report.table(results, ["clicks"])
    assert (
        "| clicks | UCB1 | 0.1 R, best in hindsight | 2 | 3.000 ± " in table
        and "| clicks | UCB1 | R known | 2 | 5.000 ± " in table
    )
    assert "| clicks | LinTS shared | 1 R, best in hindsight, R known | 2 | 4.000 ± " in table


def test_targets_are_met_or_not():
    ours, auto = ("HybridCSLB", None), ('HybridCSLB half_life="auto"', None)
    values = {("clicks", *ours): 300.0, ("films", *ours): 700.0, ("films with users", *ours): 0.8}
    values |= {
        ("films, shuffled", *ours): 90.0,
        ("films, shuffled", "UCB1", 0.5): 40.0,
        ("films, shuffled", "UCB1", 1.0): 50.0,
    }
    for number, world in enumerate(["shared", "nothing shared", "clusters", "segments", "deviations"]):
        values |= {
            (world, *ours): 8.0 + number,
            (world, "LinUCB shared", 1.0): 10.0,
            (world, "LinUCB disjoint", 1.0): 20.0,
        }
        values |= {(world, "LinUCB shared", 0.1): 1.0}  # the best in hindsight is not what this target is about
    values |= {("no reversal", *ours): 10.0, ("no reversal", *auto): 10.5}
    found = {target.what: target for target in targets(filled(values))}
    assert found["clicks: regret"].met == "yes, unsure"  # two seeds: a wide interval
    assert found["films: regret"].met.startswith("NO")
    assert found["films with users: mean reward"].met.startswith("yes")
    assert found["films, shuffled: regret / UCB1's, best in hindsight"].found.value == pytest.approx(2.25)
    assert found["films, shuffled: regret / UCB1's, best in hindsight"].met == "NO"
    ratios = [
        found[f"{world}: regret / the better LinUCB's that knows R"].found.value for world in ("shared", "deviations")
    ]
    assert ratios == pytest.approx([0.8, 1.2])
    (whole,) = [target for target in found.values() if target.what.startswith("the five")]
    assert whole.found.value == pytest.approx(np.prod([0.8, 0.9, 1.0, 1.1, 1.2]) ** 0.2)
    assert found['no reversal: regret, half_life="auto" / as it comes'].met == "yes"
    assert found['reversal: second half, half_life="auto"'].met == "not played"


def test_a_figure_has_a_panel_for_each_world_with_a_yardstick():
    values = {("clicks", "HybridCSLB", None): 6.0, ("clicks", "UCB1", 0.5): 4.0, ("films", "UCB1", 0.5): 4.0}
    values |= {("reversal", "HybridCSLB", None): 6.0, ("segments", "UCB1", 0.5): 0.0}
    figure = figure_of(filled(values), ["clicks", "films", "reversal", "segments"])
    assert [ax.get_title().strip() for ax in figure.axes if ax.get_visible()] == ["clicks", "films"]


def test_the_journal_skips_what_is_torn(tmp_path):
    path = tmp_path / "journal"
    task = Task("segments", "UCB1", 1.0, 0)
    runs.Kept(Journal(path)).put(task, dict(NUMBERS))
    with path.open("a") as file:
        file.write('{"key": "to')
    assert runs.Kept(Journal(path)).get(task)["regret"] == 2.0
    assert runs.Kept(Journal(path)).get(task._replace(seed=1)) is None
