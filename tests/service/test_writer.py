"""The writer: nothing is answered before it is stored, nothing changes that is not, and nothing accepted is dropped."""

import asyncio
import threading
import time

import pytest
from service_tools import ARMS, IDS, bandit, run
from test_ledger import state_of

from sketchbandits.service.bandits import writer
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.requests import AddArms, Decide, Refusal, Reward
from sketchbandits.service.bandits.saved import frozen_bandit
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.bandits.writer import Writer
from sketchbandits.service.log import NotStored, Uncertain
from sketchbandits.service.log.events import START, Kind, chained


class MemoryLog:
    """A log that a test can make wait, to refuse or to fail."""

    def __init__(self):
        self.records, self.cuts, self.notes, self.groups, self.closed = [], [], [], [], False
        self.error, self.gate = None, threading.Event()
        self.gate.set()

    @property
    def last(self):
        return self.records[-1].position if self.records else START

    def append(self, events):
        assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        made, position = [], self.last
        for event in events:
            made.append(chained(event, position))
            position = made[-1].position
        self.records += made
        self.groups.append(len(made))
        return made

    def outcomes(self, decisions):
        if self.error is not None:
            raise self.error
        return {r.decision: (r.kind, r.body) for r in self.records if r.decision in decisions}

    def record(self, seq):
        return self.records[seq - 1]

    def heartbeat(self):
        pass

    def probe(self):
        if self.error is not None:
            raise self.error

    def close(self):
        self.closed = True


class Desk:
    """A writer at work on a log in memory, with a clock that is set by hand."""

    def __init__(self, folder, **options):
        self.log, self.now = MemoryLog(), 1e6
        rules = {"reward_range": None} | options.pop("rules", {})
        self.writer = Writer(Ledger(), self.log, Snapshots(folder), snapshot=START, clock=lambda: self.now, **options)
        self.rules = rules

    async def __aenter__(self):
        self.task = asyncio.create_task(self.writer.run())
        await self.writer.submit(bandit(**self.rules))
        self.log.groups.clear()
        return self

    async def __aexit__(self, *error):
        self.log.gate.set()
        if not self.log.closed:
            await self.writer.stop(self.task)

    async def ask(self, request):
        answer = await self.writer.submit(request)
        if isinstance(answer, Refusal):
            raise answer
        return answer

    async def decide(self, **more):
        return (await self.ask(Decide("default", **more)))["decisions"]

    def replayed(self):
        ledger = Ledger()
        ledger.replay(self.log.records)
        return ledger


def test_requests_that_wait_share_a_commit(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            desk.log.gate.clear()
            first = desk.writer.submit(Decide("default"))
            await asyncio.sleep(0.05)
            others = [desk.writer.submit(Decide("default")) for _ in range(50)]
            await asyncio.sleep(0.05)
            assert not first.done() and not any(other.done() for other in others), "not before it is stored"
            desk.log.gate.set()
            answers = await asyncio.gather(first, *others)
            assert desk.log.groups == [1, 50]
            ids = {decision["decision_id"] for answer in answers for decision in answer["decisions"]}
            assert len(ids) == 51 and state_of(desk.replayed()) == state_of(desk.writer.ledger)

    run(check())


def test_a_full_queue_refuses_and_recovers(tmp_path):
    async def check():
        async with Desk(tmp_path, waiting=10) as desk:
            desk.log.gate.clear()
            kept = [desk.writer.submit(Decide("default", count=5)) for _ in range(2)]
            with pytest.raises(Refusal) as caught:
                desk.writer.submit(Decide("default"))
            assert caught.value.code == "busy"
            desk.log.gate.set()
            await asyncio.gather(*kept)
            assert len(await desk.decide(count=20)) == 20, "a batch above the limit passes an empty queue"
            assert desk.writer.waiting == 0 and desk.writer.refused == 1

    run(check())


def test_what_is_not_stored_has_not_happened(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            (decision,) = await desk.decide()
            before, length = state_of(desk.writer.ledger), len(desk.log.records)
            desk.log.error = NotStored("the disk is full")
            for request in (
                Decide("default", key="k"),
                Reward("default", ((decision["decision_id"], 1.0),)),
                AddArms("default", ("new",), ARMS[:1]),
            ):
                answer = await desk.writer.submit(request)
                assert answer.code == "storage"
            refused = await desk.writer.submit(Decide("nobody"))
            assert refused.code == "unknown_bandit"
            old = await desk.writer.submit(Reward("default", (("77-00000000", 1.0),)))
            assert old.code == "storage", "what only the log knows cannot be answered"
            assert state_of(desk.writer.ledger) == before and len(desk.log.records) == length
            desk.log.error = None
            assert not (await desk.ask(Decide("default", key="k")))["repeated"]
            answer = await desk.ask(Reward("default", ((decision["decision_id"], 2.0),)))
            assert answer["results"][0]["status"] == "accepted"
            assert state_of(desk.replayed()) == state_of(desk.writer.ledger)

    run(check())


def test_an_operation_that_fails_unexpectedly_is_refused_and_no_more(tmp_path, monkeypatch):
    async def check():
        async with Desk(tmp_path) as desk:
            with monkeypatch.context() as patch:
                patch.setattr("sketchbandits.service.bandits.operations._create", lambda *arguments: 1 / 0)
                answer = await desk.writer.submit(bandit("other"))
            assert answer.code == "internal"
            assert len(await desk.decide()) == 1

    run(check())


def test_an_uncertain_log_stops_the_writer(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            desk.log.error = Uncertain("the connection broke")
            first, second = desk.writer.submit(Decide("default")), desk.writer.submit(bandit("other"))
            answers = await asyncio.gather(first, second)
            assert answers[0].code == "failed" and answers[1].code in ("failed", "stopping")
            with pytest.raises(Refusal, match="stopping"):
                desk.writer.submit(Decide("default"))
            with pytest.raises(Uncertain):
                await desk.writer.stop(desk.task)
            assert desk.log.closed and not (tmp_path / "snapshots").exists()

    run(check())


def test_stopping_finishes_what_was_accepted_and_keeps_a_snapshot(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            desk.log.gate.clear()
            waiting = [desk.writer.submit(Decide("default")) for _ in range(3)]
            stopping = asyncio.create_task(desk.writer.stop(desk.task))
            await asyncio.sleep(0.05)
            with pytest.raises(Refusal, match="stopping"):
                desk.writer.submit(Decide("default"))
            desk.log.gate.set()
            await stopping
            assert all(len(future.result()["decisions"]) == 1 for future in waiting) and desk.log.closed
            ((position, ledger, *_),) = Snapshots(tmp_path).intact()
            assert position == desk.log.last and state_of(ledger) == state_of(desk.writer.ledger)

    run(check())


def test_snapshots_are_taken_while_requests_go_on(tmp_path):
    async def check():
        async with Desk(tmp_path, snapshot_every=20) as desk:
            for _ in range(60):
                (decision,) = await desk.decide()
                await desk.ask(Reward("default", ((decision["decision_id"], 1.0),)))
            while desk.writer.snapshots_written == 0:
                await asyncio.sleep(0.01)
        for position, ledger, *_ in Snapshots(tmp_path).intact():
            replayed = Ledger()
            replayed.replay(desk.log.records[: position.seq])
            assert state_of(ledger) == state_of(replayed)

    run(check())


def test_deadlines_are_recorded_once_also_after_the_log_has_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("sketchbandits.service.bandits.lane.RETRY_SECONDS", 0.05)

    async def check():
        async with Desk(tmp_path, rules={"deadline": 30.0, "default_reward": -2.0}) as desk:
            await desk.decide(count=3)
            desk.now += 20.0
            (late,) = await desk.decide()
            desk.log.error = NotStored("the disk is full")
            desk.now += 10.0
            await desk.writer.submit(Decide("nobody"))
            while desk.writer.committer.stats.not_stored < 2:
                await asyncio.sleep(0.01)
            assert desk.writer.ledger.bandits["default"].totals.defaults == 0
            desk.log.error = None
            while desk.writer.ledger.bandits["default"].totals.defaults < 3:
                await asyncio.sleep(0.01)
            answer = await desk.ask(Reward("default", ((late["decision_id"], 0.5),)))
            assert answer["results"][0]["status"] == "accepted"
            recorded = [record.decision for record in desk.log.records if record.kind == Kind.DEFAULT]
            assert recorded == [1, 2, 3] and state_of(desk.replayed()) == state_of(desk.writer.ledger)

    run(check())


def test_after_a_failed_snapshot_the_next_attempts_wait_longer_and_longer(tmp_path, monkeypatch):
    copied = []
    monkeypatch.setattr(writer, "frozen_bandit", lambda *of: copied.append(of) or frozen_bandit(*of))
    monkeypatch.setattr(writer, "RETRY_SECONDS", 0.05)
    folder = tmp_path / "snapshots"
    folder.write_text("not a folder")

    async def check():
        async with Desk(folder, snapshot_every=1) as desk:
            end = time.monotonic() + 1.0
            while time.monotonic() < end:  # attempts are due after 0, 0.05, 0.15, 0.35, 0.75 seconds
                await desk.decide()
                await asyncio.sleep(0.001)
            assert len(desk.log.groups) > 50 and 2 <= len(copied) <= 5 and desk.writer.snapshots_written == 0
            folder.unlink()
            while desk.writer.snapshots_written == 0:
                await desk.decide()
                await asyncio.sleep(0.01)
            failed = len(copied)
            while len(copied) < failed + 3:  # after a success there is no pause
                await desk.decide()
                await asyncio.sleep(0.001)

    run(check())


def test_a_client_that_leaves_loses_nothing(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            desk.log.gate.clear()
            left = desk.writer.submit(Decide("default", key="mine"))
            left.cancel()
            desk.log.gate.set()
            answer = await desk.ask(Decide("default", key="mine"))
            assert answer["repeated"] and desk.writer.waiting == 0

    run(check())


def test_arms_are_added_between_groups(tmp_path):
    async def check():
        async with Desk(tmp_path) as desk:
            before = desk.writer.submit(Decide("default", available=IDS[:1]))
            added = desk.writer.submit(AddArms("default", ("new",), ARMS[:1]))
            after = desk.writer.submit(Decide("default", available=("new",)))
            await asyncio.gather(before, added, after)
            assert after.result()["decisions"][0]["arm"] == "new"
            kinds = [record.kind for record in desk.log.records]
            assert kinds == [Kind.BANDIT, Kind.DECISION, Kind.ARMS_ADDED, Kind.DECISION]

    run(check())
