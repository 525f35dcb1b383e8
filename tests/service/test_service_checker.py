"""The independent checker of a service's log: content with what a service wrote, and not with anything else."""

import asyncio
import contextlib
import json
import shutil
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import naive
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "service"))

import checker
import twins
from accounts import Inconsistent
from service_tools import ARMS, IDS, run, service_at

from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.requests import CreateBandit
from sketchbandits.service.log.events import START, Event, Kind, chained

ROUNDS = 30
RULES = {
    "scales": {"policy": "multiscale", "pending": 6, "options": {"sketch_size": 2, "budget": 100}},
    "coins": {"policy": "ucb1", "exploration": 0.4, "deadline": 1.0, "default_reward": -0.5, "seed": 3},
    "linear": {"policy": "oful", "pending": 4, "options": {"radius": "logdet", "ridge": 0.7}},
}
RANGES = {"scales": None, "coins": (-9.0, 9.0), "linear": None}


async def write(state):
    """Groups of requests on three bandits, with keys, batches, availability, defaults, arms that come and go and are
    freed, rewards that are taken back, a bandit that is deleted, and API keys from the middle on.
    """
    bandits = [
        CreateBandit(name, BanditConfig(**rules, reward_range=RANGES[name]), IDS, ARMS) for name, rules in RULES.items()
    ]
    rng, waiting, rewarded = np.random.default_rng(4), [], {name: [] for name in RULES}
    async with service_at(state, *bandits, snapshot_every=60) as (service, client):

        async def decide(bandit, **more):
            answer = (await client.post("/v1/decisions", json={"bandit": bandit, **more})).json()
            waiting.extend((bandit, decision["decision_id"]) for decision in answer["decisions"])

        async def reward():
            bandit, decision = waiting.pop(int(rng.integers(len(waiting))))
            body = {"bandit": bandit, "decision_id": decision, "reward": float(rng.normal())}
            if (await client.post("/v1/rewards", json=body)).status_code == 200:
                rewarded[bandit].append(decision)

        async def retract(bandit, count):
            body = {"bandit": bandit, "decision_ids": rewarded[bandit][-count:]}
            answer = (await client.post("/v1/retractions", json=body)).json()
            assert [result["status"] for result in answer["results"]] == ["retracted"] * count

        for t in range(ROUNDS):
            some = {"available": [IDS[i] for i in rng.choice(12, 5, replace=False)]}
            group = [decide(bandit, **(some if rng.random() < 0.3 else {})) for bandit in RULES]
            group.append(decide("linear", count=2, key=f"key {t}"))
            await asyncio.gather(*group, *(reward() for _ in range(min(3, len(waiting)))))
            if t % 10 == 5:
                for bandit in RULES:
                    arms = [{"id": f"{bandit} {t}", "features": rng.uniform(-0.3, 0.3, 5).tolist()}]
                    assert (await client.post("/v1/arms", json={"bandit": bandit, "arms": arms})).status_code == 201
                    gone = {"bandit": bandit, "id": IDS[t % 12]}
                    assert (await client.delete("/v1/arms", params=gone)).status_code == 200
            if t == 15:
                for bandit in RULES:
                    await retract(bandit, 2)
                await make_and_delete(client)
            if t == 18:
                text = service.keys.create("shop", "admin")
                client.headers["Authorization"] = f"Bearer {text}"
                await asyncio.sleep(0.1)  # the file is read again
        assert (await client.delete("/v1/arms/removed", params={"bandit": "linear"})).json()["freed"] > 0
        await decide("linear", count=3)
        while (await client.get("/v1/bandits")).json()["bandits"][1]["outstanding"]:
            await asyncio.sleep(0.01)


async def make_and_delete(client):
    """A bandit that is gone when the log ends, and one of the same name."""
    arms = [{"id": f"{i}", "features": [float(i), 1.0]} for i in range(3)]
    for _ in range(2):
        body = {"name": "passing", "policy": "ucb1", "arms": arms}
        assert (await client.post("/v1/bandits", json=body)).status_code == 201
        await client.post("/v1/decisions", json={"bandit": "passing", "count": 2})
        assert (await client.delete("/v1/bandits", params={"bandit": "passing"})).status_code == 200


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    state = tmp_path_factory.mktemp("written") / "state"
    run(write(state))
    return state


def test_what_a_service_wrote_is_consistent(written):
    found = checker.check(written)
    assert [account.decisions for account in found.accounts.values()] == [ROUNDS, ROUNDS, 3 * ROUNDS + 3]
    assert [len(account.retracted) for account in found.accounts.values()] == [2, 2, 2]
    assert found.accounts["linear"].freed and len(found.deleted) == 2 and found.keys_required
    assert len(found.accounts["linear"].keys) == 2  # of nobody, and of the API key
    assert found.snapshots >= 3
    for account in found.accounts.values():
        assert account.bounds_compared == account.choices_compared == account.decisions
        assert account.active.sum() == 12 and len(account.ids) == 15
    assert 0 < found.accounts["coins"].defaults < found.accounts["coins"].rewards == ROUNDS - 2
    assert max(account.deviation for account in found.accounts.values()) > 0.0


@pytest.mark.process
def test_it_is_a_command(written, tmp_path):
    command = [sys.executable, checker.__file__]
    done = subprocess.run([*command, str(written)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "consistent"
    shutil.copytree(written, tmp_path / "state")
    with rewritten(tmp_path / "state") as rows:
        rows[nth(rows, Kind.DECISION, 0)][2]["t"] = float("nan")
    done = subprocess.run([*command, str(tmp_path / "state")], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "INCONSISTENT" in done.stderr and "its time must be finite" in done.stderr


@contextlib.contextmanager
def rewritten(state):
    """Rows to be changed, as [kind, decision, data, raw]; numbered and chained again afterwards."""
    shutil.rmtree(state / "snapshots")
    with contextlib.closing(sqlite3.connect(state / "events.db", isolation_level=None)) as database:
        database.execute("DROP INDEX one_outcome")
        rows = []
        for kind, decision, body in database.execute("SELECT kind, decision, body FROM events ORDER BY seq"):
            text, line, raw = body.partition(b"\n")
            rows.append([Kind(kind), decision, json.loads(text), line + raw])
        yield rows
        database.execute("DELETE FROM events")
        place = START
        for kind, decision, data, raw in rows:
            record = chained(Event(kind, decision, json.dumps(data).encode() + raw), place)
            database.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", record)
            place = record.position


def nth(rows, kind, n, bandit="linear", **has):
    """The number of the n-th row of a kind."""
    fitting = (i for i, (k, _, data, _) in enumerate(rows) if k == kind and data.get("bandit") == bandit)
    return [i for i in fitting if all((name in rows[i][2]) == there for name, there in has.items())][n]


def change(kind, n, what, value, **where):
    """Change one entry of one row: by a function of it."""

    def plant(rows):
        data = rows[nth(rows, kind, n, **where)][2]
        data[what] = value(data[what])

    return plant


def second_outcome(rows):
    rows.append(rows[nth(rows, Kind.REWARD, 0)])


def left_out(kind):
    return lambda rows: rows.pop(nth(rows, kind, 2))


def of_another_bandit(rows):
    rows[nth(rows, Kind.REWARD, 0)][2]["bandit"] = "coins"


def key_again(rows):
    first, second = (rows[nth(rows, Kind.DECISION, n, key=True)][2] for n in (0, 1))
    second["key"] = first["key"]


def retracted_again(rows):
    rows.append(rows[nth(rows, Kind.RETRACTED, 0, bandit="coins")])


def before_keys_of_nobody(rows):
    """A key that was answered while no API key was needed, decided anew for an API key."""
    first, second = rows[nth(rows, Kind.DECISION, 0, key=True)][2], rows[nth(rows, Kind.DECISION, -1, by=True)][2]
    second["key"] = first["key"]


def number_again(rows):
    first, second = (rows[nth(rows, Kind.DECISION, 0, bandit=bandit)] for bandit in ("coins", "scales"))
    second[2]["n"] = first[2]["n"]


def gone_arm(rows):
    """An arm that was removed long ago, decided and rewarded."""
    removed = rows[nth(rows, Kind.ARMS_REMOVED, 0)][2]["arms"][0]
    rows[nth(rows, Kind.DECISION, -1)][2]["arms"][0] = removed


def another_choice(rows):
    data = rows[nth(rows, Kind.DECISION, 1, available=False)][2]
    data["arms"][0], data["bounds"][0] = (data["arms"][0] + 1) % 12, data["bounds"][0]


PLANTED = {
    "another reward": (change(Kind.REWARD, 3, "reward", lambda y: y + 0.01), "the bound of arm"),
    "another reward of scales": (
        change(Kind.REWARD, 3, "reward", lambda y: y - 9.0, bandit="scales"),
        "the bound of arm|the twin chooses",
    ),
    "an arm that was not decided": (change(Kind.REWARD, 2, "arm", lambda arm: arm + 1), "was for arm"),
    "another token": (change(Kind.REWARD, 2, "id", lambda name: name[:-1] + "x"), "decision .* is .*, not"),
    "two outcomes": (second_outcome, "has an outcome already"),
    "an outcome elsewhere": (of_another_bandit, "none of this bandit's"),
    "a wrong bound": (change(Kind.DECISION, 20, "bounds", lambda bounds: [b + 1e-6 for b in bounds]), "the bound of"),
    "another choice": (another_choice, "the twin chooses arm|the bound of arm"),
    "an arm that is gone": (gone_arm, "not there to be played"),
    "an arm that was not available": (
        change(Kind.DECISION, 0, "available", lambda arms: [12], available=True),
        "available",
    ),
    "a wrong number": (change(Kind.DECISION, 3, "n", lambda n: n + 1), "its numbers? must be|none of this bandit's"),
    "a number twice": (number_again, "its numbers must be new"),
    "a lower number": (change(Kind.DECISION, -1, "n", lambda n: n - n + 1), "its numbers? must be"),
    "a short token of late": (change(Kind.DECISION, 3, "token", lambda token: token[:16]), "its token must be"),
    "a reward out of range": (
        change(Kind.REWARD, 0, "reward", lambda y: 9.5, bandit="coins"),
        "its reward must be within",
    ),
    "a retraction twice": (retracted_again, "was taken back before"),
    "a retraction of another reward": (
        change(Kind.RETRACTED, 0, "rewards", lambda ys: [y + 1.0 for y in ys], bandit="coins"),
        "has another reward",
    ),
    "a retraction left out": (lambda rows: rows.pop(nth(rows, Kind.RETRACTED, 0)), "the bound of arm"),
    "an arm that is not freed": (change(Kind.ARMS_FREED, 0, "arms", lambda arms: arms[1:]), "the arms to free are"),
    "keys required twice": (
        lambda rows: rows.append(next(row for row in rows if row[0] == Kind.KEYS_REQUIRED)),
        "keys are required already",
    ),
    "a key of nobody again": (before_keys_of_nobody, "was answered before"),
    "a wrong probability": (change(Kind.DECISION, 3, "p", lambda p: [0.5], bandit="coins"), "p must be"),
    "another coin": (
        lambda rows: rows[1][2]["config"].update(seed=4),
        "not what its coin says|the twin chooses arm|p must be",
    ),
    "an early default": (change(Kind.DEFAULT, 1, "t", lambda t: t - 10.0, bandit="coins"), "before its deadline"),
    "another default": (change(Kind.DEFAULT, 1, "reward", lambda y: 0.0, bandit="coins"), "a default must be -0.5"),
    "a key twice": (key_again, "was answered before"),
    "a reward left out": (left_out(Kind.REWARD), "the bound of arm"),
    "a decision left out": (left_out(Kind.DECISION), "none of this bandit's|the twin chooses arm"),
    "a second creation": (lambda rows: rows.append(rows[0]), "created a second time"),
}


def test_rewriting_alone_is_harmless(written, tmp_path):
    shutil.copytree(written, tmp_path / "state")
    with rewritten(tmp_path / "state"):
        pass
    checker.check(tmp_path / "state")


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_inconsistency_is_found(name, written, tmp_path):
    plant, words = PLANTED[name]
    shutil.copytree(written, tmp_path / "state")
    with rewritten(tmp_path / "state") as rows:
        plant(rows)
    with pytest.raises(Inconsistent, match=f"record [0-9]+: .*({words})"):
        checker.check(tmp_path / "state")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM events WHERE seq = 30", "record 30 is missing"),
        ("UPDATE events SET body = CAST(replace(body, '1', '2') AS BLOB) WHERE seq = 30", "record 30 does not fit"),
        ("UPDATE events SET body = CAST(body AS TEXT) WHERE seq = 30", "record 30 is not of the types"),
        ("UPDATE events SET chain = chain + 1 WHERE seq = 30", "record 30 does not fit the chain"),
        ("PRAGMA user_version = 3", "not a log of format 1 or 2"),
    ],
)
def test_a_damaged_chain_is_found(statement, words, written, tmp_path):
    shutil.copytree(written, tmp_path / "state")
    with contextlib.closing(sqlite3.connect(tmp_path / "state" / "events.db", isolation_level=None)) as database:
        database.execute(statement)
    with pytest.raises(Inconsistent, match=words):
        checker.check(tmp_path / "state")


def test_a_snapshot_that_is_not_of_the_log_is_found(written, tmp_path):
    shutil.copytree(written, tmp_path / "state")
    (file,) = sorted((tmp_path / "state" / "snapshots").glob("*/linear.json"))[:1]
    kept = json.loads(file.read_text())
    kept["totals"]["sums"][3] += 1e-6
    file.write_text(json.dumps(kept))
    with pytest.raises(Inconsistent, match="reward sums are not those of the log"):
        checker.check(tmp_path / "state")


@pytest.mark.parametrize(
    "options", [{}, {"sketch_size": 2, "budget": 60, "radius": "logdet", "explore": "optimism"}, {"noise": 0.3}]
)
def test_the_twin_of_multiscale_is_the_naive_one(options):
    given = BanditConfig(options=options, seed=3)
    config = given.recorded(given.build(ARMS)).to_json()
    twin, plain = twins.twin_of(config, ARMS), naive.NaiveMultiscale(ARMS, seed=3, **options)
    rng = np.random.default_rng(2)
    for _ in range(60):
        assert twin.choice == plain.select()
        arm, reward = int(rng.integers(len(ARMS))), float(rng.normal())
        twin.record(arm, reward)
        plain.update(arm, reward)
        assert (twin.bank, twin.version) == (plain.bank, plain.version)
        np.testing.assert_allclose(twin.bounds(), plain.bounds(), rtol=1e-9)
    assert twin.version > 0


def test_a_log_of_version_0_1_0_is_consistent(tmp_path):
    with tarfile.open(Path(__file__).parent / "data" / "state.tar.xz") as kept:
        kept.extractall(tmp_path, filter="data")
    (file,) = tmp_path.rglob("events.db")
    found = checker.check(file)
    assert found.snapshots > 0 and sum(account.decisions for account in found.accounts.values()) > 0
    compared = {name for name, account in found.accounts.items() if account.choices_compared}
    assert {"oful", "linucb"} <= compared and "multiscale" not in compared  # that chose by another algorithm then
