"""The log in PostgreSQL: servers that restart or disappear, lost answers and other writers."""

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress

import postgres_server
import psycopg
import pytest
from event_logs import database, event, postgres, recovered, running, server, sqlite, tamper

import sketchbandits.service.log.postgres
from sketchbandits.service.log import (
    EventLog,
    LogDamaged,
    NotStored,
    Unavailable,
    Uncertain,
    open_log,
)
from sketchbandits.service.log.events import START
from sketchbandits.service.log.postgres import log as postgres_log
from sketchbandits.service.log.postgres import tables

__all__ = ["database", "postgres", "server", "sqlite"]  # fixtures
pytestmark = pytest.mark.process


def end_other_sessions(server: postgres_server.Server) -> None:
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"
        )


def refused(log: EventLog) -> str:
    """The words with which an append is refused."""
    with pytest.raises(Uncertain) as failure:
        log.append([event(2), event(3)])
    return str(failure.value)


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

    def test_a_session_that_was_ended_is_begun_again(self, postgres: str, server: postgres_server.Server) -> None:
        with closing(open_log(postgres)) as log:
            stored = list(log.append([event(1)]))
            for number in (3, 5):
                end_other_sessions(server)
                log.heartbeat()
                stored += log.append([event(number)])
            end_other_sessions(server)
            with pytest.raises(NotStored):
                log.append([event(7)])
            stored += log.append([event(7)])
        assert recovered(postgres) == (stored, [])

    @pytest.mark.parametrize("when", ["idle", "in a statement"])
    def test_an_owner_that_was_replaced_inserts_nothing(
        self, postgres: str, server: postgres_server.Server, when: str
    ) -> None:
        """Also where both are connected, as behind a pooler that breaks the lock."""
        with closing(open_log(postgres)) as old:
            stored = list(old.append([event(1)]))
            if when == "idle":
                tamper(postgres, "UPDATE events_owner SET number = number + 1")
                failure = refused(old)
            else:  # the statement waits for the row, and then finds another number
                with psycopg.connect(postgres) as new, ThreadPoolExecutor(1) as threads:
                    new.execute("UPDATE events_owner SET number = number + 1")
                    waiting = threads.submit(refused, old)
                    assert not wait([waiting], 0.3).done
                    new.commit()
                    failure = waiting.result()
            assert "another service has taken over" in failure
            with pytest.raises(Uncertain, match="taken over"):
                old.heartbeat()
            with pytest.raises(Uncertain):
                old.append([event(2)])
        assert recovered(postgres) == (stored, [])

    def test_a_heartbeat_that_finds_the_lock_taken(
        self, postgres: str, server: postgres_server.Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(postgres_log, "_SECONDS_FOR_LOCK", 0.2)
        with closing(open_log(postgres)) as old:
            old.append([event(1)])
            end_other_sessions(server)
            with closing(open_log(postgres)) as new:
                new.append([event(2)])
                for question in (old.heartbeat, old.probe, lambda: old.append([event(2)])):
                    with pytest.raises(Uncertain):
                        question()
                new.heartbeat()
                new.append([event(3)])

    def test_a_database_that_only_reads_takes_nothing(self, postgres: str) -> None:
        with closing(open_log(postgres)) as log:
            assert isinstance(log, postgres_log.PostgresLog)
            log._connection.execute("SET default_transaction_read_only = on")
            for question in (log.probe, lambda: log.append([event(1)])):
                with pytest.raises(NotStored, match="read"):
                    question()

    def test_a_stopped_service_is_replaced_and_writes_nothing_when_it_wakes(self, postgres: str) -> None:
        old = """
import sys
from sketchbandits.service.log import Uncertain, open_log
from sketchbandits.service.log.events import Event, Kind
from sketchbandits.service.log.postgres import tables
tables._IDLE = "500ms"
log = open_log(sys.argv[1])
log.append([Event(Kind.BANDIT, None, b"old")])
log.heartbeat()
print("open", flush=True)
sys.stdin.readline()
try:
    log.append([Event(Kind.BANDIT, None, b"late")])
except Uncertain as error:
    print(error, flush=True)
"""
        with running(old, postgres) as process:
            assert process.stdout is not None and process.stdin is not None
            assert process.stdout.readline() == b"open\n"
            process.send_signal(signal.SIGSTOP)
            began = time.monotonic()
            with closing(open_log(postgres)) as new:
                assert 0.2 < time.monotonic() - began < 10.0
                stored = [*new.recover(START), *new.append([event(1)])]
                process.send_signal(signal.SIGCONT)
                process.stdin.write(b"\n")
                process.stdin.flush()
                assert b"another service has taken over" in process.stdout.readline()
                stored += new.append([event(2)])
        assert recovered(postgres) == (stored, []) and stored[0].body == b"old"

    def test_the_server_watches_the_connection_of_a_writer(self, postgres: str) -> None:
        """So that a machine that vanishes frees its lock within 30 s; over a unix socket there is nothing to watch."""
        with closing(open_log(postgres)) as log:
            assert isinstance(log, postgres_log.PostgresLog)
            limit = "SELECT current_setting('idle_session_timeout') = %s"
            assert log._asked(limit, "0") == [(True,)], "recovery may take its time"
            log.heartbeat()
            assert log._asked(limit, "20s") == [(True,)]
        idle, interval, count, sent = (int(value.rstrip("s")) for value in tables._SESSION.values())
        assert max(idle + interval * count, sent, int(tables._IDLE.rstrip("s"))) < 30

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
