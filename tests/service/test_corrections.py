"""Rewards out of range, taken back, bandits deleted, memory of removed arms freed: live and in replay."""

import numpy as np
import pytest
from test_ledger import ARMS, IDS, LoggedLedger, next_arms, state_of

from sketchbandits import SOFUL, MultiscaleCSLB
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.planning import Facts, plan_group
from sketchbandits.service.bandits.requests import (
    AddArms,
    CreateBandit,
    Decide,
    DeleteBandit,
    FreeArms,
    Refusal,
    RemoveArms,
    Retract,
    Reward,
)
from sketchbandits.service.bandits.snapshots import Snapshots, frozen
from sketchbandits.service.log.events import Kind

POLICIES = [
    {},
    {"policy": "oful"},
    {"policy": "ucb1"},
    {"policy": "cslb", "options": {"radius": "logdet", "sketch_size": 3}},
]


def replayed(logged):
    ledger = Ledger()
    ledger.replay(logged.records)
    return ledger


def same_after_replay(logged):
    assert state_of(replayed(logged)) == state_of(logged.ledger)
    assert next_arms(replayed(logged), logged.time) == next_arms(logged.ledger, logged.time)


def learned(logged, values):
    """Decide and reward; the decisions with a reward."""
    made = []
    for value in values:
        logged.time += 1.0
        (decision,) = logged.decide()
        assert logged.reward(decision, value) == "accepted"
        made.append(decision)
    return made


def learned_by(policy):
    """What a policy knows whatever the order in which it has seen the rewards."""
    if isinstance(policy, SOFUL):
        return [policy.counts]
    if isinstance(policy, MultiscaleCSLB):  # its fit of all arms is as of some earlier round
        return [policy.counts, policy.scales()["direction"], policy.scales()["cluster"]]
    return [policy.counts, policy.estimates()]


@pytest.mark.parametrize("rules", [*POLICIES, {"policy": "lints"}, {"policy": "soful"}], ids=str)
def test_a_reward_of_1e12_taken_back_leaves_what_was_there(rules):
    values = np.random.default_rng(1).random(40).tolist()
    logged = LoggedLedger(**rules)
    made = learned(logged, values[:20])
    (bad,) = learned(logged, [1e12])
    assert logged.operate(Retract("default", (bad["decision_id"],)))["results"][0]["status"] == "retracted"
    bandit = logged.ledger.bandits["default"]
    assert bandit.totals.rewards == 20 and bandit.totals.retracted == 1
    assert bandit.totals.reward_sum == pytest.approx(sum(values[:20]), rel=1e-15)
    same_after_replay(logged)

    clean = LoggedLedger(**rules)
    arms = [d["arm"] for d in made]
    for arm, value in zip(arms, values, strict=False):
        (decision,) = clean.decide(available=(arm,))
        clean.reward(decision, value)
    for found, expected in zip(*map(learned_by, (bandit.policy, clean.ledger.bandits["default"].policy)), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-9)
    learned(logged, values[20:])
    same_after_replay(logged)


def test_what_retracting_answers():
    logged = LoggedLedger()
    first, second, third = learned(logged, [0.5, 0.25, 1.0])
    (waiting,) = logged.decide()
    ids = (first["decision_id"], first["decision_id"], waiting["decision_id"], "99-00000000", "nonsense")
    answer = logged.operate(Retract("default", ids))
    assert [result["status"] for result in answer["results"]] == ["retracted", "known", "waiting", "unknown", "unknown"]
    before, records = state_of(logged.ledger), len(logged.records)
    answer = logged.operate(Retract("default", (first["decision_id"],)))
    assert answer["results"][0]["status"] == "known" and len(logged.records) == records
    for value in (0.5, 0.75):
        assert logged.reward(first, value) == "retracted"
    assert logged.reward(second, 0.25) == "known" and state_of(logged.ledger) == before
    assert logged.operate(Retract("default", (second["decision_id"], third["decision_id"])))
    assert logged.ledger.bandits["default"].totals.reward_sum == 0.0
    same_after_replay(logged)


def test_a_default_reward_can_be_retracted_too():
    logged = LoggedLedger(deadline=10.0, default_reward=0.0)
    (late,) = logged.decide()
    logged.time += 11.0
    assert len(logged.defaults()) == 1
    answer = logged.operate(Retract("default", (late["decision_id"],)))
    assert answer["results"][0]["status"] == "retracted"
    assert logged.reward(late, 1.0) == "retracted"
    same_after_replay(logged)


def test_rewards_outside_the_range_are_refused_together():
    logged = LoggedLedger(reward_range=(-1.0, 1.0))
    first, second = logged.decide(2)
    before = state_of(logged.ledger)
    items = ((first["decision_id"], 0.5), (second["decision_id"], 1.5))
    (refusal,) = logged.ask(Reward("default", items))
    assert refusal.code == "bad_value" and "from -1.0 to 1.0" in refusal.message and "1.5" in refusal.message
    assert state_of(logged.ledger) == before
    assert logged.reward(second, -1.0) == "accepted"


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        ({"reward_range": (1.0, 1.0)}, "reward_range"),
        ({"reward_range": (2.0, 1.0)}, "reward_range"),
        ({"reward_range": (0.0, float("inf"))}, "reward_range"),
        ({"reward_range": ("low", "high")}, "reward_range"),
        ({"deadline": 5.0, "default_reward": -1.0}, "default_reward"),
    ],
)
def test_ranges_that_are_none(rules, word):
    with pytest.raises(ValueError, match=f"{word} must"):
        BanditConfig(**rules)


def test_new_bandits_have_a_range_and_old_records_have_none():
    config = BanditConfig(policy="ucb1")
    assert config.reward_range == (0.0, 1.0)
    assert BanditConfig.from_json(config.to_json()) == config
    old = {name: value for name, value in config.to_json().items() if name != "reward_range"}
    assert BanditConfig.from_json(old).reward_range is None
    assert not config.differences(
        BanditConfig.from_json({**config.recorded(config.build(ARMS)).to_json(), "reward_range": None})
    )


def test_a_deleted_bandit_is_gone_and_its_name_free():
    logged = LoggedLedger()
    (decision,) = logged.decide(key="k")
    logged.operate(DeleteBandit("default", by="0123456789ab"))
    assert not logged.ledger.bandits and logged.records[-1].kind == Kind.BANDIT_DELETED
    (refusal,) = logged.ask(Decide("default"))
    assert refusal.code == "unknown_bandit"
    same = state_of(replayed(logged))
    assert same == state_of(logged.ledger)
    logged.operate(CreateBandit("default", BanditConfig(policy="ucb1"), IDS[:3], ARMS[:3]))
    assert logged.reward(decision, 1.0) == "unknown"
    (answer,) = logged.ask(Decide("default", key="k"))
    assert not answer["repeated"]
    same_after_replay(logged)


@pytest.mark.parametrize("rules", POLICIES, ids=str)
def test_freed_arms_leave_what_they_taught(rules):
    logged, kept = LoggedLedger(**rules), LoggedLedger(**rules)
    rng = np.random.default_rng(3)
    for each in (logged, kept):
        rng = np.random.default_rng(3)
        for t in range(30):
            (decision,) = each.decide(available=(IDS[t],))
            each.reward(decision, float(rng.random()))
        each.operate(RemoveArms("default", IDS[4:20]))
        each.decide(available=(IDS[1],))
    answer = logged.operate(FreeArms("default"))
    bandit, twin = logged.ledger.bandits["default"], kept.ledger.bandits["default"]
    assert answer["freed"] == 16 and bandit.policy.n_arms < 30 + 8
    np.testing.assert_allclose(
        [bandit.bounds[bandit.places.of(arm)] for arm in bandit.active],
        [twin.bounds[arm] for arm in twin.active],
        rtol=1e-9,
    )
    assert logged.operate(FreeArms("default"))["freed"] == 0
    for each in (logged, kept):
        each.operate(AddArms("default", ("late", IDS[5]), ARMS[:2] * 0.5))
        made = [each.decide(available=(name,))[0] for name in ("late", IDS[5], IDS[2])]
        assert [d["arm"] for d in made] == ["late", IDS[5], IDS[2]]
        for decision in made:
            assert each.reward(decision, 0.5) == "accepted"
    np.testing.assert_allclose(
        [bandit.bounds[bandit.places.of(arm)] for arm in bandit.active],
        [twin.bounds[arm] for arm in twin.active],
        rtol=1e-9,
    )
    assert bandit.active.tolist() == twin.active.tolist()
    same_after_replay(logged)


def test_freed_arms_in_snapshots_keys_and_refusals(tmp_path):
    logged = LoggedLedger(exploration=0.3)
    learned(logged, [0.5] * 10)
    (answer,) = logged.ask(Decide("default", available=(IDS[7],), key="k"))
    logged.operate(RemoveArms("default", (IDS[6], IDS[7])))
    logged.operate(FreeArms("default"))
    bandit = logged.ledger.bandits["default"]
    assert bandit.places.of(7) != -1, "a decision for it waits for its reward"
    assert logged.reward(answer["decisions"][0], 1.0) == "accepted"
    assert logged.operate(FreeArms("default"))["freed"] == 1
    (again,) = logged.ask(Decide("default", available=(IDS[7],), key="k"))
    assert again == {**answer, "repeated": True}
    (refusal,) = logged.ask(Decide("default", available=(IDS[6],)))
    assert isinstance(refusal, Refusal) and refusal.code == "bad_value" and "available" in refusal.message
    with pytest.raises(Refusal, match="freed"):
        logged.operate(Retract("default", (answer["decisions"][0]["decision_id"],)))
    Snapshots(tmp_path).write(frozen(logged.ledger, logged.records[-1].position))
    ((_, restored, *_),) = Snapshots(tmp_path).intact()
    assert state_of(restored) == state_of(logged.ledger)
    assert next_arms(restored, logged.time) == next_arms(logged.ledger, logged.time)
    same_after_replay(logged)


def test_a_policy_whose_arms_are_fixed_frees_none():
    logged = LoggedLedger(policy="lints")
    assert logged.operate(FreeArms("default"))["freed"] == 0


def test_idempotency_keys_belong_to_api_keys():
    logged = LoggedLedger()
    mine = logged.ask(Decide("default", key="order-17", by="a"))[0]
    theirs, again = logged.ask(
        Decide("default", key="order-17", by="b", count=2), Decide("default", key="order-17", by="a")
    )
    assert not theirs["repeated"] and again == {**mine, "repeated": True}
    same_after_replay(logged)
    assert replayed(logged).bandits["default"].keys == {"a": {"order-17": 2}, "b": {"order-17": 3}}


def test_keys_of_a_time_without_api_keys_are_everybodys(monkeypatch):
    monkeypatch.setattr("sketchbandits.service.bandits.bandit.KEYS_KEPT", 3)
    logged = LoggedLedger()
    old = logged.ask(Decide("default", key="old"))[0]
    assert logged.ask(Decide("default", key="old", by="a"))[0] == {**old, "repeated": True}
    for i in range(10):
        logged.decide(key=f"k{i}", by="noisy")
    assert logged.ask(Decide("default", key="old", by="b"))[0]["repeated"], "somebody else's keys evict none of these"
    assert len(logged.ledger.bandits["default"].keys["noisy"]) == 3


def test_tokens_cannot_be_guessed_and_guesses_are_counted():
    logged = LoggedLedger()
    (decision,) = logged.decide()
    number, token = decision["decision_id"].split("-")
    assert len(token) == 32
    for guess in (f"{number}-{token[-8:]}", f"{number}-{'0' * 24}{token[-8:]}", f"{number}-{token[:8]}"):
        assert logged.reward({"decision_id": guess}, 1.0) == "unknown"
    assert logged.ledger.bandits["default"].unknown_rewards == 3


def test_damaged_records_concern_only_those_who_ask_for_them():
    logged = LoggedLedger()
    known, damaged = learned(logged, [0.5, 0.25])
    keyed = logged.ask(Decide("default", key="k"))[0]
    requests = [
        Reward("default", ((known["decision_id"], 0.5),)),
        Reward("default", ((known["decision_id"], 0.5), (damaged["decision_id"], 0.25))),
        Decide("default", key="k"),
        Decide("default"),
    ]
    facts = logged.facts(requests)
    seq, number = logged.ledger.bandits["default"].keys[""]["k"], int(damaged["decision_id"].split("-")[0])
    facts.records.pop(seq)
    facts.outcomes.pop(number)
    broken = Facts(facts.records, facts.outcomes, type(facts.damaged)([seq], [number]))
    answers = plan_group(logged.ledger, requests, broken, logged.time).answers
    assert answers[0]["results"][0]["status"] == "known" and len(answers[3]["decisions"]) == 1
    for answer, what in ((answers[1], f"decision {number}"), (answers[2], f"record {seq}")):
        assert answer.code == "damaged" and what in answer.message
    assert keyed["decisions"]
