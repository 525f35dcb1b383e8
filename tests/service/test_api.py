"""The HTTP side: what is answered, what is refused and in which words, and who may ask."""

import asyncio
import json
import re
from pathlib import Path

from service_tools import ARMS, IDS, bandit, run, service_at

import sketchbandits.service
from sketchbandits.service.http.endpoints import ENDPOINTS
from sketchbandits.service.http.openapi import document
from sketchbandits.service.http.responses import STATUSES
from sketchbandits.service.keys import ADMIN, CLIENT, FRESH

ARM = {"id": "new", "features": ARMS[0].tolist()}
REQUESTS = {
    "decide": ("POST", "/v1/decisions", {}),
    "reward": ("POST", "/v1/rewards", {"rewards": [{"decision_id": "1-00000000", "reward": 1.0}]}),
    "list_arms": ("GET", "/v1/arms", None),
    "add_arms": ("POST", "/v1/arms", {"arms": [ARM]}),
    "remove_arms": ("DELETE", "/v1/arms?id=a1", None),
    "free_arms": ("DELETE", "/v1/arms/removed?bandit=default", None),
    "retract": ("POST", "/v1/retractions", {"decision_ids": ["1-00000000"]}),
    "list_bandits": ("GET", "/v1/bandits", None),
    "create_bandit": ("POST", "/v1/bandits", {"name": "b", "policy": "ucb1", "arms": [ARM]}),
    "delete_bandit": ("DELETE", "/v1/bandits?bandit=b", None),
    "show_policy": ("GET", "/v1/policy", None),
    "show_activity": ("GET", "/v1/activity", None),
    "health": ("GET", "/healthz", None),
    "readiness": ("GET", "/readyz", None),
    "metrics": ("GET", "/metrics", None),
}

ADMINS = {"add_arms", "remove_arms", "free_arms", "retract", "create_bandit", "delete_bandit"}


async def send(client, name, **headers):
    method, path, body = REQUESTS[name]
    return await client.request(method, path, json=body, headers=headers)


def test_the_requests_here_are_all_there_are():
    assert set(REQUESTS) == {endpoint.name for endpoint in ENDPOINTS} | {"metrics"}


def test_every_refusal_of_the_service_has_a_status():
    folder = Path(sketchbandits.service.__file__).parent
    sources = [*folder.glob("*.py"), *(folder / "bandits").glob("*.py"), folder / "http" / "endpoints.py"]
    codes = {code for path in sources for code in re.findall(r'\bRefusal\(\s*"(\w+)"', path.read_text())}
    assert "busy" in codes and codes == set(STATUSES)


def test_booleans_are_rewards_of_one_and_zero(tmp_path):
    async def check():
        async with service_at(tmp_path) as (_, client):
            made = (await client.post("/v1/decisions", json={"count": 3})).json()["decisions"]
            for decision, reward in zip(made, (True, False, True), strict=True):
                body = {"decision_id": decision["decision_id"], "reward": reward}
                assert (await client.post("/v1/rewards", json=body)).status_code == 200
                again = await client.post("/v1/rewards", json={**body, "reward": float(reward)})
                assert again.json()["results"][0]["status"] == "known"
            entry = (await client.get("/v1/bandits")).json()["bandits"][0]
            assert entry["rewards"] == 3 and entry["mean_reward"] == 2 / 3

    run(check())


def test_a_decision_and_its_reward(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (_, client):
            answer = await client.post("/v1/decisions", json={"count": 2, "key": "k"})
            assert answer.status_code == 200
            first, second = answer.json()["decisions"]
            assert first["arm"] in IDS and first["bound"] is None and first["probability"] == 1.0
            again = await client.post("/v1/decisions", json={"count": 2, "key": "k"})
            assert again.json() == {**answer.json(), "repeated": True}
            body = {"decision_id": first["decision_id"], "reward": 0.5}
            for reward, status, word in ((0.5, 200, "accepted"), (0.5, 200, "known"), (0.6, 409, "conflict")):
                answer = await client.post("/v1/rewards", json={**body, "reward": reward})
                assert (answer.status_code, answer.json()["results"][0]["status"]) == (status, word)
            answer = await client.post("/v1/rewards", json={"decision_id": "9-00000000", "reward": 1})
            assert (answer.status_code, answer.json()["results"][0]["status"]) == (404, "unknown")
            items = [{**body, "reward": 9.0}, {"decision_id": second["decision_id"], "reward": -1.5}]
            answer = await client.post("/v1/rewards", json={"rewards": items})
            assert answer.status_code == 200
            assert [result["status"] for result in answer.json()["results"]] == ["conflict", "accepted"]
            (entry,) = (await client.get("/v1/bandits")).json()["bandits"]
            assert (entry["decisions"], entry["rewards"], entry["outstanding"]) == (2, 2, 0)
            assert entry["mean_reward"] == -0.5

    run(check())


def test_arms_come_go_and_are_shown(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (_, client):
            answer = await client.post("/v1/arms", json={"arms": [ARM]})
            assert (answer.status_code, answer.json()) == (201, {"bandit": "default", "added": 1, "total": 13})
            assert (await client.post("/v1/arms", json={"arms": [ARM]})).status_code == 409
            answer = await client.delete("/v1/arms", params={"id": ["a0", "a1"]})
            assert answer.json() == {"bandit": "default", "removed": 2, "active": 11}
            (decision,) = (await client.post("/v1/decisions", json={"available": ["a0", "a5"]})).json()["decisions"]
            assert decision["arm"] == "a5"
            page = (await client.get("/v1/arms?sort=id&limit=2&offset=1")).json()
            assert page["total"] == 13 and [arm["id"] for arm in page["arms"]] == ["a1", "a10"]
            assert [arm["active"] for arm in page["arms"]] == [False, True]
            (found,) = (await client.get("/v1/arms?search=A5")).json()["arms"]
            assert (found["id"], found["pending"], found["pulls"], found["mean"]) == ("a5", 1, 0, None)
            await client.post("/v1/rewards", json={"decision_id": decision["decision_id"], "reward": 3.0})
            for sort in ("pulls", "mean", "estimate"):
                first = (await client.get(f"/v1/arms?sort={sort}")).json()["arms"][0]
                assert (first["id"], first["pulls"], first["mean"], first["estimate"]) == ("a5", 1, 3.0, 3.0)

    run(check())


def test_several_bandits_and_their_clusters(tmp_path):
    async def check():
        async with service_at(
            tmp_path / "s", bandit(), bandit("second", policy="multiscale", options={"sketch_size": 2})
        ) as (_, client):
            body = {"name": "third", "policy": "oful", "options": {"ridge": 2}, "deadline": 60.0, "arms": [ARM]}
            answer = await client.post("/v1/bandits", json=body)
            assert answer.status_code == 201 and answer.json()["dimension"] == 5
            assert (await client.post("/v1/bandits", json=body)).status_code == 409
            names = [entry["name"] for entry in (await client.get("/v1/bandits")).json()["bandits"]]
            assert names == ["default", "second", "third"]
            assert (await client.get("/v1/policy?bandit=third")).json()["settings"]["ridge"] == 2
            policy = (await client.get("/v1/policy?bandit=second&limit=1")).json()
            assert policy["clusters"]["total"] >= 2 and len(policy["clusters"]["shown"]) == 1
            sentinel = policy["clusters"]["shown"][0]["sentinel"]
            best = (await client.get("/v1/arms?bandit=second&limit=1")).json()["arms"][0]
            assert sentinel["bound"] == best["bound"]
            await client.post("/v1/decisions", json={"bandit": "second"})
            minutes = (await client.get("/v1/activity?bandit=second")).json()["minutes"]
            assert sum(minute["decisions"] for minute in minutes) == 1

    run(check())


BAD = [
    ("POST", "/v1/decisions", b"{", 400, "JSON"),
    ("POST", "/v1/decisions", b"[]", 422, "body"),
    ("POST", "/v1/decisions", b'{"count":0}', 422, "count"),
    ("POST", "/v1/decisions", b'{"count":1001}', 422, "count"),
    ("POST", "/v1/decisions", b'{"count":"2"}', 422, "count"),
    ("POST", "/v1/decisions", b'{"colour":1}', 422, "colour"),
    ("POST", "/v1/decisions", b'{"available":[]}', 422, "available"),
    ("POST", "/v1/decisions", b"{" + b",".join(b'"x%d":1' % i for i in range(900)) + b"}", 422, "50 fields"),
    ("POST", "/v1/decisions", b'{"available":["%s"]}' % b'","'.join([b""] * 90_000), 422, "available"),
    ("POST", "/v1/decisions", b'{"available":["nothing"]}', 404, "nothing"),
    ("POST", "/v1/decisions", b'{"bandit":"nobody"}', 404, "default"),
    ("POST", "/v1/decisions", b'{"bandit":"../x"}', 422, "bandit"),
    ("POST", "/v1/rewards", b'{"decision_id":"1-00000000","reward":NaN}', 422, "reward"),
    ("POST", "/v1/rewards", b'{"decision_id":"1-00000000","reward":1e101}', 422, "reward"),
    ("POST", "/v1/rewards", b'{"decision_id":"1-00000000"}', 422, "reward"),
    ("POST", "/v1/rewards", b'{"rewards":[]}', 422, "rewards: list should have at least 1 item"),
    ("POST", "/v1/rewards", b'{"rewards":[{"decision_id":"1-00000000"}]}', 422, "rewards.0.reward: field required"),
    ("POST", "/v1/rewards", b"{}", 422, "must have decision_id and reward, or rewards, and not both; got none of them"),
    ("POST", "/v1/rewards", b'{"decision_id":"1-0","rewards":[]}', 422, "not both; got 'decision_id', 'rewards'"),
    ("POST", "/v1/rewards", b'{"reward":1,"colour":1}', 422, "decision_id: field required"),
    ("POST", "/v1/rewards", b'{"colour":1}', 422, "decision_id and reward, or rewards, and not both; got 'colour'"),
    ("POST", "/v1/rewards", b"[]", 422, "the body: input should be an object"),
    ("POST", "/v1/rewards", b'{"rewards":', 400, "JSON"),
    ("POST", "/v1/arms", b'{"arms":[{"id":"x","features":[1.0]}]}', 422, "5 columns"),
    ("POST", "/v1/arms", b'{"arms":[{"id":"x","features":[1]},{"id":"y","features":[1,2]}]}', 422, "features"),
    ("POST", "/v1/bandits", b'{"name":"x","policy":"magic","arms":[{"id":"x","features":[1]}]}', 422, "policy"),
    ("POST", "/v1/bandits", b'{"name":"x","options":{"a":1},"arms":[{"id":"x","features":[1]}]}', 422, "options"),
    ("DELETE", "/v1/arms", b"", 422, "id"),
    ("DELETE", "/v1/arms?id=nothing", b"", 404, "nothing"),
    ("DELETE", "/v1/arms?" + "&".join(f"id={i}" for i in IDS), b"", 422, "at least one"),
    ("GET", "/v1/arms?limit=0", b"", 422, "limit"),
    ("GET", "/v1/arms?colour=red", b"", 400, "colour"),
    ("GET", "/v1/arms?limit=1&limit=2", b"", 400, "limit"),
    ("GET", "/v1/nothing", b"", 404, ""),
    ("PUT", "/v1/arms", b"", 405, ""),
]


def test_bad_requests_are_refused_in_words_and_change_nothing(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (service, client):
            before = service.writer.log.last
            for method, path, body, status, word in BAD:
                headers = {"Content-Type": "application/json"}
                answer = await client.request(method, path, content=body, headers=headers)
                assert answer.status_code == status, (path, body, answer.text)
                assert set(answer.json()["error"]) == {"code", "message"} and word in answer.json()["error"]["message"]
            assert service.writer.log.last == before

    run(check())


def test_bodies_must_be_json_and_small(tmp_path):
    async def check():
        async with service_at(tmp_path / "s", body_limit=1000) as (_, client):
            assert (await client.post("/v1/decisions", content=b"{}")).status_code == 415
            headers = {"Content-Type": "application/json"}
            large = b'{"key":"' + b"x" * 1000 + b'"}'
            assert (await client.post("/v1/decisions", content=large, headers=headers)).status_code == 413

            async def pieces():
                for start in range(0, len(large), 100):
                    yield large[start : start + 100]

            assert (await client.post("/v1/decisions", content=pieces(), headers=headers)).status_code == 413

    run(check())


def test_every_endpoint_refuses_a_missing_wrong_and_revoked_key(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (service, client):
            assert (await send(client, "list_bandits")).status_code == 200, "no keys, on loopback"
            admin = service.keys.create("an admin", ADMIN)
            user = service.keys.create("a client", CLIENT)
            gone = service.keys.create("a revoked admin", ADMIN)
            service.keys.revoke(gone.split("_")[1])
            for name in REQUESTS:
                if name in ("health", "readiness"):
                    assert (await send(client, name)).status_code == 200
                    continue
                for wrong in (None, "", gone, admin[:-1] + "~", admin[:-2], "sb_000000000000_" + "x" * 43, "é"):
                    headers = {} if wrong is None else {"Authorization": f"Bearer {wrong}".encode()}
                    answer = await send(client, name, **headers)
                    assert answer.status_code == 401 and "Bearer" in answer.headers["www-authenticate"], name
                answer = await send(client, name, Authorization=f"Basic {admin}")
                assert answer.status_code == 401
                needs_admin = name in ADMINS
                answer = await send(client, name, Authorization=f"Bearer {user}")
                assert (answer.status_code == 403) == needs_admin and answer.status_code in (200, 403)
                answer = await send(client, name, Authorization=f"Bearer {admin}")
                assert answer.status_code in (200, 201), answer.text
            (tmp_path / "s" / "keys.json").unlink()
            await asyncio.sleep(2 * FRESH)
            assert (await send(client, "list_bandits")).status_code == 401, "keys that vanish let nobody in"
            (tmp_path / "s" / "keys.json").write_text("{")
            await asyncio.sleep(2 * FRESH)
            assert (await send(client, "list_bandits", Authorization=f"Bearer {admin}")).status_code == 401

    run(check())


def test_a_page_from_elsewhere_cannot_reach_an_open_service(tmp_path):
    async def check():
        async with service_at(tmp_path / "s", hosts=("localhost", "127.0.0.1")) as (_, client):
            for host, status in (("localhost:8000", 200), ("127.0.0.1", 200), ("evil.example", 400), ("", 400)):
                assert (await client.get("/v1/bandits", headers={"Host": host})).status_code == status

    run(check())


def test_what_goes_wrong_inside_is_not_told(tmp_path, monkeypatch, caplog):
    async def check():
        async with service_at(tmp_path / "s") as (service, client):
            monkeypatch.setattr(service.ledger, "bandits", None)
            answer = await client.get("/v1/bandits")
            monkeypatch.undo()
            assert answer.status_code == 500 and "NoneType" not in answer.text and "Traceback" not in answer.text
            assert "NoneType" in caplog.text

    run(check())


def test_not_ready_is_503(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (service, client):
            service.stopping = True
            for name in REQUESTS:
                answer = await send(client, name)
                if name in ("health", "metrics"):
                    assert answer.status_code == 200
                elif name != "remove_arms":
                    assert answer.status_code == 503 and answer.headers["retry-after"] == "1", name

    run(check())


def test_metrics_can_be_read_by_prometheus(tmp_path):
    from prometheus_client.parser import text_string_to_metric_families

    async def check():
        async with service_at(tmp_path / "s") as (_, client):
            await client.post("/v1/decisions", json={"count": 3})
            text = (await client.get("/metrics")).text
            values = {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            assert values["sketchbandits_decisions_total", "default"] == 3
            assert values["sketchbandits_outstanding", "default"] == 3
            assert values["sketchbandits_log_records",] == 2 and values["sketchbandits_ready",] == 1
            assert values["sketchbandits_request_seconds_count", "/v1/decisions"] == 1
            assert values["sketchbandits_answers_total", "POST", "/v1/decisions", "200"] == 1

    run(check())


def test_the_dashboards_files_are_served_safely(tmp_path):
    async def check():
        async with service_at(tmp_path / "s") as (_, client):
            page = await client.get("/")
            assert page.status_code == 200 and "default-src 'none'" in page.headers["content-security-policy"]
            for path in ("/dashboard/../api.py", "/dashboard/%2e%2e/api.py", "/dashboard/nothing.js"):
                assert (await client.get(path)).status_code == 404

    run(check())


def test_the_document_names_every_endpoint():
    described = document()
    assert json.loads(json.dumps(described)) == described
    named = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert named == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS} | {("GET", "/metrics")}
