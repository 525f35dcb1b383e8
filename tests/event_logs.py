"""Logs to test, in SQLite and in a real PostgreSQL server: fixtures, events to fill them with, ways to damage them."""

import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import postgres_server
import psycopg
import pytest

from sketchbandits.service.log import (
    Cut,
    EventLog,
    NotStored,
    encoding,
    open_log,
)
from sketchbandits.service.log.events import START, Event, Kind, Position, Record


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


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.process)])
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
