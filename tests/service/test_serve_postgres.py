"""The service on a real PostgreSQL server: killed, cut off from its database, and restarted."""

import signal
import urllib.error

import postgres_server
import psycopg
import pytest
from service_tools import PATIENCE, Process, write_arms
from test_serve import UCB1, ask, command

from sketchbandits.client import Client
from sketchbandits.service.log import open_log

__all__ = ["command"]
pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def server():
    try:
        with postgres_server.running_server() as running:
            yield running
    except postgres_server.NoServer as reason:
        pytest.skip(f"no PostgreSQL server can be started: {reason}")


def play(service, count):
    for decision in ask(service.address, "/v1/decisions", {"count": count})["decisions"]:
        ask(service.address, "/v1/rewards", {"decision_id": decision["decision_id"], "reward": 0.5})


def test_it_survives_a_kill_and_a_restart_of_the_database(tmp_path, server):
    state = tmp_path / "state"
    arms = write_arms(tmp_path / "arms.npy")
    service = Process(state, "--database", server.address, "--arms", arms, *UCB1)
    play(service, 5)
    expected = ask(service.address, "/v1/arms?sort=id")
    service.kill()

    again = Process(state, "--database", server.address)
    assert ask(again.address, "/v1/arms?sort=id") == expected
    server.stop()
    server.start()
    with Client(again.address) as client:  # nothing of the first attempt is stored: the client repeats it
        client.reward(client.decide(), 0.5)
    play(again, 2)
    server.stop()
    with pytest.raises(urllib.error.HTTPError, match="503"):
        ask(again.address, "/v1/decisions", {})
    assert again.process.wait(PATIENCE) == 1, (
        "whether that was stored is unknown, and memory must not differ from the log"
    )
    assert "cannot be determined" in again.text() and "Traceback" not in again.text()
    server.start()
    last = Process(state, "--database", server.address)
    assert ask(last.address, "/v1/bandits")["bandits"][0]["rewards"] == 8
    play(last, 1)
    assert last.stop(signal.SIGTERM) == 0
    log = open_log(server.address, read_only=True)
    assert sum(1 for _ in log.read()) == log.last.seq
    log.close()


def test_a_log_in_a_database_is_cut_with_the_snapshots_of_its_state_folder(tmp_path, server, command):
    state = tmp_path / "state"
    with psycopg.connect(server.address) as connection:
        connection.execute("CREATE SCHEMA cut")
    address = f"{server.address}&options=-csearch_path%3Dcut"
    service = Process(state, "--database", address, "--arms", write_arms(tmp_path / "arms.npy"), *UCB1)
    play(service, 3)
    assert service.stop(signal.SIGTERM) == 0
    done = command("log", address, "--cut", 5, "--state", state)
    assert done.returncode == 0 and f"1 snapshot set aside in {state / 'snapshots'}" in done.stdout
    again = Process(state, "--database", address)
    assert ask(again.address, "/v1/bandits")["bandits"][0]["rewards"] == 2
    assert again.stop(signal.SIGTERM) == 0
