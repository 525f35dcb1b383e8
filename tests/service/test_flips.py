"""The benchmark that flips bits: what it finds where something is wrong, and that some flips end well."""

import asyncio
import hashlib
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "service"))

import flip_attempt
import flips
from flip_state import damaged_copy, places, prepared

from sketchbandits.service.bandits.writer import Writer
from sketchbandits.service.folder import KEYS, LOG_FILE


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return asyncio.run(prepared(tmp_path_factory.mktemp("flips") / "state"))


@pytest.fixture
def copy(truth, tmp_path):
    return damaged_copy(truth.state, tmp_path / "copy", None)


def test_without_damage_all_is_well(truth, copy):
    assert flip_attempt.attempt(copy, truth).kind == "harmless"


def test_every_kind_of_file_is_there_and_has_its_share(truth):
    found = places(truth.state)
    assert all(found[kind] for kind in flips.SHARES)
    flipped, again = (list(flips.chosen(truth.state, 50, 0, list(flips.SHARES))) for _ in range(2))
    assert {kind for kind, *_ in flipped} == set(flips.SHARES) and flipped == again
    for kind, path, byte, bit in flipped:
        assert any(path == file and start <= byte < start + size for file, start, size in found[kind]) and bit < 8


@pytest.mark.parametrize(("file", "kind"), [(KEYS, "refused"), (f"{LOG_FILE}-wal", "told")])
def test_damage_that_is_noticed(file, kind, truth, tmp_path):
    verdict = flip_attempt.attempt(damaged_copy(truth.state, tmp_path / "copy", (file, 700, 3)), truth)
    assert verdict.kind == kind and verdict.why


def test_a_changed_state_is_silent(truth, copy):
    """A snapshot that says something else, and whose digests fit."""
    folder = max((path for path in copy.glob("snapshots/[0-9]*")), key=lambda path: int(path.name))
    entry = json.loads((folder / "linear.json").read_text())
    entry["totals"]["numbers"][0] += 1
    (folder / "linear.json").write_text(json.dumps(entry))
    manifest = json.loads((folder / ".manifest.json").read_text())
    manifest["files"]["linear.json"] = hashlib.sha256((folder / "linear.json").read_bytes()).hexdigest()
    manifest.pop("digest")
    manifest["digest"] = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / ".manifest.json").write_text(json.dumps(manifest))
    verdict = flip_attempt.attempt(copy, truth)
    assert verdict.kind == "SILENT" and "the state after record" in verdict.why


def test_keys_that_are_others_are_silent(truth, copy):
    other = truth._replace(keys=truth.keys[:-1])
    assert flip_attempt.attempt(copy, other) == ("SILENT", "the API keys are others; said: []")


def test_a_lost_record_is_silent(truth, copy):
    more = truth._replace(records=[*truth.records, truth.records[-1]])
    verdict = flip_attempt.attempt(copy, more)
    assert verdict.kind == "SILENT" and "records are missing" in verdict.why


def test_a_service_that_ends_loops(truth, copy, monkeypatch):
    failing = Writer.submit

    def submit(writer, request):
        writer.failure = RuntimeError("it fell")
        return failing(writer, request)

    monkeypatch.setattr(Writer, "submit", submit)
    verdict = flip_attempt.attempt(copy, truth)
    assert verdict.kind == "CRASH LOOP"


def test_a_start_that_ends_with_a_stack_trace_loops(truth, copy, monkeypatch):
    def broken(state):
        raise KeyError("boot")

    monkeypatch.setattr(flip_attempt, "settings_of", broken)
    assert flip_attempt.attempt(copy, truth).kind == "CRASH LOOP"
