"""The benchmarks run, and their yardsticks play the same game: a yardstick that chooses other arms measures nothing."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import JIT

from sketchbandits import OFUL, UCB1
from sketchbandits.environments import LinearEnvironment, correlated_arms, uniform_parameter
from suite.linear_rivals import LinUCBForUsers
from suite.textbook_ucb1 import TextbookUCB1
from suite.yardstick import NumpyOFUL

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROUNDS = 2_000


def environment(n_arms, dim):
    arms = correlated_arms(n_arms=n_arms, dim=dim, seed=n_arms)
    return LinearEnvironment(arms, uniform_parameter(dim, seed=dim), noise=0.3)


def picks(policy, env):
    chosen = []
    for value in env.draw_noise(np.random.default_rng(5), ROUNDS):
        arm = policy.select()
        policy.update(arm, float(env.means[arm] + value))
        chosen.append(arm)
    return chosen


@pytest.mark.parametrize(("n_arms", "dim"), [(23, 7), (9, 31)])
def test_numpy_oful_chooses_the_arms_of_oful(n_arms, dim):
    env = environment(n_arms, dim)
    options = {"ridge": 0.7, "noise": 0.3, "theta_norm": 1.2, "delta": 0.05}
    expected, found = OFUL(env.arms, **options), NumpyOFUL(env.arms, **options)
    chosen = picks(found, env)
    assert chosen == picks(expected, env)
    assert len(set(chosen)) > 1
    assert found.means == pytest.approx(expected.state.stats[0], abs=1e-9)


def test_textbook_ucb1_chooses_the_arms_of_ucb1():
    env = environment(23, 7)
    noise = env.draw_noise(np.random.default_rng(5), ROUNDS)
    # Uncompiled, NumPy warns of the division by a count of 0, which is meant to give +inf.
    with np.errstate(divide="ignore"):
        expected, found = UCB1(env.arms, noise=0.3), TextbookUCB1(env.arms, noise=0.3)
        chosen = picks(found, env)
        assert chosen == picks(expected, env)
        assert found.bounds() == pytest.approx(expected.bounds(), rel=1e-12)
        played = TextbookUCB1(env.arms, noise=0.3)
        played.play_rounds(env.means, env.gaps, noise)
    assert played.counts.tolist() == found.counts.tolist() == expected.counts.tolist()


@pytest.mark.process
@pytest.mark.skipif(not JIT, reason="it measures compiled loops")
def test_rounds_reports_every_target(tmp_path):
    path = tmp_path / "rounds.json"
    command = [sys.executable, str(BENCHMARKS / "rounds.py"), "--quick", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    report = json.loads(path.read_text())
    assert report["quick"] is True
    assert {"cpu", "system", "versions"} <= report["machine"].keys()
    for workload in report["workloads"]:
        for samples in workload["microseconds"].values():
            assert len(samples) >= 3 and min(samples) > 0
    assert len(report["targets"]) == 7
    for row in report["targets"]:
        assert row.keys() == {"what", "ratio", "ratio_of_minima", "target", "reached"}
        assert row["ratio"] > 0 and row["ratio_of_minima"] > 0
        assert row["reached"] in {"yes", "NO", "unsure"}
        assert row["what"] in done.stdout


def test_linucb_for_users_is_the_textbooks():
    """Ridge regressions solved anew in every round choose the same arms."""
    rng = np.random.default_rng(0)
    arms, contexts, rewards = rng.normal(size=(5, 3)), rng.normal(size=(60, 2)), rng.normal(size=(60, 5))
    available = rng.random((60, 5)) < 0.7
    available[:, 1] = True
    for shared in (True, False):
        found = LinUCBForUsers(arms, 2, shared=shared, alpha=0.7).play_user_rounds(contexts, rewards, available)
        rows, played, seen = [], [], []
        for t in range(60):
            bounds = np.full(5, -np.inf)
            for a in np.flatnonzero(available[t]):
                x = np.kron(contexts[t], arms[a]) if shared else contexts[t]
                own = [i for i in range(t) if shared or played[i] == a]
                X, y = np.array([rows[i] for i in own]).reshape(len(own), x.size), np.array([seen[i] for i in own])
                inverse = np.linalg.inv(np.eye(x.size) + X.T @ X)
                bounds[a] = x @ inverse @ X.T @ y + 0.7 * np.sqrt(x @ inverse @ x)
            arm = int(bounds.argmax())
            assert found[t] == arm
            rows.append(np.kron(contexts[t], arms[arm]) if shared else contexts[t])
            played.append(arm)
            seen.append(rewards[t, arm])
