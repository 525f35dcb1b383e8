"""The contract of the event log, over SQLite and over a real PostgreSQL server: nothing acknowledged is lost, nothing
damaged is used, and an operator is informed of both.
"""

import random
import threading
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from event_logs import content, database, event, filled, postgres, recovered, running, server, sqlite, tamper

from sketchbandits.service.log import (
    LogDamaged,
    LogInUse,
    NotStored,
    cut_back,
    events,
    open_log,
)
from sketchbandits.service.log.events import START, Event, Kind, Position
from sketchbandits.service.log.postgres import log as postgres_log

__all__ = ["database", "postgres", "server", "sqlite"]  # fixtures


class TestContract:
    def test_what_was_appended_comes_back(self, database: str) -> None:
        bodies = [
            b"",
            b"\0",
            b"{}",
            b'{"a": "\n"}',
            bytes(range(256)),
            "ü☃".encode(),
            b"\\x41",
            random.Random(1).randbytes(50_000),
        ]
        with closing(open_log(database)) as log:
            assert log.last == START and log.cuts == [] and list(log.recover(START)) == []
            written = log.append([Event(Kind.BANDIT, None, body) for body in bodies])
            assert log.append([]) == []
            written += log.append([Event(Kind.REWARD, 2**60, b"1"), Event(Kind.DEFAULT, 0, b"0")])
            written += log.append([event(k) for k in range(100, 2600)])  # more than one statement holds
            assert log.last == written[-1].position
        assert recovered(database) == (written, [])
        with closing(open_log(database)) as log:
            assert log.last == written[-1].position and list(log.read()) == written
            assert all(type(record.kind) is Kind for record in log.read(after=2500))

    def test_each_record_is_chained_to_the_one_before(self, database: str) -> None:
        place = START
        for record in filled(database, 20):
            assert record == events.chained(Event(record.kind, record.decision, record.body), place)
            place = record.position

    def test_recovery_goes_on_from_a_place_that_the_log_holds(self, database: str) -> None:
        records = filled(database, 20)
        with closing(open_log(database)) as log:
            place = records[11].position
            assert log.holds(START) and log.holds(place) and list(log.recover(place)) == records[12:]
            assert list(log.recover(log.last)) == []
            for wrong in (Position(12, place.chain ^ 1), Position(21, 0), Position(0, 5)):
                assert not log.holds(wrong)
                with pytest.raises(ValueError, match="after must be a place of the log"):
                    log.recover(wrong)

    def test_the_database_refuses_a_second_outcome_and_all_that_came_with_it(self, database: str) -> None:
        with closing(open_log(database)) as log:
            log.append([Event(Kind.DECISION, None, b"{}"), Event(Kind.REWARD, 7, b"1")])
            last = log.last
            for kind in (Kind.REWARD, Kind.DEFAULT):
                with pytest.raises(NotStored):
                    log.append([Event(Kind.REWARD, 8, b"2"), Event(kind, 7, b"3")])
                with pytest.raises(NotStored):  # found out by the second of several statements
                    log.append([*(Event(Kind.REWARD, 1000 + k, b"") for k in range(1500)), Event(kind, 7, b"3")])
                assert log.last == last and log.outcomes([7, 8, 1000]) == {7: (Kind.REWARD, b"1")}
            log.append([Event(Kind.DEFAULT, 8, b"4")])
            assert log.outcomes([8, 9, 7]) == {7: (Kind.REWARD, b"1"), 8: (Kind.DEFAULT, b"4")}
            assert log.outcomes([]) == {}
        assert [record.seq for record in recovered(database)[0]] == [1, 2, 3]

    def test_single_records(self, database: str) -> None:
        records = filled(database, 5)
        with closing(open_log(database)) as log:
            assert [log.record(seq) for seq in range(7)] == [None, *records, None]

    def test_reading_goes_on_while_the_writer_writes(self, database: str) -> None:
        with closing(open_log(database)) as log:
            first = log.append([event(k) for k in range(600)])
            reader = log.read(after=100)
            seen = [next(reader)]
            second = log.append([event(k) for k in range(600, 1200)])
            assert seen + list(reader) == [*first, *second][100:]
            with pytest.raises(ValueError, match="number of a record"):
                next(log.read(after=1201))
            with closing(open_log(database, read_only=True)) as view:
                assert view.last == log.last and list(view.read()) == list(view.recover(START)) == [*first, *second]
                assert view.record(3) == first[2] and len(view.outcomes(range(10))) == 5
                with pytest.raises(ValueError, match="read only"):
                    view.append([event(5000)])

    def test_threads_may_take_turns(self, database: str) -> None:
        with closing(open_log(database)) as log:
            for number in range(4):
                thread = threading.Thread(target=log.append, args=([event(number)],))
                thread.start()
                thread.join()
            assert log.last.seq == 4

    @pytest.mark.process
    def test_one_writer_at_a_time_until_it_is_killed(
        self, database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        writer = (
            "import sys; from sketchbandits.service.log import open_log;"
            "from sketchbandits.service.log.events import *;"
            "log = open_log(sys.argv[1]); log.append([Event(Kind.BANDIT, None, b'x')]); print('open', flush=True);"
            "sys.stdin.read()"
        )
        with running(writer, database) as process:
            assert process.stdout is not None and process.stdout.readline() == b"open\n"
            monkeypatch.setattr(postgres_log, "_SECONDS_FOR_LOCK", 0.2)
            for attempt in (lambda name: open_log(name, patience=0.2), lambda name: cut_back(name, 1)):
                with pytest.raises(LogInUse, match="another process"):
                    attempt(database)
            assert ("waiting up to 0 s" in caplog.text) == ("://" in database)
            monkeypatch.undo()
            process.kill()
            process.wait()
            records, cuts = recovered(database)
        assert [record.body for record in records] == [b"x"] and cuts == []

    @pytest.mark.parametrize(
        "damage", ["body = x'00'", "chain = chain + 1", "kind = 1", "kind = 99", "decision = 12345", "seq = 400"]
    )
    def test_a_bad_end_is_cut_off_and_kept(self, database: str, damage: str) -> None:
        records = filled(database, 20)
        tamper(database, f"UPDATE events SET {damage} WHERE seq = 20")
        kept, (cut,) = recovered(database)
        assert kept == records[:19] and cut[:2] == (20, 1) and "record 20" in cut.reason
        more = filled(database, 5)
        assert more[0].seq == 20 and recovered(database) == (kept + more, [])
        if database.startswith("postgresql"):
            with psycopg.connect(database) as connection:
                assert connection.execute("SELECT count(*) FROM events_cut").fetchone() == (1,)
        else:
            assert Path(cut.kept_in).stat().st_size > 4096

    @pytest.mark.parametrize(
        ("damage", "first"),
        [
            ("UPDATE events SET body = x'00' WHERE seq = 9", 9),
            ("UPDATE events SET chain = 1 WHERE seq = 9", 9),
            ("UPDATE events SET chain = 1 WHERE seq = 19", 19),  # the one after fits what it should say
            ("UPDATE events SET kind = 4 WHERE seq = 1", 1),
            ("DELETE FROM events WHERE seq = 9", 9),
            ("DELETE FROM events WHERE seq < 4", 1),
            ("UPDATE events SET decision = NULL, body = x'00' WHERE seq IN (3, 17)", 3),
        ],
    )
    def test_damage_with_good_records_behind_it_is_for_a_person(self, database: str, damage: str, first: int) -> None:
        records = filled(database, 20)
        tamper(database, damage)
        before = content(database)
        for _ in range(2):
            with pytest.raises(LogDamaged, match=rf"record {first} .* good records follow .*log STATE --cut {first}`"):
                recovered(database)
        with closing(open_log(database, read_only=True)) as view, pytest.raises(LogDamaged, match=f"record {first} "):
            list(view.read())
        if first < 18:
            with pytest.raises(LogDamaged, match=f"record {first} "):
                cut_back(database, first + 2)
        assert content(database) == before
        cut = cut_back(database, first)
        assert cut.first == first and cut.records >= 17 - first and cut.kept_in
        assert recovered(database) == (records[: first - 1], [])
        assert filled(database, 3)[0].seq == first

    def test_a_good_log_can_be_cut_back_too(self, database: str) -> None:
        records = filled(database, 20)
        assert cut_back(database, 15)[:2] == (15, 6)
        assert recovered(database) == (records[:14], [])
        for first in (0, -1, 1.5):
            with pytest.raises(ValueError, match="first must be"):
                cut_back(database, first)
        with pytest.raises((ValueError, LogDamaged)):
            cut_back(database, 99)
        assert recovered(database) == (records[:14], [])

    def test_a_bad_record_is_never_handed_out(self, database: str) -> None:
        filled(database, 20)
        tamper(database, "UPDATE events SET body = x'00' WHERE seq = 9")
        with closing(open_log(database)) as log:
            assert log.record(7) is not None
            for question in (lambda: log.record(9), lambda: log.outcomes([8])):
                with pytest.raises(LogDamaged, match="record 9 "):
                    question()

    def test_a_number_of_another_type_is_damage_too(self, sqlite: str) -> None:
        records = filled(sqlite, 6)
        tamper(sqlite, "UPDATE events SET chain = 'x' WHERE seq = 3", "UPDATE events SET decision = 'y' WHERE seq = 5")
        with closing(open_log(sqlite)) as log:
            for seq in (3, 4, 5):
                with pytest.raises(LogDamaged, match=f"record {seq} "):
                    log.record(seq)
            assert log.record(2) == records[1]

    def test_a_look_up_that_meets_damage_leaves_the_log_usable(self, database: str) -> None:
        filled(database, 20)
        tamper(database, "UPDATE events SET body = x'00' WHERE seq = 9")
        with closing(open_log(database)) as log:
            last = log.last
            for question in (lambda: log.record(9), lambda: log.outcomes([4, 8]), lambda: log.outcomes([8])):
                with pytest.raises(LogDamaged, match="record 9 "):
                    question()
                assert set(log.outcomes([4])) == {4} and log.record(7) is not None
            log.append([event(100)])
            assert log.last.seq == last.seq + 1 and set(log.outcomes([4, 100])) == {4, 100}

    def test_a_log_of_format_1_becomes_one_of_format_2(self, database: str) -> None:
        records = filled(database, 5)
        if "://" in database:
            tamper(database, "DROP TABLE events_owner", "UPDATE events_format SET version = 1")
        else:
            tamper(database, "PRAGMA user_version = 1")
        before = content(database)
        with closing(open_log(database, read_only=True)) as view:
            assert view.format == 1 and list(view.read()) == records and view.notes == []
        assert content(database) == before, "reading changes nothing"
        with closing(open_log(database)) as log:
            (note,) = log.notes
            assert log.format == 1 and "format 1" in note and "format 2" in note
            records += log.append([Event(kind, None, b"{}") for kind in Kind if kind > Kind.DEFAULT])
        with closing(open_log(database)) as log:
            assert log.format == 2 and log.notes == [] and list(log.recover(START)) == records

    def test_a_probe_leaves_nothing_behind(self, database: str) -> None:
        with closing(open_log(database)) as log:
            log.append([event(1)])
            before = content(database)
            log.probe()
            log.heartbeat()
            assert content(database) == before

    def test_another_format_is_refused(self, database: str) -> None:
        filled(database, 3)
        later = "UPDATE events_format SET version = 7" if "://" in database else "PRAGMA user_version = 7"
        tamper(database, later)
        before = content(database)
        for read_only in (False, True):
            with pytest.raises(LogDamaged, match="format 7"):
                open_log(database, read_only=read_only)
        assert content(database) == before
