"""Decisions are read from a log with what was available and which rewards are final."""

import numpy as np
import pytest

from sketchbandits.offline.logged import EVERY_ARM
from sketchbandits.service.log.decisions import read_bandit
from sketchbandits.service.log.encoding import body, body_with_features
from sketchbandits.service.log.events import START, Event, Kind, chained


def records(*events):
    position = START
    for event in events:
        record = chained(Event(*event), position)
        position = record.position
        yield record


def decision(n, arms, p, t=0.0, **more):
    return Kind.DECISION, None, body({"bandit": "b", "n": n, "arms": arms, "p": p, "t": t, **more})


def reward(number, value, kind=Kind.REWARD, t=0.0):
    return kind, number, body({"bandit": "b", "id": f"{number}-x", "arm": 0, "reward": value, "t": t})


def test_a_bandit_is_read_from_the_log():
    config = {"exploration": 0.5, "deadline": 60.0, "default_reward": 0.125}
    created = {"bandit": "b", "config": config, "ids": ["x", "y"], "t": 0.0}
    log = read_bandit(
        records(
            (Kind.BANDIT, None, body_with_features(created | {"bandit": "other"}, np.eye(2))),
            (Kind.BANDIT, None, body_with_features(created, np.eye(2))),
            decision(7, [0, 1], [0.75, 0.25]),
            reward(8, 0.5),
            (Kind.ARMS_ADDED, None, body_with_features({"bandit": "b", "ids": ["z"], "t": 0.0}, np.full((1, 2), 3.0))),
            decision(9, [2], [0.5 / 3 + 0.5], t=1.0),
            (Kind.ARMS_REMOVED, None, body({"bandit": "b", "arms": [0], "t": 0.0})),
            decision(11, [1], [1.0], t=50.0, available=[1, 0]),
            decision(12, [2], [0.75], t=60.5),
            reward(7, 0.25, Kind.DEFAULT, t=61.0),
        ),
        "b",
    )
    assert (log.ids, log.config) == (["x", "y", "z"], config)
    np.testing.assert_array_equal(log.features, [[1, 0], [0, 1], [3, 3]])
    decisions = log.decisions
    assert decisions.n_arms == 3
    np.testing.assert_array_equal(decisions.final, [True, True, True, False, False])
    np.testing.assert_array_equal(decisions.arms, [0, 1, 2, 1, 2])
    np.testing.assert_array_equal(decisions.rewards, [0.25, 0.5, 0.125, np.nan, np.nan])  # a due default
    np.testing.assert_array_equal(decisions.sizes, [2, 2, 3, 1, 2])
    named = [None if i == EVERY_ARM else decisions.sets[i].tolist() for i in decisions.chosen_from]
    assert named == [[0, 1], [0, 1], None, [1], [1, 2]]


def test_where_every_arm_was_always_there_no_sets_are_kept():
    created = {"bandit": "b", "config": {"exploration": 0.5, "deadline": None}, "ids": ["x", "y"], "t": 0.0}
    log = read_bandit(
        records(
            (Kind.BANDIT, None, body_with_features(created, np.eye(2))),
            decision(1, [0], [0.75]),
            decision(2, [1], [0.25], available=[1, 0]),
        ),
        "b",
    )
    assert log.decisions.chosen_from is None and log.decisions.final is None
    with pytest.raises(ValueError, match="bandit must be one of the log's: 'b'; got 'c'"):
        read_bandit(records((Kind.BANDIT, None, body_with_features(created, np.eye(2)))), "c")


def test_a_reward_that_was_taken_back_is_missing_and_never_final():
    config = {"exploration": 0.5, "deadline": 10.0, "default_reward": 0.125}
    created = {"bandit": "b", "config": config, "ids": ["x", "y"], "t": 0.0}
    log = read_bandit(
        records(
            (Kind.KEYS_REQUIRED, None, body({"t": 0.0})),
            (Kind.BANDIT, None, body_with_features(created, np.eye(2))),
            decision(1, [0, 1], [0.75, 0.25]),
            reward(1, 0.5),
            reward(2, 1e12),
            (Kind.RETRACTED, None, body({"bandit": "b", "numbers": [2], "arms": [1], "rewards": [1e12], "t": 5.0})),
            (Kind.ARMS_FREED, None, body({"bandit": "b", "arms": [1], "t": 50.0})),
        ),
        "b",
    )
    np.testing.assert_array_equal(log.decisions.rewards, [0.5, np.nan])
    np.testing.assert_array_equal(log.decisions.final, [True, False])


def test_a_bandit_that_was_deleted_and_made_again_is_the_last_one():
    created = {"bandit": "b", "config": {"exploration": 0.5, "deadline": None}, "ids": ["x", "y"], "t": 0.0}
    log = read_bandit(
        records(
            (Kind.BANDIT, None, body_with_features(created, np.eye(2))),
            decision(1, [0], [0.75]),
            (Kind.BANDIT_DELETED, None, body({"bandit": "b", "t": 1.0})),
            (Kind.BANDIT, None, body_with_features(created | {"ids": ["z"]}, np.ones((1, 2)))),
            decision(2, [0, 0], [1.0, 1.0]),
        ),
        "b",
    )
    assert log.ids == ["z"] and log.decisions.arms.tolist() == [0, 0]
