"""The log in SQLite: kills, full disks and files that disappear."""

import os
import resource
import signal
import sqlite3
import subprocess
import types
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from event_logs import (
    append_until_refused,
    database,
    event,
    filled,
    postgres,
    recovered,
    running,
    server,
    sqlite,
    tamper,
)

from sketchbandits.service.log import (
    LogDamaged,
    NotStored,
    Uncertain,
    open_log,
)
from sketchbandits.service.log.events import Event, Kind, Record
from sketchbandits.service.log.sqlite import log as sqlite_log

__all__ = ["database", "postgres", "server", "sqlite"]  # fixtures


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


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 kB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", tmp_path]
    if os.geteuid() or subprocess.run(mount, check=False).returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


class TestSqlite:
    @pytest.mark.process
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

    @pytest.mark.process
    def test_a_really_full_disk(self, small_disk: Path) -> None:
        database, ballast = str(small_disk / "events.db"), small_disk / "ballast"
        ballast.write_bytes(bytes(200_000))
        with closing(open_log(database)) as log:
            stored: list[Record] = []
            assert append_until_refused(log, stored) == 3
            with pytest.raises(NotStored, match="takes no file of 65,536 bytes"):
                log.probe()
            assert not list(small_disk.glob("*-probe"))
            ballast.unlink()
            log.probe()
            stored += log.append([event(90_000)])
        assert recovered(database) == (stored, [])

    @pytest.mark.process
    @pytest.mark.parametrize("left", [0, 4096, 8192, 16_384])
    @pytest.mark.parametrize("known", [False, True], ids=["new", "of format 1"])
    def test_a_start_on_a_full_disk(self, small_disk: Path, left: int, known: bool) -> None:
        database, ballast = str(small_disk / "events.db"), small_disk / "ballast"
        stored = filled(database, 20) if known else []
        if known:
            tamper(database, "PRAGMA user_version = 1")
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while file.write(bytes(4096)) == 4096:
                pass
        os.truncate(ballast, ballast.stat().st_size - left)
        for _ in range(2):
            with pytest.raises(LogDamaged, match=r"events\.db cannot be used: its disk is full .* free some space"):
                open_log(database)
        ballast.unlink()
        assert recovered(database) == (stored, [])

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


def test_a_file_that_is_gone_takes_no_events(tmp_path: Path) -> None:
    database = tmp_path / "events.db"
    with closing(open_log(str(database))) as log:
        log.append([Event(Kind.DECISION, None, b"{}")])
        database.rename(tmp_path / "elsewhere.db")
        with pytest.raises(Uncertain, match="no longer the file"):
            log.append([Event(Kind.DECISION, None, b"{}")])
