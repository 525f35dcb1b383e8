"""Interrupts between a step and its refit, threads that copy, and arms that change in several clusters."""

import copy
import pickle
import threading

import numpy as np
import pytest
from conftest import rounds as length

from sketchbandits import CSLB, OFUL, LinTS, MultiscaleCSLB
from sketchbandits.policies import rounds

MAKE = {
    "cslb": lambda X: CSLB(X, sketch_size=3, radius="logdet", ridge=1e-6),
    "cslb-paper": lambda X: CSLB(X, sketch_size=3, ridge=1e-6),
    "multiscale": lambda X: MultiscaleCSLB(X, sketch_size=3, ridge=1e-6),
    "oful": lambda X: OFUL(X, ridge=1e-6),
    "oful-rare": lambda X: OFUL(X, ridge=1e-6, switching=0.5),
    "lints": lambda X: LinTS(X, ridge=1e-6, seed=1),
}


def arms(n=30, d=7, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X / np.linalg.norm(X, axis=1).max()


@pytest.mark.parametrize("when", ["before the refit", "after the refit", "after the choice"])
@pytest.mark.parametrize("name", MAKE)
def test_an_interrupt_around_a_refit_changes_no_later_choice(name, when, monkeypatch):
    X, generator = arms(), np.random.default_rng(4)
    policy, untouched = MAKE[name](X), MAKE[name](X)
    whole, met = rounds._settle, 0

    def interrupted(state, kernels, *, choose=True):
        if when != "before the refit":
            kernels.refit(state)
        if when == "after the choice":
            kernels.step(state, 0, 0.0, rounds.CHOOSE)
        raise KeyboardInterrupt

    for t in range(length(150, 60)):
        arm, reward = int(generator.integers(len(X))), float(generator.normal())
        monkeypatch.setattr(rounds, "_settle", interrupted if t % 4 == 0 else whole)
        try:
            policy.update(arm, reward)
        except KeyboardInterrupt:
            met += 1
        monkeypatch.setattr(rounds, "_settle", whole)
        untouched.update(arm, reward)
        if t % 4:
            assert policy.select() == untouched.select(), t
            np.testing.assert_allclose(policy.bounds(), untouched.bounds(), rtol=1e-9)
    assert met >= 2
    assert np.array_equal(policy.counts, untouched.counts)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda policy: pickle.loads(pickle.dumps(policy))])
def test_a_deep_copy_is_never_of_a_state_that_changes(duplicate):
    policy = MultiscaleCSLB(arms(), sketch_size=3)
    generator, stop = np.random.default_rng(0), threading.Event()

    def learn():
        while not stop.is_set():
            policy.update_many(generator.integers(0, 30, 200), generator.normal(size=200))

    learner = threading.Thread(target=learn)
    learner.start()
    try:
        for _ in range(length(200, 5)):
            state = duplicate(policy).state
            queued = state.waiting["queue"][: state.space["in_queue"][0]]
            assert np.array_equal(np.sort(queued), np.flatnonzero(state.waiting["queued"]))
            assert state.counts.sum() == state.control["round"][0] - 1
    finally:
        stop.set()
        learner.join()


def test_arms_that_change_in_several_clusters_lead_to_one_choice(monkeypatch):
    X = arms(60, 9)
    policy, generator = MultiscaleCSLB(X, sketch_size=3, budget=200), np.random.default_rng(1)
    for _ in range(length(400, 60)):
        arm = policy.select()
        policy.update(arm, float(X[arm, 0] + generator.normal()))
    modes, step = [], rounds.take_step
    monkeypatch.setattr(
        "sketchbandits.policies.cslb.changing_clusters.take_step", lambda *a: (modes.append(a[-1]), step(*a))
    )
    chosen = []
    monkeypatch.setattr(
        "sketchbandits.policies.cslb.changing_clusters.renew_choice",
        lambda state: chosen.append(rounds.renew_choice(state)),
    )
    policy.remove_arms(np.arange(0, 30, 5))
    assert len(modes) > 1 and set(modes) == {rounds.RENEW} and len(chosen) == 1
