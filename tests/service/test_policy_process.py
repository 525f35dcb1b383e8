"""Large policies are built by a child process, bit for bit as they would be here."""

import numpy as np
import pytest
from service_tools import run
from test_writer import Desk

from sketchbandits import snapshot
from sketchbandits.environments import correlated_arms
from sketchbandits.service.bandits import building, policy_process
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.policy_process import answer, build_elsewhere, builders
from sketchbandits.service.bandits.requests import CreateBandit, Decide, Refusal

ARMS = correlated_arms(n_arms=300, dim=7, group_size=3, normalize="max", seed=4)
CONFIG = BanditConfig(policy="ucb1")


def bits(policy):
    return policy.arms.tobytes(), {name: array.tobytes() for name, array in snapshot.leaves(policy.state)}


@pytest.mark.process
@pytest.mark.parametrize("rules", [{"policy": "ucb1"}, {"policy": "cslb", "options": {"sketch_size": 3}}], ids=str)
def test_a_child_builds_the_same_bits(rules):
    config = BanditConfig(**rules)

    async def check():
        children = builders()
        built = await build_elsewhere(children, config, ARMS)
        assert bits(built) == bits(config.build(ARMS)) and children.stopped is False
        with pytest.raises(ValueError, match="arms must be") as caught:
            await build_elsewhere(children, config, ARMS * np.nan)
        with pytest.raises(ValueError, match="arms must be") as here:
            config.build(ARMS * np.nan)
        assert str(caught.value) == str(here.value)

    run(check())


@pytest.mark.process
def test_a_large_bandit_is_created_by_a_child_and_replayed_without(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "LARGE", 1_000)
    asked = []
    real = policy_process.build_elsewhere
    monkeypatch.setattr(building, "build_elsewhere", lambda *of: asked.append(of) or real(*of))
    large = CreateBandit("large", CONFIG, tuple(map(str, range(300))), ARMS)

    async def check():
        async with Desk(tmp_path) as desk:
            assert (await desk.writer.submit(large)) == {} and len(asked) == 1
            assert (await desk.writer.submit(large)).code == "exists" and len(asked) == 1, "before anything is built"
            assert len((await desk.ask(Decide("large")))["decisions"]) == 1
            assert bits(desk.replayed().bandits["large"].policy) == bits(desk.writer.ledger.bandits["large"].policy)
            bad = CreateBandit("bad", CONFIG, large.ids, ARMS * np.nan)
            refused = await desk.writer.submit(bad)
            assert isinstance(refused, Refusal) and refused.code == "bad_value" and "arms must be" in refused.message

    run(check())


def test_what_a_child_answers(tmp_path):
    head = b'{"config": {"policy": "ucb1", "options": {}}, "shape": [1, 2], "path": "%s"}\n'
    path = tmp_path / "policy.npz"
    assert b"".join(answer(bytearray(head % bytes(path) + np.ones(2).tobytes()))) == b"null\n" and path.exists()
    said = b"".join(answer(bytearray(head % bytes(path) + np.full(2, np.nan).tobytes())))
    assert said.startswith(b'"arms must be')


def test_a_bandit_that_does_not_fit_into_memory_is_refused_before_it_is_built(tmp_path):
    async def check():
        async with Desk(tmp_path, memory=1 << 20) as desk:
            wide = CreateBandit("wide", BanditConfig(policy="oful"), ("a",), np.ones((1, 2_000)) / 50)
            refused = await desk.writer.submit(wide)
            assert refused.code == "bad_value" and "must fit into 1 MiB" in refused.message

    run(check())
