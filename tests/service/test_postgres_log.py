"""The log in PostgreSQL: servers that restart or disappear, lost answers and other writers."""

import sys
from contextlib import closing, suppress

import postgres_server
import psycopg
import pytest
from event_logs import database, event, postgres, recovered, server, sqlite, tamper

import sketchbandits.service.log.postgres
from sketchbandits.service.log import (
    LogDamaged,
    NotStored,
    Unavailable,
    Uncertain,
    open_log,
)
from sketchbandits.service.log.events import START
from sketchbandits.service.log.postgres import log as postgres_log

__all__ = ["database", "postgres", "server", "sqlite"]  # fixtures
pytestmark = pytest.mark.process


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
