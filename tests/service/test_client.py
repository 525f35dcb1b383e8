"""The client over real sockets, against a small service that fails on demand; sync and async alike."""

import inspect
import re
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
from failing_service import KEY, Asynchronous, Handler, Server, Synchronous, ask, service

from sketchbandits import client as package
from sketchbandits.client import (
    AsyncClient,
    BadAnswer,
    Client,
    Conflict,
    Decision,
    Forbidden,
    InvalidRequest,
    NotFound,
    ServiceError,
    Unanswered,
    Unauthorized,
    Unavailable,
    UnknownDecision,
    calls,
)
from sketchbandits.client.attempts import LONGEST_WAIT, Pause, Send, exchange
from sketchbandits.service.service import Settings

ROOT = Path(__file__).parents[2]

__all__ = ["ask", "service"]  # fixtures


def test_decide_and_reward(ask, service):
    decision = ask("decide", ["a3", "a4"], bandit="default")
    assert decision == Decision("0-00ff00ff", "a3", None, 1.0)
    assert ask("reward", decision, 0.5) == "accepted"
    assert ask("reward", decision.decision_id, np.float32(0.5)) == "known"
    many = ask("decide_many", 3)
    assert [one.decision_id for one in many] == ["1000-00ff00ff", "1001-00ff00ff", "1002-00ff00ff"]
    rewards = [(many[0], 1.0), (decision, 0.75), ("77000-00ff00ff", 1.0), (decision, 0.5)]
    assert ask("reward_many", rewards) == ["accepted", "conflict", "unknown", "known"]
    assert {authorization for *_, authorization in service.requests} == {f"Bearer {KEY}"}


def test_the_single_form_raises_what_is_not_recorded(ask):
    decision = ask("decide")
    ask("reward", decision, True)
    assert ask("reward", decision, np.True_) == ask("reward", decision, 1.0) == "known"
    with pytest.raises(Conflict, match="another reward, which stays") as conflict:
        ask("reward", decision, 0.0)
    assert conflict.value.status == 409
    with pytest.raises(UnknownDecision, match="no decision '99000-aa'"):
        ask("reward", "99000-aa", 0.0)
    with pytest.raises(NotFound, match="unknown_bandit") as missing:
        ask("reward", decision, 0.0, bandit="other")
    assert not isinstance(missing.value, UnknownDecision)


@pytest.mark.parametrize("fault", ["drop", "hang", "timeout", 429, 502, 503, 504])
def test_a_decision_whose_answer_is_lost_is_made_once(ask, service, fault):
    service.faults = [fault, fault]
    decision = ask("decide", settings=(("timeout", 0.3),) if fault == "hang" else ())
    keys = {body["key"] for _, _, body, _ in service.requests}
    assert len(service.requests) >= 3 and len(keys) == 1 == len(service.decided)
    assert decision.decision_id == "0-00ff00ff"
    assert ask("decide").decision_id == "1000-00ff00ff"  # another call, another key


def test_the_same_key_gives_the_same_decision(ask):
    assert ask("decide", key="order 17") == ask("decide", key="order 17")
    with pytest.raises(Conflict, match="key must be new"):
        ask("decide", ["a1"], key="order 17")


@pytest.mark.parametrize("fault", ["drop", 503])
def test_a_reward_whose_answer_is_lost_is_recorded_once(ask, service, fault):
    decision = ask("decide")
    service.faults = [fault]
    assert ask("reward", decision, 1.0) == ("known" if fault == "drop" else "accepted")
    assert service.rewards == {decision.decision_id: 1.0}


def test_attempts_end(ask, service):
    service.faults = [503] * 9
    with pytest.raises(Unavailable, match=r"No \(503 busy\). Try again later") as failed:
        ask("decide", settings=(("attempts", 3),))
    assert len(service.requests) == 3 and failed.value.retry_after == 0.0
    service.faults = ["drop"] * 9
    with pytest.raises(Unavailable, match="no answer to POST /v1/decisions") as failed:
        ask("decide", settings=(("attempts", 2),))
    assert len(service.requests) == 5 and failed.value.status is None


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (401, Unauthorized, "sketchbandits keys create"),
        (403, Forbidden, "--role admin"),
        (422, InvalidRequest, "No"),
        (500, ServiceError, "No"),
        (302, BadAnswer, "Is url the address"),
        (418, ServiceError, "answered with 418"),
    ],
)
def test_what_is_refused_is_sent_once(ask, service, status, kind, advice):
    service.faults = [status]
    with pytest.raises(kind, match=advice) as refused:
        ask("decide")
    assert refused.value.status == status and type(refused.value) is kind
    assert len(service.requests) == 1
    assert KEY not in str(refused.value)


def test_an_answer_of_something_else_is_said_to_be_one(ask, service):
    for method in ("decide", "bandits", "policy", "ready"):
        service.faults = ["html"]
        with pytest.raises(BadAnswer, match="cannot be read: '<html>hello'"):
            ask(method)


def test_arms_are_fetched_page_by_page(ask, service):
    assert [arm.id for arm in ask("arms")] == list(service.arms)
    assert [parse_qs(urlsplit(path).query)["offset"] for _, path, *_ in service.requests] == [["0"], ["1000"], ["2000"]]
    assert [arm.id for arm in ask("arms", search="a229")] == ["a229", *(f"a229{i}" for i in range(10))]
    assert ask("arms", search="nothing") == []


def test_pages_are_fetched_when_they_are_needed(service):
    with Client(service.url) as client:
        first = next(arms := client.arms())
        assert first.id == "a0" and len(service.requests) == 1
        arms.close()


def test_retract(ask, service):
    first, second = ask("decide"), ask("decide")
    ask("reward", first, 1.0)
    assert ask("retract", [first, second.decision_id, "7-aa"]) == ["retracted", "waiting", "unknown"]
    assert service.requests[-1][2]["decision_ids"] == [first.decision_id, second.decision_id, "7-aa"]
    assert ask("retract", [first]) == ["known"]
    with pytest.raises(Conflict, match="was retracted by an administrator; it gets no other") as conflict:
        ask("reward", first, 1.0)
    assert (conflict.value.status, conflict.value.code) == (409, "retracted")
    assert ask("reward_many", [(first, 0.5), (second, 0.5)]) == ["retracted", "accepted"]


@pytest.mark.parametrize("fault", ["drop", "timeout", "failed", 429, 502, 503, 504])
def test_a_retraction_whose_answer_is_lost_is_sent_again(ask, service, fault):
    decision = ask("decide")
    ask("reward", decision, 1.0)
    service.faults, sent = [fault], len(service.requests)
    assert ask("retract", [decision]) == ["known" if fault == "drop" else "retracted"]
    assert len(service.requests) == sent + 2 and service.retracted == {decision.decision_id}


def test_a_bandit_is_deleted_and_memory_is_freed(ask, service):
    assert ask("free_arms") == 0
    ask("remove_arms", ["a1", "a2"])
    assert ask("free_arms", bandit="default") == 2
    assert service.requests[-1][:2] == ("DELETE", "/v1/arms/removed?bandit=default")
    ask("create_bandit", "second", ["x"], [[1.0]])
    assert ask("delete_bandit", "second") is None
    assert service.requests[-1][:2] == ("DELETE", "/v1/bandits?bandit=second") and service.names == ["default"]
    with pytest.raises(NotFound, match="got 'second'"):
        ask("delete_bandit", "second")


@pytest.mark.parametrize(
    ("given", "sent"),
    [((-1, np.float32(2.5)), [-1.0, 2.5]), (None, None), ((0, 1), "left out"), ("default", "left out")],
)
def test_the_range_of_rewards(ask, service, given, sent):
    made = ask("create_bandit", "second", ["p"], [[1, 2]], **({} if given == "default" else {"reward_range": given}))
    assert service.requests[-1][2].get("reward_range", "left out") == sent
    assert made.reward_range == (None if sent is None else (0.0, 1.0) if sent == "left out" else tuple(sent))
    assert (made.retracted, made.memory_bytes) == (0, 8_000) and hash(made)
    [older, _] = ask("bandits")  # of a service that does not say so yet
    assert (older.retracted, older.reward_range, older.memory_bytes) == (0, None, None)


def test_changes_have_as_long_as_the_service_gives_them():
    def timeout_of(call):
        return next(exchange(call, 5, 10.0)).request.get("timeout")

    changes = [
        calls.create_bandit("default", "second", ["x"], [[1.0]]),
        calls.delete_bandit("default", "second"),
        calls.add_arms("default", ["x"], [[1.0]]),
        calls.remove_arms("default", ["x"]),
        calls.free_arms("default"),
        calls.retract("default", ["1-aa"]),
    ]
    for call in changes:
        assert timeout_of(call) == httpx.Timeout(10.0, read=630.0)
    assert Settings(Path("state")).operation_seconds < calls.OPERATION_SECONDS
    assert timeout_of(calls.decide("default")) is timeout_of(calls.bandits("default")) is None  # the client's own


def test_arms_and_bandits_change(ask, service):
    assert ask("add_arms", ["x", "y"], np.eye(2, 3)) == 2_302
    assert service.arms["y"] == [0.0, 1.0, 0.0]
    assert ask("remove_arms", ["x"]) == 2_301
    made = ask("create_bandit", "second", ["p"], [[1, 2]], policy="oful", options={"ridge": 2.0}, exploration=0.05)
    assert (made.name, made.mean_reward) == ("second", None)
    assert service.requests[-1][2] == {
        "name": "second",
        "arms": [{"id": "p", "features": [1.0, 2.0]}],
        "policy": "oful",
        "options": {"ridge": 2.0},
        "exploration": 0.05,
    }
    assert [one.name for one in ask("bandits")] == ["default", "second"]
    assert ask("policy", limit=7, bandit="second") == {
        "bandit": "second",
        "policy": "oful",
        "clusters": None,
        "limit": "7",
    }
    assert ask("activity")["minutes"] == []


CHANGES = {
    "add_arms": (["x"], [[1.0]]),
    "remove_arms": (["a1"],),
    "create_bandit": ("second", ["x"], [[1.0]]),
    "delete_bandit": ("default",),
    "free_arms": (),
}


@pytest.mark.parametrize("method", CHANGES)
def test_a_change_whose_answer_is_lost_is_not_repeated(ask, service, method):
    for fault in (502, 504, "timeout", "failed", "drop"):  # the last is carried out
        service.faults, sent = [fault], len(service.requests)
        with pytest.raises(Unanswered, match="whether it was carried out before you repeat it"):
            ask(method, *CHANGES[method])
        assert len(service.requests) == sent + 1


@pytest.mark.parametrize("method", CHANGES)
def test_a_change_that_was_not_carried_out_is_repeated(ask, service, method):
    service.faults = [503, 429]
    ask(method, *CHANGES[method])
    assert len(service.requests) == 3


def test_ready(ask, service):
    assert ask("ready") is True
    for fault in (503, 502, "drop"):
        service.faults = [fault]
        assert ask("ready") is False
    assert len(service.requests) == 4


@pytest.mark.parametrize("kind", [Synchronous, Asynchronous])
def test_nothing_listens(kind, monkeypatch):
    monkeypatch.setattr("sketchbandits.client.attempts.FIRST_PAUSE", 0.001)
    with Server(("127.0.0.1", 0), Handler) as server:
        url = f"http://127.0.0.1:{server.server_port}"  # free again when the block ends
    with closing(kind(url)) as ask:
        assert ask("ready") is False
        for method, args in (("decide", ()), ("add_arms", (["x"], [[1.0]]))):
            with pytest.raises(Unavailable, match="no answer") as failed:
                ask(method, *args)
            assert type(failed.value) is Unavailable  # never sent, so certainly not carried out


def pauses(call, outcomes, attempts=5):
    """How long a driver would have to wait between these outcomes."""
    steps, found = exchange(call, attempts, 10.0), []
    step = next(steps)
    for outcome in outcomes:
        assert isinstance(step, Send)
        try:
            step = steps.send(outcome)
        except StopIteration:
            return found
        assert isinstance(step, Pause)
        found.append(step.seconds)
        step = steps.send(None)
    return found


def unavailable(retry_after=None):
    return httpx.Response(503, headers={} if retry_after is None else {"Retry-After": retry_after})


GOOD = httpx.Response(200, json={"bandits": []})


def test_without_word_pauses_double_with_full_jitter(monkeypatch):
    call = calls.bandits("default")
    monkeypatch.setattr("random.uniform", lambda low, high: high)
    assert pauses(call, [unavailable()] * 8 + [GOOD], 20) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    monkeypatch.setattr("random.uniform", lambda low, high: low)
    assert pauses(call, [httpx.ReadTimeout("late"), httpx.ConnectError("no"), GOOD]) == [0.0, 0.0]


def test_retry_after_is_honoured():
    call = calls.bandits("default")
    [seconds] = pauses(call, [unavailable("7"), GOOD])
    assert 7.0 <= seconds <= 7.1
    [seconds] = pauses(call, [unavailable(format_datetime(datetime.now(UTC) + timedelta(seconds=30))), GOOD])
    assert 20.0 <= seconds <= 30.1
    [seconds] = pauses(call, [unavailable("soon"), GOOD])
    assert seconds <= 0.1


def test_a_key_above_its_limit_waits_and_asks_again(ask, service):
    [seconds] = pauses(calls.bandits("default"), [httpx.Response(429, headers={"Retry-After": "3"}), GOOD])
    assert 3.0 <= seconds <= 3.1
    service.faults = [429] * 2
    with pytest.raises(Unavailable, match=r"No \(429 limited\)") as failed:
        ask("decide", settings=(("attempts", 2),))
    assert type(failed.value) is Unavailable and failed.value.retry_after == 0.0 and len(service.requests) == 2


def test_a_wait_that_is_too_long_is_left_to_the_caller():
    with pytest.raises(Unavailable) as failed:
        pauses(calls.bandits("default"), [unavailable("3600"), GOOD])
    assert failed.value.retry_after == 3600.0 > LONGEST_WAIT


def test_both_clients_have_the_same_methods():
    methods = {name for name, value in vars(Client).items() if inspect.isfunction(value) and not name.startswith("_")}
    assert len(methods) == 16
    for name in methods - {"close"}:
        both = [inspect.signature(getattr(kind, name)) for kind in (Client, AsyncClient)]
        assert both[0] == both[1] == inspect.signature(getattr(calls, name))
        assert getattr(Client, name).__doc__


@pytest.mark.parametrize(
    ("attempted", "message"),
    [
        (lambda client: client.reward("1-a", float("nan")), "value must be a number"),
        (lambda client: client.reward("1-a", "much"), "value must be a number"),
        (lambda client: client.decide_many(0), "count must be a whole number >= 1, got 0"),
        (lambda client: client.decide("a42"), "available must be several arm ids, got one text, 'a42'"),
        (
            lambda client: client.retract("1-aa"),
            "decisions must be several decisions or their ids, got one",
        ),
        (
            lambda client: client.create_bandit("b", ["x"], [[1.0]], reward_range=(0, "much")),
            "reward_range must be a number",
        ),
        (lambda client: client.add_arms(["x"], [1.0, 2.0]), "features must be a non-empty 2-D array"),
        (lambda client: client.add_arms(["x"], [[1.0], [2.0]]), "features must have one row for each of 1 ids, got 2"),
        (lambda client: Client("localhost:8000"), "url must begin with http"),
        (lambda client: Client(attempts=0), "attempts must be a whole number >= 1"),
        (lambda client: Client(timeout=0), "timeout must be"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_sent(service, attempted, message):
    with Client(service.url) as client, pytest.raises(ValueError, match=message):
        attempted(client)
    assert service.requests == []


def test_the_key_is_not_shown():
    with Client(key=KEY) as client:
        assert repr(client) == "Client('http://127.0.0.1:8000', bandit='default')"


@pytest.mark.process
def test_without_httpx_the_extra_is_named():
    code = "import sys; sys.modules['httpx'] = None; import sketchbandits; import sketchbandits.client"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: sketchbandits.client needs httpx: pip install 'sketchbandits[service]'" in done.stderr


@pytest.mark.process
def test_the_package_does_not_load_the_client():
    code = "import sys, sketchbandits; sys.exit('httpx' in sys.modules or 'sketchbandits.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_is_there():
    assert {name for name in package.__all__ if not hasattr(package, name)} == set()


def test_the_code_of_the_guide_runs(service, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKETCHBANDITS_KEY", KEY)
    text = (ROOT / "docs/howto/serve.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", text, flags=re.S | re.M)
    assert len(blocks) >= 2
    namespace = {}
    for block in blocks:
        exec(compile(block.replace("http://127.0.0.1:8000", service.url), "serve.md", "exec"), namespace)
    assert service.rewards
