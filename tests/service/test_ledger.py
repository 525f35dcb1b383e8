"""A ledger plans without side effects, applies what was logged, and replays to the same bits."""

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


class Book:
    """A ledger with a log in memory: what the writer does, without a disk."""

    def __init__(self, **rules):
        self.ledger, self.records, self.time = Ledger(), list[Record](), 1_000_000.0
        self.operate(CreateBandit("default", BanditConfig(**rules), IDS, ARMS))

    def log(self, changes):
        position = self.records[-1].position if self.records else START
        for change in changes:
            self.records.append(chained(change.event(), position))
            position = self.records[-1].position
        return [record.seq for record in self.records[len(self.records) - len(changes) :]]

    def operate(self, operation):
        change, built = plan_operation(self.ledger, operation, self.time)
        self.ledger.apply(zip(self.log([change]), [change], strict=True), built)

    def ask(self, *requests):
        asked = questions(self.ledger, requests)
        bodies = {record.seq: record.body for record in self.records}
        outcomes = {r.decision: (r.kind, r.body) for r in self.records if r.kind in (Kind.REWARD, Kind.DEFAULT)}
        facts = Facts(
            {seq: bodies[seq] for seq in asked.records}, {n: outcomes[n] for n in asked.decisions if n in outcomes}
        )
        before = state_of(self.ledger)
        plan = plan_group(self.ledger, requests, facts, self.time)
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
    """Everything that decides what a ledger does next, to the bit."""
    return ledger.next_number, {
        name: (
            {leaf: array.tobytes() for leaf, array in snapshot.leaves(bandit.policy.state)},
            dict(bandit.policy.settings),
            list(bandit.waiting.items()),
            bandit.next_deadline(2e6),
            list(bandit.keys.items()),
            bandit.ids[:],
            dict(bandit.index),
            (bandit.decisions, bandit.rewards, bandit.defaults, bandit.reward_sum, bandit.origin, bandit.created),
            bandit.reward_sums.tobytes(),
            {start: tuple(minute) for start, minute in bandit.minutes.items()},
        )
        for name, bandit in ledger.bandits.items()
    }


def played(book, rounds=60, seed=0):
    """Batches, keys, availability, late and missing rewards, arms that come and go."""
    rng = np.random.default_rng(seed)
    open_ = []
    for t in range(rounds):
        book.time += 0.5
        available = tuple(rng.choice(IDS[2:], 7, replace=False)) if rng.random() < 0.3 else None
        key = f"key {t}" if rng.random() < 0.5 else None
        open_ += book.decide(int(rng.integers(1, 4)), available=available, key=key)
        rng.shuffle(open_)
        for _ in range(int(rng.integers(0, 4))):
            if open_:
                assert book.reward(open_.pop(), float(rng.normal())) in ("accepted", "conflict", "known")
        if t == rounds // 3:
            book.operate(AddArms("default", ("new a", "new b"), ARMS[:2] * 0.5 + 0.01))
        if t == rounds // 2:
            book.operate(RemoveArms("default", ("arm 0", "new b")))
        book.defaults()
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
def test_replay_is_equal_to_the_bit_and_decides_the_same(rules, tmp_path):
    book = Book(**rules)
    played(book)
    replayed = Ledger()
    assert replayed.replay(book.records) == len(book.records)
    assert state_of(replayed) == state_of(book.ledger)

    store = Snapshots(tmp_path / "snapshots")
    middle = len(book.records) // 2
    half = Ledger()
    half.replay(book.records[:middle])
    store.write(frozen(half), book.records[middle - 1].position)
    ((position, restored),) = store.intact()
    assert position == book.records[middle - 1].position and state_of(restored) == state_of(half)
    restored.replay(book.records[middle:])
    assert state_of(restored) == state_of(book.ledger)
    for ledger in (replayed, restored):
        assert next_arms(ledger, book.time) == next_arms(book.ledger, book.time)


def next_arms(ledger, time):
    requests = [Decide("default", count=5), Decide("default", available=IDS[3:9], count=2), Decide("default")]
    changes = plan_group(ledger, requests, Facts({}, {}), time).changes
    return [(change.data["n"], change.data["arms"], change.data["bounds"], change.data["p"]) for change in changes]


def test_a_group_is_decided_as_one_request_after_the_other():
    together, apart = Book(pending=1_000), Book(pending=1_000)
    requests = [Decide("default", count=2), Decide("default", available=IDS[5:9]), Decide("default", count=3)]
    arms = [d["arm"] for answer in together.ask(*requests) for d in answer["decisions"]]
    # Plain decisions of a group are chosen in one call, those with fewer arms after them.
    singles = [d["arm"] for count in (2, 3) for d in apart.decide(count)]
    assert [*arms[:2], *arms[3:]] == singles
    assert arms[2] in IDS[5:9] and len(set(arms)) == len(arms)


def test_a_burst_is_spread_over_arms():
    book = Book(pending=1_000)
    arms = [d["arm"] for d in book.decide(20)] + [book.decide()[0]["arm"] for _ in range(20)]
    assert len(set(arms)) > 12
    alone = Book(pending=0)
    assert len({d["arm"] for d in alone.decide(20)}) == 1


def test_a_reward_is_booked_once():
    book = Book()
    decision, other = book.decide(2)
    assert book.reward(decision, 0.5) == "accepted"
    before = state_of(book.ledger)
    assert book.reward(decision, 0.5) == "known"
    assert book.reward(decision, 0.75) == "conflict"
    for wrong in (
        "7-00000000",
        decision["decision_id"][:-1] + "x",
        "0-00000000",
        "-1",
        "99999999999999999999-00000000",
    ):
        assert book.reward({"decision_id": wrong}, 1.0) == "unknown"
    number = other["decision_id"].split("-")[0]
    assert book.reward({"decision_id": f"{number}-ffffffff"}, 1.0) == "unknown"
    assert state_of(book.ledger) == before
    same, twice = ((other["decision_id"], 1.0), (other["decision_id"], 2.0))
    (answer,) = book.ask(Reward("default", (same, same, twice)))
    assert [result["status"] for result in answer["results"]] == ["accepted", "known", "conflict"]
    assert book.ledger.bandits["default"].rewards == 2


def test_another_bandits_decision_is_unknown():
    book = Book()
    book.operate(CreateBandit("second", BanditConfig(), IDS, ARMS))
    (decision,) = book.decide()
    for _ in range(2):
        (answer,) = book.ask(Reward("second", ((decision["decision_id"], 1.0),)))
        assert answer["results"][0]["status"] == "unknown"
        book.reward(decision, 1.0)


def test_the_same_key_has_the_same_answer():
    book = Book()
    first, repeated = book.ask(Decide("default", key="k", count=2), Decide("default", key="k", count=2))
    assert not first["repeated"] and repeated == {**first, "repeated": True}
    book.reward(first["decisions"][0], 1.0)
    (later,) = book.ask(Decide("default", key="k", count=2))
    assert later == repeated
    assert book.ledger.bandits["default"].decisions == 2
    for other in (Decide("default", key="k"), Decide("default", available=IDS[:3], key="k", count=2)):
        (refusal,) = book.ask(other)
        assert refusal.code == "key_reused"


def test_one_clients_bad_request_is_no_concern_of_others():
    book = Book()
    bad = Decide("default", available=("nothing",), key="k")
    refusal, answer, *others = book.ask(bad, Decide("default", key="k", count=3), *[Decide("default")] * 4)
    assert refusal.code == "unknown_arm" and len(answer["decisions"]) == 3
    assert [len(other["decisions"]) for other in others] == [1] * 4


def test_a_key_outlives_an_arm_that_comes_back():
    book = Book()
    (first,) = book.ask(Decide("default", available=IDS[:3], key="k"))
    book.operate(RemoveArms("default", IDS[:1]))
    book.operate(AddArms("default", IDS[:1], ARMS[:1]))
    (again,) = book.ask(Decide("default", available=IDS[:3], key="k"))
    assert again == {**first, "repeated": True}


def test_a_clock_that_was_ahead_holds_up_nobody():
    book = Book(deadline=10.0)
    book.time += 1e7
    book.decide()
    book.time -= 1e7
    book.decide(2)
    book.time += 11.0
    assert [change.decision for change in book.defaults()] == [2, 3]


def test_a_day_of_minutes_is_the_same_after_a_replay():
    book = Book()
    for _ in range(1_500):
        book.time += 60.0
        book.reward(book.decide()[0], 1.0)
    replayed = Ledger()
    replayed.replay(book.records)
    assert state_of(replayed) == state_of(book.ledger)
    assert len(book.ledger.bandits["default"].minutes) == 1_440


def test_a_deadline_books_once_and_then_refuses():
    book = Book(deadline=10.0, default_reward=-1.0)
    late, early = book.decide(2)
    assert book.reward(early, 0.5) == "accepted"
    book.time += 9.0
    assert not book.defaults()
    book.time += 1.0
    (change,) = book.defaults()
    assert change.kind == Kind.DEFAULT and change.data["reward"] == -1.0 and not book.defaults()
    assert book.reward(late, 0.5) == "conflict" and book.reward(late, -1.0) == "known"
    bandit = book.ledger.bandits["default"]
    assert (bandit.rewards, bandit.defaults, len(bandit.waiting)) == (2, 1, 0)


def test_exploration_says_with_which_probability():
    book = Book(exploration=0.5, pending=0, seed=9)
    (answer,) = book.ask(Decide("default", count=400))
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
    book = Book()
    refusal, answer = book.ask(request_, Decide("default"))
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
    book = Book()
    before = state_of(book.ledger)
    with pytest.raises(Refusal) as caught:
        book.operate(operation)
    assert caught.value.code == code and state_of(book.ledger) == before


def test_fixed_arms_are_refused():
    book = Book(policy="soful")
    with pytest.raises(Refusal, match="multiscale"):
        book.operate(AddArms("default", ("x",), ARMS[:1]))


def test_a_removed_arm_is_not_played_but_still_rewarded():
    book = Book()
    decisions = book.decide(10)
    gone = decisions[0]["arm"]
    book.operate(RemoveArms("default", (gone,)))
    assert gone not in {d["arm"] for d in book.decide(40)}
    assert book.reward(decisions[0], 1.0) == "accepted"
    book.operate(AddArms("default", (gone,), ARMS[:1]))
    assert book.ledger.bandits["default"].index[gone] == 30


def test_bodies_hold_features_to_the_bit():
    book = Book()
    record = book.records[0]
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
    book = Book()
    played(book, rounds=12)
    store = Snapshots(tmp_path)
    for count in (10, 15, len(book.records)):
        ledger = Ledger()
        ledger.replay(book.records[:count])
        store.write(ledger, book.records[count - 1].position)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["15", str(len(book.records))])
    (tmp_path / "99.part").mkdir()
    store.tidy()
    assert not (tmp_path / "99.part").exists()
    newest = tmp_path / str(len(book.records)) / "default.npz"
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    again = Snapshots(tmp_path)
    ((position, _),) = again.intact()
    assert position.seq == 15 and "default.npz" in again.passed_over[0]


def test_any_name_of_a_bandit_is_a_name_of_files(tmp_path):
    book = Book()
    book.operate(CreateBandit("manifest", BanditConfig(policy="ucb1"), IDS, ARMS))
    Snapshots(tmp_path).write(book.ledger, book.records[-1].position)
    ((_, ledger),) = Snapshots(tmp_path).intact()
    assert state_of(ledger) == state_of(book.ledger)
