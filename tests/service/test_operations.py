"""Changes of bandits and arms over HTTP: how long they may take, and what they say."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import run as command
from service_tools import ARMS, COMPILED, IDS, PATIENCE, bandit, run, service_at, write_arms
from test_children import answered
from test_ledger import LoggedLedger, state_of

from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.requests import CreateBandit, DeleteBandit, Retract
from sketchbandits.service.children import Children

TWO = [{"id": "x", "features": [1.0, 0.0]}, {"id": "y", "features": [0.0, 1.0]}]


def test_a_change_may_take_longer_than_a_decision(tmp_path, monkeypatch):
    """With an empty kernel cache, creating a bandit takes half a minute."""

    async def create():
        async with service_at(tmp_path, answer_seconds=0.1, operation_seconds=PATIENCE) as (service, client):
            plan = service.writer.builder.plan

            async def slow(*arguments):
                await asyncio.sleep(0.5)
                return await plan(*arguments)

            monkeypatch.setattr(service.writer.builder, "plan", slow)
            body = {"name": "second", "policy": "ucb1", "arms": TWO}
            return await client.post("/v1/bandits", json=body)

    assert run(create()).status_code == 201


def test_freeing_says_what_the_policy_takes_afterwards(tmp_path):
    async def free():
        async with service_at(tmp_path, bandit(policy="ucb1")) as (_, client):
            await client.delete("/v1/arms", params={"id": [f"a{i}" for i in range(8)]})
            answer = (await client.delete("/v1/arms/removed", params={"bandit": "default"})).json()
            (entry,) = (await client.get("/v1/bandits")).json()["bandits"]
            again = (await client.delete("/v1/arms/removed", params={"bandit": "default"})).json()
            return answer, entry, again

    answer, entry, again = run(free())
    assert answer["freed"] == 8 and answer["memory_bytes"] == entry["memory_bytes"] == again["memory_bytes"]
    assert again["freed"] == 0


def test_a_start_with_a_policy_that_takes_too_much_memory_is_refused_in_one_line(tmp_path):
    arms = write_arms(tmp_path / "arms.npy", np.eye(600))
    flags = ("--policy", "oful", "--memory", "1", "--port", "0", "--state", tmp_path / "state")
    refused = command("serve", "--arms", arms, *flags)
    assert refused.returncode == 2
    assert refused.stderr.strip().startswith("--policy must fit into 1 MiB of memory (--memory), got about")


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks into /proc")
def test_a_stop_while_kernels_are_compiled_is_no_error(tmp_path):
    arms, errors = write_arms(tmp_path / "arms.npy"), tmp_path / "stderr"
    started = [sys.executable, "-m", "sketchbandits", "serve", "--port", "0", "--arms", str(arms)]
    with errors.open("w") as file:
        process = subprocess.Popen(
            [*started, "--state", str(tmp_path / "state")],
            stderr=file,
            env=COMPILED | {"NUMBA_CACHE_DIR": str(tmp_path / "empty")},
        )
    try:
        limit = time.monotonic() + PATIENCE
        while not compiles(process) and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
    assert errors.read_text() == ""


def compiles(process):
    """Whether the process has a child that compiles."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError):
            if f"\nPPid:\t{process.pid}\n" in status.read_text():
                return "service.compiling" in status.with_name("cmdline").read_text()
    return False


@pytest.mark.process
def test_a_child_that_may_not_lower_its_priority_works_nevertheless():
    async def ask():
        children = Children("made_refused_child", most=1, seconds=PATIENCE)
        return await children.ask([b"echo ", b"all of it"], answered)

    assert run(ask())[1] == b"all of it"


def test_rewards_of_a_deleted_bandit_are_not_those_of_its_successor():
    logged = LoggedLedger()
    (old,) = logged.decide()
    assert logged.reward(old, 0.5) == "accepted"
    logged.time += 1.0
    logged.operate(DeleteBandit("default"))
    logged.time += 1.0
    logged.operate(CreateBandit("default", BanditConfig(policy="ucb1"), IDS[:2], ARMS[:2]))
    logged.time += 1.0
    before = state_of(logged.ledger)
    answer = logged.operate(Retract("default", (old["decision_id"],)))
    assert [result["status"] for result in answer["results"]] == ["unknown"]
    assert logged.reward(old, 0.5) == "unknown"
    assert state_of(logged.ledger) == before
