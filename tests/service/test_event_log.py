"""The event log: nothing acknowledged is lost, nothing damaged is used, and a person hears of both.

The contract is tested over SQLite and over a real PostgreSQL server. `EVERY_BYTE=1` cuts and flips at every byte
instead of at some of them; that takes minutes.
"""

import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import types
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import postgres_server
import psycopg
import pytest

import sketchbandits.service.log.postgres
from sketchbandits.service.log import (
    Cut,
    EventLog,
    LogDamaged,
    LogInUse,
    NotStored,
    Unavailable,
    Uncertain,
    cut_back,
    encoding,
    events,
    open_log,
)
from sketchbandits.service.log.events import START, Event, Kind, Position, Record
from sketchbandits.service.log.postgres import log as postgres_log
from sketchbandits.service.log.sqlite import log as sqlite_log

EVERY_BYTE = os.environ.get("EVERY_BYTE") == "1"
FRAME = 24 + 4096


@pytest.fixture(scope="module")
def server() -> Iterator[postgres_server.Server]:
    try:
        context = postgres_server.running_server()
        running = context.__enter__()
    except postgres_server.NoServer as reason:
        pytest.skip(f"no PostgreSQL can be started: {reason}")
    yield running
    context.__exit__(None, None, None)


@pytest.fixture
def postgres(server: postgres_server.Server) -> str:
    """A database of its own for each test."""
    schema = f"log_{uuid.uuid4().hex}"
    with psycopg.connect(server.address) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{server.address}&options=-csearch_path%3D{schema}"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return str(tmp_path / "events.db")


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param)


def tamper(database: str, *statements: str) -> None:
    """Change a closed log behind its back."""
    if database.startswith("postgresql"):
        with psycopg.connect(database) as connection:
            for statement in statements:
                connection.execute(statement.replace("x'", "'\\x"))
    else:
        with closing(sqlite3.connect(database)) as connection, connection:
            for statement in statements:
                connection.execute(statement)


def event(number: int) -> Event:
    """Decisions with their rewards, some defaults, and now and then arms whose body overflows a page."""
    if number % 23 == 11:
        features = np.random.default_rng(number).normal(size=(70, 11))
        return Event(Kind.ARMS_ADDED, None, encoding.body_with_features({"arms": number}, features))
    if number % 2:
        return Event(Kind.DECISION, None, encoding.body({"arm": f"a{number}", "words": "ünïcödé"}))
    return Event(Kind.REWARD if number % 4 else Kind.DEFAULT, number, encoding.body({"reward": number / 7}))


def filled(database: str, count: int, group: int = 3) -> list[Record]:
    with closing(open_log(database)) as log:
        start, records = log.last.seq, []
        while len(records) < count:
            take = min(group, count - len(records))
            records += log.append([event(start + len(records) + k) for k in range(take)])
    return records


def recovered(database: str, after: Position = START) -> tuple[list[Record], list[Cut]]:
    with closing(open_log(database)) as log:
        return list(log.recover(after)), log.cuts


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

    def test_one_writer_at_a_time_until_it_is_killed(self, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
        writer = (
            "import sys; from sketchbandits.service.log import open_log;"
            "from sketchbandits.service.log.events import *;"
            "log = open_log(sys.argv[1]); log.append([Event(Kind.BANDIT, None, b'x')]); print('open', flush=True);"
            "sys.stdin.read()"
        )
        with running(writer, database) as process:
            assert process.stdout is not None and process.stdout.readline() == b"open\n"
            monkeypatch.setattr(postgres_log, "_SECONDS_FOR_LOCK", 0.2)
            for attempt in (open_log, lambda name: cut_back(name, 1)):
                with pytest.raises(LogInUse, match="another process"):
                    attempt(database)
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

    def test_another_format_is_refused(self, database: str) -> None:
        filled(database, 3)
        later = "UPDATE events_format SET version = 7" if "://" in database else "PRAGMA user_version = 7"
        tamper(database, later)
        before = content(database)
        for read_only in (False, True):
            with pytest.raises(LogDamaged, match="format 7"):
                open_log(database, read_only=read_only)
        assert content(database) == before


def content(database: str) -> object:
    """All that is stored."""
    if database.startswith("postgresql"):
        with psycopg.connect(database) as connection:
            return connection.execute("SELECT * FROM events ORDER BY seq").fetchall()
    return files(Path(database).parent)


def files(folder: Path) -> dict[str, bytes]:
    """The files that count; SQLite makes empty ones, and an index, whenever it opens them."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(("-shm", "-lock"))}
    return {name: data for name, data in found.items() if data or not name.endswith("-wal")}


@contextmanager
def running(program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=pipe, stdout=pipe)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Wreck:
    """Files of a log as a killed process leaves them, to be damaged and opened again and again."""

    def __init__(self, folder: Path, checkpointed: bool) -> None:
        source = folder / "source"
        source.mkdir()
        with closing(open_log(str(source / "events.db"))) as log:
            self.records = log.append([event(k) for k in range(150)])
            for _ in range(8):
                self.records += log.append([event(log.last.seq + k) for k in range(3)])
            self.shm = (source / "events.db-shm").read_bytes()
            self.wal = b"" if checkpointed else (source / "events.db-wal").read_bytes()
            if not checkpointed:
                self.main = (source / "events.db").read_bytes()
        if checkpointed:
            self.main = (source / "events.db").read_bytes()
        self._path = folder / "wreck" / "events.db"

    def opened(self, *, main: bytes | None = None, wal: bytes | None = None, shm: bool = True) -> list[Cut] | None:
        """Open it damaged: the reports, or nothing where a person must decide; checks what must hold of both."""
        shutil.rmtree(self._path.parent, ignore_errors=True)
        self._path.parent.mkdir()
        self._path.write_bytes(self.main if main is None else main)
        wal = self.wal if wal is None else wal
        if self.wal:
            self._path.with_name("events.db-wal").write_bytes(wal)
        if self.wal and shm:
            self._path.with_name("events.db-shm").write_bytes(self.shm)
        before = files(self._path.parent)
        try:
            self.left, cuts = recovered(str(self._path))
        except LogDamaged:
            assert files(self._path.parent) == before
            return None
        assert self.left == self.records[: len(self.left)]
        assert cuts or len(self.left) == len(self.records)
        assert all(Path(cut.kept_in).exists() for cut in cuts)
        assert all(cut.first == len(self.left) + 1 for cut in cuts)
        assert recovered(str(self._path)) == (self.left, [])
        return cuts


@pytest.fixture(scope="module")
def in_log(tmp_path_factory: pytest.TempPathFactory) -> Wreck:
    """All records still in the write-ahead log."""
    return Wreck(tmp_path_factory.mktemp("in_log"), checkpointed=False)


@pytest.fixture(scope="module")
def in_file(tmp_path_factory: pytest.TempPathFactory) -> Wreck:
    """All records in the file itself."""
    return Wreck(tmp_path_factory.mktemp("in_file"), checkpointed=True)


def places(start: int, stop: int, step: int, always: Callable[[int], bool] = lambda place: False) -> Iterable[int]:
    """Every byte, or a few of them."""
    return (k for k in range(start, stop) if EVERY_BYTE or k % step == 0 or always(k))


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :]


def half_checkpointed(folder: Path) -> tuple[Path, list[Record]]:
    """The files of a killed writer: most records in the file, three in a write-ahead log with old frames behind."""
    source, copy = folder / "events.db", folder / "copy" / "events.db"
    copy.parent.mkdir()
    with closing(open_log(str(source))) as log:
        records = log.append([event(k) for k in range(300)])
        with closing(sqlite3.connect(source)) as other:
            other.execute("PRAGMA wal_checkpoint(RESTART)")
        records += log.append([event(k) for k in range(300, 303)])
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(f"{source}{suffix}", f"{copy}{suffix}")
    return copy, records


class TestDamagedFiles:
    def test_a_killed_writer_leaves_nothing_to_repair(self, in_log: Wreck, in_file: Wreck) -> None:
        assert in_log.opened() == [] and in_file.opened() == []
        assert in_log.opened(shm=False) == []

    def test_a_log_cut_short_anywhere_in_its_last_transactions(self, in_log: Wreck) -> None:
        size = len(in_log.wal)
        for place in places(size - 5 * FRAME, size, 700, lambda k: (k - 32) % FRAME in (0, 1, 15, 23, 24, 25)):
            cuts = in_log.opened(wal=in_log.wal[:place])
            assert (
                cuts is not None
                and len(cuts) == 1
                and len(in_log.records) - 9 <= len(in_log.left) < len(in_log.records)
            )

    def test_a_tear_shows_without_the_index_in_memory_too(self, in_log: Wreck) -> None:
        size = len(in_log.wal)
        for place in places(size - 2 * FRAME + 1, size, 997, lambda k: (k - 32) % FRAME in (1, 25)):
            if (place - 32) % FRAME:
                assert in_log.opened(wal=in_log.wal[:place], shm=False)

    def test_a_log_cut_to_nothing_is_for_a_person(self, in_log: Wreck) -> None:
        assert all(in_log.opened(wal=in_log.wal[:place]) is None for place in (0, 31, 32, 1000))

    def test_a_flipped_byte_in_the_log(self, in_log: Wreck) -> None:
        whole = 0
        heads = lambda k: k < 60 or (k > len(in_log.wal) - FRAME and (k - 32) % FRAME < 24)  # noqa: E731
        for place in places(0, len(in_log.wal), 9999, heads):
            cuts = in_log.opened(wal=flipped(in_log.wal, place))
            assert cuts != []
            whole += cuts is not None and len(in_log.left) == len(in_log.records)
        assert whole > 60  # a later copy of the page, or the rows on their own, make up for most damage

    def test_a_file_cut_short_anywhere_in_its_last_pages(self, in_file: Wreck) -> None:
        size = len(in_file.main)
        for place in places(size - 3 * 4096, size, 331):
            cuts = in_file.opened(main=in_file.main[:place])
            assert cuts is not None and len(cuts) == 1 and "too short" in cuts[0].reason

    def test_a_flipped_byte_in_the_last_record(self, in_file: Wreck) -> None:
        last = in_file.records[-1].body
        start = in_file.main.rindex(last)
        for place in range(start - 8, start + len(last) + 4):
            cuts = in_file.opened(main=flipped(in_file.main, place))
            assert cuts is not None and len(cuts) == 1 and len(in_file.left) == len(in_file.records) - 1

    def test_a_flipped_byte_anywhere_in_the_file(self, in_file: Wreck) -> None:
        verdicts = {type(in_file.opened(main=flipped(in_file.main, k))) for k in places(0, len(in_file.main), 787)}
        assert verdicts == {list, type(None)}

    def test_old_frames_behind_the_last_are_no_damage(self, tmp_path: Path) -> None:
        copy, records = half_checkpointed(tmp_path)
        assert Path(f"{copy}-wal").stat().st_size > 10 * FRAME
        assert recovered(str(copy)) == (records, [])

    def test_a_log_that_is_refused_keeps_its_writes_where_they_were(self, tmp_path: Path) -> None:
        copy, records = half_checkpointed(tmp_path)
        main = copy.read_bytes()
        copy.write_bytes(flipped(main, main.index(records[40].body)))
        before = files(copy.parent)
        for _ in range(2):
            with pytest.raises(LogDamaged, match="record 41 "):
                recovered(str(copy))
            assert files(copy.parent) == before

    def test_nothing_can_be_chained_to_a_bad_end(self, sqlite: str) -> None:
        filled(sqlite, 20)
        tamper(sqlite, "UPDATE events SET body = x'00' WHERE seq = 20")
        with closing(open_log(sqlite)) as log:
            assert log.last.seq == 19 and len(log.cuts) == 1

    def test_a_file_ahead_of_a_torn_log_is_used(self, tmp_path: Path) -> None:
        source, copy = tmp_path / "events.db", tmp_path / "copy" / "events.db"
        copy.parent.mkdir()
        with closing(open_log(str(source))) as log:
            records = [record for k in range(60) for record in log.append([event(k)])]
            with closing(sqlite3.connect(source)) as other:
                other.execute("PRAGMA wal_checkpoint(PASSIVE)")
            for suffix in ("", "-wal"):
                shutil.copy(f"{source}{suffix}", f"{copy}{suffix}")
        os.truncate(f"{copy}-wal", 32 + 20 * FRAME + 100)
        kept, (cut,) = recovered(str(copy))
        assert kept == records and cut[:2] == (61, 0)

    def test_an_interrupted_repair_is_finished(
        self, in_file: Wreck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, rename, done = tmp_path / "events.db", Path.rename, []
        stops = [1, 2, 3]  # before the damaged file, its write-ahead log or the fresh file has moved

        def stumbling(self: Path, target: Path) -> Path:
            done.append(target)
            if len(done) == stops[0]:
                raise KeyboardInterrupt
            return rename(self, target)

        monkeypatch.setattr(Path, "rename", stumbling)
        while stops:
            path.write_bytes(in_file.main[:-5000])
            done.clear()
            with pytest.raises(KeyboardInterrupt):
                open_log(str(path))
            records, (cut,) = recovered(str(path))
            assert records == in_file.records[: len(records)] and len(records) > 100
            assert Path(cut.kept_in).read_bytes() == in_file.main[:-5000]
            assert recovered(str(path)) == (records, [])
            del stops[0]

    def test_what_is_no_log_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("not a database " * 1000)
        with closing(sqlite3.connect(tmp_path / "other")) as other, other:
            other.execute("CREATE TABLE t (x)")
        before = files(tmp_path)
        for name in ("text", "other"):
            for read_only in (False, True):
                with pytest.raises(LogDamaged, match=name):
                    open_log(str(tmp_path / name), read_only=read_only)
        assert files(tmp_path) == before
        (tmp_path / "empty").touch()
        assert len(filled(str(tmp_path / "empty"), 3)) == 3
        for database in (str(tmp_path), "", str(tmp_path / "no" / "folder"), "mysql://x"):
            with pytest.raises(ValueError, match="database must be"):
                open_log(database)
        for access in (lambda name: open_log(name, read_only=True), lambda name: cut_back(name, 1)):
            with pytest.raises(ValueError, match="not there"):
                access(str(tmp_path / "missing"))
        assert not (tmp_path / "missing").exists()


KILLED = """
import sys
from sketchbandits.service.log import open_log
from sketchbandits.service.log.events import Event, Kind
log = open_log(sys.argv[1])
while True:
    first = log.last.seq
    log.append([Event(Kind.REWARD, first + k, b"%d" % (first + k)) for k in range(1 + first % 5)])
    print(log.last.seq, flush=True)
"""


class TestSqlite:
    def test_what_was_acknowledged_survives_a_kill(self, sqlite: str) -> None:
        acknowledged = 0
        for round in range(3):
            with running(KILLED, sqlite) as process:
                assert process.stdout is not None
                for _ in range(20 + 41 * round):
                    acknowledged = int(process.stdout.readline())
                process.send_signal(signal.SIGKILL)
                acknowledged = int((process.communicate()[0].split(b"\n")[-2:-1] or [b"%d" % acknowledged])[0])
            records, _ = recovered(sqlite)
            assert len(records) >= acknowledged
            assert [record.body for record in records] == [b"%d" % k for k in range(len(records))]

    def test_a_full_disk_loses_nothing_and_can_be_mended(self, sqlite: str) -> None:
        with closing(open_log(sqlite)) as log:
            stored = list(log.append([event(k) for k in range(50)]))
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
            try:
                refusals = append_until_refused(log, stored)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            assert refusals == 3
            stored += log.append([event(90_000)])
        assert recovered(sqlite) == (stored, [])

    def test_a_really_full_disk(self, tmp_path: Path) -> None:
        if (
            os.geteuid()
            or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "none", tmp_path], check=False).returncode
        ):
            pytest.skip("a small disk can only be mounted by root")
        try:
            database, ballast = str(tmp_path / "events.db"), tmp_path / "ballast"
            ballast.write_bytes(bytes(200_000))
            with closing(open_log(database)) as log:
                stored: list[Record] = []
                assert append_until_refused(log, stored) == 3
                ballast.unlink()
                stored += log.append([event(90_000)])
            assert recovered(database) == (stored, [])
        finally:
            subprocess.run(["umount", tmp_path], check=True)

    def test_a_failed_flush_is_uncertain(self, sqlite: str) -> None:
        with closing(open_log(sqlite)) as opened:
            assert isinstance(opened, sqlite_log.SqliteLog)
            connection = opened._connection

            def execute(statement: str, *arguments: object) -> sqlite3.Cursor:
                if statement.startswith("INSERT"):
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"
                    raise error
                return connection.execute(statement, *arguments)

            opened._connection = types.SimpleNamespace(execute=execute, in_transaction=False, close=connection.close)
            for _ in range(2):
                with pytest.raises(Uncertain):
                    opened.append([event(1)])

    def test_no_room_for_a_repair_changes_nothing(
        self, in_file: Wreck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "events.db"
        path.write_bytes(in_file.main[:-5000])
        before = files(tmp_path)
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
        try:
            with pytest.raises(LogDamaged, match="free some space"):
                open_log(str(path))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert files(tmp_path) == before


def append_until_refused(log: EventLog, stored: list[Record]) -> int:
    """Fill the disk, and be refused three times with nothing changed."""
    refused, number = 0, 1000
    while refused < 3 and number < 20_000:
        last = log.last
        try:
            stored += log.append([event(number + k) for k in range(20)])
            number += 20
        except NotStored:
            assert log.last == last and list(log.read(after=last.seq)) == []
            refused += 1
    return refused


class TestPostgres:
    def test_a_restarted_server(self, postgres: str, server: postgres_server.Server) -> None:
        with closing(open_log(postgres)) as log:
            stored = list(log.append([event(k) for k in range(5)]))
            server.stop()
            server.start()
            with suppress(NotStored):
                stored += log.append([event(5)])
            stored += log.append([event(6)])
            server.stop()
            server.start()
            assert log.outcomes([4]) and log.record(5) == stored[4]
            assert list(log.recover(START)) == stored

    def test_a_server_that_is_gone(
        self, postgres: str, server: postgres_server.Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres_log, "_SECONDS_TO_SETTLE", 0.3)
        with closing(open_log(postgres)) as first:
            stored = list(first.append([event(1)]))
            server.stop()
            try:
                with pytest.raises(Unavailable):
                    first.record(1)  # finds the connection lost, and no other
                with pytest.raises(Unavailable):
                    first.append([event(2)])
                with pytest.raises(ValueError, match="server that answers"):
                    open_log(postgres)
            finally:
                server.start()
            stored += first.append([event(2)])
            server.stop()
            try:
                for _ in range(2):
                    with pytest.raises(Uncertain):
                        first.append([event(3)])
            finally:
                server.start()
        assert recovered(postgres) == (stored, [])

    def test_a_lost_answer_is_found_out(self, postgres: str) -> None:
        with closing(open_log(postgres)) as log:
            assert isinstance(log, postgres_log.PostgresLog)
            connection = log._connection

            class Dropping:
                closed = False

                def execute(self, *arguments: object) -> None:
                    connection.execute(*arguments)
                    self.close()
                    raise psycopg.OperationalError("the connection was lost")

                def close(self) -> None:
                    self.closed = True
                    connection.close()

            log._connection = Dropping()
            stored = log.append([event(1), event(2)])
            stored += log.append([event(3)])
        assert recovered(postgres) == (stored, [])

    @pytest.mark.parametrize("connection_lost", [False, True])
    def test_somebody_else_wrote_meanwhile(self, postgres: str, connection_lost: bool) -> None:
        with closing(open_log(postgres)) as log:
            assert isinstance(log, postgres_log.PostgresLog)
            log.append([event(1)])
            tamper(postgres, "INSERT INTO events VALUES (2, 1, NULL, '', 5)")
            if connection_lost:
                log._connection.close()
            with pytest.raises(Uncertain):
                log.append([event(2)])

    def test_a_foreign_table_and_a_bad_address(self, postgres: str) -> None:
        tamper(postgres, "CREATE TABLE events (x integer)")
        with pytest.raises(LogDamaged, match="no log of this service"):
            open_log(postgres)
        with pytest.raises(ValueError, match="database must be") as refusal:
            open_log("postgresql://me:secret@/x?nonsense=1")
        assert "secret" not in str(refusal.value)

    def test_without_the_driver_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "sketchbandits.service.log.postgres.log", None)
        monkeypatch.delattr(sketchbandits.service.log.postgres, "log", raising=False)
        with pytest.raises(ValueError, match=r"sketchbandits\[postgres\]"):
            open_log("postgresql:///x")


def test_a_file_that_is_gone_takes_no_events(tmp_path: Path) -> None:
    database = tmp_path / "events.db"
    with closing(open_log(str(database))) as log:
        log.append([Event(Kind.DECISION, None, b"{}")])
        database.rename(tmp_path / "elsewhere.db")
        with pytest.raises(Uncertain, match="no longer the file"):
            log.append([Event(Kind.DECISION, None, b"{}")])
