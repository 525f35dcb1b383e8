"""Keys: what is kept, who is let in, changes made at the same time, and what damage and loss of their file do."""

import errno
import json
import logging
import os
import threading
import time
from contextlib import closing
from dataclasses import asdict

import pytest
from command_line import run

from sketchbandits.service.key_file import read_keys
from sketchbandits.service.keys import ADMIN, CLIENT, FRESH, Key, KeyRing, KeysUnreadable, allowed, check_keys
from sketchbandits.service.log import open_log
from sketchbandits.service.log.events import Event, Kind, parsed

OLD = "sb_0123456789ab_" + "x" * 43


@pytest.fixture
def ring(tmp_path):
    return KeyRing(tmp_path / "keys.json")


def lapse():
    time.sleep(2 * FRESH)


def write_format_1(path, *keys):
    entries = [{name: value for name, value in asdict(key).items() if name not in ("bandits", "rate")} for key in keys]
    path.write_text(json.dumps({"format": 1, "keys": entries}, indent=1))


def entry(role, **more):
    """A file of format 1, with one key."""
    key = {"id": "a", "name": "a", "role": role, "digest": "", "created": 1, **more}
    return json.dumps({"format": 1, "keys": [key]}).encode()


def test_changes_made_at_the_same_time_all_count(tmp_path):
    path = tmp_path / "keys.json"
    first = [KeyRing(path).create(f"key {i}", CLIENT) for i in range(10)]

    def create():
        for i in range(10):
            made.append(KeyRing(path).create(f"more {i}", ADMIN))

    def revoke():
        for key in first:
            KeyRing(path).revoke(key.split("_")[1])

    made = []
    threads = [threading.Thread(target=create), threading.Thread(target=revoke), threading.Thread(target=create)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ring = KeyRing(path)
    assert [ring.find(key) for key in first] == [None] * 10
    assert [ring.find(key).role for key in made] == [ADMIN] * 20


def test_bad_values_are_refused(ring):
    assert not ring.in_use and ring.find(None) is None and ring.find("") is None
    for name, role in (("", CLIENT), ("x" * 101, CLIENT), ("a\nb", CLIENT), ("a", "root")):
        with pytest.raises(ValueError, match="must be"):
            ring.create(name, role)
    for rate in (0, -1, 1e-4, 1e7, float("nan"), "5", True):
        with pytest.raises(ValueError, match="rate must be"):
            ring.create("a", CLIENT, rate=rate)
    with pytest.raises(ValueError, match="bandit must be 1 to 1,000 names"):
        ring.create("a", CLIENT, bandits=[])
    with pytest.raises(ValueError, match="no keys at all"):
        ring.revoke("000000000000")
    assert not ring.path.exists()


def test_a_key_for_some_bandits_with_a_limit(ring):
    limited = ring.find(ring.create("a", CLIENT, bandits=["x", "y", "x"], rate=2.5))
    assert (limited.bandits, limited.rate) == (("x", "y"), 2.5)
    free = ring.find(ring.create("b", CLIENT))
    assert (free.bandits, free.rate) == (None, None)
    assert KeyRing(ring.path).all() == [limited, free]
    assert [allowed(caller, "y") for caller in (limited, free, None)] == [True] * 3
    assert [allowed(caller, "z") for caller in (limited, free, None)] == [False, True, True]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"format": 2, "keys": []}',
        b'{"format": 3, "keys": [], "sha256": ""}',
        b'{"format": true, "keys": []}',
        b'{"format": 1, "keys": [{"id": "a"}]}',
        entry("root"),
        entry(ADMIN, bandits="b"),
        entry(ADMIN, rate=0),
        entry(ADMIN, revoked=False),
    ],
)
def test_a_damaged_file_says_what_to_do_and_lets_nobody_in(ring, content):
    ring.path.write_bytes(content)
    with pytest.raises(KeysUnreadable, match="restore it from a backup"):
        ring.all()
    assert ring.in_use and ring.find("x") is None
    with pytest.raises(KeysUnreadable):
        ring.create("a", ADMIN)
    assert ring.path.read_bytes() == content


def test_no_changed_bit_changes_who_may_do_what(ring):
    ring.create("a shop", CLIENT, bandits=["banners"], rate=10)
    ring.create("an admin", ADMIN)
    ring.revoke(ring.all()[1].id)
    before, content = read_keys(ring.path), ring.path.read_bytes()
    told = 0
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        ring.path.write_bytes(damaged)
        try:
            assert read_keys(ring.path) == before, place
        except KeysUnreadable:
            told += 1
    assert told > 0.9 * 8 * len(content)  # the others are in white space


def test_a_file_of_the_first_format_is_read_and_the_next_change_adds_a_digest(ring):
    made = ring.create("a", ADMIN)
    (key,) = ring.all()
    write_format_1(ring.path, key)
    lapse()
    assert ring.find(made) == key == KeyRing(ring.path).find(made)
    ring.create("b", CLIENT)
    value = json.loads(ring.path.read_text())
    assert (value["format"], len(value["keys"])) == (2, 2) and ring.find(made) == key


def test_no_changed_bit_of_the_first_format_gives_a_key_more_rights(ring):
    keys = [Key("0123456789ab", "a", CLIENT, "1" * 64, 5.5), Key("ba9876543210", "b", ADMIN, "2" * 64, 5.5, 6.5)]
    write_format_1(ring.path, *keys)
    content = ring.path.read_bytes()
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        ring.path.write_bytes(damaged)
        try:
            found = read_keys(ring.path)
        except KeysUnreadable:
            continue
        assert [(key.role, key.revoked is None) for key in found] == [(CLIENT, True), (ADMIN, False)], place


def test_keys_that_vanish_or_break_while_a_service_runs_let_nobody_in_and_are_logged_once(ring, caplog):
    made = ring.create("a", ADMIN)
    assert ring.find(made)
    content = ring.path.read_bytes()
    for break_it in (ring.path.unlink, lambda: ring.path.write_bytes(content[:-9])):
        ring.path.write_bytes(content)
        lapse()
        assert ring.find(made)
        caplog.clear()
        break_it()
        for _ in range(3):
            lapse()
            assert ring.find(made) is None and ring.in_use
        (record,) = caplog.records
        assert record.levelno == logging.ERROR and "restore it from a backup" in record.getMessage()
    ring.path.write_bytes(content)
    lapse()
    assert ring.find(made) and "can be read again" in caplog.text


def test_a_service_may_say_that_keys_are_required(ring):
    assert not ring.in_use
    ring.required = True
    assert ring.in_use and ring.find(OLD) is None


def test_a_start_without_required_keys_is_refused(ring):
    check_keys(ring, required=False, require_flag=False)
    for required, flag, why in (
        (True, False, "the log says"),
        (False, True, "the flag --require-keys"),
        (True, True, "the log"),
    ):
        with pytest.raises(ValueError, match=rf"^keys must exist: {why}.* is missing.*keys create NAME --role admin"):
            check_keys(ring, required, flag)
    write_format_1(ring.path)
    lapse()
    with pytest.raises(ValueError, match=r"^keys must exist.* has no keys\. Restore it from a backup"):
        check_keys(ring, True, False)
    check_keys(ring, False, False)
    ring.create("a", ADMIN)
    check_keys(ring, True, True)
    ring.path.write_text("")
    lapse()
    for required in (False, True):
        with pytest.raises(ValueError, match=r"^keys must be readable .* is damaged .* restore it from a backup"):
            check_keys(ring, required, False)


def test_a_file_that_may_not_be_read_says_so(ring, monkeypatch):
    made = ring.create("a", ADMIN)

    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("sketchbandits.service.key_file.Path.read_bytes", refused)
    ring = KeyRing(ring.path)
    with pytest.raises(KeysUnreadable, match=r"Permission denied.*readable for the user that runs the service"):
        ring.all()
    assert ring.in_use and ring.find(made) is None


def test_a_folder_that_is_none_lets_nobody_in(tmp_path):
    (tmp_path / "file").write_text("")
    ring = KeyRing(tmp_path / "file" / "keys.json")
    assert ring.in_use and ring.find(OLD) is None
    with pytest.raises(KeysUnreadable, match="cannot be read"):
        ring.all()


def test_a_full_disk_leaves_no_temporary_file(ring, monkeypatch):
    ring.create("a", ADMIN)
    content, names = ring.path.read_bytes(), set(os.listdir(ring.path.parent))

    def full(handle):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr("sketchbandits.service.key_file.os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        ring.create("b", ADMIN)
    monkeypatch.undo()
    assert set(os.listdir(ring.path.parent)) == names and ring.path.read_bytes() == content


def test_what_a_killed_process_left_is_removed_by_the_next_change(ring):
    ring.create("a", ADMIN)
    names, elsewhere = set(os.listdir(ring.path.parent)), ring.path.with_name("elsewhere")
    elsewhere.write_text("untouched")
    for leave in (lambda part: part.write_text("half"), lambda part: part.symlink_to(elsewhere)):
        leave(ring.path.with_name("keys.json.part"))
        ring.create("b", ADMIN)
        assert set(os.listdir(ring.path.parent)) == names | {"elsewhere"}
    assert elsewhere.read_text() == "untouched" and len(ring.all()) == 3
    assert ring.path.stat().st_mode & 0o777 == 0o600


def kinds(path):
    with closing(open_log(str(path), read_only=True)) as log:
        return [(record.kind, parsed(record.body)) for record in log.read()]


def filled(path):
    with closing(open_log(str(path))) as log:
        log.append([Event(Kind.BANDIT, None, b'{"bandit":"x"}')] * 3)


def test_the_first_key_is_recorded_in_a_log_that_nobody_has_open(tmp_path):
    filled(tmp_path / "events.db")
    before = time.time()
    made = [run("keys", "create", name, "--state", tmp_path) for name in ("a", "b")]
    assert [(done.returncode, done.stderr) for done in made] == [(0, "")] * 2
    *_, (kind, body) = found = kinds(tmp_path / "events.db")
    assert len(found) == 4 and kind is Kind.KEYS_REQUIRED
    assert body["by"] is None and before <= body["t"] <= time.time()


def test_without_a_log_or_beside_a_service_a_key_is_made_and_the_service_records_it(tmp_path):
    assert run("keys", "create", "a", "--state", tmp_path / "new").returncode == 0
    assert not (tmp_path / "new" / "events.db").exists()
    filled(tmp_path / "events.db")
    with closing(open_log(str(tmp_path / "events.db"))):
        done = run("keys", "create", "a", "--state", tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and KeyRing(tmp_path / "keys.json").find(done.stdout.strip())
    assert len(kinds(tmp_path / "events.db")) == 3


def test_a_damaged_log_keeps_no_key_from_being_made(tmp_path):
    (tmp_path / "events.db").write_bytes(b"this is no database " * 500)
    done = run("keys", "create", "a", "--state", tmp_path)
    assert done.returncode == 0 and KeyRing(tmp_path / "keys.json").find(done.stdout.strip())
    assert "the key is made; that keys are required is recorded at the next start" in done.stderr
    assert done.stderr.count("\n") == 1


def test_keys_are_listed_with_their_limits_in_80_columns(tmp_path):
    for flags in ((), ("--bandit", "banners", "--bandit", "prices", "--rate", "100", "--role", "admin")):
        assert run("keys", "create", "the shop", *flags, "--state", tmp_path).returncode == 0
    free, limited = KeyRing(tmp_path / "keys.json").all()
    assert (limited.bandits, limited.rate, limited.role) == (("banners", "prices"), 100.0, ADMIN)
    run("keys", "create", "a long name " * 8, "--bandit", "b" * 64, "--rate", "0.001", "--state", tmp_path)
    run("keys", "revoke", free.id, "--state", tmp_path)
    listed = run("keys", "list", "--state", tmp_path).stdout
    assert all(len(line) <= 80 for line in listed.splitlines())
    assert f"{limited.id}  admin   " in listed and listed.count("the shop") == 2
    assert "  100 requests per second; only banners, prices\n" in listed and "0.001 requests per second; only" in listed
    assert time.strftime("%Y-%m-%d") in next(line for line in listed.splitlines() if free.id in line)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (("--rate", "fast"), "--rate must be a number"),
        (("--rate", "0"), "--rate must be a number"),
        (("--bandit", "A/B"), "--bandit must be 1 to 64 lower-case letters"),
        (("--role", "root"), "--role must be one of"),
    ],
)
def test_what_keys_create_refuses(tmp_path, flags, line):
    done = run("keys", "create", "a", *flags, "--state", tmp_path)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith(line)
    assert not (tmp_path / "keys.json").exists()
