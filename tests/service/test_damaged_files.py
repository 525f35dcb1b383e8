"""Damaged SQLite files: what is whole is recovered, the rest is kept, and damage inside is left to an operator.

The default run cuts and flips at some bytes; the tests marked `slow` do so at every byte, which takes minutes.
"""

import os
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest
from event_logs import event, files, filled, recovered, sqlite, tamper

from sketchbandits.service.log import (
    Cut,
    LogDamaged,
    cut_back,
    open_log,
)
from sketchbandits.service.log.events import Record

__all__ = ["sqlite"]  # a fixture

FRAME = 24 + 4096


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


class Places(Protocol):
    """Bytes of a file from ``start`` to ``stop``: at least every ``step``-th, and those that ``always`` names."""

    def __call__(
        self, start: int, stop: int, step: int, always: Callable[[int], bool] = lambda place: False
    ) -> Iterable[int]: ...


@pytest.fixture(params=["some bytes", pytest.param("every byte", marks=pytest.mark.slow)])
def places(request: pytest.FixtureRequest) -> Places:
    every = request.param == "every byte"

    def chosen(start: int, stop: int, step: int, always: Callable[[int], bool] = lambda place: False) -> Iterable[int]:
        return (k for k in range(start, stop) if every or k % step == 0 or always(k))

    return chosen


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

    def test_a_log_cut_short_anywhere_in_its_last_transactions(self, in_log: Wreck, places: Places) -> None:
        size = len(in_log.wal)
        for place in places(size - 5 * FRAME, size, 700, lambda k: (k - 32) % FRAME in (0, 1, 15, 23, 24, 25)):
            cuts = in_log.opened(wal=in_log.wal[:place])
            assert (
                cuts is not None
                and len(cuts) == 1
                and len(in_log.records) - 9 <= len(in_log.left) < len(in_log.records)
            )

    def test_a_tear_shows_without_the_index_in_memory_too(self, in_log: Wreck, places: Places) -> None:
        size = len(in_log.wal)
        for place in places(size - 2 * FRAME + 1, size, 997, lambda k: (k - 32) % FRAME in (1, 25)):
            if (place - 32) % FRAME:
                assert in_log.opened(wal=in_log.wal[:place], shm=False)

    def test_a_log_cut_to_nothing_is_for_a_person(self, in_log: Wreck) -> None:
        assert all(in_log.opened(wal=in_log.wal[:place]) is None for place in (0, 31, 32, 1000))

    def test_a_flipped_byte_in_the_log(self, in_log: Wreck, places: Places) -> None:
        whole = 0
        heads = lambda k: k < 60 or (k > len(in_log.wal) - FRAME and (k - 32) % FRAME < 24)  # noqa: E731
        for place in places(0, len(in_log.wal), 9999, heads):
            cuts = in_log.opened(wal=flipped(in_log.wal, place))
            assert cuts != []
            whole += cuts is not None and len(in_log.left) == len(in_log.records)
        assert whole > 60  # a later copy of the page, or the rows on their own, make up for most damage

    def test_a_file_cut_short_anywhere_in_its_last_pages(self, in_file: Wreck, places: Places) -> None:
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

    def test_a_flipped_byte_anywhere_in_the_file(self, in_file: Wreck, places: Places) -> None:
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

    def test_a_file_that_sqlite_would_only_read_is_repaired(self, in_file: Wreck) -> None:
        for place in (18, 19):
            damaged = bytearray(in_file.main)
            damaged[place] = 66
            (cut,) = in_file.opened(main=bytes(damaged)) or [None]
            assert cut is not None and cut.records == 0 and in_file.left == in_file.records

    @pytest.mark.parametrize("place", [b"PRIMARY KEY", b"one_outcome ON", b"IS NOT NULL", b"chain INTEGER"])
    def test_a_flip_in_the_description_of_the_tables_is_repaired(self, in_file: Wreck, place: bytes) -> None:
        damaged = bytearray(in_file.main)
        damaged[damaged.index(place, 3000)] ^= 2
        (cut,) = in_file.opened(main=bytes(damaged)) or [None]
        assert cut is not None and cut.records == 0 and in_file.left == in_file.records

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
        for address in (str(tmp_path), "", str(tmp_path / "no" / "folder"), "mysql://x"):
            with pytest.raises(ValueError, match="database must be"):
                open_log(address)
        for access in (lambda name: open_log(name, read_only=True), lambda name: cut_back(name, 1)):
            with pytest.raises(ValueError, match="not there"):
                access(str(tmp_path / "missing"))
        assert not (tmp_path / "missing").exists()

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
