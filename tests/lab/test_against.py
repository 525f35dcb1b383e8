"""`--against`: both versions are measured in turns by the same code, and a folder that is no checkout is refused."""

import io
import json
import sys
from pathlib import Path

import pytest

import rounds
import startup
from suite import checkouts, round_ratios, round_worker
from suite.workloads import policies

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", [rounds, startup])
def test_a_folder_without_the_library_is_refused(script, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["script", "--against", str(tmp_path)])
    with pytest.raises(SystemExit) as end:
        script.main()
    assert end.value.code == 2
    assert "DIR must be a checkout with src/sketchbandits in it, got" in capsys.readouterr().err


def test_a_process_has_the_library_of_its_checkout(tmp_path):
    package = tmp_path / "src" / "sketchbandits"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("where = 'other'\n")
    here, other = checkouts.chosen(tmp_path)
    assert other.run("-c", "import sketchbandits; print(sketchbandits.where)") == "other\n"
    assert str(ROOT) in here.run("-c", "import sketchbandits; print(sketchbandits.__file__)")


class Version:
    """Answers what a worker would, without a process."""

    asked: list = []  # noqa: RUF012

    def __init__(self, factor):
        self.factor, self.names = factor, ["a", "b"]

    def play(self, name):
        self.asked.append((self.factor, name))
        return self.factor * (1.0 if name == "a" else 10.0)


def test_versions_take_turns_and_slower_ones_are_marked(monkeypatch, capsys, tmp_path):
    versions = {checkouts.THIS: Version(2.0), checkouts.OTHER: Version(1.0)}

    class Started:
        def __init__(self, checkout, quick):
            self.version = versions[checkout.name]

        def __enter__(self):
            return self.version

        def __exit__(self, *error):
            pass

    monkeypatch.setattr(round_ratios, "started", Started)
    report = round_ratios.compare(tmp_path, quick=True, repetitions=2)
    assert [factor for factor, name in Version.asked if name == "a"] == [2.0, 1.0, 1.0, 2.0]
    assert report["microseconds"] == {"a": ([2.0, 2.0], [1.0, 1.0]), "b": ([20.0, 20.0], [10.0, 10.0])}
    round_ratios.show(json.loads(json.dumps(report)))
    shown = capsys.readouterr().out
    assert shown.count("2.000 *") == 2 and "geometric mean of the ratios of medians: 2.000" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_worker_plays_every_policy_when_its_name_arrives(monkeypatch, capsys):
    monkeypatch.setattr(round_worker, "SETTINGS", {"tiny": (12, 5, 2, 30)})
    monkeypatch.setattr(sys, "argv", ["worker", "--quick"])
    monkeypatch.setattr(sys, "stdin", io.StringIO("OFUL, tiny, compiled loop\nUCB1, tiny, select + update\n"))
    round_worker.main()
    names, *times = capsys.readouterr().out.splitlines()
    assert len(json.loads(names)) == len(round_worker.COMPILED) + len(round_worker.CALLED) + len(
        round_worker.CONTEXTUAL
    )
    assert set(policies.public_policies()) == set(round_worker.COMPILED)
    assert len(times) == 2 and all(float(microseconds) > 0 for microseconds in times)


def test_medians_and_targets_are_printed(capsys):
    samples = {"OFUL": {"here": [[1.0, 3.0], [2.0, 5.0], [1.0, 4.5]]}}
    startup.print_samples("seconds", samples, 1, {"OFUL": 4.0})
    assert capsys.readouterr().out.splitlines()[-1].split() == ["OFUL", "4.500", "<", "4", "NO"]
    samples["OFUL"]["other"] = [[1.0, 9.0]]
    startup.print_samples("seconds", samples, 1)
    assert capsys.readouterr().out.splitlines()[-1].split() == ["OFUL", "4.500", "9.000", "0.50"]
