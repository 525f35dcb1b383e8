"""A log that version 0.1.0 wrote replays with the same choices and bounds, with and without that version's snapshots.

Multi-scale CS-LB has changed since: such a bandit learns every reward of the log, goes on by the present algorithm with
the options that it had, and is the same with that version's snapshots, which are passed over, and without.

How the data were made, once, with version 0.1.0 (commit b5efa31): a ledger with a SQLite log was given one bandit per
entry of `RULES`, 30 arms each from ``correlated_arms(n_arms=30, dim=8, group_size=3, normalize="max", seed=1)``; every
request was a group of its own. In each of 40 rounds every bandit was asked for one to three decisions, some with a key,
some among seven arms, and a random part of the outstanding decisions was rewarded; deadlines were recorded; in round 15
the policies that support it had two arms added, in round 20 two arms removed. A snapshot was written after rounds 10
and 30. ``state.tar.xz`` is the resulting state folder. ``expected.json`` is what `continued` returned in that version.
"""

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.planning import Facts, plan_defaults, plan_group
from sketchbandits.service.bandits.recovery import recover
from sketchbandits.service.bandits.requests import Decide, Reward
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.folder import LOG_FILE, SNAPSHOTS
from sketchbandits.service.log import open_log
from sketchbandits.service.log.events import Kind, Record, parsed

DATA = Path(__file__).parent / "data"
ROUNDS = 12
RULES = {
    "multiscale": {},
    "multiscale-explores": {
        "options": {"noise": 0.5},
        "exploration": 0.3,
        "deadline": 6.0,
        "default_reward": -0.25,
        "seed": 3,
    },
    "cslb": {"policy": "cslb", "options": {"radius": "logdet", "sketch_size": 3}},
    "cslb-default-size": {"policy": "cslb", "pending": 0},
    "oful": {"policy": "oful", "options": {"ridge": 0.5}, "pending": 4},
    "ucb1": {"policy": "ucb1", "deadline": 4.0},
    "linucb": {"policy": "linucb", "pending": 0},
    "lints": {"policy": "lints", "pending": 0, "seed": 5},
    "soful": {"policy": "soful", "pending": 0},
    "cbscfd": {"policy": "cbscfd", "pending": 0},
    "dbslinucb": {"policy": "dbslinucb", "pending": 0},
    "cbrap": {"policy": "cbrap", "pending": 0, "seed": 2},
}

CHANGED = {"multiscale", "multiscale-explores"}


def continued(ledger, first_record):
    """Play some more rounds; all choices, with the bounds and probabilities that were answered."""
    now, seq, rng = 2_000_000.0, first_record, np.random.default_rng(11)
    answers = {name: [] for name in ledger.bandits}

    def applied(plan):
        nonlocal seq
        numbers = range(seq, seq + len(plan.changes))
        ledger.apply(zip(numbers, plan.changes, strict=True))
        seq += len(plan.changes)
        return plan.answers

    for t in range(ROUNDS):
        now += 0.5
        applied(plan_defaults(ledger, now, 1_000))
        for name, bandit in ledger.bandits.items():
            ids = [bandit.ids[arm] for arm in bandit.active]
            available = tuple(rng.choice(ids, 7, replace=False)) if t % 3 == 2 else None
            (answer,) = applied(plan_group(ledger, [Decide(name, available, None, 1 + t % 2)], Facts({}, {}), now))
            answers[name] += [[made["arm"], made["probability"], made["bound"]] for made in answer["decisions"]]
            if t % 4 != 3:
                rewards = [(made["decision_id"], float(np.sin(t + i))) for i, made in enumerate(answer["decisions"])]
                applied(plan_group(ledger, [Reward(name, tuple(rewards))], Facts({}, {}), now))
    bounds = {name: [b if np.isfinite(b) else None for b in bandit.bounds] for name, bandit in ledger.bandits.items()}
    return {"answers": answers, "bounds": bounds}


@pytest.fixture(scope="module")
def old_state(tmp_path_factory):
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(DATA / "state.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


def assert_same(found, expected, names):
    """Choices exactly; bounds and probabilities up to rounding."""
    for name in names:
        made, other = found["answers"][name], expected["answers"][name]
        assert [answer[0] for answer in made] == [answer[0] for answer in other], name
        _assert_close([answer[1:] for answer in made], [answer[1:] for answer in other])
        _assert_close(found["bounds"][name], expected["bounds"][name])


def _assert_close(found, expected):
    np.testing.assert_allclose(np.array(found, float), np.array(expected, float), rtol=1e-9, atol=0.0)


@pytest.fixture(scope="module")
def recovered(old_state, tmp_path_factory):
    """With the snapshots of that version, and with none."""
    found = {}
    for snapshots, folder in (("kept", old_state / SNAPSHOTS), ("missing", tmp_path_factory.mktemp("none"))):
        log = open_log(str(old_state / LOG_FILE), read_only=True)
        found[snapshots] = recover(log, Snapshots(folder))
        log.close()
    return found


def test_an_old_state_continues_as_the_old_version_did(recovered):
    kept, missing = recovered["kept"], recovered["missing"]
    assert [note.split(":")[0] for note in kept.notes] == ["snapshot 932", "snapshot 339"] and not missing.notes
    assert all("of an earlier version, whose multi-scale CS-LB chose otherwise" in note for note in kept.notes)
    expected = json.loads((DATA / "expected.json").read_text())
    found = [continued(each.ledger, 10_000) for each in (kept, missing)]
    assert list(found[0]["answers"]) == list(expected["answers"]) == list(RULES)
    assert found[0] == found[1]
    assert_same(found[0], expected, RULES.keys() - CHANGED)


def test_multiscale_of_an_old_state_has_every_reward_and_the_options_it_had(old_state):
    log = open_log(str(old_state / LOG_FILE), read_only=True)
    ledger, counts = Ledger(), {}
    for record in log.read():
        if record.kind in (Kind.REWARD, Kind.DEFAULT):
            data = parsed(record.body)
            counts.setdefault(data["bandit"], []).append(data["arm"])
        ledger.replay([record])
    log.close()
    for name in CHANGED:
        policy = ledger.bandits[name].policy
        assert np.bincount(counts[name], minlength=policy.n_arms).tolist() == policy.counts.tolist()
        assert policy.settings.items() >= {"sketch_size": 5, "explore": "optimism", "budget": 2048}.items()


def test_every_logged_decision_of_an_old_log_is_made_again(old_state):
    """Each record is replayed after the same request was planned again: same arms, probabilities and bounds."""
    log = open_log(str(old_state / LOG_FILE), read_only=True)
    ledger, seen = Ledger(), set[str]()
    for record in log.read():
        if record.kind == Kind.DECISION and parsed(record.body)["bandit"] not in CHANGED:
            seen.add(_assert_made_again(ledger, record))
        ledger.replay([record])
    log.close()
    assert seen == RULES.keys() - CHANGED


def _assert_made_again(ledger: Ledger, record: Record) -> str:
    data = parsed(record.body)
    bandit = ledger.bandits[data["bandit"]]
    assert ledger.next_number == data["n"]
    available = None if "available" not in data else tuple(bandit.ids[arm] for arm in data["available"])
    request = Decide(bandit.name, available, None, len(data["arms"]))
    (change,) = plan_group(ledger, [request], Facts({}, {}), data["t"]).changes
    assert change.data["arms"] == data["arms"]
    _assert_close(change.data["bounds"], data["bounds"])
    _assert_close(change.data["p"], data["p"])
    return bandit.name
