"""The table that multi-scale CS-LB is held against: which scenes, what a ratio is, what counts as reached."""

import numpy as np
import pytest
from conftest import rounds

from sketchbandits.lab.experiments.tasks import Outcome
from sketchbandits.lab.paper import beyond
from sketchbandits.lab.paper import setting as paper
from sketchbandits.lab.paper.beyond import ABLATED, ALSO, MORE_ARMS, OURS, RIVALS, BeyondPlan, Row
from sketchbandits.policies import MultiscaleCSLB
from sketchbandits.policies.registry import PolicySpec


def outcome(regret, microseconds=1.0, length=100):
    return Outcome(np.array([length]), np.array([float(regret)]), microseconds * 1e-6 * length, 0.0, {})


@pytest.fixture
def small(monkeypatch):
    """One scene, three runs, regrets as the test says."""
    scene = paper.correlated("(9)", 1000, 6, 3, 1, "max")
    monkeypatch.setattr(beyond, "scenes", lambda: [(scene, (OURS, *RIVALS, ALSO, *ABLATED))])
    monkeypatch.setattr(beyond, "FRONTIER", {"(9)": (12, 6, 3, 2)})
    return BeyondPlan(rounds=rounds(200, 100), runs=3)


def study(plan, regrets, times):
    given = {}
    for groups in plan.experiments.values():
        for group in groups.values():
            for task in group:
                name = str(task.policy)
                given[task] = outcome(regrets.get(name, [9, 9, 9])[task.run], times.get(name, 1.0))
    return plan.study(given)


def test_all_scenes_that_are_asked_for_are_there():
    sizes = {**paper.DATASETS, **MORE_ARMS}
    assert list(sizes.values())[4:] == [(1000, 20, 4, 1), (1000, 20, 4, 10), (2000, 10, 4, 1)]
    places = [(scene.name, scene.normalize) for scene, _ in beyond.scenes()]
    assert len(places) == len(set(places)) == 2 * (len(sizes) + 2)
    for scene, policies in beyond.scenes():
        assert {OURS, *RIVALS, ALSO} <= set(policies), scene.name


def test_the_ratio_is_to_the_best_rival_by_mean(small):
    regrets = {"multiscale": [2, 3, 4], "oful:radius=logdet": [8, 2, 2], "ucb1": [6, 6, 9], "cslb": [7, 7, 7]}
    (row,) = beyond.table(study(small, regrets, {"multiscale": 2.0, "oful:radius=logdet": 16.0}))
    assert row.best == "oful:radius=logdet" and row.ratio == pytest.approx(3 / 4)
    assert row.times == pytest.approx(1 / 8) and row.n_arms == 1000
    # In a resample without the first run OFUL has regret 2 and the ratio is above 1.
    assert 1.0 < row.upper <= 2.0
    reached = beyond.targets([row])
    assert reached.largest == pytest.approx(0.75) and "NO" in reached.sentence and "yes" in reached.sentence


def test_the_mean_is_geometric_and_over_the_seven_data_sets_only():
    regrets = {str(policy): 1.0 for policy in (OURS, *RIVALS, ALSO)} | {str(policy): 3.0 for policy in ABLATED}
    rows = [
        Row("(1)", "max", 60, regrets, "ucb1", 0.25, 0.5, 0.9),
        Row("(5)", "max", 1000, regrets, "cslb", 1.0, 1.1, 0.1),
    ]
    rows.append(Row("heavy tail", "max", 200, {**regrets, "soful": 7.0}, "ucb1", 100.0, 200.0, 5.0))
    reached = beyond.targets(rows)
    assert reached == (1.0, 1.1, pytest.approx(0.5), 0.1)
    page = beyond.markdown(rows)
    assert (
        "NO" not in page
        and "- heavy tail, max: SOFUL 7" in page
        and page.count("\n| ") == 8
        and page.count("| 3.00 | 3.00 |") == 3
    )


def test_it_plays_and_draws(small):
    outcomes = {task: task.play() for task in small.tasks()}
    played = small.study(outcomes)
    (row,) = beyond.table(played)
    assert all(value >= 0.0 for value in row.regrets.values())
    figure = beyond.frontier_figure(played)
    names = {text.get_text() for ax in figure.axes for text in ax.texts}
    assert {PolicySpec.parse(key[2]).label for key in played["frontier"]} == names


def test_the_policy_chooses_its_own_ridge():
    arms = np.random.default_rng(0).normal(size=(9, 4))
    built = OURS.build(arms, {"ridge": 5.0, "noise": 0.5, "sketch_size": 3}, 0)
    assert isinstance(built, MultiscaleCSLB) and built.settings["ridge"] is None and built.settings["noise"] == 0.5
    own = PolicySpec.parse("multiscale:ridge=5").build(arms, {"ridge": 1.0, "sketch_size": 3}, 0)
    assert own.settings["ridge"] == 5.0
