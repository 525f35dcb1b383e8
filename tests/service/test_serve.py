"""The service as a process: it is killed, stopped, refused and asked by hand."""

import contextlib
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
from service_tools import ARMS, COMPILED, PATIENCE, Process, bandit, run, write_arms
from test_ledger import state_of

from sketchbandits.cli.main import main
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.recovery import recover
from sketchbandits.service.bandits.snapshots import Snapshots
from sketchbandits.service.keys import FRESH
from sketchbandits.service.log import open_log
from sketchbandits.service.service import Service, Settings

UCB1 = ("--policy", "ucb1")


@pytest.fixture
def arms(tmp_path):
    return write_arms(tmp_path / "arms.npy")


def ask(address, path, body=None, key=None, method=None):
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, headers, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.load(answer)


@pytest.fixture
def command(monkeypatch, capsys):
    """A command that ends by itself, in this process."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["sketchbandits", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=end.value.code or 0, stdout=printed.out, stderr=printed.err)

    return run


def hammer(address, acknowledged, stop):
    """Decide and reward until the service is gone; keep what was acknowledged."""
    while not stop.is_set():
        try:
            for decision in ask(address, "/v1/decisions", {"count": 2})["decisions"]:
                acknowledged.append((decision["decision_id"], decision["arm"], None))
                ask(address, "/v1/rewards", {"decision_id": decision["decision_id"], "reward": 0.25})
                acknowledged.append((decision["decision_id"], decision["arm"], 0.25))
        except (OSError, ValueError, http.client.HTTPException):
            return


def logged(state):
    """Decisions and rewards of a log, by id."""
    log = open_log(str(state / "events.db"), read_only=True)
    decided, rewarded = {}, {}
    for record in log.read():
        body = json.loads(record.body.partition(b"\n")[0])
        if "arms" in body and "n" in body:
            decided |= {f"{body['n'] + i}-{body['token']}": f"{arm}" for i, arm in enumerate(body["arms"])}
        elif "reward" in body:
            assert body["id"] not in rewarded
            rewarded[body["id"]] = body["reward"]
    log.close()
    return decided, rewarded


@pytest.mark.process
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_nothing_acknowledged_is_lost_and_the_next_decisions_are_the_same(tmp_path, arms, how):
    state = tmp_path / "state"
    service = Process(state, "--arms", arms, "--snapshot-every", 40, *UCB1)
    acknowledged, stop = [[] for _ in range(4)], threading.Event()
    clients = [threading.Thread(target=hammer, args=(service.address, kept, stop)) for kept in acknowledged]
    for client in clients:
        client.start()
    while sum(map(len, acknowledged)) < 400:
        assert any(client.is_alive() for client in clients)
    code = service.stop(how)
    stop.set()
    for client in clients:
        client.join()
    assert code == (-how if how == signal.SIGKILL else 0), service.text()
    decided, rewarded = logged(state)
    for decision_id, arm, reward in (entry for kept in acknowledged for entry in kept):
        assert decided[decision_id] == arm
        assert reward is None or rewarded[decision_id] == reward

    log = open_log(str(state / "events.db"))
    recovered = recover(log, Snapshots(state / "snapshots"))
    twin = Ledger()
    twin.replay(log.read())
    log.close()
    assert recovered.snapshot.seq >= 40 and state_of(recovered.ledger) == state_of(twin)
    again = Process(state)
    expected = twin.bandits["default"].policy.select_many(6, pending=twin.bandits["default"].pending())
    made = ask(again.address, "/v1/decisions", {"count": 6})["decisions"]
    assert [int(decision["arm"]) for decision in made] == expected.tolist()
    assert again.stop(signal.SIGINT) == 0


@pytest.mark.process
def test_a_slow_request_is_ended_and_others_are_served(tmp_path, arms, monkeypatch):
    code = (
        "import sys; from sketchbandits.service.http import connections, protocol;"
        "protocol.REQUEST_SECONDS, connections.SWEEP_SECONDS = 0.5, 0.1;"
        "from sketchbandits.cli.main import main; sys.argv = ['sketchbandits', *sys.argv[1:]]; main()"
    )
    errors = tmp_path / "stderr"
    words = ["serve", "--arms", str(arms), "--state", str(tmp_path / "s"), "--port", "0", *UCB1]
    with (
        errors.open("w") as file,
        subprocess.Popen([sys.executable, "-c", code, *words], stderr=file, env=COMPILED) as process,
        contextlib.ExitStack() as ending,
    ):
        ending.callback(process.kill)  # a failed test must not wait for the service
        while "serving" not in errors.read_text():
            assert process.poll() is None, errors.read_text()
        port = int(errors.read_text().rpartition("127.0.0.1:")[2])
        head = b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        whole = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as pipelined:
            pipelined.sendall(whole + head)
            answers = b"".join(iter(lambda: pipelined.recv(1000), b""))  # until the service closes the connection
            assert answers.count(b"HTTP/1.1") == 1 and b"200 OK" in answers
        for begun in (b"", b"POST /v1/dec", head + b"Content-Length: 100\r\n\r\n{"):
            with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as slow:
                slow.sendall(begun)
                assert slow.recv(1000) == b"", "closed without an answer"
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as endless:
            with contextlib.suppress(OSError):
                for _ in range(100):
                    endless.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * 10_000)
            with contextlib.suppress(ConnectionError):
                assert endless.recv(1000)[:12] in (b"", b"HTTP/1.1 400")
        assert ask(f"http://127.0.0.1:{port}", "/readyz") == {"status": "ready"}
        process.terminate()
        assert process.wait(PATIENCE) == 0


@pytest.mark.process
def test_keys_are_made_listed_and_revoked_while_it_runs(tmp_path, arms, command):
    state = tmp_path / "state"
    service = Process(state, "--arms", arms, *UCB1)
    assert ask(service.address, "/v1/bandits")["bandits"][0]["name"] == "default"
    key = command("keys", "create", "the shop", "--role", "client", "--state", state).stdout.strip()
    time.sleep(3 * FRESH)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(service.address, "/v1/bandits")
    assert ask(service.address, "/v1/bandits", key=key)
    with pytest.raises(urllib.error.HTTPError, match="403"):
        ask(service.address, "/v1/arms?id=1", key=key, method="DELETE")
    listed = command("keys", "list", "--state", state).stdout
    assert key.split("_")[1] in listed and "the shop" in listed and key not in listed
    assert key not in (state / "keys.json").read_text()
    assert (state / "keys.json").stat().st_mode & 0o077 == 0
    assert command("keys", "revoke", key.split("_")[1], "--state", state).returncode == 0
    time.sleep(3 * FRESH)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(service.address, "/v1/bandits", key=key)
    assert service.stop(signal.SIGTERM) == 0


def test_what_serve_refuses(tmp_path, arms, command):
    before = signal.getsignal(signal.SIGINT)
    state = tmp_path / "state"
    busy = socket.create_server(("127.0.0.1", 0))
    port = busy.getsockname()[1]
    for words, code, expected in (
        (("--host", "0.0.0.0"), 2, "--host must be a loopback address"),
        (("--arms", arms, "--deadline", "0"), 2, "--deadline must be"),
        (("--arms", arms, "--exploration", "2"), 2, "--exploration must be"),
        (("--arms", arms, "--policy", "magic"), 2, "magic"),
        (("--arms", arms, "--bandit", "a/b"), 2, "'a/b'"),
        (("--arms", tmp_path / "nothing.csv"), 1, "nothing.csv"),
        (("--port", "99999"), 2, "--port must be"),
        (("--port", port), 1, f"127.0.0.1:{port}"),
        (("--database", "mysql://x"), 2, "--database must be"),
        (("--queue", "0"), 2, "--queue must be"),
    ):
        done = command("serve", "--state", state, "--port", 0, *words)
        assert (done.returncode, done.stdout) == (code, ""), (words, done)
        assert expected in done.stderr and done.stderr.count("\n") == 1, (words, done.stderr)
    busy.close()
    assert signal.getsignal(signal.SIGINT) is before, "signals mean what they meant before"


@pytest.mark.process
def test_a_state_folder_has_one_service_and_keeps_its_rules(tmp_path, arms, command):
    state = tmp_path / "state"
    service = Process(state, "--arms", arms, *UCB1)
    done = command("serve", "--state", state, "--port", 0)
    assert done.returncode == 1 and "another process" in done.stderr
    assert service.stop(signal.SIGTERM) == 0
    done = command("serve", "--state", state, "--port", 0, "--arms", arms, "--policy", "oful")
    assert done.returncode == 2 and "must keep the rules" in done.stderr
    other = write_arms(tmp_path / "other.npy", ARMS[:, :-1])
    done = command("serve", "--state", state, "--port", 0, "--arms", other, *UCB1)
    assert done.returncode == 2 and "--arms must have the 5 features" in done.stderr
    more = write_arms(tmp_path / "more.npy", np.concatenate([ARMS[1:], ARMS[:2] * 0.5]))
    again = Process(state, "--arms", more, *UCB1)
    assert "other features" in again.text() and "arm '12': new in the file: added" in again.text()
    assert ask(again.address, "/v1/bandits")["bandits"][0]["arms"] == len(ARMS) + 1
    assert again.stop(signal.SIGTERM) == 0


@pytest.mark.process
def test_a_log_that_is_gone_is_not_begun_again(tmp_path, arms, command):
    state = tmp_path / "state"
    service = Process(state, "--arms", arms, *UCB1)
    assert service.stop(signal.SIGTERM) == 0
    (state / "events.db").unlink()
    done = command("serve", "--state", state, "--port", 0)
    assert done.returncode == 1 and "records are missing" in done.stderr and done.stderr.count("\n") == 1


def test_a_recovery_can_be_stopped(tmp_path):
    class Enough(Exception):
        pass

    def enough(done, total):
        raise Enough

    async def check():
        service = Service(Settings(tmp_path, bandits=(bandit(),)))
        await service.start()
        await service.stop()
        shutil.rmtree(tmp_path / "snapshots")
        again = Service(Settings(tmp_path))
        with pytest.raises(Enough):
            await again.start(enough)
        await again.stop()
        open_log(str(tmp_path / "events.db")).close()

    run(check())


@pytest.mark.process
def test_log_checks_and_cuts(tmp_path, arms, command):
    state = tmp_path / "state"
    service = Process(state, "--arms", arms, *UCB1)
    for _ in range(5):
        ask(service.address, "/v1/decisions", {})
    assert service.stop(signal.SIGTERM) == 0
    assert command("log", state).stdout == "6 records, all good\n"
    done = command("log", state, "--cut", 4)
    assert done.returncode == 0 and "3 records" in done.stdout
    assert f"1 snapshot set aside in {state / 'snapshots'}" in done.stdout
    assert command("log", state).stdout == "3 records, all good\n"
    again = Process(state)
    assert ask(again.address, "/v1/bandits")["bandits"][0]["decisions"] == 2
    assert again.stop(signal.SIGTERM) == 0
    assert command("log", tmp_path / "nothing").returncode == 1
    done = command("log", state, "--cut", 2, "--state", state)
    assert done.returncode == 2 and "--state must be left out" in done.stderr
