"""The access log: a line per request, never a request that waits, and lost lines that are counted."""

import contextlib
import json
import os
import time

import pytest
from service_tools import client_of, run, service_at

from sketchbandits.service.http.access import _NAMES, AccessLog
from sketchbandits.service.keys import CLIENT

PATIENCE = 10.0
VALUES = (0.0, "127.0.0.1", None, "GET", "/", None, 200, 1.0, 0, 0)


def entries(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def wait_for(condition):
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_every_request_is_a_line_and_none_holds_a_secret(tmp_path):
    path = tmp_path / "access.jsonl"

    async def check():
        async with service_at(tmp_path / "s", access_log=path) as (service, _):
            key = service.keys.create("a", CLIENT, bandits=["default"], rate=5)
            async with client_of(service, key) as client:
                answer = await client.post("/v1/decisions", json={"key": "secret order"})
                await client.get("/v1/arms?bandit=other&search=secret")
                await client.get("/v1/arms?limit=x")
                await client.delete("/v1/arms?id=a1")
                await client.get("/v1/bandits", headers={"Authorization": "Bearer sb_guess"})
                await client.get("/dashboard/dashboard.js")
                await client.get("/nothing/" + "x" * 1_000)
                client._transport.app.close()
        return key, len(answer.content)

    began = time.time()
    key, size = run(check())
    key_id = key.split("_")[1]
    found = entries(path)
    shown = [tuple(entry[name] for name in ("key", "method", "path", "bandit", "status")) for entry in found]
    assert shown[:6] == [
        (key_id, "POST", "/v1/decisions", "default", 200),
        (key_id, "GET", "/v1/arms", "other", 403),
        (key_id, "GET", "/v1/arms", None, 422),
        (key_id, "DELETE", "/v1/arms", None, 403),
        (None, "GET", "/v1/bandits", None, 401),
        (None, "GET", "/dashboard/dashboard.js", None, 200),
    ]
    assert shown[6][-1] == 404 and len(shown[6][2]) == 200 and len(found) == 7
    assert all(tuple(entry) == _NAMES and entry["address"] == "127.0.0.1" for entry in found)
    assert all(began - 1 <= entry["time"] <= time.time() and entry["ms"] > 0 for entry in found)
    assert found[0]["bytes_in"] == len(b'{"key":"secret order"}') and found[0]["bytes_out"] == size
    assert "secret" not in path.read_text() and key.split("_", 2)[2] not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


def test_without_the_setting_nothing_is_written(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (_, client):
            assert (await client.get("/v1/bandits")).status_code == 200
            assert client._transport.app.access is None

    run(check())


def test_a_file_that_was_moved_away_is_begun_again(tmp_path):
    path = tmp_path / "access.jsonl"
    log = AccessLog(path)
    log.put(*VALUES)
    wait_for(lambda: path.read_text())
    path.rename(tmp_path / "access.1")
    log.put(*VALUES)
    log.close()
    assert len(entries(path)) == len(entries(tmp_path / "access.1")) == 1
    assert path.stat().st_mode & 0o777 == 0o600


def test_lines_that_do_not_fit_are_counted_and_nobody_waits(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    log = AccessLog(path, waiting=100)
    for _ in range(10):  # the disk stands still: the pipe takes some lines, then none
        for _ in range(100):
            log.put(*VALUES)
        time.sleep(0.06)
    started = time.perf_counter()
    for _ in range(1_000):
        log.put(*VALUES)
    assert time.perf_counter() - started < 0.5 and log.lost >= 900
    text = b""
    while log._lines or b'"lost"' not in text:  # and goes on
        with contextlib.suppress(BlockingIOError):
            text += os.read(reader, 1 << 16)
        time.sleep(0.001)
    log.close()
    with contextlib.suppress(BlockingIOError):
        text += os.read(reader, 1 << 16)
    os.close(reader)
    found = [json.loads(line) for line in text.decode().splitlines()]
    assert sum(entry.get("lost", 0) for entry in found) == log.lost
    assert sum("lost" not in entry for entry in found) + log.lost == 2_000


def test_a_full_disk_is_logged_once_and_lines_are_counted(tmp_path, caplog):
    path = tmp_path / "access.jsonl"
    path.symlink_to("/dev/full")
    log = AccessLog(path)
    for count in (1, 2, 3):
        log.put(*VALUES)
        wait_for(lambda: log.lost == count)  # noqa: B023
    assert len(caplog.records) == 1 and "No space left" in caplog.text
    path.unlink()
    log.put(*VALUES)
    log.close()
    assert entries(path) == [dict(zip(_NAMES, VALUES, strict=True)), {"lost": 3}] and log.lost == 3


def test_a_torn_line_is_ended_before_the_next(tmp_path, monkeypatch):
    path, write = tmp_path / "access.jsonl", os.write
    log = AccessLog(path)

    def torn(handle, text):
        if calls:
            raise OSError(28, "no space left on device")
        calls.append(text)
        return write(handle, text[:-9])

    calls = []
    monkeypatch.setattr("sketchbandits.service.http.access.os.write", torn)
    log.put(*VALUES)
    wait_for(lambda: log.lost == 1)
    monkeypatch.undo()
    log.put(*VALUES)
    log.close()
    first, *others = path.read_text().splitlines()
    assert not first.endswith("}") and json.loads(others[-1]) == {"lost": 1} and len(others) == 2


def test_a_file_that_cannot_be_opened_refuses_the_start(tmp_path):
    with pytest.raises(ValueError, match="access_log must be a file that lines can be appended to"):
        AccessLog(tmp_path / "nothing" / "access.jsonl")
