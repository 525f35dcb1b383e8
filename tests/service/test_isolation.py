"""The benchmark of isolation: how it judges, and that what it sends is what it says."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "service"))

import disturb
import isolation


def sample(*ms, health=(1.0,), failed=0):
    seen = {"seconds": 2.0, "failed": failed}
    return {"load": {"ms": list(ms), **seen}, "health": {"ms": list(health), **seen}, "done": None}


def test_samples_of_a_phase_count_as_one():
    found = isolation._summary([sample(*range(50)), sample(*range(50, 100), health=(3.0, 7.0), failed=1)])
    assert (found["per_second"], found["p50_ms"], found["p99_ms"], found["longest_ms"]) == (25.0, 50, 99, 99)
    assert found["health_longest_ms"] == 7.0 and found["failed"] == 2


def test_a_phase_without_any_answer_misses_the_target():
    found = {"alone": isolation._summary([sample(1.0)]), "listed": isolation._summary([sample(health=())])}
    assert not isolation.show("stuck", found)


@pytest.mark.parametrize(("slow", "health", "good"), [(20.0, 100.0, True), (21.0, 9.0, False), (20.0, 101.0, False)])
def test_the_targets(slow, health, good, capsys):
    found = {
        "alone": isolation._summary([sample(1.0, 10.0)]),
        "listed": isolation._summary([sample(slow, health=(1.0, health))]),
    }
    assert isolation.show("here", found) is good
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and ("NO" in "".join(lines)) is not good


def test_bodies():
    body = json.loads(disturb.bandit("big", {"policy": "ucb1"}, 40, 3))
    assert body["name"] == "big" and body["policy"] == "ucb1" and len(body["arms"]) == 40
    assert len({arm["id"] for arm in body["arms"]}) == 40
    assert all(len(arm["features"]) == 3 and max(map(abs, arm["features"])) < 0.5 for arm in body["arms"])
    wrong = json.loads(disturb.bandit("big", {"policy": "ucb1"}, 40, 3, '"nonsense"'))
    assert "nonsense" in wrong["arms"][-1]["features"] and "nonsense" not in str(wrong["arms"][:-1])
