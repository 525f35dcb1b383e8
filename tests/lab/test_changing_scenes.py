"""Scenes whose arms come and go or may not all be chosen: what changes when, and what regret is counted against."""

import dataclasses

import numpy as np
import pytest

from sketchbandits import OFUL, UCB1
from sketchbandits.lab.experiments.changing_scenes import AvailableScene, LivingScene
from sketchbandits.lab.experiments.scenes import Model, Scene
from sketchbandits.lab.experiments.tasks import Task
from sketchbandits.policies.registry import PolicySpec

N, D, T = 24, 5, 200
SCENE = Scene(
    "tiny", Model(3, noise=0.5, arm_norm=1.0), "heavy-tailed", (("n_arms", N), ("dim", D)), "max", "isotropic"
)
LIVING = LivingScene(SCENE, 4, 5, leaving=0.1)
AVAILABLE = AvailableScene(SCENE, 0.4, hidden=3, hidden_share=0.1)


class Recorder:
    """A policy that notes what it is asked for."""

    def __init__(self, policy):
        self.policy, self.log = policy, []

    def __getattr__(self, name):
        return getattr(self.policy, name)

    def play_rounds(self, means, gaps, noise):
        self.log.append((noise.size, self.policy.n_arms, self.policy.active.copy(), gaps))
        return self.policy.play_rounds(means, gaps, noise)

    def select(self, *, available):
        self.log.append(available.copy())
        return self.policy.select(available=available)


def played(scene, points=(50, T), seed=3, make=UCB1):
    arms, env = scene.draw(1)
    policy = Recorder(make(arms[: getattr(scene, "first", N)]))
    steps = []
    curve, _ = scene.play(env, policy, np.array(points), seed, steps.append)
    assert sum(steps) == T
    return env, policy, curve


def test_arms_are_those_of_the_scene_inside_in_random_order():
    arms, env = LIVING.draw(5)
    inside = SCENE.draw(np.random.default_rng(5))
    assert not np.array_equal(arms, inside.arms)
    assert np.array_equal(np.sort(arms, axis=0), np.sort(inside.arms, axis=0))
    assert np.array_equal(env.theta, inside.env.theta) and np.array_equal(arms, AVAILABLE.draw(5).arms)
    assert (LIVING.name, LIVING.normalize, LIVING.model) == ("tiny", "max", SCENE.model)


def test_identities_tell_all_scenes_apart():
    scenes = [SCENE, LIVING, AVAILABLE]
    scenes += [
        dataclasses.replace(LIVING, **{name: 7}) for name in ("first", "portions", "until", "leaving", "best_removed")
    ]
    scenes += [dataclasses.replace(AVAILABLE, **{name: 7}) for name in ("share", "hidden", "hidden_share")]
    scenes.append(dataclasses.replace(LIVING, scene=dataclasses.replace(SCENE, name="other")))
    keys = {Task(scene, PolicySpec("ucb1"), T, 0, 0).key for scene in scenes}
    assert len(keys) == len(scenes)


def test_portions_arrive_evenly_until_their_time():
    assert LIVING.events(N, T) == [(20, 8), (40, 12), (60, 16), (80, 20), (100, 24)]
    _, policy, _ = played(dataclasses.replace(LIVING, leaving=0.0))
    assert [(size, n) for size, n, _, _ in policy.log] == [
        (20, 4),
        (20, 8),
        (10, 12),
        (10, 12),
        (20, 16),
        (20, 20),
        (100, 24),
    ]
    assert policy.active.all() and np.array_equal(policy.arms, LIVING.draw(1).arms)


def test_the_best_arm_leaves_with_every_portion_and_others_with_it():
    env, policy, _ = played(LIVING)
    before = None
    for _, n, active, gaps in policy.log:
        assert gaps[active].min() == 0.0, "regret is that against the best arm there is"
        if before is not None and n > before.size:
            best = np.flatnonzero(before)[env.means[: before.size][before].argmax()]
            assert not active[best]
        before = active
    assert 5 <= N - policy.active.sum() <= 10


def test_the_best_arms_may_be_removed_at_the_start():
    env, policy, _ = played(LivingScene(SCENE, N, best_removed=10))
    assert set(np.flatnonzero(~policy.active)) == set(np.argsort(-env.means)[:10])


def test_arms_added_before_the_first_round_are_as_built_at_once():
    at_once, grown = (
        played(LivingScene(SCENE, first, until=0.0), make=lambda arms: OFUL(arms, radius="logdet"))[2]
        for first in (N, 4)
    )
    np.testing.assert_allclose(grown, at_once, rtol=1e-9)


def test_available_arms_follow_their_shares_and_regret_the_best_of_them():
    env, policy, curve = played(AVAILABLE, points=tuple(range(1, T + 1)))
    masks = np.array(policy.log)
    best = np.argsort(-env.means)[:3]
    assert masks.any(axis=1).all()
    assert masks[:, best].mean() < 0.2 < 0.3 < np.delete(masks, best, axis=1).mean() < 0.5
    steps = np.diff(curve, prepend=0.0)
    assert (steps > -1e-12).all() and steps.max() <= (env.means.max() - env.means.min())
    assert (policy.counts[best] <= masks[:, best].sum(axis=0)).all()
    hidden, _, _ = played(AvailableScene(SCENE, 1.0, hidden=4))[1], None, None
    assert (~np.array(hidden.log)).sum(axis=1).tolist() == [4] * T


@pytest.mark.parametrize("scene", [LIVING, AVAILABLE])
def test_all_policies_of_a_run_meet_the_same_changes(scene):
    one, two = (played(scene, make=make)[1].log for make in (UCB1, lambda arms: OFUL(arms, radius="logdet")))
    for mine, theirs in zip(one, two, strict=True):
        pair = (mine, theirs) if isinstance(mine, np.ndarray) else (mine[2], theirs[2])
        assert np.array_equal(*pair)


@pytest.mark.parametrize("scene", [LIVING, AVAILABLE])
def test_a_task_plays_it_with_the_usual_checkpoints(scene):
    task = Task(scene, PolicySpec.parse("multiscale"), T, 0, 4)
    one, again = task.play(), task.play()
    assert one.rounds == T and one.regret.shape == one.checkpoints.shape and T // 4 in one.checkpoints
    assert np.array_equal(one.regret, again.regret) and (np.diff(one.regret) >= -1e-12).all()
    assert task.play(rounds=20).rounds == 20
