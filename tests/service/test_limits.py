"""What a key may do: its bandits, its requests per second; guesses are counted, and a proxy needs keys."""

import asyncio
import logging

import pytest
from service_tools import ARMS, bandit, client_of, run, service_at

from sketchbandits.service.http import limits
from sketchbandits.service.http.endpoints import ENDPOINTS
from sketchbandits.service.http.limits import Limits
from sketchbandits.service.http.responses import HttpRefusal
from sketchbandits.service.keys import ADMIN, CLIENT

ARM = {"id": "new", "features": ARMS[0].tolist()}
FORWARDED = ("X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "Forwarded", "X-Real-IP")


def code(answer):
    return answer.status_code, answer.json()["error"]["code"]


def of_bandit(name):
    """A request of every kind that is about a bandit."""
    return {
        "decide": ("POST", "/v1/decisions", {"bandit": name}),
        "reward": ("POST", "/v1/rewards", {"bandit": name, "rewards": [{"decision_id": "1-0", "reward": 1}]}),
        "list_arms": ("GET", f"/v1/arms?bandit={name}", None),
        "add_arms": ("POST", "/v1/arms", {"bandit": name, "arms": [ARM]}),
        "remove_arms": ("DELETE", f"/v1/arms?bandit={name}&id=a1", None),
        "free_arms": ("DELETE", f"/v1/arms/removed?bandit={name}", None),
        "retract": ("POST", "/v1/retractions", {"bandit": name, "decision_ids": ["1-0"]}),
        "create_bandit": ("POST", "/v1/bandits", {"name": name, "policy": "ucb1", "arms": [ARM]}),
        "show_policy": ("GET", f"/v1/policy?bandit={name}", None),
        "show_activity": ("GET", f"/v1/activity?bandit={name}", None),
        "delete_bandit": ("DELETE", f"/v1/bandits?bandit={name}", None),
    }


def test_a_key_for_some_bandits_may_use_no_others(tmp_path):
    async def check():
        async with service_at(tmp_path / "s", bandit(), bandit("own")) as (service, _):
            key = service.keys.create("an admin of its own", ADMIN, bandits=["own", "later"])
            async with client_of(service, key) as client:
                before = service.writer.log.last
                for name, (method, path, body) in of_bandit("default").items():
                    answer = await client.request(method, path, json=body)
                    assert code(answer) == (403, "forbidden"), name
                    message = answer.json()["error"]["message"]
                    assert "'own', 'later'; got 'default'" in message, name
                assert code(await client.post("/v1/decisions", json={})) == (403, "forbidden"), "the default"
                assert code(await client.get("/metrics")) == (403, "forbidden")
                assert service.writer.log.last == before
                for method, path, body in of_bandit("own").values():
                    assert (await client.request(method, path, json=body)).status_code in (200, 201, 409), path
                unknown = await client.post("/v1/decisions", json={"bandit": "later"})
                assert unknown.status_code == 404 and "default" not in unknown.text
                method, path, body = of_bandit("later")["create_bandit"]
                assert (await client.request(method, path, json=body)).status_code == 201
                listed = (await client.get("/v1/bandits")).json()["bandits"]
                assert [entry["name"] for entry in listed] == ["later"], (
                    "its own was deleted, the default is not its own"
                )

    run(check())


def test_every_endpoint_with_a_role_is_checked_here():
    checked = {*of_bandit("x"), "list_bandits"}
    assert {endpoint.name for endpoint in ENDPOINTS if endpoint.role} <= checked


def test_an_endpoint_of_no_bandit_is_refused_to_keys_of_some(tmp_path, monkeypatch):
    monkeypatch.setattr("sketchbandits.service.http.api._FILTERED", frozenset())

    async def check():
        async with service_at(tmp_path / "s") as (service, client):
            client.headers["Authorization"] = f"Bearer {service.keys.create('a', CLIENT, bandits=['default'])}"
            assert code(await client.get("/v1/bandits")) == (403, "forbidden")

    run(check())


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.mark.parametrize(("rate", "burst", "wait"), [(5.0, 5, 1), (0.25, 1, 4), (1000.0, 1000, 1)])
def test_a_key_may_send_its_rate_and_bursts_of_a_second(rate, burst, wait):
    clock = Clock()
    found = Limits(clock)

    def admitted(key="a"):
        count = 0

        def take_all():
            nonlocal count
            while True:
                found.take(key, rate)
                count += 1

        with pytest.raises(HttpRefusal) as refused:
            take_all()
        assert (refused.value.status, refused.value.code, refused.value.retry_after) == (429, "limited", wait)
        return count

    assert admitted() == burst and admitted() == 0
    assert admitted("b") == burst, "each key has its own"
    clock.now += 1 / rate
    assert admitted() == 1
    clock.now += 1e6
    assert admitted() == burst, "what was not used is not saved"


def test_waiting_as_long_as_asked_suffices():
    clock = Clock()
    found, rate = Limits(clock), 1 / 3
    for _ in range(1000):
        found.take("a", rate)
        clock.now += 3.0


def test_above_its_rate_a_key_gets_429_and_nothing_is_done(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (service, _):
            slow, free = service.keys.create("slow", CLIENT, rate=0.5), service.keys.create("free", CLIENT)
            async with client_of(service, slow) as client:
                assert (await client.post("/v1/decisions", json={})).status_code == 200
                before = service.writer.log.last
                refused = await client.post("/v1/decisions", json={})
                assert code(refused) == (429, "limited") and 1 <= int(refused.headers["retry-after"]) <= 2
                assert "0.5 requests per second" in refused.text and service.writer.log.last == before
                assert code(await client.get("/metrics")) == (429, "limited")
                assert (await client.get("/healthz")).status_code == 200, "needs no key"
                headers = {"Authorization": f"Bearer {free}"}
                for _ in range(20):
                    assert (await client.post("/v1/decisions", json={}, headers=headers)).status_code == 200

    run(check())


def test_requests_without_a_valid_key_are_counted_and_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(limits, "REPORT_SECONDS", 0.05)

    def lines():
        return [record.getMessage() for record in caplog.records if "valid key" in record.getMessage()]

    async def check():
        async with service_at(tmp_path / "s") as (service, client):
            key = service.keys.create("a", CLIENT)
            for _ in range(3):
                await client.get("/v1/bandits", headers={"Authorization": "Bearer guess"})
            assert lines() == []
            await asyncio.sleep(0.15)
            assert lines() == ["3 requests without a valid key within a minute: 127.0.0.1 3"]
            assert (await client.get("/v1/bandits", headers={"Authorization": f"Bearer {key}"})).status_code == 200
            await asyncio.sleep(0.15)
            assert len(lines()) == 1, "nothing to report, nothing said"

    caplog.set_level(logging.WARNING)
    run(check())


def test_counts_by_address_need_bounded_memory(caplog):
    async def check():
        failures = limits.Failures()
        for i in range(3_000):
            failures.add(f"10.0.{i // 256}.{i % 256}")
        failures.add("10.0.0.7")
        assert len(failures.counts) == 1_001
        failures.report()
        assert not failures.counts

    run(check())
    assert "3,001 requests" in caplog.text and "others 2,000, 10.0.0.7 2" in caplog.text
    assert "991 more addresses" in caplog.text and len(caplog.text) < 1_000


def test_a_service_without_keys_refuses_what_came_through_a_proxy(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (service, client):
            for header in FORWARDED:
                answer = await client.get("/v1/bandits", headers={header: "203.0.113.7"})
                assert code(answer) == (400, "forwarded") and "needs keys" in answer.text
            key = service.keys.create("a", CLIENT)
            for header in FORWARDED:
                headers = {header: "203.0.113.7", "Authorization": f"Bearer {key}"}
                assert (await client.get("/v1/bandits", headers=headers)).status_code == 200

    run(check())
