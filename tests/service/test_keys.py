"""Keys: what is kept, who is let in, and changes made at the same time."""

import threading

import pytest

from sketchbandits.service.keys import ADMIN, CLIENT, KeyRing, KeysUnreadable


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


def test_bad_values_and_files_are_refused(tmp_path):
    ring = KeyRing(tmp_path / "keys.json")
    assert not ring.in_use and ring.find(None) is None and ring.find("") is None
    for name, role in (("", CLIENT), ("x" * 101, CLIENT), ("a\nb", CLIENT), ("a", "root")):
        with pytest.raises(ValueError, match="must be"):
            ring.create(name, role)
    with pytest.raises(ValueError, match="no keys at all"):
        ring.revoke("000000000000")
    ring.path.write_text('{"format": 2, "keys": []}')
    ring = KeyRing(ring.path)
    with pytest.raises(KeysUnreadable, match="format"):
        ring.all()
    assert ring.in_use and ring.find("x") is None
