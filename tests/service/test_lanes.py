"""One bandit's work never holds up another's, and what people look at is never older than their request."""

import asyncio
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from service_tools import ARMS, IDS, bandit, run, service_at
from test_ledger import state_of
from test_writer import Desk

from sketchbandits.service.bandits import player
from sketchbandits.service.bandits.bandit import Bandit
from sketchbandits.service.bandits.recovery import recover
from sketchbandits.service.bandits.requests import (
    AddArms,
    Decide,
    DeleteBandit,
    FreeArms,
    Refusal,
    RemoveArms,
    Retract,
    Reward,
)
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.folder import SNAPSHOTS
from sketchbandits.service.log import LogDamaged, open_log


@contextmanager
def held(monkeypatch, owner, name, only="slow"):
    """A method that, for one bandit, waits until the test lets it go on; yields what has begun, and the gate."""
    begun, gate, real = threading.Event(), threading.Event(), getattr(owner, name)

    def waits(self, *arguments, **named):
        if self.name == only:
            begun.set()
            assert gate.wait(30)
        return real(self, *arguments, **named)

    monkeypatch.setattr(owner, name, waits)
    try:
        yield begun, gate
    finally:
        gate.set()


async def until(event):
    while not event.is_set():
        await asyncio.sleep(0.005)


async def two(desk, name="slow"):
    """A second bandit, so large that its work is done in the thread."""
    assert not isinstance(await desk.writer.submit(bandit(name)), Refusal)
    desk.writer.ledger.bandits[name].short = False


def test_a_slow_plan_holds_up_nobody_else(tmp_path, monkeypatch):
    async def check():
        async with Desk(tmp_path) as desk:
            await two(desk)
            with held(monkeypatch, Bandit, "choose") as (begun, gate):
                slow = desk.writer.submit(Decide("slow", count=3))
                await until(begun)
                for _ in range(5):
                    (decision,) = await desk.decide()
                    await desk.ask(Reward("default", ((decision["decision_id"], 0.5),)))
                assert not slow.done()
                gate.set()
                assert len((await slow)["decisions"]) == 3
            assert state_of(desk.replayed()) == state_of(desk.writer.ledger)

    run(check())


def test_slow_learning_and_building_hold_up_nobody_else(tmp_path, monkeypatch):
    async def check():
        async with Desk(tmp_path) as desk:
            await two(desk)
            (decision,) = (await desk.ask(Decide("slow")))["decisions"]
            for method, request in (
                ("learning", Reward("slow", ((decision["decision_id"], 0.5),))),
                ("with_arms", AddArms("slow", ("new",), ARMS[:1] * 0.5)),
            ):
                with held(monkeypatch, Bandit, method) as (begun, gate):
                    slow = desk.writer.submit(request)
                    await until(begun)
                    assert len(await desk.decide(count=2)) == 2 and not slow.done()
                    gate.set()
                    assert not isinstance(await slow, Refusal)
            assert state_of(desk.replayed()) == state_of(desk.writer.ledger)

    run(check())


def test_long_work_of_two_bandits_takes_turns(tmp_path, monkeypatch):
    """Each slice ends after one step here; the steps of both bandits alternate."""
    monkeypatch.setattr(player, "SLICE", 0.0)
    order = []
    real = Bandit.choose
    monkeypatch.setattr(Bandit, "choose", lambda self, *given: order.append(self.name) or real(self, *given))

    async def check():
        async with Desk(tmp_path) as desk:
            for name in ("one", "two"):
                await two(desk, name)
                desk.writer.ledger.bandits[name].choices_per_step = 1
            answers = [desk.writer.submit(Decide(name, count=20)) for name in ("one", "two")]
            await asyncio.gather(*answers)
            assert order.count("one") == order.count("two") == 20
            assert "two" in order[:4] and "one" in order[-4:], order
            assert state_of(desk.replayed()) == state_of(desk.writer.ledger)

    run(check())


def test_a_full_lane_refuses_only_its_own_bandit(tmp_path):
    async def check():
        async with Desk(tmp_path, waiting=3) as desk:
            await two(desk)
            desk.log.gate.clear()
            waiting = [desk.writer.submit(Decide("slow")) for _ in range(3)]
            with pytest.raises(Refusal, match="3 decisions and rewards"):
                desk.writer.submit(Decide("slow"))
            other = desk.writer.submit(Decide("default"))
            desk.log.gate.set()
            assert all("decisions" in answer for answer in await asyncio.gather(*waiting, other))

    run(check())


def test_numbers_are_unique_across_bandits_and_given_back(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            await two(desk)
            asked = [desk.writer.submit(Decide(("default", "slow")[i % 2], count=1 + i % 4)) for i in range(60)]
            ids = [d["decision_id"] for answer in await asyncio.gather(*asked) for d in answer["decisions"]]
            numbers = [int(one.partition("-")[0]) for one in ids]
            assert len(set(numbers)) == len(numbers)
            following = desk.writer.ledger.next_number
            refused = await desk.writer.submit(Decide("default", available=("nobody",), count=7))
            assert refused.code == "unknown_arm" and desk.writer.ledger.next_number == following
            assert state_of(desk.replayed()) == state_of(desk.writer.ledger)

    run(check())


def test_a_bandit_may_be_deleted_and_created_while_requests_wait(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            await two(desk)
            before = desk.writer.submit(Decide("slow"))
            gone = desk.writer.submit(DeleteBandit("slow"))
            after = desk.writer.submit(Decide("slow"))
            again = desk.writer.submit(bandit("slow"))
            last = desk.writer.submit(Decide("slow"))
            answers = await asyncio.gather(before, gone, after, again, last)
            assert [getattr(answer, "code", "done") for answer in answers] == [
                "done",
                "done",
                "unknown_bandit",
                "done",
                "done",
            ]
            assert (await desk.writer.submit(DeleteBandit("slow"))) == {}
            for _ in range(20):
                assert (await desk.writer.submit(Decide("slow"))).code == "unknown_bandit"
            assert state_of(desk.replayed()) == state_of(desk.writer.ledger)

    run(check())


def test_snapshots_under_load_of_bandits_that_come_and_go(tmp_path, monkeypatch):
    """Bandits are copied at different records; recovery from any such snapshot arrives at the same state."""

    monkeypatch.setattr("sketchbandits.service.bandits.writer.TICK", 0.001)

    async def play(desk, name, seed):
        rng, open_ = np.random.default_rng(seed), []
        for t in range(60):
            answer = await desk.writer.submit(Decide(name, count=int(rng.integers(1, 4)), key=f"{t}"))
            open_ += [d["decision_id"] for d in answer["decisions"]]
            for _ in range(int(rng.integers(0, 3))):
                if open_:
                    value = float(rng.random())
                    await desk.writer.submit(Reward(name, ((open_.pop(int(rng.integers(len(open_)))), value),)))
            if t == 30:
                await desk.writer.submit(RemoveArms(name, IDS[:2]))
                await desk.writer.submit(FreeArms(name))

    async def churn(desk):
        for i in range(8):
            await desk.writer.submit(bandit("passing"))
            answer = await desk.writer.submit(Decide("passing", count=3))
            first = answer["decisions"][0]["decision_id"]
            await desk.writer.submit(Reward("passing", ((first, 0.5),)))
            await desk.writer.submit(Retract("passing", (first,)))
            if i % 2:
                await asyncio.sleep(0.01)
            await desk.writer.submit(DeleteBandit("passing"))

    async def check():
        kept = []
        async with Desk(tmp_path, snapshot_every=25) as desk:
            real = desk.writer.snapshots.write
            desk.writer.snapshots.write = lambda frozen: kept.append(frozen) or real(frozen)
            for name in ("one", "two", "three"):
                await two(desk, name)
            await asyncio.gather(*(play(desk, name, i) for i, name in enumerate(("one", "two", "three"))), churn(desk))
        assert len(kept) >= 2
        whole = state_of(desk.replayed())
        uneven = 0
        for i, frozen in enumerate(kept):
            store = Snapshots(tmp_path / f"again-{i}")
            store.write(frozen)
            ((position, ledger, _),) = store.intact()
            uneven += frozen.until > position.seq
            ledger.replay(desk.log.records[position.seq :])
            assert state_of(ledger) == whole
        assert uneven, "some snapshots were taken while others went on"

    run(check())


def test_a_picture_is_never_older_than_the_request(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (service, client):
            for i in range(10):
                (decision,) = (await client.post("/v1/decisions", json={"available": ["a3"]})).json()["decisions"]
                (arm,) = (await client.get("/v1/arms?search=a3")).json()["arms"]
                assert (arm["pending"], arm["pulls"]) == (1, i)
                await client.post("/v1/rewards", json={"decision_id": decision["decision_id"], "reward": 0.5})
                policy = (await client.get("/v1/policy")).json()
                assert policy["rewards"] == i + 1
            drawn = []
            real = service.writer.pictures._draw
            service.writer.pictures._draw = lambda of: drawn.append(of) or real(of)
            await client.post("/v1/decisions", json={})
            pages = await asyncio.gather(*(client.get("/v1/arms?limit=3") for _ in range(30)))
            assert len({page.text for page in pages}) == 1 and len(drawn) == 1, "all who ask share one picture"

    run(check())


def test_a_slow_picture_holds_up_no_decision(tmp_path, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr("sketchbandits.service.bandits.pictures._drawn", lambda copy: gate.wait(30) and 1 / 0)

    async def check():
        async with service_at(tmp_path / "s") as (_, client):
            page = asyncio.create_task(client.get("/v1/arms"))
            await asyncio.sleep(0.05)
            assert (await client.post("/v1/decisions", json={})).status_code == 200
            assert (await client.get("/healthz")).status_code == 200 and not page.done()
            gate.set()
            assert (await page).status_code == 500, "an unforeseen error is that request's alone"
            assert (await client.post("/v1/decisions", json={})).status_code == 200

    run(check())


def test_a_look_up_that_meets_damage_ends_only_its_request(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            (decision,) = await desk.decide(key="k")
            await desk.ask(Reward("default", ((decision["decision_id"], 0.5),)))
            real = desk.log.outcomes, desk.log.record

            def damaged(asked):
                raise LogDamaged("record 3 does not fit its checksum")

            desk.log.outcomes = desk.log.record = damaged
            for request in (Decide("default", key="k"), Reward("default", ((decision["decision_id"], 0.5),))):
                assert (await desk.writer.submit(request)).code == "damaged"
            assert len(await desk.decide()) == 1 and desk.writer.committer.stats.damaged == 2
            desk.log.outcomes, desk.log.record = real
            assert (await desk.ask(Decide("default", key="k")))["repeated"]

    run(check())


def test_damage_behind_a_snapshot_ends_neither_the_service_nor_its_restarts(tmp_path):
    """A client repeats an old reward whose record has a flipped bit: 500 for it, and everything else goes on."""
    state = tmp_path / "s"

    async def make():
        async with service_at(state) as (_, client):
            (decision,) = (await client.post("/v1/decisions", json={"key": "k"})).json()["decisions"]
            body = {"decision_id": decision["decision_id"], "reward": 0.6251953125}
            assert (await client.post("/v1/rewards", json=body)).status_code == 200
            for _ in range(200):
                await client.post("/v1/decisions", json={})
            return body

    async def check(body):
        for _ in range(3):
            async with service_at(state, scrub_rate=1e6) as (service, client):
                answer = await client.post("/v1/rewards", json=body)
                assert (answer.status_code, answer.json()["error"]["code"]) == (500, "damaged")
                assert (await client.post("/v1/decisions", json={})).status_code == 200
                while not service.scrubber.passes:
                    await asyncio.sleep(0.01)
                assert service.damaged == 1
                assert "sketchbandits_log_damaged 1.0" in (await client.get("/metrics")).text

    body = run(make())
    log = (state / "events.db").read_bytes()
    assert log.count(b"0.6251953125") == 1
    (state / "events.db").write_bytes(log.replace(b"0.6251953125", b"0.6261953125"))
    run(check(body))


def test_a_snapshot_whose_numbers_the_log_has_used_is_passed_over(tmp_path):
    state = tmp_path / "s"

    async def make():
        async with service_at(state) as (_, client):
            for _ in range(30):
                await client.post("/v1/decisions", json={"count": 2})

    run(make())
    log = open_log(str(state / "events.db"))
    snapshots = Snapshots(state / SNAPSHOTS)
    ((position, ledger, _),) = snapshots.intact()
    whole = recover(log, Snapshots(tmp_path / "none")).ledger
    assert ledger.next_number == whole.next_number == 61
    manifest = state / SNAPSHOTS / str(position.seq) / ".manifest.json"
    text = manifest.read_text()
    manifest.write_text(text.replace('"next_number": 61', '"next_number": 60'))
    passed = recover(log, Snapshots(state / SNAPSHOTS))
    assert "manifest is not what was written" in passed.notes[0] and state_of(passed.ledger) == state_of(whole)
    # A manifest of version 0.1.0 has no digest: the log decides.
    old = text.replace('"format": 2', '"format": 1').replace('"next_number": 61', '"next_number": 60')
    manifest.write_text(old)
    passed = recover(log, Snapshots(state / SNAPSHOTS))
    assert "the log has 60" in passed.notes[0] and state_of(passed.ledger) == state_of(whole)
    log.close()


def test_a_snapshot_made_elsewhere_is_used_and_said(tmp_path, monkeypatch):
    state = tmp_path / "s"

    async def make():
        async with service_at(state) as (_, client):
            await client.post("/v1/decisions", json={})

    run(make())
    elsewhere = {"processor": "another one", "numpy": "0.1"}
    monkeypatch.setattr("sketchbandits.service.bandits.recovery.environment", lambda: elsewhere)
    log = open_log(str(state / "events.db"))
    found = recover(log, Snapshots(state / SNAPSHOTS))
    log.close()
    assert found.snapshot.seq == 2 and "is now another one" in found.notes[0] and "bit for bit" in found.notes[0]
