"""Damage behind a snapshot: the index is checked at the start, every record now and then, and nothing bad is used."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import postgres_server
import pytest
from event_logs import content, database, event, filled, postgres, recovered, server, sqlite, tamper

from sketchbandits.service.log import EventLog, LogDamaged, open_log, scrub
from sketchbandits.service.log.events import Event, Kind, Position, Record
from sketchbandits.service.log.scan import NOT_INDEXED, Fault, scanned
from sketchbandits.service.log.scrub import Scrubber

__all__ = ["database", "postgres", "server", "sqlite"]  # fixtures

PAGE = 4096
SECONDS = 20.0


def ranges(faults: list[Fault]) -> list[tuple[int, int]]:
    return [fault[:2] for fault in faults]


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def scrubbing(database: str, **settings: Any) -> Iterator[tuple[Scrubber, list[Fault]]]:
    """A scrubber in its thread, and what it has reported."""
    reported: list[Fault] = []
    scrubber, stop = Scrubber(database, report=reported.append, **settings), threading.Event()
    thread = threading.Thread(target=scrubber.run, args=(stop,))
    thread.start()
    try:
        yield scrubber, reported
    finally:
        stop.set()
        thread.join(SECONDS)
        assert not thread.is_alive()


class TestScrubber:
    def test_a_good_log_has_no_faults(self, database: str) -> None:
        filled(database, 350, group=100)
        with closing(open_log(database)) as log, scrubbing(database, rate=1e6) as (scrubber, reported):
            until(lambda: scrubber.passes == 1)
            assert scrubber.position == scrubber.total == 350 and scrubber.faults == reported == []
            assert scrubber.finished_at == pytest.approx(time.time(), abs=SECONDS)
        with closing(open_log(database)) as log:
            assert scanned(database, log.last.seq) == ([], 350)

    @pytest.mark.parametrize(
        ("damage", "expected"),
        [
            (["UPDATE events SET body = x'00' WHERE seq = 9"], [(9, 9)]),
            (["UPDATE events SET chain = 1 WHERE seq = 9"], [(9, 9)]),
            (["UPDATE events SET chain = 1, body = x'00' WHERE seq = 9"], [(9, 10)]),  # nothing says what 10 follows
            (["UPDATE events SET kind = 99 WHERE seq IN (1, 9, 10)"], [(1, 1), (9, 10)]),
            (["DELETE FROM events WHERE seq IN (5, 6)"], [(5, 7)]),
            (["DELETE FROM events WHERE seq < 4"], [(1, 4)]),
            (["DELETE FROM events WHERE seq > 250"], [(251, 300)]),
            (
                ["UPDATE events SET decision = 77777 WHERE seq = 3", "DELETE FROM events WHERE seq = 200"],
                [(3, 3), (200, 201)],
            ),
        ],
    )
    def test_each_fault_is_reported_once(
        self, database: str, damage: list[str], expected: list[tuple[int, int]]
    ) -> None:
        filled(database, 300, group=100)
        with closing(open_log(database)) as log:
            tamper(database, *damage)
            before = content(database)
            with scrubbing(database, rate=1e6, every=0.0, end=lambda: log.last.seq) as (scrubber, reported):
                until(lambda: scrubber.passes > 2)
                assert ranges(reported) == ranges(scrubber.faults) == expected
            assert ranges(scanned(database, log.last.seq)[0]) == expected
            assert content(database) == before
            assert all(str(fault.first) in str(fault) and not fault.in_index for fault in reported)

    def test_the_rate_is_bounded(self, sqlite: str) -> None:
        filled(sqlite, 400, group=100)
        with closing(open_log(sqlite)):
            began = time.monotonic()
            with scrubbing(sqlite, rate=1000.0) as (scrubber, _):
                until(lambda: scrubber.passes == 1)
                assert time.monotonic() - began > 0.38

    def test_a_stop_need_not_wait_for_the_rate(self, sqlite: str) -> None:
        filled(sqlite, 400, group=100)
        with closing(open_log(sqlite)):
            with scrubbing(sqlite, rate=1.0) as (scrubber, _):
                until(lambda: scrubber.position > 0)
            assert scrubber.passes == 0 and scrubber.finished_at is None

    def test_the_log_may_grow_meanwhile(self, database: str) -> None:
        with closing(open_log(database)) as log, scrubbing(database, rate=1e6, every=0.0) as (scrubber, reported):
            for number in range(100):
                log.append([event(number)])
            passes = scrubber.passes
            until(lambda: scrubber.passes > passes + 1)
            assert reported == [] and scrubber.total == 100 and scrubber.checked > 100
        assert len(recovered(database)[0]) == 100

    @pytest.mark.process
    def test_the_database_may_go_away(
        self, postgres: str, server: postgres_server.Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scrub, "_PAUSE", 0.05)
        filled(postgres, 500, group=100)
        with closing(open_log(postgres)), scrubbing(postgres, rate=1000.0, every=0.0) as (scrubber, reported):
            until(lambda: scrubber.position > 0)
            server.stop()
            time.sleep(0.3)
            server.start()
            passes = scrubber.passes
            until(lambda: scrubber.passes > passes)
            assert reported == []

    def test_a_failure_of_its_own_does_not_end_it(self, sqlite: str, caplog: pytest.LogCaptureFixture) -> None:
        filled(sqlite, 20)
        with closing(open_log(sqlite)):
            tamper(sqlite, "UPDATE events SET body = x'00' WHERE seq = 9")
            failures = [OSError("nobody listens")]

            def report(fault: Fault) -> None:
                if failures:
                    raise failures.pop()

            scrubber, stop = Scrubber(sqlite, report=report, rate=1e6, every=0.0), threading.Event()
            thread = threading.Thread(target=scrubber.run, args=(stop,))
            thread.start()
            until(lambda: scrubber.passes > 0)
            stop.set()
            thread.join(SECONDS)
            assert ranges(scrubber.faults) == [(9, 9)] and "nobody listens" in caplog.text


class Indexed:
    """The file of a log whose index has pages on two levels."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "events.db"
        with closing(open_log(str(self.path))) as log:
            log.append([Event(Kind.DECISION, None, b"{}")])
            numbers = random.Random(3).sample(range(10**12), 1500)
            self.records = log.append([Event(Kind.REWARD, number, b"%d" % number) for number in numbers])
        self.good = self.path.read_bytes()
        self.pages = [at for at in range(PAGE, len(self.good), PAGE) if self.good[at] in (2, 10)]
        assert {self.good[at] for at in self.pages} == {2, 10}

    def flips(self, count: int) -> Iterator[bytes]:
        """The file with one bit of its index flipped, where entries are."""
        chance = random.Random(5)
        for _ in range(count):
            page = chance.choice(self.pages)
            used = int.from_bytes(self.good[page + 5 : page + 7])
            cells = int.from_bytes(self.good[page + 3 : page + 5])
            place = page + chance.choice([chance.randrange(12 + 2 * cells), chance.randrange(used, PAGE)])
            damaged = bytearray(self.good)
            damaged[place] ^= 1 << chance.randrange(8)
            yield bytes(damaged)

    def all_found(self, log: EventLog) -> bool:
        found = log.outcomes([record.decision for record in self.records if record.decision is not None])
        return found == {record.decision: (record.kind, record.body) for record in self.records}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    return Indexed(tmp_path_factory.mktemp("indexed"))


def entry(file: bytes, record: Record) -> int:
    """Where the index has the decision of a record."""
    assert record.decision is not None
    key = record.decision.to_bytes(6, "big")
    (place,) = (at for at in range(PAGE, len(file)) if file[at : at + 6] == key and file[at - at % PAGE] in (2, 10))
    return place


class TestIndex:
    def test_a_flip_in_the_index_is_repaired_at_the_start(self, indexed: Indexed) -> None:
        noted = 0
        for damaged in indexed.flips(60):
            indexed.path.write_bytes(damaged)
            with closing(open_log(str(indexed.path))) as log:
                assert indexed.all_found(log) and log.last == indexed.records[-1].position
                told = [*log.notes, *(cut.reason for cut in log.cuts)]
                noted += bool(told)
                assert all(cut.records == 0 and Path(cut.kept_in).exists() for cut in log.cuts)
            with closing(open_log(str(indexed.path))) as log:
                assert log.notes == log.cuts == [] and indexed.all_found(log)
        assert noted > 40, "the others are where nothing reads"

    def test_a_broken_index_over_damaged_records_is_for_a_person(self, indexed: Indexed) -> None:
        record = indexed.records[700]
        damaged = bytearray(indexed.good)
        damaged[entry(indexed.good, record) + 5] ^= 1
        indexed.path.write_bytes(damaged)
        tamper(str(indexed.path), "UPDATE events SET body = x'00' WHERE seq = 300")
        before = content(str(indexed.path))
        for _ in range(2):
            with pytest.raises(LogDamaged, match="record 300 "):
                open_log(str(indexed.path))
            assert content(str(indexed.path)) == before

    def test_a_running_service_notices_an_index_that_names_other_records(self, indexed: Indexed) -> None:
        one, other = indexed.records[700], indexed.records[900]
        for at, change in ((6, 1), (7, 1)):  # the two bytes of the record's number: another record, and none
            indexed.path.write_bytes(indexed.good)
            with closing(open_log(str(indexed.path))) as log:
                place = entry(indexed.good, one) + at
                with indexed.path.open("r+b") as file:
                    file.seek(place)
                    (before,) = file.read(1)
                    file.seek(place)
                    file.write(bytes([before ^ (change if at == 7 else 0x70)]))
                with closing(sqlite3.connect(indexed.path)) as fresh:  # what was in the cache is read again
                    fresh.execute("PRAGMA user_version = 2")
                with pytest.raises(LogDamaged, match="index of the log names"):
                    log.outcomes([one.decision])
                assert set(log.outcomes([other.decision])) == {other.decision}
                log.append([Event(Kind.REWARD, 5 * 10**12 + at, b"")])
                ((fault,), _) = scanned(str(indexed.path), log.last.seq)
                assert fault.in_index and ranges([fault])[0][0] == one.seq and NOT_INDEXED in str(fault)

    def test_a_page_of_records_that_cannot_be_read_is_passed_over(self, sqlite: str) -> None:
        filled(sqlite, 600, group=100)
        data = bytearray(Path(sqlite).read_bytes())
        leaf = next(at for at in range(40 * PAGE, len(data), PAGE) if data[at] == 13)
        with closing(open_log(sqlite)) as log:
            data[leaf] = 0xFF
            Path(sqlite).write_bytes(data)
            with closing(sqlite3.connect(sqlite)) as fresh:
                fresh.execute("PRAGMA user_version = 2")
            with scrubbing(sqlite, rate=1e6) as (scrubber, reported):
                until(lambda: scrubber.passes == 1)
            (fault,) = reported
            assert 1 < fault.first < fault.last < 600 and "not readable" in str(fault)
            with pytest.raises(LogDamaged):
                log.record(fault.first)
            assert log.record(fault.first - 1) is not None and log.record(fault.last + 1) is not None


def test_flips_anywhere_are_told_or_harmless(tmp_path: Path) -> None:
    """The records behind a snapshot are read by nobody at the start: what a look-up returns is right nevertheless."""
    path, chance = tmp_path / "events.db", random.Random(11)
    records = filled(str(path), 400, group=50)
    good, place = path.read_bytes(), records[-21].position
    told = 0
    for number in range(60):
        for file in tmp_path.iterdir():
            file.unlink()
        damaged = bytearray(good)
        damaged[chance.randrange(len(good) if number % 3 else PAGE)] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            with closing(open_log(str(path))) as log:
                tail = list(log.recover(place)) if log.holds(place) else []
                assert tail == records[-20:] or log.cuts
                met = sum(not as_written(log, record) for record in records)
                faults, _ = scanned(str(path), log.last.seq)
                assert not met or faults or log.cuts
                told += bool(met or log.cuts or log.notes)
        except LogDamaged:
            told += 1
    assert told > 30


def as_written(log: EventLog, record: Record) -> bool:
    """Whether a record and its outcome are found; they may be refused, but never be others."""
    try:
        assert log.record(record.seq) in (record, None if log.cuts else record)
        if record.decision is not None:
            found = {record.decision: (record.kind, record.body)}
            assert log.outcomes([record.decision]) in (found, {} if log.cuts else found)
    except LogDamaged:
        return False
    return True


def test_a_place_is_compared_as_a_whole(sqlite: str) -> None:
    records = filled(sqlite, 3)
    with closing(open_log(sqlite)) as log:
        assert log.holds(records[1].position) and not log.holds(Position(2, records[2].chain))
