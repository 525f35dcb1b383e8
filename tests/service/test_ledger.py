"""A ledger plans without side effects, applies what was logged, and replays bit for bit."""

import numpy as np
import pytest

from sketchbandits import snapshot
from sketchbandits.environments import correlated_arms
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.operations import plan_operation
from sketchbandits.service.bandits.planning import Facts, plan_defaults, plan_group, questions
from sketchbandits.service.bandits.requests import AddArms, CreateBandit, Decide, Refusal, RemoveArms, Reward
from sketchbandits.service.bandits.snapshots import Snapshots, frozen
from sketchbandits.service.log.events import START, Kind, Record, chained, features_of, parsed

ARMS = correlated_arms(n_arms=30, dim=8, group_size=3, normalize="max", seed=1)
IDS = tuple(f"arm {i}" for i in range(len(ARMS)))


class LoggedLedger:
    """A ledger with a log in memory: what the writer does, without a disk."""

    def __init__(self, **rules):
        self.ledger, self.records, self.time = Ledger(), list[Record](), 1_000_000.0
        self.operate(CreateBandit("default", BanditConfig(**{"reward_range": None, **rules}), IDS, ARMS))

    def log(self, changes):
        position = self.records[-1].position if self.records else START
        for change in changes:
            self.records.append(chained(change.event(), position))
            position = self.records[-1].position
        return [record.seq for record in self.records[len(self.records) - len(changes) :]]

    def operate(self, operation):
        before = state_of(self.ledger)
        change, built, answer = plan_operation(self.ledger, operation, self.time, self.facts([operation]))
        assert state_of(self.ledger) == before, "a plan changes nothing"
        if change is not None:
            self.ledger.apply(zip(self.log([change]), [change], strict=True), built)
        return answer

    def facts(self, requests):
        asked = questions(self.ledger, requests)
        bodies = {record.seq: record.body for record in self.records}
        outcomes = {r.decision: (r.kind, r.body) for r in self.records if r.kind in (Kind.REWARD, Kind.DEFAULT)}
        return Facts(
            {seq: bodies[seq] for seq in asked.records}, {n: outcomes[n] for n in asked.decisions if n in outcomes}
        )

    def ask(self, *requests):
        before = state_of(self.ledger)
        plan = plan_group(self.ledger, requests, self.facts(requests), self.time)
        assert state_of(self.ledger) == before, "a plan changes nothing"
        self.ledger.apply(zip(self.log(plan.changes), plan.changes, strict=True))
        return plan.answers

    def decide(self, count=1, **more):
        (answer,) = self.ask(Decide("default", count=count, **more))
        if isinstance(answer, Refusal):
            raise answer
        return answer["decisions"]

    def reward(self, decision, value):
        (answer,) = self.ask(Reward("default", ((decision["decision_id"], value),)))
        return answer["results"][0]["status"]

    def defaults(self, most=1000):
        plan = plan_defaults(self.ledger, self.time, most)
        self.ledger.apply(zip(self.log(plan.changes), plan.changes, strict=True))
        return plan.changes


def state_of(ledger):
    """Everything that decides what a ledger does next, bit for bit."""
    return ledger.next_number, {
        name: (
            {leaf: array.tobytes() for leaf, array in snapshot.leaves(bandit.policy.state)},
            dict(bandit.policy.settings),
            list(bandit.waiting.items()),
            bandit.next_deadline(2e6),
            {by: list(own.items()) for by, own in bandit.keys.items()},
            bandit.ids[:],
            dict(bandit.index),
            (bandit.first_number, bandit.last_number, bandit.created, sorted(bandit.retracted), bandit.active.tolist()),
            None if bandit.places.arm_at is None else bandit.places.arm_at.tolist(),
            repr(bandit.totals.to_json()),
            bandit.totals.outstanding.tolist(),
        )
        for name, bandit in ledger.bandits.items()
    }


def played(logged, rounds=60, seed=0):
    """Batches, keys, availability, late and missing rewards, arms that come and go."""
    rng = np.random.default_rng(seed)
    open_ = []
    for t in range(rounds):
        logged.time += 0.5
        available = tuple(rng.choice(IDS[2:], 7, replace=False)) if rng.random() < 0.3 else None
        key = f"key {t}" if rng.random() < 0.5 else None
        open_ += logged.decide(int(rng.integers(1, 4)), available=available, key=key)
        rng.shuffle(open_)
        for _ in range(int(rng.integers(0, 4))):
            if open_:
                assert logged.reward(open_.pop(), float(rng.normal())) in ("accepted", "conflict", "known")
        if t == rounds // 3:
            logged.operate(AddArms("default", ("new a", "new b"), ARMS[:2] * 0.5 + 0.01))
        if t == rounds // 2:
            logged.operate(RemoveArms("default", ("arm 0", "new b")))
        logged.defaults()
    return open_


RULES = [
    {},
    {"pending": 1_000},
    {"exploration": 0.4, "seed": 3},
    {"deadline": 5.0, "default_reward": -0.25},
    {"policy": "oful", "options": {"ridge": 0.5}, "pending": 4},
    {"policy": "ucb1", "pending": 0},
    {"policy": "cslb", "options": {"radius": "logdet", "sketch_size": 3}},
]


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_replay_is_bit_for_bit_identical_and_decides_the_same(rules, tmp_path):
    logged = LoggedLedger(**rules)
    played(logged)
    replayed = Ledger()
    assert replayed.replay(logged.records) == len(logged.records)
    assert state_of(replayed) == state_of(logged.ledger)

    store = Snapshots(tmp_path / "snapshots")
    middle = len(logged.records) // 2
    half = Ledger()
    half.replay(logged.records[:middle])
    store.write(frozen(half, logged.records[middle - 1].position))
    ((position, restored, *_),) = store.intact()
    assert position == logged.records[middle - 1].position and state_of(restored) == state_of(half)
    restored.replay(logged.records[middle:])
    assert state_of(restored) == state_of(logged.ledger)
    for ledger in (replayed, restored):
        assert next_arms(ledger, logged.time) == next_arms(logged.ledger, logged.time)


def next_arms(ledger, time):
    requests = [Decide("default", count=5), Decide("default", available=IDS[3:9], count=2), Decide("default")]
    changes = plan_group(ledger, requests, Facts({}, {}), time).changes
    return [(change.data["n"], change.data["arms"], change.data["bounds"], change.data["p"]) for change in changes]


def test_a_group_is_decided_as_one_request_after_the_other():
    together, apart = LoggedLedger(pending=1_000), LoggedLedger(pending=1_000)
    requests = [Decide("default", count=2), Decide("default", available=IDS[5:9]), Decide("default", count=3)]
    arms = [d["arm"] for answer in together.ask(*requests) for d in answer["decisions"]]
    # Plain decisions of a group are chosen in one call, those with fewer arms after them.
    singles = [d["arm"] for count in (2, 3) for d in apart.decide(count)]
    assert [*arms[:2], *arms[3:]] == singles
    assert arms[2] in IDS[5:9] and len(set(arms)) == len(arms)


def test_a_burst_is_spread_over_arms():
    logged = LoggedLedger(pending=1_000)
    arms = [d["arm"] for d in logged.decide(20)] + [logged.decide()[0]["arm"] for _ in range(20)]
    assert len(set(arms)) > 12
    alone = LoggedLedger(pending=0)
    assert len({d["arm"] for d in alone.decide(20)}) == 1


def test_a_reward_is_recorded_once():
    logged = LoggedLedger()
    decision, other = logged.decide(2)
    assert logged.reward(decision, 0.5) == "accepted"
    before = state_of(logged.ledger)
    assert logged.reward(decision, 0.5) == "known"
    assert logged.reward(decision, 0.75) == "conflict"
    for wrong in (
        "7-00000000",
        decision["decision_id"][:-1] + "x",
        "0-00000000",
        "-1",
        "99999999999999999999-00000000",
    ):
        assert logged.reward({"decision_id": wrong}, 1.0) == "unknown"
    number = other["decision_id"].split("-")[0]
    assert logged.reward({"decision_id": f"{number}-ffffffff"}, 1.0) == "unknown"
    assert state_of(logged.ledger) == before
    same, twice = ((other["decision_id"], 1.0), (other["decision_id"], 2.0))
    (answer,) = logged.ask(Reward("default", (same, same, twice)))
    assert [result["status"] for result in answer["results"]] == ["accepted", "known", "conflict"]
    assert logged.ledger.bandits["default"].totals.rewards == 2


def test_another_bandits_decision_is_unknown():
    logged = LoggedLedger()
    logged.operate(CreateBandit("second", BanditConfig(), IDS, ARMS))
    (decision,) = logged.decide()
    for _ in range(2):
        (answer,) = logged.ask(Reward("second", ((decision["decision_id"], 1.0),)))
        assert answer["results"][0]["status"] == "unknown"
        logged.reward(decision, 1.0)


def test_the_same_key_has_the_same_answer():
    logged = LoggedLedger()
    first, repeated = logged.ask(Decide("default", key="k", count=2), Decide("default", key="k", count=2))
    assert not first["repeated"] and repeated == {**first, "repeated": True}
    logged.reward(first["decisions"][0], 1.0)
    (later,) = logged.ask(Decide("default", key="k", count=2))
    assert later == repeated
    assert logged.ledger.bandits["default"].totals.decisions == 2
    for other in (Decide("default", key="k"), Decide("default", available=IDS[:3], key="k", count=2)):
        (refusal,) = logged.ask(other)
        assert refusal.code == "key_reused"


def test_one_clients_bad_request_is_no_concern_of_others():
    logged = LoggedLedger()
    bad = Decide("default", available=("nothing",), key="k")
    refusal, answer, *others = logged.ask(bad, Decide("default", key="k", count=3), *[Decide("default")] * 4)
    assert refusal.code == "unknown_arm" and len(answer["decisions"]) == 3
    assert [len(other["decisions"]) for other in others] == [1] * 4


def test_a_key_outlives_an_arm_that_comes_back():
    logged = LoggedLedger()
    (first,) = logged.ask(Decide("default", available=IDS[:3], key="k"))
    logged.operate(RemoveArms("default", IDS[:1]))
    logged.operate(AddArms("default", IDS[:1], ARMS[:1]))
    (again,) = logged.ask(Decide("default", available=IDS[:3], key="k"))
    assert again == {**first, "repeated": True}


def test_a_clock_that_was_ahead_holds_up_no_other_decision():
    logged = LoggedLedger(deadline=10.0)
    logged.time += 1e7
    logged.decide()
    logged.time -= 1e7
    logged.decide(2)
    logged.time += 11.0
    assert [change.decision for change in logged.defaults()] == [2, 3]


def test_a_day_of_minutes_is_the_same_after_a_replay():
    logged = LoggedLedger()
    for _ in range(1_500):
        logged.time += 60.0
        logged.reward(logged.decide()[0], 1.0)
    replayed = Ledger()
    replayed.replay(logged.records)
    assert state_of(replayed) == state_of(logged.ledger)
    assert len(logged.ledger.bandits["default"].totals.minutes) == 1_440


def test_a_deadline_records_once_and_then_refuses():
    logged = LoggedLedger(deadline=10.0, default_reward=-1.0)
    late, early = logged.decide(2)
    assert logged.reward(early, 0.5) == "accepted"
    logged.time += 9.0
    assert not logged.defaults()
    logged.time += 1.0
    (change,) = logged.defaults()
    assert change.kind == Kind.DEFAULT and change.data["reward"] == -1.0 and not logged.defaults()
    assert logged.reward(late, 0.5) == "conflict" and logged.reward(late, -1.0) == "known"
    bandit = logged.ledger.bandits["default"]
    assert (bandit.totals.rewards, bandit.totals.defaults, len(bandit.waiting)) == (2, 1, 0)


def test_exploration_says_with_which_probability():
    logged = LoggedLedger(exploration=0.5, pending=0, seed=9)
    (answer,) = logged.ask(Decide("default", count=400))
    arms = [d["arm"] for d in answer["decisions"]]
    own = max(set(arms), key=arms.count)
    for decision in answer["decisions"]:
        expected = 0.5 / 30 + (0.5 if decision["arm"] == own else 0.0)
        assert decision["probability"] == pytest.approx(expected)
    assert 0.4 < arms.count(own) / 400 < 0.65 and len(set(arms)) == 30


@pytest.mark.parametrize(
    ("request_", "code", "word"),
    [
        (Decide("nobody"), "unknown_bandit", "'default'"),
        (Decide("default", available=("nothing",)), "unknown_arm", "'nothing'"),
        (Decide("default", available=()), "bad_value", "available"),
        (Reward("nobody", (("1-00000000", 1.0),)), "unknown_bandit", "'default'"),
    ],
)
def test_refused_requests_say_why_and_change_nothing(request_, code, word):
    logged = LoggedLedger()
    refusal, answer = logged.ask(request_, Decide("default"))
    assert refusal.code == code and word in refusal.message
    assert len(answer["decisions"]) == 1


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (CreateBandit("default", BanditConfig(), IDS, ARMS), "exists"),
        (CreateBandit("../x", BanditConfig(), IDS, ARMS), "bad_value"),
        (CreateBandit("b", BanditConfig(), IDS[:3], ARMS), "bad_value"),
        (CreateBandit("b", BanditConfig(policy="cbrap"), IDS, ARMS * np.nan), "bad_value"),
        (CreateBandit("b", BanditConfig(options={"sketch_size": 0}), IDS, ARMS), "bad_value"),
        (CreateBandit("b", BanditConfig(options={"sketch_size": "5"}), IDS, ARMS), "bad_value"),
        (CreateBandit("b", BanditConfig(policy="oful", options={"radius": "logdet,ridge=7"}), IDS, ARMS), "bad_value"),
        (AddArms("default", ("arm 3",), ARMS[:1]), "exists"),
        (AddArms("default", ("x", "x"), ARMS[:2]), "bad_value"),
        (AddArms("default", ("x",), ARMS[:1, :3]), "bad_value"),
        (RemoveArms("default", ("x",)), "unknown_arm"),
        (RemoveArms("default", IDS), "bad_value"),
        (RemoveArms("nobody", ("x",)), "unknown_bandit"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_refused_operations_change_nothing(operation, code):
    logged = LoggedLedger()
    before = state_of(logged.ledger)
    with pytest.raises(Refusal) as caught:
        logged.operate(operation)
    assert caught.value.code == code and state_of(logged.ledger) == before


def test_fixed_arms_are_refused():
    logged = LoggedLedger(policy="soful")
    with pytest.raises(Refusal, match="multiscale"):
        logged.operate(AddArms("default", ("x",), ARMS[:1]))


def test_a_removed_arm_is_not_played_but_still_rewarded():
    logged = LoggedLedger()
    decisions = logged.decide(10)
    gone = decisions[0]["arm"]
    logged.operate(RemoveArms("default", (gone,)))
    assert gone not in {d["arm"] for d in logged.decide(40)}
    assert logged.reward(decisions[0], 1.0) == "accepted"
    logged.operate(AddArms("default", (gone,), ARMS[:1]))
    assert logged.ledger.bandits["default"].index[gone] == 30


def test_bodies_hold_features_bit_for_bit():
    logged = LoggedLedger()
    record = logged.records[0]
    assert features_of(record.body).tobytes() == ARMS.tobytes() and parsed(record.body)["ids"] == list(IDS)


@pytest.mark.parametrize(
    "rules",
    [
        {"policy": "nothing"},
        {"options": {"colour": "red"}},
        {"exploration": 1.5},
        {"exploration": float("nan")},
        {"deadline": 0.0},
        {"deadline": 1e12},
        {"default_reward": float("inf")},
        {"pending": -1},
        {"seed": -1},
    ],
    ids=str,
)
def test_bad_rules_are_refused(rules):
    with pytest.raises(ValueError, match="must"):
        BanditConfig(**rules)


def test_only_intact_snapshots_are_read(tmp_path):
    logged = LoggedLedger()
    played(logged, rounds=12)
    store = Snapshots(tmp_path)
    for count in (10, 15, len(logged.records)):
        ledger = Ledger()
        ledger.replay(logged.records[:count])
        store.write(frozen(ledger, logged.records[count - 1].position))
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["15", str(len(logged.records))])
    (tmp_path / "99.part").mkdir()
    store.tidy()
    assert not (tmp_path / "99.part").exists()
    newest = tmp_path / str(len(logged.records)) / "default.npz"
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    again = Snapshots(tmp_path)
    ((position, _, *_),) = again.intact()
    assert position.seq == 15 and "default.npz" in again.passed_over[0]


def test_any_name_of_a_bandit_is_a_name_of_files(tmp_path):
    logged = LoggedLedger()
    logged.operate(CreateBandit("manifest", BanditConfig(policy="ucb1"), IDS, ARMS))
    Snapshots(tmp_path).write(frozen(logged.ledger, logged.records[-1].position))
    ((_, ledger, *_),) = Snapshots(tmp_path).intact()
    assert state_of(ledger) == state_of(logged.ledger)
