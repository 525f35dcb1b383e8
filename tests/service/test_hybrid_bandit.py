"""A hybrid bandit without contexts: bit for bit the same after a crash, rewards taken back, arms that come and go."""

import numpy as np
import pytest
from service_tools import bandit, run, service_at
from test_ledger import ARMS, IDS, LoggedLedger, next_arms, played, state_of

from sketchbandits.policies.hybrid.rounds import main_of
from sketchbandits.service.bandits.bandit import MOST_REMOVED
from sketchbandits.service.bandits.config import BanditConfig
from sketchbandits.service.bandits.ledger import Ledger
from sketchbandits.service.bandits.requests import AddArms, FreeArms, Refusal, RemoveArms, Retract
from sketchbandits.service.bandits.snapshots import Snapshots, frozen
from sketchbandits.service.exercise import Need

RULES = [
    {},
    {"exploration": 0.3, "pending": 50, "deadline": 5.0, "default_reward": -0.25},
    {"options": {"half_life": "auto", "sketch_size": 3}},
    {"options": {"explore": "ts", "half_life": 30}, "seed": 4},
]


def logged_hybrid(**rules):
    return LoggedLedger(policy="hybrid", **rules)


def replayed(logged):
    ledger = Ledger()
    ledger.replay(logged.records)
    return ledger


def learned(logged, rewards, arms=IDS):
    """One reward after the other for arms in turn; the ids of the decisions."""
    found = []
    for t, value in enumerate(rewards):
        logged.time += 1.0
        (decision,) = logged.decide(available=(arms[t % len(arms)],))
        assert logged.reward(decision, float(value)) == "accepted"
        found.append(decision["decision_id"])
    return found


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_a_log_and_a_snapshot_lead_to_the_same_bits(rules, tmp_path):
    logged = logged_hybrid(**rules)
    played(logged, rounds=45)
    logged.operate(Retract("default", tuple(learned(logged, [0.5, 0.25, 0.75], IDS[2:])[:2])))
    learned(logged, [0.1, 0.9], IDS[2:])
    assert state_of(replayed(logged)) == state_of(logged.ledger)

    store, middle, half = Snapshots(tmp_path / "snapshots"), len(logged.records) // 2, Ledger()
    half.replay(logged.records[:middle])
    store.write(frozen(half, logged.records[middle - 1].position))
    ((_, restored, *_),) = store.intact()
    restored.replay(logged.records[middle:])
    assert state_of(restored) == state_of(logged.ledger)
    assert next_arms(restored, logged.time) == next_arms(logged.ledger, logged.time)


def grams(policy):
    """Per arm the number, the sum and the squares of its rewards."""
    factors = main_of(policy.state).factors
    return np.einsum("nki,nkj->nij", factors, factors)


def test_what_is_left_after_a_retraction_is_what_a_policy_without_it_knows():
    rewards = np.random.default_rng(1).normal(0.5, 0.3, 300)
    logged, clean = logged_hybrid(), logged_hybrid()
    ids = learned(logged, rewards)
    gone = (7, 37, 101, 102)
    logged.operate(Retract("default", tuple(ids[t] for t in gone)))
    for t in set(range(300)) - set(gone):
        (decision,) = clean.decide(available=(IDS[t % len(IDS)],))
        clean.reward(decision, float(rewards[t]))
    found, expected = (each.ledger.bandits["default"].policy for each in (logged, clean))
    np.testing.assert_allclose(grams(found), grams(expected), rtol=1e-9, atol=1e-9)
    assert found.counts.tolist() == expected.counts.tolist()
    assert 0.2 < found.learned["noise"] < 0.4 and found.learned["noise"] == pytest.approx(
        expected.learned["noise"], 0.1
    )
    np.testing.assert_allclose(found.estimates(), expected.estimates(), atol=0.1)


@pytest.mark.parametrize("arms", [IDS, IDS[:1]], ids=["all", "one"])
def test_a_reward_of_1e12_taken_back_leaves_no_noise_of_its_own(arms):
    logged = logged_hybrid()
    learned(logged, np.random.default_rng(2).normal(0.5, 0.3, 90), arms)
    (bad,) = learned(logged, [1e12], arms)
    logged.operate(Retract("default", (bad,)))
    learned(logged, np.random.default_rng(3).normal(0.5, 0.3, 60), arms)
    found = logged.ledger.bandits["default"].policy
    assert 0.1 < found.learned["noise"] < 1.0 and np.abs(found.estimates()).max() < 2.0
    assert state_of(replayed(logged)) == state_of(logged.ledger)


def test_all_rewards_can_be_taken_back():
    logged = logged_hybrid()
    logged.operate(Retract("default", tuple(learned(logged, [0.5, 1.0, 0.25], IDS[:2]))))
    policy = logged.ledger.bandits["default"].policy
    assert policy.counts.sum() == 0 and not grams(policy).any()
    assert state_of(replayed(logged)) == state_of(logged.ledger)


def test_the_memory_of_removed_arms_is_kept():
    logged = logged_hybrid()
    logged.operate(RemoveArms("default", IDS[:3]))
    with pytest.raises(Refusal, match=r"^policy must be multiscale, .* for the memory of .* freed, got 'hybrid'") as no:
        logged.operate(FreeArms("default"))
    assert no.value.code == "bad_value"
    more = tuple(f"more {i}" for i in range(MOST_REMOVED + 10))
    logged.operate(AddArms("default", more, np.random.default_rng(0).standard_normal((len(more), ARMS.shape[1]))))
    logged.operate(RemoveArms("default", more))
    bandit = logged.ledger.bandits["default"]
    assert not bandit.keeps_too_much and bandit.active.size == len(IDS) - 3
    assert logged.decide()[0]["arm"] in IDS[3:]


def test_over_http_and_after_a_new_start(tmp_path):
    arms = [{"id": name, "features": row.tolist()} for name, row in zip(IDS[:6], ARMS, strict=False)]
    made = bandit("kept", policy="hybrid", options={"half_life": "auto"})

    async def first():
        async with service_at(tmp_path / "s", made) as (service, client):
            refused = await client.post(
                "/v1/bandits", json={"name": "h", "policy": "hybrid", "options": {"context_dim": 3}, "arms": arms}
            )
            assert refused.status_code == 422 and "context_dim, which is for HybridCSLB" in refused.text
            body = {"name": "h", "policy": "hybrid", "options": {"noise": 0.5}, "arms": arms[:4]}
            assert (await client.post("/v1/bandits", json=body)).status_code == 201
            for name in ("h", "kept"):
                for value in (0.0, 1.0, 0.5, 1.0):
                    (one,) = (await client.post("/v1/decisions", json={"bandit": name})).json()["decisions"]
                    reward = {"bandit": name, "decision_id": one["decision_id"], "reward": value}
                    assert (await client.post("/v1/rewards", json=reward)).status_code == 200
            assert (await client.post("/v1/arms", json={"bandit": "h", "arms": arms[4:]})).status_code == 201
            gone = await client.delete("/v1/arms", params={"bandit": "h", "id": [arms[0]["id"]]})
            assert gone.json()["active"] == 5
            freed = await client.delete("/v1/arms/removed", params={"bandit": "h"})
            assert freed.status_code == 422 and "got 'hybrid'" in freed.text
            shown = (await client.get("/v1/arms", params={"bandit": "h"})).json()["arms"]
            assert all(arm["bound"] >= arm["estimate"] for arm in shown) and len(shown) == 6
            assert (await client.get("/v1/policy", params={"bandit": "h"})).json()["settings"]["noise"] == 0.5
            return state_of(service.ledger)

    async def second():
        async with service_at(tmp_path / "s", made) as (service, _):
            return state_of(service.ledger)

    assert run(first()) == run(second())


def test_what_a_bandit_records_and_needs():
    config = BanditConfig("hybrid", {"noise": 0.5})
    recorded = config.recorded(config.build(ARMS))
    assert recorded.options["sketch_size"] is None and "context_dim" not in recorded.options
    assert BanditConfig.from_json(recorded.to_json()) == recorded
    assert (
        not config.differences(recorded)
        and not BanditConfig("hybrid").differences(config.recorded(config.build(ARMS)))[1:]
    )
    plain = config.filled().options
    small, large, sized = (Need.of("hybrid", o, n, d) for o, n, d in (
        (plain, 300, 30), (plain, 3_000, 600), (plain | {"sketch_size": 9}, 300, 30)
    ))  # fmt: skip
    assert [(need.clusters, need.blocks) for need in (small, large, sized)] == [
        (False, False),
        (True, True),
        (True, True),
    ]
