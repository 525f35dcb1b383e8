"""`benchmarks/bench.py`: what it measures is what it says, it resumes, and it refuses in one line."""

import dataclasses
import gc
import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from conftest import JIT
from matplotlib.figure import Figure

import bench
import sketchbandits
from sketchbandits import CSLB, UCB1, Partition
from sketchbandits.environments import subspace_arms
from sketchbandits.lab import outputs
from sketchbandits.lab.journal import Journal
from suite import games, growth, journal, machine, measure, peak_memory, run, show, targets
from suite.workload import Measured, Point, Session, Summary, Workload
from suite.workloads import PEERS, WORKLOADS, calls, latency, peers, policies, rounds, warmup

TINY = {
    "rounds": rounds.Sizes((64, 70, 90), (40, 60, 90), (2, 3, 4), (2, 3, 4), 2, 1e3, 5),
    "latency": latency.Sizes((30, 9, 3), (40, 7, 2), (50, 4, 4), (60, 50, 40), 20, 80, 2),
    "warmup": warmup.Sizes(tuple((n, 9, 3) for n in (20, 30, 40)), ((20, 9, 3),), (), 2),
    "policies": policies.Sizes((policies.Setting(12, 5, 2, 40), policies.Setting(9, 7, 3, 30)), 2),
    "calls": calls.Sizes(((12, 5, 2), (9, 7, 3)), 20, 8, 2),
}
CATALOGUE = {name: dataclasses.replace(workload, quick=TINY[name]) for name, workload in WORKLOADS.items()}
PLAN = run.BenchPlan(quick=True, seed=3)


def silent(stage: str, what: str, share: float) -> None:
    assert 0.0 <= share <= 1.0


def session(seed: int = 3) -> Session:
    return Session(seed, Path(), lambda what, share: None)


# ---- the rules of measuring


def test_contenders_take_turns_without_the_collector():
    seen = []

    def contender(name):
        def sample() -> str:
            seen.append((name, gc.isenabled()))
            return name + str(len(seen))

        return sample

    samples = measure.interleaved({name: contender(name) for name in "abc"}, 3)
    assert "".join(name for name, _ in seen) == "abccbaabc"
    assert not any(enabled for _, enabled in seen) and gc.isenabled()
    assert samples == {"a": ["a1", "a6", "a7"], "b": ["b2", "b5", "b8"], "c": ["c3", "c4", "c9"]}


def test_both_ways_to_play_a_policy_are_timed_on_copies():
    env = games.paper_game(12, 5, 1)
    policy, noise = CSLB(env.arms, sketch_size=2), games.noise_of(env, 30, 1)
    parts = [measure.compiled(policy, env, noise), measure.through_api(policy.copy, env, noise)]
    assert all(part() > 0 for part in parts) and measure.mean_of(parts)() > 0
    assert policy.counts.sum() == 0


def test_the_machine_is_described_without_names():
    described = machine.machine()
    assert described.keys() == {"cpu", "load at the start", "system", "blas", "versions"}
    assert "numpy" in described["versions"] and "threads" in described["blas"]
    assert os.uname().nodename not in " ".join(described.values())


@pytest.mark.parametrize(
    ("limit", "below", "above"), [(3.5, "yes", "NO"), (1.0, "NO", "yes"), (2.0, "unsure", "unsure")]
)
def test_a_target_is_reached_only_where_medians_and_minima_agree(limit, below, above):
    samples = {"over": [3.0, 4.0, 9.0], "under": [1.0, 2.5, 3.0]}
    found = targets.at_most("what", samples, "over", "under", limit)
    assert (found.ratio, found.ratio_of_minima, found.shown) == (1.6, 3.0, "1.6 (3)")
    assert found.reached == below
    assert targets.at_least("what", samples, "over", "under", limit).reached == above


def test_nothing_is_judged_where_nothing_was_promised():
    found = targets.at_least("what", {"a": [2.0], "b": [1.0]}, "a", "b", None)
    assert (found.ratio, found.target, found.reached) == (2.0, "", "")
    assert targets.bounded("what", 1.4, 1.5).reached == "yes" and targets.bounded("what", 1.6, 1.5).reached == "NO"
    assert str(targets.at_least("x", {"a": [2e3], "b": [1.0]}, "a", "b", 1000.0)).endswith("target >= 1,000: yes")


# ---- exponents


def test_an_exponent_is_that_of_the_upper_sizes():
    sizes = [10, 100, 1_000, 10_000, 100_000]
    values = [[7.0 * max(size, 500) ** 1.5 * noise for noise in (0.98, 1.0, 1.03)] for size in sizes]
    found = growth.exponent(sizes, values)
    assert found.mean == pytest.approx(1.5, abs=1e-9)
    assert found.low < 1.5 < found.high and found.high - found.low < 0.05
    exact = growth.exponent(sizes, [[size**0.5] for size in sizes])
    assert exact == pytest.approx((0.5, 0.5, 0.5))
    assert growth.stated(sizes, lambda point: 3 * point + 1e9, sizes) == pytest.approx(0.0, abs=1e-3)
    assert growth.stated(sizes, lambda point: 3 * point**2, sizes) == pytest.approx(2.0)


def test_an_outlier_moves_the_interval_and_not_the_exponent():
    sizes = [1, 2, 4]
    steady = growth.exponent(sizes, [[s, s, s] for s in sizes])
    shaken = growth.exponent(sizes, [[1, 1, 1], [2, 2, 2], [4, 4, 40]])
    assert shaken.mean == steady.mean == pytest.approx(1.0) and shaken.high > 1.5


def test_few_sizes_are_all_used_and_zero_has_no_sign():
    assert [len(range(n)[growth.upper(n)]) for n in (3, 4, 5, 6, 9)] == [3, 3, 3, 3, 5]
    assert (growth.shown(-0.001), growth.shown(-0.01), growth.shown(1.0)) == ("0.00", "-0.01", "1.00")


# ---- games: one size grows, the others stay


def shape_of(env, sketch_size: int) -> tuple[int, set[int], set[int]]:
    """Clusters, and the sizes and ranks that they have."""
    partition = Partition.first_fit(env.arms, sketch_size=sketch_size)
    return partition.n_clusters, set(np.bincount(partition.labels).tolist()), set(partition.ranks.tolist())


def test_turned_arms_differ_in_dimension_only():
    low = games.paper_game(24, 11, 4)
    high = games.turned(low, 50, 5)
    assert high.arms.shape == (24, 50) and np.count_nonzero(high.arms) == 24 * 50
    assert high.arms @ high.arms.T == pytest.approx(low.arms @ low.arms.T)
    assert high.means == pytest.approx(low.means)
    labels = [Partition.first_fit(env.arms, sketch_size=4).labels.tolist() for env in (low, high)]
    assert labels[0] == labels[1]


def test_clusters_are_as_many_and_as_large_as_promised():
    for n_arms in (40, 400):
        assert shape_of(games.few_clusters(n_arms, 4, 3, 9, 1), 3) == (4, {n_arms // 4}, {3})
        assert shape_of(games.one_cluster(n_arms, 5, 1), 5) == (1, {n_arms}, {5})
    for n_clusters in (3, 11):
        found = shape_of(games.many_clusters(n_clusters, 1), games.RANK)
        assert found == (n_clusters, {games.CLUSTER_SIZE}, {games.RANK})


@pytest.mark.parametrize("quick", [True, False])
def test_in_every_sweep_only_one_size_grows(quick):
    workload = WORKLOADS["rounds"]
    points = [point.parameters for point in workload.points(workload.quick if quick else workload.full)]
    fixed = {"d": "n_arms rank clusters", "N": "dim rank clusters", "K": "dim rank", "l": "n_arms dim clusters"}
    assert [point["sweep"] for point in points] == list(fixed)
    for point in points:
        shapes = point["shapes"]
        assert [shape["size"] for shape in shapes] == sorted({shape["size"] for shape in shapes}) and len(shapes) >= 3
        assert all(len({shape[name] for shape in shapes}) == 1 for name in fixed[point["sweep"]].split())
        env = rounds.game(point["sweep"], shapes[0], 2)
        assert env.arms.shape == (shapes[0]["n_arms"], shapes[0]["dim"])
        n_clusters, _, ranks = shape_of(env, shapes[0]["rank"])
        assert (n_clusters, ranks) == (shapes[0]["clusters"], {shapes[0]["rank"]})


def test_seeds_give_the_same_games():
    first, again, other = (games.paper_game(9, 4, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.arms, again.arms) and not np.array_equal(first.arms, other.arms)
    assert np.array_equal(games.noise_of(first, 5, 1), games.noise_of(again, 5, 1))
    assert not np.array_equal(games.noise_of(first, 5, 1), games.noise_of(first, 5, 2))


# ---- what the library is compared with


def test_first_fit_by_svd_is_the_library_s_partition():
    for arms in (
        games.general_arms(23, 6, 1),
        subspace_arms(n_arms=30, dim=8, n_subspaces=4, rank=2, shuffle=True, seed=2),
    ):
        for sketch_size in (2, 3):
            expected = Partition.first_fit(arms, sketch_size=sketch_size).labels
            assert warmup.svd_first_fit(arms, sketch_size).tolist() == expected.tolist()


def test_every_public_policy_is_measured_and_a_new_one_too(monkeypatch):
    found = policies.public_policies()
    assert {"CSLB", "OFUL", "UCB1", "LinTS"} <= found.keys() and "Partition" not in found

    class Newcomer(UCB1):
        """A policy that no table knows yet."""

    monkeypatch.setattr(sketchbandits, "Newcomer", Newcomer, raising=False)
    monkeypatch.setattr(sketchbandits, "__all__", [*sketchbandits.__all__, "Newcomer"])
    point, *_ = policies.points(TINY["policies"])
    samples = policies.measure(point.parameters, session())
    assert samples["regret"]["Newcomer"] == samples["regret"]["UCB1"]
    assert samples["regret"]["OFUL"] == pytest.approx(samples["regret"]["NumPy OFUL"])
    assert {"CS-LB", "Newcomer", "NumPy OFUL"} <= samples["microseconds"].keys()


def test_counted_samples_have_the_quantiles_of_the_samples():
    spent = np.random.default_rng(1).integers(1_000, 5_000, 4_321)
    counted = latency.counted(spent)
    assert latency.mean(counted) == pytest.approx(spent.mean() / 1e3)
    for share in (0.5, 0.99, 0.999, 1.0):
        expected = np.quantile(spent, share, method="inverted_cdf") / 1e3
        assert latency.quantile(counted, share) == pytest.approx(expected)


@pytest.mark.skipif(not JIT, reason="it measures compiled kernels, in a new process")
def test_memory_is_that_of_the_warm_up_alone():
    found = warmup.in_new_process(4_000, 64, 8, 0)
    (spent,) = found["seconds"][warmup.WARM_UP]
    assert spent > 0 and 1.0 <= found["extra"] < 40  # the bases alone are as large as the arms
    with pytest.raises(MemoryError, match="the warm-up of 0 arms"):
        warmup.in_new_process(0, 64, 8, 0)


def test_peak_memory_does_not_fall():
    now, peak = peak_memory.memory("VmRSS"), peak_memory.memory("VmHWM")
    assert 1e6 < now <= peak + 1e6


# ---- the journal


def test_a_key_holds_all_that_a_measurement_depends_on(monkeypatch):
    def key(workload="rounds", quick=True, seed=0, **parameters) -> str:
        return journal.key_of(workload, {"n": 1, **parameters}, quick=quick, seed=seed)

    keys = {key(), key("calls"), key(quick=False), key(seed=1), key(n=2), key(m=1)}
    monkeypatch.setattr(journal.sources, "machine", lambda: "another")
    keys.add(key())
    monkeypatch.setattr(journal, "stamp", lambda: "another")
    keys.add(key())
    assert len(keys) == 8 and key() == key()


def test_the_journal_survives_torn_lines_and_forgets(tmp_path):
    kept = Journal(tmp_path / "points.jsonl")
    assert journal.measured(kept) == {}
    kept.forget({"a"})
    kept.append({"key": "a", "workload": "w", "parameters": {"n": 1}, "samples": {"x": [1.0]}})
    with open(kept.path, "ab") as file:
        file.write(b'{"key": "torn", "samp')
    kept.append({"key": "b", "samples": {"x": [2.0]}})
    with open(kept.path, "ab") as file:
        file.write(b'[1, 2]\n{"key": 3, "samples": {}}\n{"key": "c", "samples": 4}\n\xff\n')
    kept.append({"key": "a", "samples": {"x": [3.0]}})
    assert journal.measured(kept) == {"a": {"x": [3.0]}, "b": {"x": [2.0]}}
    kept.forget({"a"})
    assert journal.measured(kept) == {"b": {"x": [2.0]}}


# ---- a whole benchmark, at tiny sizes


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="module")
def reports(folder):
    return run.carry_out(PLAN, folder, silent, catalogue=CATALOGUE)


def test_every_workload_leaves_a_table_a_figure_and_a_json(reports, folder, capsys):
    assert [report.workload.name for report in reports] == list(WORKLOADS)
    show.show(reports, folder)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for report in reports:
        name = report.workload.name
        assert f"{name}: " in shown
        found = json.loads((folder / f"{name}.json").read_text())
        assert found["machine"].keys() == machine.machine().keys()
        assert (found["workload"], found["quick"], found["seed"]) == (name, True, 3)
        points = report.workload.points(TINY[name])
        assert [point["parameters"] for point in found["points"]] == [point.parameters for point in points]
        assert all(len(row) == len(found["table"]["headings"]) for row in found["table"]["rows"])
        image = matplotlib.image.imread(folder / "figures" / f"{name}.png")
        assert image.shape[0] > 300 and image[..., :3].std() > 0.01
        assert (folder / "figures" / f"{name}.svg").read_text().startswith("<?xml")


def test_samples_are_all_there(reports, folder):
    found = {name: json.loads((folder / f"{name}.json").read_text()) for name in WORKLOADS}
    for point in found["rounds"]["points"]:
        shapes, samples = point["parameters"]["shapes"], point["samples"]
        assert (
            list(samples["microseconds"]) == ["round", "full scan"][: 2 if point["parameters"]["sweep"] == "N" else 1]
        )
        for sizes in samples["microseconds"].values():
            assert len(sizes) == len(shapes) and all(len(values) == 2 and min(values) > 0 for values in sizes)
        assert samples["bytes"]["arms"] == [8 * shape["n_arms"] * shape["dim"] for shape in shapes]
    for point, rounds_played in zip(found["latency"]["points"], (60, 50, 40), strict=True):
        lengths = {name: sum(values["counts"]) for name, values in point["samples"]["nanoseconds"].items()}
        one = point["parameters"]["game"] == "one cluster"
        assert lengths == {"default": 2 * rounds_played} | ({"full": 2 * 20} if one else {})
        for name, values in point["samples"]["nanoseconds"].items():
            assert values["values"][0] <= point["samples"]["slowest_again"][name] <= values["values"][-1]
    assert {row["what"] for row in found["warmup"]["ratios"]} == {"product", "by SVD"}
    assert len(found["policies"]["policies"]) == 2 * (len(policies.public_policies()) + 1)
    assert {fact["call"] for fact in found["calls"]["calls"]} == {
        "select", "update", "select + update", "update_many", "play",
    }  # fmt: skip


def test_exponents_of_memory_are_those_of_the_arrays(reports):
    curves = {(c["sweep"], c["quantity"]): c for c in reports[0].summary.facts["curves"]}
    assert curves["d", "arms"]["exponent"]["mean"] == pytest.approx(1.0)
    assert curves["d", "state"]["exponent"]["mean"] == pytest.approx(0.0)
    assert curves["K", "arms"]["exponent"]["mean"] == pytest.approx(1.0)
    assert curves["l", "arms"]["stated_exponent"] == pytest.approx(0.0)
    for curve in curves.values():
        assert curve["exponent"]["low"] <= curve["exponent"]["mean"] <= curve["exponent"]["high"]


def counting(workload: Workload, calls: list[dict]) -> Workload:
    """It notes what is measured, and draws nothing, which takes longer."""

    def measured(parameters, session):
        calls.append(parameters)
        return workload.measure(parameters, session)

    return dataclasses.replace(workload, measure=measured, draw=lambda facts: Figure())


def test_a_second_call_measures_only_what_is_missing(reports, folder):
    before = json.loads((folder / "calls.json").read_text())["points"]
    asked: list[dict] = []
    catalogue = {name: counting(workload, asked) for name, workload in CATALOGUE.items()}
    run.carry_out(PLAN, folder, silent, catalogue=catalogue)
    assert asked == [] and json.loads((folder / "calls.json").read_text())["points"] == before
    points = CATALOGUE["calls"].points(TINY["calls"])
    key = journal.key_of("calls", points[1].parameters, quick=True, seed=3)
    Journal(folder / run.JOURNAL).forget({key})
    run.carry_out(PLAN, folder, silent, catalogue=catalogue)
    assert asked == [points[1].parameters]
    run.carry_out(dataclasses.replace(PLAN, workloads=("calls",)), folder, silent, fresh=True, catalogue=catalogue)
    assert asked[1:] == [point.parameters for point in points]
    run.carry_out(PLAN, folder, silent, catalogue=catalogue)
    assert len(asked) == 1 + len(points)  # the other workloads were not forgotten


def test_an_interrupt_keeps_the_points_before_it(tmp_path):
    measured: list[int] = []

    def interrupted(parameters, session):
        if parameters["n"] == 2 and len(measured) == 2:
            measured.append(-1)
            raise KeyboardInterrupt
        measured.append(parameters["n"])
        session.show("half of it", 0.5)
        return {"x": parameters["n"]}

    shares: list[float] = []
    toy = Workload(
        "toy", "A toy", None, None, lambda sizes: [Point(str(n), {"n": n}, 1.0 + n) for n in range(4)], interrupted,
        lambda measured: Summary(["n"], [[str(m.samples["x"])] for m in measured]), lambda facts: Figure(),
    )  # fmt: skip
    plan = run.BenchPlan()
    with pytest.raises(KeyboardInterrupt):
        run.carry_out(plan, tmp_path, silent, catalogue={"toy": toy})
    (report,) = run.carry_out(plan, tmp_path, lambda *shown: shares.append(shown[2]), catalogue={"toy": toy})
    assert measured == [0, 1, -1, 2, 3] and report.summary.rows == [["0"], ["1"], ["2"], ["3"]]
    assert shares == pytest.approx([0.0, 1.5 / 7, 3 / 7, 5 / 7])


# ---- other libraries


def peer_rows(n_arms: int) -> list[dict]:
    played = {"installed": True, "model": "ridge", "rounds": 10, "seconds": 1.0}
    rows: list[dict] = [{"peer": "absent", "installed": False, "reason": "pip install: no such package"}]
    for seed in (0, 1):
        for peer, variant, speed, comparable in (
            ("sketchbandits", "CS-LB, compiled loop", 9e5, True),
            ("yardstick", "NumPy OFUL", 1e4, True),
            ("other", "other LinUCB", 50.0 * n_arms, True),
            ("means", "TS", 7e3, False),
        ):
            row = {"peer": peer, "variant": variant, "seed": seed, "comparable": comparable, **played}
            row |= {"rounds_per_second": speed + seed, "times_yardstick": speed / 1e4}
            if comparable:
                row |= {"shared_round": 64 << seed, "shared_regret": 6.0, "yardstick_regret": 4.0}
            rows.append(row)
    return [*rows, {"peer": "other", "variant": "other TS", "installed": True, "seed": 1, "failed": "ran out of time"}]


def test_peers_are_ranked_and_those_that_did_not_play_are_named(capsys):
    shapes = [{"n_arms": n, "dim": d} for n, d in ((60, 50), (1000, 200))]
    summary = peers.summarise([Measured(shape, {"rows": peer_rows(shape["n_arms"])}) for shape in shapes])
    assert [row[:2] for row in summary.rows[4:]] == [
        ["sketchbandits", "CS-LB, compiled loop"], ["other", "LinUCB"], ["yardstick", "NumPy OFUL"], ["means", "TS"],
    ]  # fmt: skip
    assert summary.rows[0][4:] == ["900k", "90", "1.50", "64"] and summary.rows[-1][-2:] == ["-", "-"]
    assert summary.facts["missing"] == {"absent": "pip install: no such package", "other TS": "ran out of time"}
    assert sum("not measured" in note for note in summary.notes) == 2
    show.show([run.Report(PEERS, summary, {"cpu": "any"})], Path("out"))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    files = outputs.render({"peers": PEERS.draw(summary.facts)})
    assert files["figures/peers.png"].startswith(b"\x89PNG")


def test_peers_take_part_only_when_asked_for(monkeypatch, tmp_path):
    names = [workload.name for workload in run.BenchPlan().chosen()]
    assert "peers" not in names
    assert [w.name for w in run.BenchPlan(peers=True).chosen()] == [*names, "peers"]
    assert [w.name for w in run.BenchPlan(("peers",), peers=True).chosen()] == ["peers"]
    asked = {}
    monkeypatch.setattr(peers, "compare", lambda name, **options: asked.update(options) or {"rows": []})
    point, *_ = peers.points(peers.QUICK)
    peers.measure(point.parameters, Session(2, tmp_path, silent))
    assert asked.keys() == {"n_arms", "dim", "sketch_size", "rounds", "seconds", "seeds", "folder", "watch"}
    assert asked["folder"] == tmp_path and asked["seeds"] == [2000]


# ---- the command


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """The command in this process and an empty folder, at tiny sizes: exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(WORKLOADS, "calls", CATALOGUE["calls"])

    def run(*arguments):
        code = 0
        try:
            bench.main(arguments)
        except SystemExit as end:
            code = end.code
        return (code, *capsys.readouterr())

    return run


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("calls", "speed"), f"WORKLOAD must be some of {', '.join(WORKLOADS)} (or peers with --peers), got 'speed'"),
        (("--seed", "x"), "argument --seed: invalid int value: 'x'"),
        (("--seed", "-1"), "seed must be a whole number >= 0, got -1"),
        (("--fast",), "unrecognized arguments: --fast"),
    ],
)
def test_bad_input_is_refused(command, arguments, message, tmp_path):
    code, stdout, stderr = command(*arguments)
    assert code == 2 and stdout == ""
    assert stderr.splitlines()[-1] == f"bench.py: error: {message}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (run.BenchPlan(("peers",)), "WORKLOAD"),
        (run.BenchPlan(("",), peers=True), "WORKLOAD"),
        (run.BenchPlan(seed=-1), "seed"),
        (run.BenchPlan(seed="1.5"), "seed"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_names_what_is_wrong(plan, name):
    with pytest.raises(ValueError, match=f"^{name} must be .*, got "):
        plan.check()


def test_the_command_measures_shows_and_resumes(command, tmp_path):
    code, first, progress = command("calls", "--quick")
    assert code == 0, progress
    assert max(map(len, first.splitlines())) <= 80
    assert "select + update" in first and "measuring: calls" in progress
    out = tmp_path / "results" / "bench"
    assert {path.name for path in out.iterdir()} == {"calls.json", "figures", "points.jsonl"}
    code, second, progress = command("calls", "--quick")
    assert code == 0 and "measuring" not in progress
    assert [line for line in second.splitlines() if "OFUL" in line] == [
        line for line in first.splitlines() if "OFUL" in line
    ]


def test_an_interrupt_ends_the_command_in_one_line(command, monkeypatch):
    def interrupted(parameters, session):
        raise KeyboardInterrupt

    monkeypatch.setitem(WORKLOADS, "calls", dataclasses.replace(CATALOGUE["calls"], measure=interrupted))
    code, stdout, stderr = command("calls", "--quick")
    assert (code, stdout) == (130, "")
    assert stderr.splitlines()[-1].startswith("interrupted: measured points are kept")


def test_a_folder_that_cannot_be_made_is_refused(command, tmp_path):
    (tmp_path / "file").touch()
    code, stdout, stderr = command("calls", "--quick", "--out", "file/out")
    assert (code, stdout) == (1, "")
    assert stderr.startswith("--out must be a folder that can be written to, got ")


@pytest.mark.process
@pytest.mark.skipif(not JIT, reason="it starts a process")
def test_the_script_runs_from_any_folder(tmp_path):
    script = Path(bench.__file__).absolute()
    shown = subprocess.run([sys.executable, str(script), "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    words = " ".join(shown.stdout.split())
    assert all(name in words for name in (*WORKLOADS, "--out", "--quick", "--peers", "--seed", "--fresh"))
