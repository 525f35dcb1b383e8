"""Large bodies are parsed by a child process, with the outcome and the words of parsing here."""

import io
import json
import sys

import numpy as np
import pytest
from service_tools import run

from sketchbandits.service.bandits.requests import Refusal
from sketchbandits.service.http import body_process, large_bodies, reading
from sketchbandits.service.http.bodies import BodyType
from sketchbandits.service.http.large_bodies import LARGE, MODELS, LargeBodies
from sketchbandits.service.http.responses import HttpRefusal
from sketchbandits.service.http.schemas import ArmsRequest, BanditRequest, DecisionRequest
from sketchbandits.service.http.tables import Table, table_of

HEAD = {"name": "b", "policy": "oful", "options": {"noise": 0.5, "radius": "logdet", "ridge": 2}, "seed": 3.0}


def arms(count, dim=3, **first):
    rows = np.random.default_rng(0).standard_normal((count, dim)).tolist()
    table = [{"id": f"arm {i} \u00e4", "features": row} for i, row in enumerate(rows)]
    table[0] |= first
    return table


def body(value):
    return json.dumps(value).encode()


def in_a_child(model, data):
    """Both sides of the conversation, without a process between them."""
    name = next(name for name, known in MODELS.items() if known is model)
    answer = b"".join(body_process.answer(bytearray(name.encode() + b"\n" + data)))
    return large_bodies._read(model, io.BufferedReader(io.BytesIO(answer)))


def here(model, data):
    try:
        found = BodyType((model,)).parse(data)
        return found, table_of(found.arms)
    except Refusal as refusal:
        return refusal


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (BanditRequest, HEAD | {"arms": arms(2_500)}),
        (BanditRequest, {"name": "b", "deadline": 5, "default_reward": True * 1.0, "arms": arms(1)}),
        (ArmsRequest, {"bandit": "x", "arms": arms(3)}),
    ],
)
def test_a_body_from_a_child_is_what_parsing_here_gives(model, value):
    found = in_a_child(model, body(value))
    expected, table = here(model, body(value))
    assert type(found) is model and isinstance(found.arms, Table)
    assert found.model_dump(exclude={"arms"}) == expected.model_dump(exclude={"arms"})
    assert found.arms.ids == table.ids and np.array_equal(found.arms.features, table.features)
    assert table_of(found.arms) is found.arms
    flags = found.arms.features.flags
    assert flags.c_contiguous and flags.writeable and found.arms.features.dtype == np.float64


@pytest.mark.parametrize(
    "data",
    [
        b'{"bandit": "x", "arms": [',
        b"[1, 2]",
        b"\xff\xfe",
        body({"bandit": "x", "arms": []}),
        body({"bandit": "NO", "arms": arms(2)}),
        body({"bandit": "x", "arms": arms(2), "extra": 1}),
        body({"bandit": "x", "arms": arms(5, features=[1.0, "x", 2.0])}),
        body({"bandit": "x", "arms": arms(5, features=[1.0, 2.0])}),
        body({"bandit": "x", "arms": arms(5, features=[1e300, 0.0, 0.0])}),
        body({"bandit": "x", "arms": arms(200, **{f"k{i}": 1 for i in range(60)})}),
    ],
)
def test_a_refusal_from_a_child_has_the_words_of_parsing_here(data):
    found, expected = in_a_child(ArmsRequest, data), here(ArmsRequest, data)
    assert isinstance(found, Refusal) and type(found) is type(expected)
    assert (found.code, found.message) == (expected.code, expected.message)
    assert getattr(found, "status", None) == getattr(expected, "status", None)


def test_a_body_beyond_memory_is_refused(monkeypatch):
    def fail(body_type, data):
        raise MemoryError

    monkeypatch.setattr(BodyType, "parse", fail)
    found = in_a_child(ArmsRequest, b"{}")
    assert isinstance(found, HttpRefusal) and found.status == 413 and "GiB" in found.message


def test_only_models_of_the_table_can_be_asked_for():
    with pytest.raises(KeyError):
        list(body_process.answer(bytearray(b"os.system\n{}")))


def test_only_large_bodies_with_arms_go_to_a_child():
    large, small = b" " * (LARGE + 1), b" " * LARGE
    assert LargeBodies.takes((BanditRequest,), large) and LargeBodies.takes((ArmsRequest,), large)
    assert not LargeBodies.takes((BanditRequest,), small)
    assert not LargeBodies.takes((DecisionRequest,), large) and not LargeBodies.takes((), large)


def test_a_child_that_fails_is_a_refusal_and_so_is_a_stop(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere")
    large = LargeBodies()
    with pytest.raises(Refusal, match=r"could not be started.*send fewer arms at a time") as caught:
        run(large.parse(ArmsRequest, b"{}"))
    assert caught.value.code == "busy"
    large.stop()
    with pytest.raises(Refusal, match="stopping") as caught:
        run(large.parse(ArmsRequest, b"{}"))
    assert caught.value.code == "stopping"


@pytest.mark.process
def test_a_real_child_parses_and_refuses_and_is_held_to_its_time():
    table = arms(20_000)
    good, bad = body({"bandit": "x", "arms": table}), body({"bandit": "x", "arms": [*table, {"id": 3}]})
    assert len(good) > LARGE

    async def both():
        large, body_type = LargeBodies(), BodyType((ArmsRequest,))
        found = await reading.parse_body(body_type, good, large)
        with pytest.raises(HttpRefusal) as caught:
            await reading.parse_body(body_type, bad, large)
        with pytest.raises(Refusal, match=r"longer than 0.05 seconds"):
            await LargeBodies(seconds=0.05).parse(ArmsRequest, good)
        return found, caught.value

    found, refusal = run(both())
    assert isinstance(found.arms, Table) and found.arms.ids[-1] == table[-1]["id"]
    assert np.array_equal(found.arms.features, [arm["features"] for arm in table])
    assert (refusal.status, refusal.message) == (422, here(ArmsRequest, bad).message)
