"""The table that multi-scale CS-LB is held against: which sets, what a ratio is, what counts as reached."""

import dataclasses
import math

import numpy as np
import pytest
from conftest import rounds

from sketchbandits.lab.experiments.changing_scenes import AvailableScene, LivingScene
from sketchbandits.lab.experiments.scenes import Scene
from sketchbandits.lab.experiments.tasks import Outcome
from sketchbandits.lab.paper.beyond import figures
from sketchbandits.lab.paper.beyond import plan as plans
from sketchbandits.lab.paper.beyond.arm_sets import (
    AVAILABLE,
    FAMILIES,
    LARGEST,
    LIVING,
    MODEL,
    ArmSet,
    arm_sets,
)
from sketchbandits.lab.paper.beyond.figures import frontier_figure, ratio_figure
from sketchbandits.lab.paper.beyond.plan import (
    ABLATED,
    FAIR,
    GUARANTEED,
    OTHERS,
    OURS,
    SAMPLING,
    VARIANTS,
    BeyondPlan,
    living_pairs,
    players,
)
from sketchbandits.lab.paper.beyond.rows import (
    Reach,
    Row,
    ablation,
    geometric_mean,
    living,
    sentence,
    table,
    targets,
    upper_end,
)
from sketchbandits.lab.paper.beyond.tables import all_regrets, markdown
from sketchbandits.policies import CSLB, OFUL, UCB1, MultiscaleCSLB
from sketchbandits.policies.registry import PolicySpec

CSLB_LOGDET, CSLB_PAPER, UCB1_WIDE = map(str, GUARANTEED[1:])


# --- sets of arms ---


def test_there_are_enough_sets_of_every_family():
    sets = arm_sets(3)
    assert len(sets) == sum(count for count, _ in FAMILIES.values()) >= 40
    assert len({each.scene.name for each in sets}) == len(sets)
    assert {each.family for each in sets} == set(FAMILIES)
    kinds = {each.family: type(each.scene) for each in sets}
    assert kinds[LIVING] is LivingScene and kinds[AVAILABLE] is AvailableScene
    assert {kind for family, kind in kinds.items() if family not in (LIVING, AVAILABLE)} == {Scene}
    for family in FAMILIES:
        assert len({each.scene.normalize for each in sets if each.family == family}) == 2


def test_a_seed_decides_the_sets():
    assert arm_sets(3) == arm_sets(3)
    assert all(one.scene.identity() != two.scene.identity() for one, two in zip(arm_sets(3), arm_sets(4), strict=True))


@pytest.mark.parametrize("seed", range(20))
def test_all_that_is_drawn_is_within_its_range_and_can_be_drawn(seed):
    for each in arm_sets(seed):
        n_arms, dim = each.options["n_arms"], each.options["dim"]
        assert 10 <= n_arms <= 2000 and 4 <= dim <= 64 and n_arms * dim <= LARGEST
        assert (n_arms <= dim) == each.family.startswith("N <= d")
        assert each.inner.model is MODEL and MODEL.noise == MODEL.theta_norm == 1.0 and MODEL.delta == 0.01
        if seed < 2:
            arms, env = each.scene.draw(seed)
            assert arms.shape == (n_arms, dim) and np.linalg.norm(arms, axis=1).max() <= 1 + 1e-9
            assert np.linalg.norm(env.theta) == pytest.approx(1.0)
        if isinstance(each.scene, LivingScene):
            assert each.scene.first < n_arms


def test_some_living_sets_begin_with_fewer_arms_than_dimensions_and_some_lose_arms():
    living_sets = [each for seed in range(3) for each in arm_sets(seed) if each.family == LIVING]
    assert any(each.scene.first < each.options["dim"] for each in living_sets)
    assert {each.scene.leaving > 0 for each in living_sets} == {True, False}


# --- the plan ---


def test_rivals_with_a_guarantee_are_built_as_their_names_say():
    arms = np.random.default_rng(0).normal(size=(9, 4)) / 9
    built = [policy.build(arms, MODEL.parameters(), 0) for policy in GUARANTEED]
    fair, clusters, printed, counting = built
    assert isinstance(fair, OFUL) and isinstance(clusters, CSLB) and isinstance(printed, CSLB)
    assert isinstance(counting, UCB1) and counting.settings["exploration"] == 8
    assert (fair.settings["radius"], fair.settings["ridge"], fair.settings["cap"]) == ("mixture", None, True)
    assert (clusters.settings["radius"], printed.settings["radius"]) == ("logdet", "paper")
    ours = OURS.build(arms, MODEL.parameters(), 0)
    assert isinstance(ours, MultiscaleCSLB)
    assert clusters.settings["sketch_size"] == printed.settings["sketch_size"] == 16
    assert ours.settings["sketch_size"] == 2  # by itself: half the rank
    assert {str(policy) for policy in OTHERS} == {"ucb1", "lints:scale=1"}


def test_the_policy_chooses_its_own_ridge_and_sketch_size():
    arms = np.random.default_rng(0).normal(size=(9, 4))
    built = OURS.build(arms, {"ridge": 5.0, "noise": 0.5, "sketch_size": 3}, 0)
    assert built.settings["ridge"] is None and built.settings["noise"] == 0.5 and built.settings["sketch_size"] == 2
    own = PolicySpec.parse("multiscale:ridge=5,sketch_size=3").build(arms, {"ridge": 1.0, "sketch_size": 4}, 0)
    assert own.settings["ridge"] == 5.0 and own.settings["sketch_size"] == 3


def test_every_set_is_played_by_all_that_can():
    plan = BeyondPlan(seed=3)
    regret = plan.experiments["regret"]
    for each in plan.arm_sets:
        place = (each.scene.name, each.scene.normalize)
        there = {key[2] for key in regret if key[:2] == place}
        missing = {"cslb", "lints:scale=1"} if each.family == LIVING else set()
        assert there == {str(policy) for policy in (*VARIANTS, *GUARANTEED, *OTHERS)} - missing
        (group,) = {regret[*place, name] for name in (str(OURS),)}
        assert len(group) == 10 and {task.rounds for task in group} == {200_000 // each.shorter}
        timed = each.is_fixed and each.options["n_arms"] >= 1000
        assert ((*place, str(FAIR)) in plan.experiments["time"]) is timed
    ablated = {key[0] for key in plan.experiments["ablation"]}
    assert ablated == {f"{family} #1" for family in FAMILIES if family not in (LIVING, AVAILABLE)}
    assert len(BeyondPlan(seed=3, sets=1).arm_sets) == len(FAMILIES)


def test_what_was_played_for_the_table_is_not_played_again_for_the_ablation():
    plan = BeyondPlan(seed=3)
    tasks = plan.tasks()
    own = [task for task in tasks if task.policy == OURS and task.scene.name == "rays #1" and not task.timed]
    assert len(own) == 10 + 5 and len(set(own)) == 10


def test_the_default_seed_is_new_and_bad_values_are_refused():
    assert BeyondPlan().seed == 74_093
    with pytest.raises(ValueError, match="sets must be a whole number >= 1, got 0"):
        BeyondPlan(sets=0)


# --- what it came to ---


def made_row(ratio, upper=1.0, *, sampling=0.5, times=math.nan, scene="rays #1"):
    reaches = tuple(
        Reach(rounds, {str(OURS): ratio, str(FAIR): 1.0}, str(FAIR), ratio, upper, sampling) for rounds in (50, 200)
    )
    return Row("rays", scene, "max", 1000, 20, reaches, times)


@pytest.fixture
def small(monkeypatch):
    """One set of fixed arms, three runs, regrets as the test says."""
    options = (("n_arms", 1000), ("dim", 6), ("group_size", 1))
    monkeypatch.setattr(
        plans, "arm_sets", lambda seed: [ArmSet("rays", Scene("rays #1", MODEL, "correlated", options))]
    )
    for module in (plans, figures):
        monkeypatch.setattr(module, "FRONTIER", {"(4)": (12, 6, 3, 2)})
    return BeyondPlan(rounds=200, runs=3, seed=5)


def made_study(plan, regrets, times=()):
    """Regret grows evenly to its last value; ``regrets`` by policy and run, 9 for others."""
    given = {}
    for groups in plan.experiments.values():
        for task in (task for group in groups.values() for task in group):
            name, points = str(task.policy), np.array([task.rounds // 4, task.rounds])
            last = float(regrets.get(name, [9, 9, 9])[task.run % 3])  # living pairs have more runs
            seconds = 1e-6 * dict(times).get(name, 1.0) * task.rounds
            given[task] = Outcome(points, last * points / task.rounds, seconds, 0.0, {})
    return plan.study(given)


def test_the_ratio_is_to_the_best_rival_with_a_guarantee_by_mean(small):
    regrets = {
        str(OURS): [2, 3, 4],
        str(FAIR): [8, 2, 2],
        UCB1_WIDE: [6, 6, 9],
        "ucb1": [1, 1, 1],
        str(SAMPLING): [6, 6, 6],
    }
    (row,) = table(made_study(small, regrets, {str(OURS): 2.0, str(FAIR): 16.0}), small.arm_sets)
    early, late = row.reaches
    assert (early.rounds, late.rounds) == (50, 200)
    assert late.best == str(FAIR) and late.ratio == early.ratio == pytest.approx(3 / 4)  # not UCB1, c = 2
    assert late.regrets[str(OURS)] == pytest.approx(3) and early.regrets[str(OURS)] == pytest.approx(3 / 4)
    assert row.times == pytest.approx(1 / 8) and row.n_arms == 1000 and late.sampling == pytest.approx(1 / 2)
    assert 1.0 < late.upper <= 2.0  # in a resample without the first run OFUL has regret 2


def test_a_resample_has_its_own_best_rival():
    own, one, two = np.full(4, 2.0), np.array([1.0, 3, 1, 3]), np.array([3.0, 1, 3, 1])
    assert upper_end(own, [one, two]) > max(upper_end(own, [one]) - 1e-12, 1.0)
    assert upper_end(own, [np.full(4, 4.0)]) == 0.5
    assert upper_end(np.zeros(4), [np.zeros(4)]) == 1.0


def test_targets_are_geometric_means_and_largest_values_at_both_horizons():
    rows = [made_row(0.25, 0.5, times=0.4), made_row(1.0, 1.3, sampling=2.0, scene="rays #2")]
    found = {(i, target.name): target for i, target in enumerate(targets(rows))}
    values = [target.value for target in found.values()]
    assert values == pytest.approx([0.5, 1.0, 1.3, 1.0, 2.0] * 2 + [0.4])
    text = sentence(rows)
    assert text.count("yes") == 2 * 2 + 1 and text.count("NO") == 2 * 3
    assert "after 50 rounds" in text and "after 200 rounds" in text and "2 sets" in text
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    without = targets([made_row(1.0, sampling=math.nan), made_row(1.0, sampling=0.7)])
    assert [t.value for t in without if t.name.startswith("to LinTS")] == pytest.approx([0.7] * 4)


def test_ablations_are_against_the_best_rival_of_the_same_runs(small):
    regrets = {str(OURS): [2, 2, 2], str(FAIR): [4, 4, 4], str(ABLATED[1]): [8, 8, 8]}
    found = {str(each.policy): each for each in ablation(made_study(small, regrets))}
    assert set(found) == {str(OURS), *map(str, ABLATED)}
    assert found[str(OURS)].mean == 0.5 and found[str(ABLATED[1])].largest == 2.0


def test_living_pairs_are_the_same_arms():
    pairs = living_pairs()
    assert set(pairs) == {"E1", "E2", "F"}
    for changed, plain in pairs.values():
        one, two = changed.draw(4), plain.draw(4)
        assert np.array_equal(one.arms, two.arms) and np.array_equal(one.env.theta, two.env.theta)
    assert [pairs[name][0].first for name in ("E1", "E2")] == [15, 8]
    assert pairs["E1"][0].events(500, 100) == [(0, 500)] and pairs["E1"][1].events(500, 100) == []


def test_it_plays_and_draws(monkeypatch, small):
    options = (("n_arms", 30), ("dim", 6), ("decay", 0.0))
    scene = Scene("arms come and go #1", MODEL, "heavy-tailed", options, "unit", "isotropic")
    rays = Scene("rays #1", MODEL, "correlated", (("n_arms", 40), ("dim", 6), ("group_size", 2)))
    sets = [ArmSet("rays", rays), ArmSet(LIVING, LivingScene(scene, 4, 3, leaving=0.1))]
    other = dataclasses.replace(scene, name="some available #1")
    sets.append(ArmSet(AVAILABLE, AvailableScene(other, 0.5, hidden=3, hidden_share=0.1)))
    monkeypatch.setattr(plans, "arm_sets", lambda seed: sets)
    monkeypatch.setattr(plans, "_gaussian", lambda name, n_arms, dim: Scene(name, MODEL, *scene_of(n_arms)))
    plan = BeyondPlan(rounds=rounds(400, 100), runs=2, seed=5)
    played = plan.study({task: task.play() for task in dict.fromkeys(plan.tasks())})
    found = table(played, plan.arm_sets)
    assert len(found) == 3 and all(value >= 0.0 for row in found for value in row.reaches[1].regrets.values())
    assert [players(each, plan.policies) == list(plan.policies) for each in sets] == [True, False, True]
    page = markdown(played, plan.arm_sets)
    assert page.count("\n| arms come and go #1 |") == 1 and "OFUL, fair" in page and "E1: 15 arms" in page
    every = all_regrets(found)
    assert every.count("\n") == 2 + 2 * 3 and every.count(" - |") == 2 * 2 and "UCB1 |" in every
    assert len(living(played)) == 3 * len(VARIANTS)
    names = {text.get_text() for ax in frontier_figure(played).axes for text in ax.texts}
    assert {PolicySpec.parse(key[2]).label for key in played["frontier"]} == names
    labels = [text.get_text() for text in ratio_figure(found).axes[0].get_yticklabels()]
    assert labels == ["rays", LIVING, AVAILABLE]


def scene_of(n_arms):
    """The rest of a scene of a living pair, with fewer arms and dimensions."""
    return "heavy-tailed", (("n_arms", min(n_arms, 30)), ("dim", 4), ("decay", 0.0)), "max", "isotropic"
