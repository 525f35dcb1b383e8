"""A new bandit records every option of its policy; what an older version left out has the value it had then."""

import numpy as np
import pytest
from service_tools import ARMS, IDS, bandit, run, service_at

from sketchbandits.policies.registry import POLICIES
from sketchbandits.service.bandits.config import PENDING, SKETCH_SIZE, BanditConfig
from sketchbandits.service.log import open_log
from sketchbandits.service.log.events import parsed


@pytest.mark.parametrize("name", POLICIES)
def test_every_default_is_recorded_and_builds_the_same_policy(name):
    config = BanditConfig(policy=name)
    policy = config.build(ARMS)
    recorded = BanditConfig.from_json(config.recorded(policy).to_json())
    assert recorded.filled() == recorded and recorded.pending is not None
    again = recorded.build(ARMS)
    assert again.settings == policy.settings
    np.testing.assert_array_equal(again.bounds(), policy.bounds())


def test_a_new_multiscale_bandit_has_the_default_of_its_class():
    assert BanditConfig().build(ARMS).settings == POLICIES["multiscale"].policy(ARMS, seed=0).settings
    config, policy = BanditConfig(options={"sketch_size": None}), BanditConfig().build(ARMS)
    options = config.recorded(policy).options
    assert (options["sketch_size"], options["explore"], options["budget"]) == (len(ARMS[0]) // 2, "randomised", "auto")
    assert config.options_for(*ARMS.shape) == options
    assert BanditConfig(policy="soful").filled().options["sketch_size"] == SKETCH_SIZE


@pytest.mark.parametrize("policy", ["multiscale", "cslb", "cbrap"])
def test_a_record_without_a_sketch_size_has_five(policy):
    old = {"policy": policy, "options": {}, "exploration": 0.0, "deadline": None, "default_reward": 0.0}
    config = BanditConfig.from_json({**old, "pending": 1_000, "seed": 0})
    assert config.build(ARMS).settings["sketch_size"] == 5 and config.pending == 1_000


@pytest.mark.parametrize(
    ("rules", "pending"),
    [
        ({"policy": "ucb1"}, PENDING),
        ({"policy": "oful"}, 0),
        ({"policy": "multiscale"}, 0),
        ({"policy": "multiscale", "pending": 7}, 7),
        ({"policy": "ucb1", "pending": 0}, 0),
    ],
)
def test_pending_decisions_are_passed_where_the_policy_gains(rules, pending):
    config = BanditConfig(**rules)
    assert config.recorded(config.build(ARMS)).pending == pending


def test_a_service_accepts_its_own_bandit_again_whichever_version_recorded_it():
    given = BanditConfig(options={"noise": 0.5})
    new = given.recorded(given.build(ARMS))
    old = BanditConfig.from_json({**given.to_json(), "pending": 1_000})
    for recorded in (new, old):
        assert not given.differences(recorded)
        assert BanditConfig().differences(recorded) == ["noise = 0.5, got 1.0"]
        other = BanditConfig(options={"noise": 0.5, "explore": None, "sketch_size": 7}, pending=3)
        size, pending = recorded.options["sketch_size"], recorded.pending
        assert other.differences(recorded) == [f"pending = {pending}, got 3", f"sketch_size = {size}, got 7"]
    assert not BanditConfig(options={"noise": 0.5}, pending=1_000).differences(old)
    assert BanditConfig("ucb1").differences(new) == ["policy = 'multiscale', got 'ucb1'"]


@pytest.mark.parametrize("options", [{"explore": "optimism"}, {"budget": 2048}, {"explore": "randomised", "budget": 9}])
def test_options_that_are_given_are_not_those_of_an_earlier_version(options):
    old = BanditConfig.from_json({**BanditConfig().to_json(), "pending": 0})
    assert old.options == {"sketch_size": 5, "explore": "optimism", "budget": 2048}
    assert bool(BanditConfig(options=options).differences(old)) == (not options.items() <= old.options.items())
    new = BanditConfig().recorded(BanditConfig().build(ARMS))
    assert BanditConfig(options=options).differences(new)


def test_the_log_of_a_new_bandit_holds_every_option(tmp_path):
    async def check():
        async with service_at(tmp_path, bandit()) as (_, client):
            arms = [{"id": name, "features": row.tolist()} for name, row in zip(IDS, ARMS, strict=True)]
            answer = await client.post("/v1/bandits", json={"name": "second", "arms": arms})
            assert answer.status_code == 201, answer.text

    run(check())
    log = open_log(str(tmp_path / "events.db"), read_only=True)
    first, second = (parsed(record.body)["config"] for record in log.read())
    log.close()
    assert first["options"] == {"noise": 1.0, "exploration": 2.0} and first["pending"] == PENDING
    options = {"sketch_size": len(ARMS[0]) // 2, "explore": "randomised", "budget": "auto"}
    assert options.items() <= second["options"].items() and second["pending"] == 0
