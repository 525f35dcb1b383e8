"""`sketchbandits migrate` and `sketchbandits log`: what they say of logs that are old, damaged or changed."""

import json
import tarfile
from contextlib import closing
from pathlib import Path

import pytest
from command_line import Finished, run
from event_logs import content, database, event, filled, postgres, recovered, server, sqlite, tamper

from sketchbandits.service.log import encoding, open_log
from sketchbandits.service.log.events import Event, Kind

__all__ = ["database", "postgres", "server", "sqlite"]  # fixtures

DATA = Path(__file__).parent / "data"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The state folder that version 0.1.0 wrote."""
    with tarfile.open(DATA / "state.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path


def make_format_1(database: str) -> None:
    if "://" in database:
        tamper(database, "DROP TABLE IF EXISTS events_owner", "UPDATE events_format SET version = 1")
    else:
        tamper(database, "PRAGMA user_version = 1")


def found_format(database: str) -> int:
    with closing(open_log(database, read_only=True)) as log:
        return log.format


def words(done: Finished) -> str:
    assert "Traceback" not in done.stderr and done.stderr.count("\n") <= 6
    return " ".join(done.stderr.split())


class TestMigrate:
    def test_the_log_of_an_old_version(self, old: Path) -> None:
        manifest = max((old / "snapshots").glob("*/.manifest.json"))
        manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": 99}))
        file = str(old / "events.db")
        records, _ = recovered_unchanged(file)
        checked = run("migrate", old, "--check")
        assert checked.returncode == 0 and found_format(file) == 1
        assert "it would get format 2" in checked.stdout and "all good" in checked.stdout
        assert f"snapshot {int(manifest.parent.name):,} has format 99: it is ignored" in checked.stdout
        assert checked.stdout.count("snapshot") == 1
        done = run("migrate", old)
        assert done.returncode == 0 and "had format 1 and has format 2 now" in done.stdout
        assert found_format(file) == 2 and recovered_unchanged(file) == (records, [])
        again = run("migrate", old)
        assert again.returncode == 0 and "nothing is to be done" in again.stdout

    def test_a_database(self, database: str) -> None:
        records = filled(database, 30)
        make_format_1(database)
        assert "would get format 2" in run("migrate", database, "--check").stdout and found_format(database) == 1
        assert "has format 2 now" in run("migrate", database).stdout
        assert recovered(database) == (records, [])

    def test_damage_and_a_running_service_are_refused(self, database: str) -> None:
        filled(database, 30)
        make_format_1(database)
        with closing(open_log(database)):
            make_format_1(database)
            refusal = run("migrate", database)
            assert refusal.returncode == 1 and "another process" in words(refusal)
        make_format_1(database)
        tamper(database, "UPDATE events SET body = x'00' WHERE seq = 9")
        before = content(database)
        done = run("migrate", database)
        assert done.returncode == 1 and "record 9 is not what was written" in done.stdout
        assert "--cut 9" in words(done)
        assert found_format(database) == 1 and content(database) == before

    def test_a_higher_format_is_refused(self, database: str) -> None:
        filled(database, 3)
        tamper(database, "UPDATE events_format SET version = 3" if "://" in database else "PRAGMA user_version = 3")
        for command in ("migrate", "log"):
            done = run(command, database)
            assert done.returncode == 1 and "format 3" in words(done) and "formats up to 2" in words(done)


def recovered_unchanged(file: str) -> tuple[list[object], list[object]]:
    with closing(open_log(file, read_only=True)) as log:
        return list(log.read()), list(log.cuts)


class TestLog:
    @pytest.mark.parametrize(
        ("damage", "shown", "advice"),
        [
            ("UPDATE events SET body = x'00' WHERE seq = 30", "record 30 is", "cuts off what follows record 29"),
            ("UPDATE events SET kind = 99 WHERE seq > 28", "records 29 to 30 are", "cuts off what follows record 28"),
            ("UPDATE events SET body = x'00' WHERE seq = 9", "record 9 is", "copy its folder of snapshots"),
            ("UPDATE events SET chain = 1 WHERE seq = 9", "record 9 is", "restore the log from a backup"),
            ("DELETE FROM events WHERE seq IN (5, 6)", "record 5 is missing", "--cut 5`"),
        ],
    )
    def test_it_says_what_to_do_about_damage(self, database: str, damage: str, shown: str, advice: str) -> None:
        filled(database, 30)
        tamper(database, damage)
        before = content(database)
        done = run("log", database)
        assert done.returncode == 1 and shown in done.stdout and advice in words(done)
        assert content(database) == before

    def test_an_index_that_does_not_find_every_outcome(self, sqlite: str) -> None:
        records = filled(sqlite, 30)
        index = "CREATE UNIQUE INDEX one_outcome ON events (decision) WHERE decision IS NOT NULL"
        tamper(
            sqlite,  # an index that was made before some outcomes were there
            "DROP INDEX one_outcome",
            index.replace("IS NOT NULL", "IS NOT NULL AND decision < 9"),
            "PRAGMA writable_schema = ON",
            f"UPDATE sqlite_master SET sql = '{index}' WHERE name = 'one_outcome'",
        )
        done = run("log", sqlite)
        assert done.returncode == 1 and "sound, but not found by the index" in done.stdout
        assert "start the service once more, which rebuilds the index" in words(done)
        with closing(open_log(sqlite)) as log:
            assert len(log.notes) == 1 and "rebuilt" in log.notes[0]
        assert run("log", sqlite).stdout == "30 records, all good\n"
        assert recovered(sqlite) == (records, [])

    def test_who_changed_what(self, database: str) -> None:
        with closing(open_log(database)) as log:
            log.append(
                [
                    change(Kind.BANDIT, ids=["a", "b", "c"], by="0123456789ab"),
                    event(1),
                    change(Kind.ARMS_REMOVED, arms=[0, 1]),
                    Event(Kind.KEYS_REQUIRED, None, encoding.body({"t": 1_700_000_060.0})),
                    event(2),
                    change(Kind.BANDIT_DELETED, by="ba9876543210"),
                ]
            )
        done = run("log", database, "--audit")
        assert done.returncode == 0
        assert done.stdout.splitlines() == [
            "2023-11-14 22:13:20+00:00  bandit  shop  by 0123456789ab  3 arms",
            "2023-11-14 22:13:20+00:00  arms removed  shop  by no key  2 arms",
            "2023-11-14 22:14:20+00:00  keys required  all bandits  by no key",
            "2023-11-14 22:13:20+00:00  bandit deleted  shop  by ba9876543210",
        ]
        assert run("log", database, "--audit", "--cut", 2).returncode == 2


def change(kind: Kind, **data: object) -> Event:
    return Event(kind, None, encoding.body({"bandit": "shop", "t": 1_700_000_000.0, **data}))
